"""Does a loss reach the network that estimates values?

Looks at networks that give one number for each observation, that an optimiser holds, and that are called with gradients
in an update: whether the graph of any loss goes through them. And at value losses that are part of what is trained:
whether any gradient other than zero comes back to the values, which a weight of zero prevents.

Why it matters: a critic that no loss reaches keeps its first random function, and the advantages are noise on top of
the returns.
Cannot tell: how well a critic learns that is reached.
Silent when: the critic is held by no optimiser, as a target network is.
"""

from __future__ import annotations

from clew.observe.watch import Answer
from clew.observe.watches._rl_study import Studied
from clew.records.clue import Saw, Unclear

UPDATES = 8


class CriticInLoss(Studied):
    test = "critic_in_loss"

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        for place, pulls in self.study.pulled.items():
            if len(pulls) >= UPDATES and not any(pulls):
                says = f"the gradient with respect to the values is zero in all {len(pulls)} sampled updates"
                return Saw("left_out", updates=len(pulls)).saying(says).at(place)
        networks = self.study.networks.held
        held = [critic for model, critic in self.study.critics.items() if networks[model].trained]
        for critic in held:
            if critic.asked >= UPDATES and not critic.trained:
                return Saw("left_out", updates=critic.asked).at(critic.place)
        reached = [critic for critic in held if critic.trained]
        if not reached:
            return Unclear("no value network was seen in an update")
        return Saw("reached", updates=reached[0].trained).at(reached[0].place)
