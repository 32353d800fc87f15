"""The case: opening it, adding to it, weighing it, closing it."""

import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from clew.app.known import known_domain, known_test
from clew.case import log, store
from clew.case.choose import AtHand
from clew.case.weigh import UNKNOWN, on_scale
from clew.errors import ClewError, did_you_mean
from clew.knowledge.base import load
from clew.knowledge.model import Knowledge, Test
from clew.reading import whole
from clew.records.case import PARTS, Case
from clew.records.clue import UNCLEAR, Clue, Value
from clew.records.place import Place
from clew.report.view import CaseView, view
from clew.symptoms.complaint import fits, needless, observations


class Options(NamedTuple):
    """What a person can say along with an observation."""

    measured: tuple[tuple[str, Value], ...] = ()
    where: tuple[Place, ...] = ()
    says: str = ""
    reproduce: str = ""
    why: str = ""


class RunLine(NamedTuple):
    """A run of the archive as a line of the work log."""

    id: str
    at: str
    command: str
    running: bool
    told: str


NOTHING = Options()
FITTED = ("training_fit", "near_zero")
LESS = 0.5
"""A cause that has lost this much of its prior is one that the clues speak against."""


def new(symptom: str, domain: str = "general", script: str = "") -> Case:
    """Open a case for a complaint."""
    symptom = " ".join(symptom.split())
    if not symptom:
        raise ClewError('say what you see, for instance: clew case new "validation accuracy stays at 10 %"')
    domain = known_domain(domain)
    data = {"symptom": symptom, "domain": domain, "setting": "complaint"}
    if script:
        data |= {"script": script, "code": code_digest(script)}
    case = store.create(data)
    if fits(symptom):
        says = f"in the words of the complaint: {symptom}"
        log.append(case.folder, "clue", {"clue": make_clue(load(), *FITTED, Options(says=says)).to_json()})
        case = store.load(case.folder)
    return case


def add_clue(name: str, test: str, outcome: str = "", options: Options = NOTHING) -> tuple[int, Case]:
    """Record one observation by a person."""
    case = open_case(name)
    clue = make_clue(load(), test, outcome, options)
    data: dict[str, Any] = {"clue": clue.to_json()}
    if case.script and os.path.exists(case.script):
        data["code"] = code_digest(case.script)
    number = log.append(case.folder, "clue", data)
    return number, store.load(case.folder)


def add_clues(name: str, clues: Iterable[Clue], run: str = "") -> tuple[int, Case]:
    """Record what instruments showed, each observation once, with the code that it was seen on: that of the run, or
    the script as it is now. What they could not tell is left out."""
    case = open_case(name)
    code = ""
    if case.script and run:
        code = _code_of(run, case)
    elif case.script and os.path.exists(case.script):
        code = code_digest(case.script)
    known = {(held.clue.test, held.clue.outcome, held.code) for held in case.clues if not held.retracted}
    tests = load().tests
    entries: list[tuple[str, dict[str, Any]]] = [
        ("clue", {"clue": clue.to_json(), "run": run, **({"code": code} if code else {})})
        for clue in clues
        if clue.test in tests and clue.outcome != UNCLEAR and (clue.test, clue.outcome, code) not in known
    ]
    if entries:
        log.append_all(case.folder, entries)
    return len(entries), store.load(case.folder)


def add_run(name: str, run: str) -> tuple[int, Case]:
    """Record what a run of the archive showed, on the code that it ran."""
    from clew.app import runs

    case = open_case(name)
    inside = runs.look(run)
    clues, _ = runs.checked(inside)
    return add_clues(case.folder, clues, inside.record.run.id)


def _code_of(name: str, case: Case) -> str:
    """The digest of a case's script as a run had it; "" where the run did not keep it."""
    from clew.archive import code, runs

    run = runs.find(name)
    for item in code.read(run):
        if os.path.realpath(item.path) == os.path.realpath(case.script):
            return digest_of(code.fetch(run, item), case.script)
    return ""


