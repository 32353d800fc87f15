"""One function per verb. The command line, the web pages and the agents' interface all come through here."""

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from clew.case import log, store
from clew.case.weigh import Subject, on_scale, weigh
from clew.errors import ClewError, did_you_mean
from clew.knowledge import load
from clew.knowledge.model import Cause, Claim, Knowledge, Symptom, Test
from clew.knowledge.search import Found, by_id, by_words, near
from clew.records.case import PARTS, Case
from clew.records.clue import UNCLEAR, Clue, Value
from clew.records.place import Place
from clew.report.view import CaseView, view

if TYPE_CHECKING:
    from clew.evidence.credence import Credences
    from clew.evidence.model import Document
    from clew.evidence.quotes import Check

SURPRISES = ("very surprising", "somewhat surprising", "not surprising")


class Options(NamedTuple):
    """What a person can say along with an observation."""

    measured: tuple[tuple[str, Value], ...] = ()
    where: tuple[Place, ...] = ()
    says: str = ""
    reproduce: str = ""
    why: str = ""


NOTHING = Options()


# --- the case


def case_new(symptom: str, domain: str = "general", script: str = "") -> Case:
    """Open a case for a complaint."""
    symptom = " ".join(symptom.split())
    if not symptom:
        raise ClewError('say what you see, for instance: clew case new "validation accuracy stays at 10 %"')
    domain = known_domain(domain)
    data = {"symptom": symptom, "domain": domain, "setting": "complaint"}
    if script:
        data |= {"script": script, "code": code_digest(script)}
    return store.create(data)


def case_clue(name: str, test: str, outcome: str = "", options: Options = NOTHING) -> tuple[int, Case]:
    """Record one observation by a person."""
    case = open_case(name)
    clue = make_clue(load(), test, outcome, options)
    data: dict[str, Any] = {"clue": clue.to_json()}
    if case.script and os.path.exists(case.script):
        data["code"] = code_digest(case.script)
    number = log.append(case.folder, "clue", data)
    return number, store.load(case.folder)


def make_clue(knowledge: Knowledge, name: str, outcome: str, options: Options = NOTHING) -> Clue:
    """A person's clue, its names checked; a measured number decides the outcome when none is given."""
    test = known_test(knowledge, name)
    measured = dict(options.measured)
    if not outcome:
        outcome = _outcome_from(test, measured)
    names = [item.name for item in test.outcomes]
    if outcome not in (*names, UNCLEAR):
        hint = did_you_mean(outcome, names) or "."
        raise ClewError(f"{test.id} has no outcome {outcome!r}{hint} It has: {', '.join(names)}, {UNCLEAR}.")
    if outcome == UNCLEAR and not options.why:
        raise ClewError(f"an unclear outcome needs its reason: clew case clue {test.id} unclear --why '…'")
    says = options.says
    if not says and outcome != UNCLEAR:
        held = test.outcome(outcome)
        says = held.means if held else ""
    return Clue(
        test=test.id,
        outcome=outcome,
        measured=tuple(sorted(measured.items())),
        where=options.where,
        reads=(test.reads,),
        source="person",
        says=says,
        reproduce=options.reproduce,
        why=options.why,
        version=test.version,
    )


def _outcome_from(test: Test, measured: dict[str, Value]) -> str:
    names = ", ".join(outcome.name for outcome in test.outcomes)
    if test.scale is None:
        raise ClewError(f"say what {test.id} showed: {names} or {UNCLEAR}.")
    value = measured.get(test.scale.of)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ClewError(
            f"say what {test.id} showed: {names} or {UNCLEAR}; or give its number: --measured {test.scale.of}=…"
        )
    outcome = on_scale(test.scale, float(value))
    if outcome == UNCLEAR:
        raise ClewError(f"{test.id} has no outcome for {test.scale.of} = {value}; choose one of: {names} or {UNCLEAR}.")
    return outcome


def case_note(name: str, part: str, text: str, about: str = "") -> int:
    """Add a line to the work log."""
    if part not in PARTS:
        raise ClewError(f"the work log has no part {part!r}; it has: {', '.join(PARTS)}.")
    if not text.strip():
        raise ClewError("a note needs words.")
    if part == "running" and not about.strip():
        raise ClewError("say which question the run is to answer: --question '…'")
    case = open_case(name)
    data = {"part": part, "text": text.strip()}
    if about.strip():
        data["about"] = about.strip()
    return log.append(case.folder, "note", data)


def case_hypothesis(name: str, says: str, prior: float, expects: dict[str, str], check: str) -> tuple[int, Case]:
    """Put a person's own explanation on the table."""
    knowledge = load()
    case = open_case(name)
    if not 0.0 < prior < 1.0:
        raise ClewError(f"a prior lies between 0 and 1, not {prior:g}.")
    if not says.strip():
        raise ClewError("say what you think is wrong.")
    if not check.strip():
        raise ClewError("name the observation that would prove it wrong: --check '…'")
    for test, outcome in expects.items():
        names = [item.name for item in known_test(knowledge, test).outcomes]
        if outcome not in names:
            raise ClewError(f"{test} has no outcome {outcome!r}; it has: {', '.join(names)}.")
    taken = sum(item.id.startswith("own.") for item in case.own)
    data = {"id": f"own.{taken + 1}", "says": says.strip(), "prior": prior, "expects": expects, "check": check.strip()}
    number = log.append(case.folder, "hypothesis", data)
    return number, store.load(case.folder)


