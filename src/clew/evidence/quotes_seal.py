"""Seals: proof that a passage stands in a source, without carrying its words.

A seal is written `12:9f3a...`: the number of words, a colon, and the first 32 hexadecimal digits of SHA-256 over those
words, joined by single spaces. The words are the source's own, as `quotes_words` reads them. One seal stands for one
sentence; where the quote marked an omission, three dots join its fragments, or stand before the first of them.
"""

import re
from hashlib import sha256
from typing import NamedTuple

from clew.errors import ClewError
from clew.evidence.model import Statement
from clew.evidence.quotes_source import MOST_PLACES, Budget, Source, Span

MARK = "..."
_FRAGMENT = re.compile(r"([1-9][0-9]{0,3}):([0-9a-f]{32})")


class Fragment(NamedTuple):
    sentence: int
    size: int
    digest: str
    marked: bool


def digest(words: list[str]) -> str:
    return sha256(" ".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def written(fragments: list[tuple[bool, list[str]]]) -> str:
    """One sentence's seal from its fragments: whether a mark stands before each, and its words."""
    parts = [(MARK if marked else "") + f"{len(words)}:{digest(words)}" for marked, words in fragments]
    return "".join(parts)


def fragments(statement: Statement) -> list[Fragment]:
    """The seals in a statement's metadata, taken apart; an empty list when it has none."""
    seals = statement.data.get("seals")
    if seals is None:
        return []
    if not isinstance(seals, tuple) or not seals:
        raise ClewError(f'[{statement.title}]: expected a list of seals such as ["12:9f3a..."], found {seals!r:.60}')
    found: list[Fragment] = []
    for index, seal in enumerate(seals):
        parts = str(seal).split(MARK) if isinstance(seal, str) else []
        marked = len(parts) > 1 and parts[0] == ""
        for part in parts[1:] if marked else parts or [""]:
            match = _FRAGMENT.fullmatch(part)
            if match is None:
                raise ClewError(
                    f"[{statement.title}]: seal {index + 1} is not one: expected the number of words, a colon and 32 "
                    f"hexadecimal digits, found {str(seal)!r:.60}"
                )
            found.append(Fragment(index, int(match[1]), match[2], marked))
            marked = True
    return found


class Windows:
    """The digests of all runs of so many words of a source, worked out once per length."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._known: dict[int, dict[str, list[int]]] = {}

    def find(self, fragment: Fragment, cited: Span, budget: Budget) -> list[Span]:
        """Where the sealed words stand: in the cited lines if they do, otherwise in the whole source."""
        words = self.source.words.words
        inside = [
            (at, at + fragment.size)
            for at in range(cited[0], cited[1] - fragment.size + 1)
            if budget.spend(fragment.size) and digest(words[at : at + fragment.size]) == fragment.digest
        ]
        if inside:
            return inside[:MOST_PLACES]
        if fragment.size not in self._known:
            self._known[fragment.size] = self._all(fragment.size, budget)
        starts = self._known[fragment.size].get(fragment.digest, [])
        return [(at, at + fragment.size) for at in starts[:MOST_PLACES]]

    def _all(self, size: int, budget: Budget) -> dict[str, list[int]]:
        words = self.source.words.words
        known: dict[str, list[int]] = {}
        windows = max(0, len(words) - size + 1)
        if budget.spend(windows * size):
            for at in range(windows):
                known.setdefault(digest(words[at : at + size]), []).append(at)
        return known
