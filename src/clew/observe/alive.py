"""Which forward calls a backward belongs to.

A call leaves a token in the graph of its output. When nothing holds that graph any more the token is gone with it, and
no backward can reach the call: an evaluation without `no_grad`, say. Where several calls are alive, those that a
backward trains on are found by walking its graph. Nothing is kept alive by this.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any

NAME = "clew.forward"
MOST_OUTPUTS = 8
NODES = 20_000


class Token:
    __slots__ = ("__weakref__",)


Held = weakref.ref[Token] | None


def mark(outputs: Iterable[Any]) -> Held:
    """Leave a token in the graphs of a call's outputs; None where they have none, or only what went in."""
    token = None
    for count, output in enumerate(outputs):
        node = output.grad_fn
        if node is not None and NAME not in node.metadata:
            token = token or Token()
            node.metadata[NAME] = token
        if count >= MOST_OUTPUTS:
            break
    return weakref.ref(token) if token is not None else None


def reached(root: Any) -> set[Token] | None:
    """The tokens in the graph of a tensor; None where there is too much of it to walk."""
    node = root.grad_fn
    found: set[Token] = set()
    if node is None:
        return found
    waiting, met = deque([node]), {node}
    while waiting:
        node = waiting.popleft()
        token = node.metadata.get(NAME)
        if token is not None:
            found.add(token)
        for following, _ in node.next_functions:
            if following is not None and following not in met:
                met.add(following)
                waiting.append(following)
        if len(met) > NODES:
            return None
    return found
