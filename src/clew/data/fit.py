"""How well one part of a row tells another, row by row, for labels as they stand and for labels some rows further.

Inputs become numbers (ranks, hashed words, values of arrays and the sizes of their frequencies), and a linear model
over them and over random waves of them predicts the target of rows that it was not fitted on. One fit answers for all
shifts at once, because they only change the right-hand side.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from clew.data.model import Array, Column, Family
from clew.data.segments import ranks

SHIFTS = (0, 1, -1, 2, -2)
FOLDS = 4
BLOCK = 10
"""So many neighbouring rows are held out together, since neighbours often resemble each other."""
WAVES = 256
HASHED = 512
PIXELS = 256
SIGNAL, FRAMES, BANDS = 256, 8, 24
"""Values in a row from which on it is taken for a signal, and into how many times and bands its spectrum is cut."""
MOST_CLASSES = 24
STRENGTHS = (0.003, 0.03, 0.3)
MOST_ROWS = 8_000


def inputs(columns: Sequence[Column], rows: int) -> Array | None:
    """The columns as one matrix of numbers of about unit size; None when they tell nothing."""
    blocks = [block for column in columns for block in _block(column, rows)]
    blocks = [block for block in blocks if block.shape[1] and bool((block != block[:1]).any())]
    return np.concatenate(blocks, axis=1).astype(np.float32) if blocks else None


def _block(column: Column, rows: int) -> list[Array]:
    if column.kind in ("number", "time"):
        return [(ranks(column.values[:rows])[:, None] - 0.5) * 3.4]
    if column.kind == "category":
        return [hashed([(str(value),) for value in column.values[:rows]], HASHED)]
    if column.kind == "list":
        return [hashed(column.values[:rows], HASHED)]
    if column.kind == "text":
        texts = column.values[:rows]
        return [hashed([pieces(text) for text in texts], HASHED)]
    if column.kind == "array":
        return _array_blocks(column.values[:rows])
    return []


def pieces(text: str) -> list[str]:
    """Words, and of a text of one word its pieces."""
    held = str(text).lower().split()
    if len(held) > 1:
        return held
    whole = f"^{held[0]}$" if held else ""
    return [whole[at : at + size] for size in (1, 2, 3) for at in range(len(whole) - size + 1)]


def hashed(rows: Any, width: int) -> Array:
    """Counts of words in so many columns, each row of unit length times a few."""
    index: dict[str, int] = {}
    found = np.zeros((len(rows), width), np.float32)
    counted: Counter[str] = Counter(word for row in rows for word in row)
    for place, (word, _) in enumerate(counted.most_common()):
        # The commonest words get a column of their own.
        index[word] = place if place < width // 2 else width // 2 + zlib.crc32(word.encode()) % (width - width // 2)
    for at, row in enumerate(rows):
        for word in row:
            found[at, index[word]] += 1
    used = found.any(0)
    size = np.sqrt((found**2).sum(1, keepdims=True))
    return np.asarray(2 * found[:, used] / np.maximum(size, 1))


def _array_blocks(values: Array) -> list[Array]:
    flat = np.nan_to_num(values.reshape(len(values), -1), posinf=0, neginf=0)
    stride = max(1, -(-flat.shape[1] // PIXELS))
    blocks = [standard(flat[:, ::stride])]
    if values.ndim >= 3 and min(values.shape[1:3]) >= 3:
        image = np.nan_to_num(values.reshape(*values.shape[:3], -1).mean(3), posinf=0, neginf=0)
        waves = np.abs(np.fft.rfft2(image))[:, :10, :10]
        blocks.append(standard(np.log1p(waves.reshape(len(waves), -1))))
    elif values.ndim == 2 and values.shape[1] >= SIGNAL:
        blocks += [standard(block) for block in _spectra(flat)]
    return [block / max(1.0, block.shape[1] ** 0.5 / 6) for block in blocks]


def _spectra(flat: Array) -> list[Array]:
    """How strong a signal is in each band, at each time and in all: where a tone begins hardly changes that, and it
    changes every sample. A few bands tell more than many that are alike."""
    width = flat.shape[1] // FRAMES
    frames = flat[:, : width * FRAMES].reshape(len(flat), FRAMES, width).astype(np.float32)
    frames = frames - frames.mean(2, keepdims=True)
    power = np.abs(np.fft.rfft(frames * np.hanning(width), axis=2)) ** 2
    edges = np.unique(np.linspace(1, power.shape[2], BANDS + 1).astype(int))[:-1]
    bands = np.add.reduceat(power, edges, axis=2)
    low = 1e-4 * float(bands.mean()) + 1e-12
    return [np.log(bands + low).reshape(len(flat), -1), np.log(bands.mean(1) + low)]


def standard(block: Array) -> Array:
    spread = block.std(0)
    return np.clip((block - block.mean(0)) / np.where(spread > 0, spread, 1), -5, 5)


def target(column: Column, rows: int) -> Array | None:
    """The target as centred columns: one per class, the rank of a number, the main directions of an array."""
    values = column.values[:rows]
    if column.kind == "number" and len(np.unique(values[np.isfinite(values)])) > 12:
        return _centred((ranks(values)[:, None] - 0.5) * 3.4)
    if column.kind == "list":
        tags = Counter(tag for row in values for tag in set(row))
        names = [tag for tag, _ in tags.most_common(MOST_CLASSES)]
        return _centred(np.array([[tag in row for tag in names] for row in values], float)) if names else None
    if column.kind == "array":
        flat = standard(np.nan_to_num(values.reshape(len(values), -1), posinf=0, neginf=0))
        stride = max(1, -(-flat.shape[1] // PIXELS))
        held = flat[:, ::stride]
        _, _, axes = np.linalg.svd(held[:: max(1, len(held) // 1000)], full_matrices=False)
        return _centred(held @ axes[:12].T)
    classes = classes_of(column, rows)
    names = [name for name, _ in Counter(classes).most_common(MOST_CLASSES * 4)]
    if len(names) < 2:
        return None
    chosen = np.array(classes)[:, None] == np.array(names)[None, :]
    if column.kind == "number" and len(names) > 3:
        # Stars are ordered, class numbers are not: both are told.
        return _centred(np.concatenate([chosen, (ranks(values)[:, None] - 0.5) * 2], axis=1))
    return _centred(chosen)


def classes_of(column: Column, rows: int) -> list[str]:
    return [value_name(value) for value in column.values[:rows]]


def value_name(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _centred(block: Array) -> Array | None:
    held = block.astype(np.float64) - block.mean(0)
    return held if float(np.abs(held).max(initial=0)) > 0 else None


def whole(family: Family) -> tuple[Column, ...]:
    """The columns of a family with the rows of all its parts, in order."""
    found = []
    for first in family.parts[0].columns:
        held = [part.column(first.name) for part in family.parts]
        values = [column.values for column in held if column is not None]
        if len({(value.shape[1:], value.dtype == object) for value in values}) == 1:
            kinds = {column.kind for column in held if column is not None}
            kind = first.kind if len(kinds) == 1 else "text" if values[0].dtype == object else "number"
            found.append(first._replace(values=np.concatenate(values), kind=kind))
    return tuple(found)


class Fit(NamedTuple):
    """`score[shift][row]`: how well the prediction for a row fits the target so many rows further, about 1 on the mean
    where it is told perfectly and 0 where it is told by chance. `told`: the mean by shift. `predicted`: at shift 0."""

    score: dict[int, Array]
    told: dict[int, float]
    predicted: Array
    target: Array
    alike: float
    """How much the targets of neighbouring rows resemble each other."""

    @property
    def slack(self) -> float:
        """By how much standard errors are larger than for rows that have nothing to do with their neighbours."""
        near = min(max(self.alike, 0.0), 0.99)
        return float(((1 + near) / (1 - near)) ** 0.5)


def fit(x: Array, y: Array, lengths: Sequence[int], seed: int = 0) -> Fit:
    """`lengths`: the rows of each file, in order. Shifts go round within a file."""
    shifted = {shift: _rolled(y, lengths, -shift) for shift in SHIFTS}
    right = np.concatenate([shifted[shift] for shift in SHIFTS], axis=1)
    rng = np.random.default_rng(seed)
    full = np.concatenate([x, _waves(x, rng), np.ones((len(x), 1), np.float32)], axis=1).astype(np.float64)
    folds = rng.integers(0, FOLDS, len(x) // BLOCK + 1)[np.arange(len(x)) // BLOCK]
    width = y.shape[1]
    best: tuple[float, Array] | None = None
    for guess in _ridge(full, right, folds):
        top = max(_told(guess[:, at * width : (at + 1) * width], shifted[s])[1] for at, s in enumerate(SHIFTS))
        if best is None or top > best[0]:
            best = top, guess
    assert best is not None
    score, told = {}, {}
    for at, shift in enumerate(SHIFTS):
        score[shift], told[shift] = _told(best[1][:, at * width : (at + 1) * width], shifted[shift])
    alike = float((y * shifted[1]).sum() / max(1e-12, float((y * y).sum())))
    return Fit(score, told, best[1][:, :width], y, alike)


def fit_from(x: Array, y: Array, lengths: Sequence[int], known: Array, seed: int = 0) -> Fit:
    """As `fit`, with a model that was fitted on the rows `known` only, and on these held out in turn."""
    rng = np.random.default_rng(seed)
    full = np.concatenate([x, _waves(x, rng), np.ones((len(x), 1), np.float32)], axis=1).astype(np.float64)
    inner = fit(x[known], y[known], [int(known.sum())], seed)
    gram, cross = full[known].T @ full[known], full[known].T @ y[known]
    size = float(np.trace(gram)) / len(gram)
    best: tuple[float, dict[int, Array]] | None = None
    shifted = {shift: _rolled(y, lengths, -shift) for shift in SHIFTS}
    for strength in STRENGTHS:
        guess = full @ np.linalg.solve(gram + np.eye(len(gram)) * (strength * size + 1e-6 * len(full)), cross)
        scores = {shift: _told(guess, shifted[shift])[0] for shift in SHIFTS}
        top = max(float(scores[shift][~known].mean()) for shift in SHIFTS)
        if best is None or top > best[0]:
            best = top, scores
    assert best is not None
    for shift, score in best[1].items():
        score[known] = inner.score[shift]
    told = {shift: float(score.mean()) for shift, score in best[1].items()}
    return inner._replace(score=best[1], told=told, target=y)


def _rolled(y: Array, lengths: Sequence[int], by: int) -> Array:
    parts, first = [], 0
    for length in lengths:
        parts.append(np.roll(y[first : first + length], by, axis=0))
        first += length
    return np.concatenate(parts)


def _waves(x: Array, rng: Any) -> Array:
    """Random waves over the inputs: what makes the linear model see more than lines."""
    some = x[rng.integers(0, len(x), min(300, len(x)))]
    other = x[rng.integers(0, len(x), len(some))]
    width = float(np.median(((some - other) ** 2).sum(1)) ** 0.5) or 1.0
    waves = min(WAVES, max(32, len(x) // 4))
    turns = rng.normal(0, 1.4 / width, (x.shape[1], waves))
    return np.asarray(np.cos(x @ turns + rng.uniform(0, 2 * np.pi, waves)) * 0.5, dtype=np.float32)


def _ridge(full: Array, right: Array, folds: Array) -> list[Array]:
    """Predictions for rows that were held out, one set per strength of the penalty."""
    gram, cross = full.T @ full, full.T @ right
    found = [np.zeros_like(right) for _ in STRENGTHS]
    size = float(np.trace(gram)) / len(gram)
    for fold in range(FOLDS):
        out = folds == fold
        held = full[out]
        left, aim = gram - held.T @ held, cross - held.T @ right[out]
        for guess, strength in zip(found, STRENGTHS, strict=True):
            ridge = left + np.eye(len(left)) * (strength * size + 1e-6 * len(full))
            guess[out] = held @ np.linalg.solve(ridge, aim)
    return found


def _told(guess: Array, true: Array) -> tuple[Array, float]:
    centred = guess - guess.mean(0)
    size = float(np.sqrt((centred**2).sum(1).mean() * (true**2).sum(1).mean()))
    score = (centred * true).sum(1) / max(size, 1e-12)
    return score, float(score.mean())
