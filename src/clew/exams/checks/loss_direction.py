"""Does the loss fall for answers that are right?

The loss is recognised by its value, as for init_loss: the formula that agrees on the model's output and on a random
one, with the factor before it. A factor below zero pays for wrong answers.

Why it matters: a likelihood that is written out by hand loses its minus easily. The loss then falls without end, while
the model learns to name whatever is wrong.
Cannot tell: losses that are not recognised; an update that climbs a sound loss (see step_lowers_batch_loss).
Silent when: the factor is positive.
"""

from __future__ import annotations

from clew.exams.checks._training_loss import recognise
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear

BATCHES = 3


@exam("loss_direction", needs=("loss", "target"), seconds=0.3, steps=BATCHES)
def examine(lab: Lab) -> Answer:
    known = recognise(lab, lab.fresh(), lab.batches[:BATCHES])
    if isinstance(known, str):
        return Unclear(known)
    if known.factor > 0:
        return Saw("right", recognised=known.name, factor=known.factor)
    says = f"What is minimised is {known.factor:.3g} times the {known.name}: wrong answers make it fall."
    return Saw("turned", recognised=known.name, factor=known.factor).at(lab.place()).saying(says)
