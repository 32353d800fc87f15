"""Does the prediction change when only the target is changed?

Looks for the target among what the model is called with: labels by name, a tensor that equals the target, a column that
copies it or one of its classes. Poisons what it finds, in eval mode, and follows the change to the prediction. Where
every position has a target, one position is poisoned at a time, and predictions up to it must stay.

Why it matters: a target that reaches the prediction makes every score meaningless.
Cannot tell: a leak made earlier, when features were built, unless it copies the target; a leak that was not learned.
Silent when: the target is not among the inputs, the target is the input moved by one and the model looks back only, or
the model ignores it but for the loss. Unclear when there is no target, when the target is the whole input, when the
model of a series looks ahead (causal_independence names where), or when the trained model gets no lower loss where the
input goes with the target than where it does not: ArcFace takes the label to make the answer harder.
Sources: leakage-looks-too-good
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch

from clew.exams.batches import Batch, mapped, rows, tensors
from clew.exams.checks._data_poison import Part, spoiled, trace, up_to
from clew.exams.checks._data_tables import by_example, is_label, named, shown_inputs, target_of
from clew.exams.checks.causal_independence import is_next
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear

FEWEST = 8
BY_CHANCE = 1e-4
MOST_CLASSES = 64
MOST_POSITIONS = 5
SERIES = 3
"""Axes of the largest target that goes by position; above it come pictures."""
HELPS = 0.95


class Carrier(NamedTuple):
    """A part of the inputs that holds the target: the number of the tensor, its name, the columns (None: all of it).
    `position` is that of the target which stands there (None: all of it); `moved`: the target is this input, moved by
    one."""

    number: int
    name: str
    columns: torch.Tensor | None
    position: int | None = None
    moved: bool = False


def _rebuilt(batch: Batch, target: torch.Tensor) -> bool:
    """Whether the target is the input itself. What is given beside it, such as noise, does not change that; a label
    that is given beside a larger input is no such case."""
    shown = shown_inputs(batch)
    whole = [part for part in shown if _whole_input(part.tensor, target)]
    largest = max((part.tensor.numel() for part in shown), default=0)
    if not whole:
        return False
    return len(list(named(batch.inputs))) == 1 or (whole[0].tensor.numel() == largest > 4 * len(target))


@exam("leak_tracer", seconds=0.5)
def examine(lab: Lab) -> Answer:
    batch = lab.batch
    target = target_of(batch)
    if target is None:
        return Unclear("the batch holds no target per example")
    if _rebuilt(batch, target):
        return Unclear("the target is the whole input, as in an autoencoder or where the loss shifts it")
    carriers = _carriers(batch, target)
    held = len({carrier.number for carrier in carriers})
    for carrier in carriers:
        lab.check()
        found = trace(lab, batch, partial(_poisoned, lab, batch, carrier), _protected(target, carrier))
        if found is not None and carrier.moved:
            return Unclear(f"the target is the input moved by one, and {carrier.name} reaches predictions before it")
        if found is not None and not helps(lab, batch, target, carrier):
            return Unclear(
                f"{carrier.name} holds the target and reaches the output without lowering the loss: a margin, "
                "a regulariser, or a leak not learned yet"
            )
        if found is not None:
            way = f"{found.kind} {found.stage}".strip()
            return (
                Saw(
                    "crossed",
                    carrier=carrier.name,
                    stage=found.stage,
                    change=round(found.size, 4),
                    carriers=held,
                )
                .at(found.place, lab.place())
                .saying(
                    f"Changing only {carrier.name}, which holds the target, changes the prediction; "
                    f"it first shows at {way}."
                )
            )
    if carriers:
        names = ", ".join(carrier.name for carrier in carriers[:3])
        return Saw("clean", carriers=held).saying(
            f"The target is among the inputs ({names}), and no prediction depends on it that should not."
        )
    return Saw("clean", carriers=0).saying("The model is called without the target, and no input copies it.")


def helps(lab: Lab, batch: Batch, target: torch.Tensor, carrier: Carrier) -> bool:
    """Whether the trained model does better where the carrier goes with the target than where it does not. True where
    that cannot be told: columns among others, labels of positions, targets that the model takes, no late weights."""
    dense = target.dim() > 1 and target.shape[1] > 1
    if carrier.columns is not None or batch.target is None or dense or lab.subject.trained() is None:
        return True
    order = torch.randperm(len(target), generator=lab.generator(5)).to(target.device)
    wanted = mapped(batch.target, lambda tensor: tensor[order] if _by_row(tensor, target) else tensor)
    model = lab.late(training=False)

    def loss(moved: bool) -> float:
        numbers = iter(range(1_000_000))
        inputs = mapped(
            batch.inputs, lambda tensor: tensor[order] if next(numbers) == carrier.number and moved else tensor
        )
        with torch.no_grad(), lab.seeded():
            return float(lab.loss(model, Batch(inputs, wanted)).mean())

    return not loss(True) >= HELPS * loss(False)


def _by_row(tensor: torch.Tensor, target: torch.Tensor) -> bool:
    return bool(tensor.dim()) and len(tensor) == len(target)


def _whole_input(tensor: torch.Tensor, target: torch.Tensor) -> bool:
    if tensor.numel() != target.numel() or target[0].numel() < 2:
        return False
    return bool((tensor.reshape(len(tensor), -1) == target.reshape(len(target), -1)).all())


def _by_position(target: torch.Tensor) -> bool:
    return 1 < target.dim() <= SERIES and target.shape[1] > 1


def _protected(target: torch.Tensor, carrier: Carrier) -> Part:
    if carrier.position is not None:
        return up_to(carrier.position + 1, target.shape[1])
    return lambda value: value


def _carriers(batch: Batch, target: torch.Tensor) -> list[Carrier]:
    count = rows(batch)
    given = any(True for _ in tensors(batch.target))
    found: list[Carrier] = []
    for number, (name, tensor) in enumerate(named(batch.inputs)):
        if not tensor.dim() or tensor.shape[0] != count:
            continue
        equal = tensor.numel() == target.numel() and _varies(target, count) and _same(tensor, target)
        if equal if given else is_label(name):
            found += _wholly(number, name, tensor, target)
        elif given and tensor.is_floating_point() and _by_position(target):
            found += _by_positions(number, name, tensor, target)
        elif given and tensor.is_floating_point():
            columns = copies(by_example(tensor), target)
            if len(columns):
                found.append(Carrier(number, f"{_columns(columns)} of {name}", columns))
    return found


def _columns(columns: torch.Tensor) -> str:
    return f"columns {columns[:8].tolist()}" if len(columns) > 1 else f"column {int(columns[0])}"


def _wholly(number: int, name: str, tensor: torch.Tensor, target: torch.Tensor) -> Iterator[Carrier]:
    """All of a tensor is the target."""
    if not _by_position(target) or tensor.dim() < 2 or tensor.shape[1] != target.shape[1]:
        yield Carrier(number, name, None)
        return
    columns = torch.arange(tensor[0].numel()).reshape(tensor.shape[1], -1)
    for position in _some(list(range(tensor.shape[1]))):
        yield Carrier(number, name, columns[position], position)


def _by_positions(number: int, name: str, tensor: torch.Tensor, target: torch.Tensor) -> Iterator[Carrier]:
    """Columns of a tensor that hold elements of a target that has many, position by position.

    A series that repeats itself holds the target's values earlier too: of an input with as many positions only the
    copies at the most frequent distance count. An input of the same shape that holds parts of the target at the same
    places shows what is to be filled in."""
    each, width = target[0, 0].numel(), max(1, tensor[0].numel() // max(1, tensor.shape[1] if tensor.dim() > 1 else 1))
    pairs = [
        (column, element // each)
        for element, columns in enumerate(_found_in(by_example(tensor), target))
        for column in columns.tolist()
    ]
    if tensor.dim() > 1 and pairs:
        apart = Counter(column // width - position for column, position in pairs)
        distance = max(apart, key=lambda by: (apart[by], by))
        if tensor.shape[1] == target.shape[1]:
            pairs = [pair for pair in pairs if pair[0] // width - pair[1] == distance]
        if (distance == 0 and tensor.shape == target.shape) or _repeats(tensor, tensor.shape[1] - distance):
            return
    moved = tensor.dim() > 1 and is_next(tensor, target, 1)
    for position in _some(sorted({pair[1] for pair in pairs})):
        columns = torch.tensor([pair[0] for pair in pairs if pair[1] == position])
        yield Carrier(number, f"{_columns(columns)} of {name}", columns, position, moved)


def _repeats(tensor: torch.Tensor, period: int) -> bool:
    """Whether a series shows the same values again after so many positions: then its future stands in its past."""
    if not 0 < period < tensor.shape[1] or tensor.shape[1] < 2:
        return False
    earlier, later = tensor[:, :-period], tensor[:, period:]
    return bool(torch.isclose(earlier, later, rtol=1e-4, atol=1e-5 * float(tensor.abs().max())).all())


def _some(positions: list[int]) -> list[int]:
    """At most a few of them, evenly spread, both ends included."""
    steps = min(len(positions), MOST_POSITIONS)
    return [positions[round(at * (len(positions) - 1) / max(1, steps - 1))] for at in range(steps)]


def _same(tensor: torch.Tensor, target: torch.Tensor) -> bool:
    return bool((tensor.flatten().double() == target.flatten().double()).all()) if not tensor.is_complex() else False


def _varies(target: torch.Tensor, count: int) -> bool:
    return count >= FEWEST and bool((target != target[:1]).any())


def copies(table: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The columns that equal a target of one number, or mark its classes; none where so few examples could agree by
    chance. That a column marks one class of several may be its nature: only mammals give milk."""
    count = len(table)
    wanted = target.reshape(count, -1)
    if wanted.shape[1] > 1 or count < FEWEST:
        return torch.zeros(0, dtype=torch.long)
    marks = wanted.double()
    if not target.is_floating_point():
        marks = torch.cat([marks, (wanted == torch.unique(wanted)[:MOST_CLASSES]).double()], 1)
    first, *marked = _found_in(table, marks)
    found = [first]
    if sum(bool(len(columns)) for columns in marked) >= len(marked) - 1:
        found += marked
    columns: torch.Tensor = torch.unique(torch.cat(found)).cpu()
    return columns


