"""How a credence is said, and how text is made safe and broken into lines, the same in every view."""

from __future__ import annotations

from collections.abc import Callable

SCALE = (
    (0.97, "almost certain"),
    (0.85, "very likely"),
    (0.65, "likely"),
    (0.35, "even odds"),
    (0.15, "unlikely"),
    (0.03, "very unlikely"),
    (0.0, "almost excluded"),
)
NOT_STATED = "not stated"


def word(credence: float) -> str:
    """The word for a credence; each word begins at the figure beside it in `SCALE`."""
    for least, name in SCALE:
        if credence >= least:
            return name
    return SCALE[-1][1]


def number(credence: float | None) -> str:
    """Two decimals, but never a rounded 1.00 or 0.00: certainty is only shown where it was stated."""
    if credence is None:
        return "?"
    if 0.995 <= credence < 1.0:
        return ">0.99"
    if 0.0 < credence < 0.005:
        return "<0.01"
    return f"{credence:.2f}"


def said(credence: float | None) -> str:
    """Number and word together; the word is that of the number shown."""
    return NOT_STATED if credence is None else f"{number(credence)} {word(round(credence, 2))}"


def _harmful(char: str) -> bool:
    code = ord(char)
    return (
        code < 0x20
        or 0x7F <= code <= 0x9F
        or 0x202A <= code <= 0x202E
        or 0x2066 <= code <= 0x2069
        or 0xD800 <= code <= 0xDFFF
        or code & 0xFFFE == 0xFFFE
    )


def clean(text: str) -> str:
    """One line of text that neither moves a terminal's cursor nor breaks an XML document.

    White space becomes single spaces; control characters, direction overrides, lone surrogates and the code points
    XML forbids become U+FFFD.
    """
    line = " ".join(text.split())
    return "".join("�" if _harmful(char) else char for char in line)


def cells(text: str) -> float:
    """How many terminal cells the text takes."""
    if text.isascii():
        return float(len(text))
    import unicodedata

    return float(
        sum(
            0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
            for char in text
        )
    )


def wrap(text: str, limit: float, measure: Callable[[str], float]) -> list[str]:
    """Break text into lines no wider than `limit`, at spaces where there are any, inside a word where there are none.

    A single character wider than the limit still gets its own line.
    """
    lines: list[str] = []
    line = ""
    for piece in clean(text).split():
        joined = f"{line} {piece}" if line else piece
        if measure(joined) <= limit:
            line = joined
            continue
        if line:
            lines.append(line)
        line = piece
        while measure(line) > limit and len(line) > 1:
            cut = _fitting(line, limit, measure)
            lines.append(line[:cut])
            line = line[cut:]
    if line:
        lines.append(line)
    return lines


def _fitting(word: str, limit: float, measure: Callable[[str], float]) -> int:
    low, high = 1, len(word) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if measure(word[:middle]) <= limit:
            low = middle
        else:
            high = middle - 1
    # A path reads better when it breaks after a separator, unless that wastes most of the line.
    joint = max(word.rfind(mark, 0, low) for mark in "/_-") + 1
    return joint if joint > low // 2 else low
