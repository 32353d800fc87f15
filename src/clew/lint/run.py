"""Looking at many files: from the cache, in this process, or in several."""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from clew.lint.cache import Cache, digest, place
from clew.lint.check import Looked, look
from clew.lint.files import Settings, matches
from clew.lint.model import CONFIDENCES, Finding, Trouble
from clew.lint.project import Project
from clew.lint.registry import Rule, load
from clew.lint.source import Unreadable, concerns, decode, notebook, read, read_bytes
from clew.lint.suppress import apply, suppressions

DEEPEST = 8000
"""Frames of Python: a sum of a thousand terms is a thousand calls deep."""
# Below this many files starting other processes takes longer than the work.
FEW = 150


class Result(NamedTuple):
    """What a run over files gave. `asked` are the causes that were looked for in any of them."""

    findings: tuple[Finding, ...]
    troubles: tuple[Trouble, ...]
    files: int
    cached: int
    asked: frozenset[str] = frozenset()


def run(
    paths: list[str], settings: Settings, *, cached: bool = True, jobs: int = 0, given: dict[str, bytes] | None = None
) -> Result:
    """Look at the files. `given` holds the text of files that are not on the disk, or not yet as they should be."""
    given = given or {}
    everything = digest([f"{path}:{_stamp(path)}" for path in paths if path not in given])
    cache = Cache(place() if cached and not given else "", everything)
    found: dict[str, Looked] = {}
    for path in paths:
        known = cache.get(path) if cache.held and path not in given else None
        if known is not None:
            found[path] = known
    missing = [path for path in paths if path not in found]
    hits = len(found)
    for path, looked in work(missing, paths, given, jobs):
        found[path] = looked
        if path not in given:
            cache.put(path, looked)
    cache.save()
    findings: list[Finding] = []
    for path in paths:
        findings += settle(path, found[path], settings, given)
    troubles = tuple(looked.trouble for looked in found.values() if looked.trouble is not None)
    asked = frozenset(cause for looked in found.values() for cause in looked.asked)
    return Result(tuple(findings), troubles, len(paths), hits, asked)


def _stamp(path: str) -> str:
    try:
        said = os.stat(path)
    except OSError:
        return ""
    return f"{said.st_mtime_ns}:{said.st_size}"


def work(missing: list[str], paths: list[str], given: dict[str, bytes], jobs: int) -> Iterator[tuple[str, Looked]]:
    if not missing:
        return
    jobs = jobs or min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
    if jobs > 1 and len(missing) > FEW and not given:
        yield from spread(missing, paths, jobs)
        return
    yield from alone(missing, paths, given)


def alone(missing: list[str], paths: list[str], given: dict[str, bytes]) -> Iterator[tuple[str, Looked]]:
    """In this process, with the collector off: trees hold no circles, and walking them again is half the time."""
    import warnings

    rules: dict[str, Rule] | None = None
    project = Project(paths)
    was_on = gc.isenabled()
    gc.disable()
    deepest = sys.getrecursionlimit()
    sys.setrecursionlimit(max(deepest, DEEPEST))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for path in missing:
                try:
                    data = given[path] if path in given else read_bytes(path)
                except Unreadable as error:
                    yield path, Looked((), Trouble(path, str(error)))
                    continue
                if not concerns(data):
                    yield path, parsed(path, data)
                    continue
                rules = rules if rules is not None else load()
                yield path, look(path, data, project, rules)
    finally:
        sys.setrecursionlimit(deepest)
        if was_on:
            gc.enable()


def parsed(path: str, data: bytes) -> Looked:
    """A file that mentions no library that the rules know: whether it is Python at all."""
    try:
        read(path, data)
    except Unreadable as error:
        return Looked((), Trouble(path, str(error)))
    return Looked((), None)


def chunk(task: tuple[list[str], list[str]]) -> list[tuple[str, Looked]]:
    return list(alone(*task, {}))


def spread(missing: list[str], paths: list[str], jobs: int) -> Iterator[tuple[str, Looked]]:
    """In several processes, each with a stretch of neighbouring files: neighbours import each other."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    size = max(20, len(missing) // (jobs * 4))
    tasks = [(missing[at : at + size], paths) for at in range(0, len(missing), size)]
    load()
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork" if sys.platform == "linux" else "spawn")) as pool:
        for done in pool.map(chunk, tasks):
            yield from done


def settle(path: str, looked: Looked, settings: Settings, given: dict[str, bytes]) -> list[Finding]:
    """The findings of a file that are left by its comments and by the settings."""
    text, cells = comments_of(path, given, bool(looked.findings))
    held = suppressions(text)
    findings = list(looked.findings)
    if held:
        at = {place: line for line, place in enumerate(cells, 1)}
        pairs = [
            (one, at.get((one.cell, one.line), one.line), at.get((one.cell, one.end_line), one.end_line))
            for one in findings
        ]
        findings = [in_cell(one, cells) for one in apply(pairs, held, path)]
        findings.sort(key=lambda one: (one.cell, one.line, one.column, one.rule))
    off = [code for pattern, codes in settings.per_file if matches(path, pattern) for code in codes]
    least = CONFIDENCES.index(settings.confidence)
    return [
        one
        for one in findings
        if settings.wants(one.rule, one.name)
        and not any(one.rule.startswith(code) or one.name == code for code in off)
        and CONFIDENCES.index(one.confidence) <= least
    ]


def in_cell(finding: Finding, cells: tuple[tuple[int, int], ...]) -> Finding:
    if not cells or finding.cell or finding.line > len(cells):
        return finding
    cell, line = cells[finding.line - 1]
    return finding._replace(cell=cell, line=line, end_line=line)


def comments_of(path: str, given: dict[str, bytes], found: bool) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text of a file that has comments for us, and where its lines come from in a notebook; otherwise nothing.
    Where nothing was found a `noqa` switches nothing off, and is nobody's business here."""
    try:
        data = given[path] if path in given else read_bytes(path)
        if b"clew:" not in data and not (found and b"noqa" in data):
            return "", ()
        return notebook(data) if path.endswith(".ipynb") else (decode(data), ())
    except Unreadable:
        return "", ()


def text_of(path: str, given: dict[str, bytes]) -> Callable[[Finding], list[str]]:
    """The lines that a finding of a file lies in, for showing them."""
    try:
        data = given[path] if path in given else read_bytes(path)
        text, cells = notebook(data) if path.endswith(".ipynb") else (decode(data), ())
    except Unreadable:
        return lambda _: []
    lines: list[str] = text.split("\n")
    if not cells:
        return lambda _: lines
    by_cell: dict[int, list[str]] = {}
    for (cell, _), line in zip(cells, lines, strict=False):
        by_cell.setdefault(cell, []).append(line)

    def pick(finding: Finding) -> list[str]:
        return by_cell.get(finding.cell, [])

    return pick
