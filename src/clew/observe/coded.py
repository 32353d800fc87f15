"""Tables whose words were turned into numbers, with the number of each word: by pandas' categories and factorize, by
scikit-learn's encoders.

The numbers are counted from the words at hand, so that two parts of one table that are numbered by themselves may have
another number for the same word. Only calls that the user's own code makes are noted: pandas numbers things all the
time for itself.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from clew.observe.guard import Unwarned, release
from clew.observe.ledger import LEDGER
from clew.observe.patches import hide, unframe
from clew.observe.places import is_users, users_place
from clew.records.place import Place

MOST, ROWS, WORDS = 128, 10_000, 5_000
"""Calls that are kept, rows of each whose labels are kept, and different words of a column."""
FEWEST = 20
SEVERAL = 4
"""Sets that one training run has. More of them are groups, each with numbers of its own."""
KNOWN, MOVED = 0.5, 0.1
"""Of the rows of the smaller set: words that the other one has too, and words with another number there."""
SAME = 0.9
"""Of the rows that both sets have by their labels: as many equal words make it one table."""
MARK = "_clew"
_process = os.getpid()


class Coded(NamedTuple):
    """One column that was numbered: the number and the count of each word, and which row holds which."""

    column: str  # its name, or else the line that numbers it
    numbers: dict[str, int]
    counts: dict[str, int]
    labels: Any  # of the rows
    words: Any  # beside them
    place: Place | None

    @property
    def rows(self) -> int:
        return sum(self.counts.values())


class Apart(NamedTuple):
    one: Coded
    other: Coded
    moved: float
    example: str


def install(pandas: Any) -> None:
    from pandas.core.arrays.categorical import CategoricalAccessor

    _around(pandas.Categorical, "__init__", _categorical)
    _around(pandas, "factorize", _factorized)
    _around(pandas.Series, "factorize", _factorized)
    held = CategoricalAccessor.__dict__.get("codes")
    if isinstance(held, property) and not hasattr(held.fget, MARK):
        CategoricalAccessor.codes = property(_wrapped(held.fget, _accessor), doc=held.__doc__)


def _around(owner: Any, name: str, note: Callable[..., None]) -> None:
    original = getattr(owner, name, None)
    if callable(original) and not hasattr(original, MARK):
        setattr(owner, name, _wrapped(original, note))


def _wrapped(original: Any, note: Callable[..., None]) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            unframe(error)
            raise
        if os.getpid() == _process and is_users(sys._getframe(1).f_code.co_filename):
            try:
                with Unwarned():
                    note(result, args, kwargs)
            except BaseException as error:  # noqa: BLE001  # the script comes first
                release(error)
                LEDGER.failed(error)
        return result

    setattr(wrapper, MARK, True)
    return hide(functools.wraps(original)(wrapper))


# --- what is noted


def _categorical(result: None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """pd.Categorical(values): given categories are the same for all."""
    del result
    made, values = args[0], args[1] if len(args) > 1 else kwargs.get("values")
    given = args[2] if len(args) > 2 else kwargs.get("categories")
    if given is None and kwargs.get("dtype") is None:
        _add(values, made.codes, made.categories)


def _accessor(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """series.cat.codes"""
    del kwargs
    _add(result, result.to_numpy(), args[0].categories)


def _factorized(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """pd.factorize(values), series.factorize()"""
    values = args[0] if args else kwargs.get("values")
    _add(values, result[0], result[1])


def encoder(estimator: Any, table: Any) -> None:
    """What a fitted encoder of scikit-learn counted from the table."""
    name = type(estimator).__name__
    if name == "LabelEncoder":
        held = np.asarray(table).reshape(-1)
        _add(table, np.searchsorted(estimator.classes_, held), estimator.classes_)
    elif name == "OrdinalEncoder" and hasattr(table, "columns"):
        for column, known in zip(table.columns, estimator.categories_, strict=True):
            if len(known) <= WORDS:
                order = {word: at for at, word in enumerate(known)}
                _add(table[column], np.array([order.get(word, -1) for word in table[column]]), known)


def _add(values: Any, numbers: Any, words: Any) -> None:
    if len(LEDGER.coded) >= MOST or len(numbers) < FEWEST or not 2 <= len(words) <= WORDS:
        return
    place = users_place()
    name = getattr(values, "name", None)
    column = str(name) if name is not None else f"{place.file}:{place.line}" if place is not None else ""
    numbers = np.asarray(numbers)
    known = [str(word) for word in words]
    counts = np.bincount(numbers[numbers >= 0], minlength=len(known))
    numbered = {word: at for at, word in enumerate(known) if counts[at]}
    counted = {word: int(counts[at]) for word, at in numbered.items()}
    text = np.array([*known, ""], dtype=object)[numbers[:ROWS]]
    LEDGER.coded.append(Coded(column, numbered, counted, _labels(values, len(text)), text, place))


def _labels(values: Any, rows: int) -> Any:
    index = getattr(values, "index", None)
    if index is None or callable(index) or not hasattr(index, "to_numpy"):
        return np.arange(rows)
    return np.array([hash(label) for label in index[:rows]])


# --- what is asked


def apart() -> Apart | None:
    """Two parts that have another number for the same word."""
    by_column: dict[str, list[Coded]] = {}
    for held in LEDGER.coded:
        known = by_column.setdefault(held.column, [])
        if not any(_one_table(held, other) for other in known):
            known.append(held)
    found = [
        told
        for sets in by_column.values()
        if 2 <= len(sets) <= SEVERAL
        for at, one in enumerate(sets)
        for other in sets[at + 1 :]
        if (told := _moved(one, other)) is not None
    ]
    return max(found, key=lambda told: told.moved, default=None)


def _one_table(one: Coded, other: Coded) -> bool:
    """Whether rows of one are rows of the other, as where folds are numbered one after another. Where both count their
    rows from zero, most of a table with some of its rows left out has fewer of every word."""
    common, first, second = np.intersect1d(one.labels, other.labels, return_indices=True)
    if not len(common):
        return False
    if float((one.words[first] == other.words[second]).mean()) > SAME:
        return True
    small, large = sorted((one, other), key=lambda held: held.rows)
    within = all(count <= large.counts.get(word, 0) for word, count in small.counts.items())
    return within and small.rows > large.rows / 2


def _moved(one: Coded, other: Coded) -> Apart | None:
    small, large = sorted((one, other), key=lambda held: held.rows)
    common = [word for word in small.numbers if word in large.numbers]
    moved = [word for word in common if small.numbers[word] != large.numbers[word]]
    rows = [sum(small.counts[word] for word in words) for words in (common, moved)]
    if rows[0] < KNOWN * small.rows or rows[1] < MOVED * small.rows:
        return None
    return Apart(one, other, rows[1] / small.rows, max(moved, key=lambda word: small.counts[word]))
