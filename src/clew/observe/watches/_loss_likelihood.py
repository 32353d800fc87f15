"""The sign of a likelihood that is written out by hand.

A log-probability is a log_softmax, or scores less the logsumexp of the same scores (logcumsumexp in the partial
likelihood of survival times). The loss is followed down to them through sums, means, masks and minus signs. It counts
as a likelihood only where it consists of nothing else and every part has the same weight: factors that differ, as
returns and advantages do, may well turn a sign on purpose.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from clew.observe.watches._loss_graph import LARGE, LINEAR, PICKS, Key, bare, hooked, inputs, key, walk

SEVERAL = frozenset("Split SplitWithSizes Unbind".split())
THROUGH = (LINEAR | PICKS | {"Diagonal", "DiagonalBackward0_copy"}) - SEVERAL
"""Of several results one alone has no slope to be read."""
NORMALISED = frozenset(("LogSoftmax",))
SUMS = frozenset(("Logsumexp", "Logcumsumexp"))
MOST = 256
ALIKE = 1.001


class Likelihood(NamedTuple):
    """`sign` is that of the log-probabilities in the loss, -1 as it should be. Use `node` at once, do not keep it."""

    sign: int
    node: Any


def likelihood(root: torch.Tensor) -> Likelihood | None:
    """None where the loss is something else, or a likelihood among other things."""
    if root.grad_fn is None or root.is_sparse or root.is_meta or root.numel() != 1:
        return None
    ends = _ends(root)
    if not ends:
        return None
    whole = [(node, slope) for node, slope in ends if bare(node) in NORMALISED]
    below = [(node, slope) for node, slope in ends if bare(node) in SUMS]
    scores = [(node, slope) for node, slope in ends if bare(node) not in NORMALISED | SUMS]
    known: set[Key] = {key(walk(inputs(node)[0], THROUGH)) for node, _ in below if inputs(node)}
    if any(key(node) not in known for node, _ in scores) or bool(below) != bool(scores):
        return None
    signs = {_sign(slope) for _, slope in whole} | {-_sign(slope) for _, slope in below}
    # What scores themselves get is added up where they meet, and may cancel out: their sign must only fit.
    if len(signs) != 1 or 0 in signs or any(_sign(slope, False) not in (0, *signs) for _, slope in scores):
        return None
    return Likelihood(signs.pop(), (whole or below)[0][0])


def _ends(root: torch.Tensor) -> list[tuple[Any, torch.Tensor]]:
    """What the loss is a weighted sum of, with the weights; nothing where that cannot be told."""
    found: list[tuple[Any, torch.Tensor]] = []
    with torch.no_grad():
        waiting: list[tuple[Any, torch.Tensor]] = [(root.grad_fn, torch.ones_like(root))]
        for _ in range(MOST):
            if not waiting:
                return found
            node, slope = waiting.pop()
            name, fed = bare(node), inputs(node)
            if name not in THROUGH or not fed:
                found.append((node, slope))
                continue
            if slope.numel() > LARGE or hooked(node) or (name in ("Mul", "Div") and len(fed) > 1):
                return []
            slopes = node(slope)
            slopes = slopes if isinstance(slopes, tuple) else (slopes,)
            pairs = zip(node.next_functions, slopes, strict=False)
            waiting += [(n, held) for (n, _), held in pairs if n is not None and held is not None]
    return []


def _sign(slope: torch.Tensor, even: bool = True) -> int:
    """Of weights that are all on one side and, where `even`, of one size; 0 of others. Zeros are left out."""
    held = slope.detach().float().flatten()
    held = held[held != 0]
    if not len(held):
        return 0
    low, high = float(held.min()), float(held.max())
    if low * high <= 0:
        return 0
    sizes = sorted((abs(low), abs(high)))
    return 0 if even and sizes[1] > ALIKE * sizes[0] else 1 if low > 0 else -1
