"""What a report says first: the exception, the signal, that there was no training or several; and what no longer runs
then.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from launching import Ran, clew_run, ended, script, start
from test_launch import TRAINS, WAITS, until_ready

from warm import warm_run

EXAMS = (sys.executable, "-m", "clew", "run")


def table(folder: Path) -> dict[str, Any]:
    held = json.loads((folder / "out.json").read_text())
    assert isinstance(held, dict)
    return held


# --- no training


@pytest.mark.parametrize(
    ("text", "words", "status", "says"),
    [
        ("import argparse\nargparse.ArgumentParser().parse_args()", ["--lr", "1"], 2, "ended with status 2"),
        ("import argparse\nargparse.ArgumentParser().parse_args()", ["--help"], 0, "ended with status 0"),
        ("\nimport absent_module", [], 1, "ModuleNotFoundError: No module named 'absent_module' (train.py:2)"),
        ("x = (", [], 1, "SyntaxError: '(' was never closed (train.py, line 1) (train.py:1)"),
        ("import torch\ndef f():\n    torch.zeros(2) @ torch.zeros(3)\nf()", [], 1, "(train.py:3 in f)"),
        ("import os\nos.kill(os.getpid(), 11)", [], -11, "ended by SIGSEGV"),
    ],
    ids=["argparse", "help", "module", "syntax", "raises", "signal"],
)
def test_no_training_gives_two_lines_and_no_run(
    tmp_path: Path, text: str, words: list[str], status: int, says: str
) -> None:
    script(tmp_path, text)
    under = clew_run(tmp_path, "train.py", *words)
    assert under.status == status
    first, second = under.out.splitlines()[-2:]
    assert first.startswith("NO TRAINING  train.py: ")
    assert says in first
    assert second == "clew saw no backward and no optimiser step of PyTorch, so nothing was kept."
    assert not [path for path in (tmp_path / "kept" / "runs").iterdir() if not path.name.startswith(".")]


def test_a_command_that_cannot_be_started_leaves_no_run(tmp_path: Path) -> None:
    under = clew_run(tmp_path, "--", "no-such-command")
    assert under.status == 2
    assert "cannot run no-such-command" in under.err
    assert not [path for path in (tmp_path / "kept" / "runs").iterdir() if not path.name.startswith(".")]


def test_options_of_clew_behind_the_script_are_pointed_out(tmp_path: Path) -> None:
    script(tmp_path, "import argparse\nargparse.ArgumentParser().parse_args()")
    under = clew_run(tmp_path, "train.py", "--html", "x")
    assert under.status == 2
    assert under.out.endswith("Options of clew come before the script: clew run --html … train.py.\n")


def test_a_notebook_is_refused(tmp_path: Path) -> None:
    script(tmp_path, "{}", "note.ipynb")
    under = clew_run(tmp_path, "note.ipynb")
    assert (under.status, under.out) == (2, "")
    assert under.err.startswith("clew: note.ipynb is a notebook, and clew runs scripts; jupyter nbconvert")


def test_a_loop_by_hand_is_a_training(tmp_path: Path) -> None:
    text = """
import torch
w = torch.zeros(4, requires_grad=True)
for _ in range(20):
    x = torch.randn(16, 4)
    torch.nn.functional.mse_loss(x @ w, x.sum(1)).backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
    w.grad = None
