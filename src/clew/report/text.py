"""Laying out plain text: wrapping, colour when it is wanted, numbers as people say them."""

import math
import os
import sys
from typing import TextIO

from clew.evidence.words import cells, harmless, paint, wrap

BOLD, DIM, RED, GREEN, YELLOW, BLUE = "1", "2", "31", "32", "33", "36"


def use_colour(stream: TextIO) -> bool:
    """Colour only for a person at a terminal, and never against NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width(stream: TextIO | None = None) -> int:
    """The columns there are, at most 100: longer lines are hard to read."""
    try:
        columns = int(os.environ.get("COLUMNS", "")) if os.environ.get("COLUMNS") else 0
        columns = columns or os.get_terminal_size((stream or sys.stdout).fileno()).columns
    except (OSError, ValueError):
        columns = 80
    return max(40, min(columns, 100))


class Page:
    """Lines of text in the making."""

    def __init__(self, columns: int = 80, colour: bool = False) -> None:
        self.columns, self.colour = columns, colour
        self.lines: list[str] = []

    def paint(self, text: str, *codes: str) -> str:
        return paint(text, *codes) if self.colour else text

    def head(self, text: str) -> None:
        if self.lines:
            self.lines.append("")
        self.lines.append(self.paint(text, BOLD))

    def line(self, text: str = "", *codes: str) -> None:
        self.lines.append(self.paint(text.replace("\n", "�"), *codes))

    def say(self, text: str, indent: int = 0, first: str = "", *codes: str) -> None:
        """A paragraph, wrapped. `first` stands before it on the first line and is what later lines align with."""
        lead = " " * indent
        room = max(20, self.columns - indent - len(first))
        for row, line in enumerate(wrap(text, room, cells) or [""]):
            start = first if row == 0 else " " * len(first)
            self.lines.append(f"{lead}{start}{self.paint(line, *codes)}")

    def __str__(self) -> str:
        return harmless("\n".join(line.rstrip() for line in self.lines))


def percent(share: float) -> str:
    """A credence as people read it: never 0 % or 100 %."""
    if share < 0.01:
        return "<1 %"
    if share > 0.99:
        return ">99 %"
    return f"{100 * share:.0f} %"


def number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def seconds(value: float) -> str:
    """A duration, roughly."""
    if value < 90:
        return f"{value:.0f} s"
    if value < 5400:
        return f"{value / 60:.0f} min"
    return f"{value / 3600:.0f} h"
