"""Do value targets hold what follows a step, with a discount that makes sense?

The targets are taken apart into rewards and later values, or later targets, where that holds to rounding. Targets that
hold nothing later are recognised on steps whose episode went on and paid. Where no value function is trained, the
weights of the log-probabilities are compared with what followed each step and with what came before it.

Why it matters: without a share of what follows, no action is credited with what it leads to; with more than the whole,
values have no bound; summed from the wrong end, they credit actions with the past.
Cannot tell: a discount that is a little too small for the task from one that suits it.
Silent when: targets cannot be taken apart; episodes are a single step; nothing is ever paid later on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.observe.watch import Answer
from clew.observe.watches import _rl_recursion as recursion
from clew.observe.watches._rl_credit import credit
from clew.observe.watches._rl_lines import bounding, computing
from clew.observe.watches._rl_study import Studied
from clew.records.clue import Saw, Unclear

if TYPE_CHECKING:
    from clew.records.place import Place


SAYS = {
    "usual": "actions are weighted by the rewards that followed",
    "backwards": "actions are weighted by the rewards before them",
    "nothing_later": "actions without an immediate reward all get one weight, whatever followed them",
}


class DiscountInTargets(Studied):
    test = "discount_in_targets"

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        found = recursion.backwards(self.study)
        if found is not None:
            saw = Saw("backwards", discount=found.discount, steps=found.rows).at(*self._lines(found.place))
            return saw.saying("the target of a step is its reward plus the discounted target of the step before")
        found = recursion.nothing_later(self.study)
        if found is not None:
            return Saw("nothing_later", steps=found.rows).at(*bounding(found.place), found.place)
        found = recursion.discount(self.study)
        if found is None and (seen := credit(self.study)) is not None:
            places = [seen.place] if seen.outcome == "usual" else self._lines(seen.place)
            return Saw(seen.outcome, steps=seen.rows).at(*places).saying(SAYS[seen.outcome])
        if found is None:
            return Unclear("the targets of the value loss could not be split into rewards and bootstrapped values")
        outcome = "above_one" if found.discount > recursion.ONE else "usual"
        places = [found.place] if outcome == "usual" else self._lines(found.place)
        return Saw(outcome, discount=found.discount, steps=found.rows).at(*places)

    @staticmethod
    def _lines(place: Place | None) -> list[Place | None]:
        return [*computing("targets", place), place]
