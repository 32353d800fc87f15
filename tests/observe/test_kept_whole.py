"""Nothing that was seen is lost without a word, and nothing that clew cannot do changes how the script ends."""

import json
import os
import resource
import shlex
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
import torch  # noqa: F401  # by which counts are kept
from launching import CLEW, bare, clew_run, ended, run_folder, script, start
from test_launch import TRAINS

from clew.archive import files, output
from clew.archive.files import Appender, Damage
from clew.archive.model import Run
from clew.observe.collect import processes, read_process
from clew.observe.stream import Stream
from clew.observe.tally import NUMBERS, STEPS, Tally

WHOLE = (sys.executable, "-m", "clew", "run")


def printed(folder: Path) -> str:
    return "".join(said.text for said in output.read(Run("", str(run_folder(folder))), Damage()))


# --- a disk without space


@pytest.mark.parametrize("room", [0, 1, 6, 7, 8, 9, 20, 24, 25])
def test_a_line_that_was_cut_off_costs_nothing_once_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    path, left, write = tmp_path / "lines", [room], os.write

    def short(handle: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(28, "No space left on device")
        done = write(handle, data[: min(left[0], 6)])
        left[0] -= done
        return done

    file = Appender(str(path))
    monkeypatch.setattr(os, "write", short)
    file.write("[1,11]\n[2,22]\n")
    file.write("[3,33]\n")
    assert file.missing == 3 - min(3, (room + 1) // 7)
    assert file.missing == 0 or file.failed == "No space left on device"
    monkeypatch.setattr(os, "write", write)
    file.write("[4,44]\n")
    assert file.missing == 0
    damage = Damage()
    assert list(files.lines(str(path), damage)) == [[1, 11], [2, 22], [3, 33], [4, 44]]
    assert damage.lines == (room % 7 not in (0, 6) and room < 21)


def test_what_waits_for_space_is_bounded_and_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "WAITING", 100)
    file = Appender(str(tmp_path / "gone" / "lines"))
    for number in range(50):
        file.write(f"[{number:7}]\n")
    assert file.missing == 50
    (tmp_path / "gone").mkdir()
    file.write("")
    kept = [value for (value,) in files.lines(str(tmp_path / "gone" / "lines"), Damage())]
    assert kept == list(range(50 - len(kept), 50))
    assert file.missing == 50 - len(kept) > 0


def test_a_damaged_line_of_a_trace_costs_itself(tmp_path: Path) -> None:
    stream, tally = Stream(str(tmp_path / f"trace-{os.getpid()}.jsonl")), Tally(str(tmp_path))
    for step in range(4):
        stream.number("loss", "", step, float(step))
    stream.flush()
    tally.put(STEPS, 4)
    tally.put(NUMBERS, 3)
    path = Path(stream.path)
    path.write_text(path.read_text().replace('["loss","",1,1.0]', '["loss","",1,1'))
    (part,) = processes(str(tmp_path))
    assert part.series["loss", ""].steps == (0, 2, 3)
    assert "1 line of trace" in part.missing[0]
    assert any(text.startswith("3 numbers") for text in part.missing)


@pytest.mark.parametrize("held", ["{", '{"pid":1}', "[]", '{"steps":1e999,"rank":0,"world":1}', "\xff"])
def test_damaged_answers_cost_themselves(tmp_path: Path, held: str) -> None:
    Tally(str(tmp_path)).put(STEPS, 7)
    path = tmp_path / f"answers-{os.getpid()}.json"
    path.write_text(held, encoding="latin-1")
    part = read_process(str(path))
    assert (part.steps, part.answers) == (7, ())
    assert "was not kept" in part.missing[0]


FULL = """
import resource
import shlex
def room(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
train(20)
print("before", flush=True)
room(3000)
train(600)
print("full " * 999, flush=True)
"""


@pytest.mark.parametrize("again", [True, False])
def test_a_full_disk_changes_no_status_and_is_said(tmp_path: Path, again: bool) -> None:
    """No file may be longer than 3,000 bytes; for the script alone, and in one case only for a while."""
    more = "room(resource.RLIM_INFINITY)\ntrain(300)\nprint('after', flush=True)\n" if again else ""
    script(tmp_path, TRAINS + FULL + more + "raise SystemExit(3)")
    under = clew_run(tmp_path, "--json", "out.json", "train.py")
    assert (under.status, under.err) == (3, "")
    table = json.loads((tmp_path / "out.json").read_text())
    assert table["run"]["steps"] == (920 if again else 620)
    (part,) = processes(str(run_folder(tmp_path)))
    if again:
        assert part.series["loss", ""].steps == tuple(range(920))
        assert "after\n" in printed(tmp_path)
    else:
        assert "numbers of process" in under.out
        assert "pieces of what process" in under.out
        assert not part.final
    assert "before\n" in printed(tmp_path)


def test_a_disk_that_is_full_at_the_report_changes_no_status(tmp_path: Path) -> None:
    script(tmp_path, TRAINS + "train(40)\nraise SystemExit(3)")
    small = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
    under = ended(start((*CLEW, "train.py"), tmp_path, preexec_fn=small))
    assert under.status == 3
    assert "cannot write" in under.out
    assert "40 steps" in under.out


# --- lines that were flushed


def test_what_is_flushed_and_all_of_standard_error_survive_a_kill(tmp_path: Path) -> None:
    text = """
import os, signal, sys
train(12)
print("one", flush=True)
print("two", end="", flush=True)
sys.stderr.write("why")
os.kill(os.getpid(), signal.SIGKILL)
"""
    script(tmp_path, TRAINS + text)
    assert clew_run(tmp_path, "--quiet", "train.py").status == -signal.SIGKILL
    assert printed(tmp_path) == "one\ntwowhy"


def test_a_timer_writes_the_rest(tmp_path: Path) -> None:
    """Never flushed, and no step follows that would write it along."""
    text = """
import time
train(12)
print("unflushed")
until = time.monotonic() + 30
while b"unflushed" not in open(kept, "rb").read() and time.monotonic() < until:
    time.sleep(0.05)
raise SystemExit(b"unflushed" not in open(kept, "rb").read())
"""
    kept = "import os\nkept = os.path.join(os.environ['CLEW_RUN_FOLDER'], 'output.jsonl')\nprint('x', flush=True)\n"
    script(tmp_path, kept + TRAINS + text)
    assert clew_run(tmp_path, "--quiet", "train.py").status == 0


def test_no_thread_of_clews_is_there_when_the_script_forks(tmp_path: Path) -> None:
    text = """
import os
train(2)
print("held back")
child = os.fork()
if not child:
    print(len(os.listdir("/proc/self/task")))
    raise SystemExit
os.waitpid(child, 0)
"""
    script(tmp_path, TRAINS + text)
    plain, under = bare(tmp_path, "train.py"), clew_run(tmp_path, "--quiet", "train.py")
    assert under == plain


# --- exit statuses


@pytest.mark.parametrize("place", ["| true", ">/dev/full", ">&-", "2>&-", "<&-", ">&- 2>&-"])
@pytest.mark.parametrize("options", ["", "--fail-on suspect"])
def test_a_report_that_cannot_be_printed_changes_no_status(tmp_path: Path, place: str, options: str) -> None:
    script(tmp_path, "raise SystemExit(3)")
    command = f"set -o pipefail; {shlex.join(WHOLE)} {options} train.py {place}"
    under = ended(start(("bash", "-c", command), tmp_path))
    assert under.status == 3
    assert "Traceback" not in under.err


@pytest.mark.parametrize("place", ["| true", ">/dev/full"])
def test_fail_on_and_lint_too(tmp_path: Path, place: str) -> None:
    script(tmp_path, TRAINS.replace("        optimizer.zero_grad()\n", "") + "train(40)")
    script(tmp_path, "import torch\nloss = torch.nn.CrossEntropyLoss()(torch.softmax(x, 1), y)\n", "double.py")
    run = f"set -o pipefail; {shlex.join(CLEW)} --fail-on fault train.py {place}"
    assert ended(start(("bash", "-c", run), tmp_path)).status == 1
    lint = f"set -o pipefail; {shlex.quote(sys.executable)} -m clew lint double.py {place}"
    under = ended(start(("bash", "-c", lint), tmp_path))
    assert under.status == 1
    assert under.err == (
        "" if place == "| true" else "clew: cannot write to standard output: No space left on device.\n"
    )


def test_a_result_that_cannot_be_written_changes_no_status(tmp_path: Path) -> None:
    script(tmp_path, TRAINS + "train(12)\nraise SystemExit(3)")
    under = clew_run(tmp_path, "--json", "absent/out.json", "train.py")
    assert under.status == 3
    assert "cannot write absent/out.json" in under.err
    assert "Traceback" not in under.err


# --- places that cannot be used


def test_an_archive_that_cannot_be_written_leaves_the_run_as_it_is(tmp_path: Path) -> None:
    script(tmp_path, TRAINS + "train(12)\nraise SystemExit(3)")
    (tmp_path / "file").write_text("")
    (tmp_path / "temporary").mkdir()
    env = {"CLEW_HOME": str(tmp_path / "file" / "below"), "TMPDIR": str(tmp_path / "temporary")}
    under = clew_run(tmp_path, "train.py", env=env)
    assert under.status == 3
    assert under.err.count("\n") == 1
    assert "cannot keep a run in" in under.err
    assert "12 steps" in under.out
    nothing = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0))
    bared = clew_run(tmp_path, script(tmp_path, "raise SystemExit(3)", "bare.py"), env=env, preexec_fn=nothing)
    assert bared.status == 3
    assert "runs without observation" in bared.err
    assert bared.err.count("\n") == 1


def test_a_run_folder_that_the_script_removes(tmp_path: Path) -> None:
    text = """
import os, shutil
train(12)
shutil.rmtree(os.path.dirname(os.environ["CLEW_RUN_FOLDER"]))
train(300)
print("on", flush=True)
raise SystemExit(4)
"""
    script(tmp_path, TRAINS + text)
    under = clew_run(tmp_path, "train.py")
    assert (under.status, under.out) == (4, "on\n")
    assert "was removed while it ran" in under.err
    assert "Traceback" not in under.err
    assert not list((tmp_path / "kept").glob("runs/*"))
