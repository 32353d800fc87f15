"""The exception that ended a process: what it says, the user's line, what was being done, and the memory it had."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any

from clew.home import private
from clew.records.masked import masked_text

BEGINS = "crash-"
LONGEST = 1000
GIB = float(1 << 30)
OUT_OF_MEMORY = ("OutOfMemoryError", "MemoryError")
SIZES = re.compile(r"([\d.]+) ([KMG])iB is (allocated|reserved) by PyTorch")
SMALLER = {"G": 1.0, "M": 1024.0, "K": 1048576.0}
PHASES = (
    ("dataloader.py", "", "while a batch was loaded"),
    (os.path.join("torch", "_tensor.py"), "backward", "in the backward pass"),
    (os.path.join("torch", "autograd"), "", "in the backward pass"),
    (os.path.join("torch", "optim", "optimizer.py"), "wrapper", "in the step of the optimiser"),
    (os.path.join("torch", "optim"), "step", "in the step of the optimiser"),
    (os.path.join("nn", "modules", "module.py"), "_call_impl", "in the forward pass"),
    (os.path.join("nn", "modules", "module.py"), "_apply", "while a model was moved or converted"),
)
"""Part of the file, the function, and what that says; the first one found from the outside in counts."""


def write(folder: str, started: float) -> None:
    """Python has printed the exception by now, and left it where debuggers look for it."""
    error = getattr(sys, "last_value", None)
    if not isinstance(error, BaseException):
        return
    table = {**told(error), "seconds": time.monotonic() - started, "pid": os.getpid(), "rank": os.environ.get("RANK")}
    with open(os.path.join(folder, f"{BEGINS}{os.getpid()}.json"), "w", encoding="ascii", opener=private) as file:
        json.dump(table, file)


def told(error: BaseException) -> dict[str, Any]:
    from clew.observe.places import is_users, shown

    frames = list(_frames(error.__traceback__))
    own = [held for held in frames if is_users(held.tb_frame.f_code.co_filename)]
    file, line, symbol = "", 0, ""
    if isinstance(error, SyntaxError) and error.filename:
        file, line = shown(error.filename), error.lineno or 0
    elif own:
        code = own[-1].tb_frame.f_code
        file, line, symbol = shown(code.co_filename), own[-1].tb_lineno, code.co_qualname
    kind = type(error)
    name = kind.__name__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__name__}"
    phase = next((_phase(held) for held in frames if _phase(held)), "")
    return {
        "kind": name,
        "says": masked_text(str(error))[:LONGEST],
        "file": file,
        "line": line,
        "symbol": "" if symbol.startswith("<") else symbol,
        "phase": phase,
        "memory": _memory(str(error)) if kind.__name__ in OUT_OF_MEMORY or "out of memory" in str(error) else {},
    }


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _phase(held: TracebackType) -> str:
    code = held.tb_frame.f_code
    for part, function, says in PHASES:
        if part in code.co_filename and function in ("", code.co_name):
            if function == "_call_impl":
                module = held.tb_frame.f_locals.get("self")
                return f"{says} in {'training' if getattr(module, 'training', True) else 'evaluation'} mode"
            return says
    return ""


def _memory(says: str) -> dict[str, float]:
    """In GiB: what torch says of the moment it failed, or else what is held now, while the frames of the exception
    still hold theirs."""
    held = {name: float(size) / SMALLER[unit] for size, unit, name in SIZES.findall(says)}
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if "allocated" in held:
        held["reserved"] = held["allocated"] + held.get("reserved", 0.0)
    elif cuda is not None and cuda.is_initialized():
        held = {"allocated": cuda.memory_allocated() / GIB, "reserved": cuda.memory_reserved() / GIB}
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm", encoding="ascii") as file:
        held["resident"] = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / GIB
    return held
