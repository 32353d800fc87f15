"""Which text files are read line by line beside each other, as their names tell: inputs here, labels there.

Imported where a run is reported, so nothing heavy stands here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

LANGUAGES = frozenset("en de fr es it nl ru uk pl cs ro fi et lv lt hu tr ar he hi zh ja ko vi".split())
INPUTS = frozenset(
    "txt text texts src source sources sentence sentences sents in input inputs x feature features data prompt prompts "
    "question questions utterances docs documents reviews".split()
)
LABELS = frozenset(
    "label labels lab labs lbl y target targets tgt trg tag tags out output outputs gold answer answers truth class "
    "classes intent intents summary summaries".split()
)
LISTS = frozenset(
    "vocab vocabulary dict dictionary lexicon merges bpe codes names stopwords meta readme license log".split()
)
"""Words in the name of a file whose lines belong to no lines of another."""
TOLD = (LABELS | LANGUAGES | frozenset("text src source tok sents sentences in input".split())) - {"class", "y"}
ENDINGS = frozenset(f".{word}" for word in TOLD)
"""Of files that hold nothing but lines, beside `.txt`."""


class Pair(NamedTuple):
    """Two files whose lines belong together; `kind` is what they share with other pairs: folder and the words that
    tell the two apart. `plain`: the names say what is input and what is label."""

    inputs: tuple[str, str]
    labels: tuple[str, str]
    kind: tuple[str, str, str]
    plain: bool


def holds_lines(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in ENDINGS | {".txt"}


def pairs(files: Iterable[tuple[str, str]]) -> Iterator[Pair]:
    """The pairs among these files, given as path and shown name."""
    held = [item for item in files if holds_lines(item[0])]
    parted = [(os.path.dirname(path), tokens(path)) for path, _ in held]
    for one, (folder, first) in zip(held, parted, strict=True):
        for other, (beside, second) in zip(held, parted, strict=True):
            told = _told(first, second) if folder == beside and one is not other else None
            if told is not None:
                yield Pair(one, other, (folder, *told), told[1] in LABELS)


def tokens(path: str) -> tuple[str, ...]:
    name = re.sub(r"([a-z])([A-Z])", r"\1_\2", os.path.basename(path))
    return tuple(word for word in re.split(r"[^a-z0-9]+", name.lower()) if word)


def _told(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, str] | None:
    """The words by which the inputs and their labels, in this order, are told apart."""
    if LISTS & {*first, *second}:
        return None
    if len(second) == len(first) + 1:  # train.txt and train_labels.txt
        added = [at for at in range(len(second)) if second[at] in LABELS and second[:at] + second[at + 1 :] == first]
        return ("", second[added[0]]) if added else None
    apart = [(one, other) for one, other in zip(first, second, strict=False) if one != other]
    if len(first) != len(second) or len(apart) != 1:
        return None
    one, other = apart[0]
    if other in LABELS and one in INPUTS:
        return one, other
    return (one, other) if {one, other} <= LANGUAGES and one < other else None
