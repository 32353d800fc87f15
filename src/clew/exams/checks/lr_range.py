"""Where is the learning rate within the range that works?

Raises the rate of the user's own optimiser from 1e-7 to 10 by a constant factor over 100 steps on a copy (Smith's
test), each loss taken against the first loss of the same batch. Finds the rate at which the loss falls fastest and
divides the user's rate by it. A rate that looks too low or too high is compared in training with one ten times as high
or low first.

Why it matters: the rate is the setting that matters most, and its useful range is narrow at the upper end.
Cannot tell: why the range is where it is: raw inputs, a summed loss or bad first weights move it as well. It is
that of the start of training.
Silent when: a schedule begins at a low rate: the rate that it was given counts. Unclear where no rate makes the loss
fall, and for LBFGS, which chooses its own steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch

from clew.exams.checks._training_runs import main_rate, own_optimizer, set_rate, train
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Saw, Unclear

STEPS = 100
LOWEST, HIGHEST = 1e-7, 10.0
BATCHES = 8
WINDOW, SPAN = 2, 3
TRIAL = 40
FALL, OVERSHOOT = 0.02, 0.1
ALIKE = 0.2
TOO_LOW, TOO_HIGH = 0.005, 30.0


class Sweep(NamedTuple):
    """The rates tried, and after each the loss above that of the untrained model, as a share of it."""

    rates: list[float]
    changes: list[float]


@exam("lr_range", needs=("loss", "optimizer"), seconds=1.5, steps=STEPS + 2 * TRIAL)
def examine(lab: Lab) -> Answer:
    optimizer = own_optimizer(lab, lab.fresh())
    if optimizer is None:
        return Unclear("the user's optimiser could not be rebuilt over a copy of the model")
    if isinstance(optimizer, torch.optim.LBFGS):
        return Unclear("LBFGS chooses its steps by line search, whatever the rate")
    rate = main_rate(optimizer)
    found = sweep(lab)
    if isinstance(found, str):
        return Unclear(found)
    best = steepest(found)
    if best is None:
        return Unclear("at no rate does the loss fall by more than its noise")
    ratio = rate / best
    figures = {"rate_over_steepest_rate": ratio, "rate": rate, "steepest_rate": best}
    if ratio <= TOO_LOW and _falls_alike(lab, rate, 10 * rate):
        return _works(figures, "ten times the rate does not lower it much further")
    if ratio > TOO_HIGH and _falls_alike(lab, rate, rate / 10):
        return _works(figures, "a tenth of the rate does not lower it much further")
    return Reading(**figures)


def _works(figures: dict[str, float], why: str) -> Saw:
    return Saw("in_range", **figures).saying(
        f"The loss falls over {TRIAL} steps at the rate {figures['rate']:.2g}, and {why}; it falls fastest at "
        f"{figures['steepest_rate']:.2g}."
    )


def sweep(lab: Lab) -> Sweep | str:
    model = lab.fresh()
    optimizer = own_optimizer(lab, model)
    assert optimizer is not None
    batches = lab.batches[:BATCHES]
    first = _first_losses(lab)
    size = sum(map(abs, first)) / len(first)
    if not math.isfinite(size) or size == 0:
        return f"the loss starts at {size:.3g}"
    made = Sweep([], [])
    with lab.seeded():
        for step in range(STEPS + 1):
            lab.check(step / (STEPS + 2 * TRIAL))
            rate = LOWEST * (HIGHEST / LOWEST) ** (min(step, STEPS - 1) / (STEPS - 1))
            set_rate(optimizer, rate)
            at = step % len(batches)
            change = (lab.one_step(model, batches[at], optimizer) - first[at]) / size
            if step:
                made.changes.append(change)
            if not math.isfinite(change) or change > max(0.5, min(made.changes, default=0.0) + 1.0):
                break
            made.rates.append(rate)
    return made


def _first_losses(lab: Lab) -> list[float]:
    model = lab.fresh()
    with lab.seeded():
        return [float(lab.loss(model, batch).detach()) for batch in lab.batches[:BATCHES]]


def steepest(found: Sweep) -> float | None:
    """The rate of the steepest fall of the smoothed curve; None when nothing falls by more than noise does."""
    values = [value for value in found.changes if math.isfinite(value)]
    count = min(len(values), len(found.rates))
    if count < 4 * SPAN:
        return None
    smooth = [
        sum(values[max(0, at - WINDOW) : at + WINDOW + 1]) / len(values[max(0, at - WINDOW) : at + WINDOW + 1])
        for at in range(count)
    ]
    quiet = smooth[: max(SPAN, count // 4)]
    noise = max(quiet) - min(quiet)
    if min(smooth) > -max(FALL, 2 * noise):
        return None
    # Only new lows count: what falls after an overshoot has been there before.
    lows = list(accumulate(smooth, min))
    over = next((at for at, low in enumerate(lows) if smooth[at] - low > max(OVERSHOOT, -low / 2)), count)
    lowest = lows.index(min(lows[:over]))
    slopes = {at: lows[min(at + SPAN, over - 1)] - lows[at - SPAN] for at in range(SPAN, lowest + 1)}
    at = min(slopes, key=lambda place: slopes[place], default=lowest)
    return found.rates[at]


def _falls_alike(lab: Lab, rate: float, other: float) -> bool:
    """Whether the loss falls with the rate, and not far less than with the other."""
    own, best = (_fall(lab, tried) for tried in (rate, other))
    return own > FALL and own >= ALIKE * best


def _fall(lab: Lab, rate: float) -> float:
    """By what share of itself the loss falls in a short training at this rate."""
    model = lab.fresh()
    optimizer = own_optimizer(lab, model)
    assert optimizer is not None
    set_rate(optimizer, rate)
    batches = lab.batches[:BATCHES]
    first = _first_losses(lab)
    with lab.seeded():
        losses = train(lab, model, batches, TRIAL, optimizer)
    if not math.isfinite(losses[-1]):
        return -math.inf
    return _mean([first[at % len(batches)] - losses[at] for at in range(TRIAL * 3 // 4, TRIAL)]) / _mean(
        [abs(value) for value in first]
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
