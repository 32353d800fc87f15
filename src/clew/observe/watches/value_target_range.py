"""Are the targets of the value function of a size that the usual settings can fit?

Why it matters: squared errors on targets of hundreds swamp a shared trunk and use up the gradient clip.
Cannot tell: large rewards from values that feed on themselves.
Silent when: fewer than five updates of a value function were seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clew.observe.watch import Answer
from clew.observe.watches._rl_lines import reward_lines
from clew.observe.watches._rl_study import Studied
from clew.records.clue import Reading, Unclear

if TYPE_CHECKING:
    from clew.records.place import Place

UPDATES = 5
LARGE = 50.0


class ValueTargetRange(Studied):
    test = "value_target_range"

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        held = [aimed for aimed in self.study.aimed if aimed.keys is not None]
        if len({aimed.step for aimed in held}) < UPDATES:
            return Unclear(f"fewer than {UPDATES} value-function updates were seen")
        targets = np.abs(np.concatenate([aimed.targets for aimed in held]))
        reading = Reading(abs_target_p99=float(np.percentile(targets, 99)), targets=len(targets))
        places = [*self._paid_large(), held[-1].place]
        return reading.at(*(place for place in places if place is not None))

    def _paid_large(self) -> list[Place]:
        """Where the environment makes up its reward, if single rewards are as large already."""
        course = self.study.experience.episodes.main(self.recorder.step)
        if course is None or max(map(abs, course.rewards), default=0.0) < LARGE:
            return []
        return reward_lines(course.kind)
