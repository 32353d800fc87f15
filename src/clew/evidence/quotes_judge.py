"""Where the pieces of a quote stand in its source, and what that says about its sentences and the whole.

The pieces are placed together: of all the places a short sentence is found in, the one counts that follows on from the
sentence before it, inside the cited lines where it can.
"""

from typing import NamedTuple

from clew.evidence.quotes_sentences import LONGEST_PIECE, Piece, Sentence
from clew.evidence.quotes_source import Budget, Likeness, Source, Span, letters
from clew.evidence.quotes_words import Words

ALIKE = 0.6
"""The share of common words from which on a passage counts as what the quote altered; below it nothing was found."""

_PART = 100
_SHORT_RUN = 3
_SURE_GAP = 4
"""Where an altered passage begins and ends is known to a few words only; a smaller gap beside one says nothing."""


class Passage(NamedTuple):
    """What the source has where a quote was altered. `diff` holds ("same" | "dropped" | "added", words) in order."""

    line: int
    changed_line: int
    text: str
    diff: tuple[tuple[str, str], ...]


class SentenceCheck(NamedTuple):
    """What was found about one sentence. `number` counts from 0; `line` is where it stands in the source."""

    number: int
    verdict: str  # "verbatim" | "elsewhere" | "altered" | "absent"
    line: int | None
    similarity: float
    text: str = ""
    passages: tuple[Passage, ...] = ()


class LeftOut(NamedTuple):
    """Words of the source between two sentences of a quote, where the quote has no mark. `after` is a sentence."""

    after: int
    line: int
    text: str


class Candidate(NamedTuple):
    """One piece of a quote, and where it could stand."""

    sentence: int
    size: int
    marked: bool
    spans: list[Span]
    likeness: Likeness | None = None
    piece: Piece | None = None


class Judgement(NamedTuple):
    verdict: str
    sentences: tuple[SentenceCheck, ...]
    left_out: tuple[LeftOut, ...]
    reordered: bool
    places: tuple[Span | None, ...]


def candidates(words: Words, sentences: list[Sentence], source: Source, cited: Span, budget: Budget) -> list[Candidate]:
    found: list[Candidate] = []
    for index, sentence in enumerate(sentences):
        for piece in sentence.pieces:
            wanted = words.words[piece.first : piece.last]
            spans = source.find(wanted, cited, budget)
            if spans:
                found.append(Candidate(index, len(wanted), piece.marked, spans, None, piece))
                continue
            for part in _parts(piece):
                wanted = words.words[part.first : part.last]
                spans = source.find(wanted, cited, budget) if part != piece else []
                near = None if spans else source.nearest(wanted, budget)
                found.append(Candidate(index, len(wanted), part.marked, spans, near, part))
    return found


def _parts(piece: Piece) -> list[Piece]:
    if piece.last - piece.first <= LONGEST_PIECE:
        return [piece]
    starts = range(piece.first, piece.last, _PART)
    return [Piece(at, min(at + _PART, piece.last), piece.marked and at == piece.first) for at in starts]


def judge(
    source: Source, cited: Span, found: list[Candidate], texts: list[str], quote: Words | None, budget: Budget
) -> Judgement:
    """Place the pieces and say what became of each sentence. `quote` is None for seals, which have no words to show."""
    places = _place(source, cited, found, budget)
    left_out, turned = _between(source, found, places)
    own: list[list[tuple[Candidate, Span | None]]] = [[] for _ in texts]
    for one, place in zip(found, places, strict=True):
        own[one.sentence].append((one, place))
    sentences = [
        _sentence(index, text, own[index], source, cited, quote, index in turned) for index, text in enumerate(texts)
    ]
    whole = _whole(sentences, left_out, -1 in turned)
    if quote is None and whole == "altered":
        whole = "absent"  # a digest that does not agree cannot say how far off the words are
    return Judgement(whole, tuple(sentences), left_out, -1 in turned, tuple(places))


def _whole(sentences: list[SentenceCheck], left_out: tuple[LeftOut, ...], reordered: bool) -> str:
    verdicts = {sentence.verdict for sentence in sentences}
    if verdicts <= {"absent"}:
        return "absent"
    if verdicts & {"altered", "absent"}:
        return "altered"
    if "elsewhere" in verdicts:
        return "elsewhere"
    if reordered:
        return "altered"
    return "elided" if left_out else "verbatim"


def _place(source: Source, cited: Span, found: list[Candidate], budget: Budget) -> list[Span | None]:
    """The cheapest way through the places of all pieces: inside the cited lines, in order, without gaps."""
    most = max(2, min(64, int((400_000 / (len(found) + 1)) ** 0.5)))
    if not budget.spend(sum(min(most, len(one.spans)) ** 2 for one in found)):
        most = 2
    rows: list[tuple[int, list[Span]]] = []
    for index, one in enumerate(found):
        spans = one.spans[:most]
        if not spans and one.likeness is not None and one.likeness.ratio >= ALIKE:
            spans = [one.likeness.span]
        if spans:
            rows.append((index, spans))
    costs: list[float] = []
    back: list[list[int]] = []
    for step, (index, spans) in enumerate(rows):
        new: list[float] = []
        came: list[int] = []
        for span in spans:
            ways = [
                cost + _step_cost(source, before, span, found[index].marked)
                for cost, before in zip(costs, rows[step - 1][1] if step else [], strict=True)
            ] or [0.0]
            cheapest = min(range(len(ways)), key=ways.__getitem__)
            new.append(ways[cheapest] + (0.0 if _within(span, cited) else 50.0))
            came.append(cheapest)
        costs = new
        back.append(came)
    places: list[Span | None] = [None] * len(found)
    choice = min(range(len(costs)), key=costs.__getitem__) if costs else 0
    for step in range(len(rows) - 1, -1, -1):
        index, spans = rows[step]
        places[index] = spans[choice]
        choice = back[step][choice]
    return places


