"""How a credence is said, and how text is made safe and broken into lines, the same in every view."""

from __future__ import annotations

import re
from collections.abc import Callable

INK = "\ufdd0"
"""No character: no foreign text has a reason to hold it."""
ERASE = f"{INK}[K"
"""Empties the line that progress stands on."""
_OWN = r"\[(?:K|(?:[012]|3[1236])(?:;(?:[012]|3[1236]))*m)"
_CONTROLS = "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069"
_FORBIDDEN = "".join(chr(plane << 16 | 0xFFFE) + chr(plane << 16 | 0xFFFF) for plane in range(17))
_HARMFUL = re.compile(rf"(?P<gone>\x1b\[[0-9;]*m|\r(?=\n))|{INK}(?!{_OWN})|[{_CONTROLS}\ud800-\udfff{_FORBIDDEN}]")

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


def paint(text: str, *codes: str) -> str:
    """Text in a colour. The codes stand behind INK, which `on_terminal` turns into a terminal's escape character."""
    return f"{INK}[{';'.join(codes)}m{text}{INK}[0m" if codes and text else text


def harmless(text: str) -> str:
    """Text that brings nothing to a terminal that it would obey: foreign colours go; control characters, direction
    overrides, lone surrogates and the code points that XML forbids become U+FFFD."""
    return text if text.isascii() and text.isprintable() else _HARMFUL.sub(lambda it: "" if it["gone"] else "�", text)


def on_terminal(text: str) -> str:
    """What may be written to a terminal or a pipe: harmless, with clew's own colours and ERASE."""
    return harmless(text).replace(ERASE, "\r\x1b[K").replace(INK, "\x1b")


def clean(text: str) -> str:
    """One harmless line: white space becomes single spaces."""
    return harmless(" ".join(text.split())).replace(INK, "�")


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
