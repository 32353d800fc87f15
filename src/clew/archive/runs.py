"""Beginning, ending, finding and reading runs."""

import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from clew.archive import files, process
from clew.archive.home import runs_folder
from clew.archive.model import DIFF, END, RUN, End, Git, Label, Listing, Record, Run
from clew.errors import ClewError, did_you_mean
from clew.home import home as nearest_home
from clew.home import make

STAGING, GONE = ".new-", ".gone-"
QUIET_SECONDS = 3600.0
"""A run that another machine looks after counts as running for as long as its folder keeps changing this often."""

_made = 0


def begin(
    command: Sequence[str],
    cwd: str = ".",
    script: str = "",
    *,
    labels: Mapping[str, Label] | None = None,
    rerun_of: str = "",
    who: bool = False,
    pid: int | None = None,
    home: str = "",
) -> Run:
    """Open a run of `command`, the words as they would be typed without clew, the program first.

    `pid` is the process that looks after the run, this one unless told otherwise: the run counts as running while it
    lives. `labels` are what a sweep says of its runs: group, values, seed. Host and user are only kept with `who`.
    `clew runs rerun` names the earlier run in CLEW_RERUN_OF.
    """
    from clew.archive import setting

    cwd = os.path.abspath(cwd)
    git, diff = setting.git(cwd)
    now = time.time_ns()
    table: dict[str, Any] = {
        "id": "",
        "command": list(command),
        "cwd": cwd,
        "script": script,
        "started": _iso(now),
        "clock": time.monotonic(),
        "supervisor": process.mark(os.getpid() if pid is None else pid),
        **setting.interpreter(),
        "packages": setting.packages(),
        "environment": setting.variables(),
        "git": git._asdict(),
    }
    if labels:
        table["labels"] = dict(labels)
    if earlier := rerun_of or os.environ.get("CLEW_RERUN_OF", ""):
        table["rerun_of"] = earlier
    if who:
        table |= {"host": os.uname().nodename, "user": os.environ.get("USER") or os.environ.get("LOGNAME") or ""}
    return _create(runs_folder(home or nearest_home(cwd)), table, _slug(script, command), now, diff)


def _create(folder: str, table: dict[str, Any], slug: str, now: int, diff: bytes) -> Run:
    """Put a run into the archive under an id that nobody else has: it is there with its `run.json`, or not at all."""
    try:
        make(folder)
        while True:
            name = _name(now, slug)
            staged, final = os.path.join(folder, STAGING + name), os.path.join(folder, name)
            try:
                os.mkdir(staged, 0o700)
            except FileExistsError:
                continue
            if diff:
                files.write_whole(os.path.join(staged, DIFF), diff)
            files.write_table(os.path.join(staged, RUN), {**table, "id": name})
            try:
                # Onto a folder that holds anything, this fails: two runs never share an id.
                os.rename(staged, final)
            except OSError:
                if not os.path.isdir(final):
                    raise
                _remove(staged)
                continue
            return Run(name, final)
    except OSError as error:
        raise ClewError(f"cannot keep a run in {folder}: {error.strerror}.") from error


def _name(now: int, slug: str) -> str:
    """Told apart by process, count and nanosecond, without drawing a random number."""
    import hashlib

    global _made
    _made += 1
    unique = f"{os.uname().nodename}/{os.getpid()}/{_made}/{time.time_ns()}"
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now // 1_000_000_000))
    return f"{stamp}-{slug}-{hashlib.sha256(unique.encode()).hexdigest()[:4]}"


def _slug(script: str, command: Sequence[str]) -> str:
    name = script or (command[0] if command else "")
    words = re.findall(r"[a-z0-9]+", os.path.basename(name).removesuffix(".py").lower())
    return "-".join(words)[:20].strip("-") or "run"


