"""From clues to credences.

Priors come from the families, spread over the causes that can apply to the subject, with a share for `unknown` and for
"no fault". Each clue multiplies in how likely its outcome is under each cause. Three things keep that honest:

- clues of one kind that read the same channel are not independent witnesses: n of them count as
  n / (1 + (n - 1) * overlap), so that five views of one loss curve weigh about as much as one (a direct look at one
  mechanism stands by itself);
- an outcome in which the mechanism itself was seen makes a finding, whatever the priors said; the finding and the
  clues that show it leave the contest, and the shares say what the rest of the evidence makes likely if that is not it;
- `unknown` predicts what the causes predict on average, and never falls below its floor.

Credences that are multiplied together so are still too sure of themselves. In the end they are raised to one power that
was measured (`temper`), which does not change their order. The report and the verdict go by the result.

The result depends on which clues there are and on nothing else: not on their order, not on what was retracted.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from clew.knowledge.model import Knowledge, Rules, Scale, Test
from clew.records.case import Own
from clew.records.clue import UNCLEAR, Clue
from clew.records.place import Place

UNKNOWN = "unknown"
LIKELY = "likely"
MOST_FINDINGS = 3
EXPECTED = 0.8
"""How firmly a person's own hypothesis is taken to predict the outcome that they said it predicts."""


class Subject(NamedTuple):
    """What is being weighed: the kind of subject, and whether somebody complained or the run is a routine one."""

    domain: str = "general"
    setting: str = "complaint"
    own: tuple[Own, ...] = ()


ORDINARY = Subject()


class Pull(NamedTuple):
    """What one clue did to one explanation: bits for it (positive) or against it (negative)."""

    clue: int
    bits: float


class Finding(NamedTuple):
    """A cause whose mechanism was seen. `credence` is how sure it is that the mechanism is there."""

    cause: str
    credence: float
    clues: tuple[int, ...]
    where: tuple[Place, ...]


class Share(NamedTuple):
    """An explanation supported by symptoms only, and its part of the whole."""

    cause: str
    credence: float
    prior: float


class Weighed(NamedTuple):
    """A clue as it entered: its outcome under today's scale, its weight, and the kind of that outcome."""

    test: str
    outcome: str
    kind: str
    weight: float


class Weighing(NamedTuple):
    """Shares and `unknown` sum to 1. Clue numbers are positions in the clues given. `sound` is what the explanations
    that are no fault hold together, before credences are tempered."""

    findings: tuple[Finding, ...]
    shares: tuple[Share, ...]
    unknown: float
    clues: tuple[Weighed, ...]
    bits: dict[tuple[str, str], dict[str, float]]
    sound: float

    def pulls(self, cause: str) -> tuple[Pull, ...]:
        """What each clue did to an explanation, against what all of them together expected; strongest first."""
        spent = {index for finding in self.findings for index in finding.clues}
        found = [
            Pull(index, held.weight * self.bits[held.test, held.outcome][cause])
            for index, held in enumerate(self.clues)
            if held.weight > 0.0 and index not in spent
        ]
        return tuple(sorted(found, key=lambda pull: (-abs(pull.bits), pull.clue)))

    def credence(self, cause: str) -> float:
        if cause == UNKNOWN:
            return self.unknown
        held: dict[str, float] = {share.cause: share.credence for share in self.shares}
        held.update({finding.cause: finding.credence for finding in self.findings})
        return held.get(cause, 0.0)


def priors(knowledge: Knowledge, subject: Subject) -> dict[str, float]:
    """The share of each explanation before anything was seen; sums to 1 with `unknown`."""
    table = knowledge.priors
    domain = knowledge.domains[subject.domain]
    shares = dict(domain.shares)
    none = dict(dict(table.none)[subject.setting])
    left = 1.0 - table.unknown - sum(none.values())
    ordinary = {key: family.prior for key, family in knowledge.families.items() if key not in shares and family.prior}
    special = sum(shares.values())
    whole = sum(ordinary.values())
    masses = {key: left * share for key, share in shares.items()}
    masses.update({key: left * (1.0 - special) * prior / whole for key, prior in ordinary.items()})
    found: dict[str, float] = {}
    for key, mass in masses.items():
        able = [c for c in knowledge.causes.values() if c.family == key and _applies(c.domains, subject.domain)]
        total = sum(cause.weight for cause in able)
        found.update({cause.id: mass * cause.weight / total for cause in able})
    found.update(none)
    found[UNKNOWN] = table.unknown
    whole = math.fsum(found.values())
    found = {key: share / whole for key, share in found.items()}
    for own in subject.own:
        found = {key: share * (1.0 - own.prior) for key, share in found.items()}
        found[own.id] = own.prior
    return found


