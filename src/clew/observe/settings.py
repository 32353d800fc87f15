"""The settings that training really ran with: learning rate, weight decay, clipping limit, batch size.

Answers no test. What it leaves behind lets the report name the line of a configuration file that a value came from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clew.observe.watch import Batch, Clip, OptimizerEvent, Watch, when_sampled
from clew.records import exact

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

OF_OPTIMISERS = ("lr", "weight_decay", "momentum")
MOST = 64


class Settings(Watch):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.seen: dict[tuple[str, float], Place | None] = {}

    def _note(self, name: str, value: Any, place: Place | None) -> None:
        if isinstance(value, int | float) and not isinstance(value, bool) and len(self.seen) < MOST:
            self.seen.setdefault((name, float(value)), place)

    def optimizer_made(self, event: OptimizerEvent) -> None:
        for group in (event.optimizer.defaults, *event.optimizer.param_groups[:8]):
            for name in OF_OPTIMISERS:
                self._note(name, group.get(f"initial_{name}", group.get(name)), event.place)

    @when_sampled
    def clip(self, event: Clip) -> None:
        self._note("clip", event.limit, event.place)

    @when_sampled
    def batch(self, event: Batch) -> None:
        size = getattr(getattr(event.source, "_index_sampler", None), "batch_size", None)
        self._note("batch", size, event.place)

    def write(self, path: str) -> None:
        rows = [
            {"name": name, "value": value, "where": place.to_json() if place is not None else {}}
            for (name, value), place in self.seen.items()
        ]
        if rows:
            with open(path, "w", encoding="ascii") as file:
                file.write(exact.dumps(rows))