"""
    script(tmp_path, text)
    assert "NO TRAINING" not in warm_run(tmp_path, "--no-exams", "train.py").out


# --- crashes


def test_the_exception_and_its_line_come_first(tmp_path: Path) -> None:
    """Above a list of what was seen, too, and never beside words that nothing was."""
    script(tmp_path, TRAINS.replace("        optimizer.zero_grad()\n", "") + "train(30)\n{}['gone']")
    under = warm_run(tmp_path, "--no-exams", "--json", "out.json", "train.py")
    rule, first, quoted = under.out.splitlines()[1:4]
    assert set(rule) == {"─"}
    assert first == "train.py:12: KeyError: 'gone'"
    assert quoted == "  12 | {}['gone']"
    assert "othing odd" not in under.out
    crash = table(tmp_path)["run"]["crash"]
    assert (crash["kind"], crash["place"]["line"], crash["memory"]) == ("KeyError", 12, {})


@pytest.mark.parametrize("fails", ["torch.zeros(2) @ torch.zeros(3)", "loss.backward()"])
def test_an_error_in_the_first_step_counts_no_checks_and_makes_no_exams(tmp_path: Path, fails: str) -> None:
    text = "import torch\nimport torch.nn.functional as F\nmodel = torch.nn.Linear(4, 1)\n"
    text += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    text += "loss = F.mse_loss(model(torch.randn(8, 4)), torch.randn(8, 1))\nloss.backward()\n"
    script(tmp_path, text + f"{fails}\noptimizer.step()\n")
    under = warm_run(tmp_path, "--json", "out.json", "train.py")
    assert table(tmp_path)["run"]["steps"] == table(tmp_path)["exams"]["made"] == 0
    assert "RuntimeError" in under.out
    assert "No optimiser step was seen" in under.out
    assert "passed" not in under.out
    assert "Next observations" not in under.out


def test_secrets_in_the_message_of_an_exception_are_masked(tmp_path: Path) -> None:
    says = "api_key=SECRET10 and token: SECRET11 password='SECRET12' https://user:SECRET13@host"
    script(tmp_path, TRAINS + f"train(12)\nraise ValueError({says!r})")
    under = warm_run(tmp_path, "--no-exams", "--json", "out.json", "--html", "out.html", "train.py")
    (crash,) = (tmp_path / "kept").rglob("crash-*.json")
    shown = [under.out, crash.read_text(), *((tmp_path / f"out.{kind}").read_text() for kind in ("json", "html"))]
    for text in shown:
        assert "(masked)" in text
        assert "SECRET" not in text


def test_steps_before_an_exec_are_said(tmp_path: Path) -> None:
    script(tmp_path, TRAINS + "train(12)", "second.py")
    again = "os.execv(sys.executable, [sys.executable, 'second.py'])"
    script(tmp_path, TRAINS + f"train(7)\nimport os, sys\n{again}")
    under = clew_run(tmp_path, "--no-exams", "--json", "out.json", "train.py")
    assert table(tmp_path)["run"]["steps"] == 12
    assert "trained 7 steps before os.exec replaced it" in " ".join(under.out.split())


OOM = """
class Wide(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 1)
    def forward(self, x):
        return fail(self.inner(x))
class Late(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        return fail(g)
def fail(x):
    raise torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 39.39 GiB of which 12.31 GiB "
        "is free. Of the allocated memory 26.10 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but "
        "unallocated.")
