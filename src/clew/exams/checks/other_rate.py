"""Would another learning rate have got further in a tenth of the steps?

Trains copies from the captured start at ten, a hundred and a thousand times the user's rate, and at a tenth and a
hundredth of it, for at most a tenth of the steps that the run made, on half of the kept batches. What each has reached
is measured on the other half, and compared with the whole run there. The user's own rate is tried for
as many steps too: where it does as well in so few, the rate is not the problem.

Why it matters: a rate that is ten times off is fixed by one number, and the start of training alone cannot distinguish
a slow run from a short one.
Cannot tell: a rate that is a little off; why the useful rates are where they are.
Silent when: no other rate gets as far in a tenth of the steps. Unclear for runs too short to use a tenth of, without
two different batches, without weights from late in the run, for losses below zero, and for LBFGS, which chooses its own
steps.
"""

from __future__ import annotations

import math

import torch

from clew.exams.batches import Batch
from clew.exams.checks._training_quiet import mean_loss
from clew.exams.checks._training_runs import main_rate, own_optimizer, set_rate, train
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear

FEWEST, MOST = 10, 60
SHARE = 0.1
BATCHES = 8
HIGHER, LOWER = (100.0, 10.0, 1000.0), (0.1, 0.01)
LARGEST = 1.0
FURTHER, BELOW, ARRIVED = 3.0, 0.5, 0.2
"""Further is a fall of the loss that is so many times that of the run, or a loss of less than half of the run's, unless
the run has come down to a fifth of where it began: near the floor a factor says nothing."""
FALL = 0.05


@exam("other_rate", needs=("loss", "optimizer"), seconds=4.0, steps=4 * MOST)
def examine(lab: Lab) -> Answer:
    optimizer = own_optimizer(lab, lab.fresh())
    if optimizer is None:
        return Unclear("the user's optimiser could not be rebuilt over a copy of the model")
    if isinstance(optimizer, torch.optim.LBFGS):
        return Unclear("LBFGS chooses its steps by line search, whatever the rate")
    if lab.subject.trained() is None:
        return Unclear("no weights from late in the run were kept")
    steps = min(MOST, int(SHARE * lab.subject.horizon))
    if steps < FEWEST:
        return Unclear(f"the run made {lab.subject.horizon} steps: too few to use a tenth of")
    batches = lab.distinct[: 2 * BATCHES]
    if len(batches) < 2:
        return Unclear("only one batch was kept, so no other batch is left for evaluation")
    taught, shown = batches[::2], batches[1::2]
    first, last = (mean_loss(lab, model, shown) for model in (lab.fresh(), lab.late()))
    if not math.isfinite(first) or not math.isfinite(last):
        return Unclear("the loss is not finite at the start or at the end")
    if min(first, last) <= 0:
        return Unclear("the loss goes below zero, so there is no scale for progress")
    rate = main_rate(optimizer)
    figures = {"rate": rate, "steps": steps, "loss_at_first": first, "loss_of_the_run": last}
    further = _Further(first, last)
    own = _reached(lab, taught, shown, rate, steps)
    if further(own):
        return Saw("own_does", loss_of_own_rate=own, **figures).saying(
            f"A copy at the run's own rate reached a loss of {own:.3g} in {steps} steps, where the run ended at "
            f"{last:.3g}: something other than the rate held the run back."
        )
    for outcome, factors in (("higher", HIGHER), ("lower", LOWER)):
        tried = [factor for factor in factors if factor * rate <= LARGEST]
        for factor in tried:
            best = _reached(lab, taught, shown, factor * rate, steps)
            if not further(best):
                continue
            figures |= {"other_rate": factor * rate, "loss_of_other_rate": best, "loss_of_own_rate": own}
            return Saw(outcome, **figures).saying(
                f"A copy trained at a rate of {factor * rate:.2g} reached a loss of {best:.3g} in {steps} steps, on "
                f"held-out batches; the run, at {rate:.2g}, {last:.3g} in {lab.subject.horizon}."
            )
    return Saw("as_far", **figures).saying(
        f"No rate from a hundredth to a thousand times the run's gets further in {steps} steps than the run did."
    )


class _Further:
    """Whether a loss shows that the run, from `first` to `last`, could have come far further."""

    def __init__(self, first: float, last: float) -> None:
        self.first, self.last = first, last

    def __call__(self, loss: float) -> bool:
        if not 0 <= loss < self.first - FALL * self.first:
            return False
        if self.last > ARRIVED * self.first and loss < BELOW * self.last:
            return True
        return self.first - loss > FURTHER * max(self.first - self.last, 0.0) and loss < self.last


def _reached(lab: Lab, taught: list[Batch], shown: list[Batch], rate: float, steps: int) -> float:
    """The loss on batches that a copy did not see, after so many steps at this rate; infinite where it is lost."""
    model = lab.fresh()
    optimizer = own_optimizer(lab, model)
    assert optimizer is not None
    set_rate(optimizer, rate)
    with lab.seeded():
        losses = train(lab, model, taught, steps, optimizer)
    reached = mean_loss(lab, model, shown) if math.isfinite(losses[-1]) else math.inf
    return reached if math.isfinite(reached) else math.inf
