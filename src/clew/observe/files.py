"""Which data files the script opens, for the report: path, way, size and time, as they were when first opened, the line
and the library that opened them.

An audit hook sees every open, also those of numpy, torch, PIL and the standard library. It cannot be taken off again,
so it is set once per process and looks at nothing but the names of files. Libraries that open files in their own native
code (Parquet, HDF5) are heard of through `told`.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, NamedTuple

from clew.home import private
from clew.observe.guard import release
from clew.observe.places import is_users, users_place
from clew.records import exact
from clew.records.place import Place

MOST = 500
OF_ONE_KIND = 100  # so that a folder of images leaves room for the rest
LINES = frozenset(
    ".answer .answers .ar .classes .cs .de .en .es .et .fi .fr .gold .he .hi .hu .in .input .intent .intents .it "
    ".ja .ko .lab .label .labels .labs .lbl .lt .lv .nl .out .output .outputs .pl .ro .ru .sentences .sents .source "
    ".src .summaries .summary .tag .tags .target .targets .text .tgt .tok .tr .trg .truth .uk .vi .zh".split()
)
"""Of files that are read line by line beside others: labels, tags, translations."""
ENDINGS = LINES.union(
    ".npy .npz .pt .pth .pkl .pickle .joblib .parquet .feather .arrow .h5 .hdf5 .csv .tsv .json .jsonl .ndjson .txt "
    ".conll .data .mat .bin .safetensors .png .jpg .jpeg .wav .gz .zip .xlsx .db .toml .yaml .yml .ini .cfg".split()
)


SOURCE = ".py"
NO_ARRAYS = frozenset((SOURCE, ".toml", ".yaml", ".yml", ".ini", ".cfg", ".json", ".txt"))
READ_AS_TEXT = ("pathlib", "runpy", "codecs")
"""Through these a script reads another one as its settings; an import, a traceback or a compiler reads it as source."""

EXECUTED = "<string>"
"""The file of text that was handed to exec."""


class Opened(NamedTuple):
    path: str
    written: bool  # whether the first open was for writing
    size: int
    modified: float  # seconds since 1970 when it was first opened; 0 for a file that was not there
    place: Place | None
    by: str = ""  # the package that opened it, "" for the standard library


class _Files:
    def __init__(self) -> None:
        self.opened: dict[str, Opened] = {}
        self.rewritten: set[str] = set()
        self.kinds: Counter[str] = Counter()
        self.listener: Callable[[], None] | None = None
        self.on = False
        self.busy = False
        self.trouble = ""
        self.kept = (0, 0)
        self.process = os.getpid()
        self.own = os.environ.get("CLEW_RUN_FOLDER", "")


_files = _Files()


def trouble() -> str:
    """What last went wrong in noting a file."""
    return _files.trouble


def install(recorder: Any = None) -> None:
    """Begin to note files. `recorder` may come later than the first files, so nothing of it is needed."""
    del recorder
    _files.process = os.getpid()
    if not _files.on:
        _files.on = True
        sys.addaudithook(_audit)


def tell(listener: Callable[[], None]) -> None:
    """Call this whenever the script begins to read another data file. An error of it is kept and goes no further."""
    _files.listener = listener


def opened() -> list[Opened]:
    """The data files opened so far, in order."""
    return list(_files.opened.values())


def told(path: Any, by: str) -> None:
    """A file that a library is asked to read: it may open it where Python does not hear of it."""
    for one in path if isinstance(path, list | tuple) else (path,):
        if isinstance(one, str | bytes | os.PathLike) and _files.on:
            _audit("open", (one, "r", 0), by)


def rewritten(path: str) -> bool:
    """Whether a file was opened for writing at any time in this run."""
    return path in _files.rewritten


def write(path: str) -> None:
    """Keep the files opened so far, where there are more than when they were last kept."""
    count = len(_files.opened), len(_files.rewritten)
    if os.getpid() != _files.process or count == _files.kept:
        return
    rows = [
        {
            "path": held.path,
            "written": held.written or held.path in _files.rewritten,
            "size": held.size,
            "modified": held.modified,
            "by": held.by,
            "where": held.place.to_json() if held.place else {},
        }
        for held in opened()
    ]
    with suppress(OSError):
        with open(f"{path}.part", "w", encoding="ascii", opener=private) as file:
            file.write(exact.dumps(rows))
        os.replace(f"{path}.part", path)
        _files.kept = count


def forget() -> None:
    _files.opened.clear()
    _files.rewritten.clear()
    _files.kinds.clear()


def _audit(event: str, args: tuple[Any, ...], by: str = "") -> None:
    if event != "open" or _files.busy:
        return
    path = args[0]
    if not isinstance(path, str | bytes | os.PathLike):
        return
    _files.busy = True
    try:
        _note(os.fsdecode(path), args[1], args[2], by)
    except BaseException as error:  # noqa: BLE001  # an error here would make the script's own open fail
        release(error)
        _files.trouble = f"files could not be noted: {type(error).__name__}: {error}"
    finally:
        _files.busy = False


def _note(path: str, mode: Any, flags: Any, by: str) -> None:
    ending = os.path.splitext(path)[1].lower()
    if (ending not in ENDINGS and ending != SOURCE) or os.getpid() != _files.process:
        return
    path = os.path.abspath(path)
    writes = any(sign in mode for sign in "wax+") if isinstance(mode, str) else _for_writing(flags)
    if ending == SOURCE and (writes or not _read_as_text(path)):
        return
    if path in _files.opened:
        if writes:
            _files.rewritten.add(path)
        return
    if len(_files.opened) >= MOST or _files.kinds[ending] >= OF_ONE_KIND:
        return
    place = users_place()
    if place is None or not is_users(path) or (_files.own and path.startswith(_files.own)):
        return
    if writes:
        _files.rewritten.add(path)
    try:
        held = os.stat(path)
        size, modified = held.st_size, held.st_mtime
    except OSError:
        if not writes:
            return  # looked for and not there
        size, modified = 0, 0.0
    _files.kinds[ending] += 1
    _files.opened[path] = Opened(path, writes, size, modified, place, by or _library())
    if _files.listener is not None and not writes and ending not in NO_ARRAYS:
        _files.listener()


def _read_as_text(path: str) -> bool:
    """Whether a line of the user's opened the file itself; a script that keeps a copy of itself reads no settings."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if main is not None and os.path.abspath(main) == path:
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        name = frame.f_globals.get("__name__", "")
        if name not in (__name__, *READ_AS_TEXT) and frame.f_code.co_filename != EXECUTED:
            return False
        frame = frame.f_back
    return frame is not None


def _library() -> str:
    """The package that the user's line called: the last one on the way out of the stack that is not clew's."""
    frame: FrameType | None = sys._getframe(1)
    name = ""
    while frame is not None and not is_users(frame.f_code.co_filename):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        name = name if package in ("clew", "") else package
        frame = frame.f_back
    return "" if name in sys.stdlib_module_names else name


def _for_writing(flags: Any) -> bool:
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))
