"""Do the labels fit their rows, everywhere in the files?

A small model tells the target of rows that it was not fitted on. Where its success falls to chance in one stretch of
rows or in one file, and stays high elsewhere, the labels there are not those of their rows. When the target some rows
further is told instead, they have slid.

Why it matters: a loss over the whole set hides a part with wrong labels, and the label itself looks like any other.
Cannot tell: labels that are wrong everywhere alike, by no fixed number of rows; targets that the columns hardly tell.
Silent when: the target is told nowhere, when a stretch has little variety of targets, or fewer than 30 rows.
Sources: labels-match-inputs, look-at-the-data
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from clew.data.fit import MOST_ROWS, SHIFTS, Fit, fit, fit_from, inputs, target, whole
from clew.data.model import HELD, Array, Column, Family, Found, Look, Part, counted, place, sentence, spoken
from clew.data.parts import FILE
from clew.data.segments import Stretch, highest
from clew.data.swapped import swapped
from clew.records.clue import Saw, Unclear

FEWEST = 30
REFERENCE = 150
TOLD = 0.1
SURE, ALSO = 6.0, 3.5
"""Standard errors; in files beside one that has slid for sure, fewer will do."""


class Stripe(NamedTuple):
    """Some rows of one part, and the same rows counted over all parts."""

    part: Part
    first: int
    last: int
    chosen: Array

    @property
    def rows(self) -> int:
        return self.last - self.first + 1


def look(held: Look) -> Iterator[Found]:
    for family in held.families:
        if family.target:
            yield judged(family)


def judged(family: Family) -> Found:
    columns = whole(family)
    aim = next((column for column in columns if column.name == family.target), None)
    rows = family.rows
    if aim is None or rows < 2 * FEWEST or rows > 3 * MOST_ROWS:
        return Found(Unclear("the files have too few or too many rows for this check"), 0)
    y = target(aim, rows)
    if y is None:
        return Found(Unclear(f"{aim.title} has a single value"), 0)
    told: list[tuple[str, Fit]] = []
    for file, group in _by_file(columns, aim).items():
        x = inputs(group, rows)
        if x is not None:
            told.append((file, fit(x, y, [part.rows for part in family.parts])))
            by_held = _crosswise(family, x) if aim.name == FILE else _by_held(family, aim, x, y)
            if by_held is not None and slid(family, aim, told[-1][1]) is None:
                return by_held
    return _judge(family, aim, told)


def _crosswise(family: Family, x: Array) -> Found | None:
    swap = swapped(family, x)
    if swap is None:
        return None
    column = swap.part.columns[0]
    says = (
        f"{sentence(spoken(swap.part, column, swap.first, swap.last))} look like those of {swap.other.file}, "
        f"and the reverse: a model predicts them with score {swap.told:.2f} when they are swapped and "
        f"{swap.as_it_is:.2f} as they are."
    )
    answer = Saw("chance_in_part", rows=swap.last - swap.first + 1, told=swap.as_it_is, elsewhere=swap.told)
    where = place(swap.part, column, swap.first, swap.last), place(swap.other, swap.other.columns[0])
    return Found(answer.at(*where).saying(says), 3)


def _by_held(family: Family, aim: Column, x: Array, y: Array) -> Found | None:
    """A slide that shows itself to a model of the rows held out: fitted on both, it had learned the slide as well."""
    known = np.concatenate([np.full(part.rows, part.role == HELD) for part in family.parts])
    if not REFERENCE <= known.sum() <= 0.8 * len(known):
        return None
    fitted = fit_from(x, y, [part.rows for part in family.parts], known)
    return slid(family._replace(parts=family.parts), aim, fitted) if fitted.score[0][known].mean() >= 0.3 else None


def _by_file(columns: tuple[Column, ...], aim: Column) -> dict[str, list[Column]]:
    """The inputs by the file that they are in: where there are several, one may be out of step with the others."""
    found: dict[str, list[Column]] = {}
    for column in columns:
        if column.name != aim.name and column.kind not in ("key", "time", "stream"):
            found.setdefault(column.file, []).append(column)
    return found


def _judge(family: Family, aim: Column, told: list[tuple[str, Fit]]) -> Found:
    sound: Found | None = None
    faults: list[tuple[str, Found]] = []
    best = 0.0
    for file, fitted in told:
        best = max(best, *fitted.told.values())
        for way in (slid, chance, noisy):
            found = way(family, aim, fitted)
            if found is not None:
                faults.append((file, found))
                break
        else:
            if fitted.told[0] >= 3 * TOLD:
                sound = Found(
                    Saw("fits", told=fitted.told[0]).saying(
                        f"The other columns predict {family.target} equally well in all parts of the files."
                    ),
                    1,
                )
    if faults and sound is not None:
        # Labels that fit another file are in place: it is this one that is misaligned.
        file, found = max(faults, key=lambda pair: pair[1].weight)
        return _blamed(found, file)
    if faults:
        return max((found for _, found in faults), key=lambda found: found.weight)
    if sound is not None:
        return sound
    return Found(Unclear(f"the columns predict {family.target} too poorly (score {best:.2f} of 1)"), 0)


def _blamed(found: Found, file: str) -> Found:
    answer = found.answer
    if isinstance(answer, Saw):
        answer.at(*(at._replace(file=file, line=None, end_line=None, column=None) for at in answer.where))
        answer.saying(f"{answer.says} They fit the rows of the other files, so {file} is misaligned.")
    return found


def stripes(family: Family, rise: Array, fewest: int = FEWEST) -> Iterator[Stripe]:
    """Each part as a whole, and the stretch of each in which `rise` is highest."""
    first = 0
    for part in family.parts:
        within = slice(first, first + part.rows)
        stretch = highest(rise[within], min(fewest, max(5, part.rows // 3)))
        for held in (Stretch(0, part.rows - 1, 0.0), stretch):
            if held is not None:
                chosen = np.zeros(family.rows, bool)
                chosen[first + held.first : first + held.last + 1] = True
                yield Stripe(part, held.first, held.last, chosen)
        first += part.rows


def certain(values: Array) -> float:
    """How many standard errors the mean lies above zero."""
    return float(values.mean() / max(1e-12, values.std() / len(values) ** 0.5)) if len(values) > 4 else 0.0


def slid(family: Family, aim: Column, fitted: Fit) -> Found | None:
    """Rows whose target is told so many rows further, and not where it stands."""
    best: tuple[float, int, Stripe] | None = None
    now = fitted.score[0]
    if aim.name == FILE:
        return None
    for shift in SHIFTS[1:]:
        then = fitted.score[shift]
        for stripe in stripes(family, then - now):
            chosen, rest = stripe.chosen, ~stripe.chosen
            high, low = float(then[chosen].mean()), float(now[chosen].mean())
            if high < TOLD or low > 0.35 * high or certain(then[chosen]) < SURE * fitted.slack or stripe.rows < 20:
                continue
            other = float(now[rest].mean()) if rest.sum() >= FEWEST else 0.0
            apart = (
                other >= TOLD and certain(now[rest]) >= SURE * fitted.slack and float(then[rest].mean()) < 0.5 * other
            )
            if not apart and abs(fitted.alike) > 0.2:
                continue
            gain = float((then - now)[chosen].sum())
            if best is None or gain > best[0]:
                best = gain, shift, stripe
    if best is None:
        return None
    _, shift, stripe = best
    column = stripe.part.column(aim.name) or aim
    count = f"{counted(abs(shift))} {'further down' if shift > 0 else 'further up'}"
    there, here = float(fitted.score[shift][stripe.chosen].mean()), float(now[stripe.chosen].mean())
    says = (
        f"In {spoken(stripe.part, column, stripe.first, stripe.last)} the value of {column.title} that "
        f"belongs to a row is {count}: other columns predict it there with score {there:.2f}, and in its own "
        f"row with {here:.2f}."
    )
    where = [place(stripe.part, column, stripe.first, stripe.last)]
    where += [place(part, part.column(aim.name) or aim) for part in _slid_too(family, fitted, shift, stripe.part)]
    answer = Saw("slid", rows=stripe.rows, shift=shift, told=there)
    return Found(answer.at(*where).saying(says), 4)


def _slid_too(family: Family, fitted: Fit, shift: int, told: Part) -> list[Part]:
    """Other parts that slid as a whole."""
    found, first = [], 0
    for part in family.parts:
        within = slice(first, first + part.rows)
        then, now = fitted.score[shift][within], fitted.score[0][within]
        if part is not told and certain(then - now) >= ALSO:
            found.append(part)
        first += part.rows
    return found


def correlation(fitted: Fit, chosen: Array) -> float:
    """Between prediction and target, each centred within these rows."""
    one, other = fitted.predicted[chosen], fitted.target[chosen]
    one, other = one - one.mean(0), other - other.mean(0)
    size = float(np.sqrt((one**2).sum() * (other**2).sum()))
    return float((one * other).sum() / size) if size > 0 else 0.0


def chance(family: Family, aim: Column, fitted: Fit) -> Found | None:
    """Rows whose target is told no better than by chance, while that of the others is told well."""
    score = by_class(fitted)
    best: tuple[float, Stripe] | None = None
    for stripe in stripes(family, -score):
        chosen, rest = stripe.chosen, ~stripe.chosen
        if stripe.rows < FEWEST or rest.sum() < FEWEST:
            continue
        inside, outside = correlation(fitted, chosen), correlation(fitted, rest)
        variety = float(fitted.target[chosen].var(0).sum() / max(1e-12, fitted.target[rest].var(0).sum()))
        apart = score[rest].mean() - score[chosen].mean()
        error = score.std() * (1 / stripe.rows + 1 / rest.sum()) ** 0.5
        swapped = aim.name == FILE
        if (
            outside < 0.3
            or inside > 0.2 * outside
            or apart < SURE * error * fitted.slack
            or (variety < 0.4 and not swapped)
        ):
            continue
        if swapped and fitted.score[0][chosen].mean() > 0.2 * fitted.score[0][rest].mean():
            continue
        if best is None or apart / error > best[0]:
            best = float(apart / error), stripe
    if best is None:
        return None
    stripe = best[1]
    column = stripe.part.column(aim.name) or aim
    inside, outside = correlation(fitted, stripe.chosen), correlation(fitted, ~stripe.chosen)
    what = "the file name of a row does not match the row" if aim.name == FILE else f"nothing predicts {column.title}"
    says = (
        f"In {spoken(stripe.part, column, stripe.first, stripe.last)} {what} (score {inside:.2f}), while the "
        f"rest is predicted with {outside:.2f}."
    )
    answer = Saw("chance_in_part", rows=stripe.rows, told=inside, elsewhere=outside)
    return Found(answer.at(place(stripe.part, column, stripe.first, stripe.last)).saying(says), 3)


def by_class(fitted: Fit) -> Array:
    """The score of each row, less what is usual for rows of its target: a class that is hard to tell is no stretch."""
    y, score = fitted.target, fitted.score[0]
    key = (
        np.round(y[:, : min(8, y.shape[1])], 1) if y.shape[1] > 1 else np.digitize(y[:, :1], [-1.2, -0.6, 0, 0.6, 1.2])
    )
    _, group = np.unique(key, axis=0, return_inverse=True)
    group = group.reshape(-1)
    counts = np.bincount(group)
    means = np.bincount(group, score) / counts
    if (counts < 5).mean() > 0.5:
        return score
    return np.asarray(score - means[group] + score.mean())


def noisy(family: Family, aim: Column, fitted: Fit) -> Found | None:
    """A training file whose target is told far worse than that of the file held out."""
    if aim.name == FILE or not family.training or not any(part.role == HELD for part in family.parts):
        return _flat(family, aim, fitted)
    held = np.concatenate([np.full(part.rows, part.role == HELD) for part in family.parts])
    inside, outside = correlation(fitted, ~held), correlation(fitted, held)
    score = by_class(fitted)
    error = score.std() * (1 / held.sum() + 1 / (~held).sum()) ** 0.5
    if (
        outside < 0.3
        or inside > 0.5 * outside
        or score[held].mean() - score[~held].mean() < SURE * error * fitted.slack
    ):
        return _flat(family, aim, fitted)
    part = family.training[0]
    column = part.column(aim.name) or aim
    says = (
        f"Other columns predict {column.title} of {column.file} with score {inside:.2f} and that of the "
        f"held-out rows with {outside:.2f}: many labels in {column.file} belong to other rows."
    )
    return Found(Saw("noisy", told=inside, elsewhere=outside).at(place(part, column)).saying(says), 2)


def _flat(family: Family, aim: Column, fitted: Fit) -> Found | None:
    """Labels that contradict the rows as often where these are plain as where they are not."""
    y, guess = fitted.target, fitted.predicted
    classes = np.unique(y, axis=0)
    if not 2 <= len(classes) <= 24 or len(classes) * 20 > len(y):
        return None
    near = ((guess[:, None, :] - classes[None]) ** 2).sum(2)
    order = np.sort(near, axis=1)
    given, said = ((y[:, None, :] - classes[None]) ** 2).sum(2).argmin(1), near.argmin(1)
    wrong, sure = given != said, order[:, 1] - order[:, 0]
    plain = sure >= np.quantile(sure, 0.75)
    often = float(np.bincount(given).max()) / len(given)
    overall, there = float(wrong.mean()), float(wrong[plain].mean())
    if overall > 0.75 * (1 - often) or there < 0.15 or there < 0.75 * overall:
        return None
    at_random = len(classes) >= 4 and scattered(said[plain & wrong], given[plain & wrong], np.bincount(given))
    part = family.training[0] if family.training else family.parts[0]
    column = part.column(aim.name) or aim
    says = (
        f"{100 * overall:.0f} % of the values of {column.title} in {column.file} contradict the other "
        f"columns, as do {100 * there:.0f} % do so in the easiest rows"
    )
    says += ", with no preferred class: labels that are wrong at random look like this." if at_random else "."
    answer = Saw("noisy" if at_random else "contradicted", told=1 - overall, elsewhere=1 - there)
    return Found(answer.at(place(part, column)).saying(says), 2 if at_random else 1.5)


def scattered(said: Array, given: Array, counts: Array) -> bool:
    """Whether wrong labels are spread over all other classes, as these are frequent. Classes that resemble each other
    are taken for each other, and not for any."""
    if len(said) < FEWEST:
        return False
    apart = []
    for name in np.unique(said):
        rows = given[said == name]
        usual = np.where(np.arange(len(counts)) == name, 0, counts) / max(1, counts.sum() - counts[name])
        if len(rows) >= 10:
            apart.append(0.5 * float(np.abs(np.bincount(rows, minlength=len(counts)) / len(rows) - usual).sum()))
    return len(apart) >= 3 and float(np.mean(apart)) < 0.3
