"""What enters the model in training and in evaluation: words under two vocabularies, pictures inverted on one side; and
weights that decay has taken."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from loops_data import answer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from clew.observe.watches._data_names import TRAINING
from clew.observe.watches._training_penalty import Penalties
from clew.observe.watches.decay_against_gradient import DecayAgainstGradient
from clew.observe.watches.input_statistics_match import InputStatisticsMatch
from clew.observe.watches.token_coding import TokenCoding, by_chance, distances

WORDS = 40


def sentences(rows: int, seed: int, *, even: bool = False) -> torch.Tensor:
    chances = np.ones(WORDS) if even else 1 / np.arange(1, WORDS + 1)
    drawn = np.random.default_rng(seed).choice(WORDS, (rows, 12), p=chances / chances.sum())
    return torch.from_numpy(drawn)


def tagged(others: torch.Tensor, by_loader: bool) -> None:
    torch.manual_seed(0)
    rows = sentences(600, 0)
    model = nn.Sequential(nn.EmbeddingBag(WORDS, 8), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loader = DataLoader(TensorDataset(rows, rows.sum(1) % 2), batch_size=32, shuffle=True)
    held = DataLoader(TensorDataset(others, others.sum(1) % 2), batch_size=50)
    for _ in range(3):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for x, _ in held if by_loader else [(others, None)]:
                model(x)


@pytest.mark.parametrize("by_loader", [True, False])
def test_words_that_were_numbered_anew_for_one_side(tmp_path: Any, by_loader: bool) -> None:
    other = torch.from_numpy(np.random.default_rng(3).permutation(WORDS))
    rows = sentences(200, 1)
    told = answer(tmp_path / "anew", TokenCoding, lambda: tagged(other[rows], by_loader))
    assert told["outcome"] == "recoded"
    assert answer(tmp_path / "same", TokenCoding, lambda: tagged(rows, by_loader))["outcome"] == "same"


def test_other_words_are_no_other_numbers(tmp_path: Any) -> None:
    """Another domain has frequencies of its own; where all words are equally frequent there is nothing to see."""
    told = answer(tmp_path / "domain", TokenCoding, lambda: tagged(sentences(200, 1, even=True), True))
    assert told["outcome"] == "same"
    few = answer(tmp_path / "few", TokenCoding, lambda: tagged(sentences(20, 1), True))
    assert few["outcome"] == "unclear"


class Bag(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.EmbeddingBag(WORDS, 8), nn.Linear(8, 2))


def served(others: torch.Tensor, path: Path, *, own: bool) -> None:
    """After each epoch a second model is made from what the first saved, and evaluates; or one that has its own."""
    torch.manual_seed(0)
    rows = sentences(600, 0)
    model = Bag()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(3):
        for x in rows.chunk(19):
            optimizer.zero_grad()
            F.cross_entropy(model(x), x.sum(1) % 2).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        torch.save(model.state_dict(), path)
        other = Bag().eval()
        if not own:
            other.load_state_dict(torch.load(path, weights_only=True))
        with torch.no_grad():
            other(others)


def test_a_model_that_was_loaded_from_a_file_is_the_one_that_was_trained(tmp_path: Path) -> None:
    other = torch.from_numpy(np.random.default_rng(3).permutation(WORDS))[sentences(200, 1)]
    path = tmp_path / "model.pt"
    told = answer(tmp_path / "anew", TokenCoding, lambda: served(other, path, own=False))
    assert told["outcome"] == "recoded"
    same = answer(tmp_path / "same", TokenCoding, lambda: served(sentences(200, 1), path, own=False))
    assert same["outcome"] == "same"
    # A network of the same kind that was never made from the trained one may number its words as it likes.
    assert answer(tmp_path / "own", TokenCoding, lambda: served(other, path, own=True))["outcome"] == "unclear"


def test_what_fills_up_short_rows_on_one_side_only_makes_no_other_numbers() -> None:
    words = np.array([0, *(1000 // rank for rank in range(1, 30))], np.int64)
    filled, moved = words.copy(), np.roll(words, 7)
    filled[0] = 4000
    apart, ordered = distances(filled, words)
    assert apart == pytest.approx(0.0)
    apart, ordered = distances(filled, np.roll(filled, 7))
    assert apart > 0.5
    assert ordered == pytest.approx(0.0)
    assert distances(words, moved)[1] == pytest.approx(0.0)


@given(st.lists(st.integers(0, 50), min_size=12, max_size=60), st.randoms())
def test_an_order_changes_no_frequencies(counts: list[int], random: Any) -> None:
    one = np.array(counts, np.int64)
    apart, ordered = distances(one, one)
    assert apart == ordered == 0.0
    there = distances(one, one * 7)
    assert there == pytest.approx((0.0, 0.0))
    apart, ordered = distances(one, np.array(random.sample(counts, len(counts))))
    assert 0.0 <= ordered <= apart + 1e-9 or apart == 0.0
    assert apart <= 1.0


def test_what_chance_does_is_what_drawing_shows() -> None:
    chances = 1 / np.arange(1, 301)
    chances /= chances.sum()
    drawn = np.random.default_rng(0)
    found = []
    for _ in range(40):
        one, other = drawn.multinomial(3000, chances), drawn.multinomial(900, chances)
        found.append(0.5 * np.abs(one / 3000 - other / 900).sum())
    assert by_chance(drawn.multinomial(3000, chances), drawn.multinomial(900, chances)) == pytest.approx(
        np.mean(found), rel=0.1
    )


def by_turns(model: nn.Module, loader: DataLoader[Any], held: DataLoader[Any]) -> None:
    """Epochs of training with an evaluation after each."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            for x, _ in held:
                model(x)


