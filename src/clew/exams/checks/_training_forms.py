"""Formulas of the usual losses over an output and a target of whatever shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from clew.exams.batches import Batch, is_values, tensors
from clew.exams.checks._data_tables import is_label, named

TWICE = "cross-entropy of probabilities treated as logits"


class Form(NamedTuple):
    """A formula. `each(output)` is the loss of every element that counts; an even guess is an output of zeros where
    `logits`."""

    name: str
    kind: str
    each: Callable[[torch.Tensor], torch.Tensor]
    classes: int = 0
    logits: bool = False
    even: Callable[[torch.Tensor], torch.Tensor] | None = None
    """The part that label smoothing mixes in."""


def targets(batch: Batch, output: torch.Tensor) -> Iterator[torch.Tensor]:
    """What the output may be compared with: the target, what the inputs call labels, or the inputs themselves."""
    held = list(tensors(batch.target)) or [part.tensor for part in named(batch.inputs) if is_label(part.name)]
    if not held:
        held = [tensor for tensor in tensors(batch.inputs) if tensor.numel() == output.numel() or not is_values(tensor)]
    yield from (tensor for tensor in held if tensor.dim() and not tensor.is_complex())


def forms(output: torch.Tensor, target: torch.Tensor) -> Iterator[Form]:
    if not target.is_floating_point():
        yield from _classes(output, target)
        if output.numel() == target.numel():
            yield from _numbers(output, target.to(output.dtype))
    else:
        yield from _shares(output, target)
        yield from _numbers(output, target)


def _classes(output: torch.Tensor, target: torch.Tensor) -> Iterator[Form]:
    for layout in _layouts(output, target):
        wanted, _ = layout(output, target)
        if wanted.shape[1] < 2 or not len(wanted):
            continue

        def nll(held: torch.Tensor, layout: Any = layout) -> torch.Tensor:
            lines, numbers = layout(held, target)
            picked: torch.Tensor = -lines.gather(1, numbers[:, None])[:, 0]
            return picked

        def cross(held: torch.Tensor, layout: Any = layout) -> torch.Tensor:
            lines, numbers = layout(held, target)
            return F.cross_entropy(lines, numbers, reduction="none")

        def twice(held: torch.Tensor, layout: Any = layout) -> torch.Tensor:
            lines, numbers = layout(held, target)
            return F.cross_entropy(lines.softmax(1), numbers, reduction="none")

        def even(held: torch.Tensor, layout: Any = layout) -> torch.Tensor:
            lines: torch.Tensor = layout(held, target)[0]
            return -lines.log_softmax(1).mean(1)

        count = wanted.shape[1]
        yield Form("cross-entropy", "classes", cross, count, True, even)
        yield Form(TWICE, "classes", twice, count)
        yield Form("negative log-likelihood", "classes", nll, count)


def one_hot(target: torch.Tensor, output: torch.Tensor) -> torch.Tensor | None:
    """1 at the class of each example, 0 elsewhere, in the shape of the output; those that do not count get the first
    class. None when the output has no axis for the classes, or too short a one."""
    numbers, axis = target.long(), class_axis(target, output)
    if not axis or output.shape[axis] < 2 or int(numbers.max()) >= output.shape[axis]:
        return None
    made = F.one_hot(numbers.clamp_min(0), output.shape[axis]).to(output.dtype)
    return made.movedim(-1, 1).contiguous() if axis == 1 else made.reshape(output.shape)


def class_axis(target: torch.Tensor, output: torch.Tensor) -> int:
    """1 as torch has it, -1 where positions were flattened or classes stand last, 0 for none."""
    if output.dim() == target.dim() + 1 and output.shape[0] == target.shape[0] and output.shape[2:] == target.shape[1:]:
        return 1
    return -1 if output.dim() > 1 and output.numel() == target.numel() * output.shape[-1] else 0


def _layouts(output: torch.Tensor, target: torch.Tensor) -> Iterator[Callable[..., tuple[torch.Tensor, torch.Tensor]]]:
    """Ways to read (examples, classes) and class numbers out of the two, those that count only."""

    def valid(lines: torch.Tensor, numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = numbers.reshape(-1).long()
        keep = (numbers >= 0) & (numbers < lines.shape[1])
        return lines[keep], numbers[keep]

    def middle(out: torch.Tensor, to: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return valid(out.movedim(1, -1).flatten(0, -2), to)

    def last(out: torch.Tensor, to: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return valid(out.reshape(-1, out.shape[-1]), to)

    def shifted(out: torch.Tensor, to: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return last(out[:, :-1], to[:, 1:])

    if output.dim() == target.dim() + 1 and output.shape[0] == target.shape[0] and output.shape[2:] == target.shape[1:]:
        yield middle
    if output.dim() > 1 and output.numel() == target.numel() * output.shape[-1]:
        yield last
    if output.dim() == 3 and output.shape[:2] == target.shape and output.shape[1] > 1:
        yield shifted


def _shares(output: torch.Tensor, target: torch.Tensor) -> Iterator[Form]:
    """Targets that are shares of classes, or between no and yes."""
    if output.shape != target.shape or output.dim() != 2 or output.shape[1] < 2:
        return
    if bool((target < 0).any()) or bool(((target.sum(1) - 1).abs() > 1e-3).any()):
        return

    def soft(held: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(held, target.to(held.dtype), reduction="none")

    yield Form("cross-entropy with soft labels", "shares", soft, output.shape[1], True)


def _numbers(output: torch.Tensor, target: torch.Tensor) -> Iterator[Form]:
    try:
        shape = torch.broadcast_shapes(output.shape, target.shape)  # type: ignore[no-untyped-call]
    except RuntimeError:
        if output.numel() != target.numel():
            return
        target, shape = target.reshape(output.shape), output.shape
    wanted = target.to(output.dtype)

    def of(function: Callable[..., torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda held: function(held.expand(shape), wanted.expand(shape), reduction="none")

    if bool(((wanted >= 0) & (wanted <= 1)).all()):
        yield Form("binary cross-entropy", "binary", of(F.binary_cross_entropy_with_logits), 2, True)
        if bool(((output >= 0) & (output <= 1)).all()):
            yield Form("binary cross-entropy of probabilities", "binary", of(F.binary_cross_entropy), 2)
    yield Form("squared error", "values", of(F.mse_loss))
    yield Form("absolute error", "values", of(F.l1_loss))
    yield Form("smooth absolute error", "values", of(F.smooth_l1_loss))
