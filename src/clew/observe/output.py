"""A copy of what the script prints, in order, with the time it was printed.

What the script flushes and all of standard error is written through; the rest after two seconds at the latest.
"""

import _thread
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from clew.archive.output import OutputLog

if TYPE_CHECKING:
    from clew.observe.progress import ProgressLine

HELD = 4096
HELD_SECONDS = 2.0


class OutputCopy:
    def __init__(self, path: str, started: float) -> None:
        self.log = OutputLog(path, started, HELD)
        self.progress: ProgressLine | None = None
        self.begin_anew()

    def begin_anew(self) -> None:
        """Also in a forked process, which has none of the threads of the one before it."""
        self.log.begin_anew()
        self._timer = False
        self._wake = _thread.allocate_lock()
        self._wake.acquire()

    def attach(self, name: str, stream: TextIO) -> None:
        """The stream stays the object it is; only its write and flush are followed."""
        progress = self.progress
        if progress is not None:
            progress.follow(stream)
        write_it, flush_it = stream.write, stream.flush

        def write(text: str) -> Any:
            if progress is not None:
                with suppress(Exception):
                    progress.before_write(stream, text)
            try:
                done = write_it(text)
            except BaseException as error:
                error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without this frame
                raise
            try:
                self._keep(name, text, name == "err" or (_by_line(stream) and "\n" in text))
            except Exception:  # noqa: BLE001  # the script prints on, whatever becomes of the copy
                detach()
            return done

        def flush() -> None:
            try:
                flush_it()
            except BaseException as error:
                error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
                raise
            if self.log.waits:
                try:
                    self.log.flush()
                except Exception:  # noqa: BLE001  # as above
                    detach()

        def detach() -> None:
            stream.write, stream.flush = write_it, flush_it  # type: ignore[method-assign]

        with suppress(AttributeError):
            stream.write, stream.flush = write, flush  # type: ignore[method-assign]

    def _keep(self, name: str, text: str, through: bool) -> None:
        self.log.write(name, text)
        if through:
            self.log.flush()
        elif self.log.waits and not self._timer:
            self._timer = True
            _thread.start_new_thread(self._later, ())

    def _later(self) -> None:
        self._wake.acquire(timeout=HELD_SECONDS)
        self.log.flush()
        self._timer = False
        if self.log.waits:  # printed meanwhile, when a timer was still there
            self.log.flush()

    def before_fork(self) -> None:
        """No thread of clew's may be there when the script forks: Python warns of forks beside threads."""
        if self._timer:
            self._wake.release()
        until = time.monotonic() + 0.1
        while self._timer and time.monotonic() < until:
            os.sched_yield()


def _by_line(stream: TextIO) -> bool:
    """Whether the stream itself passes on what is printed at the end of a line."""
    return bool(getattr(stream, "line_buffering", False) or getattr(stream, "write_through", False))
