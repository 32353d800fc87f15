"""A run set up again uses the code as it was and the data where it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clew.archive import code, runs
from clew.archive.again import Plan, rerun_plan
from clew.archive.model import Run, SourceFile
from clew.errors import ClewError

SCRIPT = """import os, sys
from lib import model
import helper
print(model.NAME, helper.NAME, open("data/x.txt").read(), *sys.argv[1:], os.environ.get("PYTHONHASHSEED"))
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / "lib").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "data" / "x.txt").write_text("data")
    (folder / "lib" / "model.py").write_text('NAME = "old"\n')
    (folder / "lib" / "notes.txt").write_text("")
    (folder / "helper.py").write_text('NAME = "never listed"\n')
    (folder / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CLEW_HOME", str(folder / ".clew"))
    return folder


def execute(plan: Plan) -> str:
    held = {name: value for name, value in os.environ.items() if name not in plan.unset} | dict(plan.environment)
    return subprocess.run(plan.command, cwd=plan.folder, env=held, capture_output=True, text=True, check=True).stdout


def kept(monkeypatch: pytest.MonkeyPatch, script: str = "train.py") -> Run:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    run = runs.begin([sys.executable, script, "--lr", "1"], ".", "train.py")
    code.snapshot(run, ["train.py", "lib/model.py"])
    monkeypatch.delenv("PYTHONHASHSEED")
    return run


@pytest.mark.parametrize("absolute", [False, True])
def test_old_code_and_todays_data(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absolute: bool
) -> None:
    run = kept(monkeypatch, str(project / "train.py") if absolute else "train.py")
    (project / "lib" / "model.py").write_text('NAME = "new"\n')
    (project / "train.py").write_text("raise SystemExit(1)\n")
    plan = rerun_plan(run, str(tmp_path / "again"))
    assert execute(plan) == "old never listed data --lr 1 7\n"
    assert plan.files == ("lib/model.py", "train.py")
    assert plan.outside == ()
    assert plan.remarks == ()
    assert (project / "data" / "x.txt").read_text() == "data"
    assert not os.path.lexists(tmp_path / "again" / ".clew")
    assert dict(plan.environment)["CLEW_HOME"] == str(project / ".clew")


def test_a_folder_of_its_own_each_time(project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run = kept(monkeypatch)
    one, two = rerun_plan(run), rerun_plan(run)
    assert one.folder != two.folder
    with pytest.raises(ClewError, match="File exists"):
        rerun_plan(run, str(project))


def test_what_differs_is_said(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = tmp_path / "shared.py"
    outside.write_text("x")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    run = kept(monkeypatch)
    code.snapshot(run, [str(outside)])
    outside.write_text("y")
    plan = rerun_plan(run, str(tmp_path / "one"))
    assert plan.outside == (str(outside),)
    assert f"{outside} lies outside" in plan.remarks[0]
    assert "changed since then" in plan.remarks[0]

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("clew.archive.setting.packages", lambda: {"clew": "99"})
    plan = rerun_plan(run, str(tmp_path / "two"))
    assert "OMP_NUM_THREADS" in plan.unset
    assert any("and is 99 here" in remark for remark in plan.remarks)

    moved = project.rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    plan = rerun_plan(Run(run.id, str(moved / ".clew" / "runs" / run.id)), str(tmp_path / "three"))
    assert any("is gone" in remark for remark in plan.remarks)
    assert sorted(os.listdir(plan.folder)) == ["lib", "train.py"]


@pytest.mark.usefixtures("project")
def test_nothing_is_written_outside_the_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = kept(monkeypatch)
    digest = code.read(run)[0].digest
    hostile = [SourceFile(path, digest, 1) for path in ("../evil.py", "/tmp/evil.py", "a/../../evil.py", ".", "..")]
    code._write(run, {item.path: item for item in hostile})
    plan = rerun_plan(run, str(tmp_path / "deep" / "again"))
    assert plan.files == ()
    assert len(plan.outside) == 5
    assert not (tmp_path / "deep" / "evil.py").exists()
    assert not (tmp_path / "evil.py").exists()


def test_missing_code_changes_nothing(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = kept(monkeypatch)
    os.unlink(code.object_path(str(project / ".clew" / "objects"), code.read(run)[0].digest))
    with pytest.raises(ClewError, match="missing from the archive"):
        rerun_plan(run, str(tmp_path / "again"))
    assert not (tmp_path / "again").exists()
    with pytest.raises(ClewError, match="no command"):
        rerun_plan(runs.begin([]))


WRITES = """import os
for name in ("model.pt", "data/x.txt", "outside/result.txt", "read_only.txt"):
    try:
        open(name, "a").write(" overwritten")
    except PermissionError:
        print("refused")
os.makedirs("checkpoints", exist_ok=True)
open("empty/new.txt", "w").write("new")
"""


def everything(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_rerun_reaches_no_file_of_the_users(project: Path, tmp_path: Path) -> None:
    """Neither by a link to a folder, nor by one to a file, nor by one that leads out of the project."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "result.txt").write_text("first")
    (project / "outside").symlink_to(tmp_path / "outside")
    (project / "loop").symlink_to(project)
    (project / "model.pt").symlink_to(tmp_path / "outside" / "result.txt")
    (project / "empty").mkdir()
    (project / "read_only.txt").write_text("kept")
    (project / "read_only.txt").chmod(0o444)
    (project / "writes.py").write_text(WRITES)
    run = runs.begin([sys.executable, "writes.py"], ".", "writes.py")
    code.snapshot(run, ["writes.py"])
    before = everything(project), everything(tmp_path / "outside")
    plan = rerun_plan(run, str(tmp_path / "again"))
    execute(plan)
    assert (everything(project), everything(tmp_path / "outside")) == before
    assert (tmp_path / "again" / "outside" / "result.txt").read_text() == "first overwritten"
    assert not (tmp_path / "again" / "loop").exists()
    assert not any(path.is_symlink() for path in (tmp_path / "again").rglob("*"))


def test_the_command_removes_its_folder(project: Path, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    run = runs.begin([sys.executable, "writes.py"], ".", "writes.py")
    (project / "writes.py").write_text("raise SystemExit(3)")
    code.snapshot(run, ["writes.py"])
    env = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    command = [sys.executable, "-m", "clew", "runs", "rerun", run.id]
    assert subprocess.run(command, env=env, capture_output=True, check=False).returncode == 3
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.usefixtures("project")
def test_a_folder_that_does_not_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = kept(monkeypatch)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 7}))
    with pytest.raises(ClewError, match="more than half of the free space"):
        rerun_plan(run, str(tmp_path / "again"))
