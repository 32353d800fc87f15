"""What reaches the prediction that should not, what carries it, and where it is confidently wrong."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score
from subjects_data import (
    HEALTHY,
    Bagged,
    Recurrent,
    Small,
    by_token,
    classifier,
    cnn,
    cut,
    figures,
    language_model,
    mlp,
    outcome,
    pictures,
    says,
    sentences,
    source,
    table,
    text,
    trained,
    why,
)
from torch import Tensor, nn

from clew.exams.batches import Batch
from clew.exams.checks._data_chosen import shown
from clew.exams.checks._data_keep import Shown, as_image, keep, png
from clew.exams.checks._data_tables import target_of
from clew.exams.checks.confident_errors import area
from clew.exams.checks.leak_tracer import copies
from clew.exams.checks.poison_trace import predicts_ahead
from clew.exams.exam import find_exam
from clew.exams.lab import Lab
from clew.exams.sit import sit
from clew.exams.subject import Subject
from clew.records.clue import Saw

CE = nn.CrossEntropyLoss
X, Y = table()
IMAGES, CLASSES = pictures()


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def with_copy(scale: float = 1.0) -> Tensor:
    x = X.clone()
    x[:, 5] = scale * Y
    return x


class Told(nn.Module):
    """Is called with the labels, and uses them or does not."""

    def __init__(self, uses: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.labels, self.head = nn.Linear(8, 16), nn.Embedding(3, 16), nn.Linear(16, 3)
        self.uses = uses

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        hidden = self.body(x)
        if self.uses:
            hidden = hidden + self.labels(labels)
        out: Tensor = self.head(hidden.relu())
        return out


class Filtered(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nan_to_num(x)


def told(uses: bool) -> Subject:
    return Subject(Told(uses), CE(), [((x, y), y) for x, y in cut(X, Y)])


# --- leak_tracer

LEAKS: dict[str, tuple[str, Callable[[], Subject]]] = {
    "a column": ("column 5 of input", lambda: Subject(mlp(), CE(), cut(with_copy(), Y))),
    "one-hot columns": (
        "columns [8, 9, 10] of input",
        lambda: Subject(mlp(11), CE(), cut(torch.cat([X, F.one_hot(Y, 3).float()], 1), Y)),
    ),
    "an argument": ("input 1", lambda: told(True)),
    "behind a filter": (
        "column 5 of input",
        lambda: Subject(nn.Sequential(Filtered(), mlp()), CE(), cut(with_copy(), Y)),
    ),
}


@pytest.mark.parametrize("name", LEAKS)
def test_the_target_reaches_the_prediction(name: str) -> None:
    carrier, make = LEAKS[name]
    assert outcome("leak_tracer", make()) == "crossed"
    assert figures("leak_tracer", make())["carrier"] == carrier


def test_the_stage_is_named() -> None:
    assert figures("leak_tracer", told(True))["stage"] == "labels"
    assert "first shows at Embedding labels" in says("leak_tracer", told(True))
    answer = sit(find_exam("leak_tracer"), told(True)).answer
    assert isinstance(answer, Saw)
    assert answer.where[0].module == "labels"


@pytest.mark.parametrize("name", [name for name in HEALTHY if name not in ("autoencoder", "copying")])
def test_no_target_in_the_step(name: str) -> None:
    assert outcome("leak_tracer", HEALTHY[name]()) == "clean"


def test_a_target_that_is_given_and_ignored() -> None:
    assert outcome("leak_tracer", told(False)) == "clean"
    assert "among the inputs (input 1)" in says("leak_tracer", told(False))


class Decoder(nn.Module):
    """Makes its decoder's inputs from the labels: shifted by one as teachers do, or not."""

    def __init__(self, shift: int) -> None:
        super().__init__()
        self.body, self.shift = Small(), shift

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        given = F.pad(labels, (1, 0))[:, :-1] if self.shift else labels.roll(-1, 1)
        out = self.body(given) + x.mean()
        return {"loss": F.cross_entropy(out.flatten(0, 1), labels.flatten()), "logits": out}


def test_teacher_forcing_is_no_leak() -> None:
    rows = text()[:, 1:]
    batches = [({"x": torch.randn(32, 4, generator=source()), "labels": part}, None) for part, _ in cut(rows, None)]
    assert outcome("leak_tracer", Subject(Decoder(1), None, batches)) == "clean"
    assert outcome("leak_tracer", Subject(Decoder(0), None, batches)) == "crossed"


