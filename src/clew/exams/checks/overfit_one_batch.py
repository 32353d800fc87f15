"""Can the model memorise one batch?

Trains on up to 32 examples without dropout. All random draws are the same in every step, so that noise can be memorised
too. The lower bound of the loss is subtracted first: the entropy of smoothed or soft labels, and of tokens that share a
prefix.

Why it matters: a model that cannot is broken in wiring, loss or gradient flow; no tuning will fix that.
Cannot tell: a bad step size from a bad loss (see lr_range); what is lost between the data and the batch; how low an
unbounded loss could get.
Silent when: any of three step sizes, or LBFGS, memorises the batch, whatever the user's own optimiser does. A model
that rebuilds its input or has several outputs may be limited by design: where four examples do not fit either, that is
unclear, unless the loss does not move at all. So is an unknown loss that no output would lower, and a model with fewer
parameters than the batch has target values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from clew.exams.batches import Batch, is_values, rows, take, tensors
from clew.exams.checks._network_rows import fewer
from clew.exams.checks._training_loss import Known, answer, exchanged, floats, recognise
from clew.exams.checks._training_quiet import quiet, repeating
from clew.exams.checks._training_runs import MOST_FROZEN, frozen_share, trained_parameters
from clew.exams.checks.capacity_doubling import rebuilds_input
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear

STEPS = 200
MOST_ROWS, FEW_ROWS = 32, 4
RATES = (1e-3, 1e-2, 1e-4)
FITS, PARTLY = 0.05, 0.5
STANDS = 0.9
MOVES = 1e-4
FALLING = 0.98
FAR = 30.0
SAME = 1e-3

Maker = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


class Tried(NamedTuple):
    share: float
    """Of the loss above its floor, what is left; NaN when there is no floor to measure from."""
    start: float
    least: float
    rate: float
    steps: int
    steady: bool
    """Whether it ended at its lowest: a smaller rate would then be slower, and no better."""
    falling: bool = False
    """Whether it was still on its way down when the steps were used up."""


@exam("overfit_one_batch", needs=("loss",), seconds=8.0, steps=3 * STEPS)
def examine(lab: Lab) -> Answer:
    if not trained_parameters(lab.fresh()):
        return Unclear("no parameter of the model takes a gradient")
    batch = _bearable(lab, fewer(consistent(lab.batch), MOST_ROWS))
    known = recognise(lab, lab.fresh(), [batch])
    best = _tried(lab, batch, known)
    if not math.isfinite(best.start):
        return Reading(final_over_initial=math.nan, steps=0, loss=best.start)
    if isinstance(known, Known) and known.factor < 0:
        return Reading(final_over_initial=best.least / best.start, **_figures(best))
    if math.isnan(best.share):
        if best.start - best.least <= MOVES * abs(best.start):
            return Reading(final_over_initial=1.0, **_figures(best))
        return Unclear(f"the loss goes from {best.start:.3g} to {best.least:.3g}, and its lower bound is unknown")
    if FITS <= best.share < STANDS and (rebuilds_input(batch) or _several(lab, batch)):
        few = _tried(lab, _bearable(lab, fewer(batch, FEW_ROWS), batch), known)
        if not few.share < FITS:
            return Unclear(
                f"the loss falls to {best.share:.2g} of its start, and an autoencoder or a model with several "
                "outputs may not get lower by design"
            )
        best = few
    if FITS <= best.share < PARTLY and isinstance(known, str):
        free = least_of_outputs(lab, batch)
        if free is not None and best.least - free < FITS * (best.start - free):
            return Unclear(f"the loss falls to {best.least:.3g}, and no output would lower it below {free:.3g}")
    if best.share >= FITS and (values := _told(batch)):
        parameters = sum(held.numel() for held in trained_parameters(lab.fresh()))
        if parameters < values:
            return Unclear(f"{parameters} parameters cannot hold the {values} targets of the batch")
    if best.share >= FITS and (frozen := frozen_share(lab.fresh())) > MOST_FROZEN:
        return Unclear(f"{frozen:.0%} of the weights are frozen in the captured step")
    if best.share >= PARTLY and best.falling and _far(batch):
        return Unclear(f"the targets are so large that {best.steps} steps are too few; the loss is still falling")
    return Reading(final_over_initial=best.share, **_figures(best))


def _far(batch: Batch) -> bool:
    """Whether targets lie where outputs come only in many steps."""
    held = [tensor for tensor in tensors(batch.target) if tensor.is_floating_point() and tensor.numel()]
    return any(float(tensor.abs().median()) > FAR for tensor in held)


def _told(batch: Batch) -> int:
    """How many values the batch asks for, where they are numbers that a model of few parameters cannot hold."""
    return sum(held.numel() for held in tensors(batch.target) if held.is_floating_point())


def _figures(best: Tried) -> dict[str, float]:
    return {"initial": best.start, "final": best.least, "rate": best.rate, "steps": best.steps}


def _tried(lab: Lab, batch: Batch, known: Known | str) -> Tried:
    """The best of several optimisers."""
    floor = known.least if isinstance(known, Known) and known.factor > 0 else 0.0
    if isinstance(known, Known) and known.kind == "classes" and known.factor > 0:
        floor = max(floor, known.factor * entropy_after_beginnings(batch))
    makers: list[tuple[float, Maker]] = [(rate, _adam(rate)) for rate in RATES]
    if isinstance(lab.subject.optimizer, torch.optim.LBFGS):
        makers.insert(0, (1.0, _lbfgs))
    guess = known.guess if isinstance(known, Known) else 0.0
    best: Tried | None = None
    steady = False
    for rate, maker in makers:
        if rate < RATES[0] and steady:
            break
        held = _run(lab, batch, maker, rate, floor, guess)
        steady = steady or (rate == RATES[0] and held.steady)
        best = held if best is None or _order(held) < _order(best) else best
        if best.share < FITS or not math.isfinite(best.start):
            return best
    assert best is not None
    if (best.share < PARTLY or best.falling) and makers[0][1] is not _lbfgs:
        held = _run(lab, batch, _lbfgs, 1.0, floor, guess)
        best = held if _order(held) < _order(best) else best
    return best


def _order(tried: Tried) -> float:
    return tried.least if math.isnan(tried.share) else tried.share


def _adam(rate: float) -> Maker:
    return lambda held: torch.optim.Adam(held, lr=rate)


def _lbfgs(held: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.LBFGS(held, max_iter=1, history_size=20, line_search_fn="strong_wolfe")


def _run(lab: Lab, batch: Batch, maker: Maker, rate: float, floor: float, guess: float) -> Tried:
    model = lab.fresh()
    optimizer = maker(trained_parameters(model))
    losses: list[float] = []

    def closure() -> torch.Tensor:
        again()
        optimizer.zero_grad()
        with quiet(model):
            loss = lab.loss(model, batch)
        losses.append(float(loss.detach()))
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
        return loss

    start = math.nan
    steps = 0
    with lab.seeded():
        again = repeating()
        for step in range(STEPS):
            lab.check(step / STEPS)
            optimizer.step(closure)  # type: ignore[arg-type]
            start = losses[0]
            steps = step + 1
            if not math.isfinite(losses[-1]) or len(losses) > STEPS:
                break
            if share(start, losses[-1], floor, guess) < FITS / 2:
                break
    finite = [loss for loss in losses if math.isfinite(loss)]
    least = min(finite, default=math.nan)
    steady = bool(losses) and losses[-1] - least <= 0.01 * abs(start - least)
    late = losses[int(0.8 * len(losses))] - least if losses else 0.0
    # On its way: a fall of two parts in a hundred at the end, or half as fast as on the whole, as with targets far off.
    falling = steady and (late > (1 - FALLING) * (late + least) or late > 0.1 * (start - least) > 0)
    return Tried(share(start, least, floor, guess), start, least, rate, steps, steady, falling)


def share(start: float, least: float, floor: float, guess: float) -> float:
    """How much of the loss above its floor is left. A model that was trained is measured by what guessing costs."""
    above = max(start, guess) - floor
    if start < 0 or least < 0 or above <= 0:
        return math.nan
    return max(least - floor, 0.0) / above


def _bearable(lab: Lab, batch: Batch, like: Batch | None = None) -> Batch:
    """The batch, or one with the same examples in the number that the step was captured with; all of them where it
    matters which stand side by side: copies of one example make no pair."""
    whole = like or lab.batch
    try:
        with lab.seeded():
            lab.loss(lab.fresh(), batch)
        return batch
    except RuntimeError:
        if not rows(batch) or not rows(whole) or not _in_any_order(lab, whole):
            return whole
        return take(whole, torch.arange(rows(whole)) % rows(batch))


def _in_any_order(lab: Lab, batch: Batch) -> bool:
    """Whether the loss stays the same when the examples change places. Not where parts of a batch are compared with
    each other, as anchors with what stands a third of the batch behind them."""
    model = lab.fresh()
    values = []
    for order in (torch.arange(rows(batch)), torch.arange(rows(batch)).roll(1)):
        with lab.seeded(), quiet(model):
            values.append(lab.loss_value(model, take(batch, order)))
    return abs(values[0] - values[1]) <= SAME * max(abs(values[0]), SAME) or not math.isfinite(values[0])


def consistent(batch: Batch) -> Batch:
    """Examples with the same inputs get the target of the first of them, since no model can tell them apart. Not where
    most are alike: inputs that say nothing are a fault to be seen."""
    count = rows(batch)
    if not count or count > 4 * MOST_ROWS:
        return batch
    held = [tensor for tensor in tensors(batch.inputs) if tensor.dim()]
    first = list(range(count))
    for row in range(count):
        for earlier in range(row):
            if first[earlier] == earlier and all(torch.equal(tensor[row], tensor[earlier]) for tensor in held):
                first[row] = earlier
                break
    if len(set(first)) == count or len(set(first)) < count / 2:
        return batch
    return take(batch, torch.tensor(first))


def entropy_after_beginnings(batch: Batch) -> float:
    """For tokens with a target at each position: the entropy of the target where the beginning is the same, which no
    model that reads from left to right gets below. 0 where the batch is of another kind."""
    tokens = [tensor for tensor in tensors(batch.inputs) if tensor.dim() == 2 and not is_values(tensor)]
    wanted = [tensor for tensor in tensors(batch.target) if not is_values(tensor)]
    if len(tokens) != 1 or len(wanted) != 1 or wanted[0].numel() != tokens[0].numel():
        return 0.0
    counts: dict[int, dict[int, int]] = {}
    for line, targets in zip(tokens[0].tolist(), wanted[0].reshape(tokens[0].shape).tolist(), strict=True):
        beginning = 0
        for token, target in zip(line, targets, strict=True):
            beginning = hash((beginning, token))
            if target >= 0:
                after = counts.setdefault(beginning, {})
                after[target] = after.get(target, 0) + 1
    total = sum(sum(after.values()) for after in counts.values())
    nats = sum(-count * math.log(count / sum(after.values())) for after in counts.values() for count in after.values())
    return nats / total if total else 0.0


def least_of_outputs(lab: Lab, batch: Batch) -> float | None:
    """How low the loss gets when the output itself is what is trained; None where it cannot be asked so."""
    if lab.subject.loss is None:
        return None
    seen = answer(lab, lab.fresh(), batch)
    held = [tensor.clone().requires_grad_() for tensor in floats(seen.output)]
    optimizer = torch.optim.LBFGS(held, max_iter=STEPS // 2, history_size=20, line_search_fn="strong_wolfe")
    values = [seen.value]

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        changed = seen.output
        for number, tensor in enumerate(held):
            changed = exchanged(changed, number, lambda _, tensor=tensor: tensor)  # type: ignore[misc]
        again()
        loss = lab.subject.value(changed, batch.target)
        loss.backward()  # type: ignore[no-untyped-call]
        values.append(float(loss.detach()))
        return loss

    with lab.seeded():
        again = repeating()
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    finite = [value for value in values if math.isfinite(value)]
    return min(finite) if finite else None


def _several(lab: Lab, batch: Batch) -> bool:
    with lab.seeded():
        return sum(value.requires_grad for value in tensors(lab.output(lab.fresh(), batch))) > 1
