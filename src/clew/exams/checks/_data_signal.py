"""Whether anything simple predicts labels from inputs, against the same labels dealt out anew.

A simple model is fitted on one half of the examples and predicts the other. How well predictions P and
labels Y agree is the sum of <P_i, Y_i>. Its distribution without any relation is that of <P_i, Y_pi(i)> over
permutations pi of the held-out labels, so one fit serves for every permutation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F

from clew.errors import ClewError
from clew.exams.checks._data_tables import Inputs, Labels

PERMUTATIONS, DEALS = 999, 499
FEWEST_OF_A_TASK = 4
NEIGHBOURS = 5
BUCKETS = 512
MOST_EXAMPLES = 2048
MOST_CLASSES = 256
TREE_FEATURES = 256

Fit = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""fit(x, y, x of others) -> what it says about the others."""


class Examples(NamedTuple):
    """x (rows, positions, features), y (rows, positions, columns)."""

    x: torch.Tensor
    y: torch.Tensor


class Signal(NamedTuple):
    """How far the agreement lies above that of permuted labels: in deviations, and as the share of permutations that
    agree as well. `agreement` is the held-out correlation of prediction and label."""

    z: float
    p: float
    agreement: float


def examples_of(inputs: Inputs, labels: Labels, generator: torch.Generator) -> Examples | None:
    """Features and label columns for each labelled position; None when positions of inputs and labels do not meet."""
    if labels.dense:
        x = _by_position(inputs, labels.y.shape[1])
        if x is None:
            return None
        most = max(1, MOST_EXAMPLES // len(x))
        chosen = torch.randperm(x.shape[1], generator=generator)[:most].to(x.device)
        return Examples(_standard(x[:, chosen]), _columns(labels, labels.y[:, chosen]))
    parts = []
    if inputs.values is not None:
        parts.append(_standard(inputs.values[:, None]))
    if inputs.tokens is not None:
        parts.append(_standard(bag(inputs.tokens)[:, None]))
        if inputs.tokens.shape[1] * BUCKETS <= 8 * BUCKETS:
            parts.append(_standard(_one_hot(inputs.tokens).flatten(1)[:, None]))
    if not parts:
        return None
    return Examples(torch.cat(parts, 2), _columns(labels, labels.y))


def bag(tokens: torch.Tensor) -> torch.Tensor:
    """How often each token is in each row, (rows, buckets)."""
    size = min(int(tokens.max()) + 1, BUCKETS) if tokens.numel() else 1
    counts = torch.zeros(len(tokens), max(size, 1), device=tokens.device)
    hashed = tokens.clamp_min(0) % max(size, 1)
    return counts.scatter_add_(1, hashed, torch.ones_like(hashed, dtype=counts.dtype))


def _one_hot(tokens: torch.Tensor) -> torch.Tensor:
    size = max(1, min(int(tokens.max()) + 1, BUCKETS))
    return F.one_hot(tokens.clamp_min(0) % size, size).float()


def _by_position(inputs: Inputs, positions: int) -> torch.Tensor | None:
    """(rows, positions, features): what stands at each labelled position and beside it."""
    if inputs.tokens is not None and inputs.tokens.shape[1] == positions:
        here = _one_hot(inputs.tokens)
        return torch.cat([here, here.roll(1, 1), here.roll(-1, 1)], 2)
    if inputs.values is None or not inputs.shape:
        return None
    shape = inputs.shape
    if len(shape) == 3 and shape[1] * shape[2] == positions:
        image = inputs.values.view(-1, *shape)
        return F.unfold(image, 3, padding=1).transpose(1, 2)
    if shape[0] == positions:
        here = inputs.values.view(len(inputs.values), positions, -1)
        return torch.cat([here, here.roll(1, 1), here.roll(-1, 1)], 2)
    return None


def _standard(x: torch.Tensor) -> torch.Tensor:
    flat = x.reshape(-1, x.shape[-1])
    spread = flat.std(0)
    return torch.where(spread > 0, (x - flat.mean(0)) / spread.clamp_min(1e-12), torch.zeros_like(x))


def _columns(labels: Labels, y: torch.Tensor) -> torch.Tensor:
    """Labels as columns of mean 0: one per class, or the values; zero where masked."""
    if labels.kind == "values":
        return _standard(y[:, None])
    seen, numbered = torch.unique(y, return_inverse=True)
    masked = y < 0
    if len(seen) > MOST_CLASSES:
        numbered = numbered % MOST_CLASSES
    columns = F.one_hot(numbered).float()
    columns[masked] = 0.0
    kept = (~masked).sum().clamp_min(1)
    columns = columns - columns.sum((0, 1)) / kept
    columns[masked] = 0.0
    return columns


def measure(examples: Examples, fit: Fit, generator: torch.Generator, permutations: int = PERMUTATIONS) -> Signal:
    """Fit on one half, predict the other, compare with permuted rows of it.

    One direction only: predicting the first half from the second asks nearly the same question again (for a linear
    model the two sums are transposes of each other), and adding the two would make chance look significant.
    """
    order = torch.randperm(len(examples.x), generator=generator).to(examples.x.device)
    known, held_out = order[: len(order) // 2], order[len(order) // 2 :]
    x, y = examples.x[known].flatten(0, 1), examples.y[known].flatten(0, 1)
    truth = examples.y[held_out]
    predicted = fit(x, y, examples.x[held_out].flatten(0, 1)).view_as(truth)
    table = (predicted.flatten(1) @ truth.flatten(1).T).double().cpu()
    total = float(table.diagonal().sum())
    mean, variance = moments(table)
    index = torch.argsort(torch.rand(permutations, len(table), generator=generator), dim=1)
    drawn = table[torch.arange(len(table)), index].sum(1)
    beaten = int((drawn >= total - 1e-9 * abs(total)).sum())
    spread = math.sqrt(max(variance, 0.0))
    size = float(predicted.double().norm() * truth.double().norm())
    return Signal(
        (total - mean) / spread if spread > 1e-12 * max(1.0, abs(total)) else 0.0,
        (1 + beaten) / (1 + permutations),
        total / size if size > 0 else 0.0,
    )


def within_batches(parts: Sequence[tuple[torch.Tensor, torch.Tensor]], generator: torch.Generator) -> float:
    """The share of permutations within each batch in which labels agree as well with that of the nearest example of the
    same batch. Few do where every batch is a task of its own, also when no relation holds from one to the next."""
    total, drawn = 0.0, torch.zeros(DEALS)
    for x, y in parts:
        values = (y - y.mean(0)).float()
        size = float(values.square().sum())
        if len(x) < FEWEST_OF_A_TASK or size <= 0.0:
            continue
        nearest_one = torch.cdist(x.float(), x.float()).fill_diagonal_(math.inf).argmin(1)
        total += float((values * values[nearest_one]).sum()) / size
        dealt = torch.argsort(torch.rand(DEALS, len(x), generator=generator), dim=1)
        drawn += (values[dealt] * values[dealt[:, nearest_one]]).sum((1, 2)) / size
    return (1 + int((drawn >= total).sum())) / (1 + DEALS)


def moments(table: torch.Tensor) -> tuple[float, float]:
    """Mean and variance of sum_i table[i, pi(i)] over all permutations pi (Hoeffding 1951)."""
    count = len(table)
    centred = table - table.mean(0, keepdim=True) - table.mean(1, keepdim=True) + table.mean()
    return float(table.sum()) / count, float(centred.square().sum()) / max(count - 1, 1)


def linear(x: torch.Tensor, y: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Ridge regression on the label columns, in whichever of its two forms is smaller."""
    centre, level = x.mean(0), y.mean(0)
    x, others = x - centre, others - centre
    strength = 0.1 * float(x.square().sum(1).mean()) + 1e-6
    if x.shape[1] <= x.shape[0]:
        gram = x.T @ x + strength * torch.eye(x.shape[1], device=x.device)
        weights: torch.Tensor = torch.linalg.solve(gram, x.T @ (y - level))
    else:
        gram = x @ x.T + strength * torch.eye(len(x), device=x.device)
        weights = x.T @ torch.linalg.solve(gram, y - level)
    return others @ weights + level


def nearest(x: torch.Tensor, y: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """The mean label of the nearest examples."""
    found = torch.cdist(others, x).topk(min(NEIGHBOURS, len(x)), largest=False).indices
    return y[found].mean(1)


def trees(x: torch.Tensor, y: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Extremely randomised trees, on a part of the features where there are very many."""
    try:
        from sklearn.ensemble import ExtraTreesRegressor
    except ImportError as error:
        raise ClewError(
            "neither neighbours nor a linear model predict the labels, and trees need scikit-learn: "
            "pip install 'clew[torch]'."
        ) from error
    columns = slice(None, None, max(1, -(-x.shape[1] // TREE_FEATURES)))
    forest = ExtraTreesRegressor(n_estimators=40, min_samples_leaf=3, max_features="sqrt", random_state=0, n_jobs=1)
    flat = y.cpu().numpy()
    forest.fit(x[:, columns].cpu().numpy(), flat[:, 0] if flat.shape[1] == 1 else flat)
    said = torch.as_tensor(forest.predict(others[:, columns].cpu().numpy()), dtype=y.dtype, device=y.device)
    return said.view(len(others), -1)
