"""W&B offline runs, read without W&B.

A `.wandb` file is a log in blocks of 32 KiB, as LevelDB writes it: each piece has a checksum, a length and a kind
(whole, first, middle, last), and carries a protocol buffer. Only the fields that a sweep needs are decoded here. A file
whose writer was killed ends in the middle of a piece; everything before it is kept.
"""

import json
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from mmap import ACCESS_READ, mmap
from typing import Any, NamedTuple

from clew.reading import opened
from clew.sweep.points import Found, Look, Points
from clew.sweep.table import flat

BLOCK, HEAD = 1 << 15, 7
MAGIC = b":W&B"
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
HISTORY, SUMMARY, CONFIG, PRINTED, RUN, EXIT = 2, 3, 5, 13, 17, 18
KEY, NESTED, BOOLEAN, INTEGER, NUMBER, TYPED_JSON, JSON = 1, 2, 4, 5, 6, 8, 16
RUN_FIELDS = {1: "id", 3: "project", 6: "group", 12: "sweep"}
ALIVE = 120.0
"""Seconds: a run without an end whose file changed within them goes on; W&B writes something every few seconds."""

Fields = Callable[[bytes], Iterator[tuple[int, int | bytes]]]


class Pieces:
    """The records of a log, put together from their pieces. A damaged piece costs its record, and reading goes on.

    After the last record, `damaged` counts the pieces that failed their checksum; `torn`: the log ends inside a record.
    """

    def __init__(self, data: "bytes | mmap") -> None:
        self.data, self.damaged, self.torn = data, 0, False

    def __iter__(self) -> Iterator[bytes]:
        data, size = self.data, len(self.data)
        part: list[bytes] | None = None
        at = HEAD
        while at + HEAD <= size:
            left = BLOCK - at % BLOCK
            if left < HEAD:
                at += left
                continue
            check, length, kind = struct.unpack_from("<IHB", data, at)
            if not FULL <= kind <= LAST or HEAD + length > left:
                if not any(data[at : at + left]):
                    break
                at, part, self.damaged = at + left, None, self.damaged + 1
                continue
            body = data[at + HEAD : at + HEAD + length]
            if len(body) < length:
                self.torn = True
                return
            at += HEAD + length
            if zlib.crc32(body, zlib.crc32(bytes([kind]))) & 0xFFFFFFFF != check:
                part, self.damaged = None, self.damaged + 1
            elif kind == FULL:
                part = None
                yield body
            elif kind == FIRST:
                part = [body]
            elif part is not None:
                part.append(body)
                if kind == LAST:
                    yield b"".join(part)
                    part = None
        self.torn = part is not None or at < size


def is_log(head: bytes) -> bool:
    return head.startswith(MAGIC)


class Log(NamedTuple):
    """What one `.wandb` file says of its run."""

    run: dict[str, str]
    config: dict[str, Any]
    summary: dict[str, Any]
    points: Points
    exit: int | None
    printed: bytes


def read_log(path: str, fields: Fields, remarks: list[str]) -> Log:
    """One file; `fields` takes a protocol buffer apart."""
    with opened(path) as file:
        if not is_log(file.read(4)):
            raise ValueError("it does not begin as a W&B log")
        with closing(mmap(file.fileno(), 0, access=ACCESS_READ)) as data:
            read = Pieces(data)
            made = Log({}, {}, {}, Points(), None, b"")
            printed: list[bytes] = []
            undecoded = rows = 0
            for record in read:
                try:
                    for number, body in fields(record):
                        if not isinstance(body, bytes):
                            continue
                        if number == HISTORY:
                            _history(body, fields, made.points, rows)
                            rows += 1
                        elif number == CONFIG:
                            _items(body, fields, made.config)
                        elif number == SUMMARY:
                            _items(body, fields, made.summary)
                        elif number == RUN:
                            _run(body, fields, made.run, made.config)
                        elif number == PRINTED:
                            printed += [held for inner, held in fields(body) if inner == 3 and isinstance(held, bytes)]
                        elif number == EXIT:
                            made = made._replace(exit=_exit(body, fields))
                except (ValueError, IndexError, OverflowError):
                    undecoded += 1
    if read.damaged or undecoded:
        remarks.append(f"{path}: {read.damaged + undecoded} damaged records left out.")
    if read.torn:
        remarks.append(f"{path} ends inside a record, as after a crash; all before it was read.")
    return made._replace(printed=b"".join(printed))


def read_run(paths: list[str], fields: Fields, remarks: list[str]) -> Found:
    """A run from its files, oldest first: a run that was resumed offline has one for every start."""
    logs = [read_log(path, fields, remarks) for path in paths]
    newest, path = logs[-1], paths[-1]
    updated = max(os.stat(one).st_mtime for one in paths)
    name = newest.run.get("id") or _named(path)
    run = {key: value for log in logs for key, value in log.run.items()}
    config = settings({key: value for log in logs for key, value in log.config.items()})
    summary = {key: value for log in logs for key, value in readings(log.summary)}
    points = logs[0].points if len(logs) == 1 else _together(logs)
    state = "finished" if newest.exit == 0 else "failed"
    if newest.exit is None:
        state = "running" if time.time() - updated < ALIVE else "crashed"
    group = run.get("group") or run.get("sweep") or run.get("project") or ""
    output = os.path.join(os.path.dirname(path), "files", "output.log")
    return Found(
        name,
        path,
        group,
        state,
        logs[0].run.get("created", ""),
        updated,
        config,
        points,
        summary,
        log=output if os.path.isfile(output) else "",
        output=b"" if os.path.isfile(output) else newest.printed,
    )


