"""Do observation and action of what is learned from belong to one step of the environment?

The actions that an update takes from a value network, or weighs in a policy, are compared with those that the
environment was given at the same observations and one step before and after. The targets of value losses are also read
as if they stood beside the observation that followed. Both are held against a rollout of several environments that was
made flat in another order, one environment after the other in place of one time after the other. Where an environment
writes each observation into the array that it gave out before, it is asked whether updates hold anything but the last
of an episode.

Why it matters: credit goes to what was done in another state; losses fall as usual and the agent learns little.
Cannot tell: rewards of another step, which have a test of their own; tuples that were shuffled against each other in
any other way.
Silent when: observations come again so often that nearly every action was taken between two of them; actions are not
whole numbers.
"""

from __future__ import annotations

from clew.observe.watch import Answer
from clew.observe.watches._rl_layout import BY_LANE, BY_TIME, REVERSED
from clew.observe.watches._rl_lines import computing, returned_lines
from clew.observe.watches._rl_recursion import backwards
from clew.observe.watches._rl_study import Studied
from clew.observe.watches._rl_targets import judged
from clew.records.clue import Saw, Unclear

ORDERS = {
    BY_LANE: (
        "these run through one environment after the other, the observations through one time step after the other"
    ),
    BY_TIME: (
        "these run through one time step after the other, the observations through one environment after the other"
    ),
    REVERSED: "these are in reverse time order",
}


class TransitionPairs(Studied):
    test = "transition_pairs"

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        pairs = self.study.pairs
        last = pairs.of_the_last()
        if last is not None:
            writer = self.study.experience.writer
            stored = computing("stored", last.place)
            places = (*returned_lines(writer), self.study.experience.place, *stored, last.place)
            saw = Saw("neighbour", rows=last.rows).at(*places)
            name = "the environment" if writer is None else writer.__name__
            return saw.saying(
                f"{name} writes every observation into the array that it returned before, and the script "
                "keeps that array without a copy: all stored steps of an episode hold its last observation"
            )
        moved = pairs.of_a_neighbour()
        if moved is not None:
            side = "before" if moved.shift < 0 else "after"
            saw = Saw("neighbour", rows=moved.rows, shift=moved.shift)
            saw = saw.saying(f"observations are paired with the action of the step {side}")
            return saw.at(*computing("stored", moved.place)[:2], moved.place, self.study.experience.place)
        whole = list(judged(self.study))
        slipped = None if whole else pairs.of_what_followed()
        if slipped is not None:
            places = (*computing("stored", slipped.place)[:2], slipped.place, self.study.experience.place)
            saw = Saw("neighbour", rows=slipped.rows, shift=1).at(*places)
            return saw.saying("targets of a step are paired with the next observation")
        strayed = pairs.of_another_order()
        if strayed is None and not whole:
            strayed = pairs.of_targets_in_another_order(turned=backwards(self.study) is None)
            what = "targets"
        else:
            what = "actions"
        if strayed is not None:
            places = (*computing("made flat", strayed.place), strayed.place, self.study.experience.place)
            saw = Saw("neighbour", rows=strayed.rows).at(*places)
            return saw.saying(
                f"observations are paired with the {what} of other steps of the rollout: {ORDERS[strayed.way]}"
            )
        own = pairs.of_their_own()
        if own is not None:
            return Saw("own", rows=own.rows).at(own.place)
        if whole:
            return Saw("own", rows=whole[0].fitted.rows).at(whole[0].place)
        return Unclear("too few training rows could be matched to environment steps")
