"""Are there NaN or infinite values in inputs or targets?

Why it matters: one such number makes the loss NaN, and one step later every weight.
Cannot tell: bad records in parts of the data that were not read.
Silent when: the loss of the step stays finite, because the script masks or fills such values on purpose; masks of
minus infinity are no data; what turns bad after the loss was already NaN is a consequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from clew.observe.hooks import tensors_in
from clew.observe.ledger import LEDGER
from clew.observe.watch import Answer, Backward, Batch, Forward, LossCall
from clew.observe.watches._data_feed import FedWatch
from clew.observe.watches._data_finite import SHOWN, Hit, bad_rows, finite, look
from clew.observe.watches._data_given import parts
from clew.records.clue import Reading, Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

FREE = 1_000_000


class NonfiniteData(FedWatch):
    test = "nonfinite_data"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.values = 0
        self.pending: list[Hit] = []
        self.hits: list[Hit] = []
        self.bad = 0
        self.handled = 0
        self.poisoned = False
        self.stored: dict[str, Any] = {}

    def batch(self, event: Batch) -> None:
        super().batch(event)
        self._drop()
        if self.poisoned or (event.epoch and not event.sampled):
            return
        tensors = event.tensors or list(tensors_in(event.value, torch))
        if not event.sampled:
            size = sum(tensor.numel() for tensor in tensors)
            if size > FREE or any(tensor.device.type != "cpu" for tensor in tensors):
                return
        inputs, targets = parts(event.value, tensors)
        for part, held in (("inputs", inputs), ("targets", targets)):
            for tensor in held:
                hit = self._look(tensor, part)
                if hit is not None:
                    self.pending.append(
                        hit._replace(place=event.place, epoch=event.epoch, position=event.position, loader=event.loader)
                    )

    def forward(self, event: Forward) -> None:
        super().forward(event)
        if self.poisoned:
            return
        found = [hit for tensor in tensors_in(event.inputs, torch) if (hit := self._look(tensor, "inputs"))]
        if not found:
            self.pending = [hit for hit in self.pending if hit.part != "inputs"]  # mended on the way to the model
            return
        if all(finite(tensor) for tensor in tensors_in(event.output, torch)):
            self._drop()
            self.handled += 1
            return
        seen = [hit for hit in self.pending if hit.part == "inputs"]
        self.pending = [hit for hit in self.pending if hit.part != "inputs"]
        if not seen and not self._sound_models():
            self.poisoned = True  # what a broken model made is no data
            return
        self._confirm(seen or [hit._replace(place=event.place) for hit in found])

    def _sound_models(self) -> bool:
        models = [module for _, module in self.recorder.live_models()]
        return all(finite(parameter) for module in models for parameter in module.parameters())

    def loss(self, event: LossCall) -> None:
        if self.poisoned or not (event.sampled or self.pending):
            return
        if not isinstance(event.target, torch.Tensor) or finite(event.result):
            return
        hit = self._look(event.target, "targets")
        if hit is not None:
            seen = [held for held in self.pending if held.part == "targets"]
            self.pending = [held for held in self.pending if held.part != "targets"]
            self._confirm(seen or [hit._replace(place=event.place)])

    def before_backward(self, event: Backward) -> None:
        if not (event.sampled or self.pending) or finite(event.loss):
            if self.pending:
                self._drop()
            return
        if self.pending and not self.poisoned:
            self._confirm(self.pending)
            self.pending = []
        self.poisoned = True

    def _look(self, tensor: torch.Tensor, part: str) -> Hit | None:
        if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
            return None
        self.values += tensor.numel()
        return look(tensor, part)

    def _drop(self) -> None:
        self.handled += bool(self.pending)
        self.pending = []

    def _confirm(self, hits: list[Hit]) -> None:
        if not self.hits and hits:
            self.stored = self._stored(hits[0])
        self.bad += sum(hit.bad for hit in hits)
        self.hits = (self.hits + hits)[:32]

    def read(self) -> Answer:
        if not self.values:
            return Unclear("no float inputs or targets were seen")
        measured: dict[str, Any] = {"nonfinite_share": self.bad / self.values, "values": self.values}
        if self.handled:
            measured["batches_with_masked_values"] = self.handled
        if not self.hits:
            return Reading(**measured)
        first = self.hits[0]
        measured |= {"kind": first.kind, "part": first.part, "rows_of_the_batch": _shown(first.rows)}
        columns = sorted({column for hit in self.hits for column in hit.columns})
        measured |= {"columns": _shown(columns[:SHOWN])} if columns else {}
        measured |= {"batch": first.position, "epoch": first.epoch} if first.position is not None else {}
        measured |= self.stored
        return Reading(**measured).at(*(hit.place for hit in self.hits[:1] if hit.place is not None))

    def _stored(self, hit: Hit) -> dict[str, Any]:
        """Which examples of the data set it is, and which columns of which file had gaps, where that can be seen."""
        found: dict[str, Any] = {}
        loader = self.feed.loaders.get(hit.loader) if hit.loader is not None else None
        dataset = loader.source.dataset() if loader is not None and loader.source.dataset is not None else None
        if isinstance(dataset, torch.utils.data.TensorDataset):
            rows = sorted({row for tensor in dataset.tensors for row in bad_rows(tensor)})
            found |= {"rows_of_the_data_set": _shown(rows[:SHOWN]), "rows_affected": len(rows)}
        gaps = LEDGER.gaps()
        return found | ({"gaps_on_reading": gaps} if gaps else {})


def _shown(numbers: Any) -> str:
    return ", ".join(str(number) for number in numbers)
