"""Lists that say which examples are for training and which are held out: names or numbers, in a file of their own.

They stand under keys such as train and val of one JSON file or npz archive. Only what looks like names of examples
counts: whole numbers or words that stand once each.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from clew.data.model import HELD
from clew.data.parts import HELD_WORDS, TRAIN_WORDS, role_of, words
from clew.data.read import array_head, array_rows, npz_members
from clew.reading import opened, whole

FEWEST = 20
MOST_BYTES = 1 << 25
DEPTH = 2
OTHERS = frozenset(
    "class classes label labels vocab vocabulary word words token tokens tag tags categories category columns features "
    "feature fields epoch epochs step steps iteration iterations loss losses score scores size sizes shape "
    "shapes".split()
)
"""What a list is of that both sides share by nature, or that counts something."""


class Pair(NamedTuple):
    """Entries that stand on both sides, of those held out."""

    trained: str
    held: str
    shared: int
    of: int
    first: str


def pairs(path: str) -> Iterator[Pair]:
    """Lists of one file that belong together and have entries in common, some and not all."""
    lists = _read(path)
    for group in lists:
        held = {key: set(map(str, value)) for key, value in group.items()}
        for key, entries in held.items():
            for other, known in held.items():
                same = role_of(key) == HELD and role_of(other) not in (HELD, "") and _rest(key) == _rest(other)
                shared = entries & known if same else set()
                if shared and entries != known:
                    first = next(str(value) for value in group[key] if str(value) in shared)
                    yield Pair(other, key, len(shared), len(entries), first)


def _read(path: str) -> Iterator[dict[str, Sequence[Any]]]:
    ending = os.path.splitext(path)[1].lower()
    if ending == ".json":
        yield from _groups(json.loads(whole(path, MOST_BYTES)), DEPTH)
    elif ending == ".npz":
        with opened(path) as file, npz_members(file) as parts:
            heads = {name: (part, array_head(part)) for name, part in parts.items() if role_of(name)}
            flat = {name: held for name, held in heads.items() if len(held[1].shape) == 1}
            lists = {name: array_rows(part, head, head.shape[0]).tolist() for name, (part, head) in flat.items()}
            yield from _groups(lists, 1)


def _groups(value: Any, depth: int) -> Iterator[dict[str, Sequence[Any]]]:
    """Lists of names side by side, also inside of folds and settings."""
    if not depth or not isinstance(value, dict):
        return
    found = {str(key): held for key, held in value.items() if role_of(str(key)) and _names(str(key), held)}
    if len(found) > 1:
        yield found
    for held in value.values():
        yield from _groups(held, depth - 1)


def _names(key: str, held: Any) -> bool:
    if not isinstance(held, list) or len(held) < FEWEST or OTHERS & set(words(key)):
        return False
    if not all(isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)) for value in held):
        return False
    return len(set(map(str, held))) == len(held)


def _rest(key: str) -> tuple[str, ...]:
    """What is left of a name without its role; the number of a fold is left."""
    return tuple(word for word in re.split(r"[^a-z0-9]+", key.lower()) if word not in TRAIN_WORDS | HELD_WORDS)
