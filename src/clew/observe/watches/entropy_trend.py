"""Does the policy become more decided at a reasonable pace?

Reads the entropy of categorical distributions where they are sampled from, over its maximum, on sampled steps.

Why it matters: a policy that is decided too early tries nothing else; one that stays random has not learned.
Cannot tell: why it collapsed. Policies that are not torch.distributions.Categorical are not read.
Silent when: the run is shorter than two hundred updates; entropy falls later than at a quarter of it.
"""

from __future__ import annotations

import statistics

from clew.observe.watch import Answer
from clew.observe.watches._rl_study import Studied
from clew.records.clue import Reading, Unclear

STEPS = 200
FLAT = 0.97


class EntropyTrend(Studied):
    test = "entropy_trend"

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        by_step: dict[int, list[float]] = {}
        for step, share in self.study.policy.entropies:
            by_step.setdefault(step, []).append(share)
        if not by_step:
            return Unclear("no categorical policy was seen choosing actions")
        if self.recorder.step < STEPS:
            return Unclear(f"entropy says little before some {STEPS} updates")
        quarter = 0.25 * self.recorder.step
        means = {step: statistics.fmean(shares) for step, shares in by_step.items()}
        share = means[min(means, key=lambda step: abs(step - quarter))]
        later = [mean for step, mean in means.items() if step >= quarter]
        if share > FLAT:
            if not later:
                return Unclear("no choice of an action was seen late enough")
            share = min(later)
        return Reading(entropy_share=share, first=means[min(means)], last=means[max(means)])