def _applies(domains: tuple[str, ...], domain: str) -> bool:
    return not domains or domain == "general" or domain in domains


def applies(knowledge: Knowledge, test: Test, domain: str) -> bool:
    """Whether a test makes sense for a subject. A subject of no particular kind gets all but the tests of kinds that
    have a family of causes to themselves, such as reinforcement learning."""
    if not test.domains or domain in test.domains:
        return True
    ordinary = {key for key, _ in knowledge.domains["general"].shares}
    kinds = [knowledge.domains[name] for name in test.domains]
    return domain == "general" and any({key for key, _ in kind.shares} <= ordinary for kind in kinds)


def weigh(knowledge: Knowledge, clues: Iterable[Clue], subject: Subject = ORDINARY) -> Weighing:
    """Credences from clues. Clues of unknown tests or outcomes carry no weight, and neither do unclear ones."""
    given = tuple(clues)
    digests = [clue.digest for clue in given]
    prior = priors(knowledge, subject)
    held = sides(knowledge, prior)
    read = [read_outcome(knowledge, clue) for clue in given]
    weights = effective_weights(knowledge, given, digests, [kind for _, kind in read])
    tables = {
        name: Likelihoods(knowledge.tests[name], held, subject.own)
        for name in dict.fromkeys(clue.test for clue in given)
        if name in knowledge.tests
    }
    weighed = tuple(
        Weighed(clue.test, outcome, kind, weight)
        for clue, (outcome, kind), weight in zip(given, read, weights, strict=True)
    )
    findings = _findings(knowledge, given, weighed, prior)
    spent = {index for finding in findings for index in finding.clues}
    logs = {name: math.log(share) for name, share in prior.items()}
    bits = {}
    for key, weight in _total_weights([clue for index, clue in enumerate(weighed) if index not in spent]).items():
        column = tables[key[0]].of(key[1])
        average = math.log2(math.fsum(prior[name] * chance for name, chance in column.items()))
        bits[key] = {name: math.log2(chance) - average for name, chance in column.items()}
        for name, chance in column.items():
            logs[name] += weight * math.log(chance)

    out = {finding.cause for finding in findings}
    refuted = ruled(knowledge.priors.refutes, weighed)
    posterior = _normalise({name: value for name, value in logs.items() if name not in out})
    posterior = {name: 0.0 if name in refuted else share for name, share in posterior.items()}
    sound = math.fsum(share for name, share in posterior.items() if held.of[name] == NONE)
    posterior = _tempered(posterior, knowledge.priors.temper, {own.id for own in subject.own})
    posterior = _keep_floor(posterior, knowledge.priors.unknown_floor)
    shares = [Share(name, credence, prior[name]) for name, credence in posterior.items() if name != UNKNOWN]
    shares.sort(key=lambda share: (-share.credence, share.cause))
    return Weighing(findings, tuple(shares), posterior[UNKNOWN], weighed, bits, sound)


def _total_weights(weighed: list[Weighed]) -> dict[tuple[str, str], float]:
    """Clues that say the same only differ in weight. Sorted, and summed exactly, so that their order cannot matter."""
    held: dict[tuple[str, str], list[float]] = {}
    for clue in weighed:
        if clue.weight > 0.0:
            held.setdefault((clue.test, clue.outcome), []).append(clue.weight)
    return {key: math.fsum(held[key]) for key in sorted(held)}


