"""Do steps take longer and longer?

Takes the time from one step of the first optimiser to the next. Sampled steps are left out, because clew's own readings
lengthen them, and so are the first ones, in which memory and kernels settle. Where steps take longer, the lines of some
of them are timed one by one and compared with those of a few early steps.

Why it matters: work per step that grows points at something that piles up, often a graph or a list.
Cannot tell: a growing graph from a hot processor or a busy disk; sequences that grow longer on purpose. On a GPU single
times are those of the queue, and only their tendency counts.
Silent when: pauses for evaluation or saving lengthen some steps, times wander without a steady rise, or the process
works no longer than before and is only made to wait its turn more often by others.
"""

from __future__ import annotations

import sys
import time
from typing import Any

if sys.platform != "win32":
    from resource import RUSAGE_SELF, getrusage

from clew.observe.envs import experience_of
from clew.observe.watch import Answer, OptimizerEvent, Saw, Watch
from clew.observe.watches._line_times import LineTimes
from clew.observe.watches._network_trend import Bins
from clew.records.clue import Reading, Unclear

WARM_UP = 20
ENOUGH = 100
STEADY = 0.5
WORKS_MORE, ALL_ALONG = 2.0, 0.65
"""One jump from a low to a high level has a steadiness of a half."""
LONGER, LOOKS, KEPT = 1.25, 24, 3
"""How much longer steps must take before lines are timed again, how often at most, and how many of them count."""
NOTHING = 50e-6
"""Seconds below which a difference is that of the clock and the scheduler."""


class StepTimeTrend(Watch):
    test = "step_time_trend"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.first: int | None = None
        self.last = 0.0
        self.seen = 0
        self.disturbed = True
        self.times = Bins(width=4)
        self.worked = Bins(width=4)  # processor time of the same steps
        self.pushed = Bins(width=4)  # how often another process took the processor away in them
        self.used = (0.0, 0.0)
        self.lines = LineTimes()
        self.looks, self.look_at = 0, WARM_UP

    def after_step(self, event: OptimizerEvent) -> None:
        if self.first is None or (event.number != self.first and self._gone(self.first)):
            self.first, self.disturbed = event.number, True
        if event.number != self.first:
            self.disturbed = self.disturbed or event.sampled
            return
        now = time.monotonic()
        followed = self.lines.following
        if followed:
            self._keep(self.lines.stop(), event.sampled)
        worked, pushed = usage()
        self.seen += 1
        if self.seen > WARM_UP and not (event.sampled or self.disturbed or followed):
            self.times.add(now - self.last)
            self.worked.add(worked - self.used[0])
            self.pushed.add(pushed - self.used[1])
        if self.seen >= self.look_at and not event.sampled and self._wanted():
            self.lines.start()
        # What the watches do after this step falls into the next time, and so does following its lines.
        self.disturbed = event.sampled or self.lines.following
        self.used = worked, pushed
        self.last = time.monotonic()

    def _wanted(self) -> bool:
        """Early on, and later where steps take longer: at steps ever further apart."""
        if len(self.lines.early) < KEPT:
            return self.looks < LOOKS
        early, _, late = self.times.tenths() if self.times.medians else (0.0, 0.0, 0.0)
        longer = self.looks < LOOKS and late > LONGER * early and late - early > NOTHING
        if not longer:
            self.look_at = self.seen + max(16, self.seen // 8)
        return longer

    def _keep(self, times: dict[Any, float], sampled: bool) -> None:
        self.looks += 1
        if sampled or not times:
            return
        if len(self.lines.early) < KEPT:
            self.lines.early.append(times)
            self.look_at = self.seen + (2 if len(self.lines.early) < KEPT else ENOUGH // 2)
        else:
            self.lines.late = [*self.lines.late, times][-KEPT:]
            self.look_at = self.seen + max(2, self.seen // 16)

    def _gone(self, number: int) -> bool:
        """Whether that optimiser is no more: some scripts make a new one per epoch."""
        held = self.recorder.optimizers
        return number < len(held) and held[number]() is None

    def _crowded(self) -> bool:
        (worked, _, works), (pushed, _, pushes) = self.worked.tenths(), self.pushed.tenths()
        return works < 1.2 * worked and pushes >= 1 and pushes > 2 * pushed

    def _more_work(self) -> float:
        """How much more the process itself works per step in the end, where that has grown all along; 0 where not."""
        early, middle, late = self.worked.tenths()
        grown = early > 0 and late >= WORKS_MORE * early and early < middle < late
        return late / early if grown and self.worked.steadiness() >= ALL_ALONG else 0.0

    def read(self) -> Answer:
        if self.times.count < ENOUGH:
            return Unclear(f"{self.times.count} undisturbed steps were timed after the warm-up; {ENOUGH} are needed")
        early, _, late = self.times.tenths()
        ratio = late / early if early > 0 else 1.0
        steadiness = self.times.steadiness()
        if ratio >= 1.2 and late - early <= NOTHING:
            return Unclear("the steps are too short to time individually")
        if ratio >= 1.2 and steadiness < STEADY:
            return Unclear("step times vary without a steady rise, as on a busy machine")
        if ratio >= 1.2 and self._crowded():
            return Unclear("the steps wait longer for a busy processor and do no more work")
        milliseconds = round(1000 * early, 3)
        more = self._more_work()
        if more and not experience_of(self.recorder).steps:
            saw = Saw("works_more", work_late_over_early=more, times_the_time=ratio, early_ms=milliseconds)
            return saw.at(self.lines.grown())
        reading = Reading(late_over_early=ratio, early_ms=milliseconds, steadiness=round(steadiness, 3))
        grown = self.lines.grown() if ratio >= LONGER else None
        return reading.at(grown) if grown is not None else reading


def usage() -> tuple[float, float]:
    """Processor seconds of this process so far, and how often it was made to wait while it had work."""
    if sys.platform == "win32":
        return 0.0, 0.0
    held = getrusage(RUSAGE_SELF)
    return held.ru_utime + held.ru_stime, float(held.ru_nivcsw)
