"""The verdict in one word, as CONTRACT defines it."""

from typing import NamedTuple

from clew.case.conduct import LOCALISED, is_null
from clew.case.weigh import Weighing
from clew.knowledge.model import Knowledge

ENOUGH = 3
"""Fewer checks than this that all passed show too little to call anything healthy."""

LEADS, NEAR = 0.35, 0.2
"""What "nothing wrong" must come to where it is not half of all, and what no cause may come to then."""


class Verdict(NamedTuple):
    word: str  # "fault" | "suspect" | "healthy" | "undecided"
    says: str


def judge(knowledge: Knowledge, weighing: Weighing) -> Verdict:
    seen = [held for held in weighing.clues if held.kind == "seen" and held.weight > 0.0]
    passed = [held for held in weighing.clues if held.kind == "absent" and held.weight > 0.0]
    if weighing.findings:
        count = len(weighing.findings)
        return Verdict(
            "fault", "One fault was observed directly." if count == 1 else f"{count} faults were observed directly."
        )
    lead = weighing.shares[0]
    if lead.credence > LOCALISED and not is_null(knowledge, lead.cause) and seen:
        return Verdict("fault", "One explanation stands out; the fault itself has not been observed yet.")
    if seen and lead.cause == "none.healthy" and _sound(knowledge, weighing) and len(passed) >= ENOUGH:
        # Of fifty checks on a sound run one or two come out odd: the weighing says whether that means anything.
        return Verdict("healthy", f"{len(passed)} checks passed; the other observations are usual in sound runs.")
    if seen:
        if lead.credence > LOCALISED:
            return Verdict("suspect", "The symptoms may well be harmless.")
        return Verdict("suspect", "There are symptoms of a fault, and no single cause stands out yet.")
    if len(passed) >= ENOUGH:
        return Verdict("healthy", f"All {len(passed)} checks that ran passed.")
    made = f"only {len(passed)} check{'s' * (len(passed) != 1)} passed" if passed else "no check ran"
    return Verdict("undecided", f"Too little was observed for a verdict: {made}.")


def _sound(knowledge: Knowledge, weighing: Weighing) -> bool:
    """Whether sound explanations have it together, or nothing wrong leads and no cause comes near: a sound run has
    oddities too that nothing explains."""
    if weighing.sound > LOCALISED:
        return True
    others = [held.credence for held in weighing.shares if not is_null(knowledge, held.cause)]
    return weighing.shares[0].credence >= LEADS and max(others, default=0.0) <= NEAR
