"""Putting a fault into a copy of a program."""

import os

from clew.casebook.spoil import SPOILERS
from clew.casebook.tables import Fault
from clew.errors import ClewError


def mutate(item: Fault, folder: str) -> None:
    """Change the copy in `folder`. What does not fit the program is refused: a fault must never be a silent no-op."""
    if item.spoil:
        if item.spoil not in SPOILERS:
            raise ClewError(f"fault {item.id} names the data change {item.spoil!r}, which is not in spoil.py.")
        SPOILERS[item.spoil](folder, **dict(item.arguments))
    elif item.find:
        path = os.path.join(folder, item.file)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        changed, _ = replaced(item, text)
        with open(path, "w", encoding="utf-8") as file:
            file.write(changed)


def replaced(item: Fault, text: str) -> tuple[str, list[int]]:
    """The text with the fault in it, and the lines where it is: those that were written, or the neighbours of a gap."""
    count = text.count(item.find)
    if count != 1:
        raise ClewError(f"fault {item.id}: its text stands {count} times in {item.file}, not once.")
    at = text.index(item.find)
    before, after = item.find.splitlines(), item.replace.splitlines()
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    tail = 0
    while tail < min(len(before), len(after)) - same and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    first = text.count("\n", 0, at) + 1 + same
    last = max(first, first + len(after) - same - tail - 1)
    return text[:at] + item.replace + text[at + len(item.find) :], list(range(first, last + 1))


def right_lines(item: Fault, folder: str) -> list[tuple[str, int]]:
    """Every place that is right for this fault, as file and line of the changed program; `folder` is the unchanged one.

    A text of `near` stands in the file of the fault, or in another when it begins with that file's name and a colon.
    """
    if not item.find:
        return []
    with open(os.path.join(folder, item.file), encoding="utf-8") as file:
        changed, lines = replaced(item, file.read())
    found = [(item.file, line) for line in lines]
    for near in item.near:
        name, text = split(near, item.file)
        if name == item.file:
            whole = changed
        else:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                whole = file.read()
        hits = [(name, number) for number, line in enumerate(whole.splitlines(), 1) if text in line]
        if not hits:
            raise ClewError(f"fault {item.id}: no line of {name} holds {text!r}.")
        found += hits
    return found


def split(near: str, file: str) -> tuple[str, str]:
    name, mark, text = near.partition(": ")
    return (name, text) if mark and name.endswith((".py", *(".toml", ".yaml", ".json"))) else (file, near)
