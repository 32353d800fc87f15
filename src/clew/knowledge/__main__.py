"""`python -m clew.knowledge`: check the knowledge files and say what is wrong with them."""

import re
import sys
from pathlib import Path

from clew.errors import ClewError
from clew.knowledge.base import FOLDER
from clew.knowledge.model import Knowledge
from clew.knowledge.schema import compile_folder

ROOMS = {
    "observe": ("observe", "data"),
    "exam": ("exams", "app"),
    "lint": ("lint",),
    "log": ("symptoms", "app"),
    "sweep": ("sweep", "app"),
    "probe": ("rl",),
}
"""The folders whose code emits the clues of an instrument."""


def without_instrument(knowledge: Knowledge) -> list[str]:
    """Tests that claim an instrument although no code names them; the clues of lint are named for causes."""
    package = Path(__file__).parents[1]
    words = {
        by: {word for room in rooms for path in (package / room).rglob("*.py") for word in quoted(path)}
        for by, rooms in ROOMS.items()
    }
    found = []
    for test in knowledge.tests.values():
        named = test.discriminates()[:1] if test.by == "lint" else (test.id,)
        if test.by in words and words[test.by].isdisjoint(named):
            found.append(f"tests/: {test.id}: by: no instrument of {test.by} makes this; until one does, a person does")
    return found


def quoted(path: Path) -> list[str]:
    return re.findall(r"[\"']([a-z][a-z0-9_.]*)[\"']", path.read_text(encoding="utf-8"))


def main() -> int:
    try:
        knowledge = compile_folder(sys.argv[1] if len(sys.argv) > 1 else FOLDER)
        if missing := without_instrument(knowledge):
            raise ClewError(f"{len(missing)} tests claim an instrument that does not exist:\n  " + "\n  ".join(missing))
    except ClewError as error:
        print(error, file=sys.stderr)
        return 2
    counts = [f"{len(part)} {name}" for name, part in knowledge._asdict().items() if isinstance(part, dict)]
    print("The knowledge base is consistent: " + ", ".join(counts) + ".")
    return 0


if __name__ == "__main__":
    sys.exit(main())
