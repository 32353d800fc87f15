"""TensorBoard folders: every folder with event files is a run; its settings stand in its name or in hparams.yaml."""

import os
import re
from collections.abc import Callable

from clew.sweep.points import Collected, Found, Point
from clew.sweep.table import cell

Scalars = Callable[[str], tuple[list[tuple[str, int, float]], list[str]]]
"""Reads an event file: every scalar as (name, step, value), and remarks."""
SETTING = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*?)[=:]([^,;/\s]+?)(?=[,;/\s]|_[A-Za-z]+=|$)")


def event_files(path: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for at, folders, names in os.walk(path):
        folders.sort()
        held = [os.path.join(at, name) for name in sorted(names) if "tfevents" in name]
        if held:
            found[at] = held
    return found


def settings_in(name: str) -> dict[str, object]:
    """`lr=0.1,seed=3` in the name of a folder."""
    return {key.strip("_"): cell(value) for key, value in SETTING.findall(name)}


def _hparams(folder: str) -> dict[str, object]:
    found: dict[str, object] = {}
    try:
        with open(os.path.join(folder, "hparams.yaml"), encoding="utf-8", errors="replace") as file:
            for line in file:
                name, sign, value = line.strip().partition(": ")
                if sign and not line.startswith((" ", "#", "-")):
                    found[name] = cell(value.strip("'\""))
    except OSError:
        return found
    return found


def read_events(path: str, scalars: Scalars, since: float = 0.0) -> Collected:
    runs, remarks = [], []
    for folder, files in event_files(path).items():
        try:
            updated = max(os.stat(name).st_mtime for name in files)
            if updated < since:
                continue
            points: list[Point] = []
            for name in files:
                found, said = scalars(name)
                points += [Point(*one) for one in found]
                remarks += [f"{name}: {one}" for one in said]
        except OSError as error:
            remarks.append(f"{folder} could not be read: {error.strerror}.")
            continue
        below = os.path.relpath(folder, path)
        config = {**settings_in(below), **_hparams(folder)}
        group = os.path.dirname(below) or os.path.basename(os.path.abspath(path))
        runs.append(Found(below, folder, group, "finished", "", updated, config, tuple(points)))
    return Collected(tuple(runs), tuple(remarks))
