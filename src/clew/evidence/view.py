"""What the terminal shows of a check: one line for each quote, and below it only what is not as it should be.

Changed words stand in their context as `git diff --word-diff` shows them: [-in the source-] {+in the quote+}; in
colour the brackets go and the words are red and green.
"""

from collections.abc import Iterator

from clew.evidence.quotes import Check, QuoteCheck
from clew.evidence.quotes_judge import LeftOut, Passage, SentenceCheck
from clew.evidence.words import clean, paint

_MARGIN = 12
_MOST_ITEMS = 6
_MOST_LINES = 4
_ORDER = ("verbatim", "elided", "elsewhere", "altered", "absent", "source_missing")
_NAMES = {"source_missing": "no source"}
_CODES = {
    "verbatim": "32",
    "elided": "33",
    "elsewhere": "33",
    "altered": "31",
    "absent": "31",
    "source_missing": "31",
    "dropped": "31",
    "added": "32",
    "dim": "2",
}

Styled = list[tuple[str, str]]
"""Words, each with the name of its style or ""."""


def check_lines(check: Check, width: int, colour: bool) -> list[str]:
    """The lines of a report on `check`, none longer than `width` unless a single word is."""
    width = max(width, 40)
    lines: list[str] = []
    for quote in check.quotes:
        lines.append(_head(quote, width, colour))
        lines += _items(quote, width, colour)
    if lines:
        lines.append("")
    return lines + _wrapped([(word, "") for word in _total(check).split()], "", 0, width, colour)


def _head(quote: QuoteCheck, width: int, colour: bool) -> str:
    word = _NAMES.get(quote.verdict, quote.verdict)
    claim = _middle(clean(quote.claim), max(12, width - _MARGIN - 24))
    place = clean(quote.file)
    if quote.lines is not None:
        first, last = quote.lines
        place += f":{first}" if first == last else f":{first}-{last}"
    place = _middle(place, width - _MARGIN - len(claim) - 2)
    verdict = _paint(word, quote.verdict, colour) + " " * (_MARGIN - len(word))
    return f"{verdict}{claim}  {_paint(place, 'dim', colour)}".rstrip()


def _items(quote: QuoteCheck, width: int, colour: bool) -> list[str]:
    items: list[list[str]] = []
    if quote.note:
        items.append(_wrapped(_words(clean(quote.note)), "", _MARGIN, width, colour))
    for sentence in quote.sentences:
        items += [_wrapped(styled, label, _MARGIN, width, colour) for label, styled in _sentence(sentence, quote)]
        items += [_left_out(gap, width, colour) for gap in quote.left_out if gap.after == sentence.number]
    lines = [line for item in items[:_MOST_ITEMS] for line in item]
    if len(items) > _MOST_ITEMS:
        lines.append(f"{' ' * _MARGIN}and {len(items) - _MOST_ITEMS} more")
    return lines


def _sentence(sentence: SentenceCheck, quote: QuoteCheck) -> Iterator[tuple[str, Styled]]:
    said = f'"{clean(sentence.text)}"' if sentence.text else f"sealed sentence {sentence.number + 1}"
    if sentence.verdict == "elsewhere":
        cited = "outside the cited lines" if quote.lines is not None else "in the file"
        yield f"line {sentence.line}", _words(f"{cited}: {_middle(said, 100)}")
    elif sentence.verdict == "absent":
        yield "", _words(f"not in the file: {_middle(said, 120)}")
    elif sentence.verdict == "altered" and not sentence.passages:
        yield f"line {sentence.line}", _words(f"parts of it are missing or in another order: {_middle(said, 100)}")
    elif sentence.verdict == "altered":
        for passage in sentence.passages:
            yield f"line {passage.changed_line}", _changes(passage)


def _left_out(gap: LeftOut, width: int, colour: bool) -> list[str]:
    styled = [*_words("left out:"), *((word, "dim") for word in _middle_words(gap.text, 8, 7))]
    return _wrapped(styled, f"line {gap.line}", _MARGIN, width, colour)


def _changes(passage: Passage) -> Styled:
    """The changed words with a few of their neighbours."""
    styled: Styled = []
    last = len(passage.diff) - 1
    for index, (kind, text) in enumerate(passage.diff):
        if kind == "same":
            before, after = (0, 7) if index == 0 else (6, 0) if index == last else (5, 5)
            styled += [(word, "") for word in _middle_words(text, before, after)]
            continue
        words = _middle_words(text, 8, 7)
        styled += [(word, kind) for word in words]
    return styled


def _words(text: str) -> Styled:
    return [(word, "") for word in text.split()]


def _middle_words(text: str, first: int, last: int) -> list[str]:
    """The first and last words of a text, with an ellipsis for what is between."""
    words = clean(text).split()
    if len(words) <= first + last + 1:
        return words
    return [*words[:first], "...", *words[len(words) - last :]]


def _middle(text: str, room: int) -> str:
    """A text cut in the middle to fit."""
    if len(text) <= room:
        return text
    head = max(1, (room - 3) // 2)
    return f"{text[:head]}...{text[len(text) - max(1, room - 3 - head) :]}"


def _wrapped(styled: Styled, label: str, margin: int, width: int, colour: bool) -> list[str]:
    """Words in lines behind a margin that holds the label; what passes the fourth line is cut."""
    pieces = _marked(styled, colour)
    lines: list[str] = []
    line, length = f"{'  ' + label if label else '':<{margin}}", margin
    if len(line) > margin:
        lines.append(line)
        line = " " * margin
    for plain, painted in pieces:
        if length > margin and length + 1 + len(plain) > width:
            lines.append(line)
            line, length = " " * margin, margin
        gap = "" if length == margin else " "
        line += gap + painted
        length += len(gap) + len(plain)
    lines.append(line)
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 1], f"{' ' * margin}..."]
    return lines


def _marked(styled: Styled, colour: bool) -> list[tuple[str, str]]:
    """Each word as it is measured and as it is printed. Without colour, changed runs get brackets."""
    if colour:
        return [(word, _paint(word, style, True)) for word, style in styled]
    signs = {"dropped": ("[-", "-]"), "added": ("{+", "+}")}
    pieces: list[tuple[str, str]] = []
    for index, (word, style) in enumerate(styled):
        opening, closing = signs.get(style, ("", ""))
        if index and styled[index - 1][1] == style:
            opening = ""
        if index + 1 < len(styled) and styled[index + 1][1] == style:
            closing = ""
        pieces.append((opening + word + closing, opening + word + closing))
    return pieces


def _paint(text: str, style: str, colour: bool) -> str:
    code = _CODES.get(style, "")
    return paint(text, code) if colour and code else text


def _total(check: Check) -> str:
    if not check.quotes:
        return "No quotes to check."
    sentences = [sentence for quote in check.quotes for sentence in quote.sentences]
    counts = [(verdict, sum(quote.verdict == verdict for quote in check.quotes)) for verdict in _ORDER]
    said = ", ".join(f"{count} {_NAMES.get(verdict, verdict)}" for verdict, count in counts if count)
    whole = sum(sentence.verdict == "verbatim" for sentence in sentences)
    many = f"{len(check.quotes)} quotes" if len(check.quotes) > 1 else "1 quote"
    return f"{many}: {said}. {whole} of {len(sentences)} sentences stand word for word where they are cited."