def pictures(invert: bool, brighter: float = 0.0) -> None:
    torch.manual_seed(0)
    ink = (torch.rand(400, 1, 8, 8) < 0.25).float() * torch.rand(400, 1, 8, 8)
    labels = (ink[:, 0, :4].sum((1, 2)) > ink[:, 0, 4:].sum((1, 2))).long()
    ink = (ink - 0.125) / 0.25
    other = -ink + 1.5 if invert else ink + brighter
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    loader = DataLoader(TensorDataset(ink[:300], labels[:300]), batch_size=30, shuffle=True)
    held = DataLoader(TensorDataset(other[300:], labels[300:]), batch_size=50)
    by_turns(model, loader, held)


def test_pictures_that_one_side_inverts(tmp_path: Any) -> None:
    assert answer(tmp_path / "in", InputStatisticsMatch, lambda: pictures(True))["outcome"] == "one_step_apart"
    assert answer(tmp_path / "as", InputStatisticsMatch, lambda: pictures(False))["outcome"] == "match"
    assert answer(tmp_path / "by", InputStatisticsMatch, lambda: pictures(False, 0.6))["outcome"] != "one_step_apart"


@pytest.mark.parametrize(
    ("factors", "outcome"),
    [
        ([9.8, 9.8, 9.8, 1, 1, 1], "one_step_apart"),
        ([0.1, 1, 0.1, 1, 1, 1], "one_step_apart"),
        ([9.8, 1, 1, 1, 1, 1], "differ"),  # one column alone may have a few values far out
        ([9.8, 6.0, 14.0, 1, 1, 1], "differ"),
        ([1, 1, 1, 1, 1, 1], "match"),
    ],
)
def test_some_columns_in_another_unit(tmp_path: Any, factors: list[float], outcome: str) -> None:
    def loop() -> None:
        torch.manual_seed(0)
        series, labels = torch.randn(500, 6, 20), torch.randint(0, 2, (500,))
        model = nn.Sequential(nn.Conv1d(6, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2))
        loader = DataLoader(TensorDataset(series[:300], labels[:300]), batch_size=30, shuffle=True)
        other = series[300:] * torch.tensor(factors)[:, None]
        by_turns(model, loader, DataLoader(TensorDataset(other, labels[300:]), batch_size=50))

    assert answer(tmp_path, InputStatisticsMatch, loop)["outcome"] == outcome


