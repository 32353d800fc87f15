"""Is the target network a separate copy that follows at a distance?

Which network supplies the later values in the targets is known where the targets could be taken apart; elsewhere it is
an untrained network that the script calls a target, of the form of a trained one. It is then looked at whether that
network is trained itself, under a name that says it should not be, whether it ever changes, and how much of the way of
the trained one it has gone.

Why it matters: a target that moves with its prediction can run away; one that never moves teaches a random function.
Cannot tell: whether the interval is a good one; a run of fewer than 1500 updates in which nobody wrote to the network.
Silent when: an agent has no target network by design.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.observe.watch import Answer
from clew.observe.watches._rl_lines import computing
from clew.observe.watches._rl_study import Studied
from clew.observe.watches._rl_targets import judged
from clew.records.clue import Saw, Unclear

if TYPE_CHECKING:
    from clew.records.place import Place

LONG = 1500
LOOKS = 8
WRITES = 3
HARDLY = 0.08


class TargetNetworkLag(Studied):
    test = "target_network_lag"

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        models = {held.fitted.part.source[1] for held in judged(self.study) if held.fitted.part.source is not None}
        models = models or self.study.networks.copies()
        if not models:
            return Unclear("which network supplies the bootstrapped values could not be determined")
        answers = [self._of(model) for model in sorted(models)]
        return next((answer for answer in answers if not isinstance(answer, Unclear)), answers[0])

    def _of(self, model: int) -> Answer:
        networks = self.study.networks
        held = networks.held.get(model)
        if held is None:
            return Unclear("the network that supplies the bootstrapped values was not tracked")
        if held.trained:
            if model in networks.named:
                target, other, place = networks.named[model]
                saw = Saw("same_network", target=target, online=other)
                return saw.saying(f"{target} and {other} are one network, and it is trained").at(place)
            return Unclear("the bootstrap values come from the network that is trained; no target network was seen")
        span = held.last_step - held.first_step
        if held.changes and held.looks >= LOOKS and held.equal == held.looks:
            return Saw("same_network", looks=held.looks).at(*self._lines(held.place))
        if held.changes and span >= LONG and held.followed is not None and held.followed < HARDLY:
            saw = Saw("never_updated", updates=span, followed=held.followed)
            text = f"in {span} updates the target network has moved {held.followed:.1%} of the way to the trained one"
            return saw.saying(text).at(*self._lines(held.place))
        if held.changes:
            return Saw("lags", changes=held.changes, updates=span).at(held.place)
        if held.writes >= WRITES:
            saw = Saw("never_updated", updates=span, writes=held.writes)
            text = "the target network is written to and keeps its initial values"
            return saw.saying(text).at(*self._lines(held.place))
        if span >= LONG:
            return Saw("never_updated", updates=span).at(*self._lines(held.place))
        return Unclear(f"the target network was not refreshed in the {span} updates between samples")

    @staticmethod
    def _lines(place: Place | None) -> list[Place | None]:
        return [place, *computing("target network", place)]
