"""Are the weights in the policy loss real advantages: centred, and constant for autograd?

The weights are read from the gradient that reaches the log-probabilities; whether they carry gradients is read from
the graph of the loss. Weights that are the critic's targets times a constant, in every update seen, had no value
subtracted; nor had those that are the targets less their mean, times the ratio of probabilities.

Why it matters: uncentred weights reinforce whatever was sampled; weights with gradients bend the critic.
Cannot tell: a wrong baseline from a biased critic, when the weights are not centred.
Silent when: log-probabilities do not come from torch.distributions; no value function is trained, since plain
policy gradients without a baseline are a method of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clew.observe.watch import Answer
from clew.observe.watches._rl_direction import beside, correlation
from clew.observe.watches._rl_study import Studied
from clew.records.clue import Saw, Unclear

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clew.records.place import Place

UPDATES = 10
BATCH = 8
FAR = 0.5
FEW = 3
SAME = 0.99999
APART = 0.99
NEARLY = 0.97
BELOW = 0.9
EARLY = 0.1


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
        place = self._targets_themselves()
        if place is not None:
            return Saw("no_baseline", updates=len(policy.favoured)).at(place)
        place = self._targets_less_a_constant()
        if place is not None:
            saw = Saw("no_baseline", updates=len(policy.favoured)).at(place)
            return saw.saying("the weights are the targets of the critic, less a constant: its values are not taken off")
        means = []
        for held in policy.favoured:
            if held.step > EARLY * self.recorder.step and len(held.weights) >= BATCH and np.std(held.weights) > 0:
                means.append(float(np.mean(held.weights) / np.std(held.weights)))
                place = held.place
        if len(means) < UPDATES:
            return Unclear("too few updates of the policy were seen after the first tenth of the run")
        far = all(mean > FAR for mean in means) or all(mean < -FAR for mean in means)
        figures = {"mean_over_std": float(np.median(means)), "updates": len(means)}
        return Saw("not_centred" if far else "usual", **figures).at(place)

    def _targets_themselves(self) -> Place | None:
        """Where the weights are the targets of the critic times a constant, though the critic says something else."""
        found, place = 0, None
        for held in self.study.policy.favoured:
            other = beside(held, list(self.study.aimed))
            if other is None or len(held.weights) < BATCH:
                continue
            if alike(held.weights, other.targets) < SAME or alike(held.weights, other.targets - other.values) > APART:
                return None
            found, place = found + 1, held.place
        return place if found >= FEW else None


    def _targets_less_a_constant(self) -> Place | None:
        """The same where targets were centred, and where a ratio of probabilities multiplies them and clips some."""
        exact = telling = 0
        place = None
        for held in self.study.policy.favoured:
            other = beside(held, list(self.study.aimed))
            pulled = held.weights != 0
            if other is None or pulled.sum() < BATCH:
                continue
            freed = held.weights if held.ratios is None else held.weights / held.ratios
            given = [each[pulled] for each in (held.weights, freed)]
            wanted, left = other.targets[pulled], (other.targets - other.values)[pulled]
            close = max(correlation(each, wanted) or 0.0 for each in given)
            if close < NEARLY:
                return None
            exact += close > SAME
            if held.step > EARLY * self.recorder.step:
                telling += max(correlation(each, left) or 0.0 for each in given) < BELOW
            place = held.place
        return place if exact >= FEW and telling >= FEW else None


def alike(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """The cosine between the two."""
    return float(one @ other) / max(1e-30, float(np.linalg.norm(one) * np.linalg.norm(other)))
