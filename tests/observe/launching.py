"""Running a script bare and under clew, as a shell would, for the tests that compare the two."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from clew.records import exact

CLEW = (sys.executable, "-m", "clew", "run", "--no-exams", "--keep-capture")
"""A step is kept, as by default; the exams on it have tests of their own."""


class Ran(NamedTuple):
    status: int
    out: str
    err: str


def environment(folder: Path, **more: str) -> dict[str, str]:
    """One thread, no colours, no network, and an archive of the test's own."""
    held = {name: value for name, value in os.environ.items() if not name.startswith(("CLEW_", "PYTEST_"))}
    held.update(CLEW_HOME=str(folder / "kept"), OMP_NUM_THREADS="1", NO_COLOR="1", COLUMNS="80", HF_HUB_OFFLINE="1")
    return {**held, **more}


def start(command: tuple[str, ...], folder: Path, **options: Any) -> "subprocess.Popen[str]":
    held = environment(folder, **options.pop("env", {}))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
    return subprocess.Popen(command, cwd=folder, env=held, text=True, **pipes)


def ended(process: "subprocess.Popen[str]", given: str | None = None) -> Ran:
    try:
        out, err = process.communicate(given, timeout=240)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"{process.args!r} did not end:\n{out}\n{err}") from None
    return Ran(process.returncode, out or "", err or "")


def clew_run(folder: Path, *words: str, given: str | None = None, **options: Any) -> Ran:
    if given is not None:
        options["stdin"] = subprocess.PIPE
    return ended(start((*CLEW, *words), folder, **options), given)


def bare(folder: Path, *words: str, given: str | None = None, **options: Any) -> Ran:
    if given is not None:
        options["stdin"] = subprocess.PIPE
    return ended(start((sys.executable, *words), folder, **options), given)


def script(folder: Path, text: str, name: str = "train.py") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return name


def run_folder(folder: Path) -> Path:
    """The one run that was kept."""
    (found,) = (path for path in (folder / "kept" / "runs").iterdir() if not path.name.startswith("."))
    return found


def answers(folder: Path) -> list[dict[str, Any]]:
    """What each observed process wrote, in order of process number."""
    return [exact.loads(path.read_text()) for path in sorted(run_folder(folder).glob("answers-*.json"))]


def troubles(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(run_folder(folder).glob("trouble-*.txt")))
