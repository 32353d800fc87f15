"""Where the archive lies: in the nearest `.clew` upwards, or in CLEW_HOME."""

import os

from clew.home import home


def runs_folder(at: str = "") -> str:
    return os.path.join(at or home(), "runs")


def objects_folder(at: str = "") -> str:
    return os.path.join(at or home(), "objects")


def make(folder: str) -> None:
    """Make a folder of the archive, kept out of version control. Raises OSError."""
    if not os.path.isdir(folder):
        os.makedirs(folder, exist_ok=True)
    ignore = os.path.join(folder, ".gitignore")
    if not os.path.exists(ignore):
        with open(ignore, "w", encoding="ascii") as file:
            file.write("*\n")
