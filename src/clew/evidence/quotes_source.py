"""A source text, made ready to be searched: for a passage word for word, and for the passage most like one.

Passages are compared as one run of letters, digits and signs, without spaces: where the words are the same, how they
were spaced, hyphenated or broken into lines cannot make a difference. A found passage must still begin and end where
words of the source do.
"""

from bisect import bisect_left
from typing import NamedTuple

from clew.errors import ClewError
from clew.evidence.quotes_words import Words

Span = tuple[int, int]
"""Words of the source from the first index up to, not including, the second."""

MOST_PLACES = 64
"""A sentence that stands in a source more often than this is looked at in its first places only."""

_MOST_TRIES = 5_000
_MOST_POSITIONS = 200
_BREAK = "\x1f"


class Budget:
    """How much searching one check may still do. Hostile maps end it; honest ones use a hundredth."""

    def __init__(self, left: int = 20_000_000, letters: int = 8_000_000_000) -> None:
        self.left = left
        self.letters = letters

    def scan(self, letters: int) -> None:
        """Count letters looked through for exact passages. There is no answer without them, so this refuses."""
        self.letters -= letters
        if self.letters < 0:
            raise ClewError("this map asks for more searching than a check does; split it into several maps")

    def spend(self, work: int) -> bool:
        """Whether that much is still there; takes it when it is."""
        if work > self.left:
            return False
        self.left -= work
        return True


class _Run(NamedTuple):
    """Words of a source without spaces between them; `words[i]` is the index of the i-th in the source."""

    letters: str
    begins: list[int]
    ends: list[int]
    words: list[int] | range


class Likeness(NamedTuple):
    """The passage of a source most like some words: where it stands and what share of the words agree."""

    span: Span
    ratio: float


