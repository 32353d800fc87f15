"""Turns the knowledge files into typed values, and says exactly where they are wrong.

Only run when the files changed (see `base`): it checks every field, every probability and every reference between
entries, and reports all faults at once, each with file, entry and field.
"""

import os
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any

from clew.errors import ClewError, did_you_mean
from clew.evidence import argdown
from clew.evidence.credence import Node, propagate
from clew.evidence.model import Argument, Statement
from clew.knowledge import measured
from clew.knowledge.model import (
    AntiPattern,
    Cause,
    Claim,
    Decisive,
    Domain,
    Family,
    Habit,
    Knowledge,
    Lens,
    Outcome,
    Priors,
    Range,
    Reference,
    Row,
    Scale,
    Source,
    Symptom,
    Test,
    TriageStep,
    Variant,
)

BY = ("observe", "exam", "lint", "log", "sweep", "probe", "person")
ROLES = ("symptom", "check", "mechanism")
PEDIGREES = ("guessed", "measured", "published")
CHANNELS = (
    "loss curve",
    "loss level",
    "metric curve",
    "validation curve",
    "data sample",
    "data files",
    "labels",
    "split",
    "loss call",
    "outputs",
    "gradients",
    "activations",
    "weights",
    "updates",
    "events",
    "optimiser",
    "modes",
    "captured step",
    "source",
    "timing",
    "memory",
    "ranks",
    "runs",
    "episodes",
    "policy",
    "value function",
    "residuals",
    "loss surface",
    "reference",
)
TABLES = (
    "training curves",
    "data signals",
    "batch size",
    "rl health",
    "physics",
    "loss surface",
    "stuck metric",
    "sweep",
)
LEAST, MOST = 0.005, 0.995
RULES = ("settles", "leads", "follows", "refutes")


