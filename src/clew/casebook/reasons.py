"""Why a cause was not named: what spoke for it, what against, and what was never seen."""

import math

from clew.casebook.reweigh import INSTRUMENTS, Again
from clew.knowledge.model import Knowledge, Test
from clew.records.clue import UNCLEAR

SPEAKS = 1.0
"""Bits: a clue speaks for a cause when its outcome is at least twice as likely under it as in a healthy run."""
STRONG = 2.0
"""Bits that a test could have given and did not, to be worth naming."""


def chances(test: Test, cause: str, knowledge: Knowledge) -> tuple[float, ...]:
    """What a cause predicts for a test."""
    for row in test.rows:
        if cause in row.causes:
            return row.p
    none = cause in knowledge.causes and knowledge.causes[cause].family == "none"
    return test.healthy if none else test.otherwise


def bits(again: Again, index: int, cause: str, against: str) -> float:
    """How many bits a clue gave for one cause against another, at its weight in the contest."""
    held = again.weighing.clues[index]
    test = again.knowledge.tests[held.test]
    place = [outcome.name for outcome in test.outcomes].index(held.outcome)
    mine, other = (chances(test, name, again.knowledge)[place] for name in (cause, against))
    return held.weight * math.log2(mine / other)


def first_step(again: Again, right: tuple[str, ...]) -> int | None:
    """After how many steps the first clue was there that speaks for one of the true causes; None where none does.
    Exams come after the run and do not count."""
    steps = [
        step
        for index, (clue, step, held) in enumerate(zip(again.clues, again.steps, again.weighing.clues, strict=True))
        if held.kind == "seen"
        and clue.source != "exam"
        and any(bits(again, index, cause, "none.healthy") >= SPEAKS * held.weight > 0 for cause in right)
    ]
    return min(steps, default=None)


def reason(again: Again, right: tuple[str, ...]) -> str:
    """The likely reason, in one line: the strongest clue for what was named instead, and the strongest one that the
    true cause lacks."""
    named = [name for name, _, _ in again.named if name not in right]
    cause = right[0]
    if not named or cause not in again.knowledge.causes:
        return ""
    parts = [text for text in (pulled(again, cause, named[0]), lacking(again, cause)) if text]
    return "; ".join(parts)


def pulled(again: Again, cause: str, top: str) -> str:
    """The clue that pulled most to the wrong one."""
    finding = next((item for item in again.weighing.findings if item.cause == top), None)
    if finding is not None:
        shows = ", ".join(spelled(again, index) for index in finding.clues[:2])
        return f"{shows} is taken for the mechanism of {top}"
    pulls = [
        (bits(again, index, cause, top), index)
        for index, held in enumerate(again.weighing.clues)
        if held.kind != UNCLEAR
    ]
    least, index = min(pulls, default=(0.0, 0))
    return f"{spelled(again, index)} speaks {-least:.1f} bits for {top} against it" if least < -0.3 else ""


def lacking(again: Again, cause: str) -> str:
    """The test that could have shown the true cause and did not: not made, unclear, or against it."""
    outcomes = {clue.test: held.outcome for clue, held in zip(again.clues, again.weighing.clues, strict=True)}
    best, text = 0.0, ""
    for test in again.knowledge.tests.values():
        if test.by not in INSTRUMENTS:
            continue
        row = chances(test, cause, again.knowledge)
        gains = [
            (chance * math.log2(chance / sound), outcome.name)
            for chance, sound, outcome in zip(row, test.healthy, test.outcomes, strict=True)
            if outcome.kind == "seen" and chance / sound >= 2.0**STRONG
        ]
        gain, hoped = max(gains, default=(0.0, ""))
        if gain > best and outcomes.get(test.id) != hoped:
            best, text = gain, f"{test.id} should be {hoped} and is {told(again, test.id, outcomes)}"
    return text or f"no test that a run makes knows {cause} well"


def told(again: Again, test: str, outcomes: dict[str, str]) -> str:
    if test in outcomes:
        return outcomes[test]
    for table in again.picture["clues"]:
        if table["test"] == test:
            return f"unclear ({table['why']})" if table.get("why") else "unclear"
    skipped = dict(again.picture.get("exams_skipped", []))
    return f"not made ({skipped[test]})" if test in skipped else "not made"


def spelled(again: Again, index: int) -> str:
    held = again.weighing.clues[index]
    return f"{held.test}={held.outcome}"
