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

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clew.observe.watch import Answer
from clew.observe.watches._rl_direction import beside, correlation
from clew.observe.watches._rl_lines import computing
from clew.observe.watches._rl_study import Studied
from clew.records.clue import Saw, Unclear

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clew.observe.watches._rl_policy import Favoured
    from clew.records.place import Place

UPDATES = 10
BATCH = 8
FAR = 0.5
FEW = 3
SAME = 0.99999
APART = 0.99
EARLY = 0.1
EXACT = 0.9999
NEARLY = 0.95
LOOSE = 0.7
BELOW = 0.8


class Against(NamedTuple):
    """How the weights of one update correlate with the targets of the critic, and with what these add to its values."""

    step: int
    targets: float
    advantages: float
    exact: bool  # they are the targets, but for a constant and the ratio of probabilities
    place: Place | None


class AdvantageStatistics(Studied):
    test = "advantage_statistics"

    def read(self) -> Answer:
        why = self.unseen()
        policy = self.study.policy
        if why or not policy.products:
            return Unclear(why or "no log-probability of torch.distributions was seen weighted in a loss")
        if policy.leaks:
            return Saw("carries_gradient", updates=len(policy.leaks)).at(*self._lines(policy.leaks[0]))
        if not self.study.aimed:
            return Unclear("no value function was seen in training")
        place = self._targets_themselves()
        if place is not None:
            return Saw("no_baseline", updates=len(policy.favoured)).at(*self._lines(place))
        place = self._targets_less_a_constant()
        if place is not None:
            saw = Saw("no_baseline", updates=len(policy.favoured)).at(*self._lines(place))
            return saw.saying(
                "the weights are the critic's targets minus a constant: the critic's values are not subtracted"
            )
        means = []
        for held in policy.favoured:
            if held.step > EARLY * self.recorder.step and len(held.weights) >= BATCH and np.std(held.weights) > 0:
                means.append(float(np.mean(held.weights) / np.std(held.weights)))
                place = held.place
        if len(means) < UPDATES:
            return Unclear("too few policy updates were seen after the first tenth of the run")
        far = all(mean > FAR for mean in means) or all(mean < -FAR for mean in means)
        figures = {"mean_over_std": float(np.median(means)), "updates": len(means)}
        return Saw("not_centred", **figures).at(*self._lines(place)) if far else Saw("usual", **figures).at(place)

    @staticmethod
    def _lines(place: Place | None) -> list[Place | None]:
        return [*computing("advantages", place), place]

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
        found = [each for held in self.study.policy.favoured if (each := self._against(held)) is not None]
        late = [each for each in found if each.step > EARLY * self.recorder.step]
        if len(late) < FEW or sum(each.exact for each in found) < FEW or min(each.targets for each in found) < LOOSE:
            return None
        whole = float(np.median([each.targets for each in late])), float(np.median([each.advantages for each in late]))
        return found[-1].place if whole[0] > NEARLY and whole[1] < BELOW else None

    def _against(self, held: Favoured) -> Against | None:
        other = beside(held, list(self.study.aimed))
        pulled = held.weights != 0  # clipping leaves nothing of a weight
        if other is None or pulled.sum() < BATCH:
            return None
        left = other.targets - other.values
        close = [correlation(held.weights[pulled], each[pulled]) or 0.0 for each in (other.targets, left)]
        ratios = np.ones(len(pulled)) if held.ratios is None else held.ratios
        known = pulled & np.isfinite(ratios)
        freed = 0.0
        if known.sum() >= BATCH:
            freed = correlation(held.weights[known] / ratios[known], other.targets[known]) or 0.0
        return Against(held.step, close[0], close[1], max(freed, close[0]) > EXACT, held.place)


def alike(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """The cosine between the two."""
    return float(one @ other) / max(1e-30, float(np.linalg.norm(one) * np.linalg.norm(other)))
