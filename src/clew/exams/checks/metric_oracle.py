"""Does the score jump to its best value when it is fed perfect predictions?

Uses the target as the output, in the formats that losses take (logits, log-probabilities, probabilities,
values), and asks the loss, and where the subject has `predict`, the share of predictions that agree with the target.
A uniform or constant prediction and the targets of other examples must score worse.

Why it matters: a score that perfect predictions do not reach measures something else, and no model can reach it.
Cannot tell: a correct score from the one that matters; what the model makes of its inputs.
Silent when: the perfect prediction scores best, down to the entropy of soft or smoothed labels. Unclear for losses that
are not recognised, since then the target itself may not be the best output.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

from clew.exams.batches import Batch, tensors
from clew.exams.checks._training_forms import TWICE, one_hot, targets
from clew.exams.checks._training_loss import Answered, Known, answer, exchanged, floats, recognise
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear

SURE = tuple(1.15**power for power in range(24, -1, -1))
"""Logits of the right class, from about 29 to 1: smoothed labels are met best by one in between."""
JUMPS = 0.05
RIGHT = 0.99


class Scored(NamedTuple):
    perfect: float
    blind: float
    mixed: float


@exam("metric_oracle", needs=("loss", "target"), seconds=0.3, steps=2)
def examine(lab: Lab) -> Answer:
    seen = answer(lab, lab.fresh(), lab.batch)
    known = recognise(lab, lab.fresh(), [lab.batch])
    agreement = _agreement(lab, seen)
    if agreement is not None and agreement < RIGHT:
        return (
            Saw("no_jump", share_right=agreement)
            .at(lab.place())
            .saying(f"With the target as output, only {agreement:.1%} of the predictions agree with it.")
        )
    if all(not held.is_floating_point() and bool((held < 0).all()) for held in tensors(lab.batch.target)):
        return (
            Saw("no_jump", targets=0)
            .at(lab.place())
            .saying("No target counts, so no prediction scores better than another.")
        )
    number = known.output if isinstance(known, Known) else 0
    scored = _scores(lab, seen, number)
    if scored is None:
        return Unclear("no output has a form that the target could take")
    least = known.least if isinstance(known, Known) and known.factor > 0 else 0.0
    figures = {"perfect": scored.perfect, "blind": scored.blind, "mixed": scored.mixed, "least": least}
    if agreement is not None:
        figures["share_right"] = agreement
    above = max(scored.blind, scored.mixed) - least
    said = (
        f"The loss is {scored.perfect:.3g} with the target as output, {scored.blind:.3g} for a constant "
        f"prediction, and {scored.mixed:.3g} for the targets of other examples."
    )
    if above > 0 and scored.perfect - least <= JUMPS * above:
        return Saw("jumps", **figures).saying(said)
    if scored.perfect < min(scored.blind, scored.mixed) and scored.perfect < 0:
        return Saw("jumps", **figures).saying(said)
    if isinstance(known, Known) and (known.name == TWICE or known.factor < 0):
        kind = "treats probabilities as logits" if known.name == TWICE else "has the wrong sign"
        return Unclear(f"the loss {kind}, which explains its value on perfect predictions")
    if all(not held.dim() or torch.equal(held, held.roll(1, 0)) for held in tensors(lab.batch.target)):
        return Unclear("all examples of the batch have the same target, so no other can replace it")
    if isinstance(known, str):
        return Unclear(f"{known}, so the target may not be the best output; {said[0].lower()}{said[1:]}")
    return Saw("no_jump", **figures).at(lab.place()).saying(said)


def _scores(lab: Lab, seen: Answered, number: int) -> Scored | None:
    """The losses of the best of the formats."""
    held = floats(seen.output)
    if number >= len(held) or lab.subject.loss is None:
        return None
    best: Scored | None = None
    for perfect, blind, mixed in answers(seen.batch, held[number]):
        values = []
        for made in (perfect, blind, mixed):
            value = _value(lab, seen, number, made)
            values.append(value if value is not None and not math.isnan(value) else math.inf)
        if best is None or values[0] < best.perfect:
            best = Scored(*values)
    return best if best is not None and math.isfinite(best.perfect) else None


def _value(lab: Lab, seen: Answered, number: int, made: torch.Tensor) -> float | None:
    try:
        with lab.seeded():
            return seen.scored(lab, exchanged(seen.output, number, lambda _: made))
    except (RuntimeError, ValueError):
        return None  # not a format that this loss takes


def answers(batch: Batch, output: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Perfect, blind and mixed-up outputs, in every format that the output may have."""
    for target in _aligned(batch, output):
        other = target.roll(1, 0) if target.shape[0] > 1 else target
        if not target.is_floating_point():
            true, false = one_hot(target, output), one_hot(other, output)
            if true is not None and false is not None:
                even = torch.full_like(output, 1.0)
                yield from ((sure * true, even, sure * false) for sure in SURE)
                classes = true.sum() / true.numel()
                yield (true + 1e-12).log(), even * classes.log(), (false + 1e-12).log()
                yield true, even * classes, false
        if target.numel() != output.numel():
            continue
        true, false = (held.reshape(output.shape).to(output.dtype) for held in (target, other))
        constant = true.mean().expand_as(true).contiguous()
        yield true, constant, false
        if bool(((true >= 0) & (true <= 1)).all()):
            yield _logit(true), _logit(constant), _logit(false)
            if true.dim() == 2 and bool(((true.sum(1) - 1).abs() < 1e-3).all()):
                yield (true + 1e-9).log(), torch.zeros_like(true), (false + 1e-9).log()


