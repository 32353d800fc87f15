"""clew finds out why training code that runs does not learn."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

_PARTS = {"Subject": "clew.exams.subject", "exam": "clew.app.exam", "examine": "clew.app.exam"}
"""What people use in Python, and where it lives: importing clew itself loads none of it, and no torch."""


def __getattr__(name: str) -> "Any":
    if name not in _PARTS:
        raise AttributeError(f"module 'clew' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PARTS[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_PARTS]
