"""From a use back to where a value came from."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.app.data_lines import Reader
from clew.app.slices import Project
from clew.records.place import Place, told

DATA = """\
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __init__(self, frame):
        self.frame = frame
    def __getitem__(self, i):
        row = self.frame[i]
        target = torch.tensor(row["y"])  # target
        return torch.tensor(row["x"]), target

def collate(rows):
    xs, ys = zip(*rows)
    return torch.stack(xs), torch.stack(ys)  # together

def load(path):
    frame = read(path)
    train = frame  # train
    val = frame[:100]  # val
    return Rows(train), Rows(val)
"""
TRAIN = """\
from torch.utils.data import DataLoader
from data import collate, load

train_set, val_set = load("a.csv")
train_loader = DataLoader(train_set, collate_fn=collate)  # loader
val_loader = DataLoader(val_set)  # other loader
for x, y in train_loader:
    loss = cross_entropy(model(x), y)  # loss
"""
BY_HAND = """\
def loss_of(output, x, spread):
    return mse(output, x) / spread  # loss

def step(model, x):
    return loss_of(*both(model, x))

def both(model, x):
    return model(x), x, 2.0

pixels = torch.tensor(read())  # made
x_train, x_val = pixels[100:], pixels[:100]
step(model, x_train)
"""


def at(text: str, mark: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if line.endswith(f"# {mark}"))


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    monkeypatch.chdir(tmp_path)
    texts = {str(tmp_path / "data.py"): DATA.splitlines(), str(tmp_path / "train.py"): TRAIN.splitlines()}
    lines = {
        "loader": [Place("train.py", at(TRAIN, "loader"))],
        "loader_elsewhere": [Place("train.py", at(TRAIN, "other loader"))],
        "loss": [Place("train.py", at(TRAIN, "loss"))],
        "collate": [Place("data.py", DATA.splitlines().index("def collate(rows):") + 1, symbol="collate")],
    }
    return Reader(lines, texts)


def test_targets_are_followed_into_the_data_set(reader: Reader) -> None:
    found = [(place.file, place.line) for place in reader.by_cause()["data.labels_misaligned"]]
    assert found[:2] == [("data.py", at(DATA, "together")), ("data.py", at(DATA, "target"))]
    assert found[2] == ("train.py", at(TRAIN, "loss"))


def test_the_split_is_where_the_two_ways_part(reader: Reader) -> None:
    places = reader.by_cause()["data.leak_split"]
    assert [(place.file, place.line) for place in places] == [("data.py", at(DATA, "train"))]


STREAM = """\
class Stream(IterableDataset):
    def __iter__(self):
        for shard in self.shards:
            for row in read(shard):
                yield row  # given

loader = DataLoader(Stream())  # loader
"""


def test_a_stream_makes_the_order_of_its_examples_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = {
        "loader": [Place("train.py", at(STREAM, "loader"))],
        "items": [Place("train.py", 2, symbol="Stream.__iter__")],
    }
    found = Reader(lines, {str(tmp_path / "train.py"): STREAM.splitlines()}).by_cause()["data.not_shuffled"]
    assert [place.line for place in found] == [at(STREAM, "given"), at(STREAM, "loader")]


def test_the_other_data_set(reader: Reader) -> None:
    assert reader.by_cause()["data.augmentation"][0].role == "the evaluation data set is created here"


def test_arguments_are_followed_to_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = {"loss": [Place("train.py", at(BY_HAND, "loss"))]}
    made = Reader(lines, {str(tmp_path / "train.py"): BY_HAND.splitlines()}).by_cause()["data.labels_wrong_range"]
    assert made[0].line == at(BY_HAND, "made")


SEGMENTS = """\
from scipy.signal import filtfilt

class Tiles(Dataset):
    def __init__(self, images, masks):
        self.images, self.masks = images, masks
    def __getitem__(self, i):  # items
        image = torch.from_numpy(self.images[i]).float()
        mask = torch.from_numpy(self.masks[i]).float()  # target
        image = torch.roll(image, 3, dims=-1)
        return image, mask

def smooth(series):
    return filtfilt(b, a, series)  # ahead

def load(root):
    files = list(root.glob("*.npy"))
    return np.stack([np.load(file) for file in files]), np.load(root / "masks.npy")

parts = load(root)
sets = {name: Tiles(*parts) for name in ("train", "val")}
loader = DataLoader(sets["train"], 8)  # loader
"""


@pytest.mark.parametrize(
    ("cause", "mark"),
    [("data.labels_wrong_range", "target"), ("data.leak_temporal", "ahead"), ("data.labels_misaligned", "target")],
)
def test_imports_and_moves_within_an_example_are_no_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str, mark: str
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = {name: [Place("a.py", at(SEGMENTS, name))] for name in ("loader", "items")}
    reader = Reader(lines, {str(tmp_path / "a.py"): SEGMENTS.splitlines()})
    assert reader.by_cause()[cause][0].line == at(SEGMENTS, mark)


@given(st.lists(st.sampled_from([*TRAIN.splitlines(), *DATA.splitlines(), "def f(x):", "    return f(x)", "x = x"])))
def test_any_source_ends(lines: list[str]) -> None:
    """Code that cannot be parsed, calls itself or goes round in circles."""
    reader = Reader({"loader": [Place("a.py", 1)], "loss": [Place("a.py", 2)]}, {"a.py": lines})
    assert all(len(places) <= 3 for places in reader.by_cause().values())
    Project({"a.py": lines}).scope("a.py", 1)


def test_places_are_few_and_the_telling_ones_first() -> None:
    file, guess = Place("train.csv", 7, rows="5-9"), Place("a.py", 3)
    seen = [Place(parameter="w"), Place("a.py", 1, role="made here"), Place("a.py", 1), Place("b.py", 2), file]
    assert told([guess], seen)[0] == file
    assert told([guess], seen[1:4])[:2] == (seen[1], guess)
    assert len(told([guess], seen)) == 3
    assert told([], []) == ()
