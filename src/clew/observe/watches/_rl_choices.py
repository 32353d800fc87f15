"""Who chose the actions: the network's best, another one after asking it, or nobody that was asked.

Counted by environment and by step of the optimiser, while the learner is looked at. A network was asked when it was
given the observation that is acted on, between the last step of the environment and this one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clew.observe.places import is_users

if TYPE_CHECKING:
    from types import FrameType

    from clew.observe.watches._rl_study import Call

KEPT = 512
FRAMES = 12
NAMES = 64
LOOKS = 400
RATES = ("eps", "exploration")


class Counted(NamedTuple):
    best: int = 0
    other: int = 0
    unasked: int = 0

    def plus(self, more: Counted) -> Counted:
        return Counted(self.best + more.best, self.other + more.other, self.unasked + more.unasked)

    @property
    def total(self) -> int:
        return self.best + self.other + self.unasked


class Choices:
    def __init__(self) -> None:
        self.by_side: dict[int, dict[int, Counted]] = {}  # environment, step of the optimiser
        self.models: set[int] = set()  # the networks that were asked
        self.rates: dict[str, tuple[float, float]] = {}  # smallest and largest value of what may be a rate
        self.looks = 0
        self.place: Any = None

    def note(self, side: int, step: int, keys: list[int | None], actions: list[int | None], asked: Call | None) -> None:
        """One step of an environment with the observations acted on."""
        found = Counted()
        for lane, action in enumerate(actions):
            if action is None:
                continue
            scores = None if asked is None else of(asked, lane, len(actions), keys)
            if scores is None:
                found = found._replace(unasked=found.unasked + 1)
            elif action < len(scores) and scores[action] >= scores.max():
                found = found._replace(best=found.best + 1)
            else:
                found = found._replace(other=found.other + 1)
            if asked is not None and scores is not None:
                self.models.add(asked.model)
        if found.total:
            held = self.by_side.setdefault(side, {}) if len(self.by_side) < 64 else self.by_side.get(side, {})
            held[step] = held.get(step, Counted()).plus(found)
            if len(held) > KEPT:
                thinned(held)

    def look_for_rates(self) -> None:
        """Numbers between zero and one that the script calls by a name of exploration: one that moves is a schedule."""
        self.looks += 1
        if self.looks > LOOKS:
            return
        frame: FrameType | None = sys._getframe(1)
        for _ in range(FRAMES):
            if frame is None:
                return
            if is_users(frame.f_code.co_filename):
                self._read(frame.f_locals)
                for value in list(frame.f_locals.values())[:256]:
                    if is_users(getattr(sys.modules.get(type(value).__module__), "__file__", None) or "<none>"):
                        self._read(getattr(value, "__dict__", {}))
            frame = frame.f_back

    def _read(self, names: Any) -> None:
        for name, value in list(names.items())[:256]:
            if not isinstance(name, str) or not isinstance(value, float | int) or isinstance(value, bool):
                continue
            if name.lower().startswith(RATES) and 0.0 <= value <= 1.0 and (name in self.rates or self.named_few()):
                low, high = self.rates.get(name, (value, value))
                self.rates[name] = min(low, value), max(high, value)

    def named_few(self) -> bool:
        return len(self.rates) < NAMES

    def main(self) -> dict[int, Counted]:
        """The environment that was stepped most: others serve for evaluation."""
        return max(self.by_side.values(), key=lambda held: sum(each.total for each in held.values()), default={})

    def between(self, first: float, last: float, everywhere: bool = False) -> Counted:
        """In the environment that was stepped most, or in all of them."""
        found = Counted()
        for held in self.by_side.values() if everywhere else (self.main(),):
            for step, each in held.items():
                if first <= step <= last:
                    found = found.plus(each)
        return found

    def moving(self) -> bool:
        return any(high - low > 1e-9 for low, high in self.rates.values())


def of(asked: Call, lane: int, lanes: int, keys: list[int | None]) -> np.ndarray[Any, Any] | None:
    """The scores of all actions at one observation, where this call gave them."""
    if asked.rows != lanes:
        return None
    known = keys[lane]
    if known is not None and asked.keys and asked.keys[lane] != known and asked.grad:
        return None  # a batch of the same size that something was learned from
    for values in asked.outputs:
        if len(values) == lanes and values.shape[1] > 1:
            return np.asarray(values[lane])
    return None


def thinned(held: dict[int, Counted]) -> None:
    """Half as many entries, each for two."""
    steps = sorted(held)
    for one, other in zip(steps[::2], steps[1::2], strict=False):
        held[one] = held[one].plus(held.pop(other))
