"""What there is to say about a case, worked out once for the terminal, the page and the JSON file alike."""

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from clew.case.choose import AtHand, Choice, choose
from clew.case.conduct import Advice, Explanation, advise, as_seen, explanations
from clew.case.verdict import Verdict, judge, unusual
from clew.case.weigh import Finding, Pull, Subject, Weighing, weigh
from clew.knowledge.model import Cause, Knowledge
from clew.records.case import Case, HeldClue, Own
from clew.records.clue import Clue
from clew.records.place import Place, told

LEAST_PULL = 0.1
"""Bits below which a clue is not worth naming for or against an explanation."""
LEAST_SHARE = 0.03
"""Credence below which an explanation is not worth a line."""
MOST_GUESSES = 3
LEAST_GAIN = 0.035
"""Bits below which a question is not worth asking: what reads as 0.03 or less."""


class CaseView(NamedTuple):
    """Everything a report shows, with nothing left to decide but its looks."""

    case: Case
    knowledge: Knowledge
    code: str
    counted: tuple[HeldClue, ...]
    retracted: tuple[HeldClue, ...]
    other_code: tuple[HeldClue, ...]
    weighing: Weighing
    verdict: Verdict
    explanations: tuple[Explanation, ...]
    choices: tuple[Choice, ...]
    advice: Advice
    foreseen: tuple[str, ...]
    places: Mapping[str, tuple[Place, ...]] = MappingProxyType({})
    """By cause: lines that were found otherwise than by a clue, such as where a setting was written."""
    at_hand: AtHand | None = None
    heard: tuple[Clue, ...] = ()
    """What the complaint says and nobody entered: it counts in choosing what to ask, and moves no credence."""
    own: tuple[Own, ...] = ()
    """Hypotheses of a person's own whose check is still to be made: it comes before all other observations."""

    def cause(self, finding: Finding) -> Cause:
        """The cause of a finding, as its clues show it."""
        return as_seen(self.knowledge, finding, [held.clue for held in self.counted], self.weighing)


def view(
    knowledge: Knowledge,
    case: Case,
    code: str = "",
    all_code: bool = False,
    most: int = 5,
    by_hand: bool = True,
    at_hand: AtHand | None = None,
    heard: Iterable[Clue] = (),
    needless: Iterable[str] = (),
) -> CaseView:
    """Weigh a case as it stands. `code` is the digest of the script as it is now, "" when there is none; `by_hand`
    says whether a person makes the observations, `at_hand` is a run of theirs that clew can read, `heard` what the
    complaint says, `needless` the tests that make no sense for it."""
    held = [clue for clue in case.clues if not clue.retracted]
    other = [clue for clue in held if code and clue.code and clue.code != code and not all_code]
    counted = tuple(clue for clue in held if clue not in other)
    subject = Subject(case.domain, case.setting, tuple(own for own in case.own if not own.retracted))
    clues = [item.clue for item in counted]
    weighing = weigh(knowledge, clues, subject)
    entered = {held.test for held in weighing.clues if held.kind != "unclear"}
    said = tuple(clue for clue in heard if clue.test not in entered)
    supposed = weigh(knowledge, [*clues, *said], subject)
    choices = choose(knowledge, supposed, [*clues, *said], subject, most, by_hand, at_hand, needless)
    own = unchecked(case, weighing)
    advice = advise(knowledge, weighing, clues, choices, case.domain)
    if own and not weighing.findings:
        advice = Advice("observe", f"{own[0].check.rstrip('.')}. This is the check of {own[0].id}: {own[0].says}")
    choices = tuple(choice for choice in choices if choice.gain >= LEAST_GAIN)
    return CaseView(
        case,
        knowledge,
        code,
        counted,
        tuple(clue for clue in case.clues if clue.retracted),
        tuple(other),
        weighing,
        judge(knowledge, weighing, clues),
        explanations(knowledge, weighing),
        choices,
        advice,
        _foreseen(case, weighing),
        at_hand=at_hand,
        heard=said,
        own=own,
    )


