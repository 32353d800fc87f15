"""What reaches what in a network, in which order numbers arrive, and over which rows they were scaled."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from loops_data import answer
from loops_training import text_at
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from clew.observe.ledger import LEDGER
from clew.observe.provenance import _note_cast
from clew.observe.watches._data_drift import Means
from clew.observe.watches._data_whole import whole
from clew.observe.watches.batch_order import BatchOrder
from clew.observe.watches.fit_before_split import FitBeforeSplit
from clew.observe.watches.input_layout import InputLayout
from clew.observe.watches.integer_casts import IntegerCasts
from clew.observe.watches.loss_reaches_parameters import LossReachesParameters
from clew.observe.watches.narrow_pass import NarrowPass
from clew.observe.watches.output_rectified import OutputRectified
from clew.observe.watches.state_growth import StateGrowth
from clew.observe.watches.unused_parameters import UnusedParameters


class Blocks(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.stem = nn.Linear(6, 8)
        self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])
        self.head = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = x = self.stem(x)
        for block in self.blocks:
            h = block(x).tanh()
            x = h if self.how != "dropped" else x
        return self.head(x.detach() if self.how == "detached" else x)  # type: ignore[no-any-return]


class Beside(nn.Module):
    """A second layer makes something of its own, which is forgotten, before the input comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.code, self.stem, self.head = nn.Linear(3, 8), nn.Linear(6, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        self.code(torch.ones(len(x), 3))
        return self.head(self.stem(x).tanh())  # type: ignore[no-any-return]


def test_a_result_that_is_forgotten_before_the_input_comes_in(tmp_path: Any) -> None:
    assert answer(tmp_path / "a", UnusedParameters, lambda: trained(Beside()))["outcome"] == "unused"
    assert answer(tmp_path / "b", LossReachesParameters, lambda: trained(Beside()))["outcome"] == "some_missing"


def trained(model: nn.Module, x: Tensor | None = None, steps: int = 6) -> None:
    x = torch.randn(16, 6) if x is None else x
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize(("how", "unused", "reached"), [
    ("dropped", "unused", "some_missing"),
    ("detached", "none", "part_cut_off"),
    ("chained", "none", "all"),
])  # fmt: skip
def test_a_result_that_nobody_reads_is_told_from_one_that_goes_on_without_its_graph(
    tmp_path: Any, how: str, unused: str, reached: str
) -> None:
    said = answer(tmp_path / "a", UnusedParameters, lambda: trained(Blocks(how)))
    assert said["outcome"] == unused
    assert ("nothing uses" in said["says"]) == (how == "dropped")
    assert answer(tmp_path / "b", LossReachesParameters, lambda: trained(Blocks(how)))["outcome"] == reached


def narrow(width: int, dropout: float = 0.0) -> nn.Module:
    return nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Dropout(dropout), nn.Linear(width, 6))


@pytest.mark.parametrize(("make", "outcome"), [
    (lambda: narrow(1), "one_number"),
    (lambda: narrow(2), "wide"),
    (lambda: narrow(8, 0.97), "nearly_all_dropped"),
    (lambda: narrow(8, 0.5), "wide"),
    (lambda: nn.Linear(6, 1), "wide"),
])  # fmt: skip
def test_one_number_that_everything_passes_through(tmp_path: Any, make: Callable[[], nn.Module], outcome: str) -> None:
    assert answer(tmp_path, NarrowPass, lambda: trained(make()))["outcome"] == outcome


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.one, self.other = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(x).tanh()
        return self.one(h), self.other(h)


@pytest.mark.parametrize(("how", "outcome"), [
    ("written over", "loss_dropped"),
    ("added", "all"),
    ("never taken", "some_missing"),
])  # fmt: skip
def test_a_loss_that_is_written_over(tmp_path: Any, how: str, outcome: str) -> None:
    def loop() -> None:
        model = TwoHeads()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for _ in range(12):
            x = torch.randn(16, 6)
            scores, value = model(x)
            loss = F.cross_entropy(scores, x[:, :3].argmax(1)) if how != "never taken" else torch.zeros(())
            further = F.mse_loss(value, x[:, :1])
            loss = loss + further if how == "added" else further
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    said = answer(tmp_path, LossReachesParameters, loop)
    assert said["outcome"] == outcome, said
    if outcome == "loss_dropped":
        assert "F.cross_entropy(scores" in text_at(said)