def test_no_target_or_the_target_as_the_input_is_unclear() -> None:
    assert "no target" in why("leak_tracer", HEALTHY["autoencoder"]())
    assert "whole input" in why("leak_tracer", HEALTHY["copying"]())


def test_columns_that_agree_by_chance_are_no_copies() -> None:
    bits = (torch.rand(10, 5000, generator=source()) < 0.5).float()
    target = bits[:, 17].long()
    assert len(copies(bits, target)) == 0
    many = (torch.rand(64, 200, generator=source()) < 0.5).float()
    assert copies(many, many[:, 17].long()).tolist() == [17]


def test_one_class_of_several_may_have_a_mark_by_nature() -> None:
    target = torch.arange(60) % 4
    marks = torch.nn.functional.one_hot(target, 4).double()
    others = torch.rand(60, 3, generator=torch.Generator().manual_seed(0)).double()
    assert copies(torch.cat([others, marks[:, 2:3]], 1), target).tolist() == []
    assert copies(torch.cat([others, marks], 1), target).tolist() == [3, 4, 5, 6]
    assert copies(torch.cat([others, marks[:, 1:]], 1), target).tolist() == [3, 4, 5]


# --- forecasters: the target is the input moved by one


def series(length: int, shape: str, period: int = 0) -> tuple[Tensor, Tensor]:
    """Input and target of next-step forecasters: windows of one number, of several, or of tokens."""
    if shape == "tokens":
        rows = text(32, length)
        return rows[:, :-1], rows[:, 1:]
    wide = 3 if shape == "(B, T, 3)" else 1
    path = torch.randn(32, length + 1, wide, generator=source(4)).cumsum(1)
    if period:
        path = path[:, torch.arange(length + 1) % period]
    path = path[..., 0] if shape == "(B, T)" else path
    return path[:, :-1], path[:, 1:]