def read_outcome(knowledge: Knowledge, clue: Clue) -> tuple[str, str]:
    """The outcome under today's scale and its kind: "seen", "absent" or "unclear"."""
    test = knowledge.tests.get(clue.test)
    if test is None or clue.outcome == UNCLEAR:
        return UNCLEAR, UNCLEAR
    name = clue.outcome
    measured = dict(clue.measured)
    if test.scale is not None and isinstance(measured.get(test.scale.of), int | float):
        name = on_scale(test.scale, float(measured[test.scale.of] or 0.0))
    outcome = test.outcome(name)
    return (outcome.name, outcome.kind) if outcome else (UNCLEAR, UNCLEAR)


def on_scale(scale: Scale, value: float) -> str:
    if math.isnan(value):
        return scale.nan or UNCLEAR
    for limit, outcome in scale.steps:
        if value < limit:
            return outcome
    return scale.above


def direct(knowledge: Knowledge, clue: Clue) -> bool:
    """Whether a clue looked at one mechanism itself: such looks are witnesses of their own whatever else was read."""
    return clue.test in knowledge.tests and knowledge.tests[clue.test].role == "mechanism"


def crowds(knowledge: Knowledge, clues: Iterable[tuple[Clue, str]]) -> dict[tuple[str, str], int]:
    """How many clues of one kind read each channel, not counting direct looks.

    Seen and absent are counted apart: nine ordinary features of a loss curve say about one thing together, and the
    tenth, an odd one, says another.
    """
    counts: dict[tuple[str, str], int] = {}
    for clue, kind in clues:
        if not direct(knowledge, clue):
            for channel in clue.reads:
                counts[channel, kind] = counts.get((channel, kind), 0) + 1
    return counts


def effective_weights(
    knowledge: Knowledge, clues: tuple[Clue, ...], digests: list[str], kinds: list[str]
) -> list[float]:
    """How much each clue counts. The same observation entered twice counts once, an unclear one not at all."""
    firsts: set[str] = set()
    counted = []
    for digest, kind in zip(digests, kinds, strict=True):
        counted.append(kind != UNCLEAR and digest not in firsts)
        if counted[-1]:
            firsts.add(digest)
    counts = crowds(knowledge, ((clue, kind) for clue, kind, new in zip(clues, kinds, counted, strict=True) if new))
    weights = []
    for clue, kind, new in zip(clues, kinds, counted, strict=True):
        most = max((counts.get((channel, kind), 1) for channel in clue.reads), default=1)
        most = 1 if direct(knowledge, clue) else most
        weights.append(1.0 / (1.0 + (most - 1) * knowledge.priors.overlap) if new else 0.0)
    return weights


NONE, FAULT, SILENT = range(3)
"""The sides an explanation can be on when a test does not name it: it predicts what a healthy run would show, what any
other fault would show, or, for lack of a better guess, the average of both."""


class Sides(NamedTuple):
    """The explanations in a weighing, sorted once by their side; `whole` is what the priors of a side sum to."""

    prior: dict[str, float]
    of: dict[str, int]
    whole: tuple[float, ...]

    def wholes(self, shares: dict[str, float]) -> tuple[float, ...]:
        totals = [0.0, 0.0, 0.0]
        for name, share in shares.items():
            totals[self.of[name]] += share
        return tuple(totals)


def sides(knowledge: Knowledge, prior: dict[str, float]) -> Sides:
    of: dict[str, int] = {}
    for name in prior:
        cause = knowledge.causes.get(name)
        of[name] = SILENT if cause is None else NONE if cause.family == "none" else FAULT
    held = Sides(prior, of, ())
    return held._replace(whole=held.wholes(prior))


