"""Do two trainings from the same seed give the same losses?

Trains two copies for some steps after setting every random state (Python, numpy, torch) to the same seed.

Why it matters: where they differ, no two runs can be compared, and the effect of a code change cannot be separated from
noise.
Cannot tell: whether the script sets its seeds at all, and the order in which its loader gives the data.
Silent when: the model or the loss draws random numbers that follow the seeds. Nondeterministic GPU sums are recognised.
"""

from __future__ import annotations

import copy
import math

from torch import nn

from clew.exams.checks._training_runs import train
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear

STEPS = 20


@exam("same_seed_repeat", needs=("loss",), seconds=1.0, steps=2 * STEPS)
def examine(lab: Lab) -> Answer:
    first, second = _losses(lab), _losses(lab)
    pairs = list(zip(first, second, strict=False))
    if not all(math.isfinite(one) == math.isfinite(other) for one, other in pairs) or len(first) != len(second):
        return Reading(largest_relative_difference_of_losses=math.nan, steps=len(pairs))
    gaps = [apart(one, other) for one, other in pairs if math.isfinite(one) and math.isfinite(other)]
    if not gaps:
        return Unclear(f"the loss is {first[0]} from the first step on")
    parted = next((step for step, gap in enumerate(gaps) if gap > 0), -1)
    return Reading(largest_relative_difference_of_losses=max(gaps), steps=len(gaps), first_step_apart=parted)


def apart(one: float, other: float) -> float:
    largest = max(abs(one), abs(other))
    return abs(one - other) / largest if largest > 0 else 0.0


def _losses(lab: Lab) -> list[float]:
    """What a loss of one's own keeps from step to step starts alike each time, and ends as it was."""
    loss = lab.subject.loss
    held = copy.deepcopy(loss.state_dict()) if isinstance(loss, nn.Module) else None
    try:
        with lab.seeded():
            model = lab.fresh()
            return train(lab, model, lab.batches, STEPS, lab.optimizer(model))
    finally:
        if held is not None and isinstance(loss, nn.Module):
            loss.load_state_dict(held)
