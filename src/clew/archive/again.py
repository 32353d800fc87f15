"""The same command on the same code: a run made ready to run again.

The source files are set up as they were in a new folder, with copies of what else the original folder holds around
them: whatever the run writes there, the user's own files stay as they are.
"""

import os
import shutil
from collections.abc import Container, Iterator
from contextlib import suppress
from typing import NamedTuple

from clew.archive import code, runs, setting
from clew.archive.model import Record, Run, SourceFile, home_of
from clew.errors import ClewError

NOT_COPIED = {".clew", ".git", "__pycache__", ".hg", ".svn"}


class Plan(NamedTuple):
    """`command` is to be run in `folder`, with `environment` set and `unset` taken away. `remarks` say what differs."""

    run: Run
    folder: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    unset: tuple[str, ...]
    files: tuple[str, ...]
    outside: tuple[str, ...]
    remarks: tuple[str, ...]


def rerun_plan(run: Run, into: str = "") -> Plan:
    """Set the code of a run up in a new folder (`into`, or a temporary one) and say how to run it there."""
    record = runs.load(run)
    if not record.command:
        raise ClewError(f"the run {run.id} has no command to repeat.")
    listed = code.read(run)
    inside = [item for item in listed if _is_inside(item.path)]
    outside = [item for item in listed if not _is_inside(item.path)]
    contents = {os.path.normpath(item.path): code.fetch(run, item) for item in inside}
    folder = _new_folder(into, run)
    try:
        whole = _set_up(folder, record.cwd, contents)
    except ClewError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    remarks = _remarks(record, inside, outside, whole)
    wanted = {name: value for name, value in record.environment if name not in setting.LAUNCHERS}
    if "PYTHONPATH" in wanted:
        moved = (_moved(part, record.cwd, folder) for part in wanted["PYTHONPATH"].split(os.pathsep))
        wanted["PYTHONPATH"] = os.pathsep.join(moved)
    return Plan(
        run=run,
        folder=folder,
        command=tuple(_word(word, record.cwd, folder, contents) for word in record.command),
        environment=(*wanted.items(), ("CLEW_HOME", home_of(run))),
        unset=tuple(sorted(name for name in setting.variables() if name not in wanted)),
        files=tuple(sorted(contents)),
        outside=tuple(item.path for item in outside),
        remarks=tuple(remarks),
    )


def _is_inside(path: str) -> bool:
    """An archive may come from somebody else: nothing is ever written outside the new folder."""
    return not os.path.isabs(path) and os.path.normpath(path).split(os.sep)[0] not in ("..", ".")


def _new_folder(into: str, run: Run) -> str:
    try:
        if into:
            os.makedirs(into)
            return os.path.abspath(into)
        import tempfile

        return tempfile.mkdtemp(prefix=f"clew-rerun-{run.id}-")
    except OSError as error:
        raise ClewError(
            f"cannot restore the code of {run.id} in {into or 'a new folder'}: {error.strerror}."
        ) from error


def _set_up(folder: str, cwd: str, contents: dict[str, bytes]) -> bool:
    """Write the source files, and copy what else the original folder holds; False when that folder is gone."""
    try:
        there = os.path.isdir(cwd)
        if there:
            _check_room(cwd, folder)
            _copy(cwd, folder, contents)
        for path, content in contents.items():
            target = os.path.join(folder, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                file.write(content)
        return there
    except OSError as error:
        raise ClewError(f"cannot set the code up in {folder}: {error.strerror}.") from error


def _check_room(cwd: str, folder: str) -> None:
    room = shutil.disk_usage(folder).free // 2
    for path, _ in _held(cwd, frozenset((os.path.realpath(folder),))):
        room -= os.stat(path).st_size
        if room < 0:
            raise ClewError(
                f"a rerun works on a copy of {cwd}, which takes more than half of the free space beside {folder}; "
                "set TMPDIR to a folder with more."
            )


def _held(source: str, above: frozenset[str], below: str = "") -> Iterator[tuple[str, str]]:
    """The folders and files in a folder, and their paths within it. Links are followed: they lead to files of the
    user's that the run might write to."""
    above = above | {os.path.realpath(source)}
    with os.scandir(source) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        path = os.path.join(below, entry.name)
        if entry.is_dir():
            environment = os.path.exists(os.path.join(entry.path, "pyvenv.cfg"))
            if entry.name not in NOT_COPIED and not environment and os.path.realpath(entry.path) not in above:
                yield entry.path, path
                yield from _held(entry.path, above, path)
        elif entry.is_file():
            yield entry.path, path


def _copy(source: str, target: str, besides: Container[str]) -> None:
    for path, below in _held(source, frozenset((os.path.realpath(target),))):
        if os.path.isdir(path):
            os.makedirs(os.path.join(target, below), exist_ok=True)
        elif below not in besides:
            with suppress(PermissionError):  # what clew cannot read, the run could not either
                shutil.copy2(path, os.path.join(target, below))


def _moved(path: str, cwd: str, folder: str) -> str:
    if path == cwd:
        return folder
    return os.path.join(folder, path[len(cwd) + 1 :]) if path.startswith(cwd.rstrip(os.sep) + os.sep) else path


def _word(word: str, cwd: str, folder: str, contents: dict[str, bytes]) -> str:
    """A source file that the command names by its full path is the one of the snapshot."""
    if os.path.isabs(word) and code.shown(os.path.normpath(word), cwd) in contents:
        return _moved(os.path.normpath(word), cwd, folder)
    return word


def _remarks(record: Record, inside: list[SourceFile], outside: list[SourceFile], whole: bool) -> list[str]:
    said = []
    if not inside:
        said.append("no source file below the folder of the run was kept: the command uses the current code")
    if not whole:
        said.append(f"{record.cwd} is gone: files that the script reads by relative paths are missing")
    for item in outside:
        now = _digest_now(os.path.join(record.cwd, item.path))
        state = "as it was" if now == item.digest else "gone" if not now else "changed since then"
        said.append(f"{item.path} lies outside the folder of the run and is used in place: {state}")
    said += [f"{item.path} was changed while the run ran; its first content is used" for item in inside if item.changed]
    now_installed = setting.packages()
    for name, version in record.packages:
        if now_installed.get(name) != version:
            said.append(f"{name} was {version} and is {now_installed.get(name, 'not installed')} here")
    python = str(setting.interpreter()["python"])
    if record.python != python:
        said.append(f"the run used {record.python}; clew runs on {python} here")
    return said


def _digest_now(path: str) -> str:
    import hashlib

    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""