class Forecaster(nn.Module):
    def __init__(self, kind: str, shape: str, parts: int, ahead: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind, self.flat, self.parts, self.ahead = kind, shape == "(B, T)", parts, ahead
        size = 16 if shape == "tokens" else 3 if shape == "(B, T, 3)" else 1
        self.table = nn.Embedding(16, 12) if shape == "tokens" else nn.Linear(size, 12)
        self.cell = {"LSTM": nn.LSTM, "GRU": nn.GRU}.get(kind, nn.GRU)(12, 12, batch_first=True, bidirectional=ahead)
        self.conv = nn.Conv1d(12, 12, 3)
        self.mix = nn.Linear(12, 36)
        self.head = nn.Linear(24 if ahead and kind in ("LSTM", "GRU") else 12, size * parts)

    def forward(self, x: Tensor) -> Any:
        hidden = self.table(x[..., None] if self.flat else x)
        if self.kind == "convolution":
            around = (1, 1) if self.ahead else (2, 0)
            hidden = self.conv(F.pad(hidden.transpose(1, 2), around)).relu().transpose(1, 2)
        elif self.kind == "attention":
            q, k, v = self.mix(hidden).chunk(3, -1)
            hidden = hidden + F.scaled_dot_product_attention(q, k, v, is_causal=not self.ahead)
        else:
            hidden = self.cell(hidden)[0]
        out = self.head(hidden).chunk(self.parts, -1)
        out = tuple(part[..., 0] for part in out) if self.flat else out
        return out if self.parts > 1 else out[0]


def gaussian(output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    return F.gaussian_nll_loss(output[0], target, F.softplus(output[1]) + 0.01)


def forecaster(kind: str, shape: str, length: int, loss: str, ahead: bool = False, period: int = 0) -> Subject:
    losses: dict[str, Any] = {"squared": nn.MSELoss(), "gaussian": gaussian, "tokens": by_token}
    given = losses["tokens" if shape == "tokens" else loss]
    parts = 2 if given is gaussian else 1
    return Subject(Forecaster(kind, shape, parts, ahead), given, [series(length, shape, period)])


KINDS = ("LSTM", "GRU", "convolution", "attention")
SHAPES = ("(B, T)", "(B, T, 1)", "(B, T, 3)", "tokens")


@pytest.mark.parametrize("length", [12, 41, 81])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_textbook_forecasters_leak_nothing(kind: str, shape: str, length: int) -> None:
    for loss in ("squared", "gaussian") if shape != "tokens" else ("tokens",):
        subject = forecaster(kind, shape, length, loss)
        assert outcome("leak_tracer", subject) == "clean"
        assert outcome("causal_independence", subject) == "causal"
        assert outcome("poison_trace", subject) == "clean"
        assert outcome("target_in_input", subject) != "one_feature_solves"


@pytest.mark.parametrize("length", [12, 81])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_forecasters_that_look_ahead(kind: str, shape: str, length: int) -> None:
    subject = forecaster(kind, shape, length, "squared", ahead=True)
    assert outcome("causal_independence", subject) == "sees_future"
    assert outcome("leak_tracer", subject) != "crossed", "the model is at fault, and not the data"


@pytest.mark.parametrize("period", [3, 10, 20])
def test_a_series_that_repeats_itself_leaks_nothing(period: int) -> None:
    for shape in SHAPES[:3]:
        assert outcome("leak_tracer", forecaster("GRU", shape, 24, "squared", period=period)) == "clean"


@pytest.mark.parametrize("wide", [False, True])
def test_a_horizon_that_repeats_the_window_leaks_nothing(wide: bool) -> None:
    phase = torch.randint(0, 20, (32, 1), generator=source())
    wave = torch.sin(2 * torch.pi * (torch.arange(60) + phase) / 20)
    given = wave[:, :40, None] if wide else wave[:, :40]
    model = nn.Sequential(nn.Flatten(), mlp(40, 20))
    assert outcome("leak_tracer", Subject(model, nn.MSELoss(), [(given, wave[:, 40:])])) == "clean"


def with_the_target(length: int) -> Subject:
    """A feature of each step is the target of the same step."""
    path = torch.randn(32, length + 1, 3, generator=source(4)).cumsum(1)
    x, y = path[:, :-1].clone(), path[:, 1:, 0]
    x[..., 2] = y

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.cell, self.head = nn.GRU(3, 12, batch_first=True), nn.Linear(12, 1)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.cell(x)[0])[..., 0]
            return out

    return Subject(Net(), nn.MSELoss(), [(x, y)])


def one_of_several() -> Subject:
    """A table whose column 5 is the second of three targets."""
    x, y = torch.randn(64, 8, generator=source()), torch.randn(64, 3, generator=source(1))
    x[:, 5] = y[:, 1]
    return Subject(mlp(), nn.MSELoss(), cut(x, y))


def overlapping() -> Subject:
    """Windows whose targets begin before the inputs end."""
    path = torch.randn(64, 40, generator=source(4)).cumsum(1)
    return Subject(mlp(28, 16), nn.MSELoss(), cut(path[:, :28], path[:, 24:]))


@pytest.mark.parametrize(
    "make", [lambda: with_the_target(12), lambda: with_the_target(100), one_of_several, overlapping]
)
def test_targets_that_stand_in_a_column_by_position(make: Callable[[], Subject]) -> None:
    assert outcome("leak_tracer", make()) == "crossed"


def test_a_part_that_is_given_and_the_rest_to_be_filled_in() -> None:
    whole = torch.randn(32, 16, generator=source())
    given = whole.clone()
    given[:, 4:9] = 0
    assert outcome("leak_tracer", Subject(mlp(16, 16), nn.MSELoss(), cut(given, whole))) == "clean"


# --- poison_trace


class Turned(nn.Module):
    """A reshape where a transpose was meant."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).relu()
        out: Tensor = self.second(hidden.t().reshape(hidden.shape))
        return out


def walk(both_ways: bool) -> Subject:
    path = torch.randn(32, 9, 3, generator=source(1)).cumsum(1)
    return Subject(Recurrent(both_ways=both_ways), nn.MSELoss(), [(path[:, :-1], path[:, 1:])])


CROSSED: dict[str, tuple[str, str, Callable[[], Subject]]] = {
    "attention without a mask": ("from_future", "head", lambda: language_model(causal=False)),
    "both directions": ("from_future", "cell", lambda: walk(True)),
    "a reshape": ("from_other_rows", "second", lambda: Subject(Turned(), CE(), cut(X, Y))),
    "softmax over examples": (
        "from_other_rows",
        "1",
        lambda: Subject(nn.Sequential(nn.Linear(8, 8), nn.Softmax(0), nn.Linear(8, 3)), CE(), cut(X, Y)),
    ),
}


@pytest.mark.parametrize("name", CROSSED)
def test_what_crosses_and_where(name: str) -> None:
    wanted, stage, make = CROSSED[name]
    assert outcome("poison_trace", make()) == wanted
    assert figures("poison_trace", make())["stage"] == stage


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_crosses(name: str) -> None:
    assert outcome("poison_trace", HEALTHY[name]()) == "clean"


class Masked(nn.Module):
    """Causal attention over floats, where zero weight meets the poison: zero times NaN is NaN."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mix, self.head = nn.Linear(3, 12), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.mix(x).chunk(3, -1)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(1, 2)).masked_fill(later, -torch.inf)
        out: Tensor = self.head(scores.softmax(-1) @ v)
        return out


def test_nan_under_a_mask_is_no_crossing() -> None:
    path = torch.randn(16, 9, 3, generator=source(1)).cumsum(1)
    subject = Subject(Masked(), nn.MSELoss(), [(path[:, :-1], path[:, 1:])])
    spoiled = path[:, :-1].clone()
    spoiled[:, 5:] = torch.nan
    assert bool(torch.isnan(subject.model(spoiled)[:, 0]).any()), "the test needs NaN to get through"
    assert outcome("poison_trace", subject) == "clean"
    assert outcome("poison_trace", walk(False)) == "clean"


class Neighbours(nn.Module):
    """Every node takes the mean of those it has an edge to."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        out: Tensor = self.head(edges @ x / edges.sum(1, keepdim=True).clamp(min=1))
        return out


def test_a_table_of_edges_relates_the_examples() -> None:
    edges = (torch.rand(len(X), len(X), generator=source(1)) < 0.1).float()
    subject = Subject(Neighbours(), CE(), [((X, edges), Y)])
    for name in ("poison_trace", "batch_independence"):
        assert "relates the examples" in why(name, subject)


class Ordered(nn.Module):
    """Puts its examples in order of their first number, draws noise, and puts them back."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head, self.scale = nn.Linear(8, 3), scale

    def forward(self, x: Tensor) -> Tensor:
        order = torch.sort(x[:, 0]).indices
        held = x[order] + self.scale * torch.randn_like(x)
        out: Tensor = self.head(held[torch.sort(order).indices])
        return out


def test_noise_by_the_place_in_an_order_is_no_mixing() -> None:
    assert "noise" in why("poison_trace", Subject(Ordered(0.1), CE(), cut(X, Y)))
    assert outcome("poison_trace", Subject(Ordered(0.0), CE(), cut(X, Y))) == "clean"


def test_single_examples_are_unclear() -> None:
    assert "one example" in why("poison_trace", Subject(mlp(), CE(), [(X[:1], Y[:1])]))


def test_which_models_predict_ahead() -> None:
    rows = text()
    assert predicts_ahead(Batch(rows[:, :-1], rows[:, 1:])) == 12
    assert predicts_ahead(Batch(rows, rows)) == 0
    masked = rows[:, 1:].clone()
    masked[:, :4] = -100
    assert predicts_ahead(Batch(rows[:, :-1], masked)) == 12
    assert predicts_ahead(Batch(X, Y)) == 0


# --- shortcut


def fitted(x: Tensor, y: Tensor, model: nn.Module, steps: int = 150) -> Subject:
    return Subject(trained(model, CE(), cut(x, y), steps), CE(), cut(x, y))


def table_with_a_shortcut() -> Subject:
    return fitted(torch.cat([0.1 * X, 8.0 * Y[:, None] - 8], 1), Y, mlp(9), 300)


def picture_with_a_mark() -> Subject:
    marked = 0.1 * IMAGES
    for row, label in enumerate(CLASSES.tolist()):
        marked[row, 0, label // 2, label % 2] = 6.0
    return fitted(marked, CLASSES, cnn(), 60)


def sentence_with_a_word() -> Subject:
    tokens, topics = sentences()
    tokens[:, 3] = 38 + topics
    return fitted(torch.where(torch.arange(10) == 3, tokens, 1 + tokens % 3), topics, Bagged(), 200)


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (table_with_a_shortcut, "feature 8"),
        (picture_with_a_mark, "patch 0:2, 0:2"),
        (sentence_with_a_word, "position 3"),
    ],
)
def test_a_shortcut_is_named(make: Callable[[], Subject], part: str) -> None:
    subject = make()
    assert outcome("shortcut", subject) == "one_part"
    assert figures("shortcut", subject)["part"] == part


