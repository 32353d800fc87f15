"""How value targets are put together from rewards and later values, found by fitting exactly.

Three recursions are tried on the steps after which an episode went on: the reward plus a multiple of the next value
(one-step targets; the value may be the lower of two, or that of the action which another network prefers), plus a
multiple of the next target (returns), plus a multiple of each (lambda returns). One counts only when it holds to
rounding on nearly all steps. Steps that ended an episode are then held against it: they must lack all but the reward. A
fit that is not exact says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, permutations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clew.observe.watches._rl_study import Row, Source, Study

    Floats = NDArray[np.float64]

EXACT = 3e-4
"""Rounding, relative to the targets. Values are 32-bit and pass through a few operations."""
INLIERS = 0.85
ROWS = 8
SPARE = 4
CLEAR = 20.0
PAIRS = 56
INFORMATIVE, RARELY = 3, 0.2  # rows that hold the reward of another step, and those that hold their own for one of them


class Part(NamedTuple):
    """Where the later part of a target comes from."""

    source: Source | None  # a network's values
    pick: str  # "" | "max" | "chosen" | "min": how one of several values was taken
    later: bool  # the observation acted on next, also where that began another episode
    target: bool  # the next step's own target
    other: Source | None = None  # who chose the action, or whose value is taken where it is the lower one


class Fitted(NamedTuple):
    """target = reward · a + later parts · b, which held for `rows` steps."""

    part: Part
    reward: float | None  # None where rewards were all zero
    slopes: Floats
    tolerance: float
    rows: int


class Ends(NamedTuple):
    """Steps that ended an episode, by what their targets hold."""

    bootstrapped: int
    alone: int
    neither: int


def parts(rows: list[Row]) -> list[Part]:
    """The candidates among what networks gave."""
    found: dict[Part, None] = {}
    for row in rows:
        for later, table in ((False, row.after), (True, row.later)):
            for source, values in table.items():
                found[Part(source, "max" if len(values) > 1 else "", later, False)] = None
    every = list(found)
    singles = [part for part in every if part.later and not part.pick]
    whole = [*every, Part(None, "", True, True), *(part._replace(target=True) for part in singles)]
    return [*whole, *pairs(every)]


def pairs(every: list[Part]) -> Iterator[Part]:
    """Values of two networks together: the lower of two, or one's value of the action that the other prefers."""
    steady = [part for part in every if not part.later and part.source is not None and not part.source[0]]
    for first, second in islice(permutations(steady, 2), PAIRS):
        if not first.pick and not second.pick and str(first.source) < str(second.source):
            yield first._replace(pick="min", other=second.source)
    chosen = [part for part in every if not part.later and part.pick]
    for first, second in islice(permutations(chosen, 2), PAIRS):
        yield first._replace(pick="chosen", other=second.source)


def features(part: Part, row: Row, targets: dict[tuple[int, int], float]) -> list[float] | None:
    """The later parts of one row; None where one of them was not seen."""
    found = []
    if part.source is not None:
        values = picked(part, row.later if part.later else row.after)
        if values is None and (row.step.terminated or row.step.truncated):
            values = picked(part, row.later)  # what began the next episode was kept in the place of what ended this one
        if values is None:
            return None
        found.append(values)
    if part.target:
        following = targets.get((row.step.lane, row.step.number + 1))
        if following is None:
            return None
        found.append(following)
    return found


def picked(part: Part, values: dict[Source, Any]) -> float | None:
    held = None if part.source is None else values.get(part.source)
    if held is None:
        return None
    if part.other is None:
        return float(held.max()) if part.pick else float(held[0])
    other = values.get(part.other)
    if other is None or len(other) != len(held):
        return None
    return float(min(held[0], other[0])) if part.pick == "min" else float(held[other.argmax()])


def table(part: Part, rows: list[Row], targets: dict[tuple[int, int], float]) -> tuple[Floats, Floats, Floats]:
    """Targets, rewards and later parts of the rows that have them all."""
    held = [(row, values) for row in rows if (values := features(part, row, targets)) is not None]
    if not held:
        return np.zeros(0), np.zeros(0), np.zeros((0, 1))
    return (
        np.array([row.target for row, _ in held]),
        np.array([row.step.reward for row, _ in held]),
        np.array([values for _, values in held]),
    )


