"""What to look at next: the observation that tells the explanations apart for the least cost.

The gain of a test is the information its outcome is expected to give about which explanation holds: the
credence-weighted Jensen-Shannon divergence of what the explanations predict, in bits. Where all predict the same, the
gain is zero, however thorough the test. A test that reads what others have read already is discounted like its clue
would be, and one whose answer follows from the clues is not asked. Seconds of a person count like seconds of a machine:
where clew makes the observation itself, or a run is at hand that it can read, only those that need a look cost a
person's time; otherwise every one does. In fields with tests of their own, such as reinforcement learning, the tests of
what typically goes wrong there come first.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from clew.case.weigh import UNKNOWN, Likelihoods, Subject, Weighing, applies, crowds, priors, ruled, sides
from clew.knowledge.model import Knowledge, Test
from clew.records.clue import UNCLEAR, Clue

SETUP_SECONDS = 10.0
"""Starting anything at all costs about this much: without it a test of a millisecond would beat every other."""


MOST_LEADING, LEAST_LEADING = 3, 0.03
"""How many of a field's own questions come before all others, and the bits that each must be worth."""


class AtHand(NamedTuple):
    """A run that was kept: how long it took, whether its training step was kept for exams, and the tests that its
    report answers."""

    run: str
    seconds: float
    captured: bool
    answers: frozenset[str] = frozenset()


class Choice(NamedTuple):
    """A test worth making, with what the leading explanations predict for it."""

    test: str
    gain: float
    cost: float
    predictions: tuple[tuple[str, str, float], ...] = ()

    @property
    def worth(self) -> float:
        """Bits per second, counting the setting up."""
        return self.gain / (self.cost + SETUP_SECONDS)


def choose(
    knowledge: Knowledge,
    weighing: Weighing,
    clues: Iterable[Clue],
    subject: Subject,
    most: int = 5,
    by_hand: bool = False,
    at_hand: AtHand | None = None,
    needless: Iterable[str] = (),
) -> tuple[Choice, ...]:
    """The tests most worth making, best first. Tests whose answer is known, or follows from one, are left out, and so
    are those that are `needless`."""
    given = tuple(clues)
    follows = knowledge.priors.follows
    too_early = {test for _, tests in follows for test in tests} - ruled(follows, weighing.clues)
    known = settled(knowledge, weighing).union(too_early, needless)
    counts = crowds(
        knowledge, ((clue, held.kind) for clue, held in zip(given, weighing.clues, strict=True) if held.weight > 0.0)
    )
    explained = sides(knowledge, priors(knowledge, subject))
    credences = {share.cause: share.credence for share in weighing.shares}
    credences[UNKNOWN] = weighing.unknown
    whole = explained.wholes(credences)
    tables = {}
    choices = []
    for test in knowledge.tests.values():
        if test.id in known or not applies(knowledge, test, subject.domain):
            continue
        table = Likelihoods(test, explained, subject.own)
        read = (counts.get((test.reads, kind), 0) for kind in ("seen", "absent"))
        crowd = 0 if test.role == "mechanism" else max(read)
        discount = 1.0 / (1.0 + crowd * knowledge.priors.overlap)
        found = discount * gain(table.masses(credences, whole))
        tables[test.id] = table
        choices.append(Choice(test.id, found, cost(knowledge, test, by_hand, at_hand)))
    choices = [choice for choice in choices if choice.gain > 1e-9]
    choices.sort(key=lambda choice: (-choice.worth, choice.test))
    best = ruled(knowledge.priors.leads, weighing.clues)
    of_the_field = [choice for choice in choices if choice.test in leading(knowledge, subject.domain) - best]
    first = [choice for choice in of_the_field if choice.gain > LEAST_LEADING][:MOST_LEADING]
    first = sorted((choice for choice in choices if choice.test in best), key=lambda choice: -choice.gain) + first
    choices = first + [choice for choice in choices if choice not in first]
    # One look through the source answers all questions to it: the best of them stands for the rest.
    reading = [choice for choice in choices if knowledge.tests[choice.test].by == "lint"]
    choices = [choice for choice in choices if choice not in reading[1:]]
    return tuple(choice._replace(predictions=_predictions(weighing, tables[choice.test])) for choice in choices[:most])


def settled(knowledge: Knowledge, weighing: Weighing) -> set[str]:
    """The tests that were made, and those whose answer follows from what they showed."""
    answered = ruled(knowledge.priors.settles, weighing.clues)
    return answered | {held.test for held in weighing.clues if held.kind != UNCLEAR}


def cost(knowledge: Knowledge, test: Test, by_hand: bool, at_hand: AtHand | None) -> float:
    """Seconds that an observation takes, of a machine and a person together."""
    hands = dict(knowledge.priors.by_hand)
    if test.person or not by_hand:
        return test.seconds + (hands[test.by] if by_hand else hands["person"] if test.person else 0.0)
    if at_hand is not None and (test.id in at_hand.answers or (test.by == "exam" and at_hand.captured)):
        return test.seconds
    again = at_hand.seconds if at_hand is not None and test.by == "exam" else hands[test.by]
    return test.seconds + again


def leading(knowledge: Knowledge, domain: str) -> set[str]:
    """The tests that only this field has and that check what typically goes wrong in it."""
    checks = {knowledge.causes[name].refute_test for name in knowledge.domains[domain].typical}
    return {name for name in checks if domain in knowledge.tests[name].domains}


def gain(predictions: list[tuple[tuple[float, ...], float]]) -> float:
    """Expected information about the explanation from one look at the outcome, in bits."""
    held = [(row, share) for row, share in predictions if share > 0.0]
    shares = [share for _, share in held]
    parts = []
    for chances in zip(*[row for row, _ in held], strict=True):
        joint = [share * chance for share, chance in zip(shares, chances, strict=True)]
        mean = sum(joint)
        parts.append(sum([both * math.log2(chance / mean) for both, chance in zip(joint, chances, strict=True)]))
    return max(math.fsum(parts), 0.0)


def _predictions(weighing: Weighing, table: Likelihoods) -> tuple[tuple[str, str, float], ...]:
    """What the leading explanations predict, and, where those agree, the most credible one that does not."""
    found: list[tuple[str, str, float]] = []
    for share in weighing.shares:
        row = table.row(share.cause)
        chance, index = max((chance, -index) for index, chance in enumerate(row))
        outcome = table.outcomes[-index]
        if len(found) < 3 or outcome not in {held[1] for held in found}:
            found.append((share.cause, outcome, chance))
        if len(found) >= 3 and len({held[1] for held in found}) > 1:
            break
    return tuple(found[:4])
