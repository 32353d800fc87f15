"""Several networks and what is done after training: copies, players, samplers, stored data, scores, tokens."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loops_data import answer, lines
from loops_training import text_at
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from clew.observe.watches.evaluated_copy import EvaluatedCopy
from clew.observe.watches.event_order import EventOrder
from clew.observe.watches.inplace_writes import InplaceWrites
from clew.observe.watches.input_statistics_match import InputStatisticsMatch
from clew.observe.watches.players_pull import PlayersPull
from clew.observe.watches.scores_spread import ScoresSpread
from clew.observe.watches.softmax_axis import SoftmaxAxis
from clew.observe.watches.tokens_as_targets import TokensAsTargets


def net(inputs: int = 2, outputs: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, outputs))


# --- players


def squared(scores: Tensor, wanted: float) -> Tensor:
    return (scores - wanted).square().mean()


def crossed(scores: Tensor, wanted: float) -> Tensor:
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, wanted))


def game(told: float = 1.0, cut: bool = False, loss: Callable[[Tensor, float], Tensor] = crossed) -> None:
    maker, judge = net(4, 2), net()
    with torch.no_grad():
        judge[2].bias.add_(0.5)  # type: ignore[operator]
    first, second = (torch.optim.SGD(held.parameters(), lr=1e-2) for held in (maker, judge))
    for _ in range(8):
        real, fake = torch.randn(32, 2) + 2, maker(torch.randn(32, 4))
        second.zero_grad()
        (loss(judge(real), 1.0) + loss(judge(fake.detach()), 0.0)).backward()  # type: ignore[no-untyped-call]
        second.step()
        first.zero_grad()
        loss(judge(fake.detach() if cut else fake), told).backward()  # type: ignore[no-untyped-call]
        first.step()


def learning_together() -> None:
    """An encoder and its head in turns, on the same labels: no game."""
    maker, judge = net(4, 2), net()
    first, second = (torch.optim.SGD(held.parameters(), lr=1e-2) for held in (maker, judge))
    for _ in range(8):
        given = torch.randn(32, 4)
        for optimizer, part in ((second, maker(given).detach()), (first, maker(given))):
            optimizer.zero_grad()
            crossed(judge(part), 1.0).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (game, "opposed"),
        (lambda: game(told=0.0), "together"),
        (lambda: game(cut=True), "cut_off"),
        (learning_together, "unclear"),
    ],
)
def test_players_pull(tmp_path: Any, loop: Callable[[], None], outcome: str) -> None:
    told = answer(tmp_path, PlayersPull, loop)
    assert told["outcome"] == outcome
    if outcome in ("together", "cut_off"):
        assert "told)" in lines(told)[0]


def on_one_loss() -> None:
    """Two optimisers that step on the same gradients."""
    maker, judge = net(4, 2), net()
    both = [torch.optim.SGD(held.parameters(), lr=1e-2) for held in (maker, judge)]
    for _ in range(8):
        for optimizer in both:
            optimizer.zero_grad()
        crossed(judge(maker(torch.randn(32, 4))), 1.0).backward()  # type: ignore[no-untyped-call]
        for optimizer in both:
            optimizer.step()


@pytest.mark.parametrize(("loop", "through"), [(game, True), (on_one_loss, False)])
def test_a_loss_that_goes_through_the_network_of_another_optimiser(
    tmp_path: Any, loop: Callable[[], None], through: bool
) -> None:
    told = answer(tmp_path, EventOrder, loop)
    assert told["outcome"] == "usual"
    assert ("through_others" in told["measured"]) is through


def test_squared_scores_that_begin_on_one_side_are_no_fault(tmp_path: Any) -> None:
    assert answer(tmp_path, PlayersPull, lambda: game(loss=squared))["outcome"] in ("opposed", "unclear")


# --- copies


def averaged(update: bool = True, itself: bool = False, every: int = 10, second: bool = False) -> None:
    model, other = net(), net()
    kept = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    beside = torch.optim.SGD(other.parameters(), lr=1e-2) if second else None
    for step in range(60):
        x = torch.randn(16, 2)
        if every == 1:
            with torch.no_grad():
                kept(x)
        optimizer.zero_grad()
        F.mse_loss(model(x), x[:, :1]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if beside is not None:
            beside.zero_grad()
            F.mse_loss(other(x), x[:, :1]).backward()  # type: ignore[no-untyped-call]
            beside.step()
        if update:
            for slow, fast in zip(kept.parameters(), model.parameters(), strict=True):
                slow.data.lerp_(fast.data, 0.1)
        if step % 10 == 9:
            kept.eval()
            with torch.no_grad():
                kept(x)
                if itself:
                    model(x)


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (lambda: averaged(update=False), "stands_still"),
        (averaged, "unclear"),
        (lambda: averaged(update=False, itself=True), "unclear"),
        (lambda: averaged(update=False, every=1), "unclear"),
        (lambda: averaged(update=False, every=1, second=True), "unclear"),
        (lambda: averaged(update=False, second=True), "stands_still"),
    ],
    ids=[
        "never updated",
        "updated",
        "a snapshot beside it",
        "a reference in every step",
        "two optimisers",
        "and still",
    ],
)
def test_evaluated_copy(tmp_path: Any, loop: Callable[[], None], outcome: str) -> None:
    told = answer(tmp_path, EvaluatedCopy, loop)
    assert told["outcome"] == outcome
    assert outcome == "unclear" or lines(told)[0] == "optimizer.step()"


# --- samplers


def sampler(time: float = 1.0, push: float = 0.1) -> None:
    model = net(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    class Timed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            out: Tensor = self.inner(torch.cat([x, t[:, None]], 1))
            return out

    whole = Timed()
    for step in range(40):
        x, t = torch.randn(64, 2), torch.rand(64)
        optimizer.zero_grad()
        F.mse_loss(whole(x, t), x).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step % 10 == 9:
            with torch.no_grad():
                x = torch.randn(64, 2)
                for left in (0.9, 0.8, 0.7):
                    x = x + push * (1 + whole(x, torch.full((64,), left * time)))


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (sampler, "match"),
        (lambda: sampler(time=50.0), "outside"),
        (lambda: sampler(push=1000.0), "runs_away"),
    ],
)
def test_what_a_sampler_gives_the_model(tmp_path: Any, loop: Callable[[], None], outcome: str) -> None:
    told = answer(tmp_path, InputStatisticsMatch, loop)
    assert told["outcome"] in ((outcome, "unclear", "differ") if outcome == "match" else (outcome,))


# --- data that is written to


class Stored(Dataset[Tensor]):
    def __init__(self, change: str) -> None:
        self.images = torch.randn(64, 5)
        self.change = change

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Tensor:
        image = self.images[index]
        if self.change == "adds":
            image += 0.3 * torch.randn_like(image)
        if self.change == "draws":
            self.images[index] = torch.randn(5)
        return image + 0.1


@pytest.mark.parametrize(("change", "outcome"), [("adds", "corrupting"), ("draws", "unclear"), ("", "unclear")])
def test_a_data_set_that_changes_as_it_is_read(tmp_path: Any, change: str, outcome: str) -> None:
    def loop() -> None:
        loader = DataLoader(Stored(change), 16)
        for _ in range(5):
            for _batch in loader:
                pass

    told = answer(tmp_path, InplaceWrites, loop)
    assert told["outcome"] == outcome
    assert outcome == "unclear" or "image +=" in lines(told)[0]


def in_parts(change: Callable[[Tensor], Tensor], kept: str = "same", tokens: bool = False, steps: int = 8) -> None:
    """Trains on parts of one tensor. `kept`: what is cut up in each pass."""
    source = torch.randint(5, 40, (160, 6)) if tokens else torch.randn(160, 6)
    model: nn.Module = nn.Sequential(nn.Embedding(60, 4), nn.Flatten(), net(24, 6)) if tokens else net(6, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        if kept == "shuffled":
            source = source[torch.randperm(len(source))]
        rows = source.clone() if kept == "copied" else source
        for x in torch.split(rows, 16):
            given = x.clone() if kept == "cloned" else x
            optimizer.zero_grad()
            model(change(given)).square().mean().backward()
            optimizer.step()


def noised(x: Tensor) -> Tensor:
    return x.mul_(0.8).add_(0.6 * torch.randn(x.shape))  # noised


def noised_apart(x: Tensor) -> Tensor:
    return x * 0.8 + 0.6 * torch.randn(x.shape)


def hidden(x: Tensor) -> Tensor:
    x[torch.rand(x.shape) < 0.15] = 50  # hidden
    return x


def added(x: Tensor) -> Tensor:
    x += 0.1 * torch.randn_like(x)  # added
    return x


@pytest.mark.parametrize(
    ("change", "kept", "line"),
    [(noised, "shuffled", "# noised"), (noised, "same", "# noised"), (added, "same", "# added")],
)
def test_noise_that_stays_in_the_data(tmp_path: Any, change: Callable[[Tensor], Tensor], kept: str, line: str) -> None:
    told = answer(tmp_path, InplaceWrites, lambda: in_parts(change, kept))
    assert told["outcome"] == "corrupting"
    assert line in lines(told)[0]


def test_words_that_stay_hidden(tmp_path: Any) -> None:
    told = answer(tmp_path, InplaceWrites, lambda: in_parts(hidden, tokens=True))
    assert told["outcome"] == "corrupting"
    assert "# hidden" in lines(told)[0]


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (noised, "copied"),  # a copy for each pass is spoilt, and thrown away
        (noised, "cloned"),
        (noised_apart, "same"),
        (lambda x: x.clamp_(-1, 1), "same"),  # the second time it changes nothing
        (lambda x: x.copy_(torch.randn(x.shape)), "same"),  # room that is filled anew
    ],
)
def test_writes_that_do_no_harm(tmp_path: Any, change: Callable[[Tensor], Tensor], kept: str) -> None:
    assert answer(tmp_path, InplaceWrites, lambda: in_parts(change, kept))["outcome"] == "unclear"


def test_what_is_moved_on_in_its_place_is_a_state(tmp_path: Any) -> None:
    def simulated() -> None:
        table, model = torch.zeros(2, 16, 6), net(6, 6)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        state = table[0].copy_(torch.randn(16, 6))
        for _ in range(80):
            optimizer.zero_grad()
            state += 0.1 * torch.randn(16, 6)
            model(state).square().mean().backward()
            optimizer.step()

    assert answer(tmp_path, InplaceWrites, simulated)["outcome"] == "unclear"


def test_codes_that_are_learnt_by_hand(tmp_path: Any) -> None:
    def decoded() -> None:
        codes, wanted, model = torch.randn(160, 6), torch.randn(160, 6), net(6, 6)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(8):
            for z, x in zip(torch.split(codes, 16), torch.split(wanted, 16), strict=True):
                given = z.detach().requires_grad_()
                optimizer.zero_grad()
                F.mse_loss(model(given), x).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                assert given.grad is not None
                z -= 0.1 * given.grad

    assert answer(tmp_path, InplaceWrites, decoded)["outcome"] == "unclear"


# --- scores


def contrasted(temperature: float = 0.3, dim: int = 1, columns: bool = False) -> None:
    model = net(6, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(120):
        x = torch.randn(12, 6)
        optimizer.zero_grad()
        a, b = (F.normalize(model(x + 0.1 * torch.randn(12, 6)), dim=dim) for _ in range(2))
        scores = (a.T @ b if columns else a @ b.T) / temperature
        F.cross_entropy(scores, torch.arange(len(scores))).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def test_a_temperature_that_leaves_nothing_to_choose(tmp_path: Any) -> None:
    told = answer(tmp_path, ScoresSpread, lambda: contrasted(300.0))
    assert told["outcome"] == "divided_away"
    assert told["measured"]["divisor"] == 300.0
    assert answer(tmp_path, ScoresSpread, contrasted)["outcome"] == "spread"


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (contrasted, "right"),
        (lambda: contrasted(dim=0), "wrong"),
        (lambda: contrasted(dim=0, columns=True), "right"),
    ],
    ids=["by example", "over the batch", "features with features"],
)
def test_vectors_of_unit_length(tmp_path: Any, loop: Callable[[], None], outcome: str) -> None:
    assert answer(tmp_path, SoftmaxAxis, loop)["outcome"] == outcome


def by_hand(axis: int, how: str) -> None:
    model = net(6, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(6):
        x = torch.randn(12, 6)
        y = x[:, :5].argmax(1)
        optimizer.zero_grad()
        logs = F.log_softmax(model(x), dim=axis)
        if how == "gathered":
            loss = -logs.gather(1, y[:, None]).mean()
        elif how == "first":
            loss = -logs[:, 0].mean()
        elif how == "one by one":
            loss = -torch.stack([(logs[row] * F.one_hot(y[row], 5)).sum() for row in range(12)]).mean()
        else:
            loss = -logs[torch.arange(12), y].mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@pytest.mark.parametrize("how", ["gathered", "first", "indexed"])
def test_a_loss_by_hand_that_picks_along_another_axis(tmp_path: Any, how: str) -> None:
    told = answer(tmp_path / "0", SoftmaxAxis, lambda: by_hand(0, how))
    assert told["outcome"] == "wrong", told
    assert "F.log_softmax(model(x), dim=axis)" in text_at(told)
    assert answer(tmp_path / "1", SoftmaxAxis, lambda: by_hand(1, how))["outcome"] == "right"


def test_examples_that_are_taken_one_by_one(tmp_path: Any) -> None:
    assert answer(tmp_path, SoftmaxAxis, lambda: by_hand(1, "one by one"))["outcome"] != "wrong"


# --- tokens


def read_on(by: int, shorter: bool = True, too: int = 0) -> None:
    model = nn.Sequential(nn.Embedding(40, 8), nn.Linear(8, 40))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(6):
        ids = torch.randint(1, 40, (4, 12))
        labels = ids.roll(-by, 1)
        labels[:, 12 - by :] = -100
        scores, wanted = model(ids), labels
        if shorter:
            scores, wanted = scores[:, :-1], labels[:, :-1]
        loss = F.cross_entropy(scores.flatten(0, 1), wanted.flatten())
        if too:
            loss = loss + F.cross_entropy(model(ids)[:, :-too].flatten(0, 1), ids[:, too:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (lambda: read_on(1), "others"),
        (lambda: read_on(2), "beyond_next"),
        (lambda: read_on(2, shorter=False), "beyond_next"),
        (lambda: read_on(2, too=1), "others"),
        (lambda: read_on(0, shorter=False), "same"),
    ],
    ids=["next", "shifted twice", "at full length", "two heads", "copied"],
)
def test_which_token_is_asked_for(tmp_path: Any, loop: Callable[[], None], outcome: str) -> None:
    assert answer(tmp_path, TokensAsTargets, loop)["outcome"] == outcome
