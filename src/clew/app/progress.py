"""The clues so far, while a run goes on: worked out beside it, so that the observed process loads no tables."""

import os

from clew.errors import ClewError
from clew.home import private
from clew.knowledge.base import load
from clew.observe.collect import answer_files, clues_of, read_process
from clew.observe.progress import CLUES

MOST = 3


class CluesSoFar:
    """Called twice a second. Reads what the processes have written since, and leaves a few words for the line."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.seen: dict[str, float] = {}

    def __call__(self) -> None:
        try:
            now = {path: os.stat(path).st_mtime for path in answer_files(self.folder)}
            if now != self.seen:
                self.seen = now
                self._write(words(self._tests()))
        except (OSError, ClewError):
            return  # the next checkpoint replaces what could not be read

    def _tests(self) -> list[str]:
        knowledge = load()
        found: dict[str, None] = {}
        for path in self.seen:
            for clue in clues_of(knowledge, read_process(path, whole=False)):
                outcome = knowledge.tests[clue.test].outcome(clue.outcome)
                if outcome is not None and outcome.kind == "seen":
                    found[clue.test] = None
        return list(found)

    def _write(self, text: str) -> None:
        path = os.path.join(self.folder, CLUES)
        with open(f"{path}.part", "w", encoding="ascii", opener=private) as file:
            file.write(text)
        os.replace(f"{path}.part", path)


def words(tests: list[str]) -> str:
    if not tests:
        return "no clue yet"
    more = f" and {len(tests) - MOST} more" if len(tests) > MOST else ""
    return f"clue{'s' * (len(tests) > 1)}: {', '.join(tests[:MOST])}{more}"
