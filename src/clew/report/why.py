"""What is known about one thing, as text for a terminal, with the sources behind it."""

from typing import Any

from clew.evidence.words import said
from clew.knowledge.model import (
    AntiPattern,
    Cause,
    Claim,
    Domain,
    Habit,
    Knowledge,
    Lens,
    Range,
    Reference,
    Symptom,
    Test,
    TriageStep,
)
from clew.knowledge.search import SHELVES, Found
from clew.report.brief import some
from clew.report.text import BOLD, DIM, Page, percent, seconds

TITLES = {
    "cause": "cause",
    "test": "test",
    "claim": "claim",
    "symptom": "symptom",
    "antipattern": "anti-pattern",
    "habit": "habit",
    "lens": "lens",
    "triage": "triage question",
    "range": "healthy range or default",
    "reference": "reference implementation",
    "domain": "domain",
}


def entry_table(entry: Any) -> dict[str, Any]:
    """An entry for programs, in the order in which the short form cuts it."""
    table = entry._asdict()
    if not isinstance(entry, Cause):
        return dict(table)
    fix, variants = table.pop("mend"), table.pop("variants")
    names = {"seen": "when", "mend": "fix"}
    held = [{names.get(name, name): value for name, value in one._asdict().items()} for one in variants]
    return {**table, "fix": fix, "variants": held}


def entry_page(
    knowledge: Knowledge, found: Found, tests: list[tuple[Test, str, float, float]], page: Page, brief: bool = False
) -> Page:
    """Everything about one entry, or in short what it is, how it shows, its fix and what refutes it. `tests` are those
    that speak about it, when it is a cause."""
    entry = found.entry
    page.line(f"{page.paint(found.id, BOLD)}  {page.paint(TITLES[found.shelf], DIM)}")
    if brief and isinstance(entry, Cause):
        parts = (entry.gloss, entry.shows[0] if entry.shows else "", entry.mend, entry.refute)
        for name, text in zip(("", "shows as", "fix", "this is wrong if"), parts, strict=True):
            some(page, text, f"  {name:<16} " if name else "  ", 3)
        return page
    if isinstance(entry, Cause):
        _cause(entry, tests, page)
    elif isinstance(entry, Test):
        _test(entry, page)
    elif isinstance(entry, Claim):
        page.say(entry.text, 2)
        _sources(entry, page)
        return page
    else:
        _other(entry, page)
    _claims(knowledge, entry, page)
    return page


def _field(page: Page, name: str, text: str) -> None:
    if text:
        page.say(text, 2, f"{name:<16} ")


def _cause(cause: Cause, tests: list[tuple[Test, str, float, float]], page: Page) -> None:
    page.say(cause.means, 2)
    page.line()
    for index, sign in enumerate(cause.shows):
        _field(page, "shows as" if index == 0 else "", sign)
    _field(page, "this is wrong if", cause.refute)
    _field(page, "won't help", cause.not_first)
    _field(page, "fix", cause.mend)
    if cause.domains:
        _field(page, "only in", ", ".join(cause.domains))
    if tests:
        page.head("Tests that detect it or rule it out")
        for test, outcome, chance, healthy in tests[:8]:
            ratio = f"{percent(chance)} of the time, {percent(healthy)} when nothing is wrong"
            page.say(f"{test.id} → {outcome}: {ratio}.", 2, "- ")


def _test(test: Test, page: Page) -> None:
    page.say(test.asks, 2)
    page.line()
    _field(page, "by hand", test.how)
    cost = seconds(test.seconds) + (" and a look by a person" if test.person else "")
    made = "made by hand" if test.by == "person" else f"about {cost}; made by {test.by}"
    _field(page, "costs", f"{made}, reading the {test.reads}")
    if test.scale:
        steps = ", ".join(f"below {limit:g} {outcome}" for limit, outcome in test.scale.steps)
        _field(page, "scale", f"{test.scale.of} ({test.scale.unit}): {steps}, else {test.scale.above}")
    _field(page, "cannot tell", test.cannot_tell)
    page.head("Outcomes")
    for outcome in test.outcomes:
        decisive = [item.cause for item in test.decisive if item.outcome == outcome.name]
        proof = f". This shows {' or '.join(decisive)} directly." if decisive else ""
        page.say(f"{outcome.name} ({outcome.kind}): {outcome.means}{proof}", 2, "- ")
    page.head("How likely each outcome is: " + ", ".join(outcome.name for outcome in test.outcomes))
    sound, rest = (f", measured (n={count})" if count else "" for count in test.measured)
    page.say(f"nothing wrong: {_chances(test.healthy)}{sound}", 2, "- ")
    for row in test.rows:
        page.say(f"{', '.join(row.causes)}: {_chances(row.p)}, {row.pedigree}. {row.why}", 2, "- ")
    page.say(f"any other cause: {_chances(test.otherwise)}{rest}. {test.otherwise_why}", 2, "- ")


def _chances(chances: tuple[float, ...]) -> str:
    return " / ".join(f"{chance:.2f}" for chance in chances)


