"""Is the first loss at chance level?

The loss is recognised by its value: the formula that agrees on the model's output and on a random one. Chance level is
ln C for cross-entropy over C classes and ln 2 for yes or no, or less where the shares of the classes are known, and for
squared errors the variance of the targets. A loss between the two kinds of guess counts as one.

Why it matters: a first loss far above says that scale, sum or labels are wrong; far below, that something is ignored or
leaked.
Cannot tell: a double softmax, which starts at chance. A sum over the parts of one example is taken as meant.
Silent when: weights of classes, padding or label smoothing change the loss but not its chance level. Unclear for
losses that are not recognised, for low losses of a model that has learned already, and for sums under Adam.
"""

from __future__ import annotations

from clew.exams.checks._training_loss import recognise
from clew.exams.checks._training_quiet import mean_loss
from clew.exams.checks._training_runs import is_trained
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear

BATCHES = 4
BELOW, ABOVE = 0.5, 1.5


def _scale_free(lab: Lab) -> bool:
    """Whether steps are of one size whatever the loss is multiplied by, as Adam's are."""
    made = lab.subject.make_optimizer(lab.fresh())
    return made is not None and all("betas" in group for group in made.param_groups)


@exam("init_loss", needs=("loss",), seconds=0.5, steps=3 * BATCHES)
def examine(lab: Lab) -> Answer:
    batches = lab.batches[:BATCHES]
    known = recognise(lab, lab.fresh(), batches)
    if isinstance(known, str):
        return Unclear(known)
    value = mean_loss(lab, lab.fresh(), batches)
    over = known.over_chance(value)
    if over < BELOW and known.factor > 0 and is_trained(lab, batches, known.high):
        return Unclear(f"the loss is {value:.3g}, below chance, and the weights are already trained")
    if over > ABOVE and known.kind in ("values", "binary") and BELOW <= over / known.factor <= ABOVE:
        return Unclear(f"the loss is a sum, intended or not: each of its {known.factor:.0f} values is at chance")
    if over > ABOVE and known.factor > 1 and BELOW <= over / known.factor <= ABOVE and _scale_free(lab):
        return Unclear(f"the loss is {known.factor:.0f} times a guess, a sum, and the optimiser cancels its scale")
    direction = "below" if over < BELOW else "above" if over > ABOVE else "at chance"
    found = Reading(
        loss_over_chance=over,
        loss=value,
        chance=known.high,
        chance_with_shares_known=known.low,
        recognised=known.name,
        times_the_mean=known.factor,
        direction=direction,
    )
    place = lab.place()
    return found.at(place) if place is not None and direction != "at chance" else found
