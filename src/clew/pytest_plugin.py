"""What pytest learns from clew: a marker for slow exams, and a fixture to make exams with. Loads no torch by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from clew.app.exam import Result
    from clew.exams.subject import Subject
    from clew.records.clue import Clue

SLOW = "clew_slow"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("clew", "clew")
    group.addoption("--clew-slow", action="store_true", default=False, help=f"also run tests marked {SLOW}")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{SLOW}: an exam that trains for long; runs with --clew-slow only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--clew-slow"):
        return
    for item in items:
        if item.get_closest_marker(SLOW) is not None:
            item.add_marker(pytest.mark.skip(reason="a slow exam; --clew-slow runs it"))


class Bench:
    """Makes exams for one test. What a person should look at is kept in `folder`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def exam(self, name: str, subject: Subject, limit: float = 60.0) -> Clue:
        """Make one exam."""
        from clew.app.exam import exam

        return exam(name, subject, limit, keep=self.folder)

    def examine(self, subject: Subject, budget: float = 60.0) -> Result:
        """Make the exams of the default plan."""
        from clew.app.exam import examine

        return examine(subject, budget, keep=self.folder)


@pytest.fixture
def clew_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Exams with a folder of their own. The test begins with the same random numbers whatever ran before it, and what
    runs after it does not notice."""
    from clew.exams.lab import apart, seed_all

    with apart():
        seed_all(0)
        yield Bench(os.fspath(tmp_path_factory.mktemp("clew")))
