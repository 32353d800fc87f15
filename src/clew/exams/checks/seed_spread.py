"""How much does the result change when only the seed does?

Redraws the weights for each of five seeds, by permuting the entries of every weight matrix, and the
order of the batches with them. Trains each copy for the same steps with the user's optimiser and compares the final
losses, on held-out batches where there are some.

Why it matters: where seeds differ as much as the gain over no training, a single run proves nothing.
Cannot tell: the spread at the end of a full training; noise of a small test set from a fault that strikes at random.
Silent when: all seeds gain alike. Unclear where the weights were trained already, or so few steps gain nothing.
"""

from __future__ import annotations

import math
import statistics

import torch

from clew.exams.checks._training_quiet import mean_loss
from clew.exams.checks._training_runs import is_trained, own_optimizer, redrawn, train, trained_parameters
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear

SEEDS = 5
STEPS = 80
MEASURED = 4
LEAST_GAIN, UNDER_WAY = 0.1, 0.25
"""What the copies must gain of the first loss, and what they must for a wide spread to be more than the way there."""
WIDE = 0.2
SURELY = 0.65
"""The true deviation is above this share of that of five values in 19 of 20 cases, by the chi-squared distribution."""


@exam("seed_spread", needs=("loss",), seconds=5.0, steps=SEEDS * STEPS)
def examine(lab: Lab) -> Answer:
    if not trained_parameters(lab.fresh()):
        return Unclear("no parameter of the model takes a gradient")
    if is_trained(lab, lab.batches[:MEASURED]):
        return Unclear("the weights are already trained, and redrawing them would compare other starting points")
    starts, ends = zip(*(_run(lab, seed) for seed in range(SEEDS)), strict=True)
    finite = [end for end in ends if math.isfinite(end)]
    if not finite or not all(map(math.isfinite, starts)):
        return Unclear("the loss is not finite with any seed")
    start = statistics.fmean(starts)
    gain = start - statistics.fmean(finite)
    if gain < LEAST_GAIN * abs(start):
        return Unclear(
            f"{STEPS} steps bring the loss from {start:.3g} to {start - gain:.3g}, too little to compare seeds"
        )
    spread = statistics.stdev(ends) / gain if len(finite) == SEEDS else math.inf
    if SURELY * spread < WIDE < spread:
        return Unclear(
            f"the deviation over {SEEDS} seeds is {spread:.2g} of the gain, which so few seeds cannot "
            "distinguish from a fifth"
        )
    if spread > WIDE and len(finite) == SEEDS and gain < UNDER_WAY * abs(start):
        return Unclear(f"{STEPS} steps gain {gain / abs(start):.0%} of the loss: seeds differ in how fast they begin")
    return Reading(
        std_over_gain=spread,
        initial=start,
        mean=statistics.fmean(finite),
        lowest=min(finite),
        highest=max(finite),
        not_finite=SEEDS - len(finite),
        seeds=SEEDS,
        steps=STEPS,
    )


def _run(lab: Lab, seed: int) -> tuple[float, float]:
    """The loss before and after."""
    model = redrawn(lab, seed)
    measured = (lab.val_pairs or lab.batches)[:MEASURED]
    start = mean_loss(lab, model, measured)
    order = torch.randperm(len(lab.batches), generator=lab.generator(seed)).tolist()
    optimizer = own_optimizer(lab, model) or lab.optimizer(model)
    with lab.seeded(seed):
        losses = train(lab, model, [lab.batches[at] for at in order], STEPS, optimizer)
    return start, mean_loss(lab, model, measured) if math.isfinite(losses[-1]) else math.nan
