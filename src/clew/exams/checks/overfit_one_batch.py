"""Can the model memorise one batch?

Why it matters: a model that cannot is broken in wiring, loss or gradient flow; no tuning will mend that.
Cannot tell: a bad step size from a bad loss (see lr_range); what is lost between the data and the batch.
Silent when: any of three step sizes memorises the batch, whatever the user's own one does.
"""

from __future__ import annotations

import math

from clew.exams.batches import rows, take
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear

STEPS = 200
MOST_ROWS = 32


@exam("overfit_one_batch", needs=("loss",), seconds=8.0, steps=3 * STEPS)
def examine(lab: Lab) -> Answer:
    import torch

    batch = lab.batch
    if rows(batch) > MOST_ROWS:
        batch = take(batch, torch.arange(MOST_ROWS))
    best: tuple[float, float, list[float]] | None = None
    for rate in (1e-3, 1e-2, 1e-4):
        model = lab.fresh()
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not trained:
            return Unclear("no parameter of the model takes a gradient")
        with lab.seeded():
            losses = lab.fit(model, [batch], STEPS, optimizer=torch.optim.Adam(trained, lr=rate))
        start = losses[0]
        if not math.isfinite(start):
            return Reading(final_over_initial=math.nan, steps=0, loss=start)
        ratio = min(losses) / start if start > 0 else math.nan
        if best is None or ratio < best[0]:
            best = (ratio, rate, losses)
        if ratio < 0.1:
            break
    assert best is not None
    ratio, rate, losses = best
    if math.isnan(ratio):
        return Unclear(f"the loss starts at {losses[0]:.3g}, and how low it could get is not known")
    return Reading(final_over_initial=ratio, initial=losses[0], final=min(losses), rate=rate, steps=len(losses) - 1)
