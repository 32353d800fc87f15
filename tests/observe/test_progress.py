"""The progress line on a real terminal: it is there, and the screen shows the script's own text as in a bare run."""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyte
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from launching import CLEW, environment, script

from clew.app.progress import CluesSoFar, words
from clew.observe.progress import CLUES, FLAG, OF_ITS_OWN, ProgressLine, State, last_loss, line, sweep
from clew.records import exact

COLUMNS, ROWS = 90, 120
RULE = "─" * 80

TRAINS = """
import os, sys, time
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(steps):
    for _ in range(steps):
        x = torch.randn(16, 4)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()
print("begins")
train(9)
print("on")
time.sleep(0.6)
train(1)
time.sleep(0.1)
"""
UNPRINTED = {row for row in TRAINS.splitlines() if row and not row.startswith("print")} - {"import os, sys, time"}


def on_terminal(folder: Path, *command: str, answers: tuple[str, ...] = ()) -> tuple[bytes, list[str]]:
    """Run it with a terminal of its own, type answers where the text ends in a question mark, read the screen."""
    leader, follower = pty.openpty()
    held = environment(folder, TERM="xterm")
    del held["COLUMNS"]
    held.pop("PYTHONUNBUFFERED", None)

    def own_terminal() -> None:
        os.setsid()
        import fcntl
        import struct
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    process = subprocess.Popen(
        command, cwd=folder, env=held, stdin=follower, stdout=follower, stderr=follower, preexec_fn=own_terminal
    )
    os.close(follower)
    raw, waiting, end = b"", list(answers), time.monotonic() + 240
    while time.monotonic() < end:
        if not select.select([leader], [], [], 1.0)[0]:
            continue
        try:
            part = os.read(leader, 65536)
        except OSError:  # nobody holds the other end any more
            break
        raw += part
        if waiting and raw.rstrip().endswith(b"?"):
            os.write(leader, waiting.pop(0).encode())
    os.close(leader)
    process.wait(60)
    return raw, screen_of(raw)


def screen_of(raw: bytes) -> list[str]:
    screen = pyte.Screen(COLUMNS, ROWS)
    pyte.ByteStream(screen).feed(raw)
    lines = [text.rstrip() for text in screen.display]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def both(folder: Path, text: str, *answers: str) -> tuple[bytes, list[str], list[str]]:
    """What clew wrote, its screen up to the report, and the screen of a bare run. That one need not train, which takes
    long and prints nothing; its lines keep their numbers."""
    script(folder, "".join(f"# {row}\n" if row in UNPRINTED else f"{row}\n" for row in text.splitlines()))
    _, plain = on_terminal(folder, sys.executable, "train.py", answers=answers)
    script(folder, text)
    raw, under = on_terminal(folder, *CLEW, "train.py", answers=answers)
    assert RULE in under, under
    shown = under[: under.index(RULE)]
    while shown and not shown[-1]:
        shown.pop()
    return raw, shown, plain


SCRIPTS = {
    "print": ("print('one')\nprint('two', end='')\nprint(' three', flush=True)\n", ()),
    "bar": ("for n in range(5):\n    sys.stderr.write(f'\\r{n * 25:3d} %')\n    sys.stderr.flush()\nprint()\n", ()),
    "input": ("name = input('who are you?')\nprint('hello', name)\n", ("me\n",)),
    "asked without a prompt": ("print('who?')\nprint('hello', input())\n", ("me\n",)),
    "another program": ("import subprocess\nsubprocess.run(['echo', 'from a program'])\nos.system('echo more')\n", ()),
    "raises": ("raise ValueError('no')\n", ()),
    "killed": ("import signal\nos.kill(os.getpid(), signal.SIGKILL)\n", ()),
    "a forked process prints": (
        "if os.fork() == 0:\n    print('from the fork')\n    os._exit(0)\nos.wait()\nprint('end')\n",
        (),
    ),
    "nothing more": ("", ()),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_screen_is_that_of_a_bare_run(tmp_path: Path, name: str) -> None:
    text, answers = SCRIPTS[name]
    raw, under, plain = both(tmp_path, TRAINS + text, *answers)
    assert b"clew: 10 steps, loss " in raw
    assert under == plain


def test_text_that_comes_past_the_streams_is_whole(tmp_path: Path) -> None:
    raw, under, plain = both(tmp_path, TRAINS + "os.write(1, b'from below\\n')\nprint('after')\n")
    assert b"clew: 10 steps" in raw
    assert len(under) == len(plain)
    assert all(seen.startswith(said) for seen, said in zip(under, plain, strict=True))


BUSY = {
    "half a line": "print('half', end='', flush=True)",
    "a bar": "sys.stderr.write('\\r 50 %')",
    "it moves the cursor": "sys.stdout.write('\\033[2A\\n\\n')",
    "a stream of its own": "sys.stdout = open(1, 'w', closefd=False)",
    "text that waits": "sys.stdout.reconfigure(line_buffering=False)\nprint('waits')",
}


@pytest.mark.parametrize("name", BUSY)
def test_there_is_no_line_where_it_could_be_in_the_way(tmp_path: Path, name: str) -> None:
    text = TRAINS.replace("time.sleep(0.6)", f"{BUSY[name]}\ntime.sleep(0.6)")
    raw, under, plain = both(tmp_path, text + "print('end')\n")
    assert b"clew: 10 steps" not in raw
    assert under == plain


def test_quiet_shows_nothing(tmp_path: Path) -> None:
    script(tmp_path, TRAINS)
    raw, under = on_terminal(tmp_path, *CLEW, "--quiet", "train.py")
    assert under == ["begins", "on"]
    assert b"\033" not in raw


def test_nothing_is_left_in_the_archive(tmp_path: Path) -> None:
    both(tmp_path, TRAINS)
    (folder,) = (path for path in (tmp_path / "kept" / "runs").iterdir() if not path.name.startswith("."))
    assert not list(folder.glob("progress*"))


# --- one process, any order of writing and drawing


class Terminal:
    """A stream that is a terminal, as far as the line asks."""

    line_buffering = write_through = True

    def isatty(self) -> bool:
        return True


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.none(), st.text("ab \r\nü", max_size=12)), max_size=12))
def test_any_order_of_text_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acts: list[str | None]) -> None:
    written: list[bytes] = []
    stream: Any = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr("clew.observe.progress._is_ours", lambda _: True)
    monkeypatch.setattr("clew.observe.progress.QUIET_SECONDS", 0.0)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((COLUMNS, ROWS)))
    monkeypatch.setattr(os, "write", lambda _, text: written.append(text))
    monkeypatch.setattr(sys, "addaudithook", lambda _: None)
    shown = ProgressLine(str(tmp_path))
    shown.follow(stream)
    recorder = SimpleNamespace(step=3, rank=None, stream=SimpleNamespace(path="none"))
    for act in acts:
        if act is None:
            shown.draw(recorder)
        else:
            shown.before_write(stream, act)
            written.append(act.replace("\n", "\r\n").encode())
    shown.clear()
    monkeypatch.undo()
    plain = "".join(act for act in acts if act is not None).replace("\n", "\r\n").encode()
    assert screen_of(b"".join(written)) == screen_of(plain)
    assert not (tmp_path / FLAG).exists()


