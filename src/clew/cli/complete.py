"""What the shell may complete. Only imported names cost time here: the knowledge base is read when Tab is pressed."""

from argparse import Namespace
from typing import Any


def ids(prefix: str, **_: Any) -> list[str]:
    from clew.knowledge import load
    from clew.knowledge.search import everything

    return [found.id for found in everything(load()) if found.id.startswith(prefix)]


def causes(prefix: str, **_: Any) -> list[str]:
    from clew.knowledge import load

    return [name for name in load().causes if name.startswith(prefix)]


def domains(prefix: str, **_: Any) -> list[str]:
    from clew.knowledge import load

    return [name for name in load().domains if name.startswith(prefix)]


def tests(prefix: str, **_: Any) -> list[str]:
    from clew.knowledge import load

    return [name for name in load().tests if name.startswith(prefix)]


def outcomes(prefix: str, parsed_args: Namespace, **_: Any) -> list[str]:
    from clew.knowledge import load

    test = load().tests.get(getattr(parsed_args, "test", "") or "")
    names = [outcome.name for outcome in test.outcomes] if test else []
    return [name for name in [*names, "unclear"] if name.startswith(prefix)]


def cases(prefix: str, **_: Any) -> list[str]:
    from clew.case.store import all_ids

    return [name for name in all_ids() if name.startswith(prefix)]


def exams(prefix: str, **_: Any) -> list[str]:
    """By their files: importing them would import torch."""
    import os

    from clew import exams as package

    names = os.listdir(os.path.join(os.path.dirname(os.path.abspath(package.__file__)), "checks"))
    return sorted(name[:-3] for name in names if name.endswith(".py") and name[0] != "_" and name.startswith(prefix))
