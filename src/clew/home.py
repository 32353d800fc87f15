"""Where clew keeps what it is told to keep."""

import os

NAME = ".clew"


def home(start: str = ".") -> str:
    """The nearest `.clew` folder upwards from `start`, or where it would be made; CLEW_HOME names another."""
    if chosen := os.environ.get("CLEW_HOME"):
        return os.path.abspath(chosen)
    folder = os.path.abspath(start)
    while True:
        if os.path.isdir(os.path.join(folder, NAME)):
            return os.path.join(folder, NAME)
        above = os.path.dirname(folder)
        if above == folder:
            return os.path.join(os.path.abspath(start), NAME)
        folder = above


def make(folder: str) -> None:
    """Make a folder for what is kept: its owner's alone, and out of version control. Raises OSError."""
    missing = []
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for each in reversed(missing):
        os.makedirs(each, 0o700, exist_ok=True)
    if missing:
        with open(os.path.join(missing[-1], ".gitignore"), "w", encoding="ascii", opener=private) as file:
            file.write("*\n")


def private(path: str, flags: int) -> int:
    """An opener for `open`: what is kept is for its owner alone."""
    return os.open(path, flags, 0o600)
