"""The log loses nothing that was acknowledged: tried by really killing and really racing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clew.case import log
from clew.errors import ClewError
from clew.records import exact

WRITER = """
import sys
from clew.case import log
folder, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
for index in range(count):
    log.append(folder, "note", {"part": "thinking", "text": f"{name}-{index}" + "x" * (index % 700)})
    print(f"{name}-{index}", flush=True)
"""


def texts(folder: Path) -> list[str]:
    entries = log.read(str(folder)).entries
    return [entry.data["text"].rstrip("x") for entry in entries if entry.kind == "note"]


def start(folder: Path, name: str, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(folder), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "cases" / "one"
    log.create(str(made), {"symptom": "it does not learn"})
    return made


@pytest.mark.parametrize("after", [0, 1, 7, 40, 150])
def test_a_killed_writer_loses_nothing_it_acknowledged(folder: Path, after: int) -> None:
    writer = start(folder, "w", 100_000)
    assert writer.stdout is not None
    said = [writer.stdout.readline().strip() for _ in range(after + 1)]
    time.sleep(0.003 * (after % 3))
    writer.send_signal(signal.SIGKILL)
    said += writer.communicate()[0].split()
    assert writer.returncode == -signal.SIGKILL
    kept = texts(folder)
    acknowledged = [line for line in said if line]
    assert kept[: len(acknowledged)] == acknowledged
    assert len(kept) - len(acknowledged) <= 1, "at most the write that was under way is there besides"
    log.append(str(folder), "note", {"part": "thinking", "text": "after"})
    assert texts(folder)[-1] == "after"


def test_racing_writers_all_succeed(folder: Path) -> None:
    writers = [start(folder, f"w{index}", 40) for index in range(4)]
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    kept = texts(folder)
    assert len(kept) == 160
    for index in range(4):
        mine = [text for text in kept if text.startswith(f"w{index}-")]
        assert mine == [f"w{index}-{number}" for number in range(40)]
    assert [entry.number for entry in log.read(str(folder)).entries] == list(range(1, 162))


def test_racing_writers_and_a_kill(folder: Path) -> None:
    victim, survivor = start(folder, "v", 100_000), start(folder, "s", 60)
    assert victim.stdout is not None
    acknowledged = [victim.stdout.readline().strip() for _ in range(10)]
    victim.kill()
    victim.communicate()
    survivor.communicate()
    assert survivor.returncode == 0
    kept = texts(folder)
    assert [text for text in kept if text.startswith("s-")] == [f"s-{number}" for number in range(60)]
    assert [text for text in kept if text.startswith("v-")][:10] == acknowledged


@given(cut=st.integers(min_value=1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_a_log_cut_anywhere_in_its_last_line(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("cut") / "c" / "one"
    log.create(str(folder), {"symptom": "s"})
    log.append(str(folder), "note", {"part": "thinking", "text": "kept"})
    whole = (folder / log.NAME).read_bytes()
    log.append(str(folder), "note", {"part": "thinking", "text": "lost half-way"})
    last = (folder / log.NAME).read_bytes()[len(whole) :]
    torn = last[: cut % (len(last) - 1) + 1]
    (folder / log.NAME).write_bytes(whole + torn)

    content = log.read(str(folder))
    assert [entry.number for entry in content.entries] == [1, 2]
    assert content.torn == torn
    assert (folder / log.NAME).read_bytes() == whole + torn, "reading changes nothing"

    number = log.append(str(folder), "note", {"part": "thinking", "text": "next"})
    assert number == 4
    entries = log.read(str(folder)).entries
    assert [entry.kind for entry in entries] == ["opened", "note", "set_aside", "note"]
    kept_in = folder / entries[2].data["kept_in"]
    assert kept_in.read_bytes() == torn
    assert entries[2].data["bytes"] == len(torn)


def test_a_last_line_of_zeros_is_torn(folder: Path) -> None:
    path = folder / log.NAME
    path.write_bytes(path.read_bytes() + b"\0" * 300)
    assert log.read(str(folder)).torn == b"\0" * 300


def test_damage_in_the_middle_is_refused_and_left_alone(folder: Path) -> None:
    for text in "abc":
        log.append(str(folder), "note", {"part": "thinking", "text": text})
    path = folder / log.NAME
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"text":"a"', b'"text":"z"')
    path.write_bytes(b"".join(lines))
    before = path.read_bytes()
    with pytest.raises(ClewError, match="line 2 is damaged"):
        log.read(str(folder))
    with pytest.raises(ClewError, match="line 2 is damaged"):
        log.append(str(folder), "note", {"part": "thinking", "text": "d"})
    assert path.read_bytes() == before


def test_a_newer_log_is_refused_with_a_sentence(folder: Path) -> None:
    path = folder / log.NAME
    entry = {"v": log.FORMAT + 1, "at": "", "by": "", "kind": "dream", "data": {}}
    entry["sum"] = exact.digest(entry)
    path.write_bytes(path.read_bytes() + exact.dumps(entry).encode() + b"\n")
    before = path.read_bytes()
    with pytest.raises(ClewError, match="newer clew"):
        log.read(str(folder))
    with pytest.raises(ClewError, match="newer clew"):
        log.append(str(folder), "note", {"part": "thinking", "text": "d"})
    assert path.read_bytes() == before


@given(junk=st.binary(max_size=400))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_any_bytes_give_a_log_or_a_sentence(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    folder = tmp_path_factory.mktemp("junk")
    (folder / log.NAME).write_bytes(junk)
    with pytest.raises(ClewError):
        log.read(str(folder))
    assert (folder / log.NAME).read_bytes() == junk


def test_a_line_of_100_megabytes_is_refused(folder: Path) -> None:
    path = folder / log.NAME
    with path.open("ab") as file:
        file.write(b"x" * 100_000_000 + b"\n{}\n")
    with pytest.raises(ClewError, match="line 2 is over"):
        log.read(str(folder))


def test_an_entry_that_is_too_large_is_refused(folder: Path) -> None:
    before = (folder / log.NAME).read_bytes()
    with pytest.raises(ClewError, match="too large"):
        log.append(str(folder), "note", {"part": "thinking", "text": "x" * (log.LONGEST + 1)})
    assert (folder / log.NAME).read_bytes() == before


def test_a_full_disk_is_reported() -> None:
    """`/dev/full` accepts opening and refuses writing, as a full disk does."""
    handle = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(ClewError, match="No space left on device; the entry was not recorded"):
        log._write("/dev/full", handle, b"line\n")
    os.close(handle)
