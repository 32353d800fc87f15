"""Is cached preprocessing older than the code or data that made it?

Why it matters: a change to preprocessing has no effect while the old result is read back.
Cannot tell: whether the edit changed any value; caches whose name is put together elsewhere.
Silent when: the file was written in this run, holds weights, is not made by the user's own code, or is younger than
that code. A cache that the running script makes itself is only said to be reused: every edit of the script would look
like a change of the cache.
"""

from __future__ import annotations

import os
from functools import lru_cache

from clew.observe import files
from clew.observe.places import shown, users_sources
from clew.observe.watch import Answer, Saw, Watch
from clew.observe.watches._data_caches import makes
from clew.records.clue import Unclear
from clew.records.place import Place

SOURCES = 200
LARGEST = 1_000_000
ROOM = 120.0
"""Seconds: a working copy is written file by file, and a cache may be part of it."""


class CacheAge(Watch):
    test = "cache_age"

    def read(self) -> Answer:
        read = [
            held for held in files.opened() if not held.written and held.modified and not files.rewritten(held.path)
        ]
        if not read:
            return Unclear(files.trouble() or "no data file was read")
        reused: Saw | None = None
        named = {os.path.basename(held.path): held for held in reversed(read) if not held.path.endswith(".py")}
        for source, own in [*users_sources().items()][:SOURCES]:
            try:
                edited = os.stat(source).st_mtime
                lines = lines_of(source, edited, tuple(named))
            except (OSError, UnicodeDecodeError):
                continue
            for name, line in lines.items():
                held = named[name]
                if not own and held.modified + ROOM < edited:
                    return _stale(held, source, line, edited)
                if reused is None:
                    reused = _reused(held, source, line)
        if reused is not None:
            return reused
        return Saw("fresh", files=len(read))


@lru_cache(maxsize=2 * SOURCES)
def lines_of(source: str, edited: float, names: tuple[str, ...]) -> dict[str, int]:
    """By name of a file, the line of the source that makes it when it is not there. Asked at every checkpoint, so what
    was read of a source is kept until it changes."""
    del edited
    if os.path.getsize(source) > LARGEST:
        return {}
    with open(source, encoding="utf-8") as file:
        text = file.read()
    return {name: line for name in names if (line := makes(text, name))}


def _stale(held: files.Opened, source: str, line: int, edited: float) -> Saw:
    hours = (edited - held.modified) / 3600
    name = os.path.basename(held.path)
    says = f"{name} is {hours:.1f} hours older than {shown(source)}, which writes it only when it is missing"
    places = (Place(shown(source), line), Place(shown(held.path)), held.place)
    return Saw("stale", file=name, hours_older=hours).at(*places).saying(says)


def _reused(held: files.Opened, source: str, line: int) -> Saw:
    name = os.path.basename(held.path)
    says = f"{name} was read as an earlier run left it; {shown(source)} writes it only when it is missing"
    return Saw("reused", file=name).at(Place(shown(source), line), Place(shown(held.path)), held.place).saying(says)
