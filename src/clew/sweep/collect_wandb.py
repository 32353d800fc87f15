"""W&B offline runs, read without W&B.

A `.wandb` file is a log in blocks of 32 KiB, as LevelDB writes it: each piece has a checksum, a length and a kind
(whole, first, middle, last), and carries a protocol buffer. Only the fields that a sweep needs are decoded here. A file
whose writer was killed ends in the middle of a piece; everything before it is kept.
"""

import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from clew.sweep.points import Collected, Found, Point

BLOCK, HEAD = 1 << 15, 7
MAGIC = b":W&B"
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
HISTORY, CONFIG, RUN, EXIT = 2, 5, 17, 18
KEY, NESTED, JSON = 1, 2, 16

Fields = Callable[[bytes], Iterator[tuple[int, int | bytes]]]


class Read(NamedTuple):
    """The records that are whole; `damaged` pieces failed their checksum; `torn`: the file ends inside a record."""

    records: tuple[bytes, ...]
    damaged: int
    torn: bool


def is_log(head: bytes) -> bool:
    return head.startswith(MAGIC)


def records(data: bytes) -> Read:
    """Put the pieces together. A damaged piece costs its record; the next block starts anew."""
    found: list[bytes] = []
    part: list[bytes] | None = None
    at, damaged = HEAD, 0
    while at + HEAD <= len(data):
        left = BLOCK - at % BLOCK
        if left < HEAD:
            at += left
            continue
        check, length, kind = struct.unpack_from("<IHB", data, at)
        body = data[at + HEAD : at + HEAD + length]
        if not 1 <= kind <= 4 or HEAD + length > left:
            if not any(data[at : at + left]):
                break
            at, part, damaged = at + left, None, damaged + 1
            continue
        if len(body) < length:
            return Read(tuple(found), damaged, True)
        at += HEAD + length
        if zlib.crc32(body, zlib.crc32(bytes([kind]))) & 0xFFFFFFFF != check:
            part, damaged = None, damaged + 1
        elif kind == FULL:
            found.append(body)
            part = None
        elif kind == FIRST:
            part = [body]
        elif part is not None:
            part.append(body)
            if kind == LAST:
                found.append(b"".join(part))
                part = None
    return Read(tuple(found), damaged, part is not None or at < len(data))


def read_run(path: str, fields: Fields) -> tuple[Found, tuple[str, ...]]:
    """One offline run; `fields` takes a protocol buffer apart."""
    with open(path, "rb") as file:
        data = file.read()
    if not is_log(data):
        raise ValueError("it does not begin as a W&B log")
    read = records(data)
    config: dict[str, Any] = {}
    points: list[Point] = []
    run: dict[str, str] = {}
    exit_code: int | None = None
    undecoded = 0
    for record in read.records:
        try:
            for number, body in fields(record):
                if not isinstance(body, bytes):
                    continue
                if number == HISTORY:
                    points += _history(body, fields, len(points))
                elif number == CONFIG:
                    _config(body, fields, config)
                elif number == RUN:
                    _run(body, fields, run, config)
                elif number == EXIT:
                    exit_code = _exit(body, fields)
        except (ValueError, IndexError):
            undecoded += 1
    remarks = []
    if read.damaged or undecoded:
        remarks.append(f"{path}: {read.damaged + undecoded} damaged records left out.")
    if read.torn:
        remarks.append(f"{path} ends inside a record, as after a crash; all before it was read.")
    state = "crashed" if exit_code is None else "finished" if exit_code == 0 else "failed"
    name = run.get("id") or os.path.basename(path).removeprefix("run-").removesuffix(".wandb")
    group = run.get("group") or run.get("project") or ""
    settings = {key: value for key, value in config.items() if not key.startswith("_")}
    updated = os.stat(path).st_mtime
    return Found(name, path, group, state, run.get("created", ""), updated, settings, tuple(points)), tuple(remarks)


def _item(body: bytes, fields: Fields) -> tuple[str, Any]:
    """A key, or a path of keys, with its value."""
    key, nested, text = "", [], ""
    for number, held in fields(body):
        if not isinstance(held, bytes):
            continue
        if number == KEY:
            key = held.decode("utf-8", "replace")
        elif number == NESTED:
            nested.append(held.decode("utf-8", "replace"))
        elif number == JSON:
            text = held.decode("utf-8", "replace")
    # W&B writes NaN and Infinity as JSON does not know them; Python reads both.
    return key or ".".join(nested), json.loads(text) if text else None


def _history(body: bytes, fields: Fields, count: int) -> list[Point]:
    step, values = None, []
    for number, held in fields(body):
        if number == 1 and isinstance(held, bytes):
            name, value = _item(held, fields)
            if name == "_step" and isinstance(value, int):
                step = value
            elif value in ("NaN", "Infinity", "-Infinity") or _is_number(name, value):
                values.append((name, float(value)))
        elif number == 2 and isinstance(held, bytes) and step is None:
            step = next((one for inner, one in fields(held) if inner == 1 and isinstance(one, int)), 0)
    return [Point(name, count if step is None else step, value) for name, value in values]


def _is_number(name: str, value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not name.startswith("_")


def _config(body: bytes, fields: Fields, config: dict[str, Any]) -> None:
    for number, held in fields(body):
        if number == 1 and isinstance(held, bytes):
            name, value = _item(held, fields)
            config[name] = value


def _run(body: bytes, fields: Fields, run: dict[str, str], config: dict[str, Any]) -> None:
    for number, held in fields(body):
        if not isinstance(held, bytes):
            continue
        if number in (1, 3, 6):
            run[{1: "id", 3: "project", 6: "group"}[number]] = held.decode("utf-8", "replace")
        elif number == 4:
            _config(held, fields, config)
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


def read_folder(path: str, fields: Fields, since: float = 0.0) -> Collected:
    runs: list[Found] = []
    remarks: list[str] = []
    for name in logs_below(path):
        try:
            if os.stat(name).st_mtime < since:
                continue
            found, said = read_run(name, fields)
            output = os.path.join(os.path.dirname(name), "files", "output.log")
            runs.append(found._replace(log=output if os.path.isfile(output) else ""))
            remarks += said
        except (OSError, ValueError) as error:
            remarks.append(f"{name} could not be read: {error}.")
    return Collected(tuple(runs), tuple(remarks))
