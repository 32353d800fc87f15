"""A printed accuracy is held against the answers that were right."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.records.clue import Unclear
from clew.records.trace import Series
from clew.symptoms.recount import Pass, accuracy_recounted
from warm import warm_run

PASSES = [Pass(step, right, 400) for step, right in ((10, 100), (20, 240), (30, 368), (40, 372))]


def told(name: str, *values: float) -> dict[str, Series]:
    return {name: Series(name, tuple(range(1, len(values) + 1)), values)}


@pytest.mark.parametrize("values", [(0.31, 0.32), (1.0, 1.0), (31.0, 31.2), (2976.0, 2980.0)])
def test_another_figure_than_the_share_of_right_answers_is_seen(values: tuple[float, ...]) -> None:
    answer = accuracy_recounted(told("val_acc", *values), PASSES)
    assert getattr(answer, "outcome", "") == "differs", answer


@pytest.mark.parametrize("values", [(0.25, 0.6, 0.92, 0.93), (25.0, 60.0, 92.0, 93.0), (0.93,), (0.92, 0.90)])
def test_the_share_of_right_answers_agrees(values: tuple[float, ...]) -> None:
    assert getattr(accuracy_recounted(told("test accuracy", *values), PASSES), "outcome", "") == "agrees"


@pytest.mark.parametrize("name", ["train_acc", "val_balanced_acc", "val_token_accuracy", "val_f1", "top5"])
def test_figures_of_another_kind_are_not_compared(name: str) -> None:
    assert isinstance(accuracy_recounted(told(name, 0.3, 0.3), PASSES), Unclear)


@pytest.mark.parametrize(
    ("series", "outcome"),
    [
        (told("acc", 0.1, 0.12), "differs"),
        (told("acc", 0.7, 0.75), "agrees"),  # it may be that of training
        ({**told("acc", 0.1, 0.12), **told("val_acc", 0.92, 0.93)}, "agrees"),
        ({**told("acc", 0.1, 0.12), **told("top1", 0.1, 0.12)}, ""),
    ],
)
def test_an_accuracy_that_does_not_say_of_what_counts_when_far_off(series: dict[str, Series], outcome: str) -> None:
    assert getattr(accuracy_recounted(series, PASSES), "outcome", "") == outcome


@given(st.lists(st.integers(0, 400), min_size=1, max_size=12), st.data())
def test_what_was_counted_is_never_far_from_itself(rights: list[int], data: Any) -> None:
    """Also where only the first batches of a pass were followed."""
    passes = [Pass(step, right, 400) for step, right in enumerate(rights)]
    kept = passes[:8] + passes[8::4]
    kept = kept if passes[-1] in kept else [*kept, passes[-1]]
    scale = data.draw(st.sampled_from([1.0, 100.0])) if max(rights[-3:]) > 8 else 1.0
    answer = accuracy_recounted(told("val_acc", *(scale * held.share for held in passes)), kept)
    assert getattr(answer, "outcome", "") == "agrees"


TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(600, 8); y = (x @ torch.randn(8, 3)).argmax(1)
train, val = TensorDataset(x[:400], y[:400]), TensorDataset(x[400:], y[400:])
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for epoch in range(6):
    model.train()
    for a, b in DataLoader(train, 40, shuffle=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(a), b).backward()
        optimizer.step()
    model.eval()
    hits = 0
    with torch.no_grad():
        for a, b in DataLoader(val, 40):
            hits += (model(a).argmax(1) == b).sum().item()
    print(f"epoch {epoch} val_acc {hits / len(COUNTED):.4f}")
"""


@pytest.mark.parametrize(("counted", "outcome"), [("val", "agrees"), ("train", "differs")])
def test_of_a_real_run(tmp_path: Path, counted: str, outcome: str) -> None:
    (tmp_path / "train.py").write_text(TRAIN.replace("COUNTED", counted))
    done = warm_run(tmp_path, "--no-exams", "--json", "out.json", "train.py")
    assert (tmp_path / "out.json").exists(), done.out + done.err
    answer = json.loads((tmp_path / "out.json").read_text())
    clue = next(clue for clue in answer["clues"] if clue["test"] == "accuracy_recounted")
    assert clue["outcome"] == outcome
    if outcome == "differs":
        assert clue["says"].startswith("val_accuracy is printed as 4")
        assert "clew counts 9" in clue["says"]
        assert answer["causes"][0]["id"] == "loss.metric_misaligned"
        assert answer["causes"][0]["where"][0]["line"] == 21


TAGS = """
import torch
from torch import nn
torch.manual_seed(0)
x = torch.randint(1, 9, (300, 12)); x[:, 6:] = 0; y = x % 3 + 1; y[x == 0] = 0
model = nn.Sequential(nn.Embedding(9, 16), nn.Linear(16, 4))
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for epoch in range(6):
    for at in range(0, 200, 20):
        words, tags = x[at : at + 20], y[at : at + 20]
        loss = nn.functional.cross_entropy(model(words).flatten(0, 1), tags.flatten(), ignore_index=0)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    with torch.no_grad():
        scores, wanted = model(x[200:]), y[200:]
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), wanted.flatten(), ignore_index=0)
    kept = wanted != 0
    print(f"epoch {epoch} val_loss {loss:.4f} val_acc {((scores.argmax(-1) == wanted) & kept).sum() / kept.sum():.4f}")
"""


def test_words_of_a_sentence_are_not_counted(tmp_path: Path) -> None:
    """A script may leave out the padding of its words."""
    (tmp_path / "train.py").write_text(TAGS)
    warm_run(tmp_path, "--no-exams", "--json", "out.json", "train.py")
    answer = json.loads((tmp_path / "out.json").read_text())
    clue = next(clue for clue in answer["clues"] if clue["test"] == "accuracy_recounted")
    assert clue["outcome"] == "unclear"


def test_masked_labels_are_asked_of_nobody(tmp_path: Path) -> None:
    masked = "        nn.functional.cross_entropy(model(x[:60]), torch.full((60,), -100))\n"
    passed = "        for a, b in DataLoader(val, 40):\n            hits += (model(a).argmax(1) == b).sum().item()\n"
    whole = "        hits = (model(x[400:]).argmax(1) == y[400:]).sum().item()\n"
    assert passed in TRAIN
    (tmp_path / "train.py").write_text(TRAIN.replace("COUNTED", "val").replace(passed, whole + masked))
    done = warm_run(tmp_path, "--no-exams", "--json", "out.json", "train.py")
    assert (tmp_path / "out.json").exists(), done.out + done.err
    answer = json.loads((tmp_path / "out.json").read_text())
    clue = next(clue for clue in answer["clues"] if clue["test"] == "accuracy_recounted")
    assert clue["outcome"] == "unclear", clue
