"""Finding an entry of the knowledge base: by its id, by a near miss of it, or by words."""

import math
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from clew.errors import nearest
from clew.knowledge.base import cached, load
from clew.knowledge.model import Knowledge

SHELVES = (
    ("cause", "causes"),
    ("test", "tests"),
    ("claim", "claims"),
    ("symptom", "symptoms"),
    ("antipattern", "antipatterns"),
    ("habit", "habits"),
    ("lens", "lenses"),
    ("triage", "triage"),
    ("range", "ranges"),
    ("reference", "references"),
    ("domain", "domains"),
)
LESSER = {"claim": 0.6, "domain": 0.5, "triage": 0.7, "habit": 0.8, "lens": 0.8}
STOP = frozenset(
    (
        "a an and are as at be but by do does for from has have i in is it its my no not of on or so that the then "
        "there this to was what when which why will with"
    ).split(" ")
)


ALSO = {
    "val": "validation",
    "acc": "accuracy",
    "nan": "nan nonfinite",
    "nans": "nan nonfinite",
    "inf": "inf nonfinite",
    "grad": "gradient",
    "grads": "gradient",
    "lr": "learning rate",
    "bn": "batch norm",
    "oom": "memory",
    "diverge": "diverges explodes",
    "diverges": "diverges explodes",
    "flat": "flat stuck",
    "reward": "reward return",
    "slower": "slow time",
    "leaks": "leak",
}
"""What people type for what is written; both sides of a search go through it."""


class Found(NamedTuple):
    """An entry, and on which shelf it stands."""

    shelf: str
    id: str
    entry: Any


def everything(knowledge: Knowledge) -> Iterator[Found]:
    for shelf, field in SHELVES:
        for key, entry in getattr(knowledge, field).items():
            yield Found(shelf, key, entry)


def by_id(knowledge: Knowledge, name: str) -> Found | None:
    """An exact id, on any shelf; or the last part of a cause's id when only one cause has it."""
    for found in everything(knowledge):
        if found.id == name:
            return found
    ends = [cause for cause in knowledge.causes.values() if cause.id.split(".", 1)[1] == name]
    return Found("cause", ends[0].id, ends[0]) if len(ends) == 1 else None


def near(knowledge: Knowledge, name: str) -> list[str]:
    """Ids that look like a misspelt `name`."""
    return nearest(name, [found.id for found in everything(knowledge)])


def by_words(
    knowledge: Knowledge, query: str, most: int = 8, among: Callable[[Found], bool] = lambda _: True
) -> list[Found]:
    """Entries about the words of `query`, best first: rare words count more, words of the title most."""
    single = [word for word in dict.fromkeys(_stems(query)) if not word.isdigit()]
    if not single:
        return []
    wanted = [*single, *dict.fromkeys(_pairs(query))]
    index = cached("words", lambda: _index(knowledge)) if knowledge is load() else _index(knowledge)
    entries = list(everything(knowledge))
    scores: dict[int, float] = {}
    hits: dict[int, int] = {}
    best = 0.0
    for word in wanted:
        postings = index.get(word, ())
        rarity = math.log(1.0 + len(entries) / (1.0 + len(postings)))
        best = max(best, rarity)
        for posting in postings:
            place, weight = divmod(posting, 4)
            scores[place] = scores.get(place, 0.0) + rarity * weight
            hits[place] = hits.get(place, 0) + (word in single)
    scored = []
    for place, score in scores.items():
        found = entries[place]
        score *= hits[place] / len(single)
        if score > 0.45 * best and among(found):
            scored.append((-score * LESSER.get(found.shelf, 1.0), found.id, found))
    scored.sort(key=lambda item: item[:2])
    return [found for _, _, found in scored[:most]]


def _index(knowledge: Knowledge) -> dict[str, tuple[int, ...]]:
    """Where each word stands: four times the number of the entry plus the weight of the word in it."""
    index: dict[str, list[int]] = {}
    for place, found in enumerate(everything(knowledge)):
        for word, weight in _bag(found).items():
            index.setdefault(word, []).append(4 * place + weight)
    return {word: tuple(postings) for word, postings in index.items()}


def _bag(found: Found) -> dict[str, int]:
    """The words of an entry with their weight: 3 in the id, 2 in its first text, 1 elsewhere."""
    bag: dict[str, int] = {}
    texts = [text for text in _texts(found.entry) if text != found.id]
    weighed = [(found.id, 3), *((text, 2 if index == 0 else 1) for index, text in enumerate(texts))]
    for text, weight in weighed:
        for word in [*_stems(text), *(_pairs(text) if weight > 1 else ())]:
            bag[word] = max(bag.get(word, 0), weight)
    return bag


def _stems(text: str) -> list[str]:
    """The words of a text in their basic form."""
    words = [word for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in STOP]
    return [_stem(part) for word in words for part in ALSO.get(word, word).split()]


def _pairs(text: str) -> list[str]:
    """Words that stand together: `zero_grad` is more than zero and grad."""
    stems = _stems(text)
    return [f"{first} {second}" for first, second in pairwise(stems)]


def _stem(word: str) -> str:
    for end in ("ations", "ation", "ings", "ing", "ised", "ized", "ise", "ize", "ed", "es", "s", "ly"):
        if word.endswith(end) and len(word) - len(end) >= 4:
            return word[: -len(end)]
    return word


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if " " in value:
            yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _texts(item)
