"""Do padding positions count in the loss or in the metric?

Finds the padding in token inputs: one id that closes the rows, in runs of different lengths, and stands nowhere else.
Then looks at the token targets of cross_entropy and nll_loss in the same places: whether they are all one label that is
neither ignored nor weighted with zero.

Why it matters: padding is trivial to predict, so it dilutes the gradient of real tokens and flatters every average.
Cannot tell: padding on the left, padded features that are no tokens, padding counted in a metric alone.
Silent when: the label is ignore_index or has weight zero, the loss is not reduced (it may be masked afterwards), padded
positions were taken out before the loss, or an id merely repeats at the end of rows. The first position of each run
never counts as padding, since it may be the end of the text.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from clew.observe.watch import Answer, Forward, LossCall, ModuleCall, Watch, when_sampled
from clew.observe.watches._loss_values import CLASSES, ignored, integers, reduction
from clew.records.clue import Reading, Unclear
from clew.tape.tokens import padding

if TYPE_CHECKING:
    from clew.records.place import Place

ROWS = 256
FEWEST = 2


class Padded(NamedTuple):
    """Token rows with padding at their ends; `lengths` holds the padding of each of the first rows."""

    step: int
    rows: int
    columns: int
    across: bool  # True where time is the first axis
    lengths: list[int]


class PaddingCounted(Watch):
    test = "padding_counted"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.padded: deque[Padded] = deque(maxlen=8)
        self.calls = self.batches = 0
        self.counted = self.positions = 0
        self.spared = 0  # calls in which the targets of padding were seen to be left out
        self.open = ""  # why they could not be told
        self.label: int | None = None
        self.where: Place | None = None

    def module(self, event: ModuleCall) -> None:
        if not self.recorder.sampled:
            return  # the loss is not looked at either, and to read tokens waits for the device
        if isinstance(event.module, torch.nn.Embedding) and event.inputs and not event.evaluation:
            self._look(event.inputs[0], event.step)

    def forward(self, event: Forward) -> None:
        if event.grad and self.recorder.sampled:
            for value in event.inputs:
                self._look(value, event.step)

    def _look(self, value: Any, step: int) -> None:
        if not integers(value) or value.dim() != 2 or min(value.shape) < FEWEST:
            return
        with torch.no_grad():
            for across in (False, True):
                ids = value.detach().t() if across else value.detach()
                lengths = padding(ids[:ROWS])
                if lengths is not None:
                    self.padded.append(Padded(step, ids.shape[0], ids.shape[1], across, lengths))
                    return

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if not event.sampled or not event.grad or event.name not in CLASSES or not integers(event.target):
            return
        self.calls += 1
        if reduction(event) == "none":
            self.open = "the loss is not reduced, so a mask may follow"
            return
        with torch.no_grad():
            for held in self.padded:
                if held.step == event.step and self._counts(event, held):
                    self.batches += 1
                    self.where = event.place
                    return

    def _counts(self, event: LossCall, held: Padded) -> bool:
        """Count the padding among the targets of this call, if it lies where the inputs have theirs."""
        targets = laid_out(event.target.detach(), held)
        if targets is None:
            self.open = "the targets do not lie as the inputs do"
            return False
        ends = [targets[row, -(length - 1) :] for row, length in enumerate(held.lengths) if length > 1]
        ends = [end for end in ends if end.numel()]
        labels = torch.cat(ends) if ends else targets.new_empty(0)
        if not labels.numel() or not bool((labels == labels[0]).all()):
            self.open = "the targets at the padding are not all one label"
            return False
        label = int(labels[0])
        weight = event.options.get("weight")
        if label == ignored(event) or (isinstance(weight, torch.Tensor) and float(weight[label]) == 0):
            self.positions += int((targets != ignored(event)).sum())
            self.spared += 1
            return False
        self.label = label
        self.counted += labels.numel()
        self.positions += int((targets != ignored(event)).sum())
        return True

    def read(self) -> Answer:
        if not self.calls:
            return Unclear("no training call of a loss with class indices was seen")
        if self.batches < FEWEST and not self.spared:
            return Unclear(self.open or "no padding was recognised in the token inputs")
        if self.batches < FEWEST:
            return Reading(counted_padding_share=0.0, calls=self.calls)
        share = self.counted / max(self.positions, 1)
        reading = Reading(counted_padding_share=share, label=self.label, batches=self.batches)
        return reading.at(self.where) if self.where is not None else reading


def laid_out(target: torch.Tensor, held: Padded) -> torch.Tensor | None:
    """The targets as (rows, columns) of the inputs they belong to; they may be shorter by the one token they are
    shifted by."""
    for columns in (held.columns, held.columns - 1):
        if target.numel() == held.rows * columns and columns > 1:
            table = (columns, held.rows) if held.across else (held.rows, columns)
            if target.dim() == 1 or tuple(target.shape) == table:
                rows = target.reshape(table)
                return (rows.t() if held.across else rows)[: len(held.lengths)]
    return None