def unchecked(case: Case, weighing: Weighing) -> tuple[Own, ...]:
    """A person's own hypotheses whose check was not made: no test that they expect something of, and no result noted
    for them."""
    made = {held.test for held in weighing.clues if held.kind != "unclear"}
    noted = {note.about for note in case.notes if note.part == "result"}
    held = [own for own in case.own if not own.retracted and own.id not in noted]
    return tuple(own for own in held if made.isdisjoint(test for test, _ in own.expects))


def telling(seen: CaseView, cause: str) -> list[Pull]:
    """What speaks for and against an explanation; a check that passed is not named against health."""
    passed = {index for index, held in enumerate(seen.weighing.clues) if held.kind == "absent"}
    pulls = [pull for pull in seen.weighing.pulls(cause) if abs(pull.bits) > LEAST_PULL]
    return [pull for pull in pulls if cause != "none.healthy" or pull.bits > 0 or pull.clue not in passed]


def found(seen: CaseView) -> tuple[Finding, ...]:
    """The findings; where a fault stands out without one, the explanation that does, at the line that lint read."""
    if seen.weighing.findings or seen.verdict.word != "fault":
        return seen.weighing.findings
    lead = seen.weighing.shares[0]
    if lead.cause not in seen.knowledge.causes:
        return ()
    support = [pull.clue for pull in telling(seen, lead.cause) if pull.bits > 0]
    where = told(seen.places.get(lead.cause, ()), (place for i in support for place in seen.counted[i].clue.where))
    read = tuple(index for index in support if seen.counted[index].clue.fix)
    lines = (place for index in read for place in seen.counted[index].clue.where[:1])
    return (Finding(lead.cause, lead.credence, read, tuple(dict.fromkeys((*lines, *where)))),)


def guesses(seen: CaseView) -> tuple[Explanation, ...]:
    """The explanations worth showing. That nothing is wrong comes last, and means nothing alone or beside a finding.
    Where somebody complained and nothing was found, all stay on the table."""
    if seen.case.setting == "complaint" and not seen.weighing.findings:
        return seen.explanations
    parts = {item.cause: item.part for item in seen.explanations}
    held = [
        Explanation(share.cause, share.credence, parts.get(share.cause, "rival"))
        for share in seen.weighing.shares
        if share.credence >= LEAST_SHARE or parts.get(share.cause) == "own"
    ]
    others = [item for item in held if item.cause != "none.healthy"][:MOST_GUESSES]
    nothing = [item for item in held if item.cause == "none.healthy" and others and not seen.weighing.findings]
    return (*others, *nothing)


def _foreseen(case: Case, weighing: Weighing) -> tuple[str, ...]:
    """How the pre-flight's worries compare with what happened."""
    if not case.preflights:
        return ()
    happened = [finding.cause for finding in weighing.findings]
    if case.closing is not None:
        happened = [case.closing.cause, *(cause for cause in happened if cause != case.closing.cause)]
    worries = [worry for flight in case.preflights for worry in flight.worries]
    named = {worry.cause for worry in worries if worry.cause}
    surprise = case.preflights[-1].surprise
    lines = [f"Before the run, a failure would have been {surprise} surprising."]
    for cause in happened:
        if cause in named:
            check = next(worry.check for worry in worries if worry.cause == cause)
            lines.append(f"{cause} happened and was on the list; its check was: {check}")
        else:
            lines.append(f"{cause} happened and was not on the list.")
    feared = sorted(named - set(happened))
    lines += [f"{cause} was on the list; its credence is now {weighing.credence(cause):.2f}." for cause in feared]
    lines += [
        f"Also on the list, in your words: {worry.says}; its check: {worry.check}"
        for worry in worries
        if not worry.cause
    ]
    return tuple(lines)


