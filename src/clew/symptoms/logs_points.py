"""Points as they are read, and the steps they belong to.

Logs count time in many ways: a global step, a batch within an epoch, an epoch, or not at all. Readers hand over every
record with the counters it stood under; which of them is the time axis is decided when the whole log has been seen.
"""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from clew.records.trace import Series

MOST_RECORDS = 2_000_000
MOST_NAMES = 5_000
ENOUGH = 0.3
"""The share of the records that a counter must stand over to be taken for the time axis of the whole log."""


class Clock(NamedTuple):
    """The counters a record stood under. `total` is how many batches an epoch has, when the log says so."""

    step: int | None = None
    batch: int | None = None
    total: int | None = None
    epoch: float | None = None
    frames: int | None = None
    episode: int | None = None


class Resolved(NamedTuple):
    """Series by name as the log spells it, what their steps count, and where epochs begin."""

    series: dict[str, Series]
    axis: str
    epochs: tuple[int, ...]
    notes: tuple[str, ...]


class Points:
    """Records in the order of the log."""

    def __init__(self) -> None:
        self.clocks: list[Clock] = []
        self.ordinals: list[int] = []
        self.redrawn: list[bool] = []
        self.held: dict[str, tuple[list[int], list[float]]] = {}
        self.names_left_out = 0
        self.turned_away = 0
        self._ordinal = 0
        self._here: set[str] = set()

    @property
    def full(self) -> bool:
        return len(self.clocks) >= MOST_RECORDS

    def add(self, values: Iterable[tuple[str, float]], clock: Clock, redrawn: bool = False) -> None:
        """One record. `redrawn` when it overwrote the one before it on the screen, as progress bars do."""
        record, pairs = len(self.clocks), list(values)
        if not pairs or self.full:
            self.turned_away += bool(pairs)
            return
        if any(name in self._here for name, _ in pairs):
            self._ordinal += 1
            self._here.clear()
        for name, value in pairs:
            held = self.held.get(name)
            if held is None:
                if len(self.held) >= MOST_NAMES:
                    self.names_left_out += 1
                    continue
                held = self.held[name] = ([], [])
            self._here.add(name)
            held[0].append(record)
            held[1].append(value)
        self.clocks.append(clock)
        self.ordinals.append(self._ordinal)
        self.redrawn.append(redrawn)

    def resolve(self, by_epoch: bool = False, own_steps: bool = False) -> Resolved:
        """Decide what counts time. `by_epoch`: values within an epoch are running averages, only the last one counts.
        `own_steps`: every point came with a step of its own, which need not fit that of the point before it."""
        notes = []
        axis = "epoch" if by_epoch else self._axis()
        if own_steps and axis == "step":
            steps, went_back = [clock.step or 0 for clock in self.clocks], self._restarts()
        else:
            steps, went_back = self._steps(axis)
        if not by_epoch and axis != "order" and self._crowded(steps):
            axis, went_back = "order", 0
            steps = self.ordinals
        if axis == "order" and len(self.clocks) > 1:
            notes.append("no step counter was found, so the points are numbered in order of appearance.")
        if went_back:
            times = "once" if went_back == 1 else f"{went_back} times"
            notes.append(
                f"the step counter goes back {times}, as after a restart; the later values count where steps overlap."
            )
        if self.turned_away:
            notes.append(f"only the first {MOST_RECORDS} records were read.")
        if self.names_left_out:
            notes.append(f"only the first {MOST_NAMES} names were read.")
        series = {name: _series(name, [steps[i] for i in at], values) for name, (at, values) in self.held.items()}
        return Resolved(series, axis, self._epochs(steps), tuple(notes))

    def _axis(self) -> str:
        for axis in ("step", "batch", "frames"):
            counted = sum(getattr(clock, axis) is not None for clock in self.clocks)
            if counted and counted >= ENOUGH * len(self.clocks):
                return axis
        epochs = [clock.epoch for clock in self.clocks if clock.epoch is not None]
        if epochs and all(float(epoch).is_integer() for epoch in epochs):
            return "epoch"
        return "episode" if any(clock.episode is not None for clock in self.clocks) else "order"

    def _steps(self, axis: str) -> tuple[list[int], int]:
        """The step of each record, and how often the counter went back without a new epoch to explain it."""
        if axis == "order":
            return self.ordinals, 0
        laps = axis == "batch" or self._wraps(axis)
        steps: list[int] = []
        base, last, stride, went_back = 0, None, 1, 0
        epoch: float | None = None
        now = 0
        for clock in self.clocks:
            count = getattr(clock, axis)
            if count is not None:
                new_epoch = clock.epoch is not None and epoch is not None and clock.epoch > epoch
                if last is not None and count < last:
                    if axis != "epoch" and (laps or new_epoch):
                        base = base + clock.total if clock.total else now + stride - int(count)
                    else:
                        went_back += 1
                elif last is not None and count > last:
                    stride = int(count) - int(last)
                elif laps and axis != "epoch" and last is not None and new_epoch:
                    base = base + clock.total if clock.total else now + stride - int(count)
                last, epoch = int(count), clock.epoch if clock.epoch is not None else epoch
                now = base + int(count)
            steps.append(now)
        return steps, went_back

    def _wraps(self, axis: str) -> bool:
        """Whether the counter starts over again and again, as one that counts within epochs does."""
        counts = [getattr(clock, axis) for clock in self.clocks]
        counts = [count for count in counts if count is not None]
        starts = [later for earlier, later in pairwise(counts) if later < earlier]
        return axis != "epoch" and len(starts) >= 3 and max(starts) <= 2 * min(counts[0], min(starts)) + 1

    def _restarts(self) -> int:
        """How often the steps of a single name go back, at most."""
        most = 0
        for at, _ in self.held.values():
            steps = [self.clocks[record].step or 0 for record in at]
            most = max(most, sum(later < earlier for earlier, later in pairwise(steps)))
        return most

    def _crowded(self, steps: list[int]) -> bool:
        """Whether many values share a step, so that the counter is too coarse to tell them apart."""
        for at, _ in self.held.values():
            same = sum(steps[a] == steps[b] and not self.redrawn[b] for a, b in pairwise(at))
            if same > 3 and same > 0.3 * len(at):
                return True
        return False

    def _epochs(self, steps: list[int]) -> tuple[int, ...]:
        starts: list[int] = []
        epochs = [clock.epoch for clock in self.clocks]
        # Where epochs are fractions, 2.0 is the end of the second and not the start of the third.
        ends = any(epoch is not None and not float(epoch).is_integer() for epoch in epochs)
        last: int | None = None
        for epoch, step in zip(epochs, steps, strict=True):
            if epoch is not None:
                index = math.ceil(epoch) - 1 if ends else int(epoch)
                if last is None or index > last:
                    starts.append(step)
                last = index
        return tuple(starts)


def _series(name: str, steps: list[int], values: list[float]) -> Series:
    """In order of steps, one value each: of several the last one."""
    if any(later <= earlier for earlier, later in pairwise(steps)):
        last = dict(zip(steps, values, strict=True))
        steps = sorted(last)
        values = [last[step] for step in steps]
    return Series(name, tuple(steps), tuple(values))
