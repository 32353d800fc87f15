"""Does the reward that the learner uses have another zero than the reward of the environment?

Where value targets are, to rounding, rewards, an offset and later values, the offset is what was added to or taken from
every reward on its way. Where every step pays and the targets are nothing at all, or later values alone, the reward was
taken away. Where every step pays the same and wrappers turn that into something of the other sign that moves slowly, a
mean was taken off; so it was where rewards lie to one side of zero and arrive about it, on a line with what was paid.

Why it matters: where episodes can end early, a constant per step pays for or charges for going on, and another policy
is the best one.
Cannot tell: a constant that the environment itself pays. Normalisers whose mean moves from step to step leave targets
that cannot be taken apart.
Silent when: rewards are all alike, unless nothing is left of them. Unclear where all episodes are of one length: a
constant for every step changes nothing there.
"""

from __future__ import annotations

import inspect

from clew.observe.places import shown, users_code
from clew.observe.watch import Answer
from clew.observe.watches import _rl_recursion as recursion
from clew.observe.watches._rl_lines import centred_lines, computing
from clew.observe.watches._rl_study import Studied
from clew.records.clue import Reading, Saw, Unclear
from clew.records.place import Place


class RewardShift(Studied):
    test = "reward_shift"

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        gone = recursion.vanished(self.study)
        if gone is not None:
            what = "bootstrapped values alone" if gone.discount else "zero"
            centring = centred_lines(gone.place)
            why = "the reward less its mean is zero" if centring else "the targets omit the reward"
            says = f"the value targets of {gone.rows} rewarded steps are {what}: {why}"
            lines = centring or computing("targets", gone.place)
            places = (*lines, gone.place, self.study.experience.place)
            return Saw("shifted", steps=gone.rows).saying(says).at(*places)
        paid = self.study.experience.paid
        if paid.turned:
            says = (
                f"every step is rewarded with {paid.reward:g}, and a wrapper makes {paid.low:.2g} to "
                f"{paid.high:.2g} of it: surviving is punished where it was rewarded"
            )
            place = where(paid.wrapper)
            return Saw("shifted", steps=paid.steps).saying(says).at(*centred_lines(place), place)
        centred = paid.centred
        if centred is not None and len(self.study.experience.lengths) > 1:
            says = (
                f"the environment rewards a step with {centred.paid:.2g} on average, and a wrapper subtracts "
                "the mean: below-average steps are punished, and so may surviving be"
            )
            code = paid.on_its_way
            line = (
                None if code is None else Place(shown(code.co_filename), code.co_firstlineno, symbol=code.co_qualname)
            )
            return Saw("shifted", steps=centred.steps).saying(says).at(*centred_lines(line), line)
        found = recursion.shifted(self.study)
        if found is None:
            return Unclear("the targets could not be decomposed into rewards, an offset and later values")
        if found.offset and len(self.study.experience.lengths) == 1:
            return Unclear("all episodes have one length, so a constant for every step changes nothing")
        reading = Reading(offset_over_std=found.offset, steps=found.rows)
        lines = centred_lines(found.place) if found.offset else []
        return reading.at(*lines, found.place) if found.place is not None else reading


def where(kind: type | None) -> Place | None:
    """Where a wrapper of the user's makes rewards."""
    made = (inspect.unwrap(getattr(kind, name)) for name in ("reward", "step") if hasattr(kind, name))
    code = next((held for function in made if (held := users_code(function)) is not None), None)
    return None if code is None else Place(shown(code.co_filename), code.co_firstlineno, symbol=code.co_qualname)
