"""The knowledge base as typed, frozen values. What each field means to an author is in docs/KNOWLEDGE.md.

Named tuples and not dataclasses: thirty frozen dataclasses cost 20 ms at every start of `clew`, these cost 6 ms
(docs/LOG.md has the figures).
"""

from collections.abc import Set
from typing import NamedTuple


class Family(NamedTuple):
    id: str
    prior: float
    means: str


class Variant(NamedTuple):
    """A cause as some tests see it: its own name, fix and refutation, instead of those of the cause in general. One of
    the outcomes `seen` ("test=outcome") must have made the finding; with `words`, one of them must stand in what the
    clues say."""

    seen: tuple[str, ...]
    words: tuple[str, ...]
    gloss: str
    mend: str
    refute: str


class Cause(NamedTuple):
    """Something that can be wrong with a training run."""

    id: str
    family: str
    gloss: str
    means: str
    shows: tuple[str, ...]
    refute: str
    refute_test: str
    not_first: str
    mend: str
    claims: tuple[str, ...]
    subtle: bool = False
    domains: tuple[str, ...] = ()
    weight: float = 1.0
    explains: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()


class Outcome(NamedTuple):
    """One result a test can have. `kind` is "seen" when it shows what the test looks for, "absent" when it does not."""

    name: str
    kind: str
    means: str


class Scale(NamedTuple):
    """Turns the number a test measured into an outcome: the first limit that the number lies below decides."""

    of: str
    unit: str
    steps: tuple[tuple[float, str], ...]
    above: str
    nan: str = ""


class Row(NamedTuple):
    """P(outcome | cause), in the order of the test's outcomes, for one group of causes, with its pedigree."""

    causes: tuple[str, ...]
    p: tuple[float, ...]
    why: str
    pedigree: str = "guessed"


class Decisive(NamedTuple):
    """An outcome in which the mechanism itself was seen: it makes a finding, whatever the priors said, `unless` one of
    the outcomes named there ("test=outcome") shows that it is the end of something else. Where outcomes are named that
    have to stand `beside` it, it needs one of them: the mechanism may be there and do no harm."""

    outcome: str
    cause: str
    sure: float
    unless: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    def stands(self, seen: Set[str]) -> bool:
        """Whether it makes a finding beside all that was seen."""
        return seen.isdisjoint(self.unless) and (not self.beside or not seen.isdisjoint(self.beside))


class Test(NamedTuple):
    """One observation that somebody or something can make. `measured`: on how many programs `healthy` and `otherwise`
    were measured."""

    id: str
    asks: str
    how: str
    by: str
    reads: str
    role: str
    seconds: float
    person: bool
    outcomes: tuple[Outcome, ...]
    healthy: tuple[float, ...]
    otherwise: tuple[float, ...]
    otherwise_why: str
    rows: tuple[Row, ...]
    cannot_tell: str
    claims: tuple[str, ...]
    scale: Scale | None = None
    decisive: tuple[Decisive, ...] = ()
    domains: tuple[str, ...] = ()
    version: int = 1
    measured: tuple[int, int] = (0, 0)

    def outcome(self, name: str) -> Outcome | None:
        for outcome in self.outcomes:
            if outcome.name == name:
                return outcome
        return None

    def discriminates(self) -> tuple[str, ...]:
        """The causes that this test says something particular about."""
        return tuple(dict.fromkeys(cause for row in self.rows for cause in row.causes))


class Symptom(NamedTuple):
    """One row of a symptom table: a sign, what it may mean, and what to look at first."""

    id: str
    table: str
    sign: str
    causes: tuple[str, ...]
    look: tuple[str, ...]
    advice: str
    claims: tuple[str, ...]


class TriageStep(NamedTuple):
    id: str
    order: int
    asks: str
    yes: str
    tests: tuple[str, ...]
    causes: tuple[str, ...]
    claims: tuple[str, ...]


class Lens(NamedTuple):
    """A way of generating explanations."""

    id: str
    idea: str
    do: tuple[str, ...]
    tests: tuple[str, ...]
    claims: tuple[str, ...]


class Habit(NamedTuple):
    """A rule of conduct of good debuggers."""

    id: str
    habit: str
    why: str
    do: tuple[str, ...]
    claims: tuple[str, ...]


class AntiPattern(NamedTuple):
    """A reflex that changes behaviour before the fault is localised."""

    id: str
    temptation: str
    why: str
    instead: str
    claims: tuple[str, ...]


class Range(NamedTuple):
    """A healthy range or a default value, and where it holds."""

    id: str
    quantity: str
    value: str
    unit: str
    scope: str
    outside: str
    claims: tuple[str, ...]
    low: float | None = None
    high: float | None = None


class Reference(NamedTuple):
    """An implementation worth comparing with."""

    id: str
    name: str
    domains: tuple[str, ...]
    url: str
    why: str
    read_for: str
    claims: tuple[str, ...]


class Domain(NamedTuple):
    """A kind of subject: which families of causes gain prior there, and which failures are typical."""

    id: str
    means: str
    shares: tuple[tuple[str, float], ...]
    typical: tuple[str, ...]
    why: str


Rules = tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]


class Priors(NamedTuple):
    """Shares that are not families of faults. `none` is by setting: a complaint, or a routine run. `by_hand` is what
    an observation costs a person, in seconds, by who usually makes it. By outcomes ("test=outcome") seen together:
    `settles` the tests they answer, `leads` those to ask first, `follows` those asked only then, `refutes` the causes
    they rule out. Credences are raised to the power `temper`."""

    unknown: float
    unknown_floor: float
    overlap: float
    none: tuple[tuple[str, tuple[tuple[str, float], ...]], ...]
    by_hand: tuple[tuple[str, float], ...]
    why: str
    settles: Rules = ()
    leads: Rules = ()
    follows: Rules = ()
    refutes: Rules = ()
    temper: float = 1.0


class Source(NamedTuple):
    """Where a claim comes from: what we say it says, and where its words stand."""

    text: str
    label: str
    url: str
    lineage: str
    credence: float | None
    file: str = ""
    lines: tuple[int, int] | None = None
    sealed: int = 0


class Claim(NamedTuple):
    """A conclusion of the evidence map with the credence that its sources carry to it."""

    id: str
    text: str
    credence: float | None
    sources: tuple[Source, ...]
    against: tuple[tuple[str, float | None], ...] = ()
    reason: str = ""


class Knowledge(NamedTuple):
    families: dict[str, Family]
    causes: dict[str, Cause]
    tests: dict[str, Test]
    symptoms: dict[str, Symptom]
    triage: dict[str, TriageStep]
    lenses: dict[str, Lens]
    habits: dict[str, Habit]
    antipatterns: dict[str, AntiPattern]
    ranges: dict[str, Range]
    references: dict[str, Reference]
    domains: dict[str, Domain]
    claims: dict[str, Claim]
    priors: Priors
