"""Where the archive lies: in the nearest `.clew` upwards, or in CLEW_HOME."""

import os

from clew.home import home


def runs_folder(at: str = "") -> str:
    return os.path.join(at or home(), "runs")


def objects_folder(at: str = "") -> str:
    return os.path.join(at or home(), "objects")