@pytest.mark.parametrize(
    "make",
    [
        lambda: fitted(X, Y, mlp()),
        lambda: fitted(IMAGES, CLASSES, cnn(), 60),
        lambda: fitted(*sentences(), Bagged()),
    ],
)
def test_predictions_that_use_their_inputs(make: Callable[[], Subject]) -> None:
    assert outcome("shortcut", make()) == "spread"


def test_a_leak_in_two_places_is_not_pinned_on_one() -> None:
    """The model leans on both copies, so neither is all it needs."""
    copy = 4.0 * Y[:, None] - 4
    twice = fitted(torch.cat([0.1 * X, copy, copy], 1), Y, mlp(10), 300)
    assert outcome("shortcut", twice) == "spread"


def test_untrained_models_positions_and_few_parts_are_unclear() -> None:
    assert "gains nothing" in why("shortcut", classifier())
    assert "as a whole" in why("shortcut", language_model())
    assert "too few" in why("shortcut", HEALTHY["binary"]())
    assert "fewer than eight" in why("shortcut", Subject(mlp(), CE(), cut(X, Y, 4)))


# --- confident_errors

GOOD = trained(mlp(), CE(), cut(X, Y))
OTHERS, TRUTH = table(512, seed=8)


def judged(x: Tensor, y: Tensor) -> Subject:
    return Subject(GOOD, CE(), cut(X, Y), val_batches=cut(x, y))


