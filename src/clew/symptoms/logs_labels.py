"""What stands before a number in a line of a log: the name of a quantity, a counter, or nothing."""

import re
from typing import NamedTuple

from clew.symptoms.logs_names import AVERAGES, CRITERIA, EXTREMES, GRAIN, SPLITS, counter, known, words

LONGEST = 160
_WRAPPER = re.compile(r"(?:[\w.]{0,20}(?:tensor|array|float[0-9]{0,3}|int[0-9]{0,2}))\($", re.IGNORECASE)
_UNIT = re.compile(r"\s?\([A-Za-z%/ ]{1,12}\)$")
_CUT = re.compile(r"[,;|\t\[\](){}]|\s-+>?\s|\s{2,}|=>|\.\s")
_CELL = re.compile(r"\|?\s*([\w/ .@()-]{0,60}[A-Za-z][\w/ .@()-]{0,60}?)\s*\|")
_ALONE = re.compile(r"(?<![\w/.-])[A-Za-z]+(?![\w/-])")
_LEVEL = re.compile(r"(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL)\s+(?=\S)")
_BEFORE_COUNTER = {"at", "after", "on", "for", "in"}
_MODIFIERS = {
    *SPLITS,
    *AVERAGES,
    *GRAIN,
    *EXTREMES,
    *CRITERIA,
    *("learning", "grad", "gradient", "global", "loss", "episode", "explained", "top"),
}


class Label(NamedTuple):
    """`kind` names what is counted, for counters. `split` is the set of data that this and the following names of the
    line belong to. `after` is a name whose value follows the counter ("cost after iteration 10: 0.3"). A `weak` name
    is one that only its place before a number suggests."""

    name: str = ""
    kind: str = ""
    split: str = ""
    after: str = ""
    weak: bool = False


NOTHING = Label()
_cache: dict[str, Label] = {}


def label(raw: str) -> Label:
    """Logs repeat their labels line after line, so each is worked out once."""
    raw = raw[-LONGEST:]
    found = _cache.get(raw)
    if found is None:
        if len(_cache) > 20_000:
            _cache.clear()
        found = _cache[raw] = _label(raw)
    return found


def _label(raw: str) -> Label:
    text = _WRAPPER.sub("", raw.rstrip(" '\"")).rstrip(" '\"")
    cell = _CELL.fullmatch(text)
    if cell:
        return _named(cell[1].strip(), "", True)
    bare = text.rstrip(" :='\"")
    explicit = bare != text
    opened = bare.rstrip("[(# :=")
    if opened != bare:
        tail = _CUT.split(opened)[-1]
        inside = _counter(tail)
        if inside.kind:
            return inside._replace(split=_split(opened))
        return Label(split=_split(opened))
    bare = _UNIT.sub("", bare).rstrip()
    cuts = list(_CUT.finditer(bare))
    tail = bare[cuts[-1].end() :] if cuts else bare
    head = bare[: cuts[-1].start()] if cuts else ""
    *context, text = re.split(r"[:=]", tail)
    return _named(text.strip(" '\"`*>-"), _split(" ".join([head, *context])), explicit)


def _split(text: str) -> str:
    found = [SPLITS[word] for word in _ALONE.findall(text.lower()) if word in SPLITS]
    return found[-1] if found else ""


def _counter(text: str) -> Label:
    """The last words, when they count something."""
    parts = text.split()
    for size in (2, 1):
        kind = counter(" ".join(parts[-size:])) if len(parts) >= size else ""
        if not kind:
            continue
        rest = [part.lower() for part in parts[:-size]]
        if not rest or set(rest) <= set(SPLITS) | {"current", "global", "the"}:
            return Label(kind=kind, split=_split(" ".join(parts)))
        if rest[-1] in _BEFORE_COUNTER:
            return Label(kind=kind, split=_split(" ".join(rest)), after=_known_end(parts[: -size - 1]))
    return NOTHING


def _known_end(parts: list[str]) -> str:
    """The longest run of words at the end that reads as the name of one quantity."""
    if not parts or not known(" ".join(parts[-2:])):
        return ""
    start = len(parts) - 1
    while start > 0 and set(words(parts[start - 1])) <= _MODIFIERS and words(parts[start - 1]):
        start -= 1
    return " ".join(parts[start:])


def _named(text: str, split: str, explicit: bool) -> Label:
    text = text[found.end() :] if (found := _LEVEL.match(text)) else text
    if not re.search(r"[^\W\d_]", text):
        return Label(split=split)
    counts = _counter(text)
    if counts.kind:
        return counts._replace(split=counts.split or split)
    parts = text.split()
    own = SPLITS.get(parts[0].lower(), "") if len(parts) > 1 else ""
    name = _known_end(parts)
    if explicit and len(parts) <= 4 and not (name and len(parts) > 3):
        return Label(text, split=own or split)
    if name:
        return Label(name, split=_split(text) if len(parts) > 1 else split)
    if explicit:
        return Label(" ".join(parts[-4:]), split=own or split)
    plain = len(parts) == 1 and len(text) > 1
    return Label(text, split=split, weak=True) if plain else Label(split=split)
