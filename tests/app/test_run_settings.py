"""From a value that training ran with to the line it was written on."""

import json
import os
from pathlib import Path

import pytest
from launching import clew_run, script

from clew.app.data_lines import COMES_IN
from clew.app.settings import _of_a_library, _only_table, says
from clew.records.place import Place
from warm import warm_run

SCRIPT = """
import tomllib, torch
with open("config.toml", "rb") as file:
    config = tomllib.load(file)
torch.manual_seed(0)
x = torch.randn(256, 6)
y = (x @ torch.randn(6, 1)).relu()
model = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=config["optimiser"]["learning_rate"])
for _ in range(60):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""
CONFIG = """[data]
rows = 256

[optimiser]
# dropout_rate = 40.0
learning_rate = {rate}
"""


def test_a_learning_rate_is_traced_to_the_configuration(tmp_path: Path) -> None:
    script(tmp_path, CONFIG.format(rate="40.0"), "config.toml")
    script(tmp_path, SCRIPT)
    clew_run(tmp_path, "--json", "out.json", "train.py")
    causes = {cause["id"]: cause for cause in json.loads((tmp_path / "out.json").read_text())["causes"]}
    first = causes["hp.lr_too_high"]["where"][0]
    assert (first["file"], first["line"]) == ("config.toml", 6)


def test_settings_that_are_executed_are_settings_too(tmp_path: Path) -> None:
    script(tmp_path, "rows = 256\nlearning_rate = 40.0\n", "config_small.py")
    script(tmp_path, "exec(open('config_small.py').read())\n", "configurator.py")
    read = "learning_rate = 1e-2\nwith open('configurator.py') as file:\n    exec(file.read())\n"
    own = SCRIPT.replace('with open("config.toml", "rb") as file:\n    config = tomllib.load(file)\n', read)
    script(tmp_path, own.replace('config["optimiser"]["learning_rate"]', "learning_rate"))
    clew_run(tmp_path, "--json", "out.json", "train.py")
    causes = {cause["id"]: cause for cause in json.loads((tmp_path / "out.json").read_text())["causes"]}
    first = causes["hp.lr_too_high"]["where"][0]
    assert (first["file"], first["line"]) == ("config_small.py", 2)


FROZEN = """
import torch
torch.manual_seed(0)
body = torch.nn.Sequential(torch.nn.Linear(6, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU())
model = torch.nn.Sequential(body, torch.nn.Linear(64, 1))
{prepare}
for parameter in body.parameters():
    parameter.requires_grad = False
optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
for _ in range(60):
    x = torch.randn(64, 6)
    y = (x[:, :1] * x[:, 1:2]).relu()
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""
TRAINED = """
from torch.nn.functional import mse_loss
first = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(200):
    x = torch.randn(64, 6)
    first.zero_grad()
    mse_loss(model(x), (x[:, :1] * x[:, 2:3]).relu()).backward()
    first.step()
"""


@pytest.mark.parametrize("trained", [False, True])
def test_layers_frozen_as_they_were_drawn(tmp_path: Path, trained: bool) -> None:
    script(tmp_path, FROZEN.format(prepare=TRAINED if trained else ""))
    clew_run(tmp_path, "--json", "out.json", "train.py")
    table = json.loads((tmp_path / "out.json").read_text())
    found = [cause for cause in table["causes"] if cause["kind"] == "finding"]
    if trained:
        assert [cause["id"] for cause in found] == []
        return
    assert [cause["id"] for cause in found] == ["train.frozen_params"]
    assert (found[0]["where"][0]["file"], found[0]["where"][0]["line"]) == ("train.py", 8)


@pytest.mark.parametrize(
    ("line", "name", "value", "there"),
    [
        ("  lr: 0.01", "lr", 0.01, True),
        ('parser.add_argument("--learning-rate", type=float, default=1e-2)', "lr", 0.01, True),
        ('  "base_lr": 1e-2,', "lr", 0.01, True),
        ("    max_lr: float = .01", "lr", 0.01, True),
        ("dropout_rate = 0.01", "lr", 0.01, False),
        ("lr = 0.1", "lr", 0.01, False),
        ("steps = 0.01", "lr", 0.01, False),
        ("lr_decay = 0.01", "weight_decay", 0.01, False),
        ("weight-decay: 1.0e-2", "weight_decay", 0.01, True),
        ("max_grad_norm=1", "clip", 1.0, True),
        ("batch_size = 2", "batch", 2.0, True),
        ("batch_size = 12", "batch", 2.0, False),
    ],
)
def test_lines_that_give_a_value(line: str, name: str, value: float, there: bool) -> None:
    assert says(line, name, [value]) == there


LAYERS = """
import torch
torch.manual_seed(0)
class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(12, 16)
        layer = torch.nn.TransformerEncoderLayer(
            d_model=16, nhead=2, dim_feedforward=32, dropout=0.0,
        )
        self.body = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(16, 3)
    def forward(self, x):
        return self.head(self.body(self.table(x)))
model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(40):
    x = torch.randint(0, 12, (8, 6))
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x).flatten(0, 1), (x % 3).flatten()).backward()
    optimizer.step()
"""


def test_a_copied_layer_leads_to_the_line_of_the_one_it_was_copied_from(tmp_path: Path) -> None:
    script(tmp_path, LAYERS)
    warm_run(tmp_path, "--budget", "60s", "--json", "out.json", "train.py")
    causes = {cause["id"]: cause for cause in json.loads((tmp_path / "out.json").read_text())["causes"]}
    first = causes["arch.batch_mixing"]["where"][0]
    assert LAYERS.splitlines()[first["line"] - 1].strip().startswith("layer =")


def test_what_libraries_keep_is_no_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert _of_a_library(str(tmp_path / ".cache" / "fonts" / "list.json"))
    assert not _of_a_library(str(tmp_path / "work" / "config.json"))
    assert not _of_a_library(str(tmp_path / "work" / ".hydra" / "config.yaml"))


def test_a_column_that_looks_ahead_came_with_the_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = str(tmp_path / "data" / "demand.csv")
    (found,) = _only_table([table, str(tmp_path / "config.yaml")], (Place("train.py", 3),))
    assert (found.file, found.line) == (os.path.join("data", "demand.csv"), None)
    assert _only_table([table, str(tmp_path / "other.parquet")], ()) == ()
    assert _only_table([table], (Place("features.py", 3, role=COMES_IN),)) == ()
