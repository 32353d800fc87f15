"""Does a single input feature leak the target?

Scores every feature alone: the label of the nearest value among half of the examples, and for targets that are values
also a straight line, tested on the other half. Of tokens, every position and the presence of every token is scored.
Where tokens at chosen positions are asked for, as in masked modelling, the input is looked at there.

Why it matters: a feature that solves the task alone is most often the target itself, or something known only after it.
Cannot tell: a leak spread over several features; whether the task is honestly that easy.
Silent when: no feature explains over 95 %. Unclear when the target is the input (autoencoders, language models that
shift inside the loss), when there is one feature only, and when so few examples could be matched by chance. Examples
that stand there more than once count once. Labels that are handed in beside the inputs, as they are, do not count.
Unclear also where the other features tell what that one leaves of a number: a cause that was measured is refined by
other causes, and a copy with noise on it is not.
Sources: leakage-looks-too-good
"""

from __future__ import annotations

import math

import torch

from clew.exams.batches import rows
from clew.exams.checks._data_chosen import shown
from clew.exams.checks._data_tables import (
    Inputs,
    Labels,
    by_example,
    inputs_of,
    labels_of,
    shown_inputs,
    some_rows,
    target_of,
)
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Saw, Unclear
from clew.records.place import Place

MOST_ROWS = 1024
FEWEST = 24
CHUNK = 4096
MOST_TOKENS = 2048
SOLVED = 0.95
EXACT, ENOUGH_FEATURES = 0.999, 6
BY_CHANCE = 1e-3
ITSELF = 0.99999
NEARLY, MANY, MANY_OF = 0.9, 4, 0.02
"""Short of the target itself, a feature gives nothing away where that many do as well: a series without noise."""


NEAR, REFINED, MOST_OTHERS = 6, 0.15, 64
"""Neighbours on either side in the order of a feature, and the share of what these leave that the others explain."""


@exam("target_in_input", seconds=1.0)
def examine(lab: Lab) -> Answer:
    at_chosen = shown(lab)
    if at_chosen is not None:
        name, place = "the hidden token itself", lab.place()
        told = Reading(best_feature_skill=at_chosen, feature=name, features=1, examples=rows(lab.batch))
        return told.at(place) if place is not None else told
    labels = labels_of(lab, lab.distinct)
    if labels is None:
        return Unclear("the batches hold no label per example")
    if _is_input(lab):
        return Unclear("the target is the input itself, as in an autoencoder or where the loss shifts it")
    inputs = inputs_of(lab.distinct, _handed_in(lab))
    if inputs.examples != len(labels.y) or inputs.examples < FEWEST:
        return Unclear(f"{inputs.examples} examples with inputs and labels are too few")
    index = some_rows(inputs.examples, MOST_ROWS, lab.generator()).to(labels.y.device)
    y = labels.y[index]
    if labels.dense:
        return _by_position(inputs, y, index)
    columns, names = _columns(inputs, index)
    kept = _once(columns)
    columns, y = columns[kept], y[kept]
    if len(kept) < FEWEST:
        return Unclear(f"{len(kept)} different examples are too few")
    if columns.shape[1] < 2:
        return Unclear("the input has a single feature, and predicting from it is the task")
    return _judge(lab, columns, names, labels._replace(y=y))


def _judge(lab: Lab, columns: torch.Tensor, names: Inputs, labels: Labels) -> Answer:
    half = len(columns) // 2
    best, where, alike = -math.inf, 0, 0
    for start in range(0, columns.shape[1], CHUNK):
        lab.check(start / columns.shape[1])
        scores = skill(columns[:, start : start + CHUNK], labels, half)
        if scores is None:
            return Unclear("the held-out labels are all the same")
        alike += int((scores > NEARLY).sum())
        if float(scores.max()) > best:
            best, where = float(scores.max()), start + int(scores.argmax())
    if best > SOLVED and _luck(labels, half, columns.shape[1]) > BY_CHANCE:
        return Unclear(f"{len(columns)} examples are so few that one of {columns.shape[1]} features may fit by chance")
    name = _name(names, where)
    if SOLVED < best < ITSELF and alike > max(MANY, MANY_OF * columns.shape[1]):
        return Unclear(f"{alike} of {columns.shape[1]} features predict the target nearly as well, so none leaks it")
    if SOLVED < best < EXACT and columns.shape[1] < ENOUGH_FEATURES:
        return Unclear(
            f"{name} alone explains {100 * best:.0f} % of the target, which is expected among "
            f"{columns.shape[1]} features"
        )
    if SOLVED < best < EXACT and labels.kind == "values" and _refined(columns, where, labels.y) > REFINED:
        return Unclear(f"{name} predicts the target almost alone, and the other features predict the rest")
    figures: dict[str, str | int] = {"feature": name, "features": columns.shape[1], "examples": len(columns)}
    if best >= EXACT and columns.shape[1] < ENOUGH_FEATURES:
        return Saw("one_feature_solves", skill=best, **figures).at(Place(symbol=name))
    reading = Reading(best_feature_skill=best, **figures)
    return reading.at(Place(symbol=name)) if best > SOLVED else reading


