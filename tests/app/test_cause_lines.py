"""The lines that a cause has to be fixed in, where its clues were seen elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.app.cause_lines import OF_OBSERVATIONS, OF_PARAMETERS, OF_TERMS, WORDS, Finder
from clew.app.data_lines import ON_THE_WAY, Reader
from clew.app.options import of_file, of_source
from clew.app.slices import Project
from clew.knowledge.base import load
from clew.records.place import Place

TRAIN = """\
import config
from parts import Body, Dice, Halls, seed_worker

def discounted(rewards):
    return rewards + config.gamma * rewards  # returns

def unrelated(x):
    return x.detach()  # elsewhere

class Loss:
    def __init__(self):
        self.first, self.dice = Dice(), Dice()
    def forward(self, x):
        return self.dice(x) + 2 * self.first(x)  # summed

def step(model, x, halls):
    rewards = halls.step(x)
    loss = model(x).sum() + discounted(rewards)
    loss.backward()  # backward
"""
PARTS = """\
import numpy as np

class Body:
    def __init__(self, width):
        self.stem = Linear(width)  # made
        self.norm = Linear(width)
    def forward(self, x):
        x = self.stem(x).detach()  # cut
        return x

class Dice:
    def forward(self, x):
        return 1 + x.mean()  # dice

class Halls:
    observation_size = 3
    def observe(self):
        seen = np.zeros(3)
        return 255.0 * seen  # observed
    def step(self, action):
        return self.observe(), 0.0, False

def seed_worker(worker):
    np.random.seed(3)  # seeded
"""
CONFIG = """\
gamma = 0.5
width: int = 3
TABLE = {"dropout": 0.9, "inner": {"rank": 2}}
"""


def at(text: str, mark: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if line.endswith(f"# {mark}"))


@pytest.fixture
def finder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Finder:
    monkeypatch.chdir(tmp_path)
    texts = {
        str(tmp_path / name): text.splitlines()
        for name, text in (("train.py", TRAIN), ("parts.py", PARTS), ("config.py", CONFIG))
    }
    lines = {
        "backward": [Place("train.py", at(TRAIN, "backward"))],
        "loader": [Place("train.py", 1)],
        "worker_init": [Place("parts.py", at(PARTS, "seeded") - 1)],
    }
    return Finder(lines, Project(texts), texts, {str(tmp_path / "run.toml"): ["[agent]", "tau = 1.0", "gamma = 0.9"]})


def places(found: tuple[Place, ...]) -> list[tuple[str | None, int | None]]:
    return [(place.file, place.line) for place in found]


def test_a_setting_is_named_by_its_line_in_files_first(finder: Finder) -> None:
    found = finder.by_cause({})["rl.discounting"]
    assert places(found) == [("run.toml", 3), ("config.py", 1)]
    assert found[0].role == "gamma is set here"
    assert places(finder.by_cause({})["rl.target_network"]) == [("run.toml", 2)]


def test_what_a_setting_is_set_to_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {str(tmp_path / "a.yaml"): ["head:", "  hidden: 128", "  output: softmax"]}
    settings |= {str(tmp_path / "b.yaml"): ["head:", "  output: logits", "init_std: 1.0"]}
    found = Finder({}, Project({}), {}, settings).by_cause({})
    assert places(found["loss.double_softmax"]) == [("a.yaml", 3)]
    assert places(found["loss.missing_activation"])[:2] == [("a.yaml", 3), ("b.yaml", 2)]
    assert places(found["arch.bad_init_scale"]) == [("b.yaml", 3)]


def test_the_lines_that_choose_parameters_and_put_columns_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = [
        "def groups(model):",
        "    for module in model.modules():",
        '        if isinstance(module, Linear) and name == "weight":',
        "            yield module",
        "def joined(a, b):",
        "    return pd.concat([a, b], axis=1)",
    ]
    path = str(tmp_path / "parts.py")
    found = Finder({}, Project({path: source}), {path: source}, {}).by_cause({})
    assert places(found["train.params_not_in_optimizer"]) == [("parts.py", 3)]
    assert places(found["data.labels_misaligned"]) == [("parts.py", 6)]


def test_settings_whose_names_stand_where_it_was_seen_come_first(finder: Finder) -> None:
    met = {"arch.capacity": (Place("parts.py", at(PARTS, "made")),)}
    assert places(finder.by_cause(met)["arch.capacity"])[0] == ("config.py", 2)


def test_the_line_that_cuts_the_gradient_comes_before_the_uses(finder: Finder) -> None:
    met = {"loss.disconnected": (Place("parts.py", at(PARTS, "made"), parameter="stem.weight"),)}
    found = places(finder.by_cause(met)["loss.disconnected"])
    assert found[0] == ("parts.py", at(PARTS, "cut"))
    assert ("train.py", at(TRAIN, "elsewhere")) not in found, "nothing that trains comes there"


def test_of_a_part_that_nothing_reads_its_neighbour_is_named(finder: Finder) -> None:
    met = {"arch.unused_parameters": (Place("parts.py", at(PARTS, "made") + 1, parameter="norm.weight"),)}
    assert ("parts.py", at(PARTS, "cut")) in places(finder.by_cause(met)["arch.unused_parameters"])


def test_terms_are_followed_into_their_modules(finder: Finder) -> None:
    met = {"loss.terms_cancel": (Place("train.py", at(TRAIN, "summed")),)}
    assert ("parts.py", at(PARTS, "dice")) in places(finder.by_cause(met)["loss.terms_cancel"])


def test_observations_and_seeds(finder: Finder) -> None:
    found = finder.by_cause({})
    assert places(found["rl.obs_not_normalized"]) == [("parts.py", at(PARTS, "observed"))]
    assert places(found["data.worker_rng"])[0] == ("parts.py", at(PARTS, "seeded"))


VALIDATION = """\
mean = train.mean(0)
train_loader = DataLoader(TensorDataset(prepared(train)))  # loader
val_loader = DataLoader(TensorDataset(torch.tensor(val)))  # other
def prepared(rows):
    return (rows - rows.mean(0)) / rows.std(0)  # scaled