def case_retract(name: str, number: int, reason: str) -> Case:
    """Take an entry back. It stays in the log with the reason, and counts no more."""
    case = open_case(name)
    kinds = {entry.number: entry.kind for entry in case.entries}
    gone = {int(entry.data["entry"]) for entry in case.entries if entry.kind == "retract"}
    if number not in kinds:
        raise ClewError(f"this case has no entry {number}; it has 1 to {len(kinds)}.")
    if kinds[number] in ("opened", "retract", "set_aside", "reopened"):
        raise ClewError(f"entry {number} ({kinds[number]}) cannot be retracted.")
    if number in gone:
        raise ClewError(f"entry {number} is retracted already.")
    if not reason.strip():
        raise ClewError("say why: --reason '…'")
    log.append(case.folder, "retract", {"entry": number, "reason": reason.strip()})
    return store.load(case.folder)


def case_close(name: str, cause: str, evidence: str = "", clue: int | None = None, unverified: str = "") -> Case:
    """Close a case. It asks for the observation that no longer reproduces, or for why there is none."""
    knowledge = load()
    case = open_case(name)
    own = {item.id for item in case.own}
    if cause not in knowledge.causes and cause not in own and cause != "unknown":
        raise ClewError(f"there is no cause {cause!r}{did_you_mean(cause, list(knowledge.causes)) or '.'}")
    if not evidence.strip() and not unverified.strip():
        raise ClewError(
            "closing needs the observation that no longer reproduces: --evidence '…'; "
            "if there is none, say why: --unverified '…'"
        )
    if clue is not None and clue not in {held.number for held in case.clues}:
        raise ClewError(f"entry {clue} is not a clue of this case.")
    data: dict[str, Any] = {"cause": cause, "evidence": evidence.strip(), "unverified": unverified.strip()}
    if clue is not None:
        data["clue"] = clue
    log.append(case.folder, "closed", data)
    return store.load(case.folder)


def case_reopen(name: str, reason: str) -> Case:
    case = store.load(name)
    if case.closing is None:
        raise ClewError(f"the case {case.id} is open.")
    if not reason.strip():
        raise ClewError("say why: --reason '…'")
    log.append(case.folder, "reopened", {"reason": reason.strip()})
    return store.load(case.folder)


def case_view(name: str, all_code: bool = False, most: int = 5) -> CaseView:
    """The case as it stands, weighed anew."""
    knowledge = load()
    case = store.load(name)
    if case.domain not in knowledge.domains:
        raise ClewError(f"the case {case.id} is of a domain {case.domain!r} that this clew does not know.")
    code = code_digest(case.script) if case.script and os.path.exists(case.script) else ""
    return view(knowledge, case, code, all_code, most)


def case_read(name: str) -> Case:
    """A case as its log has it, not weighed."""
    return store.load(name)


def case_use(name: str) -> str:
    """Make a case the current one; returns its id."""
    case = store.load(name)
    store.make_current(case.id)
    return case.id


def cases() -> tuple[list[str], str]:
    """The ids of all cases, and the current one."""
    return store.all_ids(), store.current()


def open_case(name: str) -> Case:
    """A case that can still be added to."""
    case = store.load(name)
    if case.closing is not None:
        raise ClewError(f"the case {case.id} is closed; `clew case reopen --reason '…'` opens it again.")
    return case


def code_digest(path: str) -> str:
    """A digest of what a script says, blind to comments and layout when it is Python."""
    import hashlib

    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise ClewError(f"cannot read {path}: {error.strerror}.") from error
    if path.endswith(".py"):
        import ast

        try:
            content = ast.dump(ast.parse(content)).encode()
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return hashlib.sha256(content).hexdigest()[:16]
    return hashlib.sha256(content).hexdigest()[:16]


# --- names


def known_domain(name: str) -> str:
    domains = load().domains
    if name not in domains:
        hint = did_you_mean(name, list(domains)) or "."
        raise ClewError(f"there is no domain {name!r}{hint} Known: {', '.join(domains)}.")
    return name


def known_test(knowledge: Knowledge, name: str) -> Test:
    if name not in knowledge.tests:
        hint = did_you_mean(name, list(knowledge.tests)) or "; `clew why --list tests` shows them all."
        raise ClewError(f"there is no test {name!r}{hint}")
    return knowledge.tests[name]


# --- what is known


class Suggestion(NamedTuple):
    """A test and outcome that a person's words seem to describe."""

    test: str
    outcome: str
    means: str


