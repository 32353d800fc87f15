"""The line that made a thing, and the line that gave a parameter its first values."""

from __future__ import annotations

import gc
import linecache
import weakref
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from clew.observe.hooks import watching
from clew.observe.settings import Settings
from clew.observe.watches._holders import Holders
from clew.observe.watches.linear_stack import LinearStack
from clew.observe.watches.mode_in_training import ModeInTraining
from clew.observe.watches.unused_parameters import UnusedParameters
from clew.observe.watches.weight_init import WeightInit
from clew.records import exact


class Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(3, width)
        self.rest = nn.Sequential(
            nn.Linear(width, width),
            nn.Tanh(),
        )
        self.never = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rest(self.first(x))  # type: ignore[no-any-return]  # of nn.Sequential


class Wider(Net):
    def __init__(self) -> None:
        super().__init__(8)


def text(place: Any) -> str:
    assert place is not None
    return linecache.getline(place.file, place.line).strip()


def train(model: nn.Module, steps: int = 20) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(16, 3)).square().mean()
        loss.backward()
        optimizer.step()


def test_the_line_that_made_each_module(tmp_path: Path) -> None:
    with watching(tmp_path, []) as recorder:
        net = Wider()  # this line
        made = recorder.origins.made
        assert "# this line" in text(made(net))
        assert text(made(net.first)) == "self.first = nn.Linear(3, width)"
        assert text(made(net.rest[0])) == "nn.Linear(width, width),"
        assert text(made(net.rest[1])) == "nn.Tanh(),"
        assert made(net.first).role == "made here"  # type: ignore[union-attr]  # text() has looked
    assert recorder.origins.made(nn.Linear(1, 1)) is None


def test_nothing_is_kept_alive(tmp_path: Path) -> None:
    with watching(tmp_path, []) as recorder:
        gone = weakref.ref(Net(4))
        gc.collect()
        assert gone() is None
        for _ in range(5000):
            nn.Identity()
        assert len(recorder.origins._made._held) <= 4100


def test_first_values_given_on_purpose(tmp_path: Path) -> None:
    with watching(tmp_path, []) as recorder:
        net = Net(4)
        assert recorder.origins.started(net.first.weight) is None  # torch's own constructor gave them
        nn.init.normal_(net.first.weight, std=30.0)
        nn.init.zeros_(net.first.bias.data)
        assert "std=30.0" in text(recorder.origins.started(net.first.weight))
        assert "bias.data" in text(recorder.origins.started(net.first.bias))
        net.first.reset_parameters()
        assert recorder.origins.started(net.first.weight) is None
    assert nn.init.zeros_.__module__ == "torch.nn.init"


def test_runs_are_the_same(tmp_path: Path) -> None:
    def run() -> list[torch.Tensor]:
        torch.manual_seed(0)
        net = Net(6)
        nn.init.xavier_uniform_(net.first.weight)
        train(net, 5)
        return [parameter.detach().clone() for parameter in net.parameters()]

    bare = run()
    with watching(tmp_path, [Settings]):
        seen = run()
    assert all(torch.equal(one, other) for one, other in zip(bare, seen, strict=True))


def test_a_start_too_large_is_shown_where_it_was_given(tmp_path: Path) -> None:
    with watching(tmp_path, [WeightInit]) as recorder:
        model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
        nn.init.normal_(model[2].weight, std=40.0)  # type: ignore[arg-type]  # a tensor
        train(model, 3)
    answer = recorder.watches[0].read()
    assert "std=40.0" in text(answer.where[0])  # type: ignore[union-attr]  # it is clear
    assert answer.where[1].role == "made here"  # type: ignore[union-attr]


def test_layers_of_a_sequence_are_joined_where_they_are_made(tmp_path: Path) -> None:
    with watching(tmp_path, [LinearStack]) as recorder:
        train(nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 8), nn.Tanh()), 3)  # here
    assert "# here" in text(recorder.watches[0].read().where[0])  # type: ignore[union-attr]


def test_a_part_that_is_left_out_is_shown_where_its_list_is_used(tmp_path: Path) -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(4)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers[2:]:  # half of them
                x = layer(x).tanh()
            return x

    with watching(tmp_path, [UnusedParameters], "every") as recorder:
        train(Half())
    assert "# half of them" in text(recorder.watches[0].read().where[0])  # type: ignore[union-attr]


def test_train_is_missing_before_the_loop(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    loader = DataLoader(TensorDataset(torch.randn(64, 3)), batch_size=16)
    with watching(tmp_path, [ModeInTraining], "every") as recorder:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(4):
            for (x,) in loader:  # the loop
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                model(torch.randn(4, 3))
    where = recorder.watches[0].read().where  # type: ignore[union-attr]
    assert "# the loop" in text(where[0])
    assert text(where[1]) == "model.eval()"


class Diary:
    def __init__(self) -> None:
        self.pages: list[torch.Tensor] = []

    def write(self) -> None:
        self.pages.append(torch.zeros(4))


def test_what_keeps_tensors_is_found() -> None:
    diary, plain = Diary(), list(range(100))
    holders = Holders()
    for turn in range(3):
        for _ in range(40):
            diary.write()
            plain.append(turn)
        holders.look()
    assert text(holders.place) == "self.pages.append(torch.zeros(4))"


def test_a_list_of_a_running_function_is_found() -> None:
    kept: list[torch.Tensor] = []
    holders = Holders()
    for _ in range(2):
        for _ in range(40):
            kept.append(torch.zeros(2))  # noqa: PERF401  # as scripts do
        holders.look()
    assert "kept.append" in text(holders.place)


def test_settings_say_where_data_comes_in(tmp_path: Path) -> None:
    def collate(rows: list[Any]) -> torch.Tensor:
        return torch.stack([row[0] for row in rows])

    with watching(tmp_path, [Settings]) as recorder:
        model = Net(4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        loader = DataLoader(TensorDataset(torch.randn(32, 3)), batch_size=8, collate_fn=collate)  # made
        for x in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), torch.zeros(8, 4))
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
            optimizer.step()
        recorder.watches[0].write(str(tmp_path / "settings.json"))  # type: ignore[attr-defined]
    rows = exact.loads((tmp_path / "settings.json").read_text())
    found = {row["name"]: row["where"] for row in rows}
    assert "# made" in linecache.getline(found["loader"]["file"], found["loader"]["line"])
    assert found["collate"]["symbol"].endswith("collate")
    assert "mse_loss" in linecache.getline(found["loss"]["file"], found["loss"]["line"])
    assert {row["where"]["module"] for row in rows if row["name"] == "made"} >= {"first", "rest.0", "rest.1"}
