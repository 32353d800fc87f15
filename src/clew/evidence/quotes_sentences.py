"""A quote taken apart into sentences, and a sentence into the pieces between its omission marks."""

import re
from typing import NamedTuple

from clew.evidence.quotes_words import Words, read

LONG = 40
"""A sentence of more words than this is cut at its omission marks: talk without punctuation has no other ends."""

LONGEST_PIECE = 200
"""A piece of more words than this is judged in parts when it is not found whole, so that a slip has a place."""


class Piece(NamedTuple):
    """Words `first` to `last` of the quote, without a gap. `marked` when an omission mark stands before it."""

    first: int
    last: int
    marked: bool = False


class Sentence(NamedTuple):
    text: str
    pieces: tuple[Piece, ...]


MARK = re.compile(r"\[\s*\.{3,}\s*\]|\(\s*\.{3,}\s*\)|\.{3,}|\.(?: \.){2,}")
_END = re.compile(r"(?<![.!?])[.!?]+[\"')\]}*_`]*(?=\s|$)")
_ABBREVIATED = re.compile(r"(?:^|[\s(\[\"*])'?([^\W\d_]+(?:\.[^\W\d_]+)*) ?$")
_SHORT = frozenset(
    "e.g i.e al etc vs cf fig figs eq eqs sec dr mr mrs ms prof approx resp ch vol pp st inc ref refs viz ca".split()
)
_NUMBERED = re.compile(r"[\s>*_`#\u2022-]*\(?\d{1,3}$")
_ITEM = re.compile(
    r"(?m)^[ \t>]*(?:[-*+]\s|#{1,6}\s|\*{0,2}\u2022|\*{0,2}\d{1,3}[.)]\s)"
    r"|(?<=\s)(?:\u2022|\d{1,2}\.(?=\s+\*\*))"
    r"|\n[ \t]*\n"
)
# A row in bold is a heading where a sentence ends above it; elsewhere it is a wrapped line that happens to be bold.
_HEADING_ROW = re.compile(r"(?m)^[ \t]*#{1,6}[ \t].*$|(?:\A|(?<=[.!?:\n]\n))[ \t]*\*\*[^*\s]+[ \t][^*\n]+\*\*$")


def split(rows: tuple[str, ...]) -> tuple[Words, list[Sentence]]:
    """The words of a quote, and its sentences. A sentence without words (a stray mark) is dropped."""
    words = read("\n".join(rows))
    clean = words.clean
    marks = [(match.start(), match.end()) for match in MARK.finditer(clean)]
    cuts = sorted(_cuts(clean, marks))
    sentences: list[Sentence] = []
    word = mark = 0
    for end in [*cuts, len(clean)]:
        pieces: list[Piece] = []
        begun = word
        while word < len(words.words) and words.begins[word] < end:
            crossed = mark < len(marks) and marks[mark][0] < words.begins[word]
            while mark < len(marks) and marks[mark][0] < words.begins[word]:
                mark += 1
            if crossed or word == begun:
                pieces.append(Piece(word, word, crossed))
            word += 1
            pieces[-1] = pieces[-1]._replace(last=word)
        if pieces:
            sentences += _sentences(words, pieces)
    return words, sentences


def _sentences(words: Words, pieces: list[Piece]) -> list[Sentence]:
    if len(pieces) > 1 and pieces[-1].last - pieces[0].first > LONG:
        return [Sentence(words.raw(piece.first, piece.last), (piece,)) for piece in pieces]
    return [Sentence(words.raw(pieces[0].first, pieces[-1].last), tuple(pieces))]


def _cuts(clean: str, marks: list[tuple[int, int]]) -> set[int]:
    items = {match.start() for match in _ITEM.finditer(clean)}
    for match in _HEADING_ROW.finditer(clean):
        items.update((match.start(), match.end()))
    starts = sorted(items)
    inside = {offset for begin, end in marks for offset in range(begin, end)}
    ends: set[int] = set()
    last = item = 0
    for match in _END.finditer(clean):
        while item < len(starts) and starts[item] <= match.start():
            last = max(last, starts[item])
            item += 1
        if match.start() in inside and not match.group().startswith("...."):
            continue
        if _ends(clean, last, match.start(), match.end()):
            ends.add(match.end())
            last = match.end()
    return (items | ends) - {0}


def _ends(clean: str, sentence: int, at: int, end: int) -> bool:
    """Whether the full stop (or the like) at `at` ends the sentence that began at `sentence`."""
    follows = clean[end : end + 40].lstrip().lstrip("\"'([*_`{")
    if follows[:1].islower():
        return False
    if clean[at] != ".":
        return True
    before = clean[max(sentence, at - 40) : at]
    short = _ABBREVIATED.search(before)
    if short and (short[1].lower() in _SHORT or (len(short[1]) == 1 and short[1] not in "aAI")):
        return False
    return not _NUMBERED.fullmatch(before) or at - sentence >= 40
