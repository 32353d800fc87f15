"""Does a single feature, position or patch of the input carry the whole prediction?

Takes the values of one part from other examples, part after part, in eval mode, and sees how much of what the model
gains from its inputs is lost; then all parts but the best. Parts are features, positions of a sequence, or patches of
an image.

Why it matters: a model that reads one corner, one column or one token has found a shortcut, often a leak, and fails
where the shortcut is missing.
Cannot tell: a shortcut from a task that honestly hangs on one feature; parts that say the same thing twice.
Silent when: the rest of the input matters, or no part alone does. Unclear for a model that gains nothing from its
inputs yet, for labels of positions, and for inputs of fewer than four parts.
Sources: leakage-looks-too-good
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from clew.exams.batches import Batch, mapped, rows
from clew.exams.checks._data_tables import labels_of, shown_inputs
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear
from clew.records.place import Place

MOST_BATCHES = 4
GRID = 6
MOST_PARTS = 64
FEWEST_PARTS = 4
FEWEST = 8
GAIN = 0.1
NEEDED = 0.5
"""What the part alone must cost when it is exchanged; below that another part says the same."""

Part = Callable[[torch.Tensor], torch.Tensor]
"""(examples, ...) -> a mask over one example that says what belongs to the part."""


@exam("shortcut", needs=("loss",), seconds=1.0)
def examine(lab: Lab) -> Answer:
    labels = labels_of(lab, lab.distinct)
    if labels is None or labels.dense:
        return Unclear("there is no label for each example as a whole")
    batches = (lab.val_pairs or lab.batches)[:MOST_BATCHES]
    if min(rows(batch) for batch in batches) < FEWEST:
        return Unclear("batches of fewer than eight examples are too small to exchange parts")
    shown = shown_inputs(batches[0])
    if len(shown) != 1:
        return Unclear("the model takes several inputs, or none with a batch axis")
    masks = parts_of(shown[0].tensor)
    if len(masks) < FEWEST_PARTS:
        return Unclear(f"the input has {len(masks)} parts, too few to call one a shortcut")
    model = lab.late(training=False)
    whole = torch.stack(list(masks.values())).any(0)
    clean, lost = _loss(lab, model, batches, ~whole), _loss(lab, model, batches, whole)
    gain = lost - clean
    if not math.isfinite(gain) or gain <= GAIN * abs(lost):
        return Unclear("the model gains nothing from its inputs yet, so no part can be a shortcut")
    alone = {}
    for number, (name, mask) in enumerate(masks.items()):
        lab.check(number / len(masks))
        alone[name] = (_loss(lab, model, batches, mask) - clean) / gain
    best = max(alone, key=lambda name: alone[name])
    rest = (_loss(lab, model, batches, whole & ~masks[best]) - clean) / gain
    kept = min(max(1 - rest, 0.0), 1.0)
    carried = kept if alone[best] >= NEEDED else max(0.0, min(alone[best], kept))
    reading = Reading(
        carried_share=carried, part=best, parts=len(masks), lost_without=alone[best], lost_with_it_only=rest
    )
    return reading.at(Place(symbol=best)) if carried > 0.9 else reading


def _loss(lab: Lab, model: nn.Module, batches: list[Batch], mask: torch.Tensor) -> float:
    """The mean loss when what the mask covers comes from other examples."""
    total = 0.0
    for number, batch in enumerate(batches):
        order = torch.randperm(rows(batch), generator=lab.generator(20 + number))
        only = shown_inputs(batch)[0].tensor

        def change(tensor: torch.Tensor, only: torch.Tensor = only, order: torch.Tensor = order) -> torch.Tensor:
            if tensor is not only:
                return tensor
            return torch.where(mask, tensor[order.to(tensor.device)], tensor)

        with lab.seeded():
            total += lab.loss_value(model, Batch(mapped(batch.inputs, change), batch.target))
    return total / len(batches)


def parts_of(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Masks over one example, by name: patches of an image, else groups along the first axis (features, positions)."""
    shape = tensor.shape[1:]
    masks: dict[str, torch.Tensor] = {}
    if len(shape) == 3 and min(shape[1:]) >= 4:
        for across in _spans(shape[1], GRID):
            for along in _spans(shape[2], GRID):
                mask = torch.zeros(shape, dtype=torch.bool, device=tensor.device)
                mask[:, across, along] = True
                masks[f"patch {across.start}:{across.stop}, {along.start}:{along.stop}"] = mask
        return masks
    if not shape:
        return masks
    noun = "feature" if len(shape) == 1 and tensor.is_floating_point() else "position"
    for span in _spans(shape[0], MOST_PARTS):
        mask = torch.zeros(shape, dtype=torch.bool, device=tensor.device)
        mask[span] = True
        one = span.stop - span.start == 1
        masks[f"{noun} {span.start}" if one else f"{noun}s {span.start}:{span.stop}"] = mask
    return masks


def _spans(size: int, most: int) -> list[slice]:
    step = -(-size // min(size, most)) if size else 1
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]
