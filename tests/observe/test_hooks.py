"""What the recorder is told, what it must not be told, and that nothing is left behind."""

import json
import math
import multiprocessing
import pickle
import traceback
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as some
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import clew
from clew.archive.metrics import read_numbers
from clew.observe.hooks import REMEMBERED, Hooks, watching
from clew.observe.losses import values_of
from clew.observe.recorder import SHARE, SPARSE, SPARSEST, Recorder, spacing
from clew.observe.stream import Stream
from clew.observe.watch import EVENTS, Answer, Watch, when_sampled
from clew.records import exact
from clew.records.clue import Unclear


class Listener(Watch):
    """Writes down what it is told."""

    test = "event_order"
    told: list[tuple[str, Any]]

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        type(self).told = []

    def read(self) -> Answer:
        return Unclear("it only listens")


def _note(name: str) -> Any:
    def handler(self: Listener, event: Any) -> None:
        self.told.append((name, event))

    return handler


for _name in EVENTS:
    setattr(Listener, _name, _note(_name))


def told(name: str) -> list[Any]:
    return [event for kind, event in Listener.told if kind == name]


def kinds() -> list[str]:
    return [kind for kind, _ in Listener.told]


def named(owner: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(owner).items() if callable(value)}


def test_everything_is_taken_off_again(tmp_path: Path) -> None:
    schedulers = [kind for kind in vars(torch.optim.lr_scheduler).values() if isinstance(kind, type)]
    owners = [
        torch,
        torch.nn.functional,
        torch.Tensor,
        torch.autograd,
        torch.nn.Module,
        torch.optim.Optimizer,
        torch.nn.utils,
        torch.nn.utils.clip_grad,
        torch.no_grad,
        torch.utils.data.DataLoader,
        torch.jit,
        torch.fx.Tracer,
        torch.export,
        *schedulers,
    ]
    before = [named(owner) for owner in owners]
    with watching(tmp_path, [Listener]):
        assert [named(owner) for owner in owners] != before
    assert [named(owner) for owner in owners] == before
    module = torch.nn.modules.module
    assert not module._has_any_global_hook()  # type: ignore[no-untyped-call]
    nn.Linear(2, 2)(torch.zeros(1, 2))
    assert told("forward") == []


def test_one_training_step_is_told_in_order(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with watching(tmp_path, [Listener]):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(torch.randn(5, 3)), torch.zeros(5, dtype=torch.long))
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(parameters=(p for p in model.parameters()), max_norm=1.0)
        optimizer.step()
    modules = ["module"] * 4
    steps = ["judged", "before_backward", "after_backward", "clip", "before_step", "after_step"]
    assert kinds() == ["optimizer_made", "zero_grad", *modules, "forward", "loss", *steps]
    assert [event.name for event in told("module")] == ["0", "1", "2", ""]
    assert told("judged")[0].backward
    (clip,) = told("clip")
    assert (len(clip.parameters), clip.limit) == (4, 1.0)
    assert told("loss")[0].place.file.endswith("test_hooks.py")


def test_named_arguments_are_inputs_too(tmp_path: Path) -> None:
    model = nn.Linear(3, 1)
    with watching(tmp_path, [Listener]):
        model(input=torch.ones(2, 3))
    assert torch.equal(told("forward")[0].inputs[0], torch.ones(2, 3))


def test_a_function_that_calls_another_is_told_once(tmp_path: Path) -> None:
    with watching(tmp_path, [Listener]):
        F.softmax(torch.zeros(2, 3), dim=1)
        nn.Softmax(dim=-1)(torch.zeros(2, 3))
        torch.sigmoid(torch.zeros(2)).sigmoid()
    assert [(event.name, event.options.get("dim")) for event in told("function")] == [
        ("softmax", 1),
        ("softmax", -1),
        ("sigmoid", None),
        ("sigmoid", None),
    ]


def test_a_forward_that_raised_leaves_no_trace(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 1))
    with watching(tmp_path, [Listener]):
        with pytest.raises(RuntimeError, match="shapes"):
            model(torch.zeros(2, 5))
        model(torch.zeros(2, 3))
    assert [event.module for event in told("forward")] == [model]


def test_what_backward_runs_again_is_not_told(tmp_path: Path) -> None:
    inner, outer = nn.Linear(3, 3), nn.Linear(3, 1)
    with watching(tmp_path, [Listener]):
        loss = outer(checkpoint(inner, torch.randn(4, 3), use_reentrant=False)).sum()
        before = len(told("module"))
        torch.autograd.backward(loss)
    assert before == len(told("module")) == 2


def test_traced_and_vectorised_code_is_left_alone(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Softmax(dim=-1))
    with watching(tmp_path, [Listener]):
        graph = torch.fx.symbolic_trace(model)
        parameters: dict[str, torch.Tensor] = dict(model.named_parameters())
        torch.func.vmap(lambda row: torch.func.functional_call(model, parameters, (row,)))(torch.randn(4, 3))
        with torch.device("meta"):
            nn.Linear(3, 2)(torch.empty(1, 3))
        assert not told("module")
        assert not told("function")
        graph(torch.randn(1, 3))
    assert [node.op for node in graph.graph.nodes] == ["placeholder", "call_module", "call_module", "output"]
    assert told("forward")


