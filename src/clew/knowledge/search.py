"""Finding an entry of the knowledge base: by its id, by a near miss of it, or by words."""

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from clew.errors import nearest
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


def by_words(knowledge: Knowledge, query: str, most: int = 8) -> list[Found]:
    """Entries about the words of `query`, best first: rare words count more, words of the title most."""
    wanted = list(dict.fromkeys(_stems(query)))
    if not wanted:
        return []
    entries = [(found, _bag(found)) for found in everything(knowledge)]
    spread = {word: sum(word in bag for _, bag in entries) for word in wanted}
    rarity = {word: math.log(1.0 + len(entries) / (1.0 + count)) for word, count in spread.items()}
    best = max(rarity.values())
    scored = []
    for found, bag in entries:
        hits = [word for word in wanted if word in bag]
        score = sum(rarity[word] * bag[word] for word in hits) * len(hits) / len(wanted)
        if score > 0.45 * best:
            scored.append((-score * LESSER.get(found.shelf, 1.0), found.id, found))
    scored.sort(key=lambda item: item[:2])
    return [found for _, _, found in scored[:most]]


def _stems(text: str) -> list[str]:
    return [_stem(word) for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in STOP]


def _stem(word: str) -> str:
    for end in ("ations", "ation", "ings", "ing", "ised", "ized", "ise", "ize", "ed", "es", "s", "ly"):
        if word.endswith(end) and len(word) - len(end) >= 4:
            return word[: -len(end)]
    return word


def _bag(found: Found) -> dict[str, float]:
    """The words of an entry with their weight: 3 in the id, 2 in its first sentence, 1 elsewhere."""
    bag: dict[str, float] = {}
    texts = [text for text in _texts(found.entry) if text != found.id]
    weighed = [(found.id.replace("_", " ").replace("-", " ").replace(".", " "), 3.0)]
    weighed += [(text, 2.0 if index == 0 else 1.0) for index, text in enumerate(texts)]
    for text, weight in weighed:
        for word in _stems(text):
            bag[word] = max(bag.get(word, 0.0), weight)
    return bag


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if " " in value:
            yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _texts(item)