class Source:
    def __init__(self, words: Words) -> None:
        self.words = words
        self.run = _run(words.words, range(len(words.words)))
        self.bare = self.run
        if words.numerals:
            kept = [index for index in range(len(words.words)) if index not in words.numerals]
            self.bare = _run([words.words[index] for index in kept], kept)
        self._positions: dict[str, list[int]] | None = None

    def cited(self, lines: tuple[int, int] | None) -> Span:
        """The words on a range of lines; all of them where no range is given."""
        if lines is None:
            return 0, len(self.words.words)
        return bisect_left(self.words.lines, lines[0]), bisect_left(self.words.lines, lines[1] + 1)

    def find(self, words: list[str], cited: Span, budget: Budget) -> list[Span]:
        """Where the words stand: inside the cited ones if they do, else anywhere; with or without the list numbers."""
        wanted = letters(words)
        runs = (self.run, self.bare) if self.bare is not self.run else (self.run,)
        for within in (cited, (0, len(self.words.words))):
            spans = [span for run in runs for span in _find(run, wanted, within, budget)]
            if spans:
                return list(dict.fromkeys(spans))
        return []

    def nearest(self, words: list[str], budget: Budget) -> Likeness | None:
        """The passage most like the words, or None when they have nothing in common (or the budget is spent)."""
        starts = self._likely_starts(words, budget)
        best: Likeness | None = None
        for start, room in starts:
            begin, end = max(0, start), min(start + room, len(self.words.words))
            if begin >= end or not budget.spend(len(words) * (end - begin)):
                continue
            found = _align(self.words, (begin, end), words)
            if found is not None and (best is None or found.ratio > best.ratio):
                best = found
            if best is not None and best.ratio > 0.95:
                break
        return best

    def _likely_starts(self, words: list[str], budget: Budget) -> list[Span]:
        """Each rare word votes for where the passage would begin; the stretches with most votes, with their length."""
        positions = self._index()
        width = max(16, len(words) // 2)
        votes: dict[int, float] = {}
        known = [(index, positions.get(word.lower(), [])) for index, word in enumerate(words)]
        rarest = min((len(places) for _, places in known if places), default=0)
        for index, places in known:
            if len(places) > max(_MOST_POSITIONS, rarest) or not budget.spend(len(places[:_MOST_POSITIONS]) + 1):
                continue
            for place in places[:_MOST_POSITIONS]:
                stretch = (place - index) // width
                votes[stretch] = votes.get(stretch, 0.0) + 1.0 / len(places)
        if not votes:
            return []
        import heapq

        score = {stretch: vote + votes.get(stretch + 1, 0.0) for stretch, vote in votes.items()}
        best = heapq.nlargest(4, score, key=lambda stretch: (score[stretch], -stretch))
        return [(stretch * width - 8, 2 * width + 2 * len(words) + 24) for stretch in best]

    def _index(self) -> dict[str, list[int]]:
        if self._positions is None:
            self._positions = {}
            for index, word in enumerate(self.words.words):
                self._positions.setdefault(word.lower(), []).append(index)
        return self._positions


def letters(words: list[str]) -> str:
    """The words as one run. Two numbers side by side stay apart: 1 and 0 are not 10."""
    return _run(words, range(len(words))).letters


def _run(words: list[str], indices: list[int] | range) -> _Run:
    parts: list[str] = []
    begins: list[int] = []
    ends: list[int] = []
    at = 0
    digit = False
    for word in words:
        if digit and (word[0].isdigit() or word[0] == "."):
            parts.append(_BREAK)
            at += 1
        parts.append(word)
        begins.append(at)
        at += len(word)
        ends.append(at)
        digit = word[-1].isdigit()
    return _Run("".join(parts), begins, ends, indices)


def _find(run: _Run, wanted: str, within: Span, budget: Budget) -> list[Span]:
    """All places of the run of letters; the case of the first may differ, for a quote may begin with a capital."""
    spans: list[Span] = []
    first = bisect_left(run.words, within[0])
    last = bisect_left(run.words, within[1])
    if first >= last:
        return spans
    at, stop = run.begins[first], run.ends[last - 1]
    budget.scan(stop - at)
    heads = (wanted[0], wanted[0].swapcase())
    tail = wanted[1:]
    for _ in range(_MOST_TRIES):
        at = run.letters.find(tail, at + 1, stop) - 1 if tail else _next(run.letters, heads, at, stop)
        if at < 0 or len(spans) == MOST_PLACES:
            break
        end_at = at + len(wanted)
        begin, end = bisect_left(run.begins, at), bisect_left(run.ends, end_at)
        whole = begin < len(run.begins) and run.begins[begin] == at and end < len(run.ends) and run.ends[end] == end_at
        if whole and run.letters[at] in heads:
            spans.append((run.words[begin], run.words[end] + 1))
        at += 1
    return spans


def _next(letters: str, heads: tuple[str, str], at: int, stop: int) -> int:
    places = [place for place in (letters.find(head, at, stop) for head in heads) if place >= 0]
    return min(places, default=-1)


def _align(source: Words, within: Span, words: list[str]) -> Likeness | None:
    from difflib import SequenceMatcher

    window = source.words[within[0] : within[1]]
    matcher = SequenceMatcher(None, window, words, autojunk=False)
    blocks = _gathered([(block.a, block.b, block.size) for block in matcher.get_matching_blocks() if block.size])
    if not blocks:
        return None
    begin = within[0] + blocks[0][0]
    end = within[0] + blocks[-1][0] + blocks[-1][2]
    # Words of the quote before the first common one stand for as many of the source, up to where a sentence begins.
    for _ in range(blocks[0][1]):
        if begin == 0 or _sentence_ends(source, begin - 1):
            break
        begin -= 1
    for _ in range(len(words) - blocks[-1][1] - blocks[-1][2]):
        if end == len(source.words) or _sentence_ends(source, end - 1):
            break
        end += 1
    common = sum(size for _, _, size in blocks)
    return Likeness((begin, end), 2 * common / (len(words) + end - begin))


def _gathered(blocks: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Without the chance hits of a common word far before or behind the passage itself."""
    while len(blocks) > 1 and _stray(blocks[0], blocks[1], blocks[0]):
        blocks = blocks[1:]
    while len(blocks) > 1 and _stray(blocks[-2], blocks[-1], blocks[-1]):
        blocks = blocks[:-1]
    return blocks


def _stray(left: tuple[int, int, int], right: tuple[int, int, int], small: tuple[int, int, int]) -> bool:
    in_source = right[0] - left[0] - left[2]
    in_quote = right[1] - left[1] - left[2]
    return small[2] < 4 and in_source > in_quote + 3 * small[2] + 1


def _sentence_ends(source: Words, index: int) -> bool:
    """Whether a sentence or a paragraph ends behind this word."""
    end = source.ends[index]
    between = source.clean[end : source.begins[index + 1]] if index + 1 < len(source.words) else "."
    return any(mark in between for mark in ".!?\u2022") or "\n\n" in between.replace(" ", "")
