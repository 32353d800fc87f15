"""What the user's script calls a thing, in the functions that led here and in their objects."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from clew.observe.places import is_users

if TYPE_CHECKING:
    from types import FrameType

FRAMES = 40


def names(value: object) -> set[str]:
    """Every name under which the user's functions on the stack hold the value."""
    found: set[str] = set()
    frame: FrameType | None = sys._getframe(1)
    for _ in range(FRAMES):
        if frame is None:
            break
        if is_users(frame.f_code.co_filename):
            found |= _held(value, frame.f_locals)
            owner = frame.f_locals.get("self")
            found |= _held(value, getattr(owner, "__dict__", {}))
            found |= _held(value, getattr(owner, "_modules", {}))
        frame = frame.f_back
    return found


def called(value: object) -> str:
    """One name for it, "" when no function on the stack holds it."""
    return min(names(value), default="")


def _held(value: object, among: Any) -> set[str]:
    return {str(name) for name, other in list(among.items()) if other is value}
