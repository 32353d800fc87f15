"""Do the training examples arrive in order?

Class numbers are compared with their neighbours; in a loop that cuts its batches by hand, the classes of sampled steps
with each other. Where the target is a number, or there is none, the means of batches
are compared, of the target and of each column of a table: in random batches they lie close together.

Why it matters: a run of one class pulls the model to that class, and the next run pulls it away again.
Cannot tell: order in something that is in no column, such as source or difficulty; windows of one series, which a
stateful model wants in order.
Silent when: the order lies within batches only, as with samplers that take several examples of each class; there is one
batch per epoch; inputs are sequences, tokens or pictures and labels are no class numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from clew.observe.envs import experience_of
from clew.observe.hooks import tensors_in
from clew.observe.rows import array_of
from clew.observe.watch import Answer, Batch, Forward, LossCall, when_sampled
from clew.observe.watches._data_drift import BATCHES, Drift, Means
from clew.observe.watches._data_feed import FedWatch
from clew.observe.watches._data_given import parts
from clew.observe.watches._data_order import across, runs_z
from clew.observe.watches._data_parted import Parted
from clew.observe.watches._data_source import stored_labels
from clew.records.clue import Reading, Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

LABELS = 20_000
ENOUGH = 2048
FEWEST = 32
CLASSES = 1000


class Arrivals:
    """Class numbers of one loader's first epoch, batch by batch, and whether the second epoch began alike."""

    def __init__(self, place: Place | None) -> None:
        self.place = place
        self.batches: list[tuple[int, ...]] = []
        self.count = 0
        self.gap = False
        self.kinds: set[int] = set()
        self.alike = 0
        self.unlike = 0
        self.stored: list[int] = []  # the labels as the data set holds them, where it is read from front to back

    def enough(self, event: Batch) -> bool:
        """Between samples, go on only until there are some labels of more than one class."""
        return not event.sampled and (self.gap or (self.count >= ENOUGH and len(self.kinds) > 1))

    def add(self, epoch: int, position: int, labels: tuple[int, ...]) -> None:
        if epoch == 0:
            self.gap = self.gap or position != len(self.batches) or self.count >= LABELS
            if not self.gap:
                self.batches.append(labels)
                self.count += len(labels)
                self.kinds.update(labels)
        elif epoch == 1 and position < len(self.batches):
            same = self.batches[position] == labels
            self.alike += same
            self.unlike += not same


