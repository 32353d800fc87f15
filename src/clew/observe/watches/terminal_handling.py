"""Do the value targets respect the two ways in which an episode can stop?

The targets of the value loss are taken apart into rewards and later values on steps after which the episode went on.
Where that works to rounding, the targets of steps that ended an episode are held against the same formula.

Why it matters: a value that looks past a true end has no anchor and climbs; one that stops at a mere time limit teaches
that the future is worthless there.
Cannot tell: targets that are normalised, clipped or have further terms, and observations that are changed before they
reach the network in ways that cannot be followed. A time limit that an environment reports as a plain end.
Silent when: episodes never end while the learner is looked at; all episodes of an environment that knows only one flag
have the same length, so that its flag may be a time limit; limits are rare among the ends.
"""

from __future__ import annotations

from clew.observe.watch import Answer
from clew.observe.watches._rl_lines import bounding
from clew.observe.watches._rl_study import Studied
from clew.observe.watches._rl_targets import Judged, judged
from clew.records.clue import Saw, Unclear

ENOUGH = 3
LIMITS = 5
OFTEN = 0.2


class TerminalHandling(Studied):
    test = "terminal_handling"

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        if not self.study.rows:
            return Unclear("no value loss was seen whose rows are observations of an environment")
        if self.study.pairs.of_a_neighbour() is not None:
            return Unclear("observations stand beside actions of another step: no target can be told to be of an end")
        found = list(judged(self.study))
        if not found:
            return Unclear("the targets of the value loss could not be split into rewards and bootstrapped values")
        for held in found:
            answer = self._fault(held)
            if answer is not None:
                return answer
        best = max(found, key=lambda held: held.terminal.alone + held.limit.bootstrapped)
        if best.terminal.alone >= ENOUGH:
            figures = {"ends": best.terminal.alone, "limits": sum(best.limit), "steps": best.fitted.rows}
            return self._at(Saw("right", **figures), best)
        return Unclear("no end of an episode was among the steps with readable targets")

    def _fault(self, held: Judged) -> Answer | None:
        experience = self.study.experience
        terminal, limit = held.terminal, held.limit
        apart = experience.truncated or len(experience.lengths) > 1 or experience.flagged
        past = terminal.bootstrapped
        if past >= ENOUGH and apart and not terminal.alone and terminal.neither <= past:
            saw = Saw(
                "bootstraps_over_terminal",
                ends=past,
                factor=float(held.fitted.slopes.sum()),
                steps=held.fitted.rows,
            )
            return self._computed(saw, held)
        rare = experience.truncated < OFTEN * (experience.truncated + experience.terminated)
        if limit.alone >= LIMITS and not limit.bootstrapped and not rare:
            return self._computed(Saw("truncation_as_terminal", limits=limit.alone, steps=held.fitted.rows), held)
        return None

    def _computed(self, saw: Saw, held: Judged) -> Answer:
        return saw.at(*bounding(held.place), held.place, self.study.experience.place)

    def _at(self, saw: Saw, held: Judged) -> Answer:
        places = [place for place in (held.place, self.study.experience.place) if place is not None]
        return saw.at(*places)
