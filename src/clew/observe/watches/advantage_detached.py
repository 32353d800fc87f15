"""Does the policy loss leave the critic alone?

Looks in the graph of the loss for a product of log-probabilities with something of the same size that leads back to
the weights of a layer.

Why it matters: the policy loss then trains the critic to make its own weights look better.
Cannot tell: log-probabilities written out by hand.
Silent when: a single learned factor, such as a temperature, multiplies the log-probabilities.
"""

from __future__ import annotations

from clew.observe.watch import Answer
from clew.observe.watches._rl_lines import computing
from clew.observe.watches._rl_study import Studied
from clew.records.clue import Saw, Unclear


class AdvantageDetached(Studied):
    test = "advantage_detached"

    def read(self) -> Answer:
        why = self.unseen()
        policy = self.study.policy
        if why or not policy.products:
            return Unclear(why or "no log-probability of torch.distributions was seen weighted in a loss")
        if policy.leaks:
            return Saw("carries_gradient", updates=len(policy.leaks)).at(
                *computing("advantages", policy.leaks[0]), policy.leaks[0]
            )
        return Saw("detached", updates=policy.products)
