"""Source files are kept once, as they were, whoever else is writing."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clew.archive import code, runs
from clew.archive.home import objects_folder
from clew.archive.model import Run, SourceFile
from clew.errors import ClewError

MANY = """
import sys
from clew.archive import code
from clew.archive.model import at
for index in range(int(sys.argv[3])):
    code.snapshot(at(sys.argv[1]), [sys.argv[2] % index])
    print(index, flush=True)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEW_HOME", str(tmp_path / ".clew"))
    return tmp_path


def stored() -> list[str]:
    return sorted(
        os.path.basename(where) + name
        for where, _, names in os.walk(objects_folder())
        for name in names
        if name[0] != "."
    )


def test_contents_are_kept_once_and_come_back(folder: Path) -> None:
    (folder / "lib").mkdir()
    (folder / "train.py").write_text("one")
    (folder / "lib" / "same.py").write_text("one")
    first, second = runs.begin(["a"]), runs.begin(["b"])
    listed = code.snapshot(first, ["train.py", str(folder / "lib" / "same.py"), "train.py", "missing.py", "lib"])
    assert [item.path for item in listed] == ["train.py", "lib/same.py"]
    code.snapshot(second, ["train.py"])
    assert stored() == [listed[0].digest]
    (folder / "train.py").write_text("two")
    code.snapshot(second, ["train.py"])
    assert code.fetch(first, listed[0]) == b"one"
    assert code.fetch(second, code.read(second)[0]) == b"one", "the content that was imported first is the one kept"
    assert code.read(second)[0].changed


def test_files_elsewhere_keep_their_full_path(folder: Path) -> None:
    (folder / "project").mkdir()
    (folder / "other.py").write_text("x")
    run = runs.begin(["a"], "project")
    assert code.snapshot(run, [str(folder / "other.py")])[0].path == str(folder / "other.py")


def test_several_processes_add_to_one_list(folder: Path) -> None:
    run = runs.begin(["a"])
    for who in range(4):
        for index in range(15):
            (folder / f"m{who}_{index}.py").write_text(f"{who} {index}" if index % 2 else "shared")
    command = [sys.executable, "-c", MANY, run.folder]
    held = [subprocess.Popen([*command, f"m{who}_%d.py", "15"], stdout=subprocess.DEVNULL) for who in range(4)]
    assert [process.wait() for process in held] == [0] * 4
    assert {item.path for item in code.read(run)} == {f"m{who}_{index}.py" for who in range(4) for index in range(15)}
    assert len(stored()) == 4 * 7 + 1


def test_kill_9_leaves_a_list_that_can_be_read(folder: Path) -> None:
    run = runs.begin(["a"])
    for index in range(400):
        (folder / f"m{index}.py").write_text(str(index) * 999)
    held = subprocess.Popen([sys.executable, "-c", MANY, run.folder, "m%d.py", "400"], stdout=subprocess.PIPE)
    assert held.stdout is not None
    for _ in range(20):
        held.stdout.readline()
    held.send_signal(signal.SIGKILL)
    acknowledged = 20 + len(held.communicate()[0].split())
    listed = code.read(run)
    assert len(listed) in (acknowledged, acknowledged + 1)
    for item in listed:
        code.fetch(run, item)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(contents=st.lists(st.binary(max_size=60), min_size=1, max_size=5))
def test_every_content_comes_back(folder: Path, contents: list[bytes]) -> None:
    run = runs.begin(["a"])
    for index, content in enumerate(contents):
        (folder / f"f{index}.py").write_bytes(content)
    listed = code.snapshot(run, [f"f{index}.py" for index in range(len(contents))])
    assert [code.fetch(run, item) for item in listed] == contents
    assert [item.size for item in listed] == [len(content) for content in contents]


def test_a_half_written_content_heals(folder: Path) -> None:
    (folder / "train.py").write_text("whole")
    run = runs.begin(["a"])
    item = code.snapshot(run, ["train.py"])[0]
    path = Path(code.object_path(objects_folder(), item.digest))
    path.write_text("")
    with pytest.raises(ClewError, match="does not fit its digest"):
        code.fetch(run, item)
    code.snapshot(runs.begin(["b"]), ["train.py"])
    assert code.fetch(run, item) == b"whole"
    path.unlink()
    with pytest.raises(ClewError, match="missing from the archive"):
        code.fetch(run, item)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"schema": "clew/1"}, "is damaged"),
        ({"schema": "clew/1", "files": [{"path": "a", "digest": "../../etc/passwd", "size": 1}]}, "is damaged"),
        ({"schema": "clew/9", "files": []}, "newer clew"),
    ],
)
def test_a_damaged_list_is_a_sentence(folder: Path, table: dict[str, object], says: str) -> None:
    run = runs.begin(["a"])
    Path(run.path("code.json")).write_text(json.dumps(table))
    with pytest.raises(ClewError, match=says):
        code.read(run)
    (folder / "train.py").write_text("x")
    with pytest.raises(ClewError, match=says):
        code.snapshot(run, ["train.py"])
    assert json.loads(Path(run.path("code.json")).read_text()) == table


def test_no_list_is_no_files() -> None:
    assert code.read(Run("x", "nowhere")) == ()
    assert SourceFile("a", "b", 1).changed is False
