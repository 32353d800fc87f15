"""How far does one update move the policy?

Compares the probabilities of actions when they were taken and when an update looks at them again, after at least one
step of the optimiser in between; or when the same observation is acted on again after one step. An agent that was
nearly random before one update and nearly decided after it has made too long a step, whatever else was seen.

Why it matters: an update that moves the policy far makes the data it came from worthless.
Cannot tell: whether the direction is right; agents that meet no observation twice and move less give no reading.
Silent when: observations repeat within a batch, so that actions cannot be told apart.
"""

from __future__ import annotations

import numpy as np

from clew.observe.watch import Answer
from clew.observe.watches._rl_moves import jump
from clew.observe.watches._rl_study import Studied
from clew.records.clue import Reading, Saw, Unclear

LOOKS = 8
EARLY = 200
TINY = 1e-4


class KlPerUpdate(Studied):
    test = "kl_per_update"

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        policy = self.study.policy
        policy.moves.close()
        jumped = jump(policy.entropies)
        if jumped is not None:
            before, after = jumped
            says = f"the entropy fell from {before:.2f} to {after:.2f} of its maximum in one update"
            return Saw("spike", before=before, after=after).saying(says).at(self.study.experience.place)
        moved = policy.moves.found if len(policy.moves.found) >= LOOKS else policy.moved
        if len(moved) < LOOKS:
            return Unclear("too few actions were re-evaluated after a step")
        share = float(np.percentile(list(moved), 95))
        if share < TINY and self.recorder.step < EARLY:
            return Unclear("the policy has hardly moved yet, and the run is short")
        return Reading(kl_p95=share, looks=len(moved))
