"""TensorBoard event files: records framed with checksums, each a small protocol buffer. Nothing of TensorFlow needed.

A record is its length (8 bytes), a masked CRC-32C of the length, the bytes, and a masked CRC-32C of the bytes. A file
whose writer was killed ends in the middle of one: everything before it is read.
"""

import struct
from collections.abc import Iterator
from typing import BinaryIO

from clew.symptoms.logs_points import Clock, Points

LARGEST_RECORD = 1 << 20
"""Scalars fit in a few hundred bytes; pictures and graphs do not and are skipped without being read."""

_POLYNOMIAL = 0x82F63B78
_table: list[int] = []
_FLOAT, _DOUBLE, _INT32, _BFLOAT16, _INT64, _HALF = 1, 2, 3, 14, 9, 19
_FORMATS = {_FLOAT: "<f", _DOUBLE: "<d", _INT32: "<i", _INT64: "<q", _HALF: "<e"}
_VALUE_FIELDS = {_FLOAT: 5, _DOUBLE: 6, _INT32: 7, _INT64: 10}


def crc32c(data: bytes) -> int:
    if not _table:
        for byte in range(256):
            for _ in range(8):
                byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
            _table.append(byte)
    table, crc = _table, 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def is_event_file(head: bytes) -> bool:
    return len(head) >= 12 and masked(head[:8]) == struct.unpack("<I", head[8:12])[0]


class Damage(Exception):
    """Where the framing ends, in words for the reader of the report."""


def records(file: BinaryIO) -> Iterator[bytes | None]:
    """The records in order, empty where they are too long for scalars, None where damaged; Damage at a torn end."""
    checked: set[bytes] = set()
    while True:
        head = file.read(12)
        if not head:
            return
        if len(head) < 12:
            raise Damage("it ends in the middle of a record, as after a crash")
        if head not in checked:
            if masked(head[:8]) != struct.unpack("<I", head[8:])[0]:
                raise Damage("a record is damaged, and what follows it cannot be found")
            if len(checked) < 10_000:
                checked.add(head)
        length = int.from_bytes(head[:8], "little")
        if length > LARGEST_RECORD:
            if not _skip(file, length + 4):
                raise Damage("it ends in the middle of a record, as after a crash")
            yield b""
            continue
        data = file.read(length + 4)
        if len(data) < length + 4:
            raise Damage("it ends in the middle of a record, as after a crash")
        yield data[:length] if masked(data[:length]) == struct.unpack("<I", data[length:])[0] else None


def _skip(file: BinaryIO, count: int) -> bool:
    """Move past bytes that are not wanted; False when there are not so many."""
    if count > 1 << 40:
        return False
    here = file.tell()
    end = file.seek(0, 2)
    file.seek(min(here + count, end))
    return here + count <= end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: numbers for variable-length integers, bytes for everything else."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"field type {kind}")
        if at + size > len(data):
            raise ValueError("a field longer than its message")
        yield key >> 3, data[at : at + size]
        at += size


def scalars(record: bytes) -> tuple[int, list[tuple[str, float]]]:
    """The step of an event and the scalars in it."""
    step, found = 0, []
    for number, value in fields(record):
        if number == 2 and isinstance(value, int):
            step = value - (1 << 64) if value >= 1 << 63 else value
        elif number == 5 and isinstance(value, bytes):
            for inner, held in fields(value):
                if inner == 1 and isinstance(held, bytes):
                    scalar = _scalar(held)
                    if scalar is not None:
                        found.append(scalar)
    return step, found


def _scalar(data: bytes) -> tuple[str, float] | None:
    """One summary value: a plain number, or a tensor of one element as TensorFlow 2 writes it."""
    tag, value = "", None
    for number, held in fields(data):
        if not isinstance(held, bytes):
            continue
        if number == 1:
            tag = held.decode("utf-8", "replace")
        elif number == 2 and len(held) == 4:
            value = float(struct.unpack("<f", held)[0])
        elif number == 8:
            value = _tensor(held)
    return (tag[:200], value) if tag and value is not None else None


def _tensor(data: bytes) -> float | None:
    kind, content, typed = 0, b"", {}
    for number, held in fields(data):
        if number == 1 and isinstance(held, int):
            kind = held
        elif number == 2 and isinstance(held, bytes) and _size(held) != 1:
            return None
        elif number == 4 and isinstance(held, bytes):
            content = held
        else:
            typed[number] = held
    if kind == _BFLOAT16 and len(content) == 2:
        return float(struct.unpack("<f", b"\0\0" + content)[0])
    form = _FORMATS.get(kind)
    if form is None:
        return None
    if len(content) == struct.calcsize(form):
        return float(struct.unpack(form, content)[0])
    single = typed.get(_VALUE_FIELDS.get(kind, 0))
    if isinstance(single, bytes) and kind in (_FLOAT, _DOUBLE) and len(single) == struct.calcsize(form):
        return float(struct.unpack(form, single)[0])
    if kind in (_INT32, _INT64) and single is not None:
        whole = _varint(single, 0)[0] if isinstance(single, bytes) else single
        return float(whole - (1 << 64) if whole >= 1 << 63 else whole)
    return None


def _size(shape: bytes) -> int:
    """How many elements a tensor of this shape has."""
    size = 1
    for number, held in fields(shape):
        if number == 2 and isinstance(held, bytes):
            size *= next((value for inner, value in fields(held) if inner == 1 and isinstance(value, int)), 1)
    return size


def read_events(file: BinaryIO, points: Points) -> list[str]:
    """Every scalar of the file; returns what could not be read."""
    notes: list[str] = []
    damaged = 0
    try:
        for record in records(file):
            if record is None:
                damaged += 1
                continue
            try:
                step, found = scalars(record)
            except (ValueError, IndexError):
                damaged += 1
                continue
            if found:
                points.add(found, Clock(step=step))
            if points.turned_away:
                break
    except Damage as damage:
        notes.append(f"{damage}; the points before it were read.")
    if damaged:
        notes.append(f"{damaged} damaged record{'s' * (damaged != 1)} left out.")
    return notes