class Likelihoods:
    """P(outcome | explanation) for one test, by groups of explanations that predict the same.

    A test names a handful of causes and all others go by their side: what a side is left with is worked out by taking
    the named ones away, which matters when every test of the knowledge base is asked about.
    """

    def __init__(self, test: Test, held: Sides, own: tuple[Own, ...] = ()) -> None:
        self.outcomes = [outcome.name for outcome in test.outcomes]
        self._held = held
        self._named = [(row.p, [name for name in row.causes if name in held.prior]) for row in test.rows]
        for hypothesis in own:
            expected = dict(hypothesis.expects).get(test.id)
            if expected in self.outcomes and hypothesis.id in held.prior:
                self._named.append((self._expecting(expected), [hypothesis.id]))
        self._sides = [test.healthy, test.otherwise]
        masses = self.masses(held.prior, held.whole)
        mass = sum([part for _, part in masses])
        average = [sum([part * row[index] for row, part in masses]) / mass for index in range(len(self.outcomes))]
        self._sides.append(tuple(average))

    def _expecting(self, outcome: str) -> tuple[float, ...]:
        rest = (1.0 - EXPECTED) / (len(self.outcomes) - 1)
        return tuple(EXPECTED if name == outcome else rest for name in self.outcomes)

    def of(self, outcome: str) -> dict[str, float]:
        """How likely one outcome is under each explanation."""
        index = self.outcomes.index(outcome)
        column = {name: self._sides[side][index] for name, side in self._held.of.items()}
        for row, names in self._named:
            for name in names:
                column[name] = row[index]
        return column

    def row(self, name: str) -> tuple[float, ...]:
        return next((row for row, names in self._named if name in names), self._sides[self._held.of[name]])

    def masses(self, shares: dict[str, float], whole: tuple[float, ...]) -> list[tuple[tuple[float, ...], float]]:
        """Each prediction with the share of those who make it; `whole` is what the shares of each side sum to."""
        left = list(whole)
        found = []
        for row, names in self._named:
            mass = 0.0
            for name in names:
                share = shares.get(name, 0.0)
                mass += share
                left[self._held.of[name]] -= share
            found.append((row, mass))
        # Taking away what was added up can leave a rest of the last digit, on either side of nothing.
        found += [(row, rest) for row, rest in zip(self._sides, left, strict=False) if rest > 1e-15]
        return found


def _normalise(logs: dict[str, float]) -> dict[str, float]:
    highest = max(logs.values())
    parts = {name: math.exp(value - highest) for name, value in logs.items()}
    whole = math.fsum(parts.values())
    return {name: part / whole for name, part in parts.items()}


def _tempered(posterior: dict[str, float], power: float, own: set[str]) -> dict[str, float]:
    """Raise shares to a power. A person's own hypothesis keeps its share: the power was measured on the others."""
    raised = {name: share if name in own else share**power for name, share in posterior.items()}
    kept = math.fsum(share for name, share in posterior.items() if name in own)
    rest = math.fsum(share for name, share in raised.items() if name not in own)
    whole = math.fsum(posterior.values())
    return {
        name: share / whole if name in own else share / rest * (1.0 - kept / whole) for name, share in raised.items()
    }


def ruled(rules: Rules, weighed: Iterable[Weighed]) -> set[str]:
    """What the outcomes that were seen entail by a table of rules."""
    seen = {f"{held.test}={held.outcome}" for held in weighed if held.kind != UNCLEAR}
    return {name for given, then in rules if seen.issuperset(given) for name in then}


def _keep_floor(posterior: dict[str, float], floor: float) -> dict[str, float]:
    held = posterior[UNKNOWN]
    if held >= floor:
        return posterior
    room = (1.0 - floor) / (1.0 - held)
    return {name: floor if name == UNKNOWN else credence * room for name, credence in posterior.items()}


def _findings(
    knowledge: Knowledge, clues: tuple[Clue, ...], weighed: tuple[Weighed, ...], prior: dict[str, float]
) -> tuple[Finding, ...]:
    """Mechanisms that were seen, unless other looks at the same mechanism say that they are not there."""
    seen: dict[str, list[tuple[int, float]]] = {}
    outcomes = {f"{held.test}={held.outcome}" for held in weighed if held.weight > 0.0}
    for index, (clue, held) in enumerate(zip(clues, weighed, strict=True)):
        if held.weight > 0.0:
            for decisive in knowledge.tests[clue.test].decisive:
                if decisive.outcome == held.outcome and decisive.stands(outcomes):
                    seen.setdefault(decisive.cause, []).append((index, decisive.sure))
    findings = []
    for cause, sightings in seen.items():
        if cause not in prior:
            continue
        sure = max(chance for _, chance in sightings)
        odds = math.log(sure / (1.0 - sure)) + _second_looks(
            knowledge, cause, clues, weighed, {i for i, _ in sightings}
        )
        credence = min(1.0 / (1.0 + math.exp(-odds)), 0.995)
        if credence >= 0.5:
            numbers = tuple(index for index, _ in sightings)
            surest = sorted(sightings, key=lambda held: -held[1])
            where = dict.fromkeys(place for index, _ in surest for place in clues[index].where)
            findings.append(Finding(cause, credence, numbers, tuple(where)))
    findings = [_with_source(knowledge, finding, clues, weighed) for finding in findings]
    findings += _read_behind(knowledge, clues, weighed, findings, prior)
    return _without_consequences(knowledge, findings)


