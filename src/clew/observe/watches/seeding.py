"""Is a script that means to be repeatable seeded by the time its weights are drawn, and is nothing in hash order?

A script means to be repeatable when its command names a seed. Then torch's own generator must have been given a number
that a person could have chosen before the optimiser is made. Where it was, lists made of sets of strings without
sorting, whose positions are used as numbers, are looked for: Python orders them differently in every process. In every
script that seeds torch, whatever its command, calls of `hash` are followed: a line that makes numbers of a range out of
many different strings gives them other numbers in every process.

Why it matters: runs that were told to be alike differ, and a change of the code cannot be told from chance. A list in
hash order and a hash of words also give classes or words other numbers in every run, and to a model that was saved.
Cannot tell: what numpy and the random module draw, and data that comes in another order.
Silent when: the command asks for no seed, as with many sound scripts, also those that set one for themselves; hash
seeds are fixed by the environment; a hash only names, compares or prints something.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.places import is_users, shown, users_sources
from clew.observe.watch import Answer, OptimizerEvent, Watch
from clew.observe.watches._data_salted import Salted, salted
from clew.records.clue import Saw, Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator
    from types import FrameType

    from clew.observe.recorder import Recorder

CHOSEN = 2**40
"""Torch begins with a number of 64 bits that the system drew, and torch.seed() draws another: neither is below this."""
FILES = 200
LONGEST = 1 << 20
SEED_LINE = re.compile(r"^[^#\n]*\b(manual_seed|seed_everything|set_seed|torch\.seed)\(", re.MULTILINE)
SEED_WORD = re.compile(r"^-{0,2}[\w.]*seed\b", re.IGNORECASE)
FRAMES, VALUES = 24, 400


class Seeding(Watch):
    test = "seeding"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.before: int | None = None
        self.at_first: int | None = None
        self.asked = ""
        self.lines: list[Place] = []
        self.unordered: tuple[str, Place] | None = None
        self.salted = Salted(recorder)

    def installed(self) -> None:
        self.before = torch.initial_seed()
        self.salted.attach()

    def optimizer_made(self, event: OptimizerEvent) -> None:
        del event
        if self.at_first is not None:
            return
        self.at_first = torch.initial_seed()
        self.asked = next((word for word in sys.argv[1:] if SEED_WORD.match(word)), "")
        for path, source in sources():
            self.lines += [
                Place(shown(path), source.count("\n", 0, held.end()) + 1) for held in SEED_LINE.finditer(source)
            ]
        if self._seeded() and salted():
            frames = users_frames()
            self.unordered = next(
                (
                    (name, Place(shown(path), line))
                    for path, source in sources()
                    for name, line in in_hash_order(source)
                    if holds_strings(frames, name)
                ),
                None,
            )

    def _seeded(self) -> bool:
        return self.at_first is not None and self.at_first < CHOSEN

    def read(self) -> Answer:
        if self.at_first is None or self.before is None:
            return Unclear("no optimiser was created")
        numbering = self.salted.numbering() if self._seeded() else None
        if numbering is not None:
            says = "strings become numbers through hash(), which Python salts anew in every process; all else is seeded"
            return Saw("hash_numbers").saying(says).at(numbering)
        if not self.asked:
            return Unclear("neither the command line nor the environment asks for a seed")
        if not self._seeded():
            how = "was not seeded" if self.at_first == self.before else "was seeded with a random number"
            says = f"torch's generator {how} when the weights were initialised, although the command has {self.asked}"
            return Saw("left_out").saying(says).at(*self.lines[:3])
        if self.unordered is not None:
            name, place = self.unordered
            says = (
                f"{name} is a list made from a set of strings, and its order, different in every process, numbers them"
            )
            return Saw("hash_order").saying(says).at(place)
        return Saw("seeded")


def sources() -> Iterator[tuple[str, str]]:
    """The user's own files that are loaded by now."""
    for path in sorted(users_sources())[:FILES]:
        try:
            with open(path, encoding="utf-8") as file:
                yield path, file.read(LONGEST)
        except (OSError, ValueError):
            continue


def in_hash_order(source: str) -> list[tuple[str, int]]:
    """Names of lists made of a set, in whatever order it has, that the file numbers by position; with their lines."""
    import ast

    if "set(" not in source and "{" not in source:
        return []
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    made: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and _of_a_set(node.value):
            made[_name(node.targets[0])] = node.lineno
    made.pop("", None)
    sorted_later = {
        _name(call.func.value)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "sort"
    }
    return [(name, line) for name, line in made.items() if name not in sorted_later and _numbered(tree, name)]


def _of_a_set(node: ast.expr) -> bool:
    import ast

    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("list", "tuple")):
        return False
    given = node.args[0] if node.args else None
    called = isinstance(given, ast.Call) and isinstance(given.func, ast.Name) and given.func.id in ("set", "frozenset")
    return called or isinstance(given, ast.Set | ast.SetComp)


def _numbered(tree: ast.AST, name: str) -> bool:
    import ast

    for node in ast.walk(tree):
        if isinstance(node, ast.ListComp) and any(_name(part.iter) == name for part in node.generators):
            return True
        if isinstance(node, ast.Call):
            func = node.func
            if isinstance(func, ast.Name) and func.id in ("enumerate", "zip") and name in map(_name, node.args):
                return True
            if isinstance(func, ast.Attribute) and func.attr == "index" and _name(func.value) == name:
                return True
    return False


def _name(node: ast.AST) -> str:
    """The last part of a name: `tags` of `self.tags`."""
    import ast

    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def users_frames() -> list[dict[str, Any]]:
    """The variables of the user's functions that are running, innermost first, and those of their modules."""
    found: list[dict[str, Any]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(found) < FRAMES:
        if is_users(frame.f_code.co_filename):
            found += [frame.f_locals, frame.f_globals]
        frame = frame.f_back
    return found


def holds_strings(frames: list[dict[str, Any]], name: str) -> bool:
    """Whether something of that name, a variable or an attribute of one, is a list of several strings."""
    for held in frames:
        for key, value in list(held.items())[:VALUES]:
            candidate = value if key == name else _attribute(value, name)
            if isinstance(candidate, list | tuple) and len(candidate) > 1 and isinstance(candidate[0], str):
                return True
    return False


def _attribute(value: Any, name: str) -> Any:
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return held.get(name) if isinstance(held, dict) else None
