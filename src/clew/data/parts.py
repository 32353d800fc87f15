"""Which files belong together, which are for training, and which column is the target."""

from __future__ import annotations

import ast
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from clew.data.model import HELD, TRAIN, Array, Column, Family, Part, Table
from clew.data.read import objects

TRAIN_WORDS = frozenset("train training trn fit".split())
HELD_WORDS = frozenset("val valid validation dev test tst testing eval evaluation holdout heldout".split())
INPUT_WORDS = frozenset("x input inputs image images img imgs feature features data text texts prompt prompts".split())
LABEL_WORDS = frozenset(
    "y label labels lbl target targets truth groundtruth class classes mask masks answer answers tag tags".split()
)
USUAL = frozenset(
    "category topic outcome response intent sentiment rating ratings stars score price species diagnosis churn churned "
    "survived default quality sales demand consumption medv charges income status toxic spam completion".split()
)
"""Names that a target often has, and an input sometimes."""
EXPERIENCE = (frozenset("action actions act acts".split()), frozenset("reward rewards rew rews".split()))
"""Columns with both kinds of name are what an agent went through: no column of it is the label of the others."""
FILE = "which file"
"""The name of a target that is told by the file in which a row stands."""
SURE = 2.0


def words(name: str) -> list[str]:
    parted = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    held = [word for word in re.split(r"[^a-z0-9]+", parted.lower()) if word]
    bare = [(word, word.rstrip("0123456789")) for word in held if not word.isdigit()]
    return [short if len(short) > 1 else word for word, short in bare]  # x1 and x2 are both x1 and x2, y85 is no y


def role_of(path: str) -> str:
    """Told by the name of the file, or else by that of its folder."""
    for text in (os.path.splitext(os.path.basename(path))[0], os.path.basename(os.path.dirname(path))):
        held = set(words(text))
        if held & HELD_WORDS:
            return HELD
        if held & TRAIN_WORDS:
            return TRAIN
    return ""


def _stem(path: str) -> str:
    """What is left of a file's name without its role: train_images and val_images are both images."""
    name = os.path.splitext(os.path.basename(path))[0]
    return "_".join(word for word in words(name) if word not in TRAIN_WORDS | HELD_WORDS)


def named(table: Table) -> Table:
    """An array without a name of its own takes that of its file."""
    stem = _stem(table.file)
    columns = [
        held._replace(name=stem + held.name)
        if held.name[:1] in ("", "[") and held.kind not in ("text", "stream")
        else held
        for held in table.columns
    ]
    return table._replace(columns=tuple(columns))


def signature(columns: Iterable[Column]) -> tuple[str, ...]:
    return tuple(sorted(column.name for column in columns))


def parts_of(tables: Sequence[Table]) -> list[Part]:
    """Files of one role with as many rows and other columns are joined: inputs in one, labels in another."""
    groups: dict[tuple[str, int], list[list[Table]]] = {}
    for table in map(named, tables):
        key = role_of(table.file), table.total or table.rows
        for group in groups.setdefault(key, []):
            held = {column.name for member in group for column in member.columns}
            if not held & {column.name for column in table.columns} and (table.whole or table.total):
                group.append(table)
                break
        else:
            groups[key].append([table])
    found = []
    for (role, _), sets in groups.items():
        for group in sets:
            rows = min(table.rows for table in group)
            columns = tuple(column._replace(values=column.values[:rows]) for table in group for column in table.columns)
            found.append(Part(role, rows, columns, tuple((table.file, table.line) for table in group)))
    return found


def families_of(tables: Sequence[Table], sources: Sequence[str] = ()) -> tuple[Family, ...]:
    """The tables, joined and grouped, each with its target."""
    lists = [table for table in tables if table.columns[0].kind == "text" and len(table.columns) == 1]
    by_file = _by_file(lists)
    held = set() if by_file is None else {table.file for table in lists}
    groups: dict[tuple[str, ...], list[Part]] = {}
    for part in parts_of([table for table in tables if table.file not in held]):
        groups.setdefault(signature(part.columns), []).append(part)
    found = [_targeted(parts, sources) for parts in groups.values()]
    return tuple(found if by_file is None else [*found, by_file])


