"""What was found before, by file: valid while the file and all that the answer rested on are unchanged."""

import os
from typing import Any

from clew import __version__
from clew.lint.check import Looked
from clew.lint.model import Edit, Finding, Fix, Related, Trouble

Stamp = list[int]


class Cache:
    """One file per working folder. A cache that cannot be read or written is no error: the work is done anew."""

    def __init__(self, path: str, everything: str) -> None:
        self.path, self.everything = path, everything
        self.held: dict[str, Any] = {}
        self.read: dict[str, int] = {}  # files that answers rest on, by number: many answers rest on the same ones
        self.stale: set[int] = set()
        self.changed = False
        self.stamps: dict[str, Stamp | None] = {}
        if path:
            self._load()

    def _load(self) -> None:
        import json

        try:
            with open(self.path, encoding="utf-8") as file:
                table = json.load(file)
            if table["made_by"] != fingerprint():
                return
            held, read = dict(table["files"]), [(str(path), stamp) for path, stamp in table["read"]]
        except (OSError, ValueError, KeyError, TypeError):
            return
        self.held = held
        self.read = {path: number for number, (path, _) in enumerate(read)}
        self.stale = {number for number, (path, stamp) in enumerate(read) if self.stamp(path) != stamp}

    def stamp(self, path: str) -> Stamp | None:
        if path not in self.stamps:
            try:
                said = os.stat(path)
                self.stamps[path] = [said.st_mtime_ns, said.st_size]
            except OSError:
                self.stamps[path] = None
        return self.stamps[path]

    def get(self, path: str) -> Looked | None:
        """What was found in a file, when that still holds."""
        entry = self.held.get(os.path.abspath(path))
        if entry is None or entry["stamp"] != self.stamp(os.path.abspath(path)):
            return None
        if entry["path"] != path or (entry["wide"] and entry["wide"] != self.everything):
            return None
        if not self.stale.isdisjoint(entry["reads"]):
            return None
        trouble = Trouble(*entry["trouble"]) if entry["trouble"] else None
        return Looked(tuple(finding(row) for row in entry["findings"]), trouble, asked=tuple(entry["asked"]))

    def put(self, path: str, looked: Looked) -> None:
        full = os.path.abspath(path)
        reads = [self.read.setdefault(other, len(self.read)) for other in looked.reads]
        self.held[full] = {
            "path": path,
            "stamp": self.stamp(full),
            "reads": reads,
            "new": True,
            "wide": self.everything if looked.wide else "",
            "findings": looked.findings,
            "asked": looked.asked,
            "trouble": looked.trouble,
        }
        self.changed = True

    def save(self) -> None:
        if not self.path or not self.changed:
            return
        import json

        part = f"{self.path}.part-{os.getpid()}"
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            with open(part, "w", encoding="utf-8") as file:
                json.dump({"made_by": fingerprint(), "read": self.rested(), "files": self.fresh()}, file)
            os.replace(part, self.path)
        except OSError:
            if os.path.exists(part):
                os.unlink(part)

    def rested(self) -> list[tuple[str, Stamp | None]]:
        """Every file that an answer rests on, as it is now."""
        return [(path, self.stamp(path)) for path in self.read]

    def fresh(self) -> dict[str, Any]:
        """The answers without those that rest on files which have changed since."""
        return {
            path: entry
            for path, entry in self.held.items()
            if entry.pop("new", False) or self.stale.isdisjoint(entry["reads"])
        }


def finding(row: list[Any]) -> Finding:
    fix = row[10]
    if fix is not None:
        fix = Fix(fix[0], fix[1], tuple(Edit(*edit) for edit in fix[2]))
    return Finding._make([*row[:10], fix, tuple(Related(*one) for one in row[11]), row[12]])


def fingerprint() -> str:
    """What made the findings: this version of clew, and these very files of it."""
    folder = os.path.dirname(__file__)
    said = [__version__]
    for at in (folder, os.path.join(folder, "rules")):
        for entry in sorted(os.scandir(at), key=lambda one: one.name):
            if entry.name.endswith(".py"):
                stat = entry.stat()
                said.append(f"{entry.name}:{stat.st_mtime_ns}:{stat.st_size}")
    return digest(said)


def digest(words: list[str]) -> str:
    from hashlib import sha256

    return sha256("\n".join(words).encode("utf-8", errors="surrogateescape")).hexdigest()[:32]


def place() -> str:
    """Where the findings of this working folder are kept."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "clew", "lint", f"{digest([os.getcwd()])}.json")