class Faults:
    """Collects what is wrong, so that an author sees all of it in one go."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, file: str, entry: str, field: str, what: str) -> None:
        self.found.append(f"{file}: {entry}: {field}: {what}")


class Entry:
    """One table of a TOML file, read field by field; what was not read in the end is a fault too."""

    def __init__(self, faults: Faults, file: str, name: str, table: object) -> None:
        self.faults, self.file, self.name = faults, file, name
        self.table: dict[str, Any] = table if isinstance(table, dict) else {}
        self.left = set(self.table)
        if not isinstance(table, dict):
            self.fault("(entry)", f"is {type(table).__name__}, should be a table")

    def fault(self, field: str, what: str) -> None:
        self.faults.add(self.file, self.name, field, what)

    def take(self, field: str, kind: type | tuple[type, ...], default: Any = None, *, needed: bool = True) -> Any:
        self.left.discard(field)
        if field not in self.table:
            if needed:
                self.fault(field, "is missing")
            return default
        value = self.table[field]
        wrong_bool = isinstance(value, bool) and kind is not bool
        if wrong_bool or not isinstance(value, kind):
            wanted = " or ".join(k.__name__ for k in kind) if isinstance(kind, tuple) else kind.__name__
            self.fault(field, f"is {type(value).__name__}, should be {wanted}")
            return default
        return value

    def text(self, field: str, *, needed: bool = True) -> str:
        value: str = self.take(field, str, "", needed=needed)
        if needed and field in self.table and not value.strip():
            self.fault(field, "is empty")
        return " ".join(value.split())

    def number(self, field: str, default: float, low: float, high: float, *, needed: bool = True) -> float:
        value = self.take(field, (int, float), default, needed=needed)
        if not low <= value <= high:
            self.fault(field, f"is {value}, should lie between {low:g} and {high:g}")
        return float(value)

    def flag(self, field: str) -> bool:
        value: bool = self.take(field, bool, False, needed=False)
        return value

    def word(self, field: str, allowed: tuple[str, ...], *, needed: bool = True) -> str:
        value = self.text(field, needed=needed)
        if value and value not in allowed:
            self.fault(field, f"{value!r} is not one of: {', '.join(allowed)}")
        return value

    def words(self, field: str, *, needed: bool = True, least: int = 0) -> tuple[str, ...]:
        value = self.take(field, list, [], needed=needed)
        if not all(isinstance(item, str) and item.strip() for item in value):
            self.fault(field, "should be a list of non-empty texts")
            return ()
        if needed and len(value) < least:
            self.fault(field, f"has {len(value)} items, should have at least {least}")
        return tuple(" ".join(item.split()) for item in value)

    def chances(self, field: str, outcomes: int) -> tuple[float, ...]:
        value = self.take(field, list, [])
        if not all(isinstance(item, int | float) and not isinstance(item, bool) for item in value):
            self.fault(field, "should be a list of numbers")
            return (1.0 / outcomes,) * outcomes if outcomes else ()
        if len(value) != outcomes:
            self.fault(field, f"has {len(value)} probabilities for {outcomes} outcomes")
            return (1.0 / outcomes,) * outcomes if outcomes else ()
        if any(not LEAST <= item <= MOST for item in value):
            self.fault(field, f"{value} has a probability outside {LEAST} to {MOST}: nothing is impossible or certain")
        if abs(sum(value) - 1.0) > 1e-6:
            self.fault(field, f"{value} sums to {sum(value):g}, should be 1")
        return tuple(float(item) for item in value)

    def tables(self, field: str) -> Iterator["Entry"]:
        for index, table in enumerate(self.take(field, list, [], needed=False)):
            yield Entry(self.faults, self.file, f"{self.name}.{field}[{index}]", table)

    def done(self) -> None:
        for field in sorted(self.left):
            self.fault(field, "is not a field of this kind of entry")


def read_toml(path: str, name: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise ClewError(f"{name} is not valid TOML: {error}.") from error
    except UnicodeDecodeError as error:
        raise ClewError(f"{name} is not UTF-8 text: byte {error.start} cannot be read.") from error
    except OSError as error:
        raise ClewError(f"{name} cannot be read: {error.strerror}.") from error


def compile_folder(folder: str, guessed: bool = False) -> Knowledge:
    """Read and check everything below `folder`; raise one ClewError that lists every fault. `guessed`: leave out what
    was measured, and give the expert's guesses alone."""
    faults = Faults()
    families, glosses = _vocabulary(faults, folder)
    claims = _claims(faults, folder)
    knowledge = Knowledge(
        families=families,
        causes={cause.id: cause for cause in _causes(faults, folder, glosses)},
        tests={test.id: test for test in _tests(faults, folder, glosses)},
        symptoms=_simple(faults, folder, "symptoms.toml", _symptom),
        triage=_simple(faults, folder, "triage.toml", _triage),
        lenses=_simple(faults, folder, "lenses.toml", _lens),
        habits=_simple(faults, folder, "habits.toml", _habit),
        antipatterns=_simple(faults, folder, "antipatterns.toml", _antipattern),
        ranges=_simple(faults, folder, "ranges.toml", _range),
        references=_simple(faults, folder, "references.toml", _reference),
        domains=_simple(faults, folder, "domains.toml", _domain),
        claims=claims,
        priors=_priors(faults, folder),
    )
    for gloss in glosses:
        if gloss not in knowledge.causes:
            faults.add(f"causes/{gloss.split('.')[0]}.toml", gloss, "(entry)", "is missing")
    knowledge = _expand_wildcards(knowledge)
    _check_references(faults, knowledge)
    counts = None if guessed else measured.read(faults, folder, knowledge)
    if faults.found:
        count = len(faults.found)
        raise ClewError(f"the knowledge base has {count} fault{'s' * (count > 1)}:\n  " + "\n  ".join(faults.found))
    return knowledge if counts is None else measured.applied(knowledge, counts)


def _entries(faults: Faults, folder: str, name: str) -> Iterator[Entry]:
    for key, table in read_toml(os.path.join(folder, name), name).items():
        yield Entry(faults, name, key, table)


def _files(folder: str, sub: str) -> list[str]:
    names = os.listdir(os.path.join(folder, sub))
    return sorted(f"{sub}/{name}" for name in names if name.endswith(".toml"))


