"""The same command on the same code: a run made ready to run again.

The source files are set up as they were in a new folder, with the tree of the original folder around them. Everything
that is not code, data above all, is linked there and not copied.
"""

import os
from typing import NamedTuple

from clew.archive import code, runs, setting
from clew.archive.model import Record, Run, SourceFile, home_of
from clew.errors import ClewError

NOT_LINKED = {".clew", ".git", "__pycache__", ".hg", ".svn"}


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
    linked = _set_up(folder, record.cwd, contents)
    remarks = _remarks(record, inside, outside, linked)
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
    """Write the source files, and link what else the original folder holds; False when that folder is gone."""
    try:
        for path, content in contents.items():
            target = os.path.join(folder, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                file.write(content)
        if not os.path.isdir(cwd):
            return False
        _link(cwd, folder)
        return True
    except OSError as error:
        raise ClewError(f"cannot restore the code in {folder}: {error.strerror}.") from error


def _link(source: str, target: str) -> None:
    """Link what the snapshot does not hold; go down only into folders that hold some of it."""
    with os.scandir(source) as entries:
        names = sorted(entry.name for entry in entries if entry.name not in NOT_LINKED)
    for name in names:
        there, here = os.path.join(source, name), os.path.join(target, name)
        if os.path.isdir(here) and os.path.isdir(there):
            _link(there, here)
        elif not os.path.lexists(here):
            os.symlink(there, here)


def _moved(path: str, cwd: str, folder: str) -> str:
    if path == cwd:
        return folder
    return os.path.join(folder, path[len(cwd) + 1 :]) if path.startswith(cwd.rstrip(os.sep) + os.sep) else path


def _word(word: str, cwd: str, folder: str, contents: dict[str, bytes]) -> str:
    """A source file that the command names by its full path is the one of the snapshot."""
    if os.path.isabs(word) and code.shown(os.path.normpath(word), cwd) in contents:
        return _moved(os.path.normpath(word), cwd, folder)
    return word


def _remarks(record: Record, inside: list[SourceFile], outside: list[SourceFile], linked: bool) -> list[str]:
    said = []
    if not inside:
        said.append("no source file below the folder of the run was kept: the command uses the current code")
    if not linked:
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