@pytest.mark.parametrize(
    ("text", "own"),
    [("\033[31mred\033[0m", False), ("\r 50 %", False), ("\033[A", True), ("\0337", True), ("\033[?1049h", True)],
)
def test_which_text_lays_out_the_screen(text: str, own: bool) -> None:
    assert bool(OF_ITS_OWN.search(text)) is own


# --- what it says


def test_the_line_gives_up_its_end_first() -> None:
    state = State(1200, 84.21, 0.31234, "clues: event_order, clip_activity")
    assert line(state, 200) == "clew: 1,200 steps, loss 0.3123, 84.2 it/s, clues: event_order, clip_activity"
    assert line(state, 50) == "clew: 1,200 steps, loss 0.3123, 84.2 it/s"
    assert line(state, 25) == "clew: 1,200 steps"
    assert line(state, 5) == ""
    assert line(State(1, 0.0, None, ""), 50) == "clew: 1 step"
    assert line(State(5, 12345.6, float("nan"), ""), 50) == "clew: 5 steps, loss nan, 12,346 it/s"


def test_the_last_loss_is_read_from_the_end(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    assert last_loss(str(path)) is None
    path.write_text("")
    assert last_loss(str(path)) is None
    rows = [["loss", "", n, 1.0 / (n + 1)] for n in range(9000)] + [["grad_norm", "w", 9, 1.0]]
    path.write_text("".join(exact.dumps(row) + "\n" for row in rows))
    assert last_loss(str(path)) == 1 / 9000
    path.write_text(exact.dumps(["loss", "", 1, float("inf")]) + "\n")
    assert last_loss(str(path)) == float("inf")


def test_the_clues_so_far(tmp_path: Path) -> None:
    tick = CluesSoFar(str(tmp_path))
    tick()
    assert not (tmp_path / CLUES).exists()
    answers = [
        {"test": "event_order", "outcome": "no_zero_grad", "measured": {}, "where": [], "says": ""},
        {"test": "loss_sign", "unclear": "no loss"},
        {"test": "nobody_knows_this", "outcome": "seen", "measured": {}, "where": []},
    ]
    table = {"pid": 7, "rank": 0, "world": 1, "steps": 3, "seconds": 1.0, "models": 1, "final": False}
    path = tmp_path / "answers-7.json"
    path.write_text(exact.dumps({**table, "answers": answers[1:]}))
    tick()
    assert (tmp_path / CLUES).read_text() == "no clue yet"
    path.write_text(exact.dumps({**table, "answers": answers}))
    os.utime(path, (1, 1))
    tick()
    assert (tmp_path / CLUES).read_text() == "clue: event_order"
    path.write_text("{")
    tick()
    assert (tmp_path / CLUES).read_text() == "clue: event_order"
    sweep(str(tmp_path))
    assert not (tmp_path / CLUES).exists()


def test_many_clues_are_counted() -> None:
    assert words([]) == "no clue yet"
    assert words(["a", "b"]) == "clues: a, b"
    assert words(["a", "b", "c", "d", "e"]) == "clues: a, b, c and 2 more"