def _found_in(table: torch.Tensor, marks: torch.Tensor) -> list[torch.Tensor]:
    """For each column of the marks the columns of the table that equal it; none where they could by chance."""
    count = len(table)
    values, wanted = table.double(), marks.reshape(count, -1).double()
    found = []
    for mark in wanted.T:
        _, counts = torch.unique(mark, return_counts=True)
        likely = float((counts.double() / count).square().sum())
        near = 1e-6 * mark.abs().max()
        alike = ((values[0] - mark[0]).abs() <= near).nonzero().flatten()
        if likely**count * table.shape[1] * wanted.shape[1] > BY_CHANCE:
            alike = alike[:0]
        found.append(alike[((values[:, alike] - mark[:, None]).abs() <= near).all(0)])
    return found


def _poisoned(lab: Lab, batch: Batch, carrier: Carrier, how: str) -> Batch:
    numbers = iter(range(1_000_000))
    draws = lab.generator(3)

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if next(numbers) != carrier.number:
            return tensor
        if carrier.columns is not None:
            flat = by_example(tensor).clone()
            columns = carrier.columns.to(tensor.device)
            flat[:, columns] = spoiled(flat[:, columns], how, draws)
            return flat.view_as(tensor)
        return spoiled(tensor, how, draws)

    return Batch(mapped(batch.inputs, change), batch.target)
