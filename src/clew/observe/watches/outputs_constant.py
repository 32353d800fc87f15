"""Does the model give the same output for every input?

At the training calls of loss functions whose targets differ between examples, takes the standard deviation of each
output over the examples and divides it by the size of the outputs. What counts is the latest sampled steps, not the
initialisation.

Why it matters: a model that answers alike to everything has lost its input on the way, or is paid for the mean.
Cannot tell: whether the input carries no difference, the network drops it, or the loss rewards a constant.
Silent when: all targets of the batch are equal (one side of a GAN, a residual that should vanish), the batch has fewer
than four examples, or the targets themselves differ little compared with their size and the outputs follow them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.watch import Answer, LossCall, Watch, when_sampled
from clew.observe.watches._loss_values import CLASSES, plain
from clew.records.clue import Reading, Unclear

if TYPE_CHECKING:
    from clew.records.place import Place

LATEST = 3
NAMED_AFTER = 30
"""Steps before which a classifier may well name one class throughout."""
WITH_LABELS = frozenset(
    "cross_entropy nll_loss binary_cross_entropy binary_cross_entropy_with_logits mse_loss l1_loss smooth_l1_loss "
    "huber_loss".split()
)


class OutputsConstant(Watch):
    test = "outputs_constant"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.by_site: dict[tuple[str, Place | None], deque[float]] = {}

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if not event.sampled or not event.grad or event.step < 1 or event.name not in WITH_LABELS:
            return
        outputs, targets = event.input, event.target
        if not (plain(outputs) and plain(targets)) or outputs.dim() == 0 or outputs.shape[0] < 4 or targets.dim() == 0:
            return
        site = (event.name, event.place)
        if len(self.by_site) >= 64 and site not in self.by_site:
            return
        spread = measure(event)
        if spread is not None:
            self.by_site.setdefault(site, deque(maxlen=LATEST)).append(spread)

    def read(self) -> Answer:
        settled = {place: max(held) for (_, place), held in self.by_site.items() if len(held) == LATEST}
        if not settled:
            return Unclear("too few batches of four or more examples with different targets were seen at a loss")
        place, spread = min(settled.items(), key=lambda item: item[1])
        reading = Reading(spread_over_examples=spread)
        return reading.at(place) if place is not None and spread < 0.01 else reading


def measure(event: LossCall) -> float | None:
    """How much outputs differ between examples, as a share of their size; None where nothing asks them to differ."""
    with torch.no_grad():
        outputs = examples(event.input)
        labels = examples(event.target)
        differ = float(labels.std(0).mean())
        if outputs.shape[0] < 4 or not differ > 0 or not bool(torch.isfinite(outputs).all()):
            return None
        size = float(outputs.square().mean().sqrt())
        if event.name not in CLASSES and event.target.is_floating_point():
            size = min(size, differ)  # a large offset that outputs and targets share must not hide the rest
        spread = float(outputs.std(0).mean())
        if event.name in CLASSES and event.step >= NAMED_AFTER and outputs.shape[0] >= 16:
            named = event.input.detach().argmax(1)
            if bool((named == named.reshape(-1)[0]).all()):
                return 0.0
        return spread / size if size > 0 else 0.0


def examples(tensor: torch.Tensor) -> torch.Tensor:
    """(examples, values per example), as floats; of very many values only some."""
    rows = tensor.detach().reshape(tensor.shape[0], -1)
    rows = rows[: 4096 if rows.shape[1] < 1024 else 64]
    return rows[:, :: max(1, -(-rows.numel() // 100_000))].float()