def _other(entry: Any, page: Page) -> None:
    if isinstance(entry, Symptom):
        page.say(entry.sign, 2)
        page.line()
        _field(page, "may mean", ", ".join(entry.causes))
        _field(page, "look at", ", ".join(entry.look))
        _field(page, "advice", entry.advice)
    elif isinstance(entry, AntiPattern):
        page.say(entry.temptation, 2)
        page.line()
        _field(page, "why not", entry.why)
        _field(page, "instead", entry.instead)
    elif isinstance(entry, Habit):
        page.say(entry.habit, 2)
        page.line()
        _field(page, "why", entry.why)
        _steps(page, entry.do)
    elif isinstance(entry, Lens):
        page.say(entry.idea, 2)
        page.line()
        _steps(page, entry.do)
        _field(page, "tests", ", ".join(entry.tests))
    elif isinstance(entry, TriageStep):
        page.say(entry.asks, 2)
        page.line()
        _field(page, "if yes", entry.yes)
        _field(page, "tests", ", ".join(entry.tests))
        _field(page, "may mean", ", ".join(entry.causes))
    elif isinstance(entry, Range):
        page.say(entry.quantity, 2)
        page.line()
        _field(page, "value", f"{entry.value}{f' ({entry.unit})' if entry.unit not in ('', '1', 'none') else ''}")
        _field(page, "holds for", entry.scope)
        _field(page, "outside it", entry.outside)
    elif isinstance(entry, Reference):
        page.say(f"{entry.name}: {entry.url}", 2)
        page.line()
        _field(page, "for", ", ".join(entry.domains))
        _field(page, "trusted for", entry.why)
        _field(page, "read it for", entry.read_for)
    elif isinstance(entry, Domain):
        page.say(entry.means, 2)
        page.line()
        _field(page, "typical", ", ".join(entry.typical))
        _field(page, "why", entry.why)


def _steps(page: Page, steps: tuple[str, ...]) -> None:
    for index, step in enumerate(steps):
        _field(page, "do" if index == 0 else "", step)


def _claims(knowledge: Knowledge, entry: Any, page: Page) -> None:
    claims = [knowledge.claims[name] for name in getattr(entry, "claims", ())]
    if not claims:
        return
    page.head("Based on (clew why CLAIM shows the sources)")
    for claim in claims:
        page.say(f"{claim.id}: {claim.text}", 2, "- ")
        sources = "; ".join(source.label for source in claim.sources)
        limits = f"; {len(claim.against)} limit{'s' * (len(claim.against) > 1)}" if claim.against else ""
        page.say(f"credence {said(claim.credence)}, from {sources}{limits}", 4, "", DIM)


def _sources(claim: Claim, page: Page) -> None:
    """Each voice for the claim, where its words stand, and what speaks against it."""
    page.say(f"credence {said(claim.credence)}: {claim.reason}", 2, "", DIM)
    page.head("Sources")
    for source in claim.sources:
        page.say(source.text, 2, "- ")
        stated = "" if source.credence is None else f", trusted {source.credence:.2f}"
        page.say(f"{source.label}{stated}", 4, "", DIM)
        page.say(source.url, 4, "", DIM)
        if source.sealed and source.lines:
            first, last = source.lines
            lines = f"line {first}" if first == last else f"lines {first}–{last}"
            page.say(f"quotation sealed: {source.file}, {lines}", 4, "", DIM)
        else:
            page.say("quotation not checked here", 4, "", DIM)
    if claim.against:
        page.head("Limits")
        for text, credence in claim.against:
            page.say(f"{text} ({said(credence)})", 2, "- ")


def list_page(knowledge: Knowledge, which: str, page: Page) -> Page:
    """All ids of a shelf or a family with a line each, or the shelves when nothing is named."""
    shelves = dict(SHELVES)
    by_field = {field: shelf for shelf, field in SHELVES}
    if not which:
        for family in knowledge.families.values():
            count = sum(cause.family == family.id for cause in knowledge.causes.values())
            page.say(f"{family.means} ({count} causes)", 2, f"{family.id:<14}")
        page.line()
        for shelf, field in SHELVES[1:]:
            page.say(f"{len(getattr(knowledge, field))} of kind: {TITLES[shelf]}", 2, f"{field:<14}")
        return page
    if which in knowledge.families:
        rows = [(c.id, c.gloss) for c in knowledge.causes.values() if c.family == which]
    else:
        field = which if which in by_field else shelves[which]
        rows = [(key, _gist(entry)) for key, entry in getattr(knowledge, field).items()]
    wide = min(max(len(key) for key, _ in rows) + 2, 34)
    for key, gist in rows:
        page.say(gist, 2, f"{key:<{wide}}" if len(key) < wide else f"{key}  ")
    return page


def _gist(entry: Any) -> str:
    for name in ("gloss", "asks", "sign", "idea", "habit", "temptation", "quantity", "name", "text", "means"):
        if value := getattr(entry, name, ""):
            return str(value)
    return ""


def hits_page(query: str, hits: list[Found], page: Page) -> Page:
    """What a search by words found."""
    page.say(f"About “{query}”:", 0, "", BOLD)
    for hit in hits:
        page.line(f"  {page.paint(hit.id, BOLD)}  {page.paint(TITLES[hit.shelf], DIM)}")
        page.say(_gist(hit.entry).split(". ")[0], 4)
    page.line()
    page.say("`clew why ID` shows each in full.", 0, "", DIM)
    return page