def _once(columns: torch.Tensor) -> torch.Tensor:
    """The first row of each kind: an example that stands in both halves is told by any feature that differs."""
    _, kinds = torch.unique(columns, dim=0, return_inverse=True)
    first = torch.full((int(kinds.max()) + 1,), len(kinds), device=kinds.device)
    rows = torch.arange(len(kinds), device=kinds.device)
    return first.scatter_reduce(0, kinds, rows, "amin").sort().values


def skill(columns: torch.Tensor, labels: Labels, half: int) -> torch.Tensor | None:
    """For each feature, the share of the target's variation that it explains on the rows after `half`."""
    y = labels.y
    nearest = _nearest(columns[:half], columns[half:])
    if labels.kind == "classes":
        truth, known = y[half:, 0], y[:half, 0]
        constant = 1 - float(truth.bincount().max()) / len(truth) if bool((truth >= 0).all()) else 0.0
        if constant <= 0:
            return None
        return 1 - (known[nearest] != truth[:, None]).float().mean(0) / constant
    truth, known = y[half:].double(), y[:half].double()
    whole = (truth - known.mean(0)).square().sum()
    if float(whole) <= 0:
        return None
    missed = (known[nearest] - truth[:, None]).square().sum((0, 2))
    return 1 - torch.minimum(missed, _by_line(columns.double(), known, truth, half)) / whole


def _refined(columns: torch.Tensor, where: int, y: torch.Tensor) -> float:
    """The share of what one feature leaves of a number that the others explain on the second half of the examples. What
    it leaves is the distance from the mean of the examples that are nearest in that feature."""
    if y.shape[1] != 1 or not 1 < columns.shape[1] <= MOST_OTHERS or len(y) < 8 * columns.shape[1]:
        return 0.0
    order = columns[:, where].sort(stable=True).indices
    values = y[order, 0].double()
    sums = torch.cat([values.new_zeros(1), values.cumsum(0)])
    at = torch.arange(len(values), device=values.device)
    first, last = (at - NEAR).clamp_min(0), (at + NEAR + 1).clamp(max=len(values))
    mean = (sums[last] - sums[first] - values) / (last - first - 1)
    left, level = torch.empty_like(values), torch.empty_like(values)
    left[order], level[order] = values - mean, mean
    others = columns.double()[:, [at for at in range(columns.shape[1]) if at != where]]
    others = (others - others.mean(0)) / others.std(0).clamp_min(1e-12)
    level = (level - level.mean()) / level.std().clamp_min(1e-12)
    x = torch.cat([torch.ones_like(level)[:, None], others, others * level[:, None]], 1)
    half = len(x) // 2
    gram = x[:half].T @ x[:half] + 0.01 * half * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    guess = x[half:] @ torch.linalg.solve(gram, x[:half].T @ left[:half])
    whole = float((left[half:] - left[:half].mean()).square().sum())
    return 1 - float((left[half:] - guess).square().sum()) / whole if whole > 0 else 0.0


def _by_line(columns: torch.Tensor, known: torch.Tensor, truth: torch.Tensor, half: int) -> torch.Tensor:
    """The squared error of a straight line through each feature alone."""
    x, others = columns[:half], columns[half:]
    centre, level = x.mean(0), known.mean(0)
    spread = (x - centre).square().sum(0)
    slope = (x - centre).T @ (known - level) / spread.clamp_min(1e-30)[:, None]
    slope = torch.where(spread[:, None] > 0, slope, torch.zeros_like(slope))
    rest = truth - level
    far = others - centre
    # |r - x s|^2 over rows and target columns, without the (rows, features, columns) array
    return rest.square().sum() - 2 * ((far.T @ rest) * slope).sum(1) + far.square().sum(0) * slope.square().sum(1)