def suggest(symptom: str, most: int = 3) -> list[Suggestion]:
    """Observations that the words of a complaint may amount to: a person has to confirm them."""
    knowledge = load()
    found: dict[str, Suggestion] = {}
    for hit in by_words(knowledge, symptom, most=12):
        tests = [hit.entry] if hit.shelf == "test" else []
        if isinstance(hit.entry, Symptom):
            tests = [knowledge.tests[name] for name in hit.entry.look]
        for test in tests:
            if test.role == "symptom" and test.id not in found:
                seen = next(item for item in test.outcomes if item.kind == "seen")
                found[test.id] = Suggestion(test.id, seen.name, seen.means)
    return list(found.values())[:most]


def why(query: str) -> Found:
    """The entry meant by an exact id; raises with the nearest ones otherwise."""
    knowledge = load()
    found = by_id(knowledge, query)
    if found is None:
        close = near(knowledge, query)
        hint = f"; did you mean {' or '.join(close)}?" if close else "; `clew why --list` shows what there is."
        raise ClewError(f"nothing is known under {query!r}{hint}")
    return found


def search(query: str, most: int = 8) -> list[Found]:
    return by_words(load(), query, most)


def tests_on(knowledge: Knowledge, cause: str) -> list[tuple[Test, str, float, float]]:
    """The tests that say something about a cause: their most telling outcome, P(it | cause), P(it | healthy)."""
    rows = []
    for test in knowledge.tests.values():
        for row in test.rows:
            if cause in row.causes:
                index = max(range(len(row.p)), key=lambda i: row.p[i] / test.healthy[i])
                rows.append((test, test.outcomes[index].name, row.p[index], test.healthy[index]))
    rows.sort(key=lambda row: (-row[2] / row[3], row[0].id))
    return rows


def claims_of(knowledge: Knowledge, entry: Any) -> list[Claim]:
    return [knowledge.claims[name] for name in getattr(entry, "claims", ())]


# --- before the run


class Danger(NamedTuple):
    """A failure that is likely for a subject, with the cheap check that would show it."""

    cause: Cause
    prior: float
    check: Test


def dangers(domain: str, most: int = 6) -> list[Danger]:
    """What is most likely to go wrong: what is typical of the domain first, then by prior."""
    knowledge = load()
    held = weigh(knowledge, (), Subject(known_domain(domain)))
    prior = {share.cause: share.credence for share in held.shares}
    typical = list(knowledge.domains[domain].typical)
    ranked = typical + [share.cause for share in held.shares if share.cause not in typical]
    causes = [knowledge.causes[name] for name in ranked if name in prior and not name.startswith("none.")]
    return [Danger(cause, prior[cause.id], knowledge.tests[cause.refute_test]) for cause in causes[:most]]


def preflight(name: str, script: str, domain: str, surprise: str, worries: list[dict[str, str]]) -> Case:
    """Record what somebody expects to go wrong; opens a case when none is named."""
    if surprise not in SURPRISES:
        raise ClewError(f"a failure is one of: {', '.join(SURPRISES)}; not {surprise!r}.")
    knowledge = load()
    for worry in worries:
        cause = worry.get("cause", "")
        if cause and cause not in knowledge.causes:
            raise ClewError(f"there is no cause {cause!r}{did_you_mean(cause, list(knowledge.causes)) or '.'}")
    if surprise != SURPRISES[0] and not worries:
        raise ClewError("then say what would have gone wrong: --worry CAUSE or --worry 'your words: the check'")
    if name:
        case = open_case(name)
    else:
        what = f"pre-flight of {os.path.basename(script)}" if script else "pre-flight"
        data = {"symptom": what, "domain": known_domain(domain), "setting": "routine"}
        if script:
            data |= {"script": script, "code": code_digest(script)}
        case = store.create(data)
    log.append(case.folder, "preflight", {"surprise": surprise, "worries": worries, "script": script})
    return store.load(case.folder)


# --- evidence maps


def evidence_check(path: str, sources: str = "") -> "Check":
    """Every quote of a map against its source; cited files are looked for beside the map unless told otherwise."""
    from clew.evidence import argdown, quotes

    return quotes.check(argdown.read(path), sources or os.path.dirname(os.path.abspath(path)))


def evidence_sound(found: "Check") -> bool:
    """Whether every quote stands word for word at the lines it cites."""
    return all(quote.verdict == "verbatim" for quote in found.quotes)


def evidence_map(path: str = "") -> "tuple[Document, Credences]":
    """A map with its credences; clew's own when none is named."""
    from clew.evidence import argdown
    from clew.evidence.credence import propagate
    from clew.knowledge.load import FOLDER

    document = argdown.read(path or os.path.join(FOLDER, "claims.argdown"))
    return document, propagate(document)


def evidence_seal(path: str, sources: str = "") -> tuple[str, int]:
    """The text of a map whose quotes are replaced by digests, and how many there were."""
    from clew.evidence import argdown, quotes

    folder = sources or os.path.dirname(os.path.abspath(path))
    document = argdown.read(path)
    count = len(quotes.check(document, folder).quotes)
    return argdown.write(quotes.seal(document, folder)), count