def _iso(nanoseconds: int) -> str:
    whole, rest = divmod(nanoseconds, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{rest // 1000:06d}Z"


def _remove(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def finish(
    run: Run,
    exit: int | None,
    *,
    signal: int | str = "",
    seconds: float | None = None,
    steps: int = 0,
    verdict: str = "",
) -> End:
    """Gather the metrics into columns and write `end.json`, the last thing that a run gets."""
    from clew.archive import metrics

    if os.path.exists(run.path(END)):
        raise ClewError(f"the run {run.id} has ended already.")
    table = files.read_table(run.path(RUN))
    remark = ""
    try:
        metrics.gather(run)
    except ClewError as error:
        remark = str(error)
    if seconds is None:
        clock = table.get("clock")
        seconds = max(0.0, time.monotonic() - clock) if isinstance(clock, float) else 0.0
    end = End(exit, signal_name(signal), seconds, steps, verdict, _iso(time.time_ns()))
    files.write_table(run.path(END), {**end._asdict(), **({"remark": remark} if remark else {})})
    return end


def signal_name(signal: int | str) -> str:
    if isinstance(signal, str):
        return signal
    if not signal:
        return ""
    from signal import Signals

    try:
        return Signals(signal).name
    except ValueError:
        return f"signal {signal}"


def all_ids(home: str = "") -> list[str]:
    """The ids of all runs, oldest first; of one second's runs, the one whose `run.json` was written first."""
    folder = runs_folder(home)
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ClewError(f"cannot read {folder}: {error.strerror}.") from error
    return sorted(names, key=lambda name: (name[:15], _written(os.path.join(folder, name, RUN)), name))


def _written(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def all_runs(home: str = "") -> Listing:
    """Every run, oldest first. One that cannot be read costs itself and a sentence."""
    folder = runs_folder(home)
    records, remarks = [], []
    for name in all_ids(home):
        try:
            records.append(load(Run(name, os.path.join(folder, name))))
        except ClewError as error:
            remarks.append(str(error))
    records.sort(key=lambda record: record.started)
    return Listing(tuple(records), tuple(remarks))


def find(name: str, home: str = "") -> Run:
    """The run that is meant: an id, the beginning or the last word of one, "last", "last~1" (one before), a path, or
    a script, of which it is the latest."""
    ids = all_ids(home)
    folder = runs_folder(home)
    if counted := re.fullmatch(r"last(?:~([0-9]{1,6}))?", name):
        return _last(folder, ids, int(counted[1] or 0))
    if name in ids and os.sep not in name:
        return Run(name, os.path.join(folder, name))
    if os.path.isfile(os.path.join(name, RUN)):
        path = os.path.abspath(name)
        return Run(os.path.basename(path), path)
    meant = [held for held in ids if held.startswith(name)] or [held for held in ids if held.endswith(f"-{name}")]
    if len(meant) == 1:
        return Run(meant[0], os.path.join(folder, meant[0]))
    if meant:
        some = ", ".join(meant[:4]) + (" …" if len(meant) > 4 else "")
        raise ClewError(f"{name!r} may mean any of {len(meant)} runs: {some}.")
    if latest := _latest_of(name, ids, folder):
        return latest
    raise ClewError(
        f"there is no run {name!r}{did_you_mean(name, ['last', *ids]) or '; `clew runs` shows what there is.'}"
    )


def _latest_of(script: str, ids: list[str], folder: str) -> Run | None:
    slug = f"-{_slug(script, ())}-"
    for run in (Run(held, os.path.join(folder, held)) for held in reversed(ids) if slug in held):
        try:
            table = files.read_table(run.path(RUN))
            held = str(table["script"])
            same = os.path.realpath(os.path.join(str(table["cwd"]), held)) == os.path.realpath(script)
        except (ClewError, KeyError):
            continue
        if same or script in (held, os.path.basename(held)):
            return run
    return None


def _last(folder: str, ids: list[str], back: int) -> Run:
    whole = [held for held in ids if os.path.isfile(os.path.join(folder, held, RUN))]
    if not whole:
        raise ClewError(f"there is no run in {folder} yet; `clew run SCRIPT` makes one.")
    if back >= len(whole):
        raise ClewError(f"there are only {len(whole)} runs in {folder}: nothing lies {back} before the last.")
    name = whole[-1 - back]
    return Run(name, os.path.join(folder, name))


def ended(run: Run) -> None:
    """Refuse a run that goes on: its report and its captured step are written when it ends."""
    if load(run).state == "running":
        raise ClewError(f"the run {run.id} is still running; wait for its end, or take the one before it: last~1.")


def load(run: Run) -> Record:
    """Everything that is known about a run."""
    if not os.path.isfile(run.path(RUN)):
        raise ClewError(f"there is no run at {run.folder}: {RUN} is missing.")
    table = files.read_table(run.path(RUN))
    end, remarks = _end(run)
    state = "finished" if end or remarks else "running" if _running(run, table) else "interrupted"
    try:
        return _record(run, table, state, end, remarks)
    except (KeyError, TypeError, OverflowError, ValueError, AttributeError) as error:
        raise ClewError(f"{run.path(RUN)} is damaged: {error!s} is missing or of a wrong form.") from error


def _record(run: Run, table: dict[str, Any], state: str, end: End | None, remarks: list[str]) -> Record:
    return Record(
        run=run,
        command=tuple(str(word) for word in _list(table["command"])),
        cwd=str(table["cwd"]),
        script=str(table["script"]),
        started=str(table["started"]),
        python=str(table.get("python", "")),
        executable=str(table.get("executable", "")),
        platform=str(table.get("platform", "")),
        cpus=int(table.get("cpus", 0)),
        gpus=tuple(str(name) for name in _list(table.get("gpus", []))),
        packages=tuple((str(name), str(held)) for name, held in table.get("packages", {}).items()),
        environment=tuple((str(name), str(held)) for name, held in table.get("environment", {}).items()),
        git=_git(table.get("git", {})),
        labels=tuple((name, held) for name, held in table.get("labels", {}).items()),
        rerun_of=str(table.get("rerun_of", "")),
        state=state,
        end=end,
        remarks=tuple(remarks),
    )


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"a list instead of {value!r}")
    return value


def _git(table: dict[str, Any]) -> Git:
    return Git(
        str(table.get("commit", "")),
        str(table.get("branch", "")),
        bool(table.get("dirty", False)),
        bool(table.get("cut", False)),
        str(table.get("why", "")),
    )


def _end(run: Run) -> tuple[End | None, list[str]]:
    """How the run ended; a file that cannot be read is said and costs nothing else."""
    if not os.path.exists(run.path(END)):
        return None, []
    try:
        table = files.read_table(run.path(END))
        status = table["exit"]
        end = End(
            None if status is None else int(status),
            str(table.get("signal", "")),
            float(table["seconds"]),
            int(table.get("steps", 0)),
            str(table.get("verdict", "")),
            str(table.get("ended", "")),
        )
        return end, [str(table["remark"])] if "remark" in table else []
    except (KeyError, TypeError, OverflowError, ValueError):
        return None, [f"{run.path(END)} is damaged: how the run ended is not known."]
    except ClewError as error:
        return None, [str(error)]


def _running(run: Run, table: dict[str, Any]) -> bool:
    held = table.get("supervisor")
    lives = process.alive(held) if isinstance(held, dict) else None
    if lives is None:
        return time.time() - last_change(run) < QUIET_SECONDS
    return lives


def last_change(run: Run) -> float:
    """When anything was last written into the folder of a run, in seconds since 1970."""
    latest = 0.0
    try:
        with os.scandir(run.folder) as entries:
            for entry in entries:
                latest = max(latest, entry.stat(follow_symlinks=False).st_mtime)
    except OSError:
        return latest
    return latest