def _together(logs: list[Log]) -> Points:
    """The points of every start, in order. Copies of one start are the same points: the longest has them all."""
    starts: dict[str, Points] = {}
    for log in logs:
        begun = log.run.get("created", "")
        if begun not in starts or len(log.points) > len(starts[begun]):
            starts[begun] = log.points
    made = Points()
    for points in starts.values():
        for name, series in points.series.items():
            held = made.of(name)
            held.steps.extend(series.steps)
            held.values.extend(series.values)
    return made


def settings(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration with nested names joined by points; W&B's own entries begin with an underscore."""
    return {key: value for key, value in flat(config).items() if not key.startswith("_")}


def readings(row: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a row of history or of a summary. W&B writes NaN and the infinities as words."""
    for name, value in flat(row).items():
        if name.startswith("_") or isinstance(value, bool):
            continue
        if isinstance(value, int | float) or value in ("NaN", "Infinity", "-Infinity"):
            yield name, float(value)


def _item(body: bytes, fields: Fields) -> tuple[str, Any]:
    """A key, or a path of keys, with its value: as JSON text, or typed as newer writers may put it."""
    key, nested, value = "", [], None
    for number, held in fields(body):
        if number == INTEGER and isinstance(held, int):
            value = held - (1 << 64) if held >= 1 << 63 else held
        elif number == BOOLEAN and isinstance(held, int):
            value = bool(held)
        elif not isinstance(held, bytes):
            continue
        elif number == KEY:
            key = held.decode("utf-8", "replace")
        elif number == NESTED:
            nested.append(held.decode("utf-8", "replace"))
        elif number == NUMBER and len(held) == 8:
            value = struct.unpack("<d", held)[0]
        elif number in (JSON, TYPED_JSON) and held:
            # W&B writes NaN and Infinity as JSON does not know them; Python reads both.
            value = json.loads(held.decode("utf-8", "replace"))
    return key or ".".join(nested), value


def _history(body: bytes, fields: Fields, points: Points, count: int) -> None:
    step, values = None, {}
    for number, held in fields(body):
        if number == 1 and isinstance(held, bytes):
            name, value = _item(held, fields)
            if name == "_step" and isinstance(value, int):
                step = value
            else:
                values[name] = value
        elif number == 2 and isinstance(held, bytes) and step is None:
            step = next((one for inner, one in fields(held) if inner == 1 and isinstance(one, int)), 0)
    for name, value in readings(values):
        points.add(name, count if step is None else step, value)


def _items(body: bytes, fields: Fields, into: dict[str, Any]) -> None:
    for number, held in fields(body):
        if isinstance(held, bytes) and number in (1, 2):
            name, value = _item(held, fields)
            if number == 1:
                into[name] = value
            else:
                into.pop(name, None)


def _run(body: bytes, fields: Fields, run: dict[str, str], config: dict[str, Any]) -> None:
    for number, held in fields(body):
        if not isinstance(held, bytes):
            continue
        if number in RUN_FIELDS:
            run[RUN_FIELDS[number]] = held.decode("utf-8", "replace")
        elif number == 4:
            _items(held, fields, config)
        elif number == 17:
            from datetime import UTC, datetime

            moment = next((one for inner, one in fields(held) if inner == 1 and isinstance(one, int)), 0)
            run["created"] = datetime.fromtimestamp(moment, UTC).isoformat()


def _exit(body: bytes, fields: Fields) -> int:
    return next((one for number, one in fields(body) if number == 1 and isinstance(one, int)), 0)


def logs_below(path: str) -> list[str]:
    found = []
    for at, _, names in os.walk(path):
        found += [os.path.join(at, name) for name in sorted(names) if name.endswith(".wandb")]
    return sorted(found)


def _named(path: str) -> str:
    return os.path.basename(path).removeprefix("run-").removesuffix(".wandb")


def read_folder(path: str, fields: Fields, look: Look, remarks: list[str]) -> Iterator[Found]:
    by_run: dict[str, list[str]] = {}
    for name in logs_below(path):
        by_run.setdefault(_named(name), []).append(name)
    for names in by_run.values():
        try:
            # Folders are named for the moment of their start.
            names.sort(key=lambda name: (os.path.basename(os.path.dirname(name)), name))
            if look.settled(max(os.stat(name).st_mtime for name in names), names[-1]):
                continue
            found = read_run(names, fields, remarks)
        except (OSError, ValueError) as error:
            remarks.append(f"{names[-1]} could not be read: {error}.")
            continue
        yield found
