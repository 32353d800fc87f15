"""A watch sees the same whether or not a step is kept for exams."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from launching import answers, ended, script, start

from clew.observe.hooks import watching
from clew.observe.registry import all_watches
from clew.observe.watch import Watch
from clew.observe.watches.loss_shapes import LossShapes

TOOL = Path(__file__).parents[2] / "tools" / "watches.py"
TIMED = {"step_time_trend", "loader_wait_share", "memory_trend"}

HAND = """
import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(400, 6), torch.randint(0, 2, (400,))
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
index = torch.arange(16)
for step in range(60):
    xb, yb = x[index], y[index]
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(xb), yb).backward()
    optimizer.step()
"""


def seen(folder: Path, *options: str) -> dict[str, Any]:
    folder.mkdir()
    command = (sys.executable, "-m", "clew", "run", "--no-exams", "--quiet", *options, script(folder, HAND))
    ran = ended(start(command, folder))
    assert ran.status == 0, ran.err
    (held,) = answers(folder)
    return {answer["test"]: answer for answer in held["answers"]}


def test_a_watch_sees_the_same_without_a_step_kept_for_exams(tmp_path: Path) -> None:
    kept, plain = seen(tmp_path / "kept", "--keep-capture"), seen(tmp_path / "plain")
    assert plain["batch_repeats"].get("outcome") == "same", plain["batch_repeats"]
    assert {test for test in kept if kept[test] != plain[test]} <= TIMED


def test_a_watch_alone_names_the_line_that_it_names_beside_others(tmp_path: Path) -> None:
    x, y = torch.randn(64, 5), torch.randn(64)

    def train() -> None:
        model = torch.nn.Linear(5, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(12):
            optimizer.zero_grad()
            out = model(x)
            error = (out - y) ** 2
            loss = error.mean()
            torch.autograd.backward(loss)
            optimizer.step()

    def answer(*watches: type[Watch]) -> dict[str, Any]:
        with watching(tmp_path, [*watches]) as recorder:
            train()
            return next(held for held in recorder.answers() if held["test"] == "loss_shapes")

    class Chatty(Watch):
        test = "event_order"

        def function(self, event: Any) -> None:
            del event
            for _ in range(30_000):
                str.join("", ("a",)), copy.copy(1)

        loss = module = function

    alone = answer(LossShapes)
    assert alone == answer(Chatty, LossShapes)
    assert alone == answer(*all_watches()[0])
    assert alone["where"][0]["line"] == train.__code__.co_firstlineno + 6, alone


def test_a_sample_of_the_casebook_is_seen_alike_by_each_watch_alone() -> None:
    words = ["--program", "house_prices", "--watch", "loss_shapes", "--watch", "batch_repeats"]
    done = subprocess.run([sys.executable, str(TOOL), *words], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr
