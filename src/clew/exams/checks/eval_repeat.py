"""Does the model in eval mode give the same outputs twice for the same batch?

Runs the same batch twice in eval mode without setting a seed in between, and for comparison twice in training mode.

Why it matters: dropout that stays on in eval mode, or a buffer that every forward pass changes, spoils validation and
inference.
Cannot tell: randomness in the loading of data; batch norm in training mode, which repeats itself on the same batch.
Silent when: only training mode draws random numbers. A model that draws normal numbers in eval mode, as variational
and diffusion models do on purpose, is unclear; so are random draws in a captured step outside dropout.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from clew.exams.batches import is_values, tensors
from clew.exams.checks._network_graph import line_now
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.exams.replay import TapedModel
from clew.records.clue import Answer, Reading, Unclear
from clew.records.place import Place

VARIES = 1e-4
DRAWS = frozenset(
    "bernoulli native_dropout dropout rand rand_like randn randn_like normal uniform randint randint_like randperm "
    "multinomial random exponential poisson binomial fused_dropout".split()
)
NORMAL = frozenset("randn randn_like normal randint randint_like randperm".split())


@exam("eval_repeat", seconds=0.5)
def examine(lab: Lab) -> Answer:
    model = lab.late(training=False)
    draws = Draws()
    with torch.no_grad(), lab.seeded():
        with draws:
            first = _values(lab.output(model, lab.batch))
        second = _values(lab.output(model, lab.batch))
        if not first:
            return Unclear("the model's output has no values to compare")
        gap = difference(first, second)
        training = lab.late()
        gap_in_training = difference(*(_values(lab.output(training, lab.batch)) for _ in range(2)))
    drawn = sorted(draws.seen)
    if gap > VARIES and drawn and isinstance(model, TapedModel):
        return Unclear(
            f"the captured training step calls {', '.join(drawn)} directly; whether the model also does so in "
            "eval mode is unknown"
        )
    if gap > VARIES and drawn and set(drawn) <= NORMAL:
        place = draws.seen[drawn[0]]
        at = f" at {place}" if place is not None else ""
        return Unclear(
            f"outputs differ by {gap:.2g} in eval mode because the model calls {', '.join(drawn)}{at}; models "
            "that sample do this on purpose"
        )
    reading = Reading(
        largest_relative_difference=gap,
        in_training=gap_in_training,
        draws=", ".join(drawn) or None,
    )
    places = [place for place in draws.seen.values() if place is not None]
    return reading.at(*places[:2]) if not gap <= VARIES and places else reading


def _values(output: Any) -> list[torch.Tensor]:
    return [value.detach().clone() for value in tensors(output) if is_values(value)]


def difference(first: list[torch.Tensor], second: list[torch.Tensor]) -> float:
    """The largest difference over the largest value, over all tensors; NaN when one pass is finite and one is not."""
    if [value.shape for value in first] != [value.shape for value in second]:
        return math.inf
    worst = 0.0
    for one, other in zip(first, second, strict=True):
        if not one.numel():
            continue
        finite = torch.isfinite(one)
        if not torch.equal(finite, torch.isfinite(other)):
            return math.nan
        gap = (one - other).abs()[finite]
        size = one.abs()[finite]
        if gap.numel() and float(gap.max()) > 0:
            worst = max(worst, float(gap.max()) / max(float(size.max()), 1e-30))
    return worst


class Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes operations that draw random numbers, with their line."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: dict[str, Place | None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.overloadpacket.__name__).rstrip("_").removeprefix("_")
        if name in DRAWS and name not in self.seen:
            self.seen[name] = line_now()
        return func(*args, **(kwargs or {}))
