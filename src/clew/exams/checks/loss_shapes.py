"""Does the loss compare each prediction with its own target?

On synthetic predictions and targets of the same range, changes the prediction of one example and the target of another:
a per-example loss adds the two effects up. Where it does not, and it does once prediction and target have the same
shape, values were broadcast.

Why it matters: (B, 1) against (B,) is a table of every prediction against every target, and its optimum is one value
for all inputs.
Cannot tell: whether a loss that compares examples with one another does so on purpose (contrastive losses, rankings).
Silent when: the loss itself aligns the shapes, or shapes differ as with class numbers.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from clew.exams.batches import is_values, mapped, tensors
from clew.exams.checks._network_rows import is_given, layout
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear, Value

CLEAR = 1e-3


@exam("loss_shapes", needs=("loss", "target"), seconds=0.5)
def examine(lab: Lab) -> Answer:
    if is_given(lab) and lab.subject.loss is None:
        return Unclear("the model computes its own loss, so its output cannot be replaced")
    held = layout(lab.batch)
    if isinstance(held, str):
        return Unclear(held)
    with lab.seeded(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of the very thing that is looked for
        output = lab.output(lab.fresh(training=False), lab.batch)
        values = [value for value in tensors(output) if is_values(value) and value.dim()]
        wanted = [value for value in tensors(lab.batch.target) if value.dim()]
        if not values or not wanted:
            return Unclear("the loss does not compare one tensor of values with another")
        shapes = tuple(values[0].shape), tuple(wanted[0].shape)
        figures: dict[str, Value] = {"prediction": str(shapes[0]), "target": str(shapes[1])}
        single = len(values) == 1 and len(wanted) == 1
        if single and not is_values(wanted[0]):
            return Saw("match", **figures).saying(
                f"A prediction of shape {shapes[0]} and class numbers of shape {shapes[1]} differ as this loss expects."
            )
        made, aim = (mapped(tree, _double) for tree in (output, lab.batch.target))
        made, aim = mapped(made, lambda value: drawn(lab, value, 1)), mapped(aim, lambda value: drawn(lab, value, 2))
        across = crossing(lab, made, aim, held.examples)
        if across is None:
            return Unclear("the loss cannot be computed, or does not change, on synthetic predictions and targets")
        if across <= CLEAR:
            return Saw("match", **figures)
        if single and values[0].numel() == wanted[0].numel() and shapes[0] != shapes[1]:
            for first, second in (
                (mapped(made, lambda value: value.reshape(shapes[1])), aim),
                (made, mapped(aim, lambda value: value.reshape(shapes[0]))),
            ):
                equal = crossing(lab, first, second, held.examples)
                if equal is not None and equal <= CLEAR:
                    losses = _tried(lab, made, aim), _tried(lab, first, second)
                    return _broadcast(lab, figures, losses)
    return Unclear(
        "the loss compares an example's prediction with other examples' targets, and the shapes "
        f"{shapes[0]} and {shapes[1]} do not show whether that is intended"
    )


def _broadcast(lab: Lab, figures: dict[str, Value], losses: tuple[float | None, float | None]) -> Saw:
    plain, equal = losses
    told = Saw("broadcast", loss=plain, loss_of_equal_shapes=equal, **figures).at(lab.place())
    return told.saying(
        f"A prediction of shape {figures['prediction']} meets a target of shape {figures['target']}, and "
        f"every pair is compared: on synthetic values the loss is {plain:.3g}, with equal shapes {equal:.3g}."
    )


def _tried(lab: Lab, output: Any, target: Any) -> float | None:
    try:
        return float(lab.subject.value(output, target).detach())
    except (RuntimeError, ValueError, IndexError, TypeError):
        return None


def drawn(lab: Lab, value: torch.Tensor, more: int) -> torch.Tensor:
    """Other values of the same shape and range, so that probabilities stay probabilities."""
    if not is_values(value) or not value.numel():
        return value
    value = value.detach()
    low, high = float(value.min()), float(value.max())
    if low == high:
        low, high = (low, low + 0.1) if abs(low) < 0.5 else (low - 0.1 * abs(low), low)
    chance = torch.rand(value.shape, generator=lab.generator(more)).to(value)
    return low + (high - low) * chance


def _double(value: torch.Tensor) -> torch.Tensor:
    return value.double() if value.is_floating_point() else value


def crossing(lab: Lab, made: Any, wanted: Any, count: int) -> float | None:
    """How much the effect of one example's prediction depends on another example's target, about 1 for a loss over all
    pairs and 0 for one that goes by example; None when the loss cannot be computed or does not move."""

    def moved(tree: Any, row: int, more: int) -> Any:
        def move(value: torch.Tensor) -> torch.Tensor:
            axis = next((axis for axis, size in enumerate(value.shape) if size == count), None)
            if not is_values(value) or axis is None:
                return value
            changed = value.clone()
            changed.select(axis, row).copy_(drawn(lab, value, more).select(axis, row))
            return changed

        return mapped(tree, move)

    one, other = moved(made, 0, 3), moved(wanted, count - 1, 4)
    losses = [_tried(lab, first, second) for first in (made, one) for second in (wanted, other)]
    known = [loss for loss in losses if loss is not None]
    if len(known) < 4:
        return None
    plain, of_target, of_prediction, both = known
    largest = max(abs(of_prediction - plain), abs(of_target - plain))
    if not largest > 1e-12 * max(abs(plain), 1e-300):
        return None
    return count * abs(both - of_prediction - of_target + plain) / largest