def test_a_function_mode_of_the_script_does_not_see_what_clew_calls(tmp_path: Path) -> None:
    class Calls(Listener):
        def forward(self, event: Any) -> None:
            super().forward(event)
            torch.add(event.output, 1)

    seen: list[Any] = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    model = nn.Linear(3, 1)
    with watching(tmp_path, [Calls]), Mode():
        model(torch.zeros(1, 3))
    assert torch.add not in seen
    assert F.linear in seen


def test_to_look_at_a_computed_weight_changes_nothing(tmp_path: Path) -> None:
    class Looks(Listener):
        def module(self, event: Any) -> None:
            super().module(event)
            if isinstance(event.module, nn.Linear):
                assert event.module.weight.shape == (2, 3)

    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
    before = {name: held.clone() for name, held in layer.named_buffers()}
    state = torch.get_rng_state()
    with watching(tmp_path, [Looks]) as recorder, torch.no_grad():
        layer.eval()(torch.zeros(1, 3))
        layer.train()
        recorder.busy = True
        _ = layer.weight
        recorder.busy = False
    assert all(torch.equal(held, before[name]) for name, held in layer.named_buffers())
    assert torch.equal(torch.get_rng_state(), state)
    assert not recorder.broken


def test_loaders_are_numbered_and_their_epochs_counted(tmp_path: Path) -> None:
    data = TensorDataset(torch.arange(4.0))
    with watching(tmp_path, [Listener]):
        train, test = DataLoader(data, batch_size=2), DataLoader(data, batch_size=4)
        for _ in range(2):
            list(train)
            list(test)
    assert [(event.loader, event.epoch, event.position) for event in told("batch")] == [
        *((0, 0, 0), (0, 0, 1), (1, 0, 0)),
        *((0, 1, 0), (0, 1, 1), (1, 1, 0)),
    ]


def test_only_steps_of_a_scheduler_that_the_script_takes_are_told(tmp_path: Path) -> None:
    kinds = torch.optim.lr_scheduler
    with watching(tmp_path, [Listener]):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
        parts = [kinds.ConstantLR(optimizer), kinds.StepLR(optimizer, 2)]
        whole = kinds.SequentialLR(optimizer, parts, milestones=[1])
        assert not told("scheduler")
        optimizer.step()
        whole.step()
    assert [event.scheduler for event in told("scheduler")] == [whole]


def test_an_optimiser_is_no_scheduler(tmp_path: Path) -> None:
    before = torch.optim.Optimizer.step
    with watching(tmp_path, [Listener]):
        assert torch.optim.Optimizer.step is before


class Between(Watch):
    test = "event_order"
    seen: tuple[list[int], list[int]] = ([], [])

    def before_step(self, event: Any) -> None:
        self.seen[0].append(event.step)

    @when_sampled
    def after_step(self, event: Any) -> None:
        self.seen[1].append(event.step)

    def read(self) -> Answer:
        return Unclear("it only listens")


def test_models_made_all_along_do_not_pile_up(tmp_path: Path) -> None:
    class Forgets(Between):
        def module(self, event: Any) -> None:
            del event

    hooks = Hooks(Recorder(str(tmp_path), [Forgets]))
    hooks.install()
    try:
        for _ in range(3 * REMEMBERED):
            nn.Sequential(nn.Linear(2, 2))(torch.zeros(1, 2))
    finally:
        hooks.uninstall()
    assert len(hooks.roots) <= REMEMBERED
    assert len(hooks.learning) <= REMEMBERED


def test_between_samples_only_those_are_told_who_want_to_be(tmp_path: Path) -> None:
    Between.seen = ([], [])
    with watching(tmp_path, [Between], sample="3"):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
        for _ in range(8):
            optimizer.step()
    assert Between.seen == ([0, 1, 2, 3, 4, 5, 6, 7], [0, 3, 6])


def test_a_replacement_shows_neither_in_tracebacks_nor_in_warnings_nor_in_pickles(tmp_path: Path) -> None:
    with watching(tmp_path, [Listener]):
        with pytest.raises(IndexError) as caught:
            F.cross_entropy(torch.zeros(1, 2), torch.tensor([5]))
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            F.mse_loss(torch.zeros(3, 1), torch.zeros(3))
        for function in (F.cross_entropy, torch.sigmoid, torch.Tensor.sigmoid):
            assert pickle.loads(pickle.dumps(function)) is function  # noqa: S301  # our own bytes
    frames = [frame.filename for frame in traceback.extract_tb(caught.tb)]
    assert not [file for file in frames if "clew/observe" in file]
    assert [note.filename for note in noted] == [__file__]
    assert told("raised")[0].during == "cross_entropy"


def _in_a_child(queue: Any) -> None:
    queue.put((torch.autograd.backward.__code__.co_filename, F.mse_loss.__code__.co_filename))


