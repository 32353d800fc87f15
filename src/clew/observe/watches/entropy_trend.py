"""Does the policy become more decided at a reasonable pace?

Reads the entropy of categorical distributions where they are sampled from, over its maximum, on sampled steps. Of
Gaussian ones it takes the deviation, over a half of the unit that actions are mostly given in, or over the first one
where that is larger.

Why it matters: a policy that is decided too early tries nothing else; one that stays random has not learned.
Cannot tell: why it collapsed. Policies that are no torch.distributions are not read; a deviation that stays as it is
may be meant so.
Silent when: the run is shorter than two hundred updates; entropy falls later than at a quarter of it.
"""

from __future__ import annotations

import statistics

from clew.observe.watch import Answer
from clew.observe.watches._rl_study import Studied
from clew.records.clue import Reading, Unclear

STEPS = 200
FLAT = 0.97
WIDE, AS_MEANT = 0.5, 0.9


class EntropyTrend(Studied):
    test = "entropy_trend"

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        by_step: dict[int, list[float]] = {}
        for step, share in self.study.policy.entropies or self._widths():
            by_step.setdefault(step, []).append(share)
        if not by_step:
            return Unclear("no policy that samples actions from a distribution was seen")
        if self.recorder.step < STEPS:
            return Unclear(f"entropy says little before about {STEPS} updates")
        quarter = 0.25 * self.recorder.step
        means = {step: statistics.fmean(shares) for step, shares in by_step.items()}
        share = means[min(means, key=lambda step: abs(step - quarter))]
        later = [mean for step, mean in means.items() if step >= quarter]
        if share > FLAT:
            if not later:
                return Unclear("no choice of an action was seen late enough")
            share = min(later)
        return Reading(entropy_share=share, first=means[min(means)], last=means[max(means)])

    def _widths(self) -> list[tuple[int, float]]:
        held = list(self.study.policy.widths)
        widest = max(WIDE, held[0][1]) if held else WIDE
        return [(step, min(AS_MEANT, width / widest)) for step, width in held]
