"""What must not pass between clew and the script: errors and warnings of the one to the other."""

from __future__ import annotations

import functools
import opcode
import os
import signal
import traceback
import warnings
from collections.abc import Iterator
from types import CodeType
from typing import Any

from clew.observe.patches import HIDDEN
from clew.observe.places import is_users

HERE = os.path.dirname(os.path.abspath(__file__))
RAISING = tuple(opcode.opmap[name] for name in ("RAISE_VARARGS", "RERAISE"))


def release(error: BaseException) -> None:
    """Raise again what a signal brought: Ctrl-C, or what a handler of the script's raises. Everything else, SystemExit
    too, is a fault of the instrument and must not end the run."""
    if signalled(error):
        raise error


def signalled(error: BaseException) -> bool:
    trace, handlers = error.__traceback__, set(_handlers())
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        last, trace = trace, trace.tb_next
        if trace is None:
            # Python's own handler has no frame: Ctrl-C comes up at an instruction that raises nothing by itself.
            return type(error) is KeyboardInterrupt and last.tb_frame.f_code.co_code[last.tb_lasti] not in RAISING
    return False


def _handlers() -> Iterator[CodeType]:
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        for held in (handler, vars(type(handler)).get("__call__")):
            code = getattr(held, "__code__", None)
            if code is not None:
                yield code


_IGNORED = ("ignore", None, Warning, None, 0)


class Unwarned:
    """Nothing that clew calls warns the script, nor raises where the script turns warnings into errors. The filters are
    exchanged behind the back of `warnings`, which would otherwise forget what the script has been warned of."""

    __slots__ = ("_held",)

    def __enter__(self) -> None:
        self._held, warnings.filters = warnings.filters, [_IGNORED]

    def __exit__(self, *_: object) -> None:
        added = [held for held in warnings.filters if held is not _IGNORED]  # by a module that was imported meanwhile
        self._held[:0] = added  # type: ignore[index]  # a list, whatever its stub says
        warnings.filters = self._held


_disturbed: list[tuple[int, str, str]] = []


def disturbs(error: BaseException, what: str) -> None:
    """Note that an error came out of a call that sees more of clew than its arguments: frames, or what was replaced."""
    _disturbed[:] = [(id(error), repr(type(error)), what)]


def _called_original(error: BaseException) -> bool:
    """Whether what raised was called by a replacement and has no frame itself: the original, written in C."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and opcode.opname[last.tb_frame.f_code.co_code[last.tb_lasti]].startswith("CALL")


def own_part(error: BaseException | None) -> str:
    """What of clew took part in an exception; nothing where the script would have met it alone."""
    while error is not None:
        files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
        if files and files[-1] == HIDDEN and _called_original(error):
            files.pop()
        own = [os.path.basename(file) for file in files if file.startswith(os.path.join(HERE, "watches"))]
        if own or (files and files[-1].startswith(HERE + os.sep)):
            return f"{type(error).__name__} came up in clew's own code ({(own or [os.path.basename(files[-1])])[-1]})"
        for key, kind, what in _disturbed:
            if (key, kind) == (id(error), repr(type(error))) and not (files and is_users(files[-1])):
                return f"{what} failed with {type(error).__name__} while clew's instruments were around it"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return ""
