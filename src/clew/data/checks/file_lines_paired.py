"""Do files that are read line by line beside each other have as many lines?

Texts in one file and their labels in another, or sentences and their translations: line by line they belong together.
A line that is missing in one of them gives every later line the label of a neighbour, and zip() stops at the shorter
file without a word.

Why it matters: nothing fails, and from the missing line on every label is that of another row.
Cannot tell: at which line it begins, which of the two files is the right one, and lines exchanged without loss.
Silent when: names do not pair the files, one of them is a list of names or is joined by a key in each line, or the
counts are so far apart that one file was never meant to have a line for each of the other.
Sources: labels-match-inputs, look-at-the-data
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from clew import reading
from clew.data.beside import Pair, pairs
from clew.data.model import Found, Look, counted
from clew.data.parts import INPUT_WORDS, LABEL_WORDS, words
from clew.records.clue import Saw, Unclear
from clew.records.place import Place

FEWEST = 30
APART = 0.2
"""Share by which the counts may differ; a list of classes or a labelled subset differs by more."""
APART_LANGUAGES = 0.05
MOST_PAIRS = 40


class Lines(NamedTuple):
    """The lines of a file without blank ones at its end. `counts`: as many as a program may take, by how it splits
    the text, skips blank lines and a head line."""

    held: list[str]
    counts: frozenset[int]


def look(held: Look) -> Iterator[Found]:
    read: dict[str, Lines | None] = {}
    kinds: dict[tuple[str, str, str], list[tuple[Pair, Lines, Lines]]] = {}
    for number, pair in enumerate(pairs(held.files)):
        if number >= MOST_PAIRS:
            break
        for path, _ in (pair.inputs, pair.labels):
            if path not in read:
                read[path] = lines_of(path)
        one, other = read[pair.inputs[0]], read[pair.labels[0]]
        if one is not None and other is not None and comparable(one, other):
            kinds.setdefault(pair.kind, []).append((pair, one, other))
    for members in kinds.values():
        yield from _judged(members)
    if not kinds:
        yield Found(Unclear("no two files were read line by line together"), 0)


def lines_of(path: str) -> Lines | None:
    try:
        text = reading.text(path)
    except OSError:
        return None
    if "\0" in text:
        return None
    plain = text.replace("\r\n", "\n").rstrip().split("\n")
    filled = sum(1 for line in plain if line.strip())
    if filled < FEWEST:
        return None
    counts = {len(plain), filled, len(text.rstrip().splitlines())}
    return Lines(plain, frozenset(counts | ({count - 1 for count in counts} if headed(plain) else set())))


def headed(lines: list[str]) -> bool:
    """Whether the first line names what stands below it."""
    first, rest = lines[0].strip(), lines[1:]
    if set(words(first)) and set(words(first)) <= LABEL_WORDS | INPUT_WORDS | {"id", "sentence", "sentences"}:
        return True
    return len(set(rest)) <= len(rest) // 10 and lines[0] not in rest


def comparable(one: Lines, other: Lines) -> bool:
    """Not joined by a key in each line, no list of distinct names, no series of which windows are labelled."""
    if all(_is_number(line) for line in one.held[1:50] if line.strip()):
        return False
    single = [line.strip() for line in other.held if len(line.split()) == 1]
    if len(single) > 0.9 * len(other.held) and len(set(single)) == len(single):
        return False
    return not any(_keyed(lines.held) for lines in (one, other))


def _keyed(lines: list[str]) -> bool:
    """Whether each line begins with something that no other line begins with, and that holds a number."""
    parted = [line.replace(",", " ").replace("|", " ").split(None, 1) for line in lines if line.strip()]
    keys = [cells[0] for cells in parted if len(cells) == 2]
    return (
        len(keys) > 0.9 * len(parted)
        and len(set(keys)) > 0.95 * len(keys)
        and sum(any(sign.isdigit() for sign in key) for key in keys) > 0.9 * len(keys)
    )


def _is_number(line: str) -> bool:
    try:
        float(line)
    except ValueError:
        return False
    return True


def _judged(members: list[tuple[Pair, Lines, Lines]]) -> Iterator[Found]:
    """All pairs of one kind: where most of them differ, it is their way and no slip."""
    even = [pair for pair, one, other in members if one.counts & other.counts]
    uneven = [held for held in members if held[0] not in even]
    if len(uneven) > max(2, len(even)) or (uneven and not even and not uneven[0][0].plain):
        yield Found(Unclear("files with matching names have different numbers of lines"), 0)
        return
    for pair, one, other in uneven:
        more, fewer = max(len(one.held), len(other.held)), min(len(one.held), len(other.held))
        if more - fewer > (APART if pair.plain else APART_LANGUAGES) * more:
            continue
        beside = f", while {even[0].inputs[1]} and {even[0].labels[1]} have equally many" if even else ""
        says = (
            f"{pair.labels[1]} has {len(other.held)} lines and {pair.inputs[1]} has {len(one.held)}{beside}: "
            "read side by side, they are misaligned from the first missing line on "
            f"({counted(more - fewer)})."
        )
        answer = Saw("uneven", labels=len(other.held), inputs=len(one.held))
        yield Found(answer.at(Place(file=pair.labels[1]), Place(file=pair.inputs[1])).saying(says), 3)
    if even:
        says = f"{even[0].labels[1]} has a line for each line of {even[0].inputs[1]}."
        yield Found(Saw("even", pairs=len(even)).saying(says), 1)
