"""Are the targets of the value function of a size that the usual settings can fit?

Why it matters: squared errors on targets of hundreds swamp a shared trunk and use up the gradient clip.
Cannot tell: large rewards from values that feed on themselves.
Silent when: fewer than five updates of a value function were seen.
"""

from __future__ import annotations

import numpy as np

from clew.observe.watch import Answer
from clew.observe.watches._rl_study import Studied
from clew.records.clue import Reading, Unclear

UPDATES = 5


class ValueTargetRange(Studied):
    test = "value_target_range"

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        held = [aimed for aimed in self.study.aimed if aimed.keys is not None]
        if len({aimed.step for aimed in held}) < UPDATES:
            return Unclear(f"fewer than {UPDATES} updates of a value function were seen")
        targets = np.abs(np.concatenate([aimed.targets for aimed in held]))
        place = held[-1].place
        reading = Reading(abs_target_p99=float(np.percentile(targets, 99)), targets=len(targets))
        return reading if place is None else reading.at(place)
