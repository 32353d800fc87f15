"""Does the prediction change when only the target is changed?

Looks for the target among what the model is called with: labels by name, a tensor that equals the target, a column that
copies it or one of its classes. Poisons what it finds, in eval mode, and follows the change to the prediction. Where
every position has a label, labels from one position on are poisoned, and predictions up to it must stay.

Why it matters: a target that reaches the prediction makes every score meaningless.
Cannot tell: a leak made earlier, when features were built, unless it copies the target; a leak that was not learned.
Silent when: the target is not among the inputs, teacher forcing shifts it by one, or the model ignores it but for the
loss. Unclear when there is no target, when the target is the whole input, or when the trained model gets no lower loss
where the input goes with the target than where it does not: ArcFace takes the label to make the answer harder.
Sources: leakage-looks-too-good
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch

from clew.exams.batches import Batch, mapped, rows, tensors
from clew.exams.checks._data_poison import Part, spoiled, trace, up_to
from clew.exams.checks._data_tables import by_example, is_label, named, shown_inputs, target_of
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear

FEWEST = 8
BY_CHANCE = 1e-4
MOST_CLASSES = 64
HELPS = 0.95


class Carrier(NamedTuple):
    """A part of the inputs that holds the target: the number of the tensor, its name, the columns (None: all of it)."""

    number: int
    name: str
    columns: torch.Tensor | None


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
        return Unclear("the batch holds no target that goes by example")
    if _rebuilt(batch, target):
        return Unclear("the target is the whole input, as in an autoencoder or where the loss shifts it")
    carriers = list(_carriers(batch, target))
    for carrier in carriers:
        found = trace(lab, batch, partial(_poisoned, lab, batch, carrier), _protected(target))
        if found is not None and not helps(lab, batch, target, carrier):
            return Unclear(
                f"{carrier.name} holds the target and reaches the output, and the loss is no lower for it: a margin, "
                "a regulariser, or a leak that was not learned yet"
            )
        if found is not None:
            way = f"{found.kind} {found.stage}".strip()
            return (
                Saw(
                    "crossed",
                    carrier=carrier.name,
                    stage=found.stage,
                    change=round(found.size, 4),
                    carriers=len(carriers),
                )
                .at(found.place, lab.place())
                .saying(
                    f"Changing nothing but {carrier.name}, which holds the target, changes the prediction; "
                    f"it first shows at {way}."
                )
            )
    if carriers:
        held = ", ".join(carrier.name for carrier in carriers[:3])
        return Saw("clean", carriers=len(carriers)).saying(
            f"The target stands among the inputs ({held}), and no prediction changes with it that should not."
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


def _protected(target: torch.Tensor) -> Part:
    if target.dim() > 1 and not target.is_floating_point() and target.shape[1] > 1:
        return up_to(target.shape[1] // 2 + 1, target.shape[1])
    return lambda value: value


def _carriers(batch: Batch, target: torch.Tensor) -> list[Carrier]:
    count = rows(batch)
    given = any(True for _ in tensors(batch.target))
    found = []
    for number, (name, tensor) in enumerate(named(batch.inputs)):
        if not tensor.dim() or tensor.shape[0] != count:
            continue
        equal = tensor.numel() == target.numel() and _varies(target, count) and _same(tensor, target)
        if equal if given else is_label(name):
            found.append(Carrier(number, name, None))
        elif given and tensor.is_floating_point():
            columns = copies(by_example(tensor), target)
            if len(columns):
                place = f"columns {columns[:8].tolist()}" if len(columns) > 1 else f"column {int(columns[0])}"
                found.append(Carrier(number, f"{place} of {name}", columns))
    return found


def _same(tensor: torch.Tensor, target: torch.Tensor) -> bool:
    return bool((tensor.flatten().double() == target.flatten().double()).all()) if not tensor.is_complex() else False


def _varies(target: torch.Tensor, count: int) -> bool:
    return count >= FEWEST and bool((target != target[:1]).any())


def copies(table: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The columns that equal the target, one of its columns, or mark its classes; none where so few examples could
    agree by chance. That a column marks one class of several may be its nature: only mammals give milk."""
    count = len(table)
    wanted = target.reshape(count, -1)
    if wanted.shape[1] > MOST_CLASSES or count < FEWEST:
        return torch.zeros(0, dtype=torch.long)
    parts = [wanted.double()]
    if wanted.shape[1] == 1 and not target.is_floating_point():
        classes = torch.unique(wanted)[:MOST_CLASSES]
        parts.append((wanted == classes).double())
    marks = torch.cat(parts, 1)
    found: list[torch.Tensor] = []
    marked: list[torch.Tensor] = []
    for number, mark in enumerate(marks.T):
        _, counts = torch.unique(mark, return_counts=True)
        likely = float((counts.double() / count).square().sum())
        if likely**count * table.shape[1] * marks.shape[1] > BY_CHANCE:
            continue
        near = (table.double() - mark[:, None]).abs() <= 1e-6 * mark.abs().max()
        (marked if number >= wanted.shape[1] else found).append(near.all(0).nonzero().flatten())
    if sum(bool(len(columns)) for columns in marked) >= marks.shape[1] - wanted.shape[1] - 1:
        found += marked
    return torch.unique(torch.cat(found)).cpu() if found else torch.zeros(0, dtype=torch.long)


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
        if tensor.dim() > 1 and not tensor.is_floating_point() and tensor.shape[1] > 1:
            later = tensor.clone()
            half = tensor.shape[1] // 2
            later[:, half:] = spoiled(tensor[:, half:], how, draws)
            return later
        return spoiled(tensor, how, draws)

    return Batch(mapped(batch.inputs, change), batch.target)
