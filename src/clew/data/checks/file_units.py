"""Is every column in one unit, in all files and all rows?

Compares the distribution of each column in one file, or in one stretch of rows, with the rest. Where they hardly
overlap and a change of unit makes them the same (a factor, an offset, Fahrenheit for Celsius, an inverted image), the
values there are in another unit.

Why it matters: a scaler that was fitted on the mixture makes both units useless, and a validation file in another unit
makes a sound model look broken.
Cannot tell: a factor that is small against the spread of the column; a unit that is wrong everywhere.
Silent when: several columns change at the same rows, as they do where one kind of rows ends and another begins, and
when no change of unit makes the two alike.
Sources: same-preprocessing, normalise-inputs
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from clew.data.model import HELD, Array, Column, Family, Found, Look, Part, place, sentence, spoken
from clew.data.parts import is_split, split_of
from clew.data.segments import Stretch, by_chance, distance, highest, ranks
from clew.records.clue import Saw, Unclear

APART = 0.6
ALIKE = 0.1
FEWEST = 30
NEAR = 16
MOST = 4000
LEAST_FACTOR = 8.0
"""Between files and stretches of rows smaller factors are usual by nature; a file held out is another matter."""
FACTORS = (
    2.0, 2.2046, 2.54, 3.2808, 3.6, 4.0, 4.184, 7.5006, 8.0, 9.8067, 10.0, 10.764, 12.0, 16.0, 20.0, 24.0, 25.4, 28.35,
    60.0, 100.0, 255.0, 256.0, 453.59, 1000.0, 1024.0, 3600.0, 1e4, 65535.0, 1e5, 1e6,
)  # fmt: skip
DEGREES = (
    (1.8, 32.0, "in degrees Fahrenheit instead of Celsius"),
    (5 / 9, -160 / 9, "in degrees Celsius instead of Fahrenheit"),
    (1.0, 273.15, "in kelvin instead of degrees Celsius"),
    (1.0, -273.15, "in degrees Celsius instead of kelvin"),
)
ODD = 0.9
CHANNELS = 32
WEATHER = 60.0
"""Degrees Celsius beyond which numbers are not taken for temperatures."""
PIXELS = (
    (-1.0, 255.0, "255 minus the value"),
    (-1.0, 1.0, "1 minus the value"),
    (-1.0, 0.0, "the opposite sign"),
    (2.0, -1.0, "-1 to 1 instead of 0 to 1"),
    (0.5, 0.5, "0 to 1 instead of -1 to 1"),
    (2 / 255, -1.0, "-1 to 1 instead of 0 to 255"),
    (127.5, 127.5, "0 to 255 instead of -1 to 1"),
)


class Change(NamedTuple):
    """The values are those of the rest, times a factor and plus an offset."""

    factor: float
    offset: float
    says: str

    @property
    def of_spread(self) -> Change:
        return Change(abs(self.factor), 0.0, self.says)


class Sample(NamedTuple):
    """What stands for a column: its values, or of an array the mean and the spread of each row."""

    values: Array
    spread: Array | None = None

    def some(self, rows: Array) -> Sample:
        return Sample(self.values[rows], None if self.spread is None else self.spread[rows])


def look(held: Look) -> Iterator[Found]:
    some = False
    for family in held.families:
        for name in [column.name for column in family.parts[0].columns if column.kind in ("number", "array")]:
            some = True
            if name == family.target and family.sure and _two_values(family, name):
                continue  # file_label_coding asks that
            yield from _column(family, name)
        yield from words(family)
    if some:
        yield Found(Saw("same").saying("Every column has one unit in all files and rows."), 0.5)
    else:
        yield Found(Unclear("no numeric columns"), 0)


def _two_values(family: Family, name: str) -> bool:
    held = [column.values for part in family.parts if (column := part.column(name)) is not None]
    return max(len(np.unique(values)) for values in held) <= 3


def sample(column: Column | None) -> Sample | None:
    if column is None or column.kind not in ("number", "array"):
        return None
    if column.kind == "number":
        return Sample(column.values)
    flat = column.values.reshape(len(column.values), -1)
    with np.errstate(all="ignore"):
        return Sample(flat.mean(1, dtype=np.float64), flat.std(1, dtype=np.float64))


def _column(family: Family, name: str) -> Iterator[Found]:
    samples = {
        index: held for index, part in enumerate(family.parts) if (held := sample(part.column(name))) is not None
    }
    for index, part in enumerate(family.parts):
        if index not in samples:
            continue
        others = [at for at in samples if at != index and family.parts[at].role != HELD]
        if others:
            rest = joined([samples[at] for at in others])
            change = changed(samples[index], rest, 2.0 if part.role == HELD else LEAST_FACTOR)
            turned = change is None and _turned(part.column(name), [family.parts[at].column(name) for at in others])
            if turned:
                yield _found(family, part, name, None, "BGR instead of RGB: its channels are reversed")
                continue
            if change is not None and not _all_change(family, name, index, others):
                yield _found(family, part, name, None, change.says)
                continue
            least = 2.0 if part.role == HELD else LEAST_FACTOR
            of_some = _some_channels(part.column(name), [family.parts[at].column(name) for at in others], least)
            if change is None and of_some:
                yield _found(family, part, name, None, of_some)
                continue
        if part.role != HELD or not others:
            yield from _stretch(family, part, name, samples[index])


def _turned(own: Column | None, others: list[Column | None]) -> bool:
    """Whether images agree with the others once their three channels are taken in the opposite order."""
    held = [channels(column) for column in (own, *others)]
    if any(found is None for found in held):
        return False
    mine, theirs = held[0], np.concatenate([found for found in held[1:] if found is not None])
    if mine is None or len(mine) < FEWEST:
        return False
    as_it_is = max(distance(mine[:, at], theirs[:, at]) for at in range(3))
    turned = max(distance(mine[:, 2 - at], theirs[:, at]) for at in range(3))
    return as_it_is > APART and turned < ALIKE + 0.5 * by_chance(len(mine), len(theirs))


def _some_channels(own: Column | None, others: list[Column | None], least: float) -> str:
    """What another unit in some channels of an array is, while the other channels are as they are elsewhere; nothing
    where that is not so."""
    held = [by_channel(column) for column in (own, *others)]
    if any(found is None or found.shape[1] != (held[0].shape[1] if held[0] is not None else 0) for found in held):
        return ""
    mine, *theirs = [found for found in held if found is not None]
    rest = np.concatenate(theirs)
    if len(mine) < FEWEST or len(rest) < FEWEST:
        return ""
    samples = [
        (Sample(mine[:, at, 0], mine[:, at, 1]), Sample(rest[:, at, 0], rest[:, at, 1])) for at in range(mine.shape[1])
    ]
    found = {at: change for at, pair in enumerate(samples) if (change := changed(*pair, least)) is not None}
    same = [at for at, (one, other) in enumerate(samples) if at not in found and _alike(one, other)]
    if not found or not same or len(found) + len(same) < len(samples):
        return ""
    ways = sorted(found.values(), key=lambda way: way.factor)
    way = ways[len(ways) // 2]
    if any(abs(other.factor - way.factor) > ALIKE * abs(way.factor) for other in ways):
        return ""
    return f"{way.says} (in channel{'s' * (len(found) > 1)} {', '.join(map(str, found))} of {len(samples)})"


def _alike(one: Sample, other: Sample) -> bool:
    assert one.spread is not None
    assert other.spread is not None
    limit = ALIKE + 0.5 * by_chance(len(one.values), len(other.values))
    return max(distance(one.values, other.values), distance(one.spread, other.spread)) < limit


def by_channel(column: Column | None) -> Array | None:
    """Rows × channels × (mean, deviation), where one axis of each example is clearly that of a few channels."""
    if column is None or column.kind != "array" or column.values.ndim not in (3, 4):
        return None
    shape = column.values.shape
    axes = [axis for axis in (1, column.values.ndim - 1) if 2 <= shape[axis] <= CHANNELS]
    if len(axes) != 1:
        return None
    rest = tuple({*range(1, column.values.ndim)} - {axes[0]})
    with np.errstate(all="ignore"):
        return np.stack([column.values.mean(rest, dtype=np.float64), column.values.std(rest, dtype=np.float64)], 2)


def channels(column: Column | None) -> Array | None:
    """The mean of each of three channels, by row; None for anything but images in colour."""
    if column is None or column.kind != "array" or column.values.ndim != 4:
        return None
    axes = [axis for axis in (1, 3) if column.values.shape[axis] == 3]
    return column.values.mean(tuple({1, 2, 3} - {axes[0]})) if len(axes) == 1 else None


def joined(samples: list[Sample]) -> Sample:
    values = np.concatenate([held.values for held in samples])
    spreads = [held.spread for held in samples if held.spread is not None]
    return Sample(values, np.concatenate(spreads) if len(spreads) == len(samples) else None)


def _stretch(family: Family, part: Part, name: str, held: Sample) -> Iterator[Found]:
    if part.rows < 4 * FEWEST or len(np.unique(held.values[:MOST])) < 4:
        return
    for values, spreads in ((held.values, False), (held.spread, True)):
        for stretch in _stretches(part, values) if values is not None else ():
            chosen = stretch.within(part.rows)
            change = changed(held.some(chosen), held.some(~chosen), LEAST_FACTOR)
            if change is None or not abrupt(values, stretch, change.of_spread if spreads else change):
                continue
            if change.factor == -1.0 and _mirrored(held.values):
                continue
            if not _others_change(part, name, chosen) and not _block_ends(part, name, stretch):
                yield _found(family, part, name, (stretch.first, stretch.last), change.says)
                return


def _mirrored(values: Array) -> bool:
    """Whether the second half is the first one backwards with the other sign, as a field over a symmetric range is."""
    centred = values - values.mean()
    size = float((centred**2).sum())
    return size > 0 and float(-(centred * centred[::-1]).sum()) > ODD * size


def _stretches(part: Part, values: Array) -> Iterator[Stretch]:
    """Where the values are highest and where they are lowest; of two sides that fill the file the shorter one."""
    fewest = max(FEWEST, part.rows // 20)
    for rise in (ranks(values), -ranks(values)):
        stretch = highest(rise, fewest)
        if stretch is None or stretch.z < 8:
            continue
        other = np.flatnonzero(~stretch.within(part.rows))
        if fewest <= len(other) < part.rows / 2 and other[-1] - other[0] + 1 == len(other):
            stretch = stretch._replace(first=int(other[0]), last=int(other[-1]))
        yield stretch


def abrupt(values: Array, stretch: Stretch, change: Change) -> bool:
    """Whether the values leap at the edges of the stretch, and go on as before once the change is undone."""
    for edge, inside_after in ((stretch.first, True), (stretch.last + 1, False)):
        if not NEAR <= edge <= len(values) - NEAR:
            continue
        before, after = thinned(values[edge - NEAR : edge]), thinned(values[edge : edge + NEAR])
        inside, outside = (after, before) if inside_after else (before, after)
        if min(len(inside), len(outside)) < NEAR / 2 or distance(inside, outside) < APART:
            return False
        there, here = float(np.median(inside)), float(np.median(outside))
        if abs(there - here * change.factor - change.offset) > 0.5 * abs(there - here):
            return False
    return True


def _block_ends(part: Part, name: str, stretch: Stretch) -> bool:
    """Whether the rows come in blocks, by firm, year or subject, and the stretch begins and ends with one of them."""
    for column in part.columns:
        if column.name == name or column.kind not in ("number", "category", "key", "time") or is_split(column):
            continue
        new = np.flatnonzero(column.values[1:] != column.values[:-1]) + 1
        edges = [edge for edge in (stretch.first, stretch.last + 1) if 0 < edge < part.rows]
        if 0 < len(new) < part.rows / 8 and all(bool((np.abs(new - edge) <= 1).any()) for edge in edges):
            return True
        if column.values.dtype != object and edges and all(_restarts(column.values, edge) for edge in edges):
            return True
    return False


def _restarts(values: Array, edge: int) -> bool:
    """Whether a column that counts up, such as a year, begins anew there."""
    rises = np.diff(values)
    near = rises[max(0, edge - 3) : edge + 2]
    return float((rises >= 0).mean()) > 0.9 and bool((near < 0).any())


def thinned(values: Array) -> Array:
    held = values[np.isfinite(values)]
    return held[:: max(1, len(held) // MOST)]


def changed(own: Sample, rest: Sample, least: float) -> Change | None:
    """How the values differ from the rest; None when they are alike or no unit explains it."""
    one, other = thinned(own.values), thinned(rest.values)
    if len(one) < FEWEST or len(other) < FEWEST or len(np.unique(other)) < 4:
        return None
    apart = distance(one, other)
    if own.spread is not None and rest.spread is not None:
        apart = max(apart, distance(thinned(own.spread), thinned(rest.spread)))
    if apart < APART:
        return None
    if all(_whole(values) and _sorted(values) for values in (one, other)):
        return None  # numbers of rows, users or days: how far a file comes with them is a matter of its length
    if _codes(own.values) and _codes(rest.values):
        return None  # other sets of classes
    best, found = ALIKE + 0.5 * by_chance(len(one), len(other)), None
    for way in _ways(own, rest, least):
        left = distance(one, other * way.factor + way.offset)
        if own.spread is not None and rest.spread is not None:
            left = max(left, distance(thinned(own.spread), thinned(rest.spread) * abs(way.factor)))
        # A unit that people use is the likelier explanation, also where some other factor fits a little better.
        left += 0.04 * way.says.startswith("about")
        if left < best and left < 0.3 * apart:
            best, found = left, way
    return found


def _codes(values: Array) -> bool:
    """Every whole number from nought up, each several times: names of classes."""
    seen = np.unique(values)
    return bool(len(values) >= 3 * len(seen) and (seen == np.arange(len(seen))).all())


def _whole(values: Array) -> bool:
    return bool((values == np.round(values)).all())


def _sorted(values: Array) -> bool:
    return float((np.diff(values) >= 0).mean()) > 0.99


def _ways(own: Sample, rest: Sample, least: float) -> Iterator[Change]:
    one, other = thinned(own.values), thinned(rest.values)
    if own.spread is not None and rest.spread is not None:
        yield from (Change(*way) for way in PIXELS)
        size = float(np.sqrt((thinned(rest.spread) ** 2).mean() + other.var()))
        mine = float(np.sqrt((thinned(own.spread) ** 2).mean() + one.var()))
        least = min(least, 2.0)
    else:
        size, mine = float(other.std()), float(one.std())
        for factor, offset, says in DEGREES:
            celsius = one if says.startswith("degrees Celsius") else other
            if float(np.abs(celsius).max()) < WEATHER and len(np.unique(celsius)) > 20:
                yield Change(factor, offset, says)
    for factor in FACTORS:
        if factor >= least:
            yield Change(factor, 0.0, f"{factor:g} times as large")
            yield Change(1 / factor, 0.0, f"{factor:g} times as small")
    middle = float(np.median(np.abs(other)))
    ratio = float(np.median(np.abs(one))) / middle if middle else 0.0
    if ratio >= 2 * least:
        yield Change(ratio, 0.0, f"about {ratio:.3g} times as large")
    elif 0 < ratio <= 0.5 / least:
        yield Change(ratio, 0.0, f"about {1 / ratio:.3g} times as small")
    if abs(float(one.mean())) < 0.1 and abs(mine - 1) < 0.1 and size > 0:
        yield Change(1 / size, -float(other.mean()) / size, "standardised")


def _all_change(family: Family, name: str, index: int, others: list[int]) -> bool:
    """Whether other columns lie apart too between these parts: then the rows are of another kind."""
    apart = count = 0
    for column in family.parts[index].columns:
        own = sample(column) if column.name != name else None
        rest = [held for at in others if (held := sample(family.parts[at].column(column.name))) is not None]
        if own is not None and rest and _varied(own.values):
            count += 1
            apart += _apart(own.values, joined(rest).values)
    return count > 0 and apart > max(0.34 * count, 0)


def _others_change(part: Part, name: str, chosen: Array) -> bool:
    apart = count = 0
    for column in part.columns:
        own = sample(column) if column.name != name else None
        if own is not None and _varied(own.values):
            count += 1
            apart += _apart(own.values[chosen], own.values[~chosen])
        elif column.name != name and _few(column) and _other_names(column.values[chosen], column.values[~chosen]):
            return True
    return count > 0 and apart > 0.34 * count


def _few(column: Column) -> bool:
    """Whether a column names kinds of rows; which are held out is no kind."""
    few = column.kind == "number" and len(np.unique(column.values[:MOST])) <= 3
    return few or (column.kind == "category" and not is_split(column))


def _other_names(one: Array, other: Array) -> bool:
    """Whether most names of one side do not occur on the other, so that it is rows of another kind."""
    shares = [Counter(str(name) for name in side) for side in (one, other)]
    common = sum(min(shares[0][name] / len(one), shares[1][name] / len(other)) for name in shares[0])
    return common < 0.3


def _varied(values: Array) -> bool:
    """Whether a column can show a change of rows; one that only counts them up cannot."""
    held = ranks(values)
    if len(np.unique(values[:MOST])) <= 3 or held.std() == 0:
        return False
    return abs(float(np.corrcoef(held, np.arange(len(held)))[0, 1])) < 0.95


def _apart(one: Array, other: Array) -> bool:
    one, other = thinned(one), thinned(other)
    return len(one) >= 5 and len(other) >= 5 and distance(one, other) > 0.45


def _found(family: Family, part: Part, name: str, rows: tuple[int, int] | None, change: str) -> Found:
    column = part.column(name)
    assert column is not None
    what = "the target" if name == family.target and family.sure else column.title
    split = split_of(part) if rows is not None else None
    if part.role == HELD or (
        rows is not None and split is not None and float(split[rows[0] : rows[1] + 1].mean()) > 0.9
    ):
        outcome = "other_in_validation"
    else:
        outcome = "other_in_target" if name == family.target and family.sure else "other_in_part"
    if rows is None:
        says = f"{sentence(what)} of {column.file} is {_is(change)}, compared with the other files."
        return Found(Saw(outcome, change=change).at(place(part, column)).saying(says), 3)
    says = f"In {spoken(part, column, *rows)} {what} is {_is(change)}, compared with the other rows."
    return Found(Saw(outcome, change=change, rows=rows[1] - rows[0] + 1).at(place(part, column, *rows)).saying(says), 3)


def _is(change: str) -> str:
    return change if change.endswith(("large", "small", "standardised")) else f"in another unit ({change})"


def words(family: Family) -> Iterator[Found]:
    """Text of a file held out whose words, or tokens, training never saw."""
    training, held = family.training, family.named(HELD)
    for name in [column.name for column in family.parts[0].columns if column.kind in ("text", "stream", "category")]:
        for part in held:
            column = part.column(name)
            known = [found for other in training if (found := other.column(name)) is not None]
            if column is None or not known:
                continue
            if column.kind == "stream":
                yield from _tokens(part, column, known[0])
            elif column.kind == known[0].kind or "text" in (column.kind, known[0].kind):
                yield from _vocabulary(part, column, known)


def _vocabulary(part: Part, column: Column, known: list[Column]) -> Iterator[Found]:
    seen = [word for held in known for text in held.values for word in str(text).split()]
    half = set(seen[: len(seen) // 2])
    usual = sum(word not in half for word in seen[len(seen) // 2 :]) / max(1, len(seen) - len(seen) // 2)
    vocabulary, mine = set(seen), [word for text in column.values for word in str(text).split()]
    if len(mine) < 100 or usual > 0.3:
        return
    unknown = sum(word not in vocabulary for word in mine) / len(mine)
    if unknown < 0.25 + 2 * usual:
        return
    folded = {word.lower() for word in vocabulary}
    case = sum(word.lower() not in folded for word in mine) / len(mine) < 0.3 * unknown
    says = f"{100 * unknown:.0f} % of the words in {column.title} of {column.file} do not occur in training"
    says += "; they do in lower case." if case else "."
    answer = Saw("other_in_validation", unknown_words=unknown, change="capitals" if case else "other words")
    yield Found(answer.at(place(part, column)).saying(says), 3)


def _tokens(part: Part, column: Column, known: Column) -> Iterator[Found]:
    size = int(max(column.values.max(), known.values.max())) + 1
    shares = [np.bincount(held.values, minlength=size) / len(held.values) for held in (column, known)]
    apart = 0.5 * float(np.abs(shares[0] - shares[1]).sum())
    if apart > 0.5:
        says = f"Tokens are distributed differently in {column.file} and {known.file} (total variation {apart:.2f})."
        yield Found(Saw("other_in_validation", apart=apart).at(place(part, column)).saying(says), 3)