def _vocabulary(faults: Faults, folder: str) -> tuple[dict[str, Family], dict[str, str]]:
    name = "vocabulary.toml"
    tables = read_toml(os.path.join(folder, name), name)
    families = {}
    for key, table in tables.get("family", {}).items():
        entry = Entry(faults, name, f"family.{key}", table)
        families[key] = Family(key, entry.number("prior", 0.0, 0.0, 1.0), entry.text("means"))
        entry.done()
    glosses = {}
    for key, gloss in tables.get("cause", {}).items():
        if not isinstance(gloss, str) or not gloss.strip():
            faults.add(name, key, "(entry)", "should be a text")
            continue
        if key.split(".")[0] not in families:
            faults.add(name, key, "(entry)", f"family {key.split('.')[0]!r} is not declared")
        glosses[key] = gloss
    return families, glosses


def _causes(faults: Faults, folder: str, glosses: dict[str, str]) -> Iterator[Cause]:
    for name in _files(folder, "causes"):
        for entry in _entries(faults, folder, name):
            if entry.name not in glosses:
                entry.fault("(entry)", f"is not in vocabulary.toml{did_you_mean(entry.name, list(glosses))}")
            yield Cause(
                id=entry.name,
                family=entry.name.split(".")[0],
                gloss=glosses.get(entry.name, ""),
                means=entry.text("means"),
                shows=entry.words("shows", least=1),
                refute=entry.text("refute"),
                refute_test=entry.text("refute_test"),
                not_first=entry.text("not_first"),
                mend=entry.text("mend"),
                claims=entry.words("claims", least=1),
                subtle=entry.flag("subtle"),
                domains=entry.words("domains", needed=False),
                weight=entry.number("weight", 1.0, 0.05, 20.0, needed=False),
                explains=entry.words("explains", needed=False),
                variants=tuple(_variants(entry)),
            )
            entry.done()


def _variants(entry: Entry) -> Iterator[Variant]:
    for item in entry.tables("variant"):
        yield Variant(
            seen=item.words("seen", least=1),
            words=item.words("words", needed=False),
            gloss=item.text("gloss", needed=False),
            mend=item.text("mend", needed=False),
            refute=item.text("refute"),
        )
        item.done()


def _tests(faults: Faults, folder: str, glosses: dict[str, str]) -> Iterator[Test]:
    for name in _files(folder, "tests"):
        for entry in _entries(faults, folder, name):
            for cause in entry.words("each", needed=False):
                table = {key: _filled(value, cause, glosses) for key, value in entry.table.items() if key != "each"}
                yield _test(Entry(faults, name, f"{entry.name}_{cause.replace('.', '_')}", table))
            if "each" not in entry.table:
                yield _test(entry)


def _filled(value: Any, cause: str, glosses: dict[str, str]) -> Any:
    """A field of a pattern, with the names of one cause in it."""
    if isinstance(value, str):
        return value.replace("{cause}", cause).replace("{gloss}", glosses.get(cause, cause))
    if isinstance(value, list):
        return [_filled(item, cause, glosses) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, cause, glosses) for key, item in value.items()}
    return value


def _test(entry: Entry) -> Test:
    outcomes = tuple(_outcomes(entry))
    names = tuple(outcome.name for outcome in outcomes)
    size = len(outcomes)
    test = Test(
        id=entry.name,
        asks=entry.text("asks"),
        how=entry.text("how"),
        by=entry.word("by", BY),
        reads=entry.word("reads", CHANNELS),
        role=entry.word("role", ROLES),
        seconds=entry.number("seconds", 1.0, 0.0, 1e6),
        person=entry.flag("person"),
        outcomes=outcomes,
        healthy=entry.chances("healthy", size),
        otherwise=entry.chances("otherwise", size),
        otherwise_why=entry.text("otherwise_why"),
        rows=tuple(_rows(entry, size)),
        cannot_tell=entry.text("cannot_tell"),
        claims=entry.words("claims", least=1),
        scale=_scale(entry, names),
        decisive=tuple(_decisive(entry, names)),
        domains=entry.words("domains", needed=False),
        version=int(entry.number("version", 1, 1, 1e6, needed=False)),
    )
    if not test.rows:
        entry.fault("likelihood", "is missing: a test must say something particular about at least one cause")
    entry.done()
    return test


