"""Does the output at a position depend on later positions?

Where the target is the input moved by one position, replaces all inputs after a cut and compares the outputs
up to the cut, in eval mode.

Why it matters: a model that sees the target trains to a loss near zero and can generate nothing.
Cannot tell: whether looking ahead is allowed in a model that does not predict the next position; a target that was not
moved (see leak_tracer).
Silent when: nothing says that the next position is predicted, as in encoders, taggers and autoencoders.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from clew.exams.batches import Batch, is_values, mapped, tensors
from clew.exams.checks._network_rows import apart_by, both_ways, seeded_walk, tolerance
from clew.exams.exam import exam
from clew.exams.lab import Lab, Seen
from clew.records.clue import Answer, Saw, Unclear

SHORTEST = 3
MOSTLY = 0.95


class Stream(NamedTuple):
    """An input whose next position is the target: its place among the input tensors and its axis of positions."""

    number: int
    axis: int
    length: int
    others: int


@exam("causal_independence", seconds=1.0)
def examine(lab: Lab) -> Answer:
    model = lab.fresh(training=False)
    stream = find_stream(lab, model)
    if stream is None:
        return Unclear("the model does not seem to predict the next position: no target is the input shifted by one")
    output, seen = seeded_walk(lab, model, lab.batch)
    known = outputs_by_position(output, stream)
    if not known:
        return Unclear("the model's output holds no value per position")
    for cut in dict.fromkeys((stream.length // 2, stream.length - 2, 0)):
        lab.check()
        other = future_replaced(lab.batch, stream, cut)
        if other is None:
            continue
        again, seen_again = seeded_walk(lab, model, other)
        for first, second in zip(known, outputs_by_position(again, stream), strict=True):
            before, after = first[: cut + 1], second[: cut + 1]
            gap = apart_by(before, after)
            if gap > tolerance(before):
                at = _first_seeing(seen, seen_again, cut, stream)
                return _sees(lab, model, cut, gap, before, after, _unmasked(seen, at, stream.length) or at)
    return Saw("causal", positions=stream.length)


def _sees(
    lab: Lab, model: torch.nn.Module, cut: int, gap: float, before: torch.Tensor, after: torch.Tensor, at: Seen | None
) -> Saw:
    moved = [apart_by(a, b) > 0 for a, b in zip(before, after, strict=True)]
    reader = both_ways(model, at.name) if at is not None else None
    kind = "" if at is None else f"bidirectional {at.kind}" if reader else at.kind
    behind = f"; it starts in {at.name or at.kind} ({kind})" if at is not None else ""
    told = Saw("sees_future", cut=cut, effect=gap, positions=sum(moved), stage=at.name or at.kind if at else None)
    told.at(reader, (at.place or lab.place(at.name)) if at is not None else None)
    return told.saying(
        f"Changing only the inputs after position {cut} moves {sum(moved)} of the {cut + 1} outputs up to it, "
        f"by up to {gap:.3g}{behind}."
    )


# --- is the next position predicted?


def find_stream(lab: Lab, model: torch.nn.Module) -> Stream | None:
    for stream, held, wanted in _pairs(lab.batch):
        if is_next(held, wanted, stream.axis) or (
            is_same(held, wanted) and stream.axis == 1 and loss_skips_last(lab, model, stream)
        ):
            return stream
    return None


def may_predict_next(batch: Batch) -> bool:
    """Whether the data leave it possible; a loss that moves the target itself has to be asked."""
    return any(is_next(held, wanted, stream.axis) or is_same(held, wanted) for stream, held, wanted in _pairs(batch))


def _pairs(batch: Batch) -> Iterator[tuple[Stream, torch.Tensor, torch.Tensor]]:
    inputs = list(tensors(batch.inputs))
    targets = list(tensors(batch.target))
    for number, held in enumerate(inputs):
        for axis in (1, 0):
            if held.dim() <= max(axis, 1) or held.shape[axis] < SHORTEST:
                continue
            for wanted in (*targets, *(other for other in inputs if other is not held)):
                yield Stream(number, axis, held.shape[axis], held.shape[1 - axis]), held, wanted


def is_next(held: torch.Tensor, wanted: torch.Tensor, axis: int) -> bool:
    """Whether `wanted` at a position is `held` at the next one, wherever it is not masked. It may lack the last."""
    if wanted.is_floating_point() != held.is_floating_point():
        return False
    shorter = [*held.shape]
    shorter[axis] -= 1
    if wanted.numel() == held.numel():
        moved = wanted.reshape(held.shape).narrow(axis, 0, held.shape[axis] - 1)
    elif wanted.numel() == math.prod(shorter):
        moved = wanted.reshape(shorter)
    else:
        return False
    following = held.narrow(axis, 1, held.shape[axis] - 1)
    present = held.narrow(axis, 0, held.shape[axis] - 1)
    return _agree(moved, following) and not _agree(moved, present)


def is_same(held: torch.Tensor, wanted: torch.Tensor) -> bool:
    return held.shape == wanted.shape and not held.is_floating_point() and _agree(wanted, held)


def _agree(first: torch.Tensor, second: torch.Tensor) -> bool:
    if first.is_floating_point():
        return bool(torch.isclose(first, second.to(first)).float().mean() > MOSTLY)
    counted = first >= 0
    if not bool(counted.any()):
        return False
    return bool((first == second)[counted].float().mean() > MOSTLY)


def loss_skips_last(lab: Lab, model: torch.nn.Module, stream: Stream) -> bool:
    """Whether the loss moves the target itself: then the output at the last position does not count."""
    try:
        with lab.seeded():
            output = lab.output(model, lab.batch)
            held = [value for value in tensors(output) if value.requires_grad and value.dim() > 1]
            loss = lab.subject.value(output, lab.batch.target)
            found = torch.autograd.grad(loss, held, allow_unused=True)
    except RuntimeError:
        return False
    for gradient in found:
        split = by_position(gradient, stream) if gradient is not None else None  # type: ignore[redundant-expr]  # not every value is reached
        if split is not None and bool((split[:-1] != 0).any()) and not bool((split[-1] != 0).any()):
            return True
    return False


# --- the future replaced


def future_replaced(batch: Batch, stream: Stream, cut: int) -> Batch | None:
    """Other values of the same tensor after the cut; None when all of its values are alike."""
    held = list(tensors(batch.inputs))[stream.number]
    future = held.narrow(stream.axis, cut + 1, stream.length - cut - 1)
    changed = held.clone()
    new = changed.narrow(stream.axis, cut + 1, stream.length - cut - 1)
    if is_values(held):
        new.copy_(-future.flip(stream.axis) + 1)
    else:
        new.copy_(_other_values(held)[future.long()])
    counter: Iterator[int] = iter(range(10_000))

    def swap(tensor: torch.Tensor) -> torch.Tensor:
        return changed if next(counter) == stream.number else tensor

    inputs: Any = mapped(batch.inputs, swap)
    return None if torch.equal(changed, held) else Batch(inputs, batch.target)


def _other_values(held: torch.Tensor) -> torch.Tensor:
    """A table from each number that occurs to the next one that does."""
    found = torch.unique(held).long()
    table = torch.zeros(int(found[-1]) + 1, dtype=held.dtype, device=held.device)
    table[found] = found.roll(1).to(held.dtype)
    return table


# --- outputs by position


def by_position(value: torch.Tensor, stream: Stream) -> torch.Tensor | None:
    """The values with the positions as first axis; None when they do not go by position."""
    if value.dim() > stream.axis and value.shape[stream.axis] == stream.length and value.dim() > 1:
        return value.movedim(stream.axis, 0)
    if value.dim() and value.shape[0] == stream.length * stream.others:
        sizes = (stream.others, stream.length) if stream.axis == 1 else (stream.length, stream.others)
        return value.reshape(*sizes, *value.shape[1:]).movedim(stream.axis, 0)
    return None


def _on_the_way(value: torch.Tensor, stream: Stream) -> torch.Tensor | None:
    """By position, also where the positions stand behind the channels, as convolutions have them. Where two axes are as
    long, as of the scores of attention, nothing says which are the positions."""
    axes = [axis for axis in range(1, value.dim()) if value.shape[axis] == stream.length]
    if stream.axis == 1 and axes:
        return value.movedim(axes[0], 0) if len(axes) == 1 else None
    found = by_position(value, stream)
    return found if found is not None or len(axes) != 1 else value.movedim(axes[0], 0)


def outputs_by_position(output: Any, stream: Stream) -> list[torch.Tensor]:
    found = [by_position(value, stream) for value in tensors(output) if is_values(value)]
    return [value for value in found if value is not None]


def _unmasked(seen: list[Seen], at: Seen | None, length: int) -> Seen | None:
    """The softmax before that gives weight to later positions: the product behind it is where they first show."""
    before = seen[: next((number for number, one in enumerate(seen) if one is at), 0)]
    last = next((one for one in reversed(before) if one.kind == "softmax"), None)
    square = last is not None and last.value.dim() > 2 and last.value.shape[-2:] == (length, length)
    return last if last is not None and square and bool(last.value.triu(1).any()) else None


def _first_seeing(seen: list[Seen], again: list[Seen], cut: int, stream: Stream) -> Seen | None:
    if len(seen) != len(again):
        return None
    for split in (_on_the_way, by_position):
        for first, second in zip(seen, again, strict=True):
            if not is_values(first.value) or first.value.shape != second.value.shape:
                continue
            one, other = split(first.value, stream), split(second.value, stream)
            if one is not None and other is not None:
                before, after = one[: cut + 1], other[: cut + 1]
                if apart_by(before, after) > tolerance(before):
                    return first
    return None