class Ending(nn.Module):
    def __init__(self, how: str, outputs: int) -> None:
        super().__init__()
        self.how = how
        self.body = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, outputs))
        self.last = nn.ReLU() if how == "module" else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = self.last(self.body(x))
        return F.relu(x) if self.how == "function" else x


def ended(how: str, classes: int, below: bool = True) -> Callable[[], None]:
    def loop() -> None:
        torch.manual_seed(0)
        x = torch.randn(64, 6)
        y = (x @ torch.randn(6, classes)).argmax(1) if classes > 1 else x[:, :1] if below else x[:, :1].abs()
        model = Ending(how, classes)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(30):
            optimizer.zero_grad()
            loss: Any = F.cross_entropy(model(x), y) if classes > 1 else F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()

    return loop


@pytest.mark.parametrize(("how", "classes", "below", "outcome"), [
    ("function", 12, True, "scores"),
    ("module", 12, True, "scores"),
    ("function", 1, True, "predictions"),
    ("module", 1, True, "predictions"),
    ("function", 1, False, "free"),
    ("none", 12, True, "free"),
    ("none", 1, True, "free"),
])  # fmt: skip
def test_a_rectifier_behind_the_last_layer(tmp_path: Any, how: str, classes: int, below: bool, outcome: str) -> None:
    said = answer(tmp_path, OutputRectified, ended(how, classes, below))
    assert said["outcome"] == outcome, said
    if outcome != "free" and how == "module":
        assert "self.last = nn.ReLU()" in text_at(said)


def pictures(how: str) -> Tensor:
    """Bright squares of one colour on a dark ground, channels last, brought to the front."""
    held = 0.1 * torch.rand(64, 16, 16, 3)
    for one in held:
        top, left, colour = (int(torch.randint(0, most, ())) for most in (8, 8, 3))
        one[top : top + 8, left : left + 8, colour] += 0.8
    if how == "noise":
        held = torch.rand_like(held)
    return held.reshape(64, 3, 16, 16) if how == "renamed" else held.permute(0, 3, 1, 2)


def courses(how: str) -> Tensor:
    """Three waves of several sizes, features first, as a recurrent network wants them."""
    time = torch.arange(40.0) / 6 + 6 * torch.rand(64, 3, 1)
    held = time.sin() * torch.tensor([1.0, 2.0, 5.0])[:, None] + 0.1 * torch.randn(64, 3, 40)
    if how == "noise":
        held = torch.randn_like(held)
    return held.reshape(64, 40, 3) if how == "renamed" else held.transpose(1, 2)


class Reads(nn.Module):
    def __init__(self, flat: int) -> None:
        super().__init__()
        self.head = nn.Linear(flat, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.flatten(1))  # type: ignore[no-any-return]


@pytest.mark.parametrize("make", [pictures, courses])
@pytest.mark.parametrize(("how", "outcome"), [("renamed", "renamed"), ("moved", "as_named"), ("noise", "as_named")])
def test_axes_that_were_renamed_in_place_of_moved(
    tmp_path: Any, make: Callable[[str], Tensor], how: str, outcome: str
) -> None:
    def loop() -> None:
        torch.manual_seed(0)
        x = make(how)
        trained(Reads(x[0].numel()), x)

    said = answer(tmp_path, InputLayout, loop)
    assert said["outcome"] == outcome, said