class BatchOrder(FedWatch):
    test = "batch_order"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.arrivals: dict[int, Arrivals] = {}
        self.means: dict[int, tuple[Means, Place | None]] = {}
        self.parted = Parted()
        self.rows: int | None = None

    def forward(self, event: Forward) -> None:
        super().forward(event)
        if not event.evaluation:
            first = next((tensor for tensor in tensors_in(event.inputs, torch) if tensor.dim()), None)
            self.rows = first.shape[0] if first is not None else None

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if event.grad:
            self.parted.note(event, self.rows)

    def batch(self, event: Batch) -> None:
        super().batch(event)
        if event.loader in self.means:
            self._mean(event)
            return
        known = self.arrivals.get(event.loader)
        if event.epoch > 1 or (known is None and len(self.arrivals) >= 16) or (known and known.enough(event)):
            return
        _, targets = parts(event.value, event.tensors or list(tensors_in(event.value, torch)))
        if targets and (event.sampled or targets[0].device.type == "cpu"):
            labels = class_numbers(targets[0])
            if labels:
                held = self.arrivals.get(event.loader)
                if held is None:
                    held = self.arrivals[event.loader] = Arrivals(event.place)
                    held.stored = self._stored(event.loader)
                held.add(event.epoch, event.position, labels)
                return
        if known is None and event.epoch == event.position == 0 and len(self.means) < 16:
            self.means[event.loader] = (Means(), event.place)
            self._mean(event)

    def _mean(self, event: Batch) -> None:
        """Numbers of the first epoch, as long as they come without a gap."""
        held, _ = self.means[event.loader]
        if event.epoch or event.position != len(held.counts) or event.position >= BATCHES or held.rows >= LABELS:
            return
        tensors = event.tensors or list(tensors_in(event.value, torch))
        if event.sampled or all(tensor.device.type == "cpu" for tensor in tensors):
            held.add(*parts(event.value, tensors))

    def _stored(self, number: int) -> list[int]:
        loader = self.feed.loaders.get(number)
        if loader is None or not loader.source.in_order or loader.source.dataset is None:
            return []
        return (stored_labels(loader.source.dataset()) or [])[:LABELS]

    def read(self) -> Answer:
        if self.feed.broken:
            return Unclear(self.feed.broken)
        found: list[tuple[float, int, Arrivals]] = []
        why = "no class labels in training batches were seen"
        for number, held in self.arrivals.items():
            loader = self.feed.loaders.get(number)
            if loader is None or not loader.trained:
                continue
            batches = _known(held)
            classes = len({label for batch in batches for label in batch})
            count = sum(map(len, batches))
            if classes > max(CLASSES, count // 2):
                continue
            if len(batches) < 2 or count < FEWEST:
                why = "too few labelled batches per epoch were seen"
            elif classes < 2:
                why = f"only one class occurs in the first {count} labels"
            else:
                found.append((order_z(batches, held), count, held))
        if not found:
            return self._drift() or self._by_hand() or Unclear(why)
        z, count, held = max(found, key=lambda item: item[0])
        batches = _known(held)
        single = sum(len(set(batch)) == 1 for batch in batches)
        reading = Reading(order_z=z, labels=count, batches=len(batches), batches_of_one_class=single)
        return reading if held.place is None else reading.at(held.place)

    def _by_hand(self) -> Reading | None:
        """Where no loader gives the batches, the labels at the loss tell whether steps are of one class each."""
        told = self.parted.read() if not self.arrivals and not experience_of(self.recorder).steps else None
        if told is None:
            return None
        reading = Reading(
            order_z=told.z, labels=told.labels, batches=told.steps, batches_of_one_class=told.of_one_class
        )
        return reading if told.place is None else reading.at(told.place)

    def _drift(self) -> Reading | None:
        """The strongest drift of numbers from batch to batch, in a loader that was trained on."""
        found: list[tuple[Drift, Means, Place | None]] = []
        for number, (held, place) in self.means.items():
            loader = self.feed.loaders.get(number)
            drift = held.drift() if loader is not None and loader.trained else None
            if drift is not None:
                found.append((drift, held, place))
        if not found:
            return None
        drift, held, place = max(found, key=lambda item: item[0].z)
        columns = len(held.sums[0])
        of = "target" if drift.column >= columns - held.targets else f"column {drift.column}"
        reading = Reading(
            order_z=drift.z, rows=held.rows, batches=len(held.sums), drifts=of, share_between_batches=drift.share
        )
        return reading if place is None else reading.at(place)


def _known(held: Arrivals) -> list[tuple[int, ...]]:
    """The labels as they arrive; when the data set is read front to back, its stored labels say the rest."""
    seen = [label for batch in held.batches for label in batch]
    if not seen or len(held.stored) <= len(seen) or held.stored[: len(seen)] != seen:
        return held.batches
    size = len(held.batches[0])
    return [tuple(held.stored[start : start + size]) for start in range(0, len(held.stored), size)]


def class_numbers(target: torch.Tensor) -> tuple[int, ...] | None:
    """One class number per example, or None: sequences, images and real numbers have none."""
    if target.dim() == 2 and target.shape[1] == 1:
        target = target.squeeze(1)
    if target.dim() != 1 or not target.numel():
        return None
    values = array_of(target)
    if values is None or values.dtype.kind not in "biuf":
        return None
    if values.dtype.kind == "f" and not ((values == 0) | (values == 1)).all():
        return None
    return tuple(int(value) for value in values[:, 0].tolist())


def order_z(batches: Sequence[tuple[int, ...]], held: Arrivals) -> float:
    """How far neighbours agree beyond chance, in standard deviations; 0 unless the order reaches across batches."""
    z = runs_z([label for batch in batches for label in batch])
    if z <= 0 or held.alike > held.unlike:
        return z
    return z if across(batches) else 0.0