def _outcomes(entry: Entry) -> Iterator[Outcome]:
    seen = set()
    for item in entry.take("outcomes", list, []):
        if not (isinstance(item, list) and len(item) == 3 and all(isinstance(part, str) for part in item)):
            entry.fault("outcomes", f"{item!r} should be [name, seen or absent, meaning]")
            continue
        name, kind, means = item
        if kind not in ("seen", "absent"):
            entry.fault("outcomes", f"{name}: kind {kind!r} should be 'seen' or 'absent'")
        if name in seen or name == "unclear":
            entry.fault("outcomes", f"{name!r} is taken")
        seen.add(name)
        yield Outcome(name, kind, " ".join(means.split()))
    if len(seen) < 2:
        entry.fault("outcomes", "has fewer than two outcomes: such a test can tell nothing apart")


def _rows(entry: Entry, size: int) -> Iterator[Row]:
    for row in entry.tables("likelihood"):
        yield Row(
            causes=row.words("causes", least=1),
            p=row.chances("p", size),
            why=row.text("why"),
            pedigree=row.word("pedigree", PEDIGREES, needed=False) or "guessed",
        )
        row.done()


def _scale(entry: Entry, names: tuple[str, ...]) -> Scale | None:
    table = entry.take("scale", dict, None, needed=False)
    if table is None:
        return None
    part = Entry(entry.faults, entry.file, f"{entry.name}.scale", table)
    steps = []
    for item in part.take("steps", list, []):
        if not (isinstance(item, list) and len(item) == 2 and isinstance(item[0], int | float)):
            part.fault("steps", f"{item!r} should be [limit, outcome]")
            continue
        steps.append((float(item[0]), str(item[1])))
    if [limit for limit, _ in steps] != sorted({limit for limit, _ in steps}):
        part.fault("steps", "limits should rise")
    scale = Scale(part.text("of"), part.text("unit"), tuple(steps), part.text("above"), part.text("nan", needed=False))
    for name in [*(outcome for _, outcome in steps), scale.above, *([scale.nan] if scale.nan else [])]:
        if name not in names:
            part.fault("steps", f"{name!r} is not an outcome of this test{did_you_mean(name, names)}")
    part.done()
    return scale


def _decisive(entry: Entry, names: tuple[str, ...]) -> Iterator[Decisive]:
    for item in entry.tables("decisive"):
        decisive = Decisive(
            item.text("outcome"),
            item.text("cause"),
            item.number("sure", 0.9, 0.5, 0.995),
            item.words("unless", needed=False),
            item.words("beside", needed=False),
        )
        if decisive.outcome not in names:
            item.fault("outcome", f"{decisive.outcome!r} is not an outcome of this test")
        item.done()
        yield decisive


def _simple(faults: Faults, folder: str, name: str, make: Any) -> dict[str, Any]:
    made = {}
    for entry in _entries(faults, folder, name):
        made[entry.name] = make(entry)
        entry.done()
    return made


def _symptom(entry: Entry) -> Symptom:
    return Symptom(
        entry.name,
        entry.word("table", TABLES),
        entry.text("sign"),
        entry.words("causes", least=1),
        entry.words("look"),
        entry.text("advice"),
        entry.words("claims", least=1),
    )


def _triage(entry: Entry) -> TriageStep:
    return TriageStep(
        entry.name,
        int(entry.number("order", 0, 1, 99)),
        entry.text("asks"),
        entry.text("yes"),
        entry.words("tests"),
        entry.words("causes"),
        entry.words("claims", least=1),
    )


def _lens(entry: Entry) -> Lens:
    return Lens(
        entry.name, entry.text("idea"), entry.words("do", least=1), entry.words("tests"), entry.words("claims", least=1)
    )


def _habit(entry: Entry) -> Habit:
    return Habit(
        entry.name,
        entry.text("habit"),
        entry.text("why"),
        entry.words("do", least=1),
        entry.words("claims", least=1),
    )


def _antipattern(entry: Entry) -> AntiPattern:
    return AntiPattern(
        entry.name,
        entry.text("temptation"),
        entry.text("why"),
        entry.text("instead"),
        entry.words("claims", least=1),
    )


def _range(entry: Entry) -> Range:
    low = entry.take("low", (int, float), None, needed=False)
    high = entry.take("high", (int, float), None, needed=False)
    return Range(
        entry.name,
        entry.text("quantity"),
        entry.text("value"),
        entry.text("unit"),
        entry.text("scope"),
        entry.text("outside"),
        entry.words("claims", least=1),
        None if low is None else float(low),
        None if high is None else float(high),
    )


