"""Writing results: to the terminal, and to files that are either whole or not there."""

import os
import sys

from clew.errors import ClewError
from clew.report.text import Page, use_colour, width


def page() -> Page:
    return Page(width(sys.stdout), use_colour(sys.stdout))


def show(made: Page) -> None:
    print(made)


def save(path: str, text: str) -> None:
    """Write a file in one go: an interrupted or refused write leaves what was there before."""
    part = f"{path}.part-{os.getpid()}"
    try:
        with open(part, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        os.replace(part, path)
    except OSError as error:
        if os.path.exists(part):
            os.unlink(part)
        raise ClewError(f"cannot write {path}: {error.strerror}.") from error


def ask(prompt: str) -> str:
    """One answer from a person; the end of their input ends the conversation with nothing recorded."""
    try:
        return input(prompt).strip()
    except EOFError:
        print()
        raise ClewError("no answer was given; nothing was recorded.") from None
