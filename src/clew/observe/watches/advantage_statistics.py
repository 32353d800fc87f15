"""Are the weights in the policy loss real advantages: centred, and constant for autograd?

The weights are read from the gradient that reaches the log-probabilities; whether they carry gradients is read from
the graph of the loss.

Why it matters: uncentred weights reinforce whatever was sampled; weights with gradients bend the critic.
Cannot tell: a wrong baseline from a biased critic, when the weights are not centred.
Silent when: log-probabilities do not come from torch.distributions; no value function is trained, since plain
policy gradients without a baseline are a method of their own.
"""

from __future__ import annotations

import numpy as np

from clew.observe.watch import Answer
from clew.observe.watches._rl_study import Studied
from clew.records.clue import Saw, Unclear

UPDATES = 10
BATCH = 8
FAR = 0.5


class AdvantageStatistics(Studied):
    test = "advantage_statistics"

    def read(self) -> Answer:
        why = self.unseen()
        policy = self.study.policy
        if why or not policy.products:
            return Unclear(why or "no log-probability of torch.distributions was seen weighted in a loss")
        if policy.leaks:
            return Saw("carries_gradient", updates=len(policy.leaks)).at(policy.leaks[0])
        if not self.study.aimed:
            return Unclear("no value function was seen in training")
        means = []
        place = None
        for held in policy.favoured:
            if held.step > 0.1 * self.recorder.step and len(held.weights) >= BATCH and np.std(held.weights) > 0:
                means.append(float(np.mean(held.weights) / np.std(held.weights)))
                place = held.place
        if len(means) < UPDATES:
            return Unclear("too few updates of the policy were seen after the first tenth of the run")
        far = all(mean > FAR for mean in means) or all(mean < -FAR for mean in means)
        figures = {"mean_over_std": float(np.median(means)), "updates": len(means)}
        return Saw("not_centred" if far else "usual", **figures).at(place)