def _reference(entry: Entry) -> Reference:
    return Reference(
        entry.name,
        entry.text("name"),
        entry.words("domains", least=1),
        entry.text("url"),
        entry.text("why"),
        entry.text("read_for"),
        entry.words("claims", least=1),
    )


def _domain(entry: Entry) -> Domain:
    shares = entry.take("shares", dict, {}, needed=False)
    return Domain(
        entry.name,
        entry.text("means"),
        tuple((key, float(value)) for key, value in shares.items()),
        entry.words("typical", least=3),
        entry.text("why"),
    )


def _priors(faults: Faults, folder: str) -> Priors:
    name = "priors.toml"
    entry = Entry(faults, name, "priors", read_toml(os.path.join(folder, name), name))
    none = entry.take("none", dict, {})
    settles, leads, follows, refutes = (
        tuple(
            (item.words("given", least=1), item.words("then", least=1))
            for item in (Entry(faults, name, table, row) for row in entry.take(table, list, [], needed=False))
        )
        for table in RULES
    )
    hand = Entry(faults, name, "by_hand", entry.take("by_hand", dict, {}))
    priors = Priors(
        entry.number("unknown", 0.05, 0.01, 0.5),
        entry.number("unknown_floor", 0.02, 0.001, 0.2),
        entry.number("overlap", 0.8, 0.0, 1.0),
        tuple((setting, tuple(shares.items())) for setting, shares in none.items()),
        tuple((by, hand.number(by, 60.0, 0.0, 1e6)) for by in BY),
        entry.text("why"),
        settles,
        leads,
        follows,
        refutes,
    )
    entry.done()
    hand.done()
    return priors


def _claims(faults: Faults, folder: str) -> dict[str, Claim]:
    name = "claims.argdown"
    document = argdown.read(os.path.join(folder, name))
    beliefs = propagate(document)

    def held(title: str) -> float | None:
        return beliefs.of(Node("statement", title)).credence

    premises: dict[str, list[Statement]] = {}
    conclusions: dict[str, Statement] = {}
    against: dict[str, list[Statement]] = {}
    for block in document.blocks:
        if isinstance(block, Argument):
            above: list[Statement] = []
            for step in block.steps:
                if not step.conclusion:
                    above.append(step.statement)
                elif _attacked(step.statement):
                    for target in _attacked(step.statement):
                        against.setdefault(target, []).append(step.statement)
                else:
                    conclusions[step.statement.title] = step.statement
                    premises.setdefault(step.statement.title, []).extend(above)
        elif isinstance(block, Statement):
            for target in _attacked(block):
                against.setdefault(target, []).append(block)
    claims = {}
    for title, statement in conclusions.items():
        claims[title] = Claim(
            title,
            statement.text,
            held(title),
            tuple(_source(premise) for premise in premises[title]),
            tuple((attack.text, held(attack.title)) for attack in against.get(title, [])),
            str(statement.data.get("reason", "")),
        )
        if claims[title].credence is None:
            faults.add(name, title, "credence", "cannot be worked out: a premise states none")
    return claims


def _attacked(statement: Statement) -> list[str]:
    """What a statement speaks against: such a statement is a limit on other claims, and no claim of its own."""
    return [held.target for held in statement.relations if held.kind == "attack" and held.direction == "out"]


def _source(premise: Statement) -> Source:
    label = url = file = ""
    lines = None
    for link in premise.links:
        if link.target.startswith(("http://", "https://")):
            label, url = link.label, link.target
        else:
            file, lines = link.target, link.lines
    stated = premise.data.get("credence")
    seals = premise.data.get("seals", ())
    return Source(
        premise.text,
        label or premise.title,
        url,
        str(premise.data.get("lineage", "")),
        float(stated) if isinstance(stated, int | float) else None,
        file,
        lines,
        len(seals) if isinstance(seals, tuple) else 0,
    )


