"""What is printed is kept as it is printed, by many processes at once, up to the moment one is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clew.archive import files, output
from clew.archive.model import OUTPUT, Run
from clew.archive.output import OutputLog

WRITER = """
import sys
from clew.archive.output import OutputLog
log = OutputLog(sys.argv[1], 0.0)
name, count, size = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for index in range(count):
    log.write("out", f"{name}-{index} " + "x" * size + "\\n")
    print(f"{name}-{index}", flush=True)
"""


def start(path: Path, name: str, count: int, size: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(path), name, str(count), str(size)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def read(folder: Path) -> tuple[list[output.Said], files.Damage]:
    damage = files.Damage()
    return list(output.read(Run("run", str(folder)), damage)), damage


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    pieces=st.lists(
        st.tuples(st.sampled_from(["out", "err"]), st.text(st.characters(), max_size=30) | st.just("a\nb\r"))
    ),
    size=st.integers(1, 50),
)
def test_text_comes_back_in_order(tmp_path: Path, pieces: list[tuple[str, str]], size: int) -> None:
    (tmp_path / OUTPUT).unlink(missing_ok=True)
    before, output.PIECE = output.PIECE, size
    try:
        log = OutputLog(str(tmp_path / OUTPUT), time.monotonic())
        for stream, text in pieces:
            log.write(stream, text)
        log.flush()
    finally:
        output.PIECE = before
    said, damage = read(tmp_path)
    joined = [(item.stream, char) for item in said for char in item.text]
    assert joined == [(stream, char) for stream, text in pieces for char in text]
    assert all(item.seconds >= 0.0 for item in said)
    assert not damage.remarks(OUTPUT)


def test_a_line_is_in_the_file_as_soon_as_it_ends(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / OUTPUT), time.monotonic())
    log.write("out", "epoch 1: ")
    assert not (tmp_path / OUTPUT).exists()
    log.write("out", "loss 2.3\n")
    log.write("out", "half a line")
    assert [item.text for item in read(tmp_path)[0]] == ["epoch 1: loss 2.3\n"]
    log.write("err", "a warning")
    assert [item.text for item in read(tmp_path)[0]] == ["epoch 1: loss 2.3\n", "half a line"]
    log.flush()
    assert read(tmp_path)[0][-1].stream == "err"


def test_racing_processes_keep_their_lines_apart(tmp_path: Path) -> None:
    writers = [start(tmp_path / OUTPUT, f"w{index}", 60, 9000) for index in range(4)]
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    said, damage = read(tmp_path)
    assert not damage.remarks(OUTPUT)
    for index in range(4):
        mine = [item.text.split()[0] for item in said if item.text.startswith(f"w{index}-")]
        assert mine == [f"w{index}-{number}" for number in range(60)]


@pytest.mark.parametrize("lines", [1, 8, 60])
def test_kill_9_keeps_every_line_and_costs_no_other_process_any(tmp_path: Path, lines: int) -> None:
    victim = start(tmp_path / OUTPUT, "victim", 100_000, 60_000)
    survivor = start(tmp_path / OUTPUT, "survivor", 80, 20_000)
    assert victim.stdout is not None
    acknowledged = [victim.stdout.readline().strip() for _ in range(lines)]
    victim.send_signal(signal.SIGKILL)
    acknowledged += [line for line in victim.communicate()[0].split() if line]
    survivor.communicate()
    assert survivor.returncode == 0
    names = [item.text.split()[0] for item in read(tmp_path)[0]]
    assert [name for name in names if name.startswith("survivor")] == [f"survivor-{index}" for index in range(80)]
    kept = [name for name in names if name.startswith("victim")]
    assert kept[: len(acknowledged)] == acknowledged
    assert len(kept) <= len(acknowledged) + 1


def test_a_fork_does_not_print_twice(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / OUTPUT), time.monotonic())
    log.write("out", "pending ")
    child = os.fork()
    if child == 0:
        log.write("out", "child\n")
        os._exit(0)
    os.waitpid(child, 0)
    log.write("out", "parent\n")
    log.flush()
    assert [item.text for item in read(tmp_path)[0]] == ["child\n", "pending parent\n"]


def test_a_full_disk_never_stops_the_script() -> None:
    log = OutputLog("/dev/full", time.monotonic())
    log.write("out", "lost\n")
    log.flush()
    assert log.file.missing == 1
    assert log.file.failed == "No space left on device"


def test_the_last_lines(tmp_path: Path) -> None:
    log = OutputLog(str(tmp_path / OUTPUT), time.monotonic())
    for index in range(30):
        log.write("out", f"line {index}\n")
    log.write("err", "Traceback: no line end")
    log.flush()
    last, remarks = output.tail(Run("run", str(tmp_path)), 3)
    assert last == ["line 28", "line 29", "Traceback: no line end"]
    assert not remarks
