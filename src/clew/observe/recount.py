"""How many answers were right in evaluation, counted beside the script.

Labels are those that a loss function was given, or those of the loader's batch that was asked about. A pass is what
one line asks between two steps of training, with one loader; a line that asks without a loader may hand over a whole
set at a time, so that there each call counts as a pass of its own as well.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.watch import Answer, Batch, Forward, LossCall, Watch
from clew.observe.watches._loss_values import CLASSES, plain
from clew.records.clue import Unclear
from clew.records.trace import ASKED, RIGHT

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

PASSES = 512
NAMES = ("labels", "label", "target", "targets", "y")


class Recount(Watch):
    """An instrument of the recorder's own: it writes series, and what is printed is held against them at the end."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.passes: dict[tuple[str, int], tuple[torch.Tensor, int]] = {}
        self.written: dict[tuple[str, int], int] = {}
        self.labels: weakref.ref[torch.Tensor] | None = None
        self.calls = 0
        self.one_each = False  # whether the model answers each example once, and not each word of it

    def batch(self, event: Batch) -> None:
        held = labels_of(event.value)
        self.labels = None if held is None else weakref.ref(held)

    def forward(self, event: Forward) -> None:
        self.one_each = plain(event.output) and event.output.dim() == 2
        labels = self.labels() if self.labels is not None and event.evaluation else None
        if labels is not None and plain(event.output) and one_for_each(event.output, labels):
            self._count("call", event.output, labels, event.step)

    def loss(self, event: LossCall) -> None:
        if event.grad or not self.one_each or event.name not in CLASSES:
            return
        if not (plain(event.input) and plain(event.target)) or event.options.get("weight") is not None:
            return
        if one_for_each(event.input, event.target):
            self._count(str(event.place), event.input, event.target, event.step)

    def _count(self, site: str, outputs: torch.Tensor, labels: torch.Tensor, step: int) -> None:
        if labels.device.type == "cpu" and bool((labels < 0).any()):
            return  # masked ones are asked of nobody
        right = (outputs.detach().argmax(1) == labels.to(outputs.device)).sum()  # read later: the device need not wait
        loader = self.recorder.loader
        self._add((f"{site} {loader}", step), right, len(labels))
        if loader is None:
            self.calls += 1
            self._add((f"{site} call {self.calls % 8}", step), right, len(labels))

    def _add(self, key: tuple[str, int], right: torch.Tensor, asked: int) -> None:
        held = self.passes.get(key)
        if held is not None:
            self.passes[key] = (held[0].to(right.device) + right, held[1] + asked)
        elif len(self.passes) < PASSES:
            self.passes[key] = (right, asked)

    def write(self) -> None:
        """At a checkpoint. A pass that has gone on since it was written is written again; its last values count."""
        for key, (right, asked) in self.passes.items():
            if self.written.get(key) != asked:
                self.written[key] = asked
                self.recorder.record(RIGHT, float(right), *key)
                self.recorder.record(ASKED, float(asked), *key)

    def read(self) -> Answer:
        return Unclear("it answers no test")


def labels_of(value: Any) -> torch.Tensor | None:
    if isinstance(value, Mapping):
        value = [held for name in NAMES if isinstance(held := value.get(name), torch.Tensor)]
    last = value[-1] if isinstance(value, list | tuple) and len(value) else None
    return last if isinstance(last, torch.Tensor) else None


def one_for_each(outputs: torch.Tensor, labels: torch.Tensor) -> bool:
    """One score for each class, and one whole number for each example."""
    return (
        outputs.dim() == 2
        and outputs.shape[1] > 1
        and outputs.is_floating_point()
        and labels.dtype in (torch.int64, torch.int32)
        and labels.shape == outputs.shape[:1]
    )
