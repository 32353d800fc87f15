"""Does an update make those actions likelier whose value turned out better than expected?

Correlates, row by row, how the script's own backward pulls at each log-probability with how far the value target of
the same observation lies above the value. Where no value function is trained, with the discounted sum of rewards. Where
log-probabilities are written out by hand, the pull is read from the gradient at the output of the network.

Why it matters: with the sign wrong the agent unlearns what works, and every loss curve looks as usual.
Cannot tell: a reward with the wrong sign; Gaussian log-probabilities that are written out by hand.
Silent when: the two are not clearly related, as after clipping or with other terms on the log-probabilities.
"""

from __future__ import annotations

import numpy as np

from clew.observe.watch import Answer
from clew.observe.watches._rl_direction import agreements
from clew.observe.watches._rl_lines import computing
from clew.observe.watches._rl_study import Studied
from clew.records.clue import Saw, Unclear

CLEAR = 0.8
BATCHES = 3


class PolicyDirection(Studied):
    test = "policy_direction"

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        found = agreements(self.study)
        if len(found) < BATCHES:
            return Unclear("too few updates with log-probabilities and values of the same steps were seen")
        values = [correlation for correlation, _ in found]
        place = found[-1][1]
        middle = float(np.median(values))
        figures = {"correlation": middle, "batches": len(values)}
        if middle < -CLEAR and max(values) < 0:
            says = (
                f"The correlation of advantage and change of log-probability is negative in all {len(values)} batches, "
                f"with a median of {middle:.2g}: actions that did well become less likely."
            )
            return Saw("against", **figures).saying(says).at(*computing("policy loss", place), place)
        if middle > 0:
            return Saw("along", **figures).at(place)
        return Unclear("the updates are not clearly related to the value estimates")