def _by_file(lists: list[Table]) -> Family | None:
    """Several lists of texts in one folder, none of them for training or testing: each file is a class."""
    folders = {os.path.dirname(table.file) for table in lists}
    if len(lists) < 2 or len(folders) > 1 or any(role_of(table.file) for table in lists):
        return None
    parts = []
    for table in lists:
        name = os.path.splitext(os.path.basename(table.file))[0]
        label = Column(table.file, FILE, "category", objects([name] * table.rows))
        parts.append(Part("", table.rows, (*table.columns, label), ((table.file, table.line),)))
    return Family(tuple(parts), FILE, sure=True)


def _targeted(parts: list[Part], sources: Sequence[str]) -> Family:
    scores = target_scores(parts[0], sources)
    ranked = sorted(scores.items(), key=lambda pair: -pair[1])
    if not ranked:
        return Family(tuple(parts))
    name, score = ranked[0]
    tied = len(ranked) > 1 and ranked[1][1] == score
    used = quoted(parts[0], name, sources)
    unused = {column.name for column in parts[0].columns} - used - {name} if len(used) >= 2 else set()
    return Family(tuple(parts), name, score >= SURE and not tied, used, frozenset(unused))


def quoted(part: Part, target: str, sources: Sequence[str]) -> frozenset[str]:
    """Columns that the source names. Where it names two or more, it picks its inputs, and leaves the others out."""
    names = {column.name for column in part.columns if column.name and column.name != target}
    return frozenset(name for name in names if any(f'"{name}"' in text or f"'{name}'" in text for text in sources))


def target_scores(part: Part, sources: Sequence[str]) -> dict[str, float]:
    """How much speaks for each column as the target: its name, how the source uses it, its place in the row."""
    able = [column for column in part.columns if column.kind not in ("key", "time", "stream") and not is_split(column)]
    named = {word for column in able for word in words(column.name)}
    if len(able) < 2 or all(named & kind for kind in EXPERIENCE):
        return {}
    used = mentions(sources, {column.name for column in able})
    scores = {}
    for index, column in enumerate(able):
        held = words(column.name)
        score = 2.0 * any(word in LABEL_WORDS | USUAL for word in held[-1:]) + 1.5 * (
            len(held) == 1 and held[0] in LABEL_WORDS
        )
        score -= 3.0 * any(word in INPUT_WORDS for word in held)
        score -= 3.0 * bool(set(held) & {"id", "split", "index", "weight"})
        score += min(4.0, 2.0 * used[column.name])
        score += 1.0 * (index == len(able) - 1) + 0.2 * (index == 0)
        if column.kind == "category" and [held.kind for held in able if held is not column] == ["text"]:
            score += SURE  # a text and a name beside it
        if column.kind in ("text", "array") and score < SURE:
            continue
        scores[column.name] = score
    return {name: score for name, score in scores.items() if score >= 1}


def mentions(sources: Sequence[str], names: set[str]) -> Counter[str]:
    """How often the source puts a column into something that it calls label, target or y."""
    found: Counter[str] = Counter()
    for text in sources:
        for match in re.finditer(r"(?im)^\s*[\"']?(\w+)[\"']?\s*[:=]\s*[\"']?([\w ]+)[\"']?\s*,?\s*$", text):
            if match[2] in names and set(words(match[1])) & LABEL_WORDS:
                found[match[2]] += 1
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        for called, value in _bindings(tree):
            if set(words(called)) & LABEL_WORDS:
                held = {node.value for node in ast.walk(value) if isinstance(node, ast.Constant)}
                found.update(name for name in names if name in held)
    return found


def _bindings(tree: ast.AST) -> Iterable[tuple[str, ast.AST]]:
    """Every name with what is bound to it: by assignment, as a keyword, under a key of a dict."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _named(target, node.value)
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg, node.value
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value


def _named(target: ast.AST, value: ast.AST) -> Iterable[tuple[str, ast.AST]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Attribute):
        yield target.attr, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for name, held in zip(target.elts, value.elts, strict=True):
            yield from _named(name, held)


def is_split(column: Column) -> bool:
    """Whether a column says which rows are for training and which are held out."""
    if column.kind != "category":
        return False
    held = [set(words(str(value))) for value in sorted(set(column.values))[:5]]
    return 2 <= len(held) <= 4 and all(value & (TRAIN_WORDS | HELD_WORDS) for value in held)


def split_of(part: Part) -> Array | None:
    """Which rows are held out, where a column says so; None where none does."""
    for column in part.columns:
        if is_split(column):
            return np.array([bool(set(words(str(value))) & HELD_WORDS) for value in column.values])
    return None
