"""Logs that somebody else made, as series by name.

`read_log` takes what training programs leave behind: printed lines of any kind, lines of JSON, tables, a Hugging Face
trainer state, TensorBoard event files. It says what it took each name for, so that a person can see a misreading.
What is too large, torn or unreadable is left out and named; a log is never read for longer than its bounds allow.
"""

import io
import os
import stat
from collections.abc import Iterable
from typing import BinaryIO, NamedTuple

from clew.errors import ClewError
from clew.records.trace import Series
from clew.symptoms.logs_lines import CUT, Lines
from clew.symptoms.logs_names import (
    ENTROPY,
    LOSS_TERM,
    METRIC,
    OTHER,
    RETURNS,
    SHARES,
    STANDS_FOR_LOSS,
    TRAIN_LOSS,
    VAL_LOSS,
    Meaning,
    counter,
    meaning,
    words,
)
from clew.symptoms.logs_points import Points, Resolved

LARGEST_JSON = 64 << 20
MOST_FROM_PIPE = 64 << 20
MOST_RECORDS = 1_000_000
"""In one JSON value: each takes hundreds of bytes, however short it is written."""
HEAD, FEWEST_LINES, MOST_HEAD = 1 << 16, 3, 4 << 20
"""What a log is shows in its first bytes; where lines are long, in as many as hold a few of them."""


class Understood(NamedTuple):
    """What one name of the log was taken for."""

    source: str
    name: str
    role: str
    split: str
    goal: str
    points: int


class Log(NamedTuple):
    """A log as it was read. `axis` says what the steps count: "step", "batch", "epoch", "frames", "episode" or
    "order". `epochs` are the steps at which a new epoch begins, as far as the log shows them."""

    path: str
    format: str
    axis: str
    series: tuple[Series, ...]
    understood: tuple[Understood, ...]
    epochs: tuple[int, ...]
    notes: tuple[str, ...]

    def of(self, name: str) -> Series | None:
        return next((held for held in self.series if held.name == name), None)


def read_log(path: str) -> Log:
    """Read one file. Raises ClewError when there is nothing in it that reads as a log."""
    file = _open(path)
    try:
        head = file.read(HEAD)
        while head.count(b"\n") < FEWEST_LINES and len(head) < MOST_HEAD and (more := file.read(HEAD)):
            head += more
        file.seek(0)
        return _read(path, file, head)
    except OSError as error:
        raise ClewError(f"cannot read {path}: {error.strerror or error}.") from error
    finally:
        file.close()


def _open(path: str) -> BinaryIO:
    """The file, or what a pipe has to give: a reader may have to go back to the start."""
    try:
        # A pipe without a writer would block on opening; it reads as empty instead.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as error:
        raise ClewError(f"cannot read {path!r}: {getattr(error, 'strerror', None) or error}.") from error
    file = os.fdopen(handle, "rb") if not stat.S_ISDIR(os.fstat(handle).st_mode) else None
    if file is None:
        os.close(handle)
        raise ClewError(f"{path} is a folder; name a file in it.")
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return file
    with file:
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise ClewError(f"{path} is a device, not a log.")
        os.set_blocking(handle, True)
        held = file.read(MOST_FROM_PIPE + 1)
    if len(held) > MOST_FROM_PIPE:
        raise ClewError(f"{path} gives more than {MOST_FROM_PIPE >> 20} MiB; save it to a file and name that.")
    return io.BytesIO(held)


def _read(path: str, file: BinaryIO, head: bytes) -> Log:
    from clew.symptoms.logs_tensorboard import is_event_file

    if not head.strip(b"\0 \t\r\n"):
        raise ClewError(f"{path} is empty: there is nothing to read." if not head else f"{path} contains no text.")
    if is_event_file(head):
        return _events(path, file)
    if "tfevents" in os.path.basename(path):
        raise ClewError(f"{path} is named as a TensorBoard file, but its first record is damaged.")
    lines = Lines(file, _encoding(path, head))
    text = lines.decode(head)
    # The last line of the head may be cut off in the middle.
    first = [line for line in text.splitlines() if line.strip()]
    first = (first[:-1] if len(head) >= HEAD else first)[:20] or first
    return _json(path, file, lines, first) or _table(path, lines, first) or _text(path, lines)


