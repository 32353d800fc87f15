"""How long the user's lines work, each by itself: in a few steps early in a run, and in some later on once steps take
longer. The line whose time grew most is where the work piles up. It is the processor's time of the thread, because on a
busy machine the clock goes on while others work.

For the length of one step Python itself says when a line of the user's code begins. Nothing is replaced for this, and a
debugger or coverage tool that traces is left alone.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from clew.observe.places import is_users, shown
from clew.observe.watches._network_lines import _compiles
from clew.records.place import Place

if TYPE_CHECKING:
    from types import CodeType, FrameType

MOST_EVENTS = 20_000
"""Calls and lines followed in one step; where there are more the step is not timed."""
MOST_OF_IT = 0.3
"""The share of all that was added that one line must have."""
Key = tuple["CodeType", int]


class LineTimes:
    """`start` and `stop` enclose a step; `early` and `late` hold what was kept."""

    def __init__(self) -> None:
        self.early: list[dict[Key, float]] = []
        self.late: list[dict[Key, float]] = []
        self.following = False
        self._spent: dict[Key, float] = {}
        self._line: Key | None = None
        self._since = 0.0
        self._events = 0

    def start(self) -> None:
        if self.following or sys.gettrace() is not None or _compiles():
            return
        self.following, self._events, self._spent, self._line = True, 0, {}, None
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if is_users(frame.f_code.co_filename) and frame.f_trace is None:
                if self._line is None:
                    self._line = frame.f_code, frame.f_lineno
                frame.f_trace = self._traced
            frame = frame.f_back
        self._since = time.thread_time()
        sys.settrace(self._called)

    def stop(self) -> dict[Key, float]:
        """The seconds of each line; nothing where the step was not followed to its end."""
        if not self.following:
            return {}
        self._turn(None)
        self.following = False
        if sys.gettrace() == self._called:
            sys.settrace(None)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_trace == self._traced:
                frame.f_trace = None
            frame = frame.f_back
        return self._spent

    def _turn(self, key: Key | None) -> None:
        now = time.thread_time()
        if self._line is not None:
            self._spent[self._line] = self._spent.get(self._line, 0.0) + now - self._since
        self._line, self._since = key, now

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        del event, argument
        self._events += 1
        if self._events > MOST_EVENTS:
            self.stop()
            self._spent = {}
            return None
        return self._traced if is_users(frame.f_code.co_filename) else None

    def _traced(self, frame: FrameType, event: str, argument: Any) -> Any:
        del argument
        self._events += 1
        if not self.following:
            return None
        if event == "line":
            self._turn((frame.f_code, frame.f_lineno or 0))
        elif event == "return":  # the rest of the caller's line goes on, without a word
            above = frame.f_back
            while above is not None and not is_users(above.f_code.co_filename):
                above = above.f_back
            self._turn((above.f_code, above.f_lineno or 0) if above is not None else None)
        return self._traced

    def grown(self) -> Place | None:
        """The line that takes longer than it did, by most of what a step takes longer."""
        if not self.early or not self.late:
            return None
        before, after = (_least(held) for held in (self.early, self.late))
        gains = {key: after[key] - before.get(key, 0.0) for key in after}
        more = sum(gain for gain in gains.values() if gain > 0)
        key = max(gains, key=lambda held: gains[held], default=None)
        if key is None or more <= 0 or gains[key] < MOST_OF_IT * more:
            return None
        code, line = key
        symbol = None if code.co_qualname == "<module>" else code.co_qualname
        return Place(shown(code.co_filename), line, symbol=symbol, role="takes longer every step")


def _least(held: list[dict[Key, float]]) -> dict[Key, float]:
    """What each line takes at least: what else a machine does only adds to it."""
    keys = {key for times in held for key in times}
    return {key: min(times.get(key, 0.0) for times in held) for key in keys}
