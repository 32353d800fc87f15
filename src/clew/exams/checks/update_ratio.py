"""How large is one update compared with the weights it changes?

Takes some steps of the user's own optimiser on a copy and divides the norm of each weight matrix's change by its norm.
The figure is the median over matrices, then over steps. A step that changes half of the weights' norm counts by itself:
those after it look tame against the weights it made.

Why it matters: about 1e-3 is usual. Far below it nothing is learned in the time there is, far above it ten steps
replace the weights.
Cannot tell: a wrong rate from a wrong gradient; what clipping and a schedule make of it in the script.
Silent when: a matrix starts as zeros, so that any update is huge against it; a schedule begins at a rate near zero.
"""

from __future__ import annotations

import math
import statistics

import torch

from clew.exams.batches import Batch
from clew.exams.checks._training_runs import main_rate, own_optimizer
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear

STEPS = 20
REPLACES = 0.5


@exam("update_ratio", needs=("loss", "optimizer"), seconds=0.5, steps=STEPS)
def examine(lab: Lab) -> Answer:
    model = lab.fresh()
    optimizer = own_optimizer(lab, model)
    if optimizer is None:
        return Unclear("the user's optimiser could not be rebuilt over a copy of the model")
    named = [(name, held) for name, held in model.named_parameters() if held.requires_grad and held.dim() > 1]
    named = [(name, held) for name, held in named if bool(held.any())]
    if not named:
        return Unclear("every trained weight matrix starts at zero")
    medians, largest = [], ("", 0.0)
    with lab.seeded():
        for step in range(STEPS):
            lab.check(step / STEPS)
            before = [held.detach().clone() for _, held in named]
            loss, inner = _step(lab, model, lab.batches[step % len(lab.batches)], optimizer)
            ratios = {
                name: _norm(held.detach() - old) / _norm(old) / inner
                for (name, held), old in zip(named, before, strict=True)
                if _norm(old) > 0
            }
            medians.append(statistics.median(ratios.values()) if all(map(math.isfinite, ratios.values())) else math.nan)
            top = max(ratios, key=lambda name: ratios[name])
            largest = (top, ratios[top]) if ratios[top] > largest[1] else largest
            if not math.isfinite(loss) or math.isnan(medians[-1]):
                medians.append(math.nan)
                break
    if any(map(math.isnan, medians)):
        middle = math.nan
    else:
        middle = max(medians) if max(medians) > REPLACES else statistics.median(medians)
    return Reading(
        median_update_over_weight=middle,
        first=medians[0],
        rate=main_rate(optimizer),
        matrices=len(named),
        steps=min(len(medians), STEPS),
        largest=largest[1],
        largest_in=largest[0],
    )


def _step(lab: Lab, model: torch.nn.Module, batch: Batch, optimizer: torch.optim.Optimizer) -> tuple[float, int]:
    """The loss, and how many updates the step was made of: LBFGS takes several within one."""
    before = _iterations(optimizer)
    loss = lab.one_step(model, batch, optimizer)
    return loss, max(1, _iterations(optimizer) - before)


def _iterations(optimizer: torch.optim.Optimizer) -> int:
    return max((int(held.get("n_iter", 0)) for held in optimizer.state.values()), default=0)


def _norm(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor.double()))
