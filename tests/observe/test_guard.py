"""What a watch raises ends in its answer; what a signal raises meanwhile ends in the script."""

import signal
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from launching import clew_run, script

from clew.observe.hooks import watching
from clew.observe.watch import Answer, Backward, Watch
from clew.observe.watches.evaluation_classes import EvaluationClasses
from clew.records.clue import Reading

RAISED = (SystemExit, GeneratorExit, KeyboardInterrupt, RuntimeError)


class Handled(Exception):
    """What a handler of the script's raises."""


class Object:
    def __call__(self, number: int, frame: Any) -> None:
        handler("", number, frame)


def handler(word: str, number: int, frame: Any) -> None:
    del word, number, frame
    raise Handled


@pytest.fixture
def alarm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGALRM, before[0])
    signal.signal(signal.SIGINT, before[1])


def watch_with(**methods: Any) -> type[Watch]:
    held = {name: staticmethod(method) for name, method in methods.items()}
    return type("Held", (Watch,), {"test": "event_order", "read": lambda _: Reading(held=1.0), **held})


def train() -> None:
    torch.autograd.backward(torch.zeros(1, requires_grad=True) * 2)


@pytest.mark.parametrize("kind", RAISED)
@pytest.mark.parametrize("where", ["__init__", "installed", "before_backward", "after_backward", "read"])
def test_a_watch_that_raises_answers_with_it(tmp_path: Path, where: str, kind: type[BaseException]) -> None:
    def fails(*_: Any) -> Answer:
        raise kind("seven")

    with watching(tmp_path, [watch_with(**{where: fails})]) as recorder:
        train()
        (answer,) = recorder.answers()
    assert answer["unclear"] == f"its instrument failed: {kind.__name__}: seven"


@pytest.mark.parametrize("kind", RAISED)
def test_what_fails_inside_a_replaced_function_stays_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    def fails(*_: Any) -> None:
        raise kind

    with watching(tmp_path, [EvaluationClasses]) as recorder:
        recorder.watches[0].answers = torch.zeros(2)  # type: ignore[attr-defined]
        monkeypatch.setattr(recorder, "quietly", fails)
        assert torch.zeros(2).eq(torch.zeros(2)).all()


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("given", [partial(handler, "word"), Object(), Object().__call__])
def test_what_a_signal_raises_while_a_watch_looks_reaches_the_script(tmp_path: Path, given: Any) -> None:
    seen: list[Backward] = []

    def rings(event: Backward) -> None:
        seen.append(event)
        signal.raise_signal(signal.SIGALRM)

    signal.signal(signal.SIGALRM, given)
    with watching(tmp_path, [watch_with(before_backward=rings)]) as recorder:
        for _ in range(2):
            with pytest.raises(Handled):
                train()
        assert "measured" in recorder.answers()[0]
    assert len(seen) == 2


@pytest.mark.usefixtures("alarm")
def test_control_c_while_a_watch_looks_reaches_the_script(tmp_path: Path) -> None:
    def rings(event: Backward) -> None:
        del event
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    with watching(tmp_path, [watch_with(after_backward=rings)]), pytest.raises(KeyboardInterrupt):
        train()


TRAINS = "import torch\nmodel = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
SCRIPTS = (
    "class Net(torch.nn.Module):\n    def forward(self, x):\n        return no_such_name(x)\ntorch.jit.script(Net())\n"
)
SHAPES = "torch.nn.functional.cross_entropy(model(torch.zeros(3, 2)), torch.zeros(4, dtype=torch.long))\n"
LINEAR = "for width in (2, 2, 2, 3):\n    model(torch.zeros(4, width)).sum().backward()\n    optimizer.step()\n"
INSIDE = "from clew.observe.recorder import Recorder\nRecorder.checkpoint(None)\n"
WRAPPED = """
from clew.observe.recorder import Recorder
try:
    Recorder.checkpoint(None)
except AttributeError as error:
    raise KeyError from error
"""


@pytest.mark.parametrize(
    ("text", "own"),
    [
        (TRAINS + LINEAR, ""),
        (TRAINS + SCRIPTS, "torch.jit.script failed with RuntimeError while clew's instruments were around it"),
        (TRAINS + INSIDE, "AttributeError came up in clew's own code (recorder.py)"),
        (TRAINS + WRAPPED, "AttributeError came up in clew's own code (recorder.py)"),
        (TRAINS + SHAPES, ""),
        (TRAINS + "optimizer.zero_grad(3, 4)\n", ""),
        (TRAINS + "print(1 / 0)\n", ""),
    ],
    ids=["in C", "scripted", "inside", "a cause", "shapes", "arguments", "the script's"],
)
def test_an_error_that_may_be_clews_is_said_first(tmp_path: Path, text: str, own: str) -> None:
    ran = clew_run(tmp_path, script(tmp_path, text))
    assert ran.status == 1
    first = " ".join(ran.out.split("undecided" if "undecided" in ran.out else "NOTHING FOUND", 1)[-1].split())
    said = "Without instruments: clew run --no-instruments train.py" in first
    assert said == bool(own), ran.out
    assert not own or own in first.partition("Seen")[0], ran.out


def test_without_instruments_a_run_is_only_kept(tmp_path: Path) -> None:
    ran = clew_run(tmp_path, "--no-instruments", script(tmp_path, TRAINS + "print(torch.softmax.__class__.__name__)\n"))
    assert ran.out.startswith("builtin_function_or_method\n")
    assert ran.status == 0
    assert "nothing was measured" in " ".join(ran.out.split())
    (kept,) = (tmp_path / "kept" / "runs").glob("*/output.jsonl")
    assert "builtin_function" in kept.read_text()


def test_a_watch_warns_nobody(tmp_path: Path) -> None:
    """Neither here nor later: what `warnings` knows of the script is as it was."""

    def warns(*_: Any) -> Answer:
        warnings.warn("from a watch", UserWarning, stacklevel=2)
        float(torch.ones(1, requires_grad=True))
        return Reading(held=1.0)

    script_line = "import warnings\nwarnings.warn('of the script')\n"
    space = {"__name__": "script", "__file__": "script.py"}
    code = compile(script_line, "script.py", "exec")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        exec(code, space)
        with watching(tmp_path, [watch_with(before_backward=warns, read=warns)]) as recorder:
            train()
            assert recorder.answers()[0].get("measured") == {"held": 1.0}
        exec(code, space)
        assert [str(item.message) for item in told] == ["of the script"]
        warnings.simplefilter("error")
        with watching(tmp_path, [watch_with(before_backward=warns)]) as recorder:
            train()
            assert "measured" in recorder.answers()[0]
            with recorder.quietly():
                warnings.filterwarnings("ignore", message="of a module that is imported here")
        assert [held[0] for held in warnings.filters[:2]] == ["ignore", "error"]


WEIGHTED = """
import torch
model = torch.nn.Linear(4, 1)
weight = torch.nn.Parameter(torch.tensor(2.0))
optimizer = torch.optim.SGD([*model.parameters(), weight], lr=0.01)
for step in range(24):
    ((model(torch.randn(8, 4)) ** 2).mean() * weight).backward()
    if step % 2:
        optimizer.step()
        optimizer.zero_grad()
"""


def test_nothing_of_clews_reaches_the_streams_of_the_script(tmp_path: Path) -> None:
    ran = clew_run(tmp_path, "--quiet", script(tmp_path, WEIGHTED))
    assert (ran.out, ran.err, ran.status) == ("", "", 0)
