"""Which share of the hidden tanh and sigmoid values is pinned at its limit?

Looks at the tanh and sigmoid values that a later layer uses, on a few batches in training mode.

Why it matters: at its limit such a unit has no slope, and little gradient passes through the layer.
Cannot tell: what drives the values there: inputs, weights or the rate.
Silent when: the values are gates, an attention or an output: only inputs of a layer with weights count. Images of at
most four channels are not hidden units.
"""

from __future__ import annotations

from typing import Any

import torch

from clew.exams.checks._network_graph import (
    MOVES,
    all_trained,
    bare,
    fed_by,
    graph,
    is_affine,
    nearest,
    place_of,
    roots,
    saved,
    users_of,
    walked,
)
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear
from clew.records.place import Place

BATCHES = 4
PINNED = 0.75
THROUGH = ("MaxPool", "AvgPool", "NativeDropout", "AdaptiveMaxPool")


@exam("activation_saturation", seconds=1.0)
def examine(lab: Lab) -> Answer:
    model = all_trained(lab.late())
    shares: dict[int, list[float]] = {}
    names: dict[int, tuple[str, Place | None]] = {}
    for number, batch in enumerate(lab.batches[:BATCHES]):
        lab.check(number / BATCHES)
        output, seen = walked(lab, model, batch)
        nodes = graph(roots(output))
        if not nodes:
            return Unclear("the output has no graph")
        users = users_of(nodes)
        hidden = [node for node in reversed(nodes) if squashes(node) and feeds_layer(node, users)]
        for at, node in enumerate(hidden):
            share = pinned(node)
            if share is not None:
                shares.setdefault(at, []).append(share)
                near = nearest(node, seen)
                name = (near.name or near.kind) if near is not None else bare(node).lower()
                names[at] = (name, place_of(node, seen, lab))
    if not shares:
        return Reading(largest_share_of_pinned_values=0.0, layers=0)
    mean = {at: sum(held) / len(held) for at, held in shares.items()}
    worst = max(mean, key=lambda at: mean[at])
    name, place = names[worst]
    reading = Reading(largest_share_of_pinned_values=mean[worst], layer=name, layers=len(mean))
    return reading.at(place) if mean[worst] > PINNED and place is not None else reading


def squashes(node: Any) -> bool:
    return bare(node) in ("Tanh", "Sigmoid")


def pinned(node: Any) -> float | None:
    values = saved(node)
    if values is None or not values.numel() or (values.dim() >= 3 and values.shape[1] <= 4):
        return None
    out = values.abs() > 0.99 if bare(node) == "Tanh" else (values < 0.01) | (values > 0.99)
    return float(out.float().mean())


def feeds_layer(node: Any, users: dict[Any, list[Any]]) -> bool:
    """Whether a layer with weights of its own takes these values in, past dropout, pooling and reshaping."""
    waiting, passed = [node], 0
    while waiting and passed < 64:
        passed += 1
        for user in users.get(waiting.pop(), []):
            name = bare(user)
            if is_affine(user):
                if any(_is_weight(fed) for fed in fed_by(user)):
                    return True
            elif name in MOVES or any(kind in name for kind in THROUGH) or (name == "Mul" and len(fed_by(user)) == 1):
                waiting.append(user)
    return False


def _is_weight(node: Any) -> bool:
    for _ in range(4):
        if hasattr(node, "variable"):
            return isinstance(node.variable, torch.Tensor) and node.variable.dim() > 1
        if bare(node) not in MOVES or len(fed_by(node)) != 1:
            return False
        node = fed_by(node)[0]
    return False
