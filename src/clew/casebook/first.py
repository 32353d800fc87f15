"""At which step of a run a clue was there first.

The observed processes write what they have seen after ten steps and then every few seconds. Reading those files while
the run goes on gives, for each test, the number of steps after which its outcome was first written and never changed
again: an upper bound, as coarse as the writing.
"""

import glob
import os
import threading

from clew.errors import ClewError
from clew.knowledge.base import load
from clew.observe.collect import clues_of, read_process

OFTEN = 0.25
"""Seconds between two looks."""


class FirstSteps:
    """Use as a context around a run. `steps` then says after how many steps each outcome stood."""

    def __init__(self, home: str) -> None:
        self.pattern = os.path.join(glob.escape(home), "runs", "*", "answers-*.json")
        self.steps: dict[str, tuple[str, int]] = {}
        self._seen: dict[str, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "FirstSteps":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.look()

    def _watch(self) -> None:
        while not self._over.wait(OFTEN):
            self.look()

    def look(self) -> None:
        """Read what was written since the last look. A file that is being replaced is read the next time."""
        for path in sorted(glob.glob(self.pattern)):
            try:
                stamp = os.stat(path).st_mtime_ns
                if self._seen.get(path) != stamp:
                    held = read_process(path, whole=False)
                    self._seen[path] = stamp
                    self.take({clue.test: clue.outcome for clue in clues_of(load(), held)}, held.steps)
            except (OSError, ClewError):
                continue

    def take(self, outcomes: dict[str, str], steps: int) -> None:
        for test, outcome in outcomes.items():
            if self.steps.get(test, ("", 0))[0] != outcome:
                self.steps[test] = (outcome, steps)

    def of(self, test: str, outcome: str, last: int) -> int:
        """The step of an outcome; the last one where it was worked out from the whole run."""
        held = self.steps.get(test)
        return held[1] if held is not None and held[0] == outcome else last