def runs_of(case: Case) -> list[RunLine]:
    """The runs of the archive that belong to a case: those that gave it clues, and those of its script since it was
    opened."""
    from clew.archive import runs
    from clew.archive.files import read_table
    from clew.archive.model import REPORT

    linked = {str(entry.data.get("run", "")) for entry in case.entries if entry.kind == "clue"}
    own = os.path.realpath(case.script) if case.script else None
    found = []
    for record in runs.all_runs().records:
        since = record.started >= case.opened_at.rstrip("Z")
        of_script = own == os.path.realpath(os.path.join(record.cwd, record.script)) if own and record.script else False
        if record.run.id not in linked and not (of_script and since):
            continue
        words = record.command[record.command.index(record.script) :] if record.script in record.command else ()
        lead = ""
        try:
            causes = read_table(record.run.path(REPORT))["causes"] if record.end else []
            lead = next((row["id"] for row in causes if row["kind"] == "finding"), "")
        except (ClewError, KeyError, TypeError):
            lead = ""  # a run that was killed has no report
        end = record.end
        told = f"{record.verdict or 'no verdict'}{f', {lead}' if lead else ''}, {end.steps} steps" if end else ""
        at = record.started[5:16].replace("T", " ")
        command = " ".join(words or record.command)
        found.append(RunLine(record.run.id, at, command, record.state == "running", told or record.state))
    return found


def at_hand(case: Case) -> AtHand | None:
    """The latest run of a case's script, or, where it names none, the latest run there is."""
    from clew.archive import runs
    from clew.archive.files import read_table
    from clew.archive.model import REPORT

    try:
        record = runs.load(runs.find(case.script or "last"))
    except ClewError:
        return None
    if record.end is None:
        return None
    held = os.listdir(record.run.folder)
    try:
        rows = read_table(record.run.path(REPORT))["clues"]
        answers = frozenset(row["test"] for row in rows if row["outcome"] != UNCLEAR)
    except (ClewError, KeyError, TypeError):
        answers = frozenset()
    captured = any(entry.startswith("capture-") for entry in held)
    return AtHand(record.run.id, record.end.seconds, captured, answers)


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
    value = measured.get(test.scale.of) if test.scale is not None else None
    read = on_scale(test.scale, value) if test.scale is not None and isinstance(value, int | float) else outcome
    if outcome not in (UNCLEAR, read):
        raise ClewError(f"the number given for {test.id} means {read}, not {outcome}; give one of the two.")
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


def add_note(name: str, part: str, text: str, about: str = "") -> int:
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


def add_hypothesis(name: str, says: str, prior: float, expects: dict[str, str], check: str) -> tuple[int, Case]:
    """Put a person's own explanation on the table."""
    knowledge = load()
    case = open_case(name)
    if not 0.0 < prior < 1.0:
        raise ClewError(f"a prior is between 0 and 1, not {prior:g}.")
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


def retract(name: str, number: int, reason: str) -> Case:
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


def close(
    name: str,
    cause: str,
    evidence: str = "",
    clue: int | None = None,
    unverified: str = "",
    run: str = "",
    sure: Callable[[str], bool] = lambda _: False,
) -> Case:
    """Close a case. It asks for the observation that no longer reproduces, for a run in which it does not, or for why
    there is none. A cause that the case's own clues speak against needs somebody who is `sure`."""
    knowledge = load()
    case = open_case(name)
    own = {item.id for item in case.own}
    if cause not in knowledge.causes and cause not in own and cause != UNKNOWN:
        raise ClewError(f"there is no cause {cause!r}{did_you_mean(cause, list(knowledge.causes)) or '.'}")
    if not (evidence.strip() or unverified.strip() or run):
        raise ClewError(
            "closing needs a run in which it no longer shows: --run NEW; or the observation that no longer "
            "reproduces: --evidence '…'; if there is none, say why: --unverified '…'"
        )
    if clue is not None and clue not in {held.number for held in case.clues}:
        raise ClewError(f"entry {clue} is not a clue of this case.")
    seen = weighed(case.folder, all_code=True)
    if run:
        clue, measured = _measured_again(seen, cause, clue, run)
        evidence = "; ".join(part for part in (evidence.strip(), measured) if part)
    if (doubt := _against(seen, cause)) and not sure(doubt):
        raise ClewError(f"{doubt}; --yes closes it all the same.")
    data: dict[str, Any] = {"cause": cause, "evidence": evidence.strip(), "unverified": unverified.strip()}
    if clue is not None:
        data["clue"] = clue
    log.append(case.folder, "closed", data)
    return store.load(case.folder)