def _encoding(path: str, head: bytes) -> str:
    """Text as most programs write it, or as a Windows shell redirects it. Raises for what is no text at all."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if head[:2] == b"\x1f\x8b":
        raise ClewError(f"{path} is compressed: unpack it first, for instance with gunzip -k.")
    odd = sum(head.count(byte) for byte in (*range(7), *range(14, 27), *range(28, 32)))
    if odd > 0.03 * len(head.strip(b"\0")) or head[:4] in (b"PK\3\4", b"\x89PNG", b"%PDF"):
        raise ClewError(f"{path} is not text and not a TensorBoard file: clew cannot read it as a log.")
    return "utf-8"


def _events(path: str, file: BinaryIO) -> Log:
    from clew.symptoms.logs_tensorboard import read_events

    points = Points()
    notes = read_events(file, points)
    return _log(path, "TensorBoard events", points.resolve(own_steps=True), notes)


def _json(path: str, file: BinaryIO, lines: Lines, first: list[str]) -> Log | None:
    if not first or first[0].lstrip("\ufeff \t")[:1] not in ("{", "["):
        return None
    from clew.symptoms.logs_tables import RowReader, json_row, looks_like_lines, parse, read_json

    reader = RowReader()
    notes: list[str] = []
    if len(first) > 1 and looks_like_lines(first):
        odd = 0
        for line in lines:
            row = parse(line)
            if isinstance(row, dict):
                json_row(reader, row)
            else:
                odd += bool(line.strip())
        if odd:
            notes.append(f"{odd} line{'s' * (odd != 1)} that {'is' if odd == 1 else 'are'} not JSON left out.")
        return _log(path, "lines of JSON", reader.points.resolve(), [*notes, *lines.notes])
    file.seek(0)
    whole = file.read(LARGEST_JSON + 1)
    if len(whole) > LARGEST_JSON:
        return None
    if (records := whole.count(b"{") + whole.count(b"[")) > MOST_RECORDS:
        raise ClewError(
            f"{path} holds {records:,} records in one JSON value, more than {MOST_RECORDS:,}: put one on a line."
        )
    held = parse(lines.decode(whole).lstrip("\ufeff"))
    form = read_json(held, reader)
    if form:
        return _log(path, form, reader.points.resolve(), notes)
    if isinstance(held, dict):
        json_row(reader, held)
        return _log(path, "lines of JSON", reader.points.resolve(), notes)
    return None


def _table(path: str, lines: Lines, first: list[str]) -> Log | None:
    from clew.symptoms.logs_tables import RowReader, column_name, delimiter_of, read_csv

    mark = delimiter_of(first)
    if not mark:
        return None
    reader = RowReader()
    notes: list[str] = []
    odd = read_csv(lines, mark, reader, column_name(os.path.basename(path)))
    if odd:
        notes.append(f"{odd} row{'s' * (odd != 1)} that did not match the header left out.")
    form = {",": "CSV", "\t": "TSV", ";": "CSV with semicolons"}[mark]
    if all(name.startswith("column_") for name in reader.points.held):
        notes.append("the table has no header; add a line with the column names.")
    return _log(path, form, reader.points.resolve(), [*notes, *lines.notes])


def _text(path: str, lines: Lines) -> Log:
    from clew.symptoms.logs_text import STYLES, TextReader

    reader = TextReader()
    for line in lines:
        reader.line(line, lines.redrawn)
    notes = [*reader.end(), *(note for note in lines.notes if not note.startswith(CUT))]  # the reader counts long lines
    held = reader.points
    # Names that no one knows and that came once are settings and chatter, not curves.
    for name in [name for name, (at, _) in held.held.items() if len(at) < 2 and meaning(name).role == OTHER]:
        del held.held[name]
    resolved = held.resolve(by_epoch=reader.style == "keras")
    return _log(path, STYLES[reader.style], resolved, notes)


def _log(path: str, form: str, found: Resolved, notes: Iterable[str]) -> Log:
    if not found.series:
        raise ClewError(f"{path} contains no named numbers that clew can read as curves.")
    meant = _meanings({source: len(held.steps) for source, held in found.series.items()})
    taken: dict[str, str] = {}
    series, understood = [], []
    for source, held in found.series.items():
        what = meant[source]
        name = _free(what.name, source, taken)
        series.append(held._replace(name=name, unit=_unit(what, held)))
        understood.append(Understood(source, name, what.role, what.split, what.goal, len(held.steps)))
    return Log(path, form, found.axis, tuple(series), tuple(understood), found.epochs, (*notes, *found.notes))


def _free(name: str, source: str, taken: dict[str, str]) -> str:
    """The normal name, or one nearer to the log's own when another source has it already."""
    spelt = "_".join(words(source)) or "value"
    number = 2
    wanted = name
    while wanted in taken:
        wanted = spelt if spelt not in taken else f"{name}_{number}"
        number += 1
    taken[wanted] = source
    return wanted


def _unit(what: Meaning, held: Series) -> str:
    """ "%" for shares that are logged as percentages."""
    finite = [value for value in held.values if abs(value) <= 100]
    return "%" if what.base in SHARES and finite and max(finite) > 1.5 else ""


def _meanings(points: dict[str, int]) -> dict[str, Meaning]:
    """Names in the light of each other: the one error measure of a regression stands for its loss."""
    meant = {source: meaning(source) for source in points}
    if not any(what.base in RETURNS for what in meant.values()):  # without an agent it is a short name of cross-entropy
        for source, what in meant.items():
            if what.role == ENTROPY:
                loss = "loss" in words(source)
                meant[source] = what._replace(role=TRAIN_LOSS if loss else OTHER, goal="down" if loss else "")
    roles = {what.role for what in meant.values()}
    if not roles & {TRAIN_LOSS, VAL_LOSS, LOSS_TERM}:
        bases = {what.base for what in meant.values() if what.role == METRIC and what.base in STANDS_FOR_LOSS}
        if len(bases) == 1:
            for source, what in meant.items():
                if what.base in bases:
                    whole = VAL_LOSS if what.split in ("val", "test") else TRAIN_LOSS
                    meant[source] = what._replace(role=whole, goal="down")
    most = max((points[source] for source, what in meant.items() if what.role == TRAIN_LOSS), default=0)
    for source, what in meant.items():
        # Trainers close with the mean over the whole run: a figure of its own, not a point of the curve.
        if what.role == TRAIN_LOSS and points[source] == 1 and most > 2:
            meant[source] = what._replace(role=OTHER)
    return {source: what._replace(role=OTHER) if counter(source) else what for source, what in meant.items()}
