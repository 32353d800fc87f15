"""The newest rollout as a table of times and environments, and what stands beside a row when two such tables are made
flat in different orders: one time after the other, or one environment after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clew.observe.envs import Experience, Transition

BY_LANE = "by lane"
BY_TIME = "by time"
REVERSED = "reversed"
WAYS = (BY_LANE, BY_TIME, REVERSED)
"""How the other table is flat: by environment where the rows are by time, by time where the rows are by environment, or
from the last time to the first."""
SHORT = 4


class Layout:
    def __init__(self, experience: Experience) -> None:
        self._experience = experience
        self._read = (-1, -1)
        self._table: list[list[Transition]] = []  # by time, then by lane
        self._at: dict[tuple[int, int], tuple[int, int]] = {}

    def beside(self, step: Transition, way: str) -> Transition | None:
        """The step whose target, or action, stands in the row of this one; None for a step of no whole rollout."""
        self._refresh()
        found = self._at.get((step.lane, step.number))
        if found is None:
            return None
        times, lanes = len(self._table), len(self._table[0])
        if lanes == 1 and way != REVERSED:
            return None
        time, lane = moved(way, *found, times, lanes)
        return self._table[time][lane]

    def _refresh(self) -> None:
        mark = self._experience.since, self._experience.gathered
        if mark == self._read:
            return
        self._read, self._table, self._at = mark, [], {}
        by_lane: dict[int, list[Transition]] = {}
        for step in self._experience.rollout():
            by_lane.setdefault(step.lane, []).append(step)
        lengths = {len(held) for held in by_lane.values()}
        if len(lengths) != 1 or min(lengths) < SHORT:
            return
        rows = [sorted(by_lane[lane], key=lambda step: step.number) for lane in sorted(by_lane)]
        self._table = [list(column) for column in zip(*rows, strict=True)]
        for time, held in enumerate(self._table):
            self._at.update({(step.lane, step.number): (time, lane) for lane, step in enumerate(held)})


def moved(way: str, time: int, lane: int, times: int, lanes: int) -> tuple[int, int]:
    """Time and lane of what stands in this row in the other table."""
    if way == REVERSED:
        return times - 1 - time, lane
    if way == BY_LANE:
        other, then = divmod(time * lanes + lane, times)
        return then, other
    return divmod(lane * times + time, lanes)