def _against(seen: CaseView, cause: str) -> str:
    """Why a case's own clues do not fit a cause; nothing where they do, or say nothing about it."""
    found = {finding.cause: finding.credence for finding in seen.weighing.findings}
    if cause == UNKNOWN or cause in found:
        return ""
    credence, prior = seen.weighing.credence(cause), next(s.prior for s in seen.weighing.shares if s.cause == cause)
    if found:
        lead = max(found, key=lambda name: found[name])
        return f"the clues of this case show {lead} ({found[lead]:.0%}), not {cause} ({credence:.1%})"
    if credence < LESS * prior:
        return f"the clues of this case speak against {cause}: {prior:.1%} before them, {credence:.1%} now"
    return ""


def _measured_again(seen: CaseView, cause: str, number: int | None, run: str) -> tuple[int, str]:
    """The decisive clue, and what its test shows in a new run. It has to be gone there."""
    if number is None:
        shown = [index for item in seen.weighing.findings if item.cause == cause for index in item.clues]
        pulls = seen.weighing.pulls(cause) if cause != UNKNOWN else ()
        spoke = [pull.clue for pull in pulls if pull.bits > 0 and seen.weighing.clues[pull.clue].kind == "seen"]
        if not (shown or spoke):
            raise ClewError(f"no clue of this case speaks for {cause}; name the one to measure again: --clue NUMBER")
        number = seen.counted[(shown or spoke)[0]].number
    before = next(held.clue for held in seen.case.clues if held.number == number)
    now, run = _in_run(before, run)
    outcome = seen.knowledge.tests[before.test].outcome(now.outcome) if now else None
    if now is None or outcome is None:
        why = f": {now.why}" if now is not None and now.why else ""
        raise ClewError(
            f"the run {run} does not say what {before.test} shows{why}; "
            "look yourself and say what you saw: --evidence '…'"
        )
    if outcome.name == before.outcome or outcome.kind == "seen":
        raise ClewError(f"it still reproduces: {before.test} is {outcome.name} in {run} (clue #{number}).")
    return number, f"{before.test}: {before.outcome} → {outcome.name} in run {run}"


def _in_run(before: Clue, name: str) -> tuple[Clue | None, str]:
    """What a run's report says to a test, or, where the run kept its step, what the exam of that name shows; and the
    run's id."""
    from clew.app import runs

    inside = runs.look(name)
    clues, _ = runs.checked(inside)
    found = next((clue for clue in clues if clue.test == before.test and clue.outcome != UNCLEAR), None)
    if found is not None or not any(name.startswith("capture-") for name in os.listdir(inside.record.run.folder)):
        return found, inside.record.run.id
    from clew.app import exam
    from clew.exams.exam import all_exams

    if before.test not in all_exams():
        return None, inside.record.run.id
    request = exam.Request(only=(before.test,))
    done = exam.make(exam.open_target(inside.record.run.id), request)
    return next((clue for clue in done.examined.clues if clue.test == before.test), None), inside.record.run.id


def reopen(name: str, reason: str) -> Case:
    case = store.load(name)
    if case.closing is None:
        raise ClewError(f"the case {case.id} is open.")
    if not reason.strip():
        raise ClewError("say why: --reason '…'")
    log.append(case.folder, "reopened", {"reason": reason.strip()})
    return store.load(case.folder)


def weighed(name: str, all_code: bool = False, most: int = 5) -> CaseView:
    """The case as it stands, weighed anew."""
    knowledge = load()
    case = store.load(name)
    if case.domain not in knowledge.domains:
        raise ClewError(f"the case {case.id} is of a domain {case.domain!r} that this clew does not know.")
    code = code_digest(case.script) if case.script and os.path.exists(case.script) else ""
    words, tests = case.symptom, knowledge.tests
    heard = [Clue(test, outcome, reads=(tests[test].reads,)) for test, outcome in observations(words)]
    return view(knowledge, case, code, all_code, most, at_hand=at_hand(case), heard=heard, needless=needless(words))


def read(name: str) -> Case:
    """A case as its log has it, not weighed."""
    return store.load(name)


def use(name: str) -> str:
    """Make a case the current one; returns its id."""
    case = store.load(name)
    store.make_current(case.id)
    return case.id


def names() -> tuple[list[str], str]:
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
    try:
        content = whole(path)
    except OSError as error:
        raise ClewError(f"cannot read {path}: {error.strerror}.") from error
    return digest_of(content, path)


def digest_of(content: bytes, path: str) -> str:
    import hashlib

    if path.endswith(".py"):
        import ast

        try:
            content = ast.dump(ast.parse(content)).encode()
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return hashlib.sha256(content).hexdigest()[:16]
    return hashlib.sha256(content).hexdigest()[:16]