def names_line(clue: Clue, outcome: str) -> bool:
    """Whether lint names the line of a fault that was seen. What is only worth a look counts where it is the one such
    line of the model or the loss; in data many such lines are meant."""
    alone = len(clue.where) == 1 and clue.test.startswith(("source_loss_", "source_arch_"))
    return clue.source == "lint" and (outcome in ("certain", LIKELY) or (outcome == "look" and alone))


def _with_source(
    knowledge: Knowledge, finding: Finding, clues: tuple[Clue, ...], weighed: tuple[Weighed, ...]
) -> Finding:
    """With what lint read of the same cause, whose line is the one to change."""
    for index, (clue, held) in enumerate(zip(clues, weighed, strict=True)):
        if (
            held.weight > 0.0
            and names_line(clue, held.outcome)
            and knowledge.tests[clue.test].decisive[0].cause == finding.cause
        ):
            where = dict.fromkeys((*clue.where[:1], *finding.where, *clue.where))
            return finding._replace(clues=tuple(dict.fromkeys((*finding.clues, index))), where=tuple(where))
    return finding


def _read_behind(
    knowledge: Knowledge,
    clues: tuple[Clue, ...],
    weighed: tuple[Weighed, ...],
    findings: list[Finding],
    prior: dict[str, float],
) -> list[Finding]:
    """Causes that lint holds for likely and whose consequence the run was seen to show: together they are sure."""
    known = {finding.cause for finding in findings}
    behind = []
    for index, (clue, held) in enumerate(zip(clues, weighed, strict=True)):
        if clue.source != "lint" or held.outcome != LIKELY or held.weight == 0.0:
            continue
        cause = knowledge.tests[clue.test].decisive[0].cause
        shown = [item for item in findings if item.cause in knowledge.causes[cause].explains]
        if shown and cause in prior and cause not in known:
            numbers = (index, *(number for item in shown for number in item.clues))
            where = dict.fromkeys((*clue.where, *(place for item in shown for place in item.where)))
            behind.append(Finding(cause, max(item.credence for item in shown), numbers, tuple(where)))
    return behind


def _without_consequences(knowledge: Knowledge, findings: list[Finding]) -> tuple[Finding, ...]:
    """One cause and not its dozen consequences: a finding that another one explains is left to the hypotheses."""
    found = {finding.cause for finding in findings}
    explained = {
        name for cause in found for name in knowledge.causes[cause].explains if name not in _behind(knowledge, cause)
    }
    kept = [finding for finding in findings if finding.cause not in explained]
    return tuple(sorted(kept, key=lambda finding: (-finding.credence, finding.cause))[:MOST_FINDINGS])


def _behind(knowledge: Knowledge, cause: str) -> set[str]:
    """The causes that explain this one: two that explain each other both stand."""
    return {other.id for other in knowledge.causes.values() if cause in other.explains}


def _second_looks(
    knowledge: Knowledge, cause: str, clues: tuple[Clue, ...], weighed: tuple[Weighed, ...], sightings: set[int]
) -> float:
    """What other observations of the same mechanism add to, or take from, the log-odds of a sighting."""
    total = []
    for index, (clue, held) in enumerate(zip(clues, weighed, strict=True)):
        test = knowledge.tests.get(clue.test)
        if index in sightings or held.weight == 0.0 or test is None or test.role != "mechanism":
            continue
        place = [outcome.name for outcome in test.outcomes].index(held.outcome)
        total += [
            held.weight * math.log(row.p[place] / test.healthy[place]) for row in test.rows if cause in row.causes
        ]
    return math.fsum(total)
