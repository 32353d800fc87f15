"""Whose line is it: finding the user's own code on the stack."""

import os
import site
import sys
import sysconfig
from types import FrameType

from clew.records.place import Place

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_OTHERS = tuple(
    sorted(
        {
            os.path.abspath(path) + os.sep
            for path in (
                *(sysconfig.get_paths().get(name, "") for name in ("stdlib", "platstdlib", "purelib", "platlib")),
                *site.getsitepackages(),
                site.getusersitepackages(),
            )
            if path
        }
    )
)
_known: dict[str, bool] = {}
_places: dict[tuple[str, int, str], Place] = {}


def is_users(file: str) -> bool:
    """Whether a source file belongs to the user: not to Python, not to an installed package, not to clew."""
    held = _known.get(file)
    if held is None:
        path = os.path.abspath(file)
        foreign = file.startswith("<") or path.startswith(_HERE) or path.startswith(_OTHERS)
        held = _known[file] = not foreign
    return held


def users_place(depth: int = 1) -> Place | None:
    """The innermost line of the user's code on the stack. Asked several times a step: what is known is looked up."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        users = _known.get(file)
        if users is None:
            users = is_users(file)
        if users:
            key = (file, frame.f_lineno, code.co_qualname)
            return _places.get(key) or _new_place(*key)
        frame = frame.f_back
    return None


def _new_place(file: str, line: int, symbol: str) -> Place:
    place = Place(shown(file), line, symbol=None if symbol == "<module>" else symbol)
    _places[file, line, symbol] = place
    return place


def shown(file: str) -> str:
    """The path as a person would write it: relative where it is below the working folder."""
    path = os.path.abspath(file)
    try:
        here = os.getcwd() + os.sep
    except OSError:
        return path  # the working folder has been removed
    return path[len(here) :] if path.startswith(here) else path
