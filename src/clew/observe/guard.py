"""Which exceptions are the script's, although they came up inside of an instrument."""

from __future__ import annotations

import functools
import opcode
import signal
from collections.abc import Iterator
from types import CodeType
from typing import Any

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