def fit(part: Part, rows: list[Row], targets: dict[tuple[int, int], float]) -> Fitted | None:
    aimed, rewards, later = table(part, rows, targets)
    if len(aimed) < ROWS or not np.isfinite(later).all() or not np.isfinite(aimed).all():
        return None
    size = float(np.sqrt(np.mean(aimed**2)))
    tolerance = EXACT * size
    paid = bool(np.abs(rewards).max() > 1e-9)
    columns = np.column_stack([rewards, later]) if paid else later
    slopes = trimmed(columns, aimed, tolerance)
    if slopes is None:
        return None
    if paid and abs(slopes[0] - 1.0) < 0.05:  # a reward that nobody scaled
        fixed = trimmed(later, aimed - rewards, tolerance)
        slopes = np.concatenate([[1.0], fixed]) if fixed is not None else slopes
    own = slopes[1:] if paid else slopes
    brought = np.abs(later @ own)
    if float(np.sqrt(np.mean(brought**2))) < CLEAR * tolerance:
        return None  # nothing later in these targets that could be told from rounding
    return Fitted(part, float(slopes[0]) if paid else None, own, tolerance, len(aimed))


def trimmed(columns: Floats, aimed: Floats, tolerance: float) -> Floats | None:
    """Slopes that hold for nearly all rows to rounding, by least squares on ever better rows."""
    kept = np.ones(len(aimed), bool)
    slopes: Floats = np.zeros(columns.shape[1])
    for _ in range(8):
        found, _, rank, _ = np.linalg.lstsq(columns[kept], aimed[kept], rcond=1e-9)
        slopes = np.asarray(found, np.float64)
        if rank < columns.shape[1]:
            return None
        off = np.abs(aimed - columns @ slopes)
        good = off <= max(tolerance, 3.0 * float(np.median(off)))
        if (good == kept).all():
            break
        kept = good
    inside = off <= tolerance
    different = len(np.unique(np.round(columns[inside], 9), axis=0))
    if inside.mean() < INLIERS or inside.sum() < ROWS or different < columns.shape[1] + SPARE:
        return None
    return slopes


def ends(fitted: Fitted, rows: list[Row], targets: dict[tuple[int, int], float]) -> Ends:
    """How the targets of steps that ended an episode compare with the recursion and with the reward alone."""
    aimed, rewards, later = table(fitted.part, rows, targets)
    if not len(aimed):
        return Ends(0, 0, 0)
    brought = later @ fitted.slopes
    whole, scale = _scales(fitted, aimed, rewards, brought)
    clear = np.abs(brought) > CLEAR * fitted.tolerance
    with_value = clear & (np.abs(aimed - whole * rewards - brought) <= 3 * fitted.tolerance)
    last = _last_values(fitted, rows, targets)
    reaches = np.abs(last) > CLEAR * fitted.tolerance
    with_value |= clear & reaches & (np.abs(aimed - whole * rewards - last) <= 3 * fitted.tolerance)
    for over in _half_cut(fitted, later):
        reaches = np.abs(over) > CLEAR * fitted.tolerance
        with_value |= clear & reaches & (np.abs(aimed - whole * rewards - over) <= 3 * fitted.tolerance)
    without = clear & (np.abs(aimed - scale * rewards) <= 3 * fitted.tolerance)
    both = with_value & without
    return Ends(
        int((with_value & ~both).sum()), int((without & ~both).sum()), int((clear & ~(with_value ^ without)).sum())
    )


def _last_values(fitted: Fitted, rows: list[Row], targets: dict[tuple[int, int], float]) -> Floats:
    """What a lambda return brings where it stops: the whole weight on the value of what followed, not of what was
    acted on next. Not a number for other targets, and where that was not seen."""
    part, found = fitted.part, []
    for row in rows:
        if features(part, row, targets) is None:
            continue
        value = row.after.get(part.source) if part.target and part.source is not None else None
        found.append(np.nan if value is None else float(value[0]))
    return np.array(found) * float(fitted.slopes.sum())


def _half_cut(fitted: Fitted, later: Floats) -> list[Floats]:
    """What a lambda return brings over an end at which only one of its two parts was cut: the advantages of the next
    episode without the value of what followed, or that value without those advantages."""
    if not (fitted.part.target and fitted.part.source is not None):
        return []
    value, target = later[:, 0], later[:, 1]
    return [(target - value) * fitted.slopes[1], value * float(fitted.slopes.sum())]