def _expand_wildcards(knowledge: Knowledge) -> Knowledge:
    """`data.*` in a likelihood row stands for every cause of the family that no other row of the test names."""
    tests = {}
    for key, test in knowledge.tests.items():
        named = {cause for row in test.rows for cause in row.causes if not cause.endswith(".*")}
        rows = []
        for row in test.rows:
            causes: list[str] = []
            for cause in row.causes:
                if cause.endswith(".*"):
                    family = cause[:-2]
                    causes += [c.id for c in knowledge.causes.values() if c.family == family and c.id not in named]
                else:
                    causes.append(cause)
            rows.append(row._replace(causes=tuple(causes)))
        tests[key] = test._replace(rows=tuple(rows))
    return knowledge._replace(tests=tests)


def _check_references(faults: Faults, knowledge: Knowledge) -> None:
    def check(file: str, entry: str, field: str, ids: tuple[str, ...], known: dict[str, Any], noun: str) -> None:
        for key in ids:
            if key not in known:
                faults.add(file, entry, field, f"{key!r} is not a known {noun}{did_you_mean(key, list(known))}")

    def outcome(file: str, entry: str, field: str, pairs: Iterable[str]) -> None:
        for pair in pairs:
            name, _, wanted = pair.partition("=")
            check(file, entry, field, (name,), tests, "test")
            if name in tests and tests[name].outcome(wanted) is None:
                faults.add(file, entry, field, f"{name} has no outcome {wanted!r}")

    causes, tests, claims, domains = knowledge.causes, knowledge.tests, knowledge.claims, knowledge.domains
    for cause in causes.values():
        file = f"causes/{cause.family}.toml"
        check(file, cause.id, "refute_test", (cause.refute_test,), tests, "test")
        check(file, cause.id, "domains", cause.domains, domains, "domain")
        check(file, cause.id, "claims", cause.claims, claims, "claim")
        check(file, cause.id, "explains", cause.explains, causes, "cause")
        outcome(file, cause.id, "variant.seen", (text for one in cause.variants for text in one.seen))
    for test in tests.values():
        check("tests/", test.id, "claims", test.claims, claims, "claim")
        check("tests/", test.id, "domains", test.domains, domains, "domain")
        check("tests/", test.id, "decisive", tuple(item.cause for item in test.decisive), causes, "cause")
        pairs = [("unless", text) for item in test.decisive for text in item.unless]
        pairs += [("beside", text) for item in test.decisive for text in item.beside]
        for field, pair in pairs:
            outcome("tests/", test.id, f"decisive.{field}", (pair,))
        named = [cause for row in test.rows for cause in row.causes]
        check("tests/", test.id, "likelihood", tuple(named), causes, "cause")
        for twice in sorted({cause for cause in named if named.count(cause) > 1}):
            faults.add("tests/", test.id, "likelihood", f"{twice} is in two rows")
    tabled: tuple[tuple[str, dict[str, Any]], ...] = (
        ("symptoms.toml", knowledge.symptoms),
        ("triage.toml", knowledge.triage),
        ("lenses.toml", knowledge.lenses),
        ("habits.toml", knowledge.habits),
        ("antipatterns.toml", knowledge.antipatterns),
        ("ranges.toml", knowledge.ranges),
        ("references.toml", knowledge.references),
        ("domains.toml", knowledge.domains),
    )
    for file, entries in tabled:
        for entry in entries.values():
            check(file, entry.id, "claims", getattr(entry, "claims", ()), claims, "claim")
            check(file, entry.id, "causes", getattr(entry, "causes", ()), causes, "cause")
            check(file, entry.id, "typical", getattr(entry, "typical", ()), causes, "cause")
            check(file, entry.id, "domains", getattr(entry, "domains", ()), domains, "domain")
            for field in ("tests", "look"):
                check(file, entry.id, field, getattr(entry, field, ()), tests, "test")
    for table in RULES:
        for given, then in getattr(knowledge.priors, table):
            known, kind = (causes, "cause") if table == "refutes" else (tests, "test")
            check("priors.toml", "priors", table, then, known, kind)
            for text in given:
                test_id, _, showed = text.partition("=")
                if test_id not in tests or tests[test_id].outcome(showed) is None:
                    faults.add("priors.toml", "priors", table, f"{test_id} has no outcome {showed!r}")
    for setting, shares in knowledge.priors.none:
        check("priors.toml", "priors", f"none.{setting}", tuple(key for key, _ in shares), causes, "cause")
    for domain in domains.values():
        check("domains.toml", domain.id, "shares", tuple(key for key, _ in domain.shares), knowledge.families, "family")
