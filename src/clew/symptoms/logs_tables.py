"""Logs that are data already: CSV and TSV, lines of JSON, and whole JSON files such as HF's trainer_state.json."""

import csv
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from clew.symptoms.logs_names import counter, words
from clew.symptoms.logs_numbers import as_float, number
from clew.symptoms.logs_points import Clock, Points

DELIMITERS = ",\t;"
DEEPEST = 3
LARGEST_COUNT = 2**53
_LONG_NAMES = ("metric", "name", "tag", "key")
_MONITOR = {"r": "episode_reward", "l": "episode_length", "t": "time"}
_CLOCK_NAMES = {"wall", "timestamp", "date", "datetime"}


class RowReader:
    """Takes rows of named values; which names count time is worked out once per name."""

    def __init__(self) -> None:
        self.points = Points()
        self._kinds: dict[str, str] = {}

    def row(self, cells: Iterable[tuple[str, float]], called: str = "") -> None:
        """One row. `called` is the name of its value, for tables that hold one point to a row."""
        now: dict[str, float] = {}
        values = []
        for name, value in cells:
            kind = self._kinds.get(name)
            if kind is None:
                kind = self._kinds[name] = "clock" if set(words(name)) & _CLOCK_NAMES else counter(name)
            if kind == "clock" or (kind and not abs(value) < LARGEST_COUNT):
                continue
            if not kind or (kind != "epoch" and not value.is_integer()):
                values.append((called if called and name.lower() == "value" else name, value))
            elif kind not in now or "global" in name.lower():
                now[kind] = value
        self.points.add(values, _clock(now))


def _clock(now: dict[str, float]) -> Clock:
    def whole(kind: str) -> int | None:
        return int(now[kind]) if kind in now else None

    return Clock(whole("step"), whole("batch"), None, now.get("epoch"), whole("frames"), whole("episode"))


def flat(table: dict[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    """The numbers of a table, those of tables within it under joined names."""
    for key, held in table.items():
        if isinstance(held, dict):
            if depth < DEEPEST:
                yield from flat(held, f"{prefix}{key}/", depth + 1)
        else:
            value = as_float(held)
            if value is not None:
                yield f"{prefix}{key}"[:200], value


def parse(text: str) -> Any:
    """JSON, or None for what is not: torn lines, single quotes, numbers of five thousand digits."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def json_row(reader: RowReader, table: dict[str, Any]) -> None:
    called = ""
    if "value" in table:
        called = next((table[key] for key in _LONG_NAMES if isinstance(table.get(key), str)), "")
    reader.row(flat(table), called[:200])


def looks_like_lines(lines: list[str]) -> bool:
    """Whether most of these lines hold one JSON object each."""
    found = [line for line in lines if isinstance(parse(line), dict)]
    return bool(found) and len(found) >= 0.8 * len(lines)


def read_json(whole: Any, reader: RowReader) -> str:
    """A whole JSON file; returns what it was taken for, "" when nothing in it reads as a log."""
    if isinstance(whole, dict) and isinstance(whole.get("log_history"), list):
        for row in whole["log_history"]:
            if isinstance(row, dict):
                json_row(reader, row)
        return "HF trainer_state.json"
    if isinstance(whole, list) and any(isinstance(row, dict) for row in whole):
        for row in whole:
            if isinstance(row, dict):
                json_row(reader, row)
        return "a JSON list of records"
    if isinstance(whole, dict):
        return _lists(whole, reader)
    return ""


def _lists(whole: dict[str, Any], reader: RowReader) -> str:
    """Lists by name, as a Keras history is saved; a table of such tables is read one level down."""
    found = {key: held for key, held in whole.items() if isinstance(held, list) and held}
    for key, held in whole.items():
        if isinstance(held, dict):
            found.update({f"{key}/{name}": inner for name, inner in held.items() if isinstance(inner, list) and inner})
    columns = {key[:200]: [as_float(item) for item in held] for key, held in found.items()}
    columns = {key: held for key, held in columns.items() if any(value is not None for value in held)}
    if not columns:
        return ""
    for at in range(max(len(held) for held in columns.values())):
        cells = ((key, held[at]) for key, held in columns.items() if at < len(held))
        reader.row((key, value) for key, value in cells if value is not None)
    return "a JSON table of lists"


def delimiter_of(lines: list[str]) -> str:
    """What separates the columns, "" when these lines are no table."""
    lines = [line for line in lines if not line.startswith("#")]
    if len(lines) < 2:
        return ""
    for mark in DELIMITERS:
        rows = [_cells(line, mark) for line in lines[:20]]
        width = len(rows[0])
        body = [row for row in rows[1:] if len(row) == width]
        if width < 2 or len(body) < 0.8 * (len(rows) - 1):
            continue
        filled = [cell for row in body for cell in row if cell.strip()]
        numeric = sum(number(cell, mark == ";") is not None for cell in filled)
        if filled and numeric >= 0.5 * len(filled):
            return mark
    return ""


def _cells(line: str, mark: str) -> list[str]:
    if '"' not in line:
        return line.split(mark)
    try:
        return next(csv.reader([line], delimiter=mark), [])
    except csv.Error:
        return []


def column_name(path: str) -> str:
    """TensorBoard names the files it exports for their run and tag; the table itself only says "Value"."""
    found = re.search(r"tag-(.{1,100})\.csv$", path)
    return found[1] if found else ""


def read_csv(lines: Iterable[str], mark: str, reader: RowReader, called: str = "") -> int:
    """All rows; returns how many were left out because they did not fit the header."""
    header: list[str] = []
    odd = 0
    names: list[int] = []
    for line in lines:
        if not line.strip() or (not header and line.startswith("#")):
            continue
        cells = _cells(line, mark)
        if not header:
            header = [cell.strip().lstrip("\ufeff")[:200] for cell in cells]
            headless = all(number(cell) is not None for cell in header if cell)
            header = [f"column_{at}" for at in range(1, len(cells) + 1)] if headless else _columns(header)
            low = [name.lower() for name in header]
            names = [low.index(name) for name in _LONG_NAMES if name in low and "value" in low]
            if not headless:
                continue
        if len(cells) != len(header):
            odd += 1
            continue
        numbers = ((name, number(cell, mark == ";")) for name, cell in zip(header, cells, strict=True) if name and cell)
        own = next((cells[at].strip()[:200] for at in names), "") or called
        reader.row(((name, value) for name, value in numbers if value is not None), own)
    return odd


def _columns(header: list[str]) -> list[str]:
    return [_MONITOR[name] for name in header] if header == list(_MONITOR) else header
