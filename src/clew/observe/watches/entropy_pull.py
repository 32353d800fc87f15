"""How strongly does the loss pull at the policy's entropy, beside its pull at the actions?

The gradient that reaches the entropy of a distribution during the script's own backward is summed and divided by the
sum of the absolute gradients at the log-probabilities.

Why it matters: a bonus that outweighs all advantages together holds the policy at chance; one with the wrong sign
makes it decided before it knows anything.
Cannot tell: entropies written out by hand; a bonus that is part of the reward.
Silent when: the policy moves as it should whatever the pull; hardly anything has been paid so far, so that there is
nothing to outweigh.
"""

from __future__ import annotations

import statistics

from clew.observe.watch import Answer
from clew.observe.watches._rl_lines import computing
from clew.observe.watches._rl_study import Studied
from clew.records.clue import Saw, Unclear

UPDATES = 3
STEPS = 30
STRONG = 1.0
AGAINST = -0.02
FLAT = 0.9
DECIDED = 0.3
PAID = 0.05
LAST = 3


class EntropyPull(Studied):
    test = "entropy_pull"

    def read(self) -> Answer:
        why = self.unseen()
        policy = self.study.policy
        if why:
            return Unclear(why)
        if len(policy.pulls) < UPDATES or self.recorder.step < STEPS:
            return Unclear("too few updates with an entropy and log-probabilities of torch.distributions were seen")
        if not policy.left:
            return Unclear("the policy does not choose among discrete actions")
        share = statistics.median(pull.share for pull in policy.pulls)
        left = statistics.median(list(policy.left)[-LAST:])
        place = policy.pulls[-1].place
        figures = {"entropy_over_actions": share, "entropy_share": left, "updates": len(policy.pulls)}
        if share > STRONG and left > FLAT:
            if not self._paid():
                return Unclear("the bonus outweighs the advantages, and almost no reward has been collected so far")
            return Saw("overrides", **figures).at(*computing("entropy", place), place)
        if share < -STRONG / 2 or (share < AGAINST and left < DECIDED):
            return Saw("punishes", **figures).at(*computing("entropy", place), place)
        return Saw("usual", **figures).at(place)

    def _paid(self) -> bool:
        held = self.study.experience.kept
        return sum(step.reward != 0 for step in held) >= PAID * len(held)
