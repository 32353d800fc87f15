"""The settings that training really ran with: learning rate, weight decay, clipping limit, batch size; the lines where
data enters: loaders, what puts batches together, the loss; and the functions of the user's that one training step ran.

Answers no test. What it leaves behind lets the report name the line of a configuration file that a value came from, and
the line of the source that a fault of the data has to be fixed in.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from clew.home import private
from clew.observe.places import is_users, shown, users_code
from clew.observe.watch import Backward, Batch, Clip, Judged, LossCall, OptimizerEvent, Watch, when_sampled
from clew.records import exact
from clew.records.place import Place

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from clew.observe.recorder import Recorder

OF_OPTIMISERS = ("lr", "weight_decay", "momentum")
MOST = 64
MODULES = 2000
FROM, STEPS = 2, 6
"""So many steps it is heard which functions run, from when nobody else listens: several optimisers may step in turn."""
MANY_CALLS, MOST_CALLS = 200_000, 600_000
FAR = 5.0
"""A rate that came to differ so much from the one that the optimiser was made with was set by a schedule."""


class Settings(Watch):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.seen: dict[tuple[str, float], Place | None] = {}
        self.lines: dict[tuple[str, Place], None] = {}
        self.looked_at: set[int] = set()
        self.made: dict[tuple[int, str], Place] = {}
        self.ran: dict[CodeType, None] = {}
        self.calls = 0
        self.since: int | None = None  # the step after which it was listened
        self.whole = False  # whole steps were listened to

    @when_sampled
    def after_step(self, event: OptimizerEvent) -> None:
        done = event.step + 1
        if self.since is None:
            if done >= FROM and sys.getprofile() is None:
                self.since = done
                sys.setprofile(self._listen)
        elif done >= self.since + (STEPS if self.calls < MANY_CALLS else 2) and sys.getprofile() == self._listen:
            sys.setprofile(None)
            self._above(sys._getframe())
            self.whole = not _compiles()

    def _listen(self, frame: FrameType, event: str, _: Any) -> None:
        self.calls += 1
        if event == "call":
            self.ran[frame.f_code] = None
        if self.calls > MOST_CALLS:
            sys.setprofile(None)  # steps of so many calls would take noticeably longer

    def _above(self, frame: FrameType | None) -> None:
        """The loop that makes the step was called before it, and is at work."""
        while frame is not None:
            self.ran[frame.f_code] = None
            frame = frame.f_back

    def _note(self, name: str, value: Any, place: Place | None) -> None:
        if isinstance(value, int | float) and not isinstance(value, bool) and len(self.seen) < MOST:
            self.seen.setdefault((name, float(value)), place)

    def _line(self, name: str, place: Place | None) -> None:
        if place is not None and len(self.lines) < MOST:
            self.lines.setdefault((name, place), None)

    def optimizer_made(self, event: OptimizerEvent) -> None:
        for group in (event.optimizer.defaults, *event.optimizer.param_groups[:8]):
            for name in OF_OPTIMISERS:
                self._note(name, group.get(f"initial_{name}", group.get(name)), event.place)

    @when_sampled
    def before_step(self, event: OptimizerEvent) -> None:
        """Where a schedule has taken the rate far away, it is the schedule that says what it is."""
        first, now = event.optimizer.defaults.get("lr"), event.optimizer.param_groups[0].get("lr")
        both = isinstance(first, int | float) and isinstance(now, int | float)
        if both and first > 0 and now >= 0 and not first / FAR < now < first * FAR:
            self._line("rate_moved", event.place)

    @when_sampled
    def clip(self, event: Clip) -> None:
        self._note("clip", event.limit, event.place)

    @when_sampled
    def loss(self, event: LossCall) -> None:
        self._line("loss" if event.grad else "loss_elsewhere", event.place)

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        self._line("backward", event.place)

    def judged(self, event: Judged) -> None:
        self._line("trained" if event.backward else "evaluated", event.place)
        model = self.recorder.models[event.model]() if event.model not in self.looked_at else None
        self.looked_at.add(event.model)
        above: dict[str, Place | None] = {}  # a copied layer was made by nobody; what holds it was
        for name, part in model.named_modules() if model is not None else ():
            made = self.recorder.origins.made(part)
            above[name] = made if made is not None or not name else above.get(name.rpartition(".")[0])
            if made is not None and len(self.made) < MODULES:
                self.made[event.model, name] = made
            if name and getattr(part, "batch_first", True) is False:
                for place in (*self.recorder.origins.copied(part), above[name]):
                    self._line("batch_second", place)

    @when_sampled
    def batch(self, event: Batch) -> None:
        size = getattr(getattr(event.source, "_index_sampler", None), "batch_size", None)
        self._note("batch", size, event.place)
        kind = "" if event.loader == (self.recorder.trains_on or 0) else "_elsewhere"
        self._line(f"loader{kind}", self.recorder.origins.loaders.get(event.loader))
        self._line(f"collate{kind}", _function(getattr(event.source, "_collate_fn", None)))
        data: Any = getattr(event.source, "_dataset", None)
        for _ in range(8):  # a Subset of a Subset
            data = getattr(data, "dataset", data)
        read_by = getattr(type(data), "__getitem__", None) or getattr(type(data), "__iter__", None)
        self._line(f"items{kind}", _function(read_by) or _function(getattr(type(data), "__iter__", None)))
        self._line(f"worker_init{kind}", _function(getattr(event.source, "_worker_init_fn", None)))

    def write(self, path: str) -> None:
        rows = [
            {"name": name, "value": value, "where": place.to_json() if place is not None else {}}
            for (name, value), place in self.seen.items()
        ]
        rows += [{"name": name, "value": 0.0, "where": place.to_json()} for name, place in self.lines]
        several = len(self.recorder.models) > 1
        for (model, name), place in self.made.items():
            whole = f"model{model}.{name}" if several else name
            rows.append({"name": "made", "value": 0.0, "where": place._replace(module=whole).to_json()})
        for code in list(self.ran)[:MODULES] if self.whole else ():
            if is_users(code.co_filename):
                place = Place(shown(code.co_filename), code.co_firstlineno, symbol=code.co_qualname)
                rows.append({"name": "ran", "value": 0.0, "where": place.to_json()})
        if rows:
            with open(path, "w", encoding="ascii", opener=private) as file:
                file.write(exact.dumps(rows))


def _compiles() -> bool:
    """Whether something was compiled: the functions inside of it are not called any more."""
    held = sys.modules.get("torch._dynamo.utils")
    return held is not None and bool(held.counters["frames"]["ok"])


def _function(function: Any) -> Place | None:
    """A function of the user's, by its first line."""
    code = users_code(function)
    return code and Place(shown(code.co_filename), code.co_firstlineno, symbol=code.co_qualname)