class Brightened(Dataset[Any]):
    """Pictures that come out brighter by chance, and never darker."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.images[number] + 2.2 * torch.rand(()), self.labels[number]


def test_pictures_that_training_brightens_by_chance(tmp_path: Any) -> None:
    def loop() -> None:
        torch.manual_seed(0)
        images, labels = torch.randn(300, 1, 6, 6), torch.randint(0, 2, (300,))
        model = nn.Sequential(nn.Flatten(), nn.Linear(36, 2))
        loader = DataLoader(Brightened(images[:200], labels[:200]), batch_size=20, shuffle=True)
        held = DataLoader(TensorDataset(images[200:], labels[200:]), batch_size=50)
        by_turns(model, loader, held)

    assert answer(tmp_path, InputStatisticsMatch, loop)["outcome"] != "one_step_apart"


def factors(decay: float) -> None:
    torch.manual_seed(0)
    users, items = nn.Embedding(60, 4), nn.Embedding(40, 4)
    for held in (users, items):
        nn.init.normal_(held.weight, std=0.3)
    optimizer = torch.optim.Adam([*users.parameters(), *items.parameters()], lr=0.02, weight_decay=decay)
    true = torch.randn(60, 4) @ torch.randn(4, 40)
    for _ in range(400):
        u, i = torch.randint(60, (64,)), torch.randint(40, (64,))
        optimizer.zero_grad()
        F.mse_loss((users(u) * items(i)).sum(1), true[u, i]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@pytest.mark.parametrize(("decay", "withered"), [(0.3, True), (1e-4, False), (0.0, False)])
def test_weights_that_decay_has_taken(tmp_path: Any, decay: float, withered: bool) -> None:
    told = answer(tmp_path, DecayAgainstGradient, lambda: factors(decay))
    assert (told["outcome"] == "withered") is withered
    if withered:
        assert told["measured"]["gone"] >= 0.6


PENALTIES: dict[str, Callable[[nn.Linear], Tensor]] = {
    "squares": lambda layer: layer.weight.pow(2).sum(),
    "norm": lambda layer: layer.weight.norm(),
    "product": lambda layer: (layer.weight * layer.weight).sum(),
    "absolute": lambda layer: layer.weight.abs().sum(),
}


@pytest.mark.parametrize(("weight", "outcome"), [(10.0, "decay_dominates"), (1e-4, "small")])
@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
def test_a_penalty_in_the_loss_is_decay(
    tmp_path: Path, penalty: Callable[[nn.Linear], Tensor], weight: float, outcome: str
) -> None:
    def train() -> None:
        torch.manual_seed(0)
        layer = nn.Linear(6, 3)
        optimizer = torch.optim.SGD(layer.parameters(), lr=1e-4)
        for _ in range(20):
            optimizer.zero_grad()
            loss = F.cross_entropy(layer(torch.randn(32, 6)), torch.randint(3, (32,))) + weight * penalty(layer)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    assert answer(tmp_path, DecayAgainstGradient, train)["outcome"] == outcome


def test_the_part_of_a_penalty_is_that_of_its_own_gradient() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(6, 3)
    rest = F.cross_entropy(layer(torch.randn(8, 6)), torch.randint(3, (8,)))
    loss = rest + 0.3 * (layer.weight.pow(2).sum() + layer.weight.norm()) / 2
    penalties = Penalties()
    penalties.listen(loss)
    loss.backward()
    penalties.done()
    ((parameter, part),) = penalties.parts.values()
    assert parameter is layer.weight
    again = layer.weight.detach().requires_grad_()
    (0.15 * (again.pow(2).sum() + again.norm())).backward()
    assert again.grad is not None
    torch.testing.assert_close(part, again.grad)


def test_rows_that_are_not_finite_have_no_size() -> None:
    """A missing value in training makes no example of one size."""

    class Run: ...

    watch = InputStatisticsMatch(Run())  # type: ignore[arg-type]  # it only keeps it
    uneven = [1.0 + 0.3 * (row % 5) for row in range(100)]
    watch.sizes = {(0, TRAINING): [*uneven, float("nan")], (0, "val"): list(uneven)}
    assert watch._evened((0, "val")) is None
    watch.sizes[0, TRAINING] = [1.0] * 100
    assert watch._evened((0, "val")) is not None