def _step_cost(source: Source, before: Span, after: Span, marked: bool) -> float:
    gap = after[0] - before[1]
    if gap < 0:
        return 20.0
    if gap == 0:
        return 0.0
    far = min(gap, 100_000) / 100_000
    return far if marked or _only_numerals(source, before[1], after[0]) else 1.0 + far


def _only_numerals(source: Source, first: int, last: int) -> bool:
    """Whether nothing stands there, or nothing but list numbers."""
    return last - first <= 2 and all(index in source.words.numerals for index in range(first, last))


def _within(span: Span, cited: Span) -> bool:
    return cited[0] <= span[0] and span[1] <= cited[1]


def _between(
    source: Source, found: list[Candidate], places: list[Span | None]
) -> tuple[tuple[LeftOut, ...], frozenset[int]]:
    """What was left out without a mark, and the sentences whose pieces are out of order (-1: the sentences are)."""
    left_out: list[LeftOut] = []
    turned: set[int] = set()
    for at in range(1, len(found)):
        before, after, one = places[at - 1], places[at], found[at]
        if before is None or after is None:
            continue
        exact = bool(found[at - 1].spans and one.spans)
        if after[0] < before[1]:
            if exact:
                turned.add(one.sentence if one.sentence == found[at - 1].sentence else -1)
        elif one.marked or _only_numerals(source, before[1], after[0]):
            continue
        elif exact or after[0] - before[1] > _SURE_GAP:
            gap = source.words.raw(before[1], min(after[0], before[1] + 400))
            left_out.append(LeftOut(found[at - 1].sentence, source.words.lines[before[1]], gap))
    return tuple(left_out), frozenset(turned)


def _sentence(
    index: int,
    text: str,
    own: list[tuple[Candidate, Span | None]],
    source: Source,
    cited: Span,
    quote: Words | None,
    turned: bool,
) -> SentenceCheck:
    verdicts: list[str] = []
    agreed = 0.0
    passages: list[Passage] = []
    for one, place in own:
        if place is None:
            verdicts.append("absent")
            agreed += one.size * (one.likeness.ratio if one.likeness else 0.0)
        elif one.spans:
            verdicts.append("verbatim" if _within(place, cited) else "elsewhere")
            agreed += one.size
        else:
            verdicts.append("altered")
            agreed += one.size * (one.likeness.ratio if one.likeness else 0.0)
            if quote is not None and one.piece is not None:
                passages.append(_passage(source, place, quote, one.piece))
    size = sum(one.size for one, _ in own)
    similarity = min(agreed / size, 0.9999) if agreed < size else 1.0
    first = next((place for _, place in own if place is not None), None)
    line = source.words.lines[first[0]] if first is not None else None
    if quote is None and (turned or "absent" in verdicts):
        return SentenceCheck(index, "absent", None, 0.0, text)
    if set(verdicts) == {"absent"}:
        return SentenceCheck(index, "absent", None, similarity, text)
    if "altered" in verdicts or "absent" in verdicts:
        return SentenceCheck(index, "altered", line, similarity, text, tuple(passages))
    if turned:
        return SentenceCheck(index, "altered", line, max(one.size for one, _ in own) / size, text)
    return SentenceCheck(index, "elsewhere" if "elsewhere" in verdicts else "verbatim", line, similarity, text)


def _passage(source: Source, span: Span, quote: Words, piece: Piece) -> Passage:
    """The words of both side by side. Runs of one or two common words between changes are shown as changed too."""
    there = source.words.words[span[0] : span[1]]
    here = quote.words[piece.first : piece.last]
    if there[0] != here[0] and there[0] == here[0][0].swapcase() + here[0][1:]:
        here[0] = there[0]
    diff: list[tuple[str, str]] = []
    changed_line = 0
    for changed, i1, i2, j1, j2 in _runs(there, here):
        old = source.words.raw(span[0] + i1, span[0] + i2)
        if not changed:
            diff.append(("same", old))
            continue
        changed_line = changed_line or source.words.lines[min(span[0] + i1, len(source.words.lines) - 1)]
        diff += [("dropped", old)] if old else []
        new = quote.raw(piece.first + j1, piece.first + j2)
        diff += [("added", new)] if new else []
    line = source.words.lines[span[0]]
    return Passage(line, changed_line or line, source.words.raw(*span), tuple(diff))


def _runs(there: list[str], here: list[str]) -> list[tuple[bool, int, int, int, int]]:
    """Whether changed, and from where to where in both: the alternation of what is common and what is not."""
    from difflib import SequenceMatcher

    runs: list[tuple[bool, int, int, int, int]] = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, there, here, autojunk=False).get_opcodes():
        changed = tag != "equal" and letters(there[i1:i2]) != letters(here[j1:j2])
        short = i2 - i1 < _SHORT_RUN or sum(map(len, there[i1:i2])) <= 2 * _SHORT_RUN
        if runs and runs[-1][0] and short and i2 < len(there) and j2 < len(here):
            changed = True
        if runs and runs[-1][0] == changed:
            runs[-1] = (changed, runs[-1][1], i2, runs[-1][3], j2)
        else:
            runs.append((changed, i1, i2, j1, j2))
    return runs
