"""What starting clew does and does not do."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"torch", "numpy", "pandas", "jinja2", "dataclasses", "inspect", "pathlib", "argcomplete", "tomllib", "email"}
SCRIPT = """
import sys
from clew.cli import main
try:
    status = main(sys.argv[1:])
except SystemExit as stop:
    status = stop.code
print("MODULES", *sys.modules, file=sys.stderr)
sys.exit(status)
"""


def run(folder: Path, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    held = {**os.environ, **environment}
    command = [sys.executable, "-c", SCRIPT, *words]
    return subprocess.run(command, cwd=folder, env=held, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "words", [["--help"], ["case", "--help"], ["why", "loss.double_softmax"], ["case", "show"], ["case", "next"]]
)
def test_the_quick_commands_import_nothing_heavy(tmp_path: Path, words: list[str]) -> None:
    cache = str(tmp_path / "cache")
    run(tmp_path, "case", "new", "it does not learn", XDG_CACHE_HOME=cache)
    done = run(tmp_path, *words, XDG_CACHE_HOME=cache)
    assert done.returncode in (0, 1), done.stderr
    modules = set(done.stderr.split("MODULES ")[1].split())
    assert not modules & HEAVY
    assert "clew.cli" in modules


def test_import_clew_is_nearly_free(tmp_path: Path) -> None:
    code = "import sys; before = set(sys.modules); import clew; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"clew"}


def test_output_into_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m clew why --list claims | head -1"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


def test_a_terminal_that_knows_only_ascii(tmp_path: Path) -> None:
    done = run(tmp_path, "why", "loss.double_softmax", PYTHONIOENCODING="ascii", PYTHONUTF8="1")
    assert done.returncode == 0
    assert "loss.double_softmax" in done.stdout


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """A file where the folder should be: permissions would not stop root."""
    (tmp_path / ".clew").write_text("")
    done = run(tmp_path, "case", "new", "x", CLEW_HOME=str(tmp_path / ".clew"))
    assert done.returncode == 2
    assert "cannot create a case" in done.stderr


def test_completion_offers_tests_and_outcomes(tmp_path: Path) -> None:
    def complete(line: str) -> list[str]:
        held = {
            **os.environ,
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "out"),
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
            "_ARGCOMPLETE_IFS": "\n",
        }
        clew = str(Path(sys.executable).parent / "clew")
        subprocess.run([clew], cwd=tmp_path, env=held, capture_output=True, check=False)
        return [word.strip() for word in (tmp_path / "out").read_text().split("\n")]

    assert "overfit_one_batch" in complete("clew case clue overfit")
    assert "stalls" in complete("clew case clue overfit_one_batch st")
    assert "loss.double_softmax" in complete("clew why loss.d")
    done = run(tmp_path, "completion", "bash")
    assert "complete" in done.stdout
    assert "clew" in done.stdout


def at_terminal(folder: Path, words: list[str], typed: bytes) -> tuple[int, str]:
    """Run clew at a real pseudo-terminal, as a person has it."""
    import pty

    pid, master = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        os.execv(sys.executable, [sys.executable, "-m", "clew", *words])
    os.write(master, typed)
    text = b""
    while True:
        try:
            chunk = os.read(master, 4096)
        except OSError:
            break
        if not chunk:
            break
        text += chunk
    _, status = os.waitpid(pid, 0)
    os.close(master)
    return os.waitstatus_to_exitcode(status), text.decode()


def test_the_picker_at_a_terminal(tmp_path: Path) -> None:
    run(tmp_path, "case", "new", "val accuracy stuck", XDG_CACHE_HOME=str(tmp_path / "cache"))
    status, said = at_terminal(tmp_path, ["case", "clue"], b"1\n1\n")
    assert status == 0, said
    assert "Which observation?" in said
    assert "#2 " in said
    status, said = at_terminal(tmp_path, ["case", "clue", "init_loss"], b"\n")
    assert (status, "#3" in said) == (0, False), said
    status, said = at_terminal(tmp_path, ["case", "clue", "init_loss"], b"unclear\nthe log starts at step 100\n")
    assert (status, "#3 init_loss: unclear" in said) == (0, True), said


def test_colour_at_a_terminal(tmp_path: Path) -> None:
    status, said = at_terminal(tmp_path, ["why", "loss.double_softmax"], b"")
    assert status == 0
    assert "\033[1m" in said


def test_the_preflight_interview(tmp_path: Path) -> None:
    answers = b"not\n1\nsomewhat\nnonsense\nmaybe\nnot\nthe disk fills up: df -h\nvery\n"
    status, said = at_terminal(tmp_path, ["preflight", "--domain", "llm"], answers)
    assert status == 0, said
    assert "is no known cause" in said
    assert "Please answer very, somewhat or not" in said
    assert "Recorded in case" in said
    assert "df -h" in said


def test_an_interview_that_is_broken_off_records_nothing(tmp_path: Path) -> None:
    status, said = at_terminal(tmp_path, ["preflight"], b"not\n\x04")
    assert status == 2
    assert "nothing was recorded" in said
    assert not (tmp_path / ".clew").exists()
