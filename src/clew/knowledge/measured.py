"""Likelihoods that were measured on programs with known faults, laid over the expert's guesses.

`measured.toml` holds counts and no probabilities: how many programs showed which outcome, healthy, with each cause, and
with any cause that the test does not name. An expert's guess counts as `strength` further programs, so that three
programs move a guess and do not replace it. `clew casebook fit` writes the file; without it the guesses stand.

Forty sound programs do not show how odd the next one will be. So what a test may see without its cause, in a sound
program or with another fault, can be measured to be commoner than the guess and not to be rarer: a table that learned
it to be rare took the first odd thing in every second public script for a fault (docs/CASEBOOK.md).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from clew.knowledge.model import Decisive, Knowledge, Row, Test

if TYPE_CHECKING:
    from clew.knowledge.schema import Faults

NAME = "measured.toml"
LEAST, MOST = 0.005, 0.995
FIT = "fit"
HEALTHY, OTHERWISE, DECISIVE = "healthy", "otherwise", "decisive"

Tally = dict[str, float]
"""Programs by outcome; fractions where several runs of one program differ."""


class Counts(NamedTuple):
    """What one test showed. `decisive` holds, by "outcome cause", how many programs showed the outcome and in how many
    of them the cause was there."""

    healthy: Tally
    otherwise: Tally
    causes: dict[str, Tally]
    decisive: dict[str, tuple[float, float]]


class Measured(NamedTuple):
    """The whole table. `temper` is the power to which credences are raised in the end."""

    strength: float
    temper: float
    programs: int
    runs: int
    tests: dict[str, Counts]


def applied(knowledge: Knowledge, measured: Measured) -> Knowledge:
    """The knowledge base with the counts taken into account."""
    tests = {
        key: moved(test, measured.tests[key], measured.strength) if key in measured.tests else test
        for key, test in knowledge.tests.items()
    }
    return knowledge._replace(tests=tests, priors=knowledge.priors._replace(temper=measured.temper))


def moved(test: Test, counts: Counts, strength: float) -> Test:
    names = tuple(outcome.name for outcome in test.outcomes)

    def toward(guess: tuple[float, ...], tally: Tally) -> tuple[float, ...]:
        return mixed(guess, [tally.get(name, 0.0) for name in names], strength)

    rows: list[Row] = []
    for row in test.rows:
        seen = [cause for cause in row.causes if cause in counts.causes]
        rows += (
            Row((cause,), toward(row.p, counts.causes[cause]), row.why, pedigree(counts.causes[cause]))
            for cause in seen
        )
        if rest := tuple(cause for cause in row.causes if cause not in counts.causes):
            rows.append(row._replace(causes=rest))
    return test._replace(
        healthy=no_rarer(test, test.healthy, toward(test.healthy, counts.healthy)),
        otherwise=no_rarer(test, test.otherwise, toward(test.otherwise, counts.otherwise)),
        rows=tuple(rows),
        decisive=tuple(_surer(item, counts, strength) for item in test.decisive),
        measured=(whole(counts.healthy), whole(counts.otherwise)),
    )


def mixed(guess: tuple[float, ...], seen: list[float], strength: float) -> tuple[float, ...]:
    """Counts, with the guess as `strength` further ones; never impossible, never certain."""
    total = sum(seen) + strength
    raw = [(count + strength * chance) / total for count, chance in zip(seen, guess, strict=True)]
    held = [min(max(chance, LEAST), MOST) for chance in raw]
    # What the bounds added is taken from the likeliest outcome, which has room for it.
    top = held.index(max(held))
    held[top] += 1.0 - sum(held)
    return tuple(held)


def no_rarer(test: Test, guess: tuple[float, ...], chances: tuple[float, ...]) -> tuple[float, ...]:
    """The chances, with each that something is seen at least as high as it was guessed; the others make room."""
    odd = [outcome.kind == "seen" for outcome in test.outcomes]
    held = [max(pair) if seen else pair[1] for seen, *pair in zip(odd, guess, chances, strict=True)]
    room = sum(chance for seen, chance in zip(odd, held, strict=True) if not seen)
    left = 1.0 - sum(chance for seen, chance in zip(odd, held, strict=True) if seen)
    if room <= 0.0 or left < LEAST * odd.count(False):
        return guess
    return tuple(chance if seen else chance * left / room for seen, chance in zip(odd, held, strict=True))


def _surer(item: Decisive, counts: Counts, strength: float) -> Decisive:
    times, right = counts.decisive.get(f"{item.outcome} {item.cause}", (0.0, 0.0))
    sure = (right + strength * item.sure) / (times + strength)
    return item._replace(sure=min(max(sure, LEAST), MOST))


def whole(tally: Tally) -> int:
    return round(sum(tally.values()))


def pedigree(tally: Tally) -> str:
    return f"measured (n={sum(tally.values()):.3g})"


def read(faults: Faults, folder: str, knowledge: Knowledge) -> Measured | None:
    """The table of a folder, None where there is none; what does not fit the knowledge base is a fault."""
    from clew.knowledge.schema import Entry, read_toml

    path = os.path.join(folder, NAME)
    if not os.path.exists(path):
        return None
    tables = read_toml(path, NAME)
    fit = Entry(faults, NAME, FIT, tables.pop(FIT, None))
    strength = fit.number("strength", 1.0, 0.01, 1e4)
    temper = fit.number("temper", 1.0, 0.05, 5.0)
    programs, runs = (int(fit.number(name, 1, 1, 1e9)) for name in ("programs", "runs"))
    fit.done()
    tests: dict[str, Counts] = {}
    for key, table in tables.items():
        if key not in knowledge.tests:
            faults.add(NAME, key, "(entry)", "is not a known test; `clew casebook fit` makes the file anew")
        else:
            tests[key] = _counts(faults, knowledge, key, table)
    return Measured(strength, temper, programs, runs, tests)


def _counts(faults: Faults, knowledge: Knowledge, key: str, table: object) -> Counts:
    from clew.knowledge.schema import Entry

    entry = Entry(faults, NAME, key, table)
    outcomes = {outcome.name for outcome in knowledge.tests[key].outcomes}

    def tally(field: str, value: object) -> Tally:
        good = isinstance(value, dict) and all(
            name in outcomes and isinstance(count, int | float) and not isinstance(count, bool) and count > 0
            for name, count in value.items()
        )
        if not good:
            entry.fault(field, f"should hold a count above 0 for some of: {', '.join(sorted(outcomes))}")
        return {name: float(count) for name, count in value.items()} if good and isinstance(value, dict) else {}

    known = {f"{item.outcome} {item.cause}" for item in knowledge.tests[key].decisive}
    decisive = {}
    for name, pair in entry.take(DECISIVE, dict, {}, needed=False).items():
        if name not in known or not _pair(pair):
            entry.fault(f"{DECISIVE}.{name}", "should be a decisive outcome with two counts: seen, and seen rightly")
        else:
            decisive[name] = (float(pair[0]), float(pair[1]))
    healthy, otherwise = (tally(name, entry.take(name, dict, {}, needed=False)) for name in (HEALTHY, OTHERWISE))
    causes = {}
    for cause in sorted(entry.left):
        if cause not in knowledge.causes:
            entry.fault(cause, "is not a known cause")
        elif found := tally(cause, entry.table[cause]):
            causes[cause] = found
    return Counts(healthy, otherwise, causes, decisive)


def _pair(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(count, int | float) and not isinstance(count, bool) for count in value)
        and 0 <= value[1] <= value[0]
    )


def written(measured: Measured) -> str:
    """The table as a file: one line per cause, so that a change of one count is a change of one line."""
    lines = [
        "# Made by `clew casebook fit`: on how many programs each test showed each outcome. Not edited by hand.",
        "# `decisive`: how many programs showed the outcome, and in how many of them the cause was there.",
        "",
        f"[{FIT}]",
        f"strength = {measured.strength:g}",
        f"temper = {measured.temper:g}",
        f"programs = {measured.programs}",
        f"runs = {measured.runs}",
    ]
    for key, counts in sorted(measured.tests.items()):
        lines += ["", f"[{key}]"]
        lines += (f"{name} = {_inline(tally)}" for name, tally in ((HEALTHY, counts.healthy),) if tally)
        lines += (f"{name} = {_inline(tally)}" for name, tally in ((OTHERWISE, counts.otherwise),) if tally)
        lines += (f'"{cause}" = {_inline(tally)}' for cause, tally in sorted(counts.causes.items()) if tally)
        if counts.decisive:
            lines.append(f"[{key}.{DECISIVE}]")
            lines += (f'"{name}" = [{a:.3g}, {b:.3g}]' for name, (a, b) in sorted(counts.decisive.items()))
    return "\n".join(lines) + "\n"


def _inline(tally: Tally) -> str:
    return "{ " + ", ".join(f"{name} = {count:.3g}" for name, count in sorted(tally.items())) + " }"
