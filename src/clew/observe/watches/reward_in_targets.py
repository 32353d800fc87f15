"""Does the reward of the environment reach the value targets with its sign and size?

Where targets are rewards and later values to rounding, the factor on the reward is what the script did to it between
the environment and the loss. Where a wrapper of the script's own turns round every reward of an environment that comes
with a library, no target needs to be taken apart.

Why it matters: with the sign turned an agent learns to do as badly as it can, and every curve looks as usual.
Cannot tell: a reward that the environment itself computes the wrong way round; a cost that was turned on purpose.
Silent when: all rewards are alike, so that a factor cannot be told from a shift; a large factor makes up for tiny
rewards.
"""

from __future__ import annotations

from clew.observe.places import shown
from clew.observe.watch import Answer
from clew.observe.watches import _rl_recursion as recursion
from clew.observe.watches._rl_study import Studied
from clew.records.clue import Saw, Unclear
from clew.records.place import Place

LARGE = 50.0
FAR = 100.0


class RewardInTargets(Studied):
    test = "reward_in_targets"

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        paid = self.study.experience.paid
        if paid.negated and paid.by is not None:
            says = (
                f"the agent gets the environment's reward times {paid.factors[0]:.3g}: what the environment "
                "rewards is punished"
            )
            place = Place(shown(paid.by.co_filename), paid.by.co_firstlineno, symbol=paid.by.co_qualname)
            return Saw("negated", factor=paid.factors[0], steps=paid.paying).saying(says).at(place)
        found = recursion.factor(self.study)
        if found is None:
            return Unclear("rewards could not be separated from the rest of the value targets")
        figures = {"factor": found.factor, "steps": found.rows, "targets_p99": found.size}
        places = (self.study.experience.place, found.place)  # the reward comes in at the first of them
        says = f"the environment's reward enters the value targets with the factor {found.factor:.4g}"
        if found.factor < -1e-6:
            return Saw("negated", **figures).saying(says).at(*places)
        if found.size > FAR:
            if found.factor > LARGE:
                return Saw("enlarged", **figures).saying(says).at(*places)
            return Unclear("the targets are large, and not because of the script")
        return Saw("as_given", **figures).at(*places)