def test_a_forked_process_goes_on_bare(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    with watching(tmp_path, [Listener]):
        queue = context.SimpleQueue()
        child = context.Process(target=_in_a_child, args=(queue,))
        child.start()
        files = queue.get()
        child.join()
        here = F.mse_loss.__code__.co_filename
    package = str(Path(clew.__file__).parent)
    assert here.startswith(package)
    assert not [file for file in files if file.startswith(package)]


def test_a_failure_outside_the_watches_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    recorder = Recorder(str(tmp_path), [Listener])
    hooks = Hooks(recorder, say=said.append)
    hooks.install()
    try:
        recorder.record = None  # type: ignore[method-assign, assignment]
        for _ in range(2):
            value = torch.zeros(1, requires_grad=True)
            torch.autograd.backward(value * 2)
    finally:
        hooks.uninstall()
    assert len(said) == 1
    assert said[0].startswith("could not follow the losses: TypeError")


@given(some.text(), some.text(), some.integers(0, 10**9), some.one_of(some.floats(), some.integers(-(10**6), 10**6)))
def test_a_number_is_written_as_exact_json(name: str, of: str, step: int, value: float) -> None:
    stream = Stream("unused")
    stream.number(name, of, step, value)
    stream.number(name, of, step, value)
    assert stream._lines == [exact.dumps([name, of, step, float(value)])] * 2


def test_numbers_come_back(tmp_path: Path) -> None:
    stream = Stream(str(tmp_path / "trace.jsonl"))
    for step, value in enumerate((0.1, math.inf, -2.5)):
        stream.number("loss", "", step, value)
    stream.flush()
    with open(stream.path, "ab") as file:
        file.write(b'["loss","",3,')
    assert read_numbers(stream.path) == [("loss", "", 0, 0.1), ("loss", "", 1, math.inf), ("loss", "", 2, -2.5)]


def test_values_of_several_kinds_are_read() -> None:
    kinds = [torch.tensor(1.5), torch.tensor([2.5], dtype=torch.bfloat16), torch.tensor(3)]
    assert values_of(kinds) == [1.5, 2.5, 3.0]
    assert values_of([torch.tensor(1.0), torch.tensor([[2.0]])]) == [1.0, 2.0]


@pytest.mark.parametrize(("rank", "expected"), [("3", (3, 8)), ("", (0, 8)), ("x", (0, 1))])
def test_the_rank_is_that_of_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str, expected: tuple[int, int]
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "8")
    recorder = Recorder(str(tmp_path), [])
    recorder.step_done()
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    recorder.checkpoint()
    table = json.loads(Path(recorder.answers_path).read_text())
    assert (table["rank"], table["world"]) == expected


@given(some.floats(-1, 10), some.floats(0, 10))
def test_samples_are_spaced_by_what_they_cost(extra: float, usual: float) -> None:
    gap = spacing(extra, usual)
    assert SPARSE <= gap <= SPARSEST
    assert gap == SPARSEST or usual == 0 or extra / (gap + 1) <= SHARE * usual * (1 + 1e-9)


def test_samples_grow_sparser(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), [])
    sampled = []
    for step in range(3000):
        if recorder.sampled:
            sampled.append(step)
        recorder.step_done()
    assert sampled[:16] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 19, 28, 42, 63, 94]
    late = [later - earlier for earlier, later in pairwise(sampled) if earlier >= 2 * SPARSE]
    assert late
    assert all(SPARSE <= gap <= SPARSEST for gap in late)


def test_a_later_stage_is_looked_at_from_its_second_step_on(tmp_path: Path) -> None:
    with watching(tmp_path, []) as recorder:
        weights = [nn.Parameter(torch.ones(2)) for _ in range(8)]
        sampled = []
        for weight in weights:
            optimizer = torch.optim.SGD([weight], lr=0.1)
            for _ in range(500):
                sampled += [recorder.step] if recorder.sampled else []
                weight.square().sum().backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    assert {1001, 1002, 1003, 1004, 1005} <= set(sampled)
    # One that is made again and again is no stage of its own.
    assert not {3501, 3502, 3503} <= set(sampled)


def test_evaluations_within_one_step_are_looked_at_ever_more_rarely(tmp_path: Path) -> None:
    """Quasi-Newton methods make hundreds of them, and all belong to a step that is sampled."""
    model, x = nn.Linear(6, 1), torch.randn(64, 6)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=200, tolerance_grad=0.0, tolerance_change=0.0)
    made = 0

    def closure() -> torch.Tensor:
        nonlocal made
        made += 1
        optimizer.zero_grad()
        loss: torch.Tensor = model(x).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with watching(tmp_path, [Listener]):
        optimizer.step(closure)  # type: ignore[no-untyped-call]
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    assert made > 150
    assert len(told("forward")) < 40
    assert len(told("before_backward")) == made  # counted all the same
    assert (
        [event.sampled for event in told("before_step")]
        == [event.sampled for event in told("after_step")]
        == [
            True,
            True,
        ]
    )
