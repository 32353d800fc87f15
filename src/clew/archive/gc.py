"""Throwing old runs away, and the contents that nothing refers to any more.

A running run is never removed, nor is anything that cannot be read: what is not understood may be wanted.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from clew.archive import code, runs
from clew.archive.home import objects_folder, runs_folder
from clew.archive.model import CODE, Record, Run, epoch
from clew.errors import ClewError

LEFTOVER_SECONDS = 86_400.0
"""A folder that was being made or removed this long ago was left behind by a process that died."""


class Cleared(NamedTuple):
    """What was removed, or would be: run ids, counts, and the bytes that this frees."""

    runs: tuple[str, ...]
    objects: int
    leftovers: int
    freed: int
    running: tuple[str, ...]
    remarks: tuple[str, ...]
    dry_run: bool


def gc(keep: int | None = None, older_than: float | None = None, dry_run: bool = False, home: str = "") -> Cleared:
    """Remove runs that are neither among the newest `keep` nor younger than `older_than` seconds.

    Only the conditions that are given count; with neither, no run is removed, only what nothing refers to.
    """
    if keep is not None and keep < 0:
        raise ClewError(f"the number of runs to keep cannot be {keep}.")
    listing = runs.all_runs(home)
    remarks = [*listing.remarks]
    if listing.remarks:
        remarks.append("unreadable runs are left alone; delete their folders by hand if they are not wanted")
    objects = objects_folder(home)
    if not os.path.isdir(objects):
        return _clear(listing.records, keep, older_than, dry_run, home, remarks, False)
    with code.held(objects, fcntl.LOCK_EX) as locked:
        if not locked:
            remarks.append("source files were left alone: another clew is using them")
        return _clear(listing.records, keep, older_than, dry_run, home, remarks, locked)


def _clear(
    records: tuple[Record, ...],
    keep: int | None,
    older_than: float | None,
    dry_run: bool,
    home: str,
    remarks: list[str],
    objects: bool,
) -> Cleared:
    running = tuple(record.run.id for record in records if record.state == "running")
    removed, freed = [], 0
    for record in _unwanted(records, keep, older_than):
        size = _size(record.run.folder)
        if not dry_run:
            # The state is looked at once more: the listing may be seconds old.
            try:
                if runs.load(record.run).state == "running":
                    continue
                _remove(record.run)
            except (ClewError, OSError) as error:
                remarks.append(f"{record.run.id} was not removed: {error}")
                continue
        removed.append(record.run.id)
        freed += size
    count, bytes_ = _objects(home, set(removed), dry_run, remarks) if objects else (0, 0)
    left, more = _leftovers(home, dry_run)
    return Cleared(tuple(removed), count, left, freed + bytes_ + more, running, tuple(remarks), dry_run)


def _unwanted(records: tuple[Record, ...], keep: int | None, older_than: float | None) -> list[Record]:
    if keep is None and older_than is None:
        return []
    ended = [record for record in records if record.state != "running"]
    chosen = ended[: max(0, len(ended) - keep)] if keep is not None else ended
    if older_than is not None:
        limit = time.time() - older_than
        chosen = [record for record in chosen if _last_active(record) <= limit]
    return chosen


def _last_active(record: Record) -> float:
    return (epoch(record.end.ended) if record.end is not None else 0.0) or runs.last_change(record.run)


def _remove(run: Run) -> None:
    """Out of the listing first, in one step: what a crash leaves behind is a leftover and no half run."""
    import shutil

    gone = os.path.join(os.path.dirname(run.folder), runs.GONE + run.id)
    os.rename(run.folder, gone)
    shutil.rmtree(gone)


def _objects(home: str, removed: set[str], dry_run: bool, remarks: list[str]) -> tuple[int, int]:
    """Remove contents that no run names. If one run's list cannot be read, any content may be its own."""
    needed: set[str] = set()
    base = runs_folder(home)
    try:
        for name in os.listdir(base):
            if name in removed or name.startswith(runs.GONE):
                continue
            run = Run(name, os.path.join(base, name))
            if os.path.exists(run.path(CODE)):
                needed |= {item.digest for item in code.read(run)}
    except (OSError, ClewError) as error:
        remarks.append(f"source files were left alone: {error}")
        return 0, 0
    count = freed = 0
    for digest, path in _stored(objects_folder(home)):
        if digest in needed:
            continue
        try:
            size = os.stat(path).st_size
            if not dry_run:
                os.unlink(path)
        except OSError as error:
            remarks.append(f"{path} was not removed: {error.strerror}")
            continue
        count, freed = count + 1, freed + size
    return count, freed


def _stored(objects: str) -> Iterator[tuple[str, str]]:
    for first in sorted(os.listdir(objects)):
        folder = os.path.join(objects, first)
        if len(first) == 2 and os.path.isdir(folder):
            for rest in sorted(os.listdir(folder)):
                yield first + rest, os.path.join(folder, rest)


def _leftovers(home: str, dry_run: bool) -> tuple[int, int]:
    """Folders of processes that died while they made or removed a run."""
    import shutil

    base = runs_folder(home)
    count = freed = 0
    for name in os.listdir(base) if os.path.isdir(base) else []:
        path = os.path.join(base, name)
        if name.startswith(runs.GONE) or (name.startswith(runs.STAGING) and _age(path) > LEFTOVER_SECONDS):
            count, freed = count + 1, freed + _size(path)
            if not dry_run:
                shutil.rmtree(path, ignore_errors=True)
    return count, freed


def _age(path: str) -> float:
    """Seconds since it was changed; 0 when somebody has just renamed it."""
    try:
        return time.time() - os.stat(path).st_mtime
    except OSError:
        return 0.0


def _size(folder: str) -> int:
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(where, name)).st_size
    return total
