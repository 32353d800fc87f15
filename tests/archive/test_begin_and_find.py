"""Runs begin, end, are killed, are found again; a damaged one costs itself."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from clew.archive import home as archive_home
from clew.archive import process, runs, setting
from clew.archive.model import Run
from clew.errors import ClewError

BEGIN = """
import sys, time
from clew.archive import runs
run = runs.begin(["python", "train.py", sys.argv[1]], ".", "train.py")
print(run.id, flush=True)
if sys.argv[2] == "finish":
    runs.finish(run, 0, steps=7, verdict="healthy")
if sys.argv[2] == "wait":
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLEW_HOME", raising=False)
    (tmp_path / ".clew").mkdir()
    return tmp_path


def start(word: str, then: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", BEGIN, word, then], stdout=subprocess.PIPE, text=True)


def change(run: Run, **fields: Any) -> None:
    path = Path(run.path("run.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_sixty_four_processes_lose_nothing() -> None:
    started = [start(str(index), "finish") for index in range(64)]
    names = {process.communicate()[0].strip() for process in started}
    assert all(process.returncode == 0 for process in started)
    assert len(names) == 64
    listing = runs.all_runs()
    assert not listing.remarks
    assert {record.run.id for record in listing.records} == names
    assert sorted(int(record.command[2]) for record in listing.records) == list(range(64))
    assert all(record.state == "finished" and record.verdict == "healthy" for record in listing.records)
    assert [name for name in os.listdir(archive_home.runs_folder()) if name.startswith(runs.STAGING)] == []


def test_an_id_that_is_taken_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(["one", "one", "two"])
    monkeypatch.setattr(runs, "_name", lambda *_: next(names))
    first, second = runs.begin(["a"]), runs.begin(["b"])
    assert (first.id, second.id) == ("one", "two")
    assert runs.load(first).command == ("a",)


def test_the_form_of_an_id() -> None:
    run = runs.begin(["python", "My Train.py"], script="sub/My Train.py")
    assert re.fullmatch(r"\d{8}-\d{6}-my-train-[0-9a-f]{4}", run.id)
    assert re.fullmatch(r"\d{8}-\d{6}-run-[0-9a-f]{4}", runs.begin(["///"]).id)


def test_a_run_that_is_killed_shows_as_interrupted() -> None:
    held = start("x", "wait")
    assert held.stdout is not None
    name = held.stdout.readline().strip()
    assert runs.load(runs.find(name)).state == "running"
    held.send_signal(signal.SIGKILL)
    held.communicate()
    assert runs.load(runs.find(name)).state == "interrupted"


def test_a_zombie_is_not_running() -> None:
    held = start("x", "wait")
    assert held.stdout is not None
    name = held.stdout.readline().strip()
    held.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, held.pid, os.WEXITED | os.WNOWAIT)
    assert runs.load(runs.find(name)).state == "interrupted"
    held.communicate()


def test_a_pid_that_was_given_out_again_is_not_the_same_process() -> None:
    run = runs.begin(["a"])
    held = process.mark(os.getpid())
    assert process.alive(held) is True
    assert process.alive({**held, "began": "1"}) is False
    change(run, supervisor={**held, "began": "1"})
    assert runs.load(run).state == "interrupted"


def test_what_another_machine_runs_is_judged_by_its_files() -> None:
    run = runs.begin(["a"])
    change(run, supervisor={**process.mark(os.getpid()), "within": "another machine"})
    assert runs.load(run).state == "running"
    long_ago = time.time() - 2 * runs.QUIET_SECONDS
    os.utime(run.path("run.json"), (long_ago, long_ago))
    assert runs.load(run).state == "interrupted"


def test_how_it_ended() -> None:
    run = runs.begin(["a"])
    runs.finish(run, None, signal=9, steps=3, verdict="undecided")
    record = runs.load(run)
    assert record.end is not None
    assert record.end.says == "SIGKILL"
    assert record.end.seconds >= 0.0
    with pytest.raises(ClewError, match="has ended already"):
        runs.finish(run, 0)


def test_finding(folder: Path) -> None:
    with pytest.raises(ClewError, match="there is no run in"):
        runs.find("last")
    names = iter(["20260101-000000-cat-aaaa", "20260101-000001-cat-bbbb", "20260102-000000-dog-cccc"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_name", lambda *_: next(names))
        made = [runs.begin([word]) for word in "abc"]
    assert runs.find("last") == made[2]
    assert runs.find("last~2") == made[0]
    assert runs.find(made[1].id) == made[1]
    assert runs.find("20260102") == made[2]
    assert runs.find("bbbb") == made[1]
    assert runs.find(made[0].folder) == made[0]
    with pytest.raises(ClewError, match="may mean any of 2 runs"):
        runs.find("20260101")
    with pytest.raises(ClewError, match="did you mean 20260102-000000-dog-cccc"):
        runs.find("20260102-000000-dig-cccc")
    with pytest.raises(ClewError, match="only 3 runs"):
        runs.find("last~3")
    (folder / "below").mkdir()
    os.chdir("below")
    assert runs.find("last") == made[2], "the archive is found from a folder below"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is damaged"),
        (b'{"schema": "clew/1"', "is damaged"),
        (b"[]", "holds no JSON object"),
        (b'{"schema": "clew/2", "id": "x"}', "newer clew"),
        (b'{"schema": "other"}', "not written by clew"),
        (b'{"schema": "clew/1"}', "'command' is missing"),
        (b'{"schema": "clew/1", "command": 3, "cwd": "", "script": "", "started": ""}', "is damaged"),
        (b"\xff\xfe", "is damaged"),
    ],
)
def test_a_damaged_run_costs_only_itself(content: bytes, says: str) -> None:
    good, bad = runs.begin(["good"]), runs.begin(["bad"])
    Path(bad.path("run.json")).write_bytes(content)
    with pytest.raises(ClewError, match=says):
        runs.load(bad)
    listing = runs.all_runs()
    assert [record.run for record in listing.records] == [good]
    assert len(listing.remarks) == 1
    assert bad.id in listing.remarks[0]
    assert Path(bad.path("run.json")).read_bytes() == content


def test_a_folder_without_a_run_is_said() -> None:
    os.makedirs(".clew/runs/empty")
    Path(".clew/runs/stray.txt").write_text("")
    assert len(runs.all_runs().remarks) == 1
    with pytest.raises(ClewError, match=r"run\.json is missing"):
        runs.load(runs.find("empty"))


def test_a_damaged_end_is_said_and_the_run_still_shows() -> None:
    run = runs.begin(["a"])
    Path(run.path("end.json")).write_text('{"schema": "clew/1", "exit": "well"')
    record = runs.load(run)
    assert record.state == "finished"
    assert record.end is None
    assert "end.json" in record.remarks[0]


def test_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").write_text("")
    for place in ("file", "/proc/clew"):
        monkeypatch.setenv("CLEW_HOME", place)
        with pytest.raises(ClewError, match="cannot keep a run in"):
            runs.begin(["a"])
        assert runs.all_runs().records == ()


def test_an_archive_that_may_not_be_written_is_read(folder: Path) -> None:
    """As another user: permissions would not stop root."""
    if os.getuid() != 0:
        pytest.skip("needs to become another user")
    run = runs.begin(["a"])
    child = os.fork()
    if child == 0:
        status = 3
        try:
            folder.chmod(0o755)
            os.setuid(65534)
            try:
                runs.begin(["b"])
            except ClewError as error:
                status = 0 if "Permission denied" in str(error) and runs.load(run).command == ("a",) else 1
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 3), "the other user may not reach the test folder at all"
    assert [record.run for record in runs.all_runs().records] == [run]


def test_only_what_may_be_known_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    for name in ("WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "USER", "HOSTNAME", "NCCL_SECRET"):
        monkeypatch.setenv(name, "kept-secret")
    run = runs.begin(["a"])
    text = Path(run.path("run.json")).read_text()
    assert "kept-secret" not in text
    assert os.uname().nodename not in text
    record = runs.load(run)
    assert ("CUDA_VISIBLE_DEVICES", "1") in record.environment
    assert "hypothesis" not in dict(record.packages)
    assert "clew" in dict(record.packages)
    assert json.loads(Path(runs.begin(["a"], who=True).path("run.json")).read_text())["user"] == "kept-secret"


def test_the_secrets_of_common_tools_are_not_on_the_list() -> None:
    suspicious = re.compile("KEY|SECRET|PASS|CREDENTIAL|AUTH|TOKEN(?!IZERS)|ADDR|HOST|USER")
    assert [name for name in setting.VARIABLES if suspicious.search(name)] == []


def test_words_that_are_not_text_survive() -> None:
    words = ["python", os.fsdecode(b"caf\xe9.py"), "--name", 'a "b"\n']
    assert runs.load(runs.begin(words)).command == tuple(words)


def test_labels_and_reruns_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEW_RERUN_OF", "earlier")
    record = runs.load(runs.begin(["a"], labels={"group": "g", "seed": 3, "lr": 0.1}))
    assert record.labels == (("group", "g"), ("seed", 3), ("lr", 0.1))
    assert record.rerun_of == "earlier"


def git(*words: str) -> None:
    command = ["git", "-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false", *words]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_state_of_the_code_in_git(monkeypatch: pytest.MonkeyPatch) -> None:
    assert runs.load(runs.begin(["a"])).git.why == "not a git repository"
    git("init", "-b", "trunk")
    assert runs.load(runs.begin(["a"])).git.why == "there is no commit yet"
    Path("train.py").write_text("lr = 0.1\n")
    git("add", "train.py")
    git("commit", "-m", "first")
    clean = runs.begin(["a"])
    held = runs.load(clean).git
    assert (len(held.commit), held.branch, held.dirty, held.why) == (40, "trunk", False, "")
    assert not os.path.exists(clean.path("git.diff"))

    Path("train.py").write_text("lr = 0.2\n")
    dirty = runs.begin(["a"])
    assert runs.load(dirty).git.dirty
    assert "+lr = 0.2" in Path(dirty.path("git.diff")).read_text()
    assert subprocess.run(["git", "status", "--short"], capture_output=True, text=True).stdout == " M train.py\n", (
        "the archive keeps itself out of version control"
    )

    Path("train.py").write_text("x = '" + "y" * 3_000_000 + "'\n")
    long = runs.begin(["a"])
    assert runs.load(long).git.cut
    assert os.path.getsize(long.path("git.diff")) == setting.DIFF_LIMIT

    monkeypatch.setenv("PATH", "/nowhere")
    assert "could not be started" in runs.load(runs.begin(["a"])).git.why