class Skipping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.squeeze, self.back, self.head = (
            nn.Linear(6, 8), nn.Linear(8, 1), nn.Linear(1, 8), nn.Linear(8, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.head(x + self.back(self.squeeze(x)))  # type: ignore[no-any-return]


def test_one_number_beside_another_way_is_none(tmp_path: Any) -> None:
    assert answer(tmp_path, NarrowPass, lambda: trained(Skipping()))["outcome"] == "wide"


class Recurrent(nn.Module):
    def __init__(self, gain: float, both: bool) -> None:
        super().__init__()
        self.rnn = nn.RNN(3, 8, batch_first=True, nonlinearity="relu", bidirectional=both)
        for name, weight in self.rnn.named_parameters():
            if "weight_hh" in name:
                weight.data.copy_(gain * torch.eye(8))
        self.head = nn.Linear(16 if both else 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][:, -1])  # type: ignore[no-any-return]


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(("gain", "outcome"), [(3.0, "grows"), (0.9, "bounded")])
def test_states_that_grow_from_position_to_position(tmp_path: Any, gain: float, both: bool, outcome: str) -> None:
    x = torch.randn(8, 12, 3)
    told = answer(tmp_path, StateGrowth, lambda: trained(Recurrent(gain, both), x, steps=2))
    assert (told["measured"]["growth"] > 100) == (outcome == "grows")


def rows(order: str) -> TensorDataset:
    x = torch.randn(400, 3)
    x = x[x[:, 1].argsort()] if order == "by an input" else x
    y = x @ torch.tensor([1.0, 0.0, 2.0])
    if order == "by the target":
        x, y = x[y.argsort()], y.sort().values
    if order == "windows":
        series = torch.randn(403).cumsum(0)
        x, y = series.unfold(0, 3, 1)[:400], series[3:403]
    return TensorDataset(x, y)


def fed(data: TensorDataset, held_out: TensorDataset | None = None) -> None:
    width = data.tensors[0].shape[1]
    model = nn.Sequential(nn.Linear(width, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(2):
        for x, y in DataLoader(data, batch_size=20):
            optimizer.zero_grad()
            F.mse_loss(model(x)[:, 0], y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        for x, _ in DataLoader(held_out, batch_size=50) if held_out else []:
            with torch.no_grad():
                model.eval()(x)
        model.train()


@pytest.mark.parametrize(("order", "ordered"), [
    ("by the target", True), ("by an input", True), ("none", False), ("windows", None),
])  # fmt: skip
def test_numbers_that_arrive_in_order(tmp_path: Any, order: str, ordered: bool | None) -> None:
    told = answer(tmp_path, BatchOrder, lambda: fed(rows(order)))
    if ordered is None:
        assert "unclear" in told
    else:
        assert (told["measured"]["order_z"] > 6) == ordered


def test_groups_that_are_dealt_out_do_not_drift() -> None:
    held = Means()
    for turn in range(40):
        held.add([torch.randn(16, 2) + 3 * (-1) ** turn], [torch.randn(16)])
    drift = held.drift()
    assert drift is not None
    assert drift.z == 0.0


def scaled(how: str) -> tuple[TensorDataset, TensorDataset]:
    x = 3 * torch.randn(300, 4) + torch.arange(4.0)
    x[200:] += 0.5
    y = x[:, 0].clone()
    of = {"all": x, "training": x[:200]}.get(how)
    parts = [x[:200], x[200:]]
    done = [(part - (own := part if of is None else of).mean(0)) / own.std(0) for part in parts]
    return TensorDataset(done[0], y[:200]), TensorDataset(done[1], y[200:])


@pytest.mark.parametrize(("how", "outcome"), [("all", "seen"), ("each", "each_by_itself"), ("training", "unclear")])
def test_rows_that_statistics_were_taken_of(tmp_path: Any, how: str, outcome: str) -> None:
    told = answer(tmp_path, FitBeforeSplit, lambda: fed(*scaled(how)))
    assert told["outcome"] == outcome


def test_sums_of_what_is_no_table_are_not_taken() -> None:
    assert whole(torch.randn(100), None) is None
    assert whole(torch.zeros(100, 3, dtype=torch.long), None) is None
    held = whole(np.random.default_rng(0).normal(size=(100, 3)), None)
    assert held is not None
    assert held.rows == 100


def test_values_that_a_byte_cannot_hold(tmp_path: Any) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"rooms": [2, 3, 4], "garden": [20, 300, 500]})

    def cast() -> None:
        _note_cast(None, (frame,), {}, frame.astype("int16"))
        assert not LEDGER.casts
        _note_cast(None, (frame,), {}, frame.astype("int8"))

    told = answer(tmp_path, IntegerCasts, cast)
    LEDGER.clear()
    assert told["outcome"] == "wraps"
    assert told["measured"]["changed"] == 2
    assert "garden" in told["says"]
