"""Do the scores that a softmax loss gets differ enough to prefer any class?

At cross_entropy in training, takes how far the scores of an example lie apart. Where they hardly do, looks whether a
constant, such as a temperature, divided them on their way, and how far apart they would lie without it.

Why it matters: a softmax over scores that agree to a hundredth is even whatever the model says. The loss stays at the
logarithm of the number of classes, and only an optimiser that ignores the size of gradients moves at all.
Cannot tell: why scores are flat that nothing divided: see outputs_constant and weight_init.
Silent when: training is younger than forty steps, or the loss has left its start.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.watch import Answer, LossCall, Saw, Watch, when_sampled
from clew.observe.watches._loss_graph import MOVES, bare, hooked, walk
from clew.observe.watches._loss_values import plain
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

LATE = 40
LATEST = 2
FLAT, USUAL = 0.05, 0.3
"""Of the distance between the scores of one example: what says nothing, and what they have without the constant."""
EVEN = 0.02  # how near to the logarithm of the number of classes, as a share of it, the loss still is
ROWS = 256
THROUGH = MOVES | frozenset(("MaskedFill", "Where", "Add", "Sub"))


class ScoresSpread(Watch):
    test = "scores_spread"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.calls = 0
        self.late: deque[tuple[float, float, bool]] = deque(maxlen=LATEST)  # distance, divisor, loss still even
        self.place: Place | None = None

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if not event.sampled or not event.grad or event.name != "cross_entropy" or not plain(event.input):
            return
        if event.input.dim() != 2 or min(event.input.shape) < 2:
            return
        self.calls += 1
        if event.step < LATE:
            return
        scores = event.input.detach()[:ROWS]
        low = scores.masked_fill(~torch.isfinite(scores), math.inf).amin(1)
        high = scores.masked_fill(~torch.isfinite(scores), -math.inf).amax(1)
        distance = float((high - low).median())
        chance = math.log(event.input.shape[1])
        loss = float(event.result.detach()) if event.result.numel() == 1 else math.nan
        even = abs(loss - chance) < EVEN * chance
        self.late.append((distance, divisor(event.input.grad_fn) if distance < FLAT else 1.0, even))
        self.place = event.place

    def read(self) -> Answer:
        if len(self.late) < LATEST:
            return Unclear(f"fewer than two calls of cross_entropy after {LATE} steps were sampled")
        widest = max(distance for distance, _, _ in self.late)
        by = min(divided for _, divided, _ in self.late)
        if widest < FLAT and all(even for _, _, even in self.late) and widest * by > USUAL:
            says = (
                f"the scores of an example differ by at most {widest:.2g} because they are divided by "
                f"{by:.3g}: softmax sees all classes as equal"
            )
            return Saw("divided_away", distance=widest, divisor=by).at(self.place).saying(says)
        return Saw("spread", distance=widest, calls=self.calls)


def divisor(node: Any) -> float:
    """The constant that these values were divided by, 1 where there is none."""
    if node is None:
        return 1.0
    node = walk(node, THROUGH)
    name = bare(node)
    if name not in ("Div", "Mul") or hooked(node):
        return 1.0
    held = getattr(node, "_saved_other", None)
    if not isinstance(held, torch.Tensor) or held.numel() != 1 or not float(held):
        return 1.0
    factor = abs(float(held))
    return factor if name == "Div" else 1 / factor
