"""Whose line is it: finding the user's own code on the stack."""

import os
import site
import sys
import sysconfig
from types import CodeType, FrameType
from typing import Any

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
try:
    _STARTED_IN = os.path.join(os.getcwd(), "")  # a script may go elsewhere; whoever reads the report has not
except OSError:
    _STARTED_IN = ""  # the working folder has been removed
INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
MOST = 4096
OPTIMIZED = 1  # of code flags: the locals of a function, as against those of a module or class
_known: dict[str, bool] = {}
_folders: dict[str, bool] = {}
_places: dict[tuple[str, int, str], Place] = {}
_at: dict[tuple[int, int], tuple[CodeType, Place]] = {}
"""Places by code and instruction. The code is held on to, so that its id stays its own."""


def is_users(file: str) -> bool:
    """Whether a source file belongs to the user: not to Python, not to an installed package, not to clew."""
    held = _known.get(file)
    if held is None:
        path = os.path.abspath(file)
        foreign = file.startswith("<") or path.startswith(_HERE) or path.startswith(_OTHERS) or _installed(path)
        held = _known[file] = not foreign
    return held


def _installed(path: str) -> bool:
    """Packages of another environment, such as one that this one is built upon. Who works inside of such a folder works
    on what lies there."""
    for folder in INSTALLED:
        above, found, _ = path.partition(folder)
        if found and not _STARTED_IN.startswith(above + folder):
            return True
    return any(path.startswith(os.path.join(folder, "")) for folder in sys.path if folder and _installed_into(folder))


def _installed_into(folder: str) -> bool:
    """Whether packages were put into a folder by an installer, which leaves a record of each beside it."""
    folder = os.path.join(os.path.abspath(folder), "")
    held = _folders.get(folder)
    if held is None:
        try:
            left = any(name.endswith(".dist-info") for name in os.listdir(folder))
        except OSError:
            left = False
        held = _folders[folder] = left and not _STARTED_IN.startswith(folder)
    return held


def users_place(depth: int = 1) -> Place | None:
    """The innermost line of the user's code on the stack.

    Asked several times a step. Python finds the number of a line by reading the function from its top, which in a long
    one takes longer than all the rest, so a place is known by its instruction.
    """
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        users = _known.get(file)
        if users is None:
            users = is_users(file)
        if users:
            held = _at.get((id(code), frame.f_lasti))
            return held[1] if held is not None else _new_place(frame)
        frame = frame.f_back
    return None


def place_of(frame: FrameType) -> Place:
    """The line that a frame is at."""
    held = _at.get((id(frame.f_code), frame.f_lasti))
    return held[1] if held is not None else _new_place(frame)


def _new_place(frame: FrameType) -> Place:
    code = frame.f_code
    key = (code.co_filename, frame.f_lineno, code.co_qualname)
    place = _places.get(key)
    if place is None:
        place = Place(shown(key[0]), key[1], symbol=None if key[2] == "<module>" else key[2])
    for held in (_at, _places):
        if len(held) >= MOST:  # a script that makes its code anew, again and again
            held.clear()
    _places[key] = place
    _at[id(code), frame.f_lasti] = (code, place)
    return place


def local(frame: FrameType, name: str) -> object:
    """A local variable of a running function. Python keeps a copy of them all with the frame once it was asked, which
    would keep a batch alive: it is emptied again."""
    if not frame.f_code.co_flags & OPTIMIZED:
        return frame.f_locals.get(name)
    held = frame.f_locals
    found = held.get(name)
    if sys.version_info < (3, 13):
        held.clear()
    return found


def shown(file: str) -> str:
    """The path as a person would write it: relative where it is below the folder the run was started in."""
    path = os.path.normpath(os.path.join(_STARTED_IN, file))
    return path[len(_STARTED_IN) :] if _STARTED_IN and path.startswith(_STARTED_IN) else path


def users_code(function: Any) -> CodeType | None:
    """The code of a function, a partial or a callable object that the user wrote."""
    function = getattr(function, "func", function)
    code = getattr(function, "__code__", None) or getattr(vars(type(function)).get("__call__"), "__code__", None)
    return code if isinstance(code, CodeType) and is_users(code.co_filename) else None


def users_sources() -> dict[str, bool]:
    """The user's own source files that were imported, and whether each is the running script."""
    found: dict[str, bool] = {}
    for name, module in list(sys.modules.items()):
        path = vars(module).get("__file__") if hasattr(module, "__dict__") else None
        if name == "__main__" and path is None:  # Python takes it away when the script has ended
            path = sys.argv[0] if sys.argv else None
        if isinstance(path, str) and path.endswith(".py") and is_users(path):
            path = os.path.abspath(path)
            found[path] = found.get(path, False) or name == "__main__"
    return found