def test_mistakes_with_a_pattern() -> None:
    assert "consistently" in says("confident_errors", judged(OTHERS, (TRUTH + 1) % 3))
    renamed = torch.where((TRUTH == 0) & (torch.arange(512) % 5 > 2), 1, TRUTH)
    found = figures("confident_errors", judged(OTHERS, renamed))
    assert (found["label"], found["said"]) == (1, 0)
    assert outcome("confident_errors", judged(OTHERS, renamed)) == "systematic"
    other = OTHERS.clone()
    other[:128] -= 40
    assert outcome("confident_errors", judged(other, TRUTH)) == "systematic"


def test_mistakes_without_a_pattern() -> None:
    assert outcome("confident_errors", judged(OTHERS, TRUTH)) == "scattered"
    noise = torch.where(
        torch.rand(512, generator=source()) < 0.2, torch.randint(0, 3, (512,), generator=source(1)), TRUTH
    )
    assert outcome("confident_errors", judged(OTHERS, noise)) == "scattered"


def test_models_at_chance_values_and_few_mistakes_are_unclear() -> None:
    assert "no better" in why("confident_errors", classifier())
    assert "no class label" in why("confident_errors", HEALTHY["regressor"]())
    assert "too few" in why("confident_errors", judged(OTHERS[:64], GOOD(OTHERS[:64]).argmax(1)))


def test_area_against_sklearn() -> None:
    one, two = (
        torch.randn(30, generator=source()).round(decimals=1),
        torch.randn(50, generator=source(1)).round(decimals=1),
    )
    wanted = roc_auc_score([1] * 30 + [0] * 50, torch.cat([one, two]).numpy())
    assert area(one, two) == pytest.approx(wanted)


# --- what is kept for a person


def decoded(content: bytes) -> np.ndarray:
    """A PNG read by hand: 8 bits, no filter."""
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(content):
        size, kind = struct.unpack(">I4s", content[at : at + 8])
        data = content[at + 8 : at + 8 + size]
        assert struct.unpack(">I", content[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + data)
        chunks[kind] = data
        at += 12 + size
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert depth == 8
    channels = {0: 1, 2: 3}[colour]
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + width * channels)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(height, width, channels)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_is_written_as_it_is(channels: int) -> None:
    pixels = torch.randint(0, 256, (5, 7, channels), generator=source(), dtype=torch.uint8)
    assert np.array_equal(decoded(png(pixels)), pixels.numpy())


def test_what_counts_as_a_picture() -> None:
    spread = as_image(torch.linspace(-2, 3, 3 * 8 * 8).view(3, 8, 8))
    assert spread is not None
    assert spread.shape == (128, 128, 3)
    assert (int(spread.min()), int(spread.max())) == (0, 255)
    assert as_image(torch.zeros(10)) is None
    assert as_image(torch.zeros(6, 40)) is None


def test_the_worst_mistakes_are_kept(tmp_path: Path) -> None:
    model = trained(cnn(), CE(), cut(IMAGES, CLASSES), 5)
    subject = Subject(model, CE(), cut(IMAGES, (CLASSES + (torch.arange(128) % 3 == 0)) % 4))
    lab = Lab(subject)
    lab.keep = str(tmp_path)
    find_exam("confident_errors").function(lab)
    pictures_kept = list(tmp_path.rglob("*.png"))
    assert pictures_kept
    assert decoded(pictures_kept[0].read_bytes()).shape == (120, 120, 1)
    index = next(tmp_path.rglob("index.tsv")).read_text().splitlines()
    assert index[0].split("\t")[:4] == ["number", "label", "said", "confidence"]