def causes_json(seen: CaseView) -> list[dict[str, Any]]:
    """Findings first, then hypotheses, each list by credence; beside a fault, that nothing is wrong comes last."""
    rows: list[dict[str, Any]] = []
    for finding in seen.weighing.findings:
        cause = seen.cause(finding)
        rows.append(
            {
                "id": finding.cause,
                "credence": finding.credence,
                "kind": "finding",
                "where": [place.to_json() for place in finding.where],
                "clues": list(finding.clues),
                "says": f"{_sentence(cause.gloss)} {cause.mend}",
                "check": cause.refute,
                "fix": cause.mend,
                "seen": [seen.counted[index].clue.says for index in finding.clues],
            }
        )
    own = {item.id: item for item in seen.case.own}
    stands = {item.cause: item for item in found(seen)}
    last = "none.healthy" if seen.verdict.word in ("fault", "suspect") else ""
    for share in sorted(seen.weighing.shares, key=lambda share: share.cause == last):
        held = seen.knowledge.causes.get(share.cause)
        support = [pull.clue for pull in telling(seen, share.cause) if pull.bits > 0]
        clues = (place for index in support for place in seen.counted[index].clue.where)  # the strongest clue first
        places = told(seen.places.get(share.cause, ()), clues)
        if held and share.cause in stands:
            held, places = seen.cause(stands[share.cause]), stands[share.cause].where
        rows.append(
            {
                "id": share.cause,
                "credence": share.credence,
                "kind": "hypothesis",
                "where": [place.to_json() for place in places] if support else [],
                "clues": sorted(support),
                "says": _sentence(held.gloss) if held else own[share.cause].says,
                "check": held.refute if held else own[share.cause].check,
                "fix": held.mend if held else "",
                "seen": [seen.counted[index].clue.says for index in sorted(support)],
            }
        )
    return rows


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else text + "."


def _own_check(seen: CaseView, own: Own) -> dict[str, Any]:
    """What it tells is whether the hypothesis holds."""
    share = min(max(seen.weighing.credence(own.id), 1e-9), 1 - 1e-9)
    bits = -share * math.log2(share) - (1 - share) * math.log2(1 - share)
    cost = dict(seen.knowledge.priors.by_hand)["person"]
    return {
        "test": own.id,
        "says": own.check,
        "gain_bits": bits,
        "cost_s": cost,
        "by": "person",
        "predictions": dict(own.expects),
    }


def _unusual(seen: CaseView) -> list[dict[str, Any]]:
    """What was seen and made no finding, the least like a sound run first."""
    rows = []
    for index in unusual(seen.knowledge, seen.weighing)[:MOST_GUESSES]:
        clue = seen.counted[index].clue
        scale = seen.knowledge.tests[clue.test].scale
        value = dict(clue.measured).get(scale.of) if scale else None
        where = [place.to_json() for place in clue.where]
        rows.append({"reading": clue.test, "value": value, "where": where, "says": clue.says})
    return rows


def to_json(seen: CaseView) -> dict[str, Any]:
    """As CONTRACT has it."""
    case = seen.case
    return {
        "schema": "clew/1",
        "command": "case show",
        "verdict": seen.verdict.word,
        "unusual": _unusual(seen),
        "says": seen.verdict.says,
        "causes": causes_json(seen),
        "unknown": seen.weighing.unknown,
        "clues": [
            {**held.clue.to_json(), "outcome": weighed.outcome, "number": held.number, "weight": weighed.weight}
            for held, weighed in zip(seen.counted, seen.weighing.clues, strict=True)
        ],
        "next": [
            *(_own_check(seen, own) for own in seen.own),
            *(
                {
                    "test": choice.test,
                    "says": seen.knowledge.tests[choice.test].how,
                    "gain_bits": choice.gain,
                    "cost_s": choice.cost,
                    "by": seen.knowledge.tests[choice.test].by,
                    "predictions": {cause: outcome for cause, outcome, _ in choice.predictions},
                }
                for choice in seen.choices
            ),
        ],
        "run": {"id": case.id, "script": case.script, "argv": [], "steps": 0, "seconds": 0.0, "exit": None},
        "case": {
            "symptom": case.symptom,
            "domain": case.domain,
            "advice": {"kind": seen.advice.kind, "says": seen.advice.says, "test": seen.advice.test},
            "closed": case.closing._asdict() if case.closing else None,
            "not_weighed": [
                {"number": held.number, "why": held.retracted or "made on other code"}
                for held in (*seen.retracted, *seen.other_code)
            ],
            "remarks": list(case.remarks),
        },
    }
