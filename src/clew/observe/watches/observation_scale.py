"""Do all networks get observations of one common, moderate scale?

Why it matters: large components saturate the first layer and small ones vanish.
Cannot tell: whether the scale is what stops this agent; networks that get different numbers for one state.
Silent when: components never vary; what enters the networks cannot be recognised as observations.
"""

from __future__ import annotations

import numpy as np

from clew.observe.watch import Answer
from clew.observe.watches._rl_lines import observation_lines
from clew.observe.watches._rl_study import Studied
from clew.records.clue import Saw, Unclear

ROWS = 200
SMALL, LARGE = 1e-3, 10.0


class ObservationScale(Studied):
    test = "observation_scale"

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        held = self.study.columns
        if held is None or held.rows < ROWS:
            return Unclear("too few observations were recognised at the input of a network")
        mean = held.sums / held.rows
        std = np.sqrt(np.maximum(held.squares / held.rows - mean**2, 0.0))
        varies = std > 1e-6 * (np.abs(mean) + 1e-6)
        wild = varies & ((std < SMALL) | (std > LARGE) | (np.abs(mean) > LARGE))
        figures = {"components": len(mean), "largest_std": float(std.max()), "largest_mean": float(np.abs(mean).max())}
        if wild.any():
            names = ", ".join(str(number) for number in np.flatnonzero(wild)[:8])
            course = self.study.experience.episodes.main(self.recorder.step)
            lines = observation_lines(None if course is None else course.kind)
            return Saw("raw", wild_components=names, **figures).at(held.place, *lines)
        return Saw("normalised", **figures).at(held.place)
