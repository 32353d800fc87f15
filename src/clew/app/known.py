"""What is known: entries by id, by a near miss, by words."""

from typing import NamedTuple

from clew.errors import ClewError, did_you_mean
from clew.knowledge.base import load
from clew.knowledge.model import Knowledge, Test
from clew.knowledge.search import Found, by_id, by_words, near
from clew.symptoms.complaint import FLAT, observations, said_of


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


class Suggestion(NamedTuple):
    """A test and outcome that a person's words seem to describe."""

    test: str
    outcome: str
    means: str


def suggest(symptom: str, most: int = 3) -> list[Suggestion]:
    """Observations that the words of a complaint may amount to: a person has to confirm them. Where the words say
    nothing of a quantity that a test knows, those that share words with it."""
    knowledge = load()
    read = observations(symptom)
    if not read and not said_of(symptom):
        odd = {
            name: [item.name for item in test.outcomes if item.kind == "seen"] for name, test in knowledge.tests.items()
        }
        able = {name for name, outcomes in odd.items() if outcomes and knowledge.tests[name].role == "symptom"}
        read = [(hit.id, odd[hit.id][0]) for hit in by_words(knowledge, symptom, 1, lambda hit: hit.id in able)]
    if not read and any(one.quantity == "loss" and one.move in FLAT for one in said_of(symptom)):
        read = [("loss_stuck_from_start", "stuck"), ("train_val_gap", "val_much_worse")]  # only validation was named
    suggestions = []
    for test, outcome in read[:most]:
        known = knowledge.tests[test].outcome(outcome)
        if known is not None:
            suggestions.append(Suggestion(test, outcome, known.means))
    return suggestions


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
