"""Do the loader's workers draw different random numbers?

Why it matters: with one stream for all workers, different examples get the same augmentation, and the same comes back.
Cannot tell: whether it matters when nothing random happens in the workers; generators hidden in libraries.
Silent when: the data set makes its generator inside the worker, or a worker_init_fn that knows its worker is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.observe.watch import Answer, Batch, Saw
from clew.observe.watches._data_feed import FedWatch
from clew.observe.watches._data_generators import fixed_seed, kept_generator
from clew.observe.watches._data_given import Loader
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

GROUPS = 3
BATCHES = 256


class WorkerStreams(FedWatch):
    test = "worker_streams"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.digests: dict[int, dict[int, int]] = {}
        self.reasons: dict[int, str] = {}
        self.places: dict[int, Place | None] = {}

    def batch(self, event: Batch) -> None:
        super().batch(event)
        loader = self.feed.loaders.get(event.loader)
        if loader is None or loader.source.workers < 2 or event.epoch:
            return
        if event.position == 0:
            self.places[event.loader] = event.place
            dataset = loader.source.dataset() if loader.source.dataset is not None else None
            self.reasons[event.loader] = fixed_seed(loader.source.setup) or (
                "" if loader.source.setup is not None else kept_generator(dataset)
            )
        rows, _ = self.feed.last_digests
        held = self.digests.setdefault(event.loader, {})
        if rows is not None and len(held) < BATCHES:
            held[event.position] = int(rows.sum())

    def read(self) -> Answer:
        if self.feed.broken:
            return Unclear(self.feed.broken)
        loaders = [loader for loader in self.feed.loaders.values() if loader.source.workers > 1]
        if not loaders:
            return Unclear("no loader with two or more workers was used")
        for loader in loaders:
            reason = self.reasons.get(loader.number, "") or self._repeated(loader)
            if reason:
                saw = Saw("identical", workers=loader.source.workers)
                return saw.at(self.places.get(loader.number)).saying(reason)
        return Saw("distinct", workers=max(loader.source.workers for loader in loaders))

    def _repeated(self, loader: Loader) -> str:
        """Batches come from the workers in turn: the first of each, then the second of each."""
        workers = loader.source.workers
        held = self.digests.get(loader.number, {})
        groups = [
            {held[position] for position in range(start, start + workers)}
            for start in range(0, BATCHES, workers)
            if all(position in held for position in range(start, start + workers))
        ]
        equal = sum(len(group) == 1 for group in groups)
        different = len(set().union(*groups)) if groups else 0
        if len(groups) < GROUPS or equal < 0.9 * len(groups) or different < len(groups) / 2:
            return ""
        return f"each of the {workers} workers yields the same batches: {equal} of {len(groups)} rounds are equal"
