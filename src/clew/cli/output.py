"""Writing results: to the terminal, and to files that are either whole or not there."""

import errno
import io
import os
import select
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

from clew.errors import ClewError
from clew.evidence.words import clean, harmless, on_terminal
from clew.report.text import Page, use_colour, width

if TYPE_CHECKING:
    from clew.records.clue import Clue


class Stream(io.RawIOBase):
    """A standard stream of clew's own. Where nobody reads it any more, or its disk is full, the rest is dropped: what a
    command found does not depend on who listens."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.failed: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.handle

    def isatty(self) -> bool:
        return os.isatty(self.handle)

    def write(self, data: Any) -> int:
        while not self.failed:
            try:
                return os.write(self.handle, data)
            except BlockingIOError:
                select.select([], [self.handle], [])
            except OSError as error:
                self.failed = error
        return len(data)


class Screen:
    """A standard stream that whatever clew prints passes through: file names, columns and what scripts printed may
    hold what a terminal obeys."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return self.stream.write(on_terminal(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def screened() -> Iterator[None]:
    _secure_streams()
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (stream and cast(TextIO, Screen(stream)) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


def _secure_streams() -> None:
    """Put such streams in the place of the standard ones; those of a test or a notebook stay."""
    for name in ("stdout", "stderr"):
        held = getattr(sys, name)
        if held is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  # as long as the process
        elif held is getattr(sys, f"__{name}__"):
            buffer = io.BufferedWriter(Stream(held.fileno()))
            by_line = held.line_buffering or name == "stderr"
            setattr(sys, name, io.TextIOWrapper(buffer, held.encoding, "replace", line_buffering=by_line))


def flush_streams() -> None:
    sys.stdout.flush()
    failed = getattr(getattr(getattr(sys.stdout, "buffer", None), "raw", None), "failed", None)
    if failed is not None and failed.errno != errno.EPIPE:
        print(f"clew: cannot write to standard output: {failed.strerror}.", file=sys.stderr)


def complain(text: object, lead: str = "clew") -> None:
    """One line on standard error, whatever the names in it hold."""
    print(f"{lead}: {clean(str(text))}", file=sys.stderr)


def page() -> Page:
    return Page(width(sys.stdout), use_colour(sys.stdout))


def laid_out(text: str) -> Page:
    """Text that has its lines already."""
    made = page()
    made.lines = text.splitlines()
    return made


def show(made: Page) -> None:
    print(made)


def json_argument(parser: ArgumentParser) -> None:
    words = "write the machine-readable result; - prints it as the last line of the output"
    parser.add_argument("--json", metavar="FILE", help=words)


def case_argument(parser: ArgumentParser) -> None:
    from clew.cli.complete import cases

    words = 'add what this shows to a case; "current" is the one in use'
    argument = parser.add_argument("--case", default="", metavar="CASE", help=words)
    argument.completer = cases  # type: ignore[attr-defined]  # argcomplete reads this


def into_case(name: str, clues: "Iterable[Clue]", made: Page | None, run: str = "") -> None:
    """Add clues to the case that was named, if any, and say so on the page."""
    if not name:
        return
    from clew.app import cases

    count, case = cases.add_clues(name, clues, run)
    if made is not None:
        made.say(f"{count} clue{'s' * (count != 1)} added to case {case.id}: clew case next --case {case.id}")


def answer(
    options: Namespace, made: Page | None, table: Callable[[], Any] | None = None, html: Callable[[], str] | None = None
) -> None:
    """Hand over what a command found: the files that were asked for, then the report unless there is to be none, and
    last the line of JSON."""
    to_file = table is not None and options.json
    full = table() if table is not None and (to_file or options.brief) else None
    if options.brief or to_file:
        from clew.records import exact
        from clew.report import brief

        made = brief.page(full, made) if options.brief and made else made
        if options.brief:
            full = brief.table(full)
        if to_file and options.json != "-":
            save(options.json, exact.pretty(full))
    if html is not None and options.html:
        save(options.html, html())
    if made is not None:
        show(made)
    if to_file and options.json == "-":
        print(exact.dumps(full))


def save(path: str, text: str) -> None:
    """Write a file in one go: an interrupted or refused write leaves what was there before. A link stays a link, and a
    device or a pipe is written to."""
    target = os.path.realpath(path)
    whole = not os.path.exists(target) or os.path.isfile(target)
    part = f"{target}.part-{os.getpid()}" if whole else target
    try:
        with open(part, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        if whole:
            os.replace(part, target)
    except OSError as error:
        if whole and os.path.exists(part):
            os.unlink(part)
        raise ClewError(f"cannot write {path}: {error.strerror}.") from error


def ask(prompt: str) -> str:
    """One answer from a person; the end of their input ends the conversation with nothing recorded."""
    try:
        return input(harmless(prompt)).strip()
    except EOFError:
        print()
        raise ClewError("no answer was given; nothing was recorded.") from None
