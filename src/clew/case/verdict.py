"""The verdict in one word, as CONTRACT defines it."""

from collections.abc import Sequence
from typing import NamedTuple

from clew.case.conduct import LOCALISED, is_null
from clew.case.weigh import Weighed, Weighing
from clew.knowledge.model import Knowledge
from clew.records.clue import Clue

ENOUGH = 3
"""Fewer checks than this that all passed show too little to call anything healthy."""

HEALTH = 0.8
"""What "nothing wrong" must come to for a run to be called healthy."""

TELLING = 7.5
"""An observation contradicts health where some explanation makes it so many times as likely as a sound run does."""

SUPPORT = 0.1
"""Bits that some observation must give the leading cause: a person's own prior alone makes an idea and no fault."""

LEADS, NEAR = 0.35, 0.2
"""What "nothing wrong" must come to where it is not half of all, and what no cause may come to, for oddities to be
taken for those of a sound run."""

SHOWN = {"undecided": "NOTHING FOUND"}


class Verdict(NamedTuple):
    word: str  # "fault" | "suspect" | "healthy" | "undecided"
    says: str

    @property
    def shown(self) -> str:
        return shown(self.word)


def shown(word: str) -> str:
    """A verdict's word as people read it."""
    return SHOWN.get(word, word.upper())


def judge(knowledge: Knowledge, weighing: Weighing, clues: Sequence[Clue] = ()) -> Verdict:
    seen = [held for held in weighing.clues if held.kind == "seen" and held.weight > 0.0]
    passed = [held for held in weighing.clues if held.kind == "absent" and held.weight > 0.0]
    if weighing.findings:
        count = len(weighing.findings)
        return Verdict(
            "fault", "One fault was observed directly." if count == 1 else f"{count} faults were observed directly."
        )
    lead = weighing.shares[0]
    stands_out = lead.credence > LOCALISED and not is_null(knowledge, lead.cause)
    if stands_out and seen and any(pull.bits > SUPPORT for pull in weighing.pulls(lead.cause)):
        return Verdict("fault", "Most likely cause, from symptoms only; the fault itself was not observed.")
    if any(of_source(knowledge, held) and held.outcome == "certain" for held in seen):
        return Verdict("suspect", "Lint is certain of a fault in the source; the run did not show its effect.")
    if seen and not (lead.cause == "none.healthy" and _sound(knowledge, weighing) and len(passed) >= ENOUGH):
        if stands_out:
            return Verdict("suspect", "Your own explanation leads by its prior; no observation supports it yet.")
        if is_null(knowledge, lead.cause) and lead.cause != "none.healthy":
            word = "undecided" if weighing.sound >= HEALTH else "suspect"
            if lead.cause == "none.overfitting" and (figures := _overfitting(weighing, clues)):
                return Verdict(word, f"Overfitting, most likely: {figures} ({lead.cause}).")
            return Verdict(word, f"Most likely {knowledge.causes[lead.cause].gloss} ({lead.cause}).")
        if lead.credence > LOCALISED:
            return Verdict("suspect", "The symptoms may well be harmless.")
        return Verdict("suspect", "There are symptoms of a fault, and no single cause stands out yet.")
    if len(passed) < ENOUGH:
        made = f"only {len(passed)} check{'s' * (len(passed) != 1)} passed" if passed else "no check ran"
        return Verdict("undecided", f"Too little was observed for a verdict: {made}.")
    contrary = sum(contradicts(knowledge, held) for held in seen)
    if contrary:
        odd = "one reading is" if contrary == 1 else f"{contrary} readings are"
        return Verdict("undecided", f"{len(passed)} checks passed, but {odd} unusual for a sound run.")
    if lead.credence < HEALTH:
        share = f"{100 * lead.credence:.0f} %, and HEALTHY needs {100 * HEALTH:.0f} %"
        return Verdict("undecided", f"{len(passed)} checks passed; the run is healthy with a probability of {share}.")
    if seen:
        # Of fifty checks on a sound run one or two come out odd: the weighing says whether that means anything.
        return Verdict("healthy", f"{len(passed)} checks passed; what else was seen is common in sound runs.")
    return Verdict("healthy", f"All {len(passed)} checks that ran passed.")


def _overfitting(weighing: Weighing, clues: Sequence[Clue]) -> str:
    """What the curves show of it, with its figures; "" where no clue speaks for it."""
    shown = [clues[pull.clue] for pull in weighing.pulls("none.overfitting") if pull.bits > SUPPORT] if clues else []
    for clue in shown:
        if clue.test == "val_turns_up" and "val_end" in (held := dict(clue.measured)):
            return (
                f"the training loss falls to {held['train_end']:.3g} while the validation loss rises from "
                f"{held['val_lowest']:.3g} at {held['unit']} {held['lowest_at']} to {held['val_end']:.3g}"
            )
    for clue in shown[:1]:
        figures = [f"{name.replace('_', ' ')} {value:.3g}" for name, value in clue.measured if isinstance(value, float)]
        return ", ".join([clue.says.rstrip(".") or clue.test, *figures])
    return ""


def without(verdict: Verdict, exams: Sequence[str], name: str) -> Verdict:
    """The verdict where exams that decide were left out for want of time; `name` is what clew exam is given."""
    if verdict.word != "healthy" or not exams:
        return verdict
    says = f"The run cannot be called healthy: there was no time for {' and '.join(exams)}. Run:"
    return Verdict("undecided", f"{says} clew exam {name} --only {' '.join(exams)}")


def of_source(knowledge: Knowledge, held: Weighed) -> bool:
    return knowledge.tests[held.test].by == "lint"


def contradicts(knowledge: Knowledge, held: Weighed) -> bool:
    return _odds(knowledge, held) >= TELLING


def unusual(knowledge: Knowledge, weighing: Weighing) -> list[int]:
    """The clues that were seen and made no finding, the most unusual first; what the source shows for certain leads."""
    found = {index for finding in weighing.findings for index in finding.clues}
    left = [index for index, held in enumerate(weighing.clues) if held.kind == "seen" and index not in found]
    return sorted(left, key=lambda index: _rank(knowledge, weighing.clues[index]))


def _rank(knowledge: Knowledge, held: Weighed) -> tuple[bool, float]:
    return not (of_source(knowledge, held) and held.outcome == "certain"), -_odds(knowledge, held)


def _odds(knowledge: Knowledge, held: Weighed) -> float:
    """How many times as likely as in a sound run the outcome is under the explanation that speaks for it most."""
    test = knowledge.tests[held.test]
    at = [known.name for known in test.outcomes].index(held.outcome)
    return max((row.p[at] for row in test.rows), default=0.0) / test.healthy[at]


def _sound(knowledge: Knowledge, weighing: Weighing) -> bool:
    """Whether sound explanations have it together, or nothing wrong leads and no cause comes near: a sound run has
    oddities too that nothing explains."""
    if weighing.sound > LOCALISED:
        return True
    others = [held.credence for held in weighing.shares if not is_null(knowledge, held.cause)]
    return weighing.shares[0].credence >= LEADS and max(others, default=0.0) <= NEAR
