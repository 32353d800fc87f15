"""Does the agent try other actions at first, and fewer of them later?

For agents that learn the values of actions: counts, while the learner is looked at, which steps took the action that
the network rated best, another one, or one that the network was not asked about. For a policy: whether the actions of
its updates are ever another than its likeliest, where they were drawn from no distribution.

Why it matters: an agent that always takes what it thinks best never learns of the rest; one that never asks its
network gathers only what chance brings, and the network is trained on states that it would never visit.
Cannot tell: whether what is tried is of any use. A rate that falls so slowly that this run saw nothing of it.
Silent when: actions are drawn from a distribution, whose entropy has a test of its own; networks with noise in their
weights; short runs; a run that is not over says nothing about an end of exploration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.observe.watch import Answer
from clew.observe.watches._rl_lines import tree_of
from clew.observe.watches._rl_study import Studied
from clew.records.clue import Saw, Unclear

if TYPE_CHECKING:
    import ast

    from clew.records.place import Place

STEPS = 100
EARLY = 0.1
LATE = 0.6
LOOKED = 150
LATER = 3
LONG = 300
SURE = 300
ROWS, ALWAYS, OTHERS = 100, 0.97, 0.1
DRAWS = ("random", "rand", "uniform", "sample")


class ExplorationRate(Studied):
    test = "exploration_rate"

    def read(self) -> Answer:
        why = self.unseen()
        greedy = self._greedy() if not why else None
        if greedy is not None:
            return greedy
        why = why or self._unlike()
        if why:
            return Unclear(why)
        choices, last = self.study.experience.choices, self.recorder.step
        first = choices.between(0, EARLY * last, everywhere=True)  # one may serve for evaluation, with the best action
        late = choices.between(LATE * last, last)
        after = choices.between(1, last)
        if first.total < LOOKED:
            return Unclear("too few actions were seen in the first tenth of the run")
        tried = 1.0 - first.best / first.total
        place = self.study.experience.place
        if first.best == first.total:
            if first.total < SURE:
                return Unclear("too few actions were seen in the first tenth of the run to call the others unexplored")
            if self._noisy():
                return Unclear("the policy network has noise of its own")
            return Saw("none", first=tried, actions=first.total).at(*branches(place), place)
        asked = after.best + after.other
        if not asked and late.total >= LATER and after.total >= LOOKED:
            if not self.recorder.ending or last < LONG or choices.moving():
                return Unclear("the network has chosen no action yet")
            saw = Saw("never_ends", first=tried, last=1.0, actions=after.total).at(*branches(place), place)
            return saw.saying(f"the network chose none of the {after.total} actions after the first update")
        if late.total < LATER:
            return Unclear("too few actions were seen late in the run")
        left = 1.0 - late.best / late.total
        if left < tried:
            return Saw("decays", first=tried, last=left, actions=first.total + late.total).at(place)
        return Unclear("the share of exploratory actions has not fallen yet")

    def _greedy(self) -> Answer | None:
        """Updates of a policy by actions that it never drew: always the likeliest, where others have their share."""
        moves = self.study.policy.moves
        if self.study.policy.acts or moves.rows < ROWS:
            return None
        best, share = moves.modal / moves.rows, moves.expected / moves.rows
        if best < ALWAYS or share > best - OTHERS:
            return None
        says = (
            f"{100 * best:.3g} % of {moves.rows} actions were the policy's most likely one, which has probability "
            f"{100 * share:.3g} %"
        )
        return Saw("none", first=1.0 - best, actions=moves.rows).saying(says).at(self.study.experience.place)

    def _unlike(self) -> str:
        """Why this agent is none that the question is for."""
        if self.study.policy.entropies:
            return "actions are drawn from a distribution"
        if not any(aimed.columns > 1 and aimed.keys is not None for aimed in self.study.aimed):
            return "no action values are learned"
        if not self.study.experience.choices.by_side:
            return "actions are not integers"
        return "" if self.recorder.step >= STEPS else f"it says little before about {STEPS} updates"

    def _noisy(self) -> bool:
        """Noise in the weights explores as well, and so does a copy that is not the one in training."""
        held = [self.study.networks.held.get(model) for model in self.study.experience.choices.models]
        return any(each is None or each.noisy or not each.trained for each in held)


def branches(place: Place | None) -> list[Place]:
    """The conditions in the same file that compare a random number with something: there the choice is made."""
    import ast

    tree = tree_of(place)
    if place is None or tree is None:
        return []
    tests = [node.test for node in ast.walk(tree) if isinstance(node, ast.If | ast.IfExp)]
    lines = sorted({test.lineno for test in tests if isinstance(test, ast.Compare) and _draws(test)})
    return [place._replace(line=line, symbol=None) for line in lines[:2]]


def _draws(test: ast.Compare) -> bool:
    import ast

    called = [node.func for node in ast.walk(test) if isinstance(node, ast.Call)]
    names = [func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in called]
    return any(name in DRAWS for name in names)
