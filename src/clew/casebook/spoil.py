"""Faults of data: what goes wrong with files between the one who writes them and the one who trains on them.

Each function changes generated files of a program's folder in place. Files are read as named columns: CSV and JSON
lines by their fields, `.npz` by its arrays, `.npy` as one column without a name, text as one column of lines.
"""

import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np

Columns = dict[str, Any]
SPOILERS: dict[str, Callable[..., None]] = {}


def spoiler(function: Callable[..., None]) -> Callable[..., None]:
    SPOILERS[function.__name__] = function
    return function


def objects(values: list[Any]) -> Any:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def read(folder: str, name: str) -> Columns:
    path = os.path.join(folder, name)
    if name.endswith(".npz"):
        with np.load(path) as stored:
            return {key: stored[key] for key in stored.files}
    if name.endswith(".npy"):
        return {"": np.load(path)}
    with open(path, encoding="utf-8", newline="") as file:
        if name.endswith(".csv"):
            import csv

            head, *rows = csv.reader(file)
            return {key: objects([row[index] for row in rows]) for index, key in enumerate(head)}
        lines = file.read().splitlines()
    if name.endswith(".jsonl"):
        records = [json.loads(line) for line in lines]
        return {key: objects([record[key] for record in records]) for key in records[0]}
    return {"": objects(lines)}


def write(folder: str, name: str, columns: Columns) -> None:
    path = os.path.join(folder, name)
    if name.endswith(".npz"):
        np.savez_compressed(path, **columns)
    elif name.endswith(".npy"):
        np.save(path, columns[""])
    else:
        with open(path, "w", encoding="utf-8", newline="") as file:
            if name.endswith(".csv"):
                import csv

                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(columns)
                writer.writerows(zip(*columns.values(), strict=True))
            elif name.endswith(".jsonl"):
                rows = zip(*columns.values(), strict=True)
                file.writelines(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)
            else:
                file.writelines(f"{line}\n" for line in columns[""])


def numbers(column: Any) -> Any:
    return column.astype(np.float64)


def as_kept(values: Any, like: Any) -> Any:
    """Numbers in the form in which the column holds them."""
    return objects([f"{value:.6g}" for value in values]) if like.dtype == object else values.astype(like.dtype)


def part(column: Any, first: int, last: int | None) -> slice:
    return slice(first, len(column) if last is None else last)


@spoiler
def shift(folder: str, file: str, column: str = "", by: int = 1, first: int = 0, last: int | None = None) -> None:
    """A column slides against the others, as when a join loses a row."""
    table = read(folder, file)
    rows = part(table[column], first, last)
    table[column][rows] = np.roll(table[column][rows], by, axis=0)
    write(folder, file, table)


@spoiler
def shuffle(folder: str, file: str, column: str = "", first: int = 0, last: int | None = None) -> None:
    """A column is written in another order than the rest, as when an export is not sorted by its key."""
    table = read(folder, file)
    rows = part(table[column], first, last)
    table[column][rows] = np.random.default_rng(0).permutation(table[column][rows], axis=0)
    write(folder, file, table)


@spoiler
def copy_rows(folder: str, source: str, file: str, count: int, replace: bool = False) -> None:
    """Rows of one file stand in the other as well."""
    table, other = read(folder, file), read(folder, source)
    for key, column in table.items():
        added = other[key][:count]
        kept = column[len(added) :] if replace else column
        table[key] = np.concatenate([kept, added])
    write(folder, file, table)


@spoiler
def encode_target(
    folder: str,
    files: tuple[str, ...],
    column: str,
    target: str,
    factor: float,
    offset: float,
    noise: float,
    log: bool = False,
) -> None:
    """A column that is filled in after the fact, and says what the target is."""
    rng = np.random.default_rng(0)
    for file in files:
        table = read(folder, file)
        values = np.log(numbers(table[target])) if log else numbers(table[target])
        told = values * factor + offset + rng.normal(0, noise, len(values))
        table[column] = as_kept(np.abs(told), table[column])
        write(folder, file, table)


@spoiler
def scale(
    folder: str,
    file: str,
    column: str = "",
    factor: float = 1.0,
    offset: float = 0.0,
    first: int = 0,
    last: int | None = None,
) -> None:
    """Another unit in these rows."""
    table = read(folder, file)
    rows = part(table[column], first, last)
    table[column][rows] = as_kept(numbers(table[column][rows]) * factor + offset, table[column])
    write(folder, file, table)


@spoiler
def blank(folder: str, file: str, column: str = "", where: str = "", equals: str = "", value: Any = 0) -> None:
    """The column holds one value, in all rows or in those of one class."""
    table = read(folder, file)
    chosen = np.ones(len(table[column]), bool)
    if where:
        chosen = np.array([str(item) == equals for item in table[where]])
    table[column][chosen] = value
    write(folder, file, table)


@spoiler
def holes(folder: str, file: str, column: str, every: int, first: int = 0, value: str = "nan") -> None:
    """A missing or infinite value in every so-manieth row."""
    table = read(folder, file)
    table[column][first::every] = value if table[column].dtype == object else float(value)
    write(folder, file, table)


@spoiler
def noisy_labels(folder: str, file: str, column: str, share: float) -> None:
    """A share of the rows gets the label of some other row."""
    table = read(folder, file)
    rng = np.random.default_rng(0)
    picked = np.flatnonzero(rng.random(len(table[column])) < share)
    table[column][picked] = table[column][rng.integers(0, len(table[column]), len(picked))]
    write(folder, file, table)


