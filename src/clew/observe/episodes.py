"""What episodes brought in, from the first to the last: every step of the outermost environments is added up.

Only rewards and the flags of an end are read, so that this can go on while nothing else of a step is looked at.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from clew.observe.told import Form, taken

MOST = 1024
FIRST = 20
NORMALISING = ("normalizereward", "vecnormalize", "rewardnormalization", "normalisereward", "rewardscaling")


class Stretch(NamedTuple):
    """Episodes of one environment that ended one after the other."""

    step: int  # of the optimiser, when the last of them ended
    episodes: int
    returns: float  # their sum
    squares: float
    lengths: int
    limits: int  # how many were cut off

    def plus(self, other: Stretch) -> Stretch:
        return Stretch(
            other.step,
            self.episodes + other.episodes,
            self.returns + other.returns,
            self.squares + other.squares,
            self.lengths + other.lengths,
            self.limits + other.limits,
        )

    @property
    def mean(self) -> float:
        return self.returns / self.episodes

    @property
    def variance(self) -> float:
        return max(0.0, self.squares / self.episodes - self.mean**2)


class Course:
    """The episodes of one environment object, in order. Neighbours are joined when there are many."""

    def __init__(self, env: Any) -> None:
        self.stretches: list[Stretch] = []
        self.each = 1  # episodes in a stretch
        self.first: list[Stretch] = []  # those that every lane began with: the first to end are the short ones
        self.sums: list[float] | None = None
        self.counts: list[int] = []
        self.ended: list[int] = []
        self.flagless = False  # nothing but a reset says that an episode ended
        self.step = 0  # of the optimiser, newest
        self.normalised = normalises(env)
        self.kind = type(layers(env)[-1])
        self.rewards: set[float] = set()  # the first few different ones

    def add(self, step: int, rewards: list[float], ended: list[bool], cut: list[bool]) -> None:
        if self.sums is None or len(self.sums) != len(rewards):
            self.sums, self.counts, self.ended = [0.0] * len(rewards), [0] * len(rewards), [0] * len(rewards)
        for lane, reward in enumerate(rewards):
            self.sums[lane] += reward
            self.counts[lane] += 1
            if ended[lane]:
                self._end(step, lane, cut[lane])
        if len(self.rewards) < 8:
            self.rewards.update(rewards[:8])

    def restart(self) -> None:
        """A reset in the middle of an episode: what was gathered of it is no return, unless only resets end one."""
        if self.sums is not None and self.flagless and self.counts[0]:
            for lane in range(len(self.sums)):
                self._end(self.step, lane, False)
        if self.sums is not None and len(self.sums) == 1:
            self.sums, self.counts = [0.0], [0]

    def _end(self, step: int, lane: int, cut: bool) -> None:
        assert self.sums is not None
        total, count = self.sums[lane], self.counts[lane]
        self.sums[lane], self.counts[lane] = 0.0, 0
        found = Stretch(step, 1, total, total * total, count, int(cut))
        self.ended[lane] += 1
        if (self.ended[lane] - 1) * len(self.ended) < FIRST and len(self.first) < MOST:
            self.first.append(found)
        if self.stretches and self.stretches[-1].episodes < self.each:
            self.stretches[-1] = self.stretches[-1].plus(found)
        else:
            self.stretches.append(found)
        if len(self.stretches) > MOST:
            held, self.each = self.stretches, 2 * self.each
            self.stretches = [one.plus(other) for one, other in zip(held[::2], held[1::2], strict=False)]
            self.stretches += held[len(held) // 2 * 2 :]

    @property
    def episodes(self) -> int:
        return sum(held.episodes for held in self.stretches)

    def until(self, step: int) -> list[Stretch]:
        """Those that ended before this step of the optimiser: what follows the last step is no training."""
        return [held for held in self.stretches if held.step < step]


class Episodes:
    """All environments of a process. Courses stay when their environments are gone."""

    def __init__(self) -> None:
        self.courses: list[Course] = []
        self._of: weakref.WeakKeyDictionary[Any, Course] = weakref.WeakKeyDictionary()

    def stepped(self, env: Any, step: int, result: Any, form: Form) -> None:
        found = taken(result, form)
        if found is None:
            return
        held = self._of.get(env)
        if held is None:
            if len(self.courses) >= MOST:
                return
            held = self._of[env] = Course(env)
            self.courses.append(held)
        held.flagless, held.step = form.terminated is None, step
        held.add(step, *found)

    def began(self, env: Any) -> None:
        held = self._of.get(env)
        if held is not None:
            held.restart()

    def main(self, step: int) -> Course | None:
        """The environment that most episodes were played in while something was learned."""
        return max(self.courses, key=lambda held: sum(each.episodes for each in held.until(step)), default=None)


def normalises(env: Any) -> bool:
    """Whether a wrapper divides rewards by something that moves: their sums then cannot be compared over time."""
    return any(type(each).__name__.lower() in NORMALISING for each in layers(env))


def layers(env: Any) -> list[Any]:
    """An environment and those inside it, outermost first; of several side by side the first."""
    found: list[Any] = []
    while env is not None and len(found) < 16:
        found.append(env)
        held = vars(env) if hasattr(env, "__dict__") else {}
        several = held.get("envs")
        env = held.get("env") or held.get("venv") or (several[0] if isinstance(several, list) and several else None)
    return found
