"""Whether observation and action of a row that is learned from belong to one step of an environment."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from clew.observe.watches._rl_layout import REVERSED, WAYS, Layout
from clew.observe.watches._rl_rows import FOUND, only
from clew.observe.watches._rl_targets import Fitted, fit, parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from clew.observe.envs import Experience, Transition
    from clew.observe.watches._rl_study import Row
    from clew.records.place import Place

BATCH = 8
APART = 30
ALIKE = 10
NEARLY = 0.85
SLIPPED = 300
PLACES = 8
LAST = 0.8
WRITTEN = 0.5
UPDATES = 3
FITTED = 40
STEPS = 512


class Tally:
    """Actions that were learned from, against those of the same step and of its neighbour. Only where the two differ do
    they tell the step; where they agree they tell whether both number their actions alike."""

    def __init__(self) -> None:
        self.own = self.other = self.neither = self.same = self.strange = 0

    def add(self, used: int, own: int, other: int) -> None:
        if own == other:
            self.same += used == own
            self.strange += used != own
        elif used == own:
            self.own += 1
        elif used == other:
            self.other += 1
        else:
            self.neither += 1

    def add_any(self, used: int, own: set[int], other: set[int]) -> None:
        """For a row that may stem from any of several steps: with the actions of all of them."""
        if own == other:
            self.same += len(own) == 1 and used in own
            self.strange += used not in own
        elif (used in own) != (used in other):
            self.own += used in own
            self.other += used in other
        elif used not in own:
            self.neither += 1

    def says(self) -> str:
        apart, alike = self.own + self.other + self.neither, self.same + self.strange
        if apart < APART or alike < ALIKE or self.same < NEARLY * alike:
            return ""
        return "own" if self.own >= NEARLY * apart else "other" if self.other >= NEARLY * apart else ""


class Paired(NamedTuple):
    """What was found: the shift of the action, or targets that belong to the observation that followed."""

    shift: int
    rows: int
    place: Place | None
    way: str = ""  # how the rows of a rollout stand, where it is no shift


class Strayed:
    """Targets of one value loss, each held against the step that would have its row in another order."""

    def __init__(self) -> None:
        # Rows for which no later value is known must not push out the others.
        self.rows: tuple[deque[Row], deque[Row]] = (deque(maxlen=SLIPPED), deque(maxlen=2 * SLIPPED))
        self.targets: dict[tuple[int, int], float] = {}

    def add(self, row: Row) -> None:
        if len(self.targets) > 20_000:
            self.targets.clear()
        self.targets[row.step.lane, row.step.number] = row.target
        if not (row.step.terminated or row.step.truncated):
            self.rows[bool(row.after or row.later)].append(row)


class Pairs:
    def __init__(self, experience: Experience) -> None:
        self.experience = experience
        self.layout = Layout(experience)
        self.tallies: dict[tuple[Any, int], Tally] = {}
        self.ways: dict[tuple[Any, str], Tally] = {}
        self.strayed: dict[tuple[Any, str], Strayed] = {}
        self.slipped: dict[Any, deque[Row]] = {}
        self.known: set[int] = set()  # actions
        self.lasting: dict[Any, list[int]] = {}  # updates, those of last observations nearly alone, and their rows

    def observations(self, keys: list[int], place: Place | None) -> None:
        """Rows that an update is about: are they what was acted on, or only what environments gave out last?"""
        if len(keys) < BATCH or not self.experience.overwritten or not self.experience.kept:
            return
        if place not in self.lasting and len(self.lasting) >= PLACES:
            return
        newest = self.experience.kept[-1].next_key
        known = [mark for mark in keys if self.experience.knows(mark)]
        last = sum(mark == newest or mark not in self.experience.by_key for mark in known)
        if len(known) >= BATCH:
            held = self.lasting.setdefault(place, [0, 0, 0])
            held[0] += 1
            held[1] += last >= LAST * len(known)
            held[2] += last

    def actions(
        self,
        keys: list[int],
        ordered: list[Transition | None] | None,
        others: Sequence[list[int]],
        used: Sequence[int],
        place: Place | None,
    ) -> None:
        """Rows that an update is about, with the action that it takes to be theirs. `others` are observations that
        other calls of the same size were made on: those that followed may be among them."""
        if not BATCH <= len(keys) == len(used) or (len(self.tallies) >= 2 * PLACES and (place, 1) not in self.tallies):
            return
        known = self.experience.by_number
        following = None if ordered is not None else followed(self.experience, keys, others)
        for number, action in enumerate(used):
            step = ordered[number] if ordered is not None else sole(self.experience, keys[number])
            if step is None and following is not None:
                self._any_of(led(self.experience, keys[number], following[number]), action, place)
            if step is None or step.action is None or step.idle:
                continue
            for shift in (-1, 1):
                other = known.get((step.lane, step.number + shift))
                if other is not None and other.action is not None:
                    self.tallies.setdefault((place, shift), Tally()).add(action, step.action, other.action)
            for way in WAYS:
                other = self.layout.beside(step, way)
                if other is not None and other.action is not None:
                    self.ways.setdefault((place, way), Tally()).add(action, step.action, other.action)

    def _any_of(self, steps: list[Transition], used: int, place: Place | None) -> None:
        """A row between whose two observations several steps were made: an action that none of them had is not its
        own, and one that came before or after them may be. Where nearly every action came there, that says nothing."""
        own = {step.action for step in steps if step.action is not None}
        self.known |= own
        for shift in (-1, 1):
            held = [self.experience.by_number.get((step.lane, step.number + shift)) for step in steps]
            other = {step.action for step in held if step is not None and step.action is not None}
            if own and 0 < 2 * len(other) <= len(self.known):
                self.tallies.setdefault((place, shift), Tally()).add_any(used, own, other)

    def targets(
        self,
        keys: list[int],
        targets: Sequence[float],
        used: Sequence[int] | None,
        place: Place | None,
        made: Callable[[float, Transition, int], Row],
    ) -> None:
        """Rows of a value loss, read as if their observation were the one that followed the step."""
        if place not in self.slipped and len(self.slipped) >= PLACES:
            return
        held = self.slipped.setdefault(place, deque(maxlen=SLIPPED))
        for number, (mark, target) in enumerate(zip(keys, targets, strict=True)):
            led_here = [
                step
                for step in self.experience.by_next.get(mark, [])[-64:]
                if step.key != mark and not step.idle and (used is None or step.action == used[number])
            ]
            step = only(led_here)
            if step is not None and not step.terminated and not step.truncated:
                held.append(made(target, step, mark))

    def rollout(
        self,
        targets: Sequence[float],
        steps: Sequence[Transition | None],
        place: Place | None,
        made: Callable[[float, Transition], Row],
    ) -> None:
        """Rows of a value loss, read as if their targets had been made flat in another order than they."""
        if (place, WAYS[0]) not in self.strayed and len(self.strayed) >= PLACES * len(WAYS):
            return
        for way in WAYS:
            held = self.strayed.setdefault((place, way), Strayed())
            for target, step in zip(targets, steps, strict=True):
                other = None if step is None or step.idle else self.layout.beside(step, way)
                if other is not None and not other.idle:
                    held.add(made(target, other))

    # --- what they say

    def of_the_last(self) -> Paired | None:
        """Environments that write into what they gave out, and updates that hold only what was written last: the same
        array was stored for every step of an episode. Nobody acts on the last observation of an episode."""
        if self.experience.overwritten < WRITTEN * len(self.experience.kept):
            return None
        for place, (updates, last, rows) in self.lasting.items():
            if last >= max(UPDATES, LAST * updates):
                return Paired(0, rows, place)
        return None

    def of_a_neighbour(self) -> Paired | None:
        for (place, shift), tally in self.tallies.items():
            if tally.says() == "other":
                return Paired(shift, tally.other, place)
        return None

    def of_another_order(self) -> Paired | None:
        """Actions that are those of the step which has their row where the rollout is made flat in another order."""
        for (place, way), tally in self.ways.items():
            if tally.says() == "other":
                return Paired(0, tally.other, place, way)
        return None

    def of_targets_in_another_order(self, turned: bool) -> Paired | None:
        """A value loss whose targets hold exactly as those of such steps. `turned` asks for reversed ones too."""
        for (place, way), strayed in self.strayed.items():
            if way == REVERSED and not turned:
                continue
            held = [row for rows in strayed.rows for row in rows]
            for part in parts(held):
                found = fit(part, held, strayed.targets)
                if found is not None and found.rows >= FITTED:
                    return Paired(0, found.rows, place, way)
        return None

    def of_their_own(self) -> Paired | None:
        for (place, _), tally in self.tallies.items():
            if tally.says() == "own":
                return Paired(0, tally.own, place)
        return None

    def of_what_followed(self) -> Paired | None:
        """A value loss whose targets hold exactly as those of the observation after the step."""
        for place, rows in self.slipped.items():
            held = list(rows)
            for part in parts(held):
                found: Fitted | None = None if part.target or part.later else fit(part, held, {})
                if found is not None:
                    return Paired(1, found.rows, place)
        return None


def followed(experience: Experience, keys: list[int], others: Sequence[list[int]]) -> list[int] | None:
    """Of several lists of observations the one that holds what followed each of these."""
    for held in reversed(others):
        if held != keys and len(held) == len(keys):
            found = sum(bool(led(experience, one, then)) for one, then in zip(keys, held, strict=True))
            if found >= FOUND * len(keys):
                return held
    return None


def led(experience: Experience, one: int, then: int) -> list[Transition]:
    """Steps from one observation to another."""
    return [step for step in experience.by_key.get(one, [])[-STEPS:] if step.next_key == then and not step.idle]


def sole(experience: Experience, mark: int) -> Transition | None:
    """The one step that was ever made on this observation."""
    held = experience.by_key.get(mark, [])
    return held[0] if len(held) == 1 else None
