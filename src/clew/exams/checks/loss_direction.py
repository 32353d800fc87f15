"""Do correct predictions lower the loss?

The loss is recognised by its value, as for init_loss: the formula that agrees on the model's output and on a random
one, with the factor before it. A factor below zero rewards wrong predictions.

Why it matters: a hand-written likelihood easily lacks its minus. The loss then falls without bound, while the model
learns to predict wrong classes.
Cannot tell: losses that are not recognised; an update that maximises a sound loss (see step_lowers_batch_loss).
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
    says = f"What is minimised is {known.factor:.3g} times the {known.name}: wrong predictions lower it."
    return Saw("turned", recognised=known.name, factor=known.factor).at(lab.place()).saying(says)