def _scales(fitted: Fitted, aimed: Floats, rewards: Floats, brought: Floats) -> tuple[float, float]:
    """What the reward was multiplied by, under each reading. Where rewards come only at the end it is read there, which
    takes several steps that ended; a row that was taken for another must not move it."""
    if fitted.reward is not None:
        return fitted.reward, fitted.reward
    paid = np.abs(rewards) > 1e-9
    if not paid.any():
        return 0.0, 0.0
    if len(aimed) < 3:
        return 1.0, 1.0
    return middle((aimed - brought)[paid] / rewards[paid]), middle(aimed[paid] / rewards[paid])


def middle(values: Floats) -> float:
    """The lower of the two in the middle: one of the values, where their mean might be none."""
    return float(np.sort(values)[(len(values) - 1) // 2])


class Judged(NamedTuple):
    fitted: Fitted
    terminal: Ends
    limit: Ends
    place: Any


def judged(study: Study) -> Iterator[Judged]:
    """Every value loss whose targets could be taken apart."""
    for place, rows in study.rows.items():
        going, ended = rows.going(), rows.ended()
        targets = study.target_of[place]
        best: Judged | None = None
        for part in parts(going):
            fitted = fit(part, going, targets)
            if fitted is None:
                continue
            terminal = ends(fitted, [row for row in ended if row.step.terminated], targets)
            cut = ends(fitted, [row for row in ended if row.step.truncated], targets)
            found = Judged(fitted, terminal, cut, place)
            if best is None or _told(found) > _told(best):
                best = found
        if best is not None:
            yield best


def _told(held: Judged) -> tuple[int, int]:
    return sum(held.terminal[:2]) + sum(held.limit[:2]), held.fitted.rows


def of_a_neighbour(study: Study) -> tuple[int, Any, int] | None:
    """Whether targets hold the reward of the step before (-1) or after (1) in place of their own, and the line."""
    for place, rows in study.rows.items():
        targets = study.target_of[place]
        for shift in (-1, 1):
            moved = [each for row in rows.going() if (each := _moved(study, row, shift)) is not None]
            if len({row.step.reward for row in moved}) < 3:
                continue
            for part in parts(moved):
                found = fit(part, moved, targets)
                if found is not None and found.reward is not None and abs(found.reward) > 1e-3:
                    return shift, place, found.rows
    return None


def of_another_step(study: Study) -> tuple[Any, int] | None:
    """Whether what targets hold besides later values is a reward that other steps brought. Told by the steps that pay
    something unusual and by the targets that hold something unusual: where all other steps pay alike, the fits above,
    which need three different rewards, say nothing."""
    for held in judged(study):
        rows, targets = study.rows[held.place], study.target_of[held.place]
        usual = middle(np.array([row.step.reward for row in rows.going()]))
        tolerance = 3 * held.fitted.tolerance
        scale = held.fitted.reward if held.fitted.reward is not None else 1.0
        known = {row.step.reward for row in (*rows.going(), *rows.ended())}
        own = other = 0
        for row in (*rows.going(), *(row for row in rows.ended() if row.step.terminated)):
            brought = _brought(held.fitted, row, targets)
            if brought is None:
                continue
            rest = row.target - brought
            paid = [reward for reward in known if abs(rest - scale * reward) <= tolerance]
            odd = abs(scale * (row.step.reward - usual)) > CLEAR * tolerance
            if len(paid) == 1 and (odd or paid[0] != usual):
                own, other = own + (paid[0] == row.step.reward), other + (paid[0] != row.step.reward)
        if other >= INFORMATIVE and own < RARELY * other:
            return held.place, other
    return None


def _brought(fitted: Fitted, row: Row, targets: dict[tuple[int, int], float]) -> float | None:
    """What a target should hold of later values; nothing at the end."""
    if row.step.terminated:
        return 0.0
    found = features(fitted.part, row, targets)
    return None if found is None else float(np.array(found) @ fitted.slopes)


def _moved(study: Study, row: Row, shift: int) -> Row | None:
    step = row.step
    other = study.experience.by_number.get((step.lane, step.number + shift))
    return None if other is None else row._replace(step=step._replace(reward=other.reward))


def pays(study: Study) -> int:
    """How many different rewards were among the rows."""
    return max((len({row.step.reward for row in rows.going()}) for rows in study.rows.values()), default=0)
