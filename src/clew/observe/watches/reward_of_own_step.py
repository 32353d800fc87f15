"""Are the rewards in the value targets those of their own steps?

Where the targets cannot be taken apart with the reward that the environment gave for each row's own step, the reward of
the step before and of the step after are tried. Where few steps pay something unusual, these tell.

Why it matters: credit then goes to the wrong action, and learning crawls without any number looking broken.
Cannot tell: observations paired with the wrong action.
Silent when: rewards hardly vary; the targets cannot be taken apart at all.
"""

from __future__ import annotations

from clew.observe.watch import Answer
from clew.observe.watches._rl_lines import computing
from clew.observe.watches._rl_study import Studied
from clew.observe.watches._rl_targets import judged, of_a_neighbour, of_another_step, pays
from clew.records.clue import Saw, Unclear


class RewardOfOwnStep(Studied):
    test = "reward_of_own_step"

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        other = of_another_step(self.study)
        if other is not None:
            saw = Saw("neighbour", steps=other[1]).at(*computing("stored", other[0]), other[0])
            return saw.saying("the targets hold the rewards of other steps, not their own")
        if pays(self.study) < 3:
            return Unclear("too few distinct rewards were seen in the targets to tell steps apart")
        found = list(judged(self.study))
        if found:
            return Saw("own", steps=found[0].fitted.rows).at(found[0].place)
        moved = of_a_neighbour(self.study)
        if moved is None:
            return Unclear("the targets of the value loss could not be split into rewards and bootstrapped values")
        shift, place, rows = moved
        saw = Saw("neighbour", shift=shift, steps=rows).at(*computing("stored", place), place)
        return saw.saying(f"the targets use the reward of the step {('before' if shift < 0 else 'after')}")
