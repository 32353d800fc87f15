"""The line that takes longer from step to step, the line of an operation written by hand, and who asked for a layer."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from clew.observe.hooks import watching
from clew.observe.recorder import Recorder
from clew.observe.watches._line_times import LineTimes
from clew.observe.watches._where import parameter_places
from clew.observe.watches.first_nonfinite import FirstNonfinite
from clew.observe.watches.graph_growth import GraphGrowth
from clew.observe.watches.loss_shapes import LossShapes
from clew.observe.watches.step_time_trend import StepTimeTrend


def text(place: Any) -> str:
    assert place is not None
    return linecache.getline(place.file, place.line).strip()


def work(amount: int) -> int:
    return sum(range(amount))  # the work


def step(amount: int) -> int:
    total = work(amount)
    total += sum(range(20_000))  # always the same
    return total


def followed(times: LineTimes, amount: int) -> dict[Any, float]:
    times.start()
    step(amount)
    return times.stop()


def test_the_line_whose_work_grew() -> None:
    times = LineTimes()
    times.early = [followed(times, 100) for _ in range(3)]
    assert times.grown() is None
    times.late = [followed(times, 400_000) for _ in range(3)]
    place = times.grown()
    assert text(place).endswith("# the work")
    assert place is not None
    assert place.symbol == "work"
    assert sys.gettrace() is None


def test_another_tracer_is_left_alone() -> None:
    def other(frame: Any, event: str, argument: Any) -> None:
        del frame, event, argument

    before, times = sys.gettrace(), LineTimes()
    sys.settrace(other)
    try:
        times.start()
        assert sys.gettrace() is other
        assert times.stop() == {}
    finally:
        sys.settrace(before)


def train(before: Callable[[int], None], steps: int) -> torch.Tensor:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(steps):
        before(number)
        optimizer.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()
    return model.weight.detach()


def slower(number: int) -> None:
    sum(range(400 * number))  # ever more


def recorded(recorder: Recorder, kind: type) -> Any:
    return next(watch for watch in recorder.watches if isinstance(watch, kind))


def test_a_loop_that_slows_down_is_named(tmp_path: Path) -> None:
    bare = train(slower, 130)
    with watching(tmp_path, [StepTimeTrend]) as recorder:
        watched = train(slower, 130)
        place = recorded(recorder, StepTimeTrend).lines.grown()
    assert text(place).endswith("# ever more")
    assert torch.equal(bare, watched)


def test_the_list_that_keeps_graphs_is_named(tmp_path: Path) -> None:
    kept: list[torch.Tensor] = []
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watching(tmp_path, [GraphGrowth], sample="every") as recorder:
        for _ in range(80):
            loss = model(torch.randn(4, 3)).square().mean()
            kept.append(loss)
            loss.backward()
            optimizer.step()
        answer = recorded(recorder, GraphGrowth).read()
    assert answer.outcome == "retained"
    assert text(answer.where[0]) == "kept.append(loss)"


def test_the_line_of_a_difference_written_by_hand(tmp_path: Path) -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(8, 3), torch.randn(8)
    with watching(tmp_path, [FirstNonfinite, LossShapes], sample="every") as recorder:
        for _ in range(6):
            optimizer.zero_grad()
            far = model(x) - y  # the difference
            loss = far.pow(2).mean()
            loss.backward()
            optimizer.step()
        answer = recorded(recorder, LossShapes).read()
    assert answer.outcome == "broadcast"
    assert text(answer.where[0]).endswith("# the difference")


def layer(inputs: int, scale: float) -> nn.Linear:
    made = nn.Linear(inputs, 2)
    nn.init.normal_(made.weight, std=scale)  # in the helper
    return made


class Helped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = layer(3, 100.0)  # asked for
        self.plain = nn.Linear(2, 2)


def test_a_layer_made_by_a_helper_has_the_line_that_asked(tmp_path: Path) -> None:
    with watching(tmp_path, []) as recorder:
        net = Helped()
        places = parameter_places(recorder, net, "head.weight", net.head.weight)
        assert [text(place).partition("# ")[2] for place in places[:2]] == ["in the helper", "asked for"]
        assert recorder.origins.asked(net.plain) is None
        assert recorder.origins.asked(net) is None
