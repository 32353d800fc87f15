"""Does the output for one example or position depend on other examples or on its future, and since which stage?

Replaces all examples but one by NaN, and for models that predict their own input one position ahead also the later
positions, in eval mode. Compares every value on the way, and names the first that changed.

Why it matters: an output that sees its future or its neighbours scores well and is useless; the stage where the
influence enters is where to look.
Cannot tell: whether the influence is intended, as in contrastive heads or graph batches; what happens in training mode,
where batch norm mixes by design.
Silent when: there is no such influence. Unclear when the model takes one example at a time, gives random outputs in
eval mode, its output has no batch axis, or training stores something of its batches in the model, such as a codebook.
Sources: leakage-looks-too-good, silent-broadcast
"""

from __future__ import annotations

import torch

from clew.exams.batches import Batch, mapped, rows
from clew.exams.checks._data_poison import Crossing, row, spoiled, trace, up_to
from clew.exams.checks._data_tables import BESIDE, is_label, named, output_width, shown_inputs, target_of
from clew.exams.checks._network_rows import both_ways, related
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear
from clew.records.place import Place

SHIFTED = 0.95


@exam("poison_trace", seconds=0.5)
def examine(lab: Lab) -> Answer:
    batch = lab.batch
    count = rows(batch)
    if count < 2 or not output_width(lab):
        return Unclear("the inputs or the output have no batch axis, or there is only one example")
    if why := related(batch, count):
        return Unclear(why)
    length = predicts_ahead(batch)
    if length:
        half = length // 2
        found = trace(lab, batch, lambda how: _later(lab, batch, half, length, how), up_to(half, length))
        if found is not None:
            reader = both_ways(lab.fresh(), found.stage)
            found = found._replace(kind=f"bidirectional {found.kind}") if reader else found
            return _crossed(
                "from_future", found, f"Outputs before position {half} depend on inputs from there on", reader
            )
    found = trace(lab, batch, lambda how: _others(lab, batch, count, how), row(0, count))
    if found is not None:
        return _crossed("from_other_rows", found, "The output of one example depends on the other examples")
    asked = "other examples and later positions" if length else "other examples"
    return Saw("clean", examples=count, positions=length).saying(f"No output depends on {asked}.")


def _crossed(outcome: str, found: Crossing, what: str, reader: Place | None = None) -> Saw:
    way = f"{found.kind} {found.stage}".strip()
    return (
        Saw(outcome, stage=found.stage, change=round(found.size, 4), by=found.by)
        .at(reader, found.place)
        .saying(f"{what}; it first shows at {way}.")
    )


def predicts_ahead(batch: Batch) -> int:
    """The length of the sequence when the target is the input one position on; 0 for any other model."""
    target = target_of(batch)
    if target is None or target.dim() < 2 or target.shape[1] < 4:
        return 0
    for part in shown_inputs(batch):
        held = part.tensor
        if held.shape != target.shape:
            continue
        counted = (
            target[:, :-1] >= 0 if not target.is_floating_point() else torch.ones_like(target[:, :-1], dtype=torch.bool)
        )
        matched = (held[:, 1:] == target[:, :-1])[counted]
        constant = (held == target)[:, :-1][counted]
        if matched.numel() >= 8 and float(matched.float().mean()) >= SHIFTED > float(constant.float().mean()):
            return int(target.shape[1])
    return 0


def _fixed(name: str, tensor: torch.Tensor, count: int) -> bool:
    """Masks, labels and what does not go by example are left alone."""
    return (
        tensor.dtype == torch.bool
        or not tensor.dim()
        or tensor.shape[0] != count
        or is_label(name)
        or any(word in name.lower() for word in BESIDE)
    )


def _others(lab: Lab, batch: Batch, count: int, how: str) -> Batch:
    draws = lab.generator(4)
    parts = iter(list(named(batch.inputs)))

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if _fixed(next(parts).name, tensor, count):
            return tensor
        return torch.cat([tensor[:1], spoiled(tensor, how, draws)[1:]])

    return Batch(mapped(batch.inputs, change), batch.target)


def _later(lab: Lab, batch: Batch, half: int, length: int, how: str) -> Batch:
    draws = lab.generator(5)
    parts = iter(list(named(batch.inputs)))
    count = rows(batch)

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if _fixed(next(parts).name, tensor, count) or tensor.dim() < 2 or tensor.shape[1] != length:
            return tensor
        return torch.cat([tensor[:, :half], spoiled(tensor, how, draws)[:, half:]], 1)

    return Batch(mapped(batch.inputs, change), batch.target)
