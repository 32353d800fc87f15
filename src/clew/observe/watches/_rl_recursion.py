"""What value targets do with the reward and with what came later: its factor, its discount and its direction."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clew.observe.watches._rl_direction import returns
from clew.observe.watches._rl_targets import CLEAR, EXACT, ROWS, judged, middle, parts, pays, table, trimmed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clew.observe.envs import Experience, Transition
    from clew.observe.watches._rl_study import Row, Rows, Study
    from clew.observe.watches._rl_targets import Judged
    from clew.records.place import Place

    Floats = NDArray[np.float64]

ENOUGH = 30
LARGE = 20.0
ALL = 0.98
NEARLY = 0.9
AHEAD = 0.9
ONE = 1.002
"""A discount above this is more than one after rounding."""


class Factor(NamedTuple):
    """What the reward of the environment was multiplied by on its way into the targets."""

    factor: float
    rows: int
    size: float  # of the targets
    place: Place | None


class Found(NamedTuple):
    rows: int
    discount: float
    place: Place | None


class Shift(NamedTuple):
    """What is added to the reward, over the deviation of the reward as it is used."""

    offset: float
    rows: int
    place: Place | None


def factor(study: Study) -> Factor | None:
    """Read where targets are rewards and later values, to rounding, and at least two different rewards were paid."""
    for held in judged(study):
        rows = study.rows[held.place]
        going, ended = rows.going(), [row for row in rows.ended() if row.step.terminated]
        if len({row.step.reward for row in (*going, *ended)}) < 2 and not _turned(held):
            continue
        if not 0.0 < _discount(held) <= ONE:
            continue  # a recursion that runs the other way has another sign as well
        size = float(np.percentile([abs(row.target) for row in (*going, *ended)], 99))
        if held.fitted.reward is not None:
            return Factor(held.fitted.reward, held.fitted.rows, size, held.place)
        last = _at_the_end(ended)
        if last is not None:
            return Factor(last, len(ended), size, held.place)
    return next((found for place, rows in study.rows.items() if (found := _drowning(rows, place)) is not None), None)


def _turned(held: Judged) -> bool:
    """Rewards that are all alike tell no factor from a shift, but one that changes their sign turns what is sought."""
    return held.fitted.reward is not None and held.fitted.reward < -1e-6


def vanished(study: Study) -> Found | None:
    """Targets of nothing on steps that paid, and that others of the episode followed; or of later values alone."""
    recursions = {held.place: held for held in judged(study)}
    for place, rows in study.rows.items():
        held = rows.going()
        paid = [row for row in held if abs(row.step.reward) > 1e-9]
        if len(paid) >= ENOUGH and len(paid) > NEARLY * len(held):
            size = float(np.mean([abs(row.step.reward) for row in paid]))
            if np.mean([abs(row.target) <= 1e-5 * size for row in paid]) > NEARLY:
                return Found(len(paid), 0.0, place)
            fitted = recursions[place].fitted if place in recursions else None
            if fitted is not None and fitted.reward is not None and abs(fitted.reward) * size <= fitted.tolerance:
                return Found(fitted.rows, _discount(recursions[place]), place)
    return None


def shifted(study: Study) -> Shift | None:
    """The offset of the reward in the targets; None where they cannot be taken apart. Where that goes without an offset
    there is none."""
    for held in judged(study):
        if held.fitted.reward is not None and 0.0 < _discount(held) <= ONE and pays(study) > 1:
            return Shift(0.0, held.fitted.rows, held.place)
    for place, rows in study.rows.items():
        going, targets = rows.going(), study.target_of[place]
        for part in parts(going):
            aimed, rewards, later = table(part, going, targets)
            if len(aimed) < ENOUGH or np.std(rewards) < 1e-9 or not np.isfinite(later).all():
                continue
            columns = np.column_stack([rewards, np.ones(len(rewards)), later])
            found = trimmed(columns, aimed, EXACT * float(np.sqrt(np.mean(aimed**2))))
            if found is not None and abs(found[0]) > 1e-6 and 0.1 < float(found[2:].sum()) <= ONE:
                used = abs(float(found[0])) * float(np.std(rewards))
                return Shift(abs(float(found[1])) / used, len(aimed), place)
    return None


def _drowning(rows: Rows, place: Place | None) -> Factor | None:
    """A factor so large that the targets are little else than the reward, and later values are lost in them."""
    going = rows.going()
    rewards = np.array([row.step.reward for row in going])
    aimed = np.array([row.target for row in going])
    if len(going) < ENOUGH or len(np.unique(rewards)) < 3:
        return None
    slope = float(rewards @ aimed) / max(1e-30, float(rewards @ rewards))
    off = float(np.sqrt(np.mean((aimed - slope * rewards) ** 2)))
    size = float(np.percentile(np.abs(aimed), 99))
    return Factor(slope, len(going), size, place) if abs(slope) > LARGE and off < 0.05 * size else None


def _at_the_end(ended: list[Row]) -> float | None:
    """The factor where only the last step of an episode pays, and its target is that reward alone."""
    aimed = np.array([row.target for row in ended])
    rewards = np.array([row.step.reward for row in ended])
    paid = np.abs(rewards) > 1e-9
    if len(ended) < ROWS or not paid.any():
        return None
    found = middle(aimed[paid] / rewards[paid])
    off = np.abs(aimed - found * rewards)
    return found if (off <= 3 * EXACT * max(1e-12, float(np.abs(aimed).max()))).mean() > NEARLY else None


def _discount(held: Judged) -> float:
    return float(held.fitted.slopes.sum())


def nothing_later(study: Study) -> Found | None:
    """Targets that are the reward alone on steps after which the episode went on and paid. A network that is only meant
    to predict rewards has such targets too: it is not asked about later observations."""
    if any(0.0 < _discount(held) <= ONE for held in judged(study)):
        return None
    for place, rows in study.rows.items():
        size = _size(rows)
        models = study.networks.of_one_form(study.models_of.get(place, set()))
        held = _with_a_future(study, rows, models, CLEAR * EXACT * size)
        if size == 0.0 or len(held) < ENOUGH:
            continue
        aimed = np.array([row.target for row in held])
        rewards = np.array([row.step.reward for row in held])
        power = float(rewards @ rewards)
        slope = float(rewards @ aimed) / power if power > 1e-12 else 0.0
        if (power <= 1e-12 or abs(slope) > 1e-3) and (np.abs(aimed - slope * rewards) <= EXACT * size).mean() > ALL:
            return Found(len(held), 0.0, place)
    return None


def _size(rows: Rows) -> float:
    held = [*rows.going(), *rows.ended()]
    return max((float(np.sqrt(np.mean(np.square(v)))) for v in _both(held)), default=0.0) if held else 0.0


def _both(held: list[Row]) -> tuple[list[float], list[float]]:
    return [row.target for row in held], [row.step.reward for row in held]


def _with_a_future(study: Study, rows: Rows, models: set[int], clear: float) -> list[Row]:
    """Rows whose episode pays later on, and for which a network of this form gave later values that could be seen."""
    going = rows.going()
    if not going:
        return []
    own = np.array([row.step.reward for row in going])
    ahead = np.abs(returns([row.step for row in going], study.experience, AHEAD) - own)
    return [row for row, later in zip(going, ahead, strict=True) if later > clear and _seen(row, models, clear)]


def _seen(row: Row, models: set[int], clear: float) -> bool:
    """Later values that were asked for without gradients, large enough to be missed in a sum."""
    held = {**row.later, **row.after}
    sizes = [float(np.abs(values).max()) for (grad, model, _), values in held.items() if model in models and not grad]
    return bool(sizes) and min(sizes) > clear


def backwards(study: Study) -> Found | None:
    """Targets that add up what came before a step in place of what follows: with the reward of the step, or, where a
    list was left in the order in which it was made, with that of the step as far from the other end."""
    forward = {held.place for held in judged(study) if _discount(held) <= ONE}
    for place, rows in study.rows.items():
        if place in forward:
            continue
        targets = study.target_of[place]
        held = [(row, before) for row in rows.going() if (before := _before(study, row, targets)) is not None]
        own = [(row.target, row.step.reward, before) for row, before in held]
        mirrored = [
            (row.target, other.reward, before)
            for row, before in held
            if (other := _mirrored(study.experience, row.step)) is not None
        ]
        for pairs in (own, mirrored):
            slope = _recursion(pairs)
            if slope is not None:
                return Found(len(pairs), slope, place)
        summed = _advantages_from_the_front(held, place)
        if summed is not None:
            return summed
    return None


def _advantages_from_the_front(held: list[tuple[Row, float]], place: Place | None) -> Found | None:
    """Targets that are a value and a sum of errors, each with a share of the sum at the step before: the target holds
    the next value, and takes off what it brings of the step before the value of that step."""
    rows = {(row.step.lane, row.step.number): row for row, _ in held}
    for source in {each for row, _ in held for each, values in row.later.items() if len(values) == 1}:
        table = []
        for row, before in held:
            other = rows.get((row.step.lane, row.step.number - 2))
            if other is not None and source in other.later and source in row.later:
                reached = float(row.later[source][0]), float(other.later[source][0])
                table.append((row.target, row.step.reward, before, *reached))
        if len(table) < ENOUGH:
            continue
        found = np.array(table)
        slopes = trimmed(found[:, 1:], found[:, 0], EXACT * float(np.sqrt(np.mean(found[:, 0] ** 2))))
        if slopes is None or slopes[0] < 1e-6 or not (0.1 < slopes[1] <= ONE and 0.1 < slopes[2] <= ONE):
            continue
        if abs(slopes[3] + slopes[1]) < 0.02 * slopes[1]:
            return Found(len(table), float(slopes[1]), place)
    return None


def _recursion(rows: list[tuple[float, float, float]]) -> float | None:
    """The discount, where targets are a reward and a share of another target."""
    if len(rows) < ENOUGH:
        return None
    table = np.array(rows)
    slopes = trimmed(table[:, 1:], table[:, 0], EXACT * float(np.sqrt(np.mean(table[:, 0] ** 2))))
    return float(slopes[1]) if slopes is not None and slopes[0] > 1e-6 and 0.1 < slopes[1] <= ONE else None


def _mirrored(experience: Experience, step: Transition) -> Transition | None:
    """The step as far from the end of its episode as this one is from the beginning."""
    known, first, last = experience.by_number, step.number, step.number
    while (last_step := known.get((step.lane, last))) is not None and not _ended(last_step):
        last += 1
    while (before := known.get((step.lane, first - 1))) is not None and not _ended(before):
        first -= 1
    return known.get((step.lane, first + last - step.number))


def _ended(step: Transition) -> bool:
    return step.terminated or step.truncated


def _before(study: Study, row: Row, targets: dict[tuple[int, int], float]) -> float | None:
    mark = row.step.lane, row.step.number - 1
    step = study.experience.by_number.get(mark)
    return None if step is None or _ended(step) else targets.get(mark)


def discount(study: Study) -> Found | None:
    """The largest discount among the value losses that could be taken apart."""
    found = [Found(held.fitted.rows, _discount(held), held.place) for held in judged(study)]
    return max(found, key=lambda held: held.discount, default=None)
