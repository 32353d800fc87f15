"""Does one column give the target away, or hold what another column will be later?

Each column alone, and the last and first word of each text, is asked to tell the target of rows not yet seen. One that
tells it all but perfectly, while all others together do not, was filled in after the fact. A column whose name speaks
of what follows from an outcome, such as fees, refunds or repairs, is asked for less: that it puts two classes in order
far better than all others together. A column that equals another one some rows further down holds the future.

Why it matters: the score is splendid in training and validation alike, and nothing of it is left in use.
Cannot tell: whether the program really uses that column as an input, unless its source names it; a group that is fed
to the model as if it were a measurement.
Silent when: other columns tell the target as well, when there is only one, when the column is the target itself, when
it names the specimen, patient or speaker of which several rows were taken, and when the others tell what it leaves of a
number: a cause that was measured is refined by other causes, a copy with noise on it is not.
Sources: leakage-looks-too-good
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from clew.data.fit import fit, inputs, target, value_name, whole
from clew.data.model import Array, Column, Family, Found, Look, counted, place, sentence
from clew.data.parts import LABEL_WORDS, words
from clew.data.read import objects
from clew.data.segments import ranks
from clew.records.clue import Saw, Unclear

ALL_BUT_SURE = 0.97
MOST_SHIFT = 30
GROUPS, PER_CLASS = 20, 2
"""Values from which on a name stands for a group of rows, and how many of them there are for each class at least."""
GROUP_WORDS = frozenset("id ids group subject patient specimen sample session speaker participant user site".split())
NEAR, REFINED = 6, 0.3
"""Neighbours on either side in the order of a column, and how well the others tell what these leave."""
FUTURE = frozenset(("next", "future", "tomorrow", "later", "ahead", "forecast"))
AFTER = frozenset(
    "recovery recoveries recovered collection collections settlement settled refund refunds refunded penalty penalties "
    "fee fees chargeback writeoff arrears overdue cancellation cancelled canceled termination terminated closed "
    "closure discharge discharged readmission readmitted repaired replaced resolution resolved compensation".split()
)
"""Words in the names of things that come about once it is known how something ended."""
STRONG, BEYOND, ROWS = 0.92, 0.6, 200
"""How well such a column alone puts the rows of two classes in order, and how much of what all others leave it may
leave."""
BACK = frozenset(("lag", "lagged", "prev", "previous", "last", "past", "yesterday"))


def look(held: Look) -> Iterator[Found]:
    some = False
    for family in held.families:
        if family.target and family.sure:
            some = True
            yield from _told(family)
        for part in family.parts:
            yield from _future(family._replace(parts=(part,)))
    if some:
        yield Found(Saw("hidden").saying("No single column gives the target away."), 0.5)
    else:
        yield Found(Unclear("it is not clear which column is the target"), 0)


def _told(family: Family) -> Iterator[Found]:
    columns = whole(family)
    aim = next((column for column in columns if column.name == family.target), None)
    if aim is None or aim.kind in ("array", "text") or family.rows < 60:
        return
    used = [column for column in columns if column.name not in (aim.name, *family.unused)]
    used = [column for column in used if not _names(column, aim) and not grouping(column, aim)]
    able = [held for column in used for held in _sides(column)]
    scores = {held.name: alone(held, aim) for held in able}
    if not scores:
        return
    name = max(scores, key=lambda key: scores[key])
    if scores[name] < ALL_BUT_SURE:
        yield from _afterwards(family, used, columns, aim)
        return
    source = name.partition(": ")[0]
    others = [column for column in columns if column.name not in (aim.name, source)]
    rest = _rest(others, aim, family.rows, [part.rows for part in family.parts])
    if name == source and (rest is None or 1 - scores[name] > 0.15 * (1 - rest)):
        return
    own = next(column for column in columns if column.name == source)
    if many(aim) and own.kind == "number" and refined(own, others, aim, [part.rows for part in family.parts]) > REFINED:
        return
    part = family.training[0] if family.training else family.parts[0]
    column = part.column(source)
    assert column is not None
    what = column.title if name == source else f"the {name.partition(': ')[2]} of {column.title}"
    says = f"{sentence(what)} of {column.file} alone predicts {family.target} with score {scores[name]:.3f} of 1"
    says += f"; all other columns together reach {rest:.2f}." if rest is not None else "."
    where = [place(each, each.column(source) or column) for each in family.parts]
    outcome = "told" if source in family.used or column.kind == "text" else "may_tell"
    yield Found(Saw(outcome, told=scores[name], rest=rest if rest is not None else 0.0).at(*where).saying(says), 3)


def _afterwards(family: Family, used: list[Column], columns: tuple[Column, ...], aim: Column) -> Iterator[Found]:
    """A number whose name says that it comes about with the outcome, and that tells it better than all others do."""
    labels = codes(aim)
    if int(labels.max()) != 1 or family.rows < ROWS:
        return
    for column in used:
        if column.kind != "number" or not AFTER & set(words(column.name)) or not np.isfinite(column.values).all():
            continue
        own = ordered(np.asarray(column.values, float), labels)
        own = max(own, 1 - own)
        others = [held for held in columns if held.name not in (aim.name, column.name, *family.unused)]
        x = (
            inputs([held for held in others if held.kind not in ("key", "stream")], family.rows)
            if own > STRONG
            else None
        )
        y = target(aim, family.rows)
        if x is None or y is None:
            continue
        said = fit(x, y, [part.rows for part in family.parts]).predicted
        rest = ordered(said @ (y[labels == 1].mean(0) - y[labels == 0].mean(0)), labels)
        if 1 - own > BEYOND * (1 - rest):
            continue
        says = (
            f"{sentence(column.title)} of {column.file}, which by its name is known only after the outcome, "
            f"alone ranks the rows of {aim.name} with score {own:.2f} of 1; all other columns together reach "
            f"{rest:.2f}."
        )
        where = [place(part, part.column(column.name) or column) for part in family.parts]
        yield Found(Saw("afterwards", told=own, rest=rest).at(*where).saying(says), 2)
        return


def ordered(values: Array, labels: Array) -> float:
    """The share of pairs of rows of two classes of which the second class has the larger value; ties count half."""
    _, place_of, count = np.unique(values, return_inverse=True, return_counts=True)
    middle = (np.cumsum(count) - (count - 1) / 2)[place_of.reshape(-1)]
    ones = int((labels == 1).sum())
    pairs = ones * (len(labels) - ones)
    return float((middle[labels == 1].sum() - ones * (ones + 1) / 2) / pairs) if pairs else 0.5


def _names(column: Column, aim: Column) -> bool:
    """Whether a column holds the words for which the target in another file, such as a cache, holds the numbers."""
    if column.file == aim.file or column.kind != "category" or column.values.dtype != object:
        return False
    keys, labels = codes(column), codes(aim)
    pairs = len(np.unique(np.stack([keys, labels]), axis=1).T)
    return pairs == int(keys.max()) + 1 == int(labels.max()) + 1


def grouping(column: Column, aim: Column) -> bool:
    """Whether a column names what several rows were taken of: many names, each in several rows of one class. Rows of
    one specimen are kept together by it, and it is no measurement. Numbers count only where they are called so: days
    overdue have as many values, and give the answer away."""
    named = column.kind == "category" and column.values.dtype == object
    if many(aim) or not (named or (column.kind == "number" and GROUP_WORDS & set(words(column.name)))):
        return False
    keys, labels = codes(column), codes(aim)
    groups = int(keys.max()) + 1
    if groups < max(GROUPS, PER_CLASS * (int(labels.max()) + 1)) or groups > len(keys) / 2:
        return False
    pairs = len(np.unique(np.stack([keys, labels]), axis=1).T)
    return pairs == groups


def many(aim: Column) -> bool:
    """Whether the target is a number and not a class."""
    return aim.kind == "number" and len(np.unique(aim.values)) > 12


def refined(column: Column, others: list[Column], aim: Column, lengths: list[int]) -> float:
    """How well the other columns tell what one column leaves of a number, from 0 to 1. What it leaves is the distance
    from the mean of the rows that are nearest in that column."""
    able = [held for held in others if held.kind not in ("key", "stream")]
    x = inputs(able, len(aim.values))
    finite = np.isfinite(column.values) & np.isfinite(aim.values)
    if x is None or not finite.all() or len(finite) < 20 * NEAR:
        return 0.0
    order = np.argsort(column.values, kind="stable")
    values = np.asarray(aim.values, float)[order]
    sums = np.concatenate([[0.0], np.cumsum(values)])
    at = np.arange(len(values))
    first, last = np.maximum(at - NEAR, 0), np.minimum(at + NEAR + 1, len(values))
    left = np.empty_like(values)
    left[order] = values - (sums[last] - sums[first] - values) / (last - first - 1)
    spread = float(left.std())
    return fit(x, ((left - left.mean()) / spread)[:, None], lengths).told[0] if spread > 0 else 0.0


def _sides(column: Column) -> list[Column]:
    """A column as it is, or the first and the last word of a text."""
    if column.kind in ("number", "category", "list"):
        return [column]
    if column.kind != "text":
        return []
    cut = [str(text).split() or [""] for text in column.values]
    if sum(len(held) for held in cut) < 2 * len(cut):
        return []
    sides = (("first word", 0), ("last word", -1))
    return [
        Column(column.file, f"{column.name}: {side}", "category", objects([held[at] for held in cut]))
        for side, at in sides
    ]


def alone(column: Column, aim: Column) -> float:
    """How well one column tells the target, on rows it was not counted on: 0 as by chance, 1 without error."""
    rows = len(column.values)
    keys = _keys(column)
    if not 2 <= int(keys.max()) + 1 <= rows / 4:
        return 0.0
    odd = np.arange(rows) % 2 == 1
    return _variance(keys, aim, odd) if many(aim) else _accuracy(keys, codes(aim), odd)


def codes(column: Column) -> Array:
    """The values of a column as numbers from 0 on, in no particular order."""
    values = column.values
    if values.dtype == object:
        values = np.array([value_name(value) for value in values])
    return np.unique(values, return_inverse=True)[1].reshape(-1)


def _keys(column: Column) -> Array:
    if column.kind == "number" and len(np.unique(column.values)) > 40:
        return np.floor(ranks(column.values) * 39.99).astype(int)
    return codes(column)


def _accuracy(keys: Array, labels: Array, odd: Array) -> float:
    classes = int(labels.max()) + 1
    size = (int(keys.max()) + 1) * classes
    counts = np.bincount(keys[~odd] * classes + labels[~odd], minlength=size).reshape(-1, classes)
    often = int(np.bincount(labels[~odd]).argmax())
    guess = np.where(counts.any(1), counts.argmax(1), often)[keys[odd]]
    return recalled(guess == labels[odd], labels[odd], float((labels[odd] == often).mean()))


def _variance(keys: Array, aim: Column, odd: Array) -> float:
    values = (ranks(aim.values) - 0.5) * 2
    counts = np.bincount(keys[~odd], minlength=int(keys.max()) + 1)
    sums = np.bincount(keys[~odd], values[~odd], minlength=len(counts))
    guess = (sums / np.maximum(counts, 1))[keys[odd]]
    return 1 - float(((guess - values[odd]) ** 2).mean()) / max(1e-12, float(values[odd].var()))


def recalled(right: Array, labels: Array, base: float) -> float:
    """The share that is right beyond the commonest class, or the mean over the classes where that is less."""
    counts = Counter(labels.tolist())
    recalls = [float(right[labels == label].mean()) for label, count in counts.items() if count >= 5]
    whole = (float(right.mean()) - base) / (1 - base) if base < 1 else 0.0
    return min(whole, float(np.mean(recalls))) if recalls else 0.0


def _rest(others: list[Column], aim: Column, rows: int, lengths: list[int]) -> float | None:
    able = [column for column in others if column.kind not in ("key", "stream")]
    x, y = inputs(able, rows), target(aim, rows)
    if x is None or y is None:
        return None
    fitted = fit(x, y, lengths)
    classes = np.unique(y, axis=0)
    if len(classes) > 40:
        return max(0.0, fitted.told[0]) ** 2
    near = ((fitted.predicted[:, None, :] - classes[None]) ** 2).sum(2).argmin(1)
    labels = ((y[:, None, :] - classes[None]) ** 2).sum(2).argmin(1)
    return max(0.0, recalled(near == labels, labels, Counter(labels.tolist()).most_common(1)[0][1] / len(labels)))


def _future(family: Family) -> Iterator[Found]:
    part = family.parts[0]
    numbers = [
        column
        for column in part.columns
        if column.kind == "number" and "[:" not in column.name and len(np.unique(column.values)) > 40
    ]
    if len(numbers) < 2 or part.rows < 2 * MOST_SHIFT:
        return
    for first, second, by in later(np.array([column.values for column in numbers]).T):
        column, other = numbers[first], numbers[second]
        if _ahead(family, column, other):
            says = f"{sentence(column.title)} of {column.file} is {other.name} of {counted(by)} later."
            yield Found(Saw("future", shift=by).at(place(part, column)).saying(says), 4)
            return


def _ahead(family: Family, column: Column, other: Column) -> bool:
    """Whether it is the first that looks ahead, and not the second that looks back, as columns of earlier values do."""
    mine, theirs = set(words(column.name)), set(words(other.name))
    if mine & (FUTURE | LABEL_WORDS) or theirs & BACK or column.name in family.unused:
        return False
    return other.name == family.target if family.sure else not mine & theirs


def later(table: Array) -> Iterator[tuple[int, int, int]]:
    """Pairs of columns of which the first is the second some rows later, up to rounding, a factor and an offset."""
    rises = np.diff(table, axis=0)
    able = np.isfinite(rises).all(0)
    rises = np.where(able, rises, 0.0)
    now = _correlations(rises, 0)
    for by in range(1, MOST_SHIFT):
        held = _correlations(rises, by)
        for first, second in zip(*np.nonzero(held > 0.995), strict=True):
            if first != second and abs(now[first, second]) < 0.9:
                yield int(first), int(second), by


def _correlations(rises: Array, by: int) -> Array:
    one, two = rises[: len(rises) - by], rises[by:]
    one, two = one - one.mean(0), two - two.mean(0)
    size = np.sqrt((one**2).sum(0))[:, None] * np.sqrt((two**2).sum(0))[None, :]
    return np.where(size > 0, one.T @ two / np.where(size > 0, size, 1), 0.0)
