"""Where cases live, and reading one back from its log.

A case is a folder `.clew/cases/ID` below the nearest `.clew` upwards from here; `.clew/cases/current` names the one
that commands mean when none is given.
"""

import os
import re
from typing import Any

from clew.case import log
from clew.errors import ClewError, did_you_mean
from clew.home import home, private
from clew.records.case import Case, Closing, Entry, HeldClue, Note, Own, Preflight, Worry
from clew.records.clue import Clue


def _cases() -> str:
    return os.path.join(home(), "cases")


def all_ids() -> list[str]:
    try:
        names = sorted(os.listdir(_cases()))
    except OSError:
        return []
    return [name for name in names if os.path.isfile(os.path.join(_cases(), name, log.NAME))]


def create(data: dict[str, Any]) -> Case:
    """Open a case under an id made from its symptom, and make it the current one."""
    slug = "-".join(re.findall(r"[a-z0-9]+", data["symptom"].lower())[:6])[:48] or "case"
    number = 1
    while True:
        name = slug if number == 1 else f"{slug}-{number}"
        try:
            log.create(os.path.join(_cases(), name), data)
            break
        except FileExistsError:
            number += 1
    make_current(name)
    return load(name)


def make_current(name: str) -> None:
    path = os.path.join(_cases(), "current")
    part = os.path.join(_cases(), f".current.{os.getpid()}")
    try:
        with open(part, "w", encoding="utf-8", opener=private) as file:
            file.write(name + "\n")
        os.replace(part, path)
    except OSError as error:
        raise ClewError(f"cannot write {path}: {error.strerror}.") from error


def current() -> str:
    try:
        with open(os.path.join(_cases(), "current"), encoding="utf-8") as file:
            return file.readline(4096).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def find(name: str = "") -> str:
    """The folder of the case that is meant: an id, a path, or the current one."""
    if name in ("", "current"):
        name = current()
        if not name:
            raise ClewError('there is no case here yet; open one with: clew case new "what you see"')
    folder = os.path.join(_cases(), name)
    if os.sep not in name and os.path.isfile(os.path.join(folder, log.NAME)):
        return folder
    if os.path.isfile(os.path.join(name, log.NAME)):
        return os.path.abspath(name)
    raise ClewError(
        f"there is no case {name!r}{did_you_mean(name, all_ids()) or '; `clew case list` shows what there is.'}"
    )


def load(name: str = "") -> Case:
    """Read a case back from its log."""
    folder = find(name)
    content = log.read(folder)
    try:
        case = _replay(folder, content.entries)
    except (KeyError, TypeError, OverflowError, ValueError, AttributeError) as error:
        raise ClewError(
            f"{os.path.join(folder, log.NAME)} has an entry of a form this clew does not know: {error}."
        ) from error
    remarks = list(case.remarks)
    if content.torn:
        remarks.append(f"the last {len(content.torn)} bytes of the log are torn (a write was cut off) and are left out")
    return case._replace(remarks=tuple(remarks))


def _replay(folder: str, entries: tuple[Entry, ...]) -> Case:
    if entries[0].kind != "opened":
        raise ValueError(f"the first is {entries[0].kind!r}, not 'opened'")
    opened = entries[0].data
    retracted = {int(entry.data["entry"]): str(entry.data["reason"]) for entry in entries if entry.kind == "retract"}
    closing = None
    remarks = []
    for entry in entries:
        if entry.kind == "closed" and entry.number not in retracted:
            closing = _closing(entry)
        elif entry.kind == "reopened":
            closing = None
        elif entry.kind == "set_aside":
            remarks.append(
                f"entry {entry.number}: {entry.data['bytes']} torn bytes were moved to {entry.data['kept_in']}"
            )
    kinds = {
        kind: [entry for entry in entries if entry.kind == kind] for kind in ("clue", "note", "hypothesis", "preflight")
    }
    return Case(
        id=os.path.basename(folder),
        folder=folder,
        symptom=str(opened["symptom"]),
        domain=str(opened.get("domain", "general")),
        setting=str(opened.get("setting", "complaint")),
        script=str(opened.get("script", "")),
        code=str(opened.get("code", "")),
        opened_at=entries[0].at,
        entries=entries,
        clues=tuple(_clue(entry, retracted) for entry in kinds["clue"]),
        notes=tuple(_note(entry) for entry in kinds["note"] if entry.number not in retracted),
        own=tuple(_own(entry, retracted) for entry in kinds["hypothesis"]),
        preflights=tuple(_preflight(entry) for entry in kinds["preflight"] if entry.number not in retracted),
        closing=closing,
        remarks=tuple(remarks),
    )


def _clue(entry: Entry, retracted: dict[int, str]) -> HeldClue:
    clue = Clue.from_json(entry.data["clue"])
    return HeldClue(
        entry.number, clue, entry.at, entry.by, str(entry.data.get("code", "")), retracted.get(entry.number, "")
    )


def _note(entry: Entry) -> Note:
    data = entry.data
    return Note(entry.number, entry.at, entry.by, str(data["part"]), str(data["text"]), str(data.get("about", "")))


def _own(entry: Entry, retracted: dict[int, str]) -> Own:
    data = entry.data
    return Own(
        entry.number,
        str(data["id"]),
        str(data["says"]),
        float(data["prior"]),
        tuple(sorted((str(test), str(outcome)) for test, outcome in data.get("expects", {}).items())),
        str(data.get("check", "")),
        retracted.get(entry.number, ""),
    )


def _preflight(entry: Entry) -> Preflight:
    worries = tuple(Worry(w.get("cause", ""), w.get("says", ""), w.get("check", "")) for w in entry.data["worries"])
    return Preflight(entry.number, entry.at, str(entry.data["surprise"]), worries, str(entry.data.get("script", "")))


def _closing(entry: Entry) -> Closing:
    data = entry.data
    clue = data.get("clue")
    return Closing(
        entry.number,
        entry.at,
        str(data["cause"]),
        str(data.get("evidence", "")),
        int(clue) if clue is not None else None,
        str(data.get("unverified", "")),
    )
