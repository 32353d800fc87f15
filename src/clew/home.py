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
