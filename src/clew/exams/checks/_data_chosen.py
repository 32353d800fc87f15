"""Masked modelling: are the tokens that the loss asks for still in the input?

Some positions of a sequence are chosen, hidden in the input and asked for. Known by a mask beside the values under it,
or by a target that is ignored elsewhere, and by the slope of the loss, which is zero at all other positions. Where the
input shows at those positions what is asked for, and the output there follows it, nothing was hidden.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from clew.exams.batches import Batch, mapped, tensors
from clew.exams.checks._data_tables import shown_inputs
from clew.exams.checks._network_rows import apart_by, seeded_walk, tolerance
from clew.exams.checks.causal_independence import Stream, by_position
from clew.exams.lab import Lab

FEWEST, KINDS = 24, 3
MOST_CHOSEN = 0.6
"""A loss over more of the positions is that of an autoencoder or a language model, which see their target by right."""


class Chosen(NamedTuple):
    tokens: torch.Tensor
    mask: torch.Tensor  # which positions are asked for
    values: torch.Tensor  # what is asked for there, in order


def shown(lab: Lab) -> float | None:
    """The share of the chosen positions at which the input shows what is asked for; None where no positions are
    chosen, or the output does not follow what stands there."""
    found = next(_candidates(lab.batch), None)
    if found is None or len(found.values) < FEWEST or len(torch.unique(found.values)) < KINDS:
        return None
    share = float((found.tokens[found.mask] == found.values).float().mean())
    if share < 0.5:
        return share
    return share if not lab.untrue and _asked_there(lab, found) and _followed(lab, found) else None


def _candidates(batch: Batch) -> Iterator[Chosen]:
    wanted = [target for target in tensors(batch.target) if not target.is_floating_point()]
    for part in shown_inputs(batch):
        tokens = part.tensor
        if tokens.is_floating_point() or tokens.dim() != 2:
            continue
        for target in wanted:
            if target.dtype == torch.bool:
                continue
            masks = [held for held in wanted if held.dtype == torch.bool and held.shape == tokens.shape]
            if target.numel() == tokens.numel():
                laid = target.reshape(tokens.shape)
                masks, target = [laid >= 0], laid[laid >= 0]
            for mask in masks:
                if int(mask.sum()) == target.numel() <= MOST_CHOSEN * mask.numel():
                    yield Chosen(tokens, mask, target.flatten())


def _asked_there(lab: Lab, found: Chosen) -> bool:
    """Whether the loss depends on the outputs at the chosen positions and on no others: it does not move the target."""
    stream = Stream(0, 1, found.tokens.shape[1], found.tokens.shape[0])
    with lab.seeded():
        output = lab.output(lab.fresh(training=False), lab.batch)
        held = [value for value in tensors(output) if value.requires_grad and value.dim() > 1]
        loss = lab.subject.value(output, lab.batch.target)
        slopes = torch.autograd.grad(loss, held, allow_unused=True) if held else ()
    for slope in slopes:
        split = by_position(slope, stream) if slope is not None else None  # type: ignore[redundant-expr]  # not every value is reached
        if split is not None and split.dim() == 3:
            return bool((found.mask == (split != 0).any(2).T).all())
    return False


def _followed(lab: Lab, found: Chosen) -> bool:
    """Whether other tokens at the chosen positions give other outputs there: a model may hide them by itself."""
    model = lab.fresh(training=False)
    stream = Stream(0, 1, found.tokens.shape[1], found.tokens.shape[0])
    other = torch.where(found.mask, found.tokens.roll(1, 0), found.tokens)
    changed = Batch(mapped(lab.batch.inputs, lambda held: other if held is found.tokens else held), lab.batch.target)
    outputs = [seeded_walk(lab, model, batch)[0] for batch in (lab.batch, changed)]
    pairs = zip(tensors(outputs[0]), tensors(outputs[1]), strict=True)
    for before, after in pairs:
        one, two = by_position(before, stream), by_position(after, stream)
        if one is not None and two is not None and one.dim() == 3:
            there = found.mask.T & (found.tokens != other).T
            return apart_by(one[there], two[there]) > tolerance(one[there])
    return False
