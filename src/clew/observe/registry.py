"""The watches there are: one file each in `watches`, found by looking."""

import importlib
import os

from clew.observe.guard import release
from clew.observe.watch import Watch


def all_watches() -> tuple[list[type[Watch]], list[str]]:
    """Every watch, and a sentence for each file that could not be loaded."""
    found: list[type[Watch]] = []
    failed = []
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "watches")
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".py") or name.startswith("_"):
            continue
        try:
            module = importlib.import_module(f"clew.observe.watches.{name[:-3]}")
        except BaseException as error:  # noqa: BLE001  # one broken instrument must not take the others with it
            release(error)
            failed.append(f"the instrument {name[:-3]} could not be loaded: {type(error).__name__}: {error}")
            continue
        found += [
            value
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, Watch)
            and value.test
            and value.__module__ == module.__name__
        ]
    return found, failed
