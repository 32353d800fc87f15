"""Nothing foreign that clew prints moves, colours or fakes a terminal, into a pipe too."""

import csv
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from clew.archive import runs
from clew.archive.output import OutputLog
from clew.evidence.words import ERASE, INK, clean, harmless, on_terminal

CLEW = [sys.executable, "-m", "clew"]
HOSTILE = "\033[2J\033]0;title\a\x9b31m\033[8mhid\u202eden\x7f"
BUG = "import torch\nx = torch.nn.CrossEntropyLoss()(torch.softmax(torch.ones(2, 3), 1), torch.ones(2).long())\n"


def on_a_terminal(folder: Path, *words: str) -> str:
    """Everything that a terminal gets, from both streams."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "CLEW_HOME": str(folder / ".clew")}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        [*CLEW, *words], cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # Linux ends a terminal with an error
                break
            if not piece:
                break
            said += piece
        process.wait()
    os.close(ours)
    return said.decode()


def into_a_pipe(folder: Path, *words: str) -> str:
    environment = {**os.environ, "CLEW_HOME": str(folder / ".clew")}
    done = subprocess.run(
        [*CLEW, *words], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return done.stdout.decode()


def kept(folder: Path) -> None:
    run = runs.begin(["python", f"{HOSTILE}.py"], str(folder), f"{HOSTILE}.py", home=str(folder / ".clew"))
    log = OutputLog.of(run.folder)
    log.write("out", f"10 %\r20 %\r\n{HOSTILE} \033[31mred\033[0m\n")
    log.flush()
    runs.finish(run, 0)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    (tmp_path / f"{HOSTILE}.py").write_text(BUG)
    (tmp_path / f"a\nFAULT{HOSTILE}.py").write_text(BUG)
    (tmp_path / f"broken{HOSTILE}.py").write_text("def (:\n")
    with open(tmp_path / "runs.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow([f"lr{HOSTILE}", "seed", f"loss{HOSTILE}"])
        table.writerows([rate, seed, rate * seed] for rate in (0.1, 0.2) for seed in range(4))
    kept(tmp_path)
    return tmp_path


COMMANDS = {
    "lint": ["lint", "."],
    "lint, as GitHub reads it": ["lint", ".", "--format", "github"],
    "lint, as JSON": ["lint", ".", "--format", "json"],
    "what a fix changes": ["lint", ".", "--diff", "--unsafe-fixes"],
    "a sweep": ["sweep", "judge", "runs.csv", "--metric", f"loss{HOSTILE}", "--goal", "min"],
    "no such metric": ["sweep", "judge", "runs.csv", "--metric", "lss", "--goal", "min"],
    "a script that is not there": ["run", f"none{HOSTILE}.py"],
    "an option that there is not": ["lint", f"--{HOSTILE}"],
    "a command that there is not": [HOSTILE],
    "output": ["show", "last", "--output"],
    "a run": ["show", "last"],
    "runs": ["runs"],
    "a log": ["log", "runs.csv"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_foreign_text_cannot_steer_a_terminal(hostile: Path, name: str) -> None:
    for said in (into_a_pipe(hostile, *COMMANDS[name]), on_a_terminal(hostile, *COMMANDS[name])):
        own = harmless(said.replace("\r\n", "\n"))
        assert own.count("�") == said.count("�"), said  # colours apart, there is nothing left to take out
        assert "\033[8m" not in said
        assert "Traceback" not in said
    assert "\033" not in into_a_pipe(hostile, *COMMANDS[name])


def test_output_keeps_its_words(hostile: Path) -> None:
    assert into_a_pipe(hostile, "show", "last", "--output").startswith("10 %\n20 %\n")
    assert " red\n" in into_a_pipe(hostile, "show", "last", "--output")


def test_a_file_name_begins_no_line_of_its_own(hostile: Path) -> None:
    assert not [line for line in into_a_pipe(hostile, "lint", ".").splitlines() if line.startswith("FAULT")]


def test_only_clews_own_colours_reach_a_terminal() -> None:
    assert on_terminal(f"{INK}[1;31mFAULT{INK}[0m{ERASE}") == "\033[1;31mFAULT\033[0m\r\033[K"
    assert harmless(f"{INK}[2J{INK}[8m\r\033[31mred\033[0m") == "�[2J�[8m�red"
    assert clean(f"{INK}[31m") == "�[31m"


def test_a_file_name_forges_no_line(tmp_path: Path) -> None:
    forged = "\n::error file=x.py,line=1::owned\n"
    (tmp_path / f"a{forged}.py").write_text("def f(:\n")
    for words in (("lint", "--format", "github", "."), ("lint", f"none{forged}.py"), ("run", f"none{forged}.py")):
        assert not [line for line in into_a_pipe(tmp_path, *words).splitlines() if line.startswith("::error file=x.py")]


def test_a_name_that_is_no_text_is_linted_as_any_other(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/w\x9b.py"
    Path(os.fsdecode(name)).write_text(
        "import torch.nn.functional as F\ndef f(m, x, y):\n    return F.cross_entropy(F.softmax(m(x), 1), y)\n"
    )
    said = into_a_pipe(tmp_path, "lint", ".")
    assert "CLW101" in said
    assert "in part" not in said