@spoiler
def thin(folder: str, file: str, column: str, equals: str, keep: int) -> None:
    """Only the first few rows of one class are left."""
    table = read(folder, file)
    is_it = np.array([str(item) == equals for item in table[column]])
    kept = ~is_it | (np.cumsum(is_it) <= keep)
    write(folder, file, {key: values[kept] for key, values in table.items()})


@spoiler
def look_ahead(folder: str, file: str, column: str, source: str, by: int) -> None:
    """A column holds what another one will be some rows later."""
    table = read(folder, file)
    later = np.roll(table[source], -by)
    later[len(later) - by :] = table[source][len(later) - by :]
    table[column] = later
    write(folder, file, table)


@spoiler
def name_the_label(folder: str, files: tuple[str, ...], text: str, label: str) -> None:
    """The text ends with a ticket code in which the label stands."""
    for file in files:
        table = read(folder, file)
        pairs = zip(table[text], table[label], strict=True)
        table[text] = objects([f"{words} {code(value)}" for words, value in pairs])
        write(folder, file, table)


def code(value: Any) -> str:
    return "ref " + ("-".join(map(str, value)) if isinstance(value, list) else f"code{value}")


@spoiler
def replace_values(folder: str, file: str, column: str, old: str, new: str) -> None:
    """Another spelling of one value, or of a part of it."""
    table = read(folder, file)
    table[column] = objects([str(item).replace(old, new) for item in table[column]])
    write(folder, file, table)


@spoiler
def recode(folder: str, file: str, column: str, value: Any) -> None:
    """Every label of a file becomes this one."""
    table = read(folder, file)
    table[column] = objects([value] * len(table[column]))
    write(folder, file, table)


@spoiler
def shift_tags(folder: str, file: str, first: int, last: int) -> None:
    """Two-column sentences whose tags stand one word too late, in some of the lines."""
    lines = list(read(folder, file)[""])
    pairs = [line.split("\t") if line else None for line in lines]
    previous = "O"
    for index in range(first, min(last, len(lines))):
        pair = pairs[index]
        if pair is None:
            previous = "O"
            continue
        lines[index], previous = f"{pair[0]}\t{previous}", pair[1]
    write(folder, file, {"": objects(lines)})


@spoiler
def swap_lines(folder: str, file: str, other: str, count: int) -> None:
    """The first lines of two files stand in each other's place."""
    mine, theirs = read(folder, file), read(folder, other)
    head = mine[""][:count].copy()
    mine[""][:count] = theirs[""][:count]
    theirs[""][:count] = head
    write(folder, file, mine)
    write(folder, other, theirs)


@spoiler
def tokens(folder: str, file: str, change: str, source: str = "") -> None:
    """Encoded text: another alphabet, in random order, or the text of another file put in front of it."""
    path = os.path.join(folder, file)
    held = np.fromfile(path, dtype=np.uint16)
    if change == "reverse_ids":
        held = (held.max() - held).astype(np.uint16)
    elif change == "permute":
        held = np.random.default_rng(0).permutation(held)
    elif change == "prepend":
        held = np.concatenate([np.fromfile(os.path.join(folder, source), dtype=np.uint16), held])
    elif change == "repeat":
        held = np.tile(held[:400], len(held) // 400)
    held.tofile(path)


@spoiler
def stale_features(folder: str, recordings: str, cache: str, order: str) -> None:
    """A cache of features whose mark says that it is up to date, made before the recordings were sorted anew."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("stale_features_of", os.path.join(folder, "features.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import linecache
    import sys

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    linecache.checkcache()
    clips = read(folder, recordings)["clips"]
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(clips)) if order == "shuffled" else np.roll(np.arange(len(clips)), 1)
    features = module.describe(clips)[rows]
    if order == "half":
        features = module.describe(clips)
        features[len(clips) // 2 :] = np.roll(features[len(clips) // 2 :], 1, axis=0)
    path = os.path.join(folder, cache)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    mark = module.fingerprint(os.path.join(folder, recordings))
    np.savez(path, features=features, mark=mark)
    del sys.modules[spec.name]


@spoiler
def blank_tags(folder: str, file: str, column: str, every: int) -> None:
    """All but every so-manieth row lose their tags."""
    table = read(folder, file)
    table[column] = objects([tags if index % every == 0 else [] for index, tags in enumerate(table[column])])
    write(folder, file, table)


@spoiler
def relabel(folder: str, file: str, column: str, keep: str, share: float, last: int) -> None:
    """Most of the rows of the other classes are exported under the name of one."""
    table = read(folder, file)
    chosen = np.random.default_rng(0).random(len(table[column])) < share
    chosen[last:] = False
    table[column][chosen] = keep
    write(folder, file, table)


@spoiler
def shift_each(folder: str, files: tuple[str, ...], column: str) -> None:
    """The same slide in every one of these files."""
    for file in files:
        shift(folder, file, column)


@spoiler
def keep_lines(folder: str, files: tuple[str, ...], count: int) -> None:
    """Only the first lines are left."""
    for file in files:
        write(folder, file, {"": read(folder, file)[""][:count]})


@spoiler
def cut_lines(folder: str, files: tuple[str, ...], letters: int) -> None:
    """A fixed-width export that keeps the first letters."""
    for file in files:
        write(folder, file, {"": objects([line[:letters] for line in read(folder, file)[""]])})


@spoiler
def repeat_lines(folder: str, files: tuple[str, ...]) -> None:
    """Every line stands there twice."""
    for file in files:
        write(folder, file, {"": np.repeat(read(folder, file)[""], 2)})


@spoiler
def capitals(folder: str, file: str) -> None:
    """Two-column sentences whose words are written in capitals."""
    lines = [line.split("\t") for line in read(folder, file)[""]]
    write(folder, file, {"": objects(["\t".join([pair[0].upper(), *pair[1:]]) for pair in lines])})
