"""Are there NaN or infinite values in inputs or targets?

Where all are finite, a table that was read held infinite ones, and a column enters the model with one value in every
row, that is said: an infinite value that goes into a mean and is replaced afterwards leaves nothing else behind.

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
from clew.observe.watch import Answer, Backward, Batch, Forward, LossCall, Saw
from clew.observe.watches._data_feed import FedWatch
from clew.observe.watches._data_finite import SHOWN, Hit, bad_rows, finite, look
from clew.observe.watches._data_given import parts
from clew.records.clue import Reading, Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

FREE = 1_000_000
COLUMNS, BATCHES, ROWS = 48, 4, 256
"""The widest table whose columns are followed, and from how many batches and rows on one of them stands still."""


class Columns:
    """Which columns of a table had the same value in every row so far."""

    def __init__(self, table: torch.Tensor) -> None:
        self.first = table[0].detach().clone()
        self.still = torch.ones_like(self.first, dtype=torch.bool)
        self.batches = self.rows = 0

    def add(self, table: torch.Tensor) -> None:
        if table.shape[1] == len(self.first) and table.device == self.first.device:
            self.still &= (table.detach() == self.first).all(0)
            self.batches += 1
            self.rows += len(table)

    def standing(self) -> list[int]:
        enough = self.batches >= BATCHES and self.rows >= ROWS
        return self.still.nonzero().flatten().tolist() if enough and not bool(self.still.all()) else []


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
        self.columns: dict[int, Columns] = {}  # by model

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
        self._follow_columns(event)
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

    def _follow_columns(self, event: Forward) -> None:
        first = next(tensors_in(event.inputs, torch), None)
        if first is None or not event.grad or not first.is_floating_point() or first.dim() != 2:
            return
        if 2 <= first.shape[1] <= COLUMNS and len(first) > 1 and first.layout is torch.strided:
            self.columns.setdefault(event.model, Columns(first)).add(first)

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
            wiped = self._wiped()
            if wiped is not None:
                return wiped
            return Reading(**measured)
        first = self.hits[0]
        measured |= {"kind": first.kind, "part": first.part, "rows_of_the_batch": _shown(first.rows)}
        columns = sorted({column for hit in self.hits for column in hit.columns})
        measured |= {"columns": _shown(columns[:SHOWN])} if columns else {}
        measured |= {"batch": first.position, "epoch": first.epoch} if first.position is not None else {}
        measured |= self.stored
        return Reading(**measured).at(*(hit.place for hit in self.hits[:1] if hit.place is not None))

    def _wiped(self) -> Saw | None:
        """A column that is one value in every row, where a table that was read had infinite values in one."""
        still = next((found for held in self.columns.values() if (found := held.standing())), [])
        frame = next((held for held in LEDGER.frames if held.infinite), None)
        if not still or frame is None or len(still) > sum(len(held.infinite) for held in LEDGER.frames):
            return None
        name, count = frame.infinite[0]
        says = (
            f"column {name} of {frame.file} has {count} infinite values, and column {_shown(still[:SHOWN])} "
            "of the input is constant: they entered a mean or a scale before they were replaced"
        )
        saw = Saw("wiped", values=self.values, columns=_shown(still[:SHOWN]), infinite=count)
        return saw.at(Place(file=frame.file, column=name), frame.place).saying(says)

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
