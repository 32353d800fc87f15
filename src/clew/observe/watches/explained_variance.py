"""How much of the variance of the returns does the value function explain?

Compares what the value function gave with what its loss aimed at, batch by batch, after the first tenth of the run, and
takes the best batch: one that learns nothing has no good one, and one that learns lags behind now and then.

Why it matters: a critic that explains nothing leaves the policy gradient as noisy as without one.
Cannot tell: a critic that does not learn from targets that cannot be learned.
Silent when: the loss is about action values; the run was short; batches are small or their targets hardly vary.
"""

from __future__ import annotations

import numpy as np

from clew.observe.watch import Answer
from clew.observe.watches._rl_study import Aimed, Studied
from clew.records.clue import Reading, Unclear

STEPS = 100
BATCH = 16
UPDATES = 4
LOW = 0.3
RISING = 0.03
SOME = 0.05
FOLLOWS = 0.4


class ExplainedVariance(Studied):
    test = "explained_variance"

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        if self.recorder.step < STEPS:
            return Unclear(f"it is low in every agent before about {STEPS} updates")
        found = [
            (aimed.step, 1.0 - float(np.var(aimed.targets - aimed.values) / np.var(aimed.targets)))
            for aimed in self._late()
        ]
        if len(found) < UPDATES:
            return Unclear("too few late batches of a value function were seen")
        best = max(value for _, value in found)
        early = max(value for _, value in found[: len(found) // 2])
        late = max(value for _, value in found[len(found) // 2 :])
        if SOME < best < LOW and late > early + RISING:
            return Unclear("it is still low, and rising")
        if SOME < best < LOW and max(self._follows()) > FOLLOWS:
            return Unclear("it is low, but the values follow the returns: part of the returns is chance")
        place = next((aimed.place for aimed in self.study.aimed if aimed.columns == 1), None)
        reading = Reading(explained_variance=best, updates=len(found))
        return reading if place is None else reading.at(place)

    def _late(self) -> list[Aimed]:
        """Batches of a state-value function after the first tenth of the run."""
        return [
            aimed
            for aimed in self.study.aimed
            if aimed.keys is not None
            and aimed.columns == 1
            and aimed.step > 0.1 * self.recorder.step
            and len(aimed.values) >= BATCH
            and np.var(aimed.targets) > 1e-8 * max(1e-8, float(np.mean(aimed.targets**2)))
        ]

    def _follows(self) -> list[float]:
        """Correlation of values and targets, batch by batch."""
        return [
            float(np.corrcoef(aimed.values, aimed.targets)[0, 1]) if np.var(aimed.values) > 0 else 0.0
            for aimed in self._late()
        ]