wide, x = Wide(), torch.randn(16, 4)
"""


@pytest.mark.parametrize(
    ("last", "phase"),
    [
        ("wide(x)", "in the forward pass in training mode"),
        ("wide.eval()(x)", "in the forward pass in evaluation mode"),
        ("Late.apply(model(x)).sum().backward()", "in the backward pass"),
        ("optimizer.register_step_pre_hook(lambda *_: fail(x)); optimizer.step()", "in the step of the optimiser"),
        ("fail(x)", ""),
    ],
    ids=["forward", "evaluation", "backward", "step", "outside"],
)
def test_out_of_memory_names_memory_process_line_and_phase(tmp_path: Path, last: str, phase: str) -> None:
    script(tmp_path, TRAINS + "train(12)\n" + OOM + last)
    under = warm_run(tmp_path, "--no-exams", "--json", "out.json", "train.py")
    crash = table(tmp_path)["run"]["crash"]
    assert crash["kind"] == "torch.OutOfMemoryError"
    assert crash["place"]["symbol"] == "fail"
    assert crash["phase"] == phase
    assert crash["memory"]["allocated"] == 26.1
    assert crash["memory"]["reserved"] == 26.6
    assert crash["memory"]["resident"] > 0
    said = " ".join(under.out.split())
    during = phase or "in the script, outside of model, backward and optimiser"
    assert f"Raised {during}, in process {crash['pid']}; 26.10 GiB" in said
    assert "26.60 GiB reserved" in said


# --- signals


@pytest.mark.parametrize("number", ["SIGSEGV", "SIGABRT", "SIGKILL", "SIGTERM"])
def test_a_death_by_signal_is_undecided_with_the_true_count(tmp_path: Path, number: str) -> None:
    """Also where the count was last written down at step ten."""
    script(tmp_path, TRAINS + f"train(60)\nimport os, signal\nos.kill(os.getpid(), signal.{number})")
    under = warm_run(tmp_path, "--no-exams", "--json", "out.json", "train.py")
    held = table(tmp_path)
    assert (held["verdict"], held["run"]["steps"]) == ("undecided", 60)
    assert f"{number} ended the script after 60 steps" in " ".join(under.out.split())


def test_a_fault_stays_one_though_a_signal_ended_the_run(tmp_path: Path) -> None:
    faulty = TRAINS.replace("        optimizer.zero_grad()\n", "")
    script(tmp_path, faulty + "train(60)\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    warm_run(tmp_path, "--no-exams", "--json", "out.json", "train.py")
    assert table(tmp_path)["verdict"] == "fault"


def told(folder: Path, ready: Callable[["subprocess.Popen[str]"], None], number: int, group: bool) -> Ran:
    listens = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    command = (*EXAMS, "--json", "out.json", "train.py")
    process = start(command, folder, start_new_session=True, preexec_fn=listens)
    ready(process)
    (os.killpg if group else os.kill)(process.pid, number)
    return ended(process)


@pytest.mark.parametrize(("number", "group"), [(signal.SIGTERM, False), (signal.SIGHUP, True), (signal.SIGINT, True)])
def test_who_ends_a_training_gets_no_exams(tmp_path: Path, number: int, group: bool) -> None:
    script(tmp_path, TRAINS + "train(12)" + WAITS)
    under = told(tmp_path, until_ready, number, group)
    assert under.status == -number
    assert "12 steps" in under.out
    assert "exams on the captured step" not in under.err
    assert table(tmp_path)["exams"]["made"] == 0


@pytest.mark.parametrize(("number", "group"), [(signal.SIGTERM, False), (signal.SIGHUP, True)])
def test_who_ends_the_exams_gets_the_report_and_the_signal(tmp_path: Path, number: signal.Signals, group: bool) -> None:
    script(tmp_path, TRAINS + "train(200)\nimport time\ntime.sleep(2)")

    def announced(process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if "exams on the captured step" in line:
                return

    under = told(tmp_path, announced, number, group)
    assert under.status == -number
    assert f"{number.name} ended the exams" in under.out
    assert "exams ended early" not in under.out
    assert "200 steps" in under.out


def test_a_report_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    """The signal ends clew with or without its report."""
    script(tmp_path, TRAINS + "train(12)" + WAITS)
    slow = "import clew.app.run as run, time, sys; run.seen_in = lambda *_: time.sleep(60)\n"
    slow += (
        "import clew.observe.launch as launch; launch.LEFT_SECONDS = 0.2\nfrom clew.cli import main\nsys.exit(main())"
    )
    process = start((sys.executable, "-c", slow, "run", "train.py"), tmp_path)
    until_ready(process)
    process.send_signal(signal.SIGTERM)
    assert ended(process).status == -signal.SIGTERM


# --- several trainings


def test_a_loop_of_subprocesses_is_several_trainings(tmp_path: Path) -> None:
    script(tmp_path, TRAINS + "train(12)", "one.py")
    loop = "import subprocess, sys\nfor lr in (0.1, 0.01):\n    subprocess.run([sys.executable, 'one.py', str(lr)])\n"
    script(tmp_path, loop)
    under = clew_run(tmp_path, "--json", "out.json", "train.py")
    assert "train.py: 2 trainings of 12 and 12 steps in" in under.out
    assert "processes" not in under.out
    assert [item["steps"] for item in table(tmp_path)["run"]["trainings"]] == [12, 12]


def test_workers_of_one_training_are_none_of_their_own(tmp_path: Path) -> None:
    text = """
import multiprocessing
if __name__ == "__main__":
    train(3)
    children = [multiprocessing.get_context("spawn").Process(target=train, args=(2,)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
"""
    script(tmp_path, TRAINS + text)
    under = clew_run(tmp_path, "--json", "out.json", "train.py")
    assert "3 steps in" in under.out
    assert len(table(tmp_path)["run"]["trainings"]) == 1