def test_rows_and_tokens_are_kept_as_text(tmp_path: Path) -> None:
    written = keep(str(tmp_path / "rows"), Batch(X, Y), [Shown(3, {"label": "1"})])
    assert f"{float(X[3, 0]):.6g}" in Path(written[0]).read_text()
    written = keep(str(tmp_path / "tokens"), Batch(torch.arange(12).view(3, 4), None), [Shown(1, {"label": "0"})])
    assert Path(written[1]).read_text() == "4 5 6 7\n"


def test_nothing_is_written_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome("confident_errors", judged(OTHERS, TRUTH))
    assert list(tmp_path.iterdir()) == []


# --- targets that are none


def test_a_mask_of_what_is_asked_for_is_no_label() -> None:
    """In masked modelling the hidden positions can be told by the token that hides them."""
    ids = torch.randint(2, 20, (96, 10), generator=source(3))
    hide = torch.rand(ids.shape, generator=source(4)) < 0.2
    batch = Batch(ids.masked_fill(hide, 1), (hide, ids[hide]))
    assert target_of(batch) is None
    # Labels that are yes or no stay labels, also beside weights.
    assert target_of(Batch(ids, (hide, torch.ones(96)))) is hide
    assert target_of(Batch(ids, hide)) is hide


def test_an_order_of_the_rows_is_no_label() -> None:
    """The partial likelihood of survival times takes the rows in the order of their times."""
    time, x = torch.rand(32, generator=source(5)), torch.randn(32, 4, generator=source(6))
    event = (time < 0.7).float()
    assert target_of(Batch(x, (time.argsort(), event))) is None
    assert target_of(Batch(x, (time[:, None] >= time[None, :], event))) is None
    classes = torch.arange(32) % 8
    assert target_of(Batch(x, classes)) is classes
    values = torch.arange(32).float()
    assert target_of(Batch(x, values)) is values
    several = torch.rand(32, 32, generator=source(7)) < 0.5
    assert target_of(Batch(x, several)) is several


class Around(nn.Module):
    """Guesses words from their neighbours and from what stands in their place; `inside` hides some by itself."""

    def __init__(self, inside: bool = False) -> None:
        super().__init__()
        self.table, self.mix, self.head = nn.Embedding(20, 8), nn.Conv1d(8, 8, 3, padding=1), nn.Linear(8, 20)
        self.inside = inside

    def forward(self, ids: Tensor, hide: Tensor | None = None) -> Tensor:
        ids = ids.masked_fill(hide, 1) if hide is not None and self.inside else ids
        out: Tensor = self.head(self.mix(self.table(ids).transpose(1, 2)).transpose(1, 2))
        return out


def masked_words(how: str) -> Subject:
    batches: list[Any] = []
    for seed in range(3):
        ids = torch.randint(2, 20, (32, 10), generator=source(seed))
        hide = torch.rand(ids.shape, generator=source(50 + seed)) < 0.2
        kept = torch.rand(ids.shape, generator=source(90 + seed)) < 0.1
        given = {"hidden": ids.masked_fill(hide, 1), "some kept": ids.masked_fill(hide & ~kept, 1)}.get(how, ids)
        if how in ("ignored", "moved"):
            batches.append((given, ids.masked_fill(~hide, -100)))
        else:
            batches.append(((given, hide) if how == "inside" else given, (hide, ids[hide])))

    def gathered(out: Tensor, target: Any) -> Tensor:
        if how == "moved":  # as language models are tuned on answers: each position tells the next
            return F.cross_entropy(out[:, :-1].transpose(1, 2), target[:, 1:])
        if how == "ignored":
            return F.cross_entropy(out.transpose(1, 2), target)
        return F.cross_entropy(out[target[0]], target[1])

    return Subject(Around(how == "inside"), gathered, batches)


@pytest.mark.parametrize(
    ("how", "seen"),
    [
        ("shown", "one_feature_is_it"),
        ("ignored", "one_feature_is_it"),
        ("hidden", "no"),
        ("some kept", "no"),
    ],
)
def test_words_to_be_guessed_that_stand_in_the_input(how: str, seen: str) -> None:
    assert outcome("target_in_input", masked_words(how)) == seen


@pytest.mark.parametrize("how", ["inside", "moved"])
def test_words_that_are_hidden_by_the_model_or_asked_for_elsewhere(how: str) -> None:
    held = masked_words(how)
    assert shown(Lab(held)) is None
    assert outcome("target_in_input", held) == "unclear"