def _aligned(batch: Batch, output: torch.Tensor) -> Iterator[torch.Tensor]:
    """The targets, and those of the next position: language models shift the labels that they are given themselves."""
    for target in targets(batch, output):
        yield target
        if not target.is_floating_point() and target.dim() == 2 and output.numel() == target.numel() * output.shape[-1]:
            yield torch.cat([target[:, 1:], target[:, -1:]], 1)


def _logit(share: torch.Tensor) -> torch.Tensor:
    return torch.logit(share.double().clamp(1e-13, 1 - 1e-13)).to(share.dtype)


def _soft(target: torch.Tensor) -> bool:
    """Shares between 0 and 1, such as the grey of a pixel: a prediction of a class cannot agree with one."""
    if not target.is_floating_point() or not target.numel():
        return False
    inside = (target > 0) & (target < 1)
    return bool(inside.any()) and float(target.min()) >= 0 and float(target.max()) <= 1


def _agreement(lab: Lab, seen: Answered) -> float | None:
    """The share of predictions from perfect outputs that agree with the target; None where that cannot be said."""
    predict = lab.subject.predict
    held = floats(seen.output)
    if predict is None or not held or any(_soft(target) for target in tensors(seen.batch.target)):
        return None
    best: float | None = None
    for perfect, _, _ in answers(seen.batch, held[0]):
        for target in targets(seen.batch, held[0]):
            try:
                with torch.no_grad():
                    said = predict(exchanged(seen.output, 0, lambda _, made=perfect: made))  # type: ignore[misc]
            except (RuntimeError, ValueError, IndexError):
                continue
            share = agreeing(said, target)
            if share is not None and (best is None or share > best):
                best = share
    return best


def agreeing(said: torch.Tensor, target: torch.Tensor) -> float | None:
    """The share of targets that count and are met. Shapes that do not fit are compared as a script would, which for
    (B, 1) against (B,) is every prediction with every target."""
    if said.dim() == target.dim() + 1 and said.shape[-1] != 1:
        return None
    try:
        said, wanted = torch.broadcast_tensors(said, target)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return None
    counts = wanted >= 0 if not target.is_floating_point() else torch.ones_like(wanted, dtype=torch.bool)
    if not bool(counts.any()):
        return None
    if target.is_floating_point() or said.is_floating_point():
        close = torch.isclose(said.double(), wanted.double(), rtol=1e-3, atol=1e-6)
    else:
        close = said == wanted
    return float(close[counts].double().mean())