"""


def test_data_outside_training_is_followed_to_where_it_is_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = {"loader": [Place("a.py", at(VALIDATION, "loader"))]}
    lines["loader_elsewhere"] = [Place("a.py", at(VALIDATION, "other"))]
    reader = Reader(lines, {str(tmp_path / "a.py"): VALIDATION.splitlines()})
    assert at(VALIDATION, "other") in [place.line for place in reader.by_cause()["data.train_val_mismatch"]]
    same = VALIDATION.replace("torch.tensor(val)", "prepared(val)")
    reader = Reader(lines, {str(tmp_path / "a.py"): same.splitlines()})
    assert reader.by_cause()["data.train_val_mismatch"][0].line == at(VALIDATION, "scaled")


TRANSFORMS = """\
def transforms(train, size=8):
    if train:
        return Compose([ToTensor(), Normalize()])
    return Compose([ToTensor()])  # plain

def other(train):
    return Compose([])

train_loader = DataLoader(Pictures("a", transforms(True)))  # loader
val_loader = DataLoader(Pictures("b", transforms(False)))  # other
"""


def test_a_function_that_is_asked_whether_it_is_for_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = {"loader": [Place("a.py", at(TRANSFORMS, "loader"))]}
    lines["loader_elsewhere"] = [Place("a.py", at(TRANSFORMS, "other"))]
    reader = Reader(lines, {str(tmp_path / "a.py"): TRANSFORMS.splitlines()})
    assert reader.by_cause()["data.train_val_mismatch"][0].line == at(TRANSFORMS, "plain")


PREPARED = """\
import pandas as pd
from torch.utils.data import DataLoader, TensorDataset

def upsampled(frame):
    return frame.sample(900, replace=True)

def decoded(held):
    return held.astype("float32")  # fractions

frame = pd.read_csv("a.csv")
frame = frame.merge(pd.read_csv("b.csv"))  # merged
frame = upsampled(frame)  # repeated
x = decoded(frame["x"].to_numpy())
loader = DataLoader(TensorDataset(torch.from_numpy(x)), 8)  # loader
"""


@pytest.mark.parametrize(
    ("cause", "mark"),
    [("data.labels_misaligned", "merged"), ("data.leak_split", "repeated"), ("data.not_normalized", "fractions")],
)
def test_lines_on_the_way_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str, mark: str) -> None:
    monkeypatch.chdir(tmp_path)
    lines = {"loader": [Place("a.py", at(PREPARED, "loader"))]}
    source = PREPARED.replace("frame = upsampled(frame)", "frame = list(frame)") if mark == "merged" else PREPARED
    reader = Reader(lines, {str(tmp_path / "a.py"): source.splitlines()})
    assert reader.by_cause()[cause][0].line == at(PREPARED, mark)


def test_keys_of_configuration_files() -> None:
    yaml = ["model:", "  width: 3  # wide", "loss: {bce: 1.0, dice: 2.0}", "# drop: 1"]
    assert [(held.whole, held.line) for held in of_file("a.yaml", yaml)] == [
        ("model.width", 2), ("loss", 3), ("loss.bce", 3), ("loss.dice", 3),
    ]  # fmt: skip
    toml = ["lr = 1", "[a.b]", "drop-out = 2"]
    assert [(held.whole, held.name) for held in of_file("a.toml", toml)] == [("lr", "lr"), ("a.b.drop-out", "drop_out")]
    code = {
        "a.py": [
            "import argparse",
            *CONFIG.splitlines(),
            "parser.add_argument('-e', '--ent-coef', default=0.1)",
            "made = f(3)",
        ]
    }
    assert [held.name for held in of_source(Project(code))] == ["gamma", "width", "dropout", "rank", "ent_coef"]


@given(st.lists(st.text(alphabet="ab=:[]{}\"' .#-0\t", max_size=12)))
def test_any_file_can_be_read(lines: list[str]) -> None:
    assert all(1 <= held.line <= len(lines) and held.name for held in of_file("a.yaml", lines))


@given(st.lists(st.sampled_from([*TRAIN.splitlines(), *PARTS.splitlines(), "def f(x):", "    return f(x)", "@f"])))
def test_any_source_ends(lines: list[str]) -> None:
    met = {cause: (Place("a.py", 2, parameter="stem.weight"), Place("gone.py", 1)) for cause in WORDS}
    Finder({"backward": [Place("a.py", 1)]}, Project({"a.py": lines}), {"a.py": lines}, {}).by_cause(met)


def test_every_cause_is_known() -> None:
    assert {*WORDS, *OF_PARAMETERS, *OF_TERMS, *OF_OBSERVATIONS, *ON_THE_WAY} <= {*load().causes}


@pytest.mark.parametrize(
    ("source", "mark"),
    [
        ("k = Parameter(tensor(0.1))\ndef f(x):\n    (k * x).backward()\n    k.data.clamp_(0, 1)  # held\n", "held"),
        ("k = Parameter(tensor(0.1))  # made\ndef f(x):\n    (k * x).clamp(min=0).backward()\n", "made"),
    ],
)
def test_a_number_is_held_within_bounds_or_made(source: str, mark: str) -> None:
    first = next(word for word in WORDS["pinn.degenerate_parameter"].lines if re.search(word, source))
    found = [number for number, line in enumerate(source.splitlines(), 1) if re.search(first, line)]
    assert found == [at(source, mark)]
