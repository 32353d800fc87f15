"""Is the target network a separate copy that follows at a distance?

Which network supplies the later values in the targets is known where the targets could be taken apart; elsewhere it is
an untrained network that the script calls a target, of the form of a trained one. It is then looked at whether that
network is trained itself, under a name that says it should not be, and whether it ever changes.

Why it matters: a target that moves with its prediction can run away; one that never moves teaches a random function.
Cannot tell: whether the interval is a good one; a run of fewer than 1500 updates in which nobody wrote to the network.
Silent when: an agent has no target network by design.
"""

from __future__ import annotations

from clew.observe.watch import Answer
from clew.observe.watches._rl_study import Studied
from clew.observe.watches._rl_targets import judged
from clew.records.clue import Saw, Unclear

LONG = 1500
LOOKS = 8
WRITES = 3


class TargetNetworkLag(Studied):
    test = "target_network_lag"

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        models = {held.fitted.part.source[1] for held in judged(self.study) if held.fitted.part.source is not None}
        models = models or self.study.networks.copies()
        if not models:
            return Unclear("which network supplies later values in the targets could not be seen")
        answers = [self._of(model) for model in sorted(models)]
        return next((answer for answer in answers if not isinstance(answer, Unclear)), answers[0])

    def _of(self, model: int) -> Answer:
        networks = self.study.networks
        held = networks.held.get(model)
        if held is None:
            return Unclear("the network that supplies later values was not followed")
        if held.trained:
            if model in networks.named:
                target, other, place = networks.named[model]
                saw = Saw("same_network", target=target, online=other)
                return saw.saying(f"{target} and {other} are one network, which is trained").at(place)
            return Unclear("later values come from the network that is trained; no target network was seen")
        span = held.last_step - held.first_step
        if held.changes and held.looks >= LOOKS and held.equal == held.looks:
            return Saw("same_network", looks=held.looks).at(held.place)
        if held.changes:
            return Saw("lags", changes=held.changes, updates=span).at(held.place)
        if held.writes >= WRITES:
            saw = Saw("never_updated", updates=span, writes=held.writes)
            return saw.saying("the target network is written to, and keeps the values it began with").at(held.place)
        if span >= LONG:
            return Saw("never_updated", updates=span).at(held.place)
        return Unclear(f"the target network was not refreshed in the {span} updates between looks at it")
