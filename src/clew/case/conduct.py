"""The rules of conduct of a good debugger, as code.

- At least three different explanations stay on the table, among them the subtle one and the null.
- Advice is an observation before it is a change, and never a hyper-parameter change first.
- After two observations that localised nothing, the advice becomes: compare with an implementation that works.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from clew.case.choose import Choice
from clew.case.weigh import Finding, Weighing
from clew.knowledge.model import Cause, Knowledge, Reference, Variant
from clew.records.clue import Clue

LOCALISED = 0.5
CYCLES = 2
CORRECTNESS = ("data_looks_right", "init_loss", "overfit_one_batch", "event_order", "loss_input_kind")
"""What must have been looked at, and found in order, before a hyper-parameter may be blamed."""


class Explanation(NamedTuple):
    """One explanation on the table, and why it is there."""

    cause: str
    credence: float
    part: str  # "leading" | "rival" | "subtle" | "null" | "own"


class Advice(NamedTuple):
    """What to do now. `kind` is "observe", "refute", "mend", "compare" or "nothing"."""

    kind: str
    says: str
    test: str = ""
    cause: str = ""
    references: tuple[Reference, ...] = ()


def as_seen(knowledge: Knowledge, finding: Finding, clues: Sequence[Clue], weighing: Weighing) -> Cause:
    """The cause of a finding, with the name, fix and refutation of the variant that its clues show. Where a rule of
    lint names the line, its fix is the one, unless a variant is about what that rule reads."""
    cause = knowledge.causes[finding.cause]
    read = [clues[index] for index in finding.clues if clues[index].fix and clues[index].where[:1]]
    lines = {(place.file, place.line): clue.fix for clue in read for place in clue.where[:1]}
    fix = lines.get((finding.where[0].file, finding.where[0].line), "") if finding.where else ""
    held = {
        f"{weighing.clues[index].test}={weighing.clues[index].outcome}": clues[index].says for index in finding.clues
    }
    for one in cause.variants:
        says = " ".join(text for name, text in held.items() if name in one.seen).lower()
        if set(one.seen).intersection(held) and (not one.words or any(word in says for word in one.words)):
            return cause._replace(gloss=one.gloss or cause.gloss, mend=_mend(one, fix) or cause.mend, refute=one.refute)
    return cause._replace(mend=fix or cause.mend)


def _mend(one: Variant, fix: str) -> str:
    reads = any(name.startswith("source_") for name in one.seen)
    return (one.mend or fix) if reads else (fix or one.mend)


def is_null(knowledge: Knowledge, cause: str) -> bool:
    return cause in ("stat.seed_noise",) or (cause in knowledge.causes and knowledge.causes[cause].family == "none")


def explanations(knowledge: Knowledge, weighing: Weighing, most: int = 3) -> tuple[Explanation, ...]:
    """The leading explanations, with the best subtle one and the best null one always among them."""
    chosen: dict[str, Explanation] = {}
    for share in weighing.shares[:most]:
        chosen[share.cause] = Explanation(share.cause, share.credence, "rival" if chosen else "leading")
    for share in weighing.shares:
        cause = knowledge.causes.get(share.cause)
        if cause is None:
            chosen[share.cause] = Explanation(share.cause, share.credence, "own")
    for part in ("subtle", "null"):
        for share in weighing.shares:
            cause = knowledge.causes.get(share.cause)
            null = is_null(knowledge, share.cause)
            fits = null if part == "null" else cause is not None and cause.subtle and not null
            if fits:
                held = chosen.get(share.cause)
                if held is None or held.part == "rival":
                    chosen[share.cause] = Explanation(share.cause, share.credence, part)
                break
    if len({name.split(".")[0] for name in chosen}) < 3:
        _widen(weighing, chosen)
    return tuple(sorted(chosen.values(), key=lambda item: (-item.credence, item.cause)))


def _widen(weighing: Weighing, chosen: dict[str, Explanation]) -> None:
    """Five causes of one family are one explanation in five spellings: add the best of other families."""
    families = {name.split(".")[0] for name in chosen}
    for share in weighing.shares:
        family = share.cause.split(".")[0]
        if family not in families:
            chosen[share.cause] = Explanation(share.cause, share.credence, "rival")
            families.add(family)
        if len(families) >= 3:
            return


def advise(
    knowledge: Knowledge, weighing: Weighing, clues: Iterable[Clue], choices: tuple[Choice, ...], domain: str
) -> Advice:
    """The one thing to do now."""
    given = tuple(clues)
    made = {clue.test: held.kind for clue, held in zip(given, weighing.clues, strict=True)}
    for finding in weighing.findings:
        cause = as_seen(knowledge, finding, given, weighing)
        return Advice("mend", f"{cause.refute} If that does not rule it out: {cause.mend}", cause.refute_test, cause.id)
    lead = weighing.shares[0]
    passed = lead.credence > LOCALISED and lead.cause in knowledge.causes
    if passed and not is_null(knowledge, lead.cause):
        return _on_a_lead(knowledge, lead.cause, made)
    looks = [clue for clue in given if clue.test in made and knowledge.tests[clue.test].role != "symptom"]
    if len({clue.test for clue in looks}) >= CYCLES and not passed:
        return _compare(knowledge, domain)
    if passed:
        cause = knowledge.causes[lead.cause]
        return Advice("refute", cause.refute, cause.refute_test, cause.id)
    if choices:
        test = knowledge.tests[choices[0].test]
        return Advice("observe", test.how, test.id)
    return _compare(knowledge, domain)


def _on_a_lead(knowledge: Knowledge, name: str, made: dict[str, str]) -> Advice:
    cause = knowledge.causes[name]
    if cause.refute_test not in made:
        return Advice("refute", cause.refute, cause.refute_test, cause.id)
    if cause.family == "hp":
        open_checks = [test for test in CORRECTNESS if test not in made]
        if open_checks:
            test = knowledge.tests[open_checks[0]]
            says = f"Before tuning any hyper-parameter, show that the code is correct: {test.how}"
            return Advice("observe", says, test.id, cause.id)
    return Advice("mend", cause.mend, "", cause.id)


def _compare(knowledge: Knowledge, domain: str) -> Advice:
    fitting = [held for held in knowledge.references.values() if domain in held.domains]
    general = [held for held in knowledge.references.values() if "general" in held.domains]
    references = tuple((fitting or general)[:3])
    says = (
        "Compare with an implementation that works: "
        "the equations, the values on the same batch, the undocumented tricks and the settings."
    )
    return Advice("compare", says, "reference_diff", "", references)