def _nearest(x: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """(others, features): the row of x whose value of the feature is nearest."""
    values, order = x.T.contiguous().sort(1)
    wanted = others.T.contiguous()
    right = torch.searchsorted(values, wanted).clamp(max=x.shape[0] - 1)
    left = (right - 1).clamp_min(0)
    closer = (values.gather(1, left) - wanted).abs() <= (values.gather(1, right) - wanted).abs()
    return order.gather(1, torch.where(closer, left, right)).T


def _columns(inputs: Inputs, index: torch.Tensor) -> tuple[torch.Tensor, Inputs]:
    parts = []
    if inputs.values is not None:
        parts.append(inputs.values[index])
    if inputs.tokens is not None:
        tokens = inputs.tokens[index]
        parts.append(tokens.float())
        known = torch.unique(tokens)[:MOST_TOKENS]
        present = (
            torch.stack([(tokens == token).any(1) for token in known], 1) if tokens.shape[1] > 1 else tokens[:, :0]
        )
        parts.append(present.float())
    return torch.cat(parts, 1), inputs


def _name(inputs: Inputs, column: int) -> str:
    floats = inputs.values.shape[1] if inputs.values is not None else 0
    if column < floats:
        return inputs.feature(column)
    assert inputs.tokens is not None
    column -= floats
    if column < inputs.tokens.shape[1]:
        return f"token at position {column}"
    return f"presence of token {int(torch.unique(inputs.tokens)[column - inputs.tokens.shape[1]])}"


def _luck(labels: Labels, half: int, features: int) -> float:
    """The expected number of features that would solve it by accident."""
    if labels.kind == "values":
        return features * 2.0 ** -(len(labels.y) - half)
    truth = labels.y[half:, 0]
    share = float(truth.bincount().max()) / len(truth) if bool((truth >= 0).all()) else 0.5
    allowed = int((1 - SOLVED) * (1 - share) * len(truth))
    ways = math.comb(len(truth), allowed) * max(1, labels.classes - 1) ** allowed
    return float(features * ways * max(share, 0.5) ** (len(truth) - allowed))


def _by_position(inputs: Inputs, y: torch.Tensor, index: torch.Tensor) -> Answer:
    """Every position has a label: does what stands there tell it?"""
    tokens = inputs.tokens
    if tokens is None or tokens.shape[1] != y.shape[1]:
        return Unclear("every position has a label, and positions of labels and inputs do not match")
    here = tokens[index]
    half = len(here) // 2
    size = int(here.max()) + 1
    classes = int(y.max()) + 1
    known, truth = y[:half].flatten(), y[half:].flatten()
    seen, test = known >= 0, truth >= 0
    if not bool(seen.any()) or not bool(test.any()):
        return Unclear("all labels are masked")
    pairs = here[:half].flatten()[seen] * classes + known[seen]
    unique, counts = torch.unique(pairs, return_counts=True)
    guess = torch.full((size,), int(known[seen].mode().values), device=here.device)
    for place in counts.argsort():
        guess[unique[place] // classes] = unique[place] % classes
    truth, said = truth[test], guess[here[half:].flatten()[test]]
    constant = 1 - float(truth.bincount().max()) / len(truth)
    if constant <= 0:
        return Unclear("the held-out labels are all the same")
    best = 1 - float((said != truth).float().mean()) / constant
    return Reading(best_feature_skill=best, feature="token at the same position", features=1, examples=len(here))


def _handed_in(lab: Lab) -> list[int]:
    """Inputs that are the labels as they are, in a tensor of their own: a step that asks twice takes them in for its
    first loss, and a conditional model knows its class."""
    target = target_of(lab.batch)
    if target is None or target.is_floating_point() or by_example(target).shape[1] != 1:
        return []
    shown = [part.tensor for part in shown_inputs(lab.batch)]
    return [
        number
        for number, held in enumerate(shown)
        if len(shown) > 1 and held.shape == target.shape and not held.is_floating_point() and torch.equal(held, target)
    ]


def _is_input(lab: Lab) -> bool:
    target = target_of(lab.batch)
    return target is not None and any(
        part.tensor.numel() == target.numel() and _mostly(part.tensor, target)
        for part in shown_inputs(lab.batch)
        if part.tensor.shape == target.shape and target.dim() > 1 and target.shape[1] > 1
    )


def _mostly(given: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether most of a target is the input, where it is not ignored."""
    counted = torch.ones_like(target, dtype=torch.bool) if target.is_floating_point() else target >= 0
    return bool(counted.any()) and bool((given == target)[counted].float().mean() > 0.5)
