"""The watches around the loss: where they must speak, and where they must keep silent."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loops_loss import (
    Step,
    Vae,
    answer,
    binary,
    classes,
    divergence,
    fit,
    flat,
    gan,
    lines,
    mlp,
    numbers,
    plain,
    single,
)
from torch import Tensor, nn

from clew.observe.watches.loss_input_kind import LossInputKind
from clew.observe.watches.loss_reduction import LossReduction
from clew.observe.watches.loss_shapes import LossShapes
from clew.observe.watches.loss_sign import LossSign
from clew.observe.watches.loss_term_sizes import LossTermSizes
from clew.observe.watches.softmax_axis import SoftmaxAxis

Train = Callable[[], Any]


def loop(step: Step, **more: Any) -> Train:
    return lambda: fit(step, **more)


def by_hand() -> None:
    """A loss no function of torch has made."""
    fit(lambda m, x, _y: (m(x)[:, 0] * torch.randn(len(x))).mean())


def nothing() -> None:
    mlp()(torch.randn(3, 6))


# --- loss_input_kind

TWICE = {
    "module": loop(plain, model=lambda: mlp(4, nn.Softmax(dim=1))),
    "function": loop(lambda m, x, y: F.cross_entropy(torch.softmax(m(x), -1), y)),
    "viewed and cast": loop(lambda m, x, y: F.cross_entropy(m(x).softmax(1).double().view(-1, 4)[:16], y[:16])),
    "sigmoid": loop(lambda m, x, y: F.cross_entropy(m(x).sigmoid(), y)),
    "binary": loop(
        lambda m, x, y: F.binary_cross_entropy_with_logits(torch.sigmoid(m(x)), y), model=single, data=binary
    ),
    "logsigmoid": loop(
        lambda m, x, y: F.binary_cross_entropy_with_logits(F.logsigmoid(m(x)), y), model=single, data=binary
    ),
    "dense": loop(
        lambda m, x, y: F.cross_entropy(m(x).view(8, 4, 4).softmax(1), y.view(8, 4)),
    ),
}
RAW = {
    "linear": loop(lambda m, x, y: F.nll_loss(m(x), y)),
    "no bias": loop(lambda m, x, y: F.nll_loss(m(x), y), model=lambda: nn.Linear(6, 4, bias=False)),
    "without the log": loop(lambda m, x, y: F.nll_loss(m(x).softmax(1), y)),
    "divergence": loop(lambda m, x, y: F.kl_div(m(x), F.one_hot(y, 4).float(), reduction="batchmean")),
}


def dice(squash: Callable[[Tensor], Tensor]) -> Train:
    def step(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        scores, wanted = squash(model(x)).flatten(1), F.one_hot(y, 4).float()
        overlap = (scores * wanted).sum(1)
        return 1 - ((2 * overlap + 1) / (scores.sum(1) + wanted.sum(1) + 1)).mean()

    return loop(step)


def iou(squash: Callable[[Tensor], Tensor]) -> Train:
    def step(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        scores, wanted = squash(model(x)), F.one_hot(y, 4).float()
        both = torch.sum(scores * wanted)
        return 0.5 * plain(model, x, y) - both / (scores.sum() + wanted.sum() - both)

    return loop(step)


RAW |= {"dice": dice(lambda scores: scores), "iou": iou(lambda scores: scores)}
FITS = {
    "logits": loop(plain),
    "dice": dice(torch.sigmoid),
    "iou": iou(lambda scores: scores.softmax(1)),
    "weighed mean": loop(lambda m, x, y: (m(x)[:, 0] * y).sum() / y.sum() + plain(m, x, y)),
    "log_softmax twice": loop(lambda m, x, y: F.cross_entropy(m(x).log_softmax(1), y)),
    "nll": loop(lambda m, x, y: F.nll_loss(F.log_softmax(m(x), 1), y)),
    "log by hand": loop(lambda m, x, y: F.nll_loss(torch.log(m(x).softmax(1) + 1e-8), y)),
    "sigmoid": loop(lambda m, x, y: F.binary_cross_entropy(m(x), y), model=lambda: mlp(1, nn.Sigmoid()), data=binary),
    "temperature": loop(lambda m, x, y: F.cross_entropy(10 * m(x).softmax(1), y)),
    "mixture": loop(lambda m, x, y: F.nll_loss((m(x).softmax(1) @ torch.full((4, 4), 0.25)).log(), y)),
    "focal": loop(lambda m, x, y: F.nll_loss((1 - m(x).softmax(1)) ** 2 * m(x).log_softmax(1), y)),
    "distilled": loop(lambda m, x, y: F.kl_div(m(x).log_softmax(1), F.one_hot(y, 4) * 0.9 + 0.025, reduction="sum")),
    "soft targets": loop(lambda m, x, _y: F.cross_entropy(m(x), torch.randn(32, 4).softmax(1))),
    "gan": lambda: gan(lambda scores: F.binary_cross_entropy_with_logits(scores, torch.ones(16, 1))),
}


@pytest.mark.parametrize("train", TWICE.values(), ids=TWICE)
def test_a_second_softmax_is_seen(tmp_path: Any, train: Train) -> None:
    told = answer(tmp_path, LossInputKind, train)
    assert told["outcome"] == "probabilities_into_logit_loss"
    assert "F." in lines(told)[0]


@pytest.mark.parametrize("train", RAW.values(), ids=RAW)
def test_a_missing_activation_is_seen(tmp_path: Any, train: Train) -> None:
    assert answer(tmp_path, LossInputKind, train)["outcome"] == "logits_into_probability_loss"


@pytest.mark.parametrize("train", FITS.values(), ids=FITS)
def test_the_right_kind_of_input_is_left_alone(tmp_path: Any, train: Train) -> None:
    assert answer(tmp_path, LossInputKind, train)["outcome"] == "fits"


def test_the_softmax_itself_is_pointed_at_too(tmp_path: Any) -> None:
    def step(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        shares = torch.softmax(model(x), dim=1)
        return F.cross_entropy(shares, y)

    first, second = lines(answer(tmp_path, LossInputKind, loop(step)))[:2]
    assert "F.cross_entropy" in first
    assert "torch.softmax" in second


def test_a_loss_that_is_only_printed_is_no_fault(tmp_path: Any) -> None:
    def step(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        F.cross_entropy(model(x).softmax(1), y)
        return plain(model, x, y)

    assert answer(tmp_path, LossInputKind, loop(step))["outcome"] == "fits"


def test_binary_cross_entropy_stops_at_raw_scores(tmp_path: Any) -> None:
    def train() -> None:
        with pytest.raises(RuntimeError):
            fit(lambda m, x, y: F.binary_cross_entropy(m(x), y), model=single, data=binary)

    assert answer(tmp_path, LossInputKind, train)["outcome"] == "logits_into_probability_loss"


def test_without_a_graph_values_tell(tmp_path: Any) -> None:
    @torch.no_grad()
    def train() -> None:
        x, y = classes()
        for _ in range(3):
            F.cross_entropy(mlp()(x).softmax(1), y)

    assert answer(tmp_path, LossInputKind, train)["outcome"] == "probabilities_into_logit_loss"


def test_gradients_taken_by_hand_are_no_way_out(tmp_path: Any) -> None:
    def train() -> None:
        model, (x, y) = mlp(), classes()
        for _ in range(3):
            torch.autograd.grad(F.cross_entropy(model(x).softmax(1), y), list(model.parameters()))

    assert answer(tmp_path, LossInputKind, train)["outcome"] == "probabilities_into_logit_loss"


def test_no_loss_function_no_kind(tmp_path: Any) -> None:
    assert "unclear" in answer(tmp_path, LossInputKind, by_hand)


# --- softmax_axis


def conv() -> nn.Module:
    return nn.Sequential(nn.Conv1d(6, 8, 1), nn.Tanh(), nn.Conv1d(8, 4, 1))


def positions() -> tuple[Tensor, Tensor]:
    return torch.randn(8, 6, 5), torch.randint(0, 4, (8, 5))


WRONG_AXIS = {
    "log_softmax": loop(lambda m, x, y: F.nll_loss(F.log_softmax(m(x), dim=0), y)),
    "module": loop(lambda m, x, y: F.nll_loss(m(x), y), model=lambda: mlp(4, nn.LogSoftmax(dim=0))),
    "log by hand": loop(lambda m, x, y: F.nll_loss(torch.log(m(x).softmax(0) + 1e-9), y)),
    "into cross entropy": loop(lambda m, x, y: F.cross_entropy(m(x).softmax(0), y)),
    "squares": loop(lambda m, x, y: F.mse_loss(m(x).softmax(0), F.one_hot(y, 4).float())),
    "over positions": loop(lambda m, x, y: F.nll_loss(m(x).log_softmax(2), y), model=conv, data=positions),
    "scrambled view": loop(
        lambda m, x, y: F.cross_entropy(m(x).reshape(-1, 4), y.reshape(-1)), model=conv, data=positions
    ),
    "one class": loop(lambda m, x, y: F.binary_cross_entropy(m(x).softmax(1), y), model=single, data=binary),
    "batch of one": loop(lambda m, x, y: F.nll_loss(m(x[:1]).log_softmax(0), y[:1])),
}


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.make = nn.Linear(6, 24)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.make(x).chunk(3, dim=-1)
        mixed = torch.softmax(query @ key.transpose(-1, -2), dim=-1) @ value
        made: Tensor = self.head(mixed.mean(1))
        return made


def contrast(model: nn.Module, x: Tensor, _y: Tensor) -> Tensor:
    scores = F.normalize(model(x)) @ F.normalize(model(x + 0.1 * torch.randn_like(x))).t()
    pairs = torch.arange(len(x))
    return F.nll_loss(F.log_softmax(scores, dim=0), pairs) + F.nll_loss(F.log_softmax(scores, dim=1), pairs)


RIGHT_AXIS = {
    "logits": loop(plain),
    "log_softmax": loop(lambda m, x, y: F.nll_loss(m(x).log_softmax(-1), y)),
    "positions": loop(lambda m, x, y: F.nll_loss(m(x).log_softmax(1), y), model=conv, data=positions),
    "permuted view": loop(
        lambda m, x, y: F.cross_entropy(m(x).permute(0, 2, 1).reshape(-1, 4), y.reshape(-1)),
        model=conv,
        data=positions,
    ),
    "attention": loop(plain, model=Attention, data=lambda: (torch.randn(32, 5, 6), torch.randint(0, 4, (32,)))),
    "contrastive": loop(contrast),
    "adjusted": loop(lambda m, x, y: F.nll_loss(m(x).log_softmax(1) + torch.tensor([0.1, 0.2, 0.3, 0.4]).log(), y)),
    "some classes": loop(lambda m, x, y: F.nll_loss(m(x).log_softmax(1)[:, :3], y % 3)),
}


@pytest.mark.parametrize("train", WRONG_AXIS.values(), ids=WRONG_AXIS)
def test_a_softmax_over_the_wrong_axis_is_seen(tmp_path: Any, train: Train) -> None:
    told = answer(tmp_path, SoftmaxAxis, train)
    assert told["outcome"] == "wrong"
    assert told["where"]


@pytest.mark.parametrize("train", RIGHT_AXIS.values(), ids=RIGHT_AXIS)
def test_a_softmax_over_the_right_axis_is_left_alone(tmp_path: Any, train: Train) -> None:
    assert answer(tmp_path, SoftmaxAxis, train)["outcome"] == "right"


def dice_over(dim: int) -> Step:
    def step(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        shares, labels = model(x).softmax(dim), F.one_hot(y, 4).permute(0, 2, 1).float()
        both = (shares * labels).sum((0, 2))
        share: Tensor = 1 - ((2 * both + 1) / (shares.sum((0, 2)) + labels.sum((0, 2)) + 1)).mean()
        return share

    return step


@pytest.mark.parametrize(
    ("step", "outcome", "more"),
    [
        (dice_over(1), "right", {"model": conv, "data": positions}),
        (dice_over(-1), "wrong", {"model": conv, "data": positions}),
        (lambda m, x, y: -(m(x).log_softmax(1) * F.one_hot(y, 4)).sum(1).mean(), "right", {}),
        (lambda m, x, y: -(m(x).log_softmax(0) * F.one_hot(y, 4)).sum(1).mean(), "wrong", {}),
        (lambda m, x, y: -((m(x).softmax(0) + 1e-9).log() * F.one_hot(y, 4).float()).mean(), "wrong", {}),
    ],
)
def test_one_hot_labels_tell_where_the_classes_are(tmp_path: Any, step: Step, outcome: str, more: Any) -> None:
    assert answer(tmp_path, SoftmaxAxis, loop(step, **more))["outcome"] == outcome


def focal(over: int, chosen: Callable[[Tensor], Tensor] = lambda held: held) -> Step:
    """Classes last, one of them picked by the label of each position."""

    def step(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        logs = chosen(model(x).permute(0, 2, 1).log_softmax(over))
        right = logs.gather(-1, y.reshape(*logs.shape[:-1], 1)).squeeze(-1)
        return -((1 - right.exp()) ** 2 * right).mean()

    return step


def moved_after(over: int) -> Step:
    def step(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        logs = torch.log(model(x).softmax(over) + 1e-9).permute(0, 2, 1)
        return -logs.gather(2, y.unsqueeze(2)).mean()

    return step


def last_position(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Whole distributions are taken: those of one position of each sequence."""
    logs = model(x).transpose(1, 2).log_softmax(-1)
    at = torch.arange(len(x)).remainder(5).view(-1, 1, 1).expand(-1, 1, 4)
    return F.nll_loss(logs.gather(1, at).squeeze(1), y[:, 0])


def pointed_at(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Positions compete for each class, and one position is picked for each."""
    logs = model(x).log_softmax(2)
    picked: Tensor = logs.gather(2, y[:, :4].unsqueeze(2))
    return -picked.mean()


def two_of_them(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Several positions are taken, in another order for each class."""
    logs = model(x).transpose(1, 2).log_softmax(-1)
    picked: Tensor = logs.gather(1, y[:, :2].unsqueeze(2).expand(-1, -1, 4).cumsum(2) % 5)
    return -picked.mean()


@pytest.mark.parametrize(
    ("step", "outcome"),
    [
        (focal(1), "wrong"),
        (focal(0), "wrong"),
        (focal(1, lambda held: held.reshape(2, -1, 4)), "wrong"),
        (moved_after(2), "wrong"),
        (focal(-1), "right"),
        (focal(2, lambda held: held.reshape(2, -1, 4)), "right"),
        (moved_after(1), "right"),
        (last_position, "right"),
        (pointed_at, "right"),
        (two_of_them, "right"),
    ],
)
def test_labels_choose_along_the_axis_of_the_softmax(tmp_path: Any, step: Step, outcome: str) -> None:
    told = answer(tmp_path, SoftmaxAxis, loop(step, model=conv, data=positions))
    assert told["outcome"] == outcome


@pytest.mark.parametrize(("dim", "outcome"), [(0, "wrong"), (1, "right")])
def test_argmax_over_the_batch_is_seen(tmp_path: Any, dim: int, outcome: str) -> None:
    def step(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        scores = model(x)
        loss = F.cross_entropy(scores, y)
        scores.argmax(dim)
        return loss

    assert answer(tmp_path, SoftmaxAxis, loop(step))["outcome"] == outcome


def test_no_loss_no_axis(tmp_path: Any) -> None:
    assert "unclear" in answer(tmp_path, SoftmaxAxis, by_hand)


# --- loss_shapes

BROADCAST = {
    "mse": loop(lambda m, x, y: F.mse_loss(m(x), y), model=single, data=flat),
    "module": loop(lambda m, x, y: nn.SmoothL1Loss()(m(x), y), model=single, data=flat),
    "prediction squeezed": loop(lambda m, x, y: F.l1_loss(m(x).squeeze(1), y), model=single, data=numbers),
    "poisson": loop(lambda m, x, y: F.poisson_nll_loss(m(x), y.abs()), model=single, data=flat),
    "by hand": loop(lambda m, x, y: ((m(x) - y) ** 2).mean(), model=single, data=flat),
    "by hand, absolute": loop(lambda m, x, y: (y - m(x)).abs().mean(), model=single, data=flat),
    "by hand, squeezed": loop(lambda m, x, y: (m(x)[:, 0] - y).pow(2).sum() / 32, model=single, data=numbers),
    "target made of all pairs": loop(
        lambda m, x, y: F.smooth_l1_loss(m(x)[:, 0], 0.5 * y + y[:, None]), model=single, data=flat
    ),
    "weighed": loop(lambda m, x, y: -(m(x) * y).mean(), model=single, data=flat),
    "weighed and clipped": loop(
        lambda m, x, y: torch.min(m(x) * y, m(x).clamp(0, 1) * y).mean(), model=single, data=flat
    ),
    "a ratio": loop(lambda m, x, y: -((m(x) - y).exp() * y).clamp(0, 1).mean(), model=single, data=flat),
}
MATCH = {
    "equal": loop(lambda m, x, y: F.mse_loss(m(x), y), model=single, data=numbers),
    "classes": loop(plain),
    "scalar target": loop(lambda m, x, _y: F.mse_loss(m(x), torch.tensor(1.0)), model=single),
    "by hand": loop(lambda m, x, y: ((m(x) - y) ** 2).mean(), model=single, data=numbers),
    "all pairs": loop(
        lambda m, x, y: F.smooth_l1_loss(m(x)[:, :, None], y[:, None, :], reduction="none").mean(),
        data=lambda: (torch.randn(32, 6), torch.randn(32, 4)),
    ),
    "pairs by hand": loop(lambda m, x, y: ((m(x)[:, None, 0] - y[None, :]) ** 2).mean(), model=single, data=flat),
    "ranking": loop(
        lambda m, x, _y: (m(x) - m(x).t()).pow(2).mean() + F.mse_loss(m(x)[:, 0], _y), model=single, data=flat
    ),
    "batch of one": loop(lambda m, x, y: F.mse_loss(m(x[:1]), y[:1]), model=single, data=flat),
}


WEIGHED: dict[str, Any] = {
    "alike": lambda m, x, y: -(m(x)[:, 0] * y).mean(),
    "by a table": lambda m, x, y: (m(x) * (y[:, None] > y)).mean(),
    "pairs": lambda m, x, y: (m(x)[:, 0][:, None] * y).mean(),
    "ratios alike": lambda m, x, y: -((m(x)[:, 0] - y).exp() * y).clamp(0, 1).mean(),
    "distances": lambda m, x, y: (
        (m(x).pow(2).sum(1, keepdim=True) + y**2 - 2 * m(x) @ y[None]).clamp(min=0).sqrt().mean()
    ),
}


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("train", BROADCAST.values(), ids=BROADCAST)
def test_a_broadcast_is_seen(tmp_path: Any, train: Train) -> None:
    told = answer(tmp_path, LossShapes, train)
    assert told["outcome"] == "broadcast"
    assert told["measured"]["together"] == "(32, 32)"
    assert told["where"]


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("train", MATCH.values(), ids=MATCH)
def test_matching_shapes_are_left_alone(tmp_path: Any, train: Train) -> None:
    assert answer(tmp_path, LossShapes, train)["outcome"] == "match"


def test_weights_that_fit_are_left_alone(tmp_path: Any) -> None:
    for name, weighed in WEIGHED.items():
        train = loop(weighed, model=single, data=flat)
        assert answer(tmp_path / name, LossShapes, train).get("outcome") != "broadcast", name


def test_no_loss_no_shapes(tmp_path: Any) -> None:
    assert "unclear" in answer(tmp_path, LossShapes, by_hand)


# --- loss_sign


def climb_with(maximize: bool, sign: float) -> Train:
    return loop(lambda m, x, y: sign * F.cross_entropy(m(x), y), maximize=maximize)


def elbo(sign: float) -> Train:
    def step(model: nn.Module, x: Tensor, _y: Tensor) -> Tensor:
        made, mean, log_variance = model(x)
        value = -F.binary_cross_entropy(made, torch.sigmoid(x), reduction="sum") - divergence(mean, log_variance)
        return sign * value

    return loop(step, model=Vae, lr=1e-3)


def scaled(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    scaler = torch.amp.GradScaler("cpu")
    made = scaler.scale(-plain(model, x, y))
    assert isinstance(made, Tensor)
    return made


NEGATED = {
    "minus": loop(lambda m, x, y: -F.cross_entropy(m(x), y)),
    "times minus one": climb_with(False, -1.0),
    "half of it": climb_with(False, -0.5),
    "per example": loop(lambda m, x, y: (-F.mse_loss(m(x), y, reduction="none")).mean(), model=single, data=numbers),
    "maximize": climb_with(True, 1.0),
    "scaled": loop(scaled),
    "with a penalty": loop(
        lambda m, x, y: -plain(m, x, y) + 1e-5 * sum(p.pow(2).sum() for p in m.parameters()),
    ),
    "the bound itself": elbo(1.0),
}


def reinforce(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    log_probability = -F.cross_entropy(model(x), y, reduction="none")
    return -(log_probability * torch.randn(32)).mean()


def reinforce_one(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    log_probability = -F.cross_entropy(model(x[:1]), y[:1])
    return -log_probability * (-1 - torch.rand(()))


def attack() -> None:
    model, (x, y) = mlp(), classes()
    change = torch.zeros_like(x, requires_grad=True)
    optimizer = torch.optim.Adam([change], lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        (-F.cross_entropy(model(x + change), y)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def confusion(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return plain(model, x, y) - 0.5 * F.cross_entropy(model(-x), y)


def hand_made_and_adversary(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    made: Tensor = (model(x)[:, 0] - 3).pow(2).mean() - F.cross_entropy(model(x), y)
    return made


NOT_NEGATED = {
    "plain": loop(plain),
    "accumulated": loop(lambda m, x, y: plain(m, x, y) / 4),
    "evidence bound": elbo(-1.0),
    "double": climb_with(True, -1.0),
    "saturating gan": lambda: gan(lambda scores: -F.binary_cross_entropy_with_logits(scores, torch.zeros(16, 1))),
    "domain confusion": loop(confusion),
    "policy gradient": loop(reinforce),
    "policy gradient, one": loop(reinforce_one),
    "attack": attack,
    "entropy bonus": loop(
        lambda m, x, y: plain(m, x, y) + 0.01 * (m(x).softmax(1) * m(x).log_softmax(1)).sum(1).mean()
    ),
    "with an adversary": loop(hand_made_and_adversary),
}


@pytest.mark.parametrize("train", NEGATED.values(), ids=NEGATED)
def test_a_negated_loss_is_seen(tmp_path: Any, train: Train) -> None:
    told = answer(tmp_path, LossSign, train)
    assert told.get("outcome") == "negated", told
    assert told["where"]


@pytest.mark.parametrize("train", NOT_NEGATED.values(), ids=NOT_NEGATED)
def test_other_signs_are_left_alone(tmp_path: Any, train: Train) -> None:
    assert answer(tmp_path, LossSign, train).get("outcome") != "negated"


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    "divergence",
    [
        lambda mu, s: -0.5 * torch.sum(1 + s - mu.pow(2) - s.exp()),
        lambda mu, s: -0.5 * (1 + s - mu**2 - torch.exp(s)).sum(1).mean(),
        lambda mu, s: 0.5 * (mu.square() + s.exp() - s - 1).mean() * 1e-3,
        lambda mu, s: 0.5 * (mu.square() + (v := F.softplus(s)) - v.log() - 1).sum() / len(mu),
    ],
)
def test_the_sign_of_a_divergence_by_hand(
    tmp_path: Any, sign: int, divergence: Callable[[Tensor, Tensor], Tensor]
) -> None:
    def step(model: nn.Module, x: Tensor, _y: Tensor) -> Tensor:
        mu, s = model(x).chunk(2, 1)
        return F.mse_loss(mu + s, x[:, :2]) + sign * divergence(mu, s)

    seen = answer(tmp_path, LossSign, loop(step)).get("outcome")
    assert (seen == "negated") == (sign < 0)


def chosen(logits: Tensor, y: Tensor) -> Tensor:
    return F.log_softmax(logits, 1).gather(1, y[:, None])


def policy_of(logits: Tensor) -> Any:
    return torch.distributions.Categorical(logits=logits)


def partial_likelihood(risk: Tensor, x: Tensor) -> Tensor:
    """Of survival times, of which some are only known to be longer."""
    time, event = x[:, 0] + 0.1 * torch.randn(len(x)), (x[:, 1] > -0.5).float()
    order = torch.argsort(time, descending=True)
    risk, event = risk[order], event[order]
    return ((risk - torch.logcumsumexp(risk, 0)) * event).sum() / event.sum().clamp(min=1.0)


def likeness(z: Tensor) -> Tensor:
    z = F.normalize(z, dim=1)
    scores = z @ (z + 0.1 * torch.randn_like(z)).T / 0.2
    return (scores.diag() - torch.logsumexp(scores, 1)).mean()


LIKELIHOODS: dict[str, Step] = {
    "gathered": lambda m, x, y: chosen(m(x), y).mean(),
    "of a distribution": lambda m, x, y: policy_of(m(x)).log_prob(y).sum(),
    "by one-hot": lambda m, x, y: (m(x).log_softmax(1) * F.one_hot(y, 4)).sum(1).mean(),
    "survival": lambda m, x, _: partial_likelihood(m(x)[:, 0], x),
    "contrastive": lambda m, x, _: likeness(m(x)),
}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_sign_of_a_likelihood_by_hand(tmp_path: Any, name: str, sign: int) -> None:
    step = LIKELIHOODS[name]
    told = answer(tmp_path, LossSign, loop(lambda m, x, y: sign * step(m, x, y), steps=60))
    assert (told.get("outcome") == "negated") == (sign > 0), told


AVOIDED: dict[str, Step] = {
    "advantages": lambda m, x, y: (chosen(m(x), y)[:, 0] * torch.randn(len(x))).mean(),
    "costs": lambda m, x, y: (chosen(m(x), y)[:, 0] * torch.rand(len(x))).mean(),
    "entropy": lambda m, x, _: (m(x).softmax(1) * m(x).log_softmax(1)).sum(1).mean(),
    "soft minimum": lambda m, x, _: -torch.logsumexp(-m(x), 1).mean(),
    "beside others": lambda m, x, y: F.cross_entropy(m(x), y) + 0.1 * m(x).log_softmax(1).mean(),
    "penalised": lambda m, x, y: chosen(m(x), y).mean() + next(m.parameters()).square().sum(),
}


@pytest.mark.parametrize("step", AVOIDED.values(), ids=AVOIDED)
def test_log_probabilities_that_are_meant_so(tmp_path: Any, step: Step) -> None:
    assert answer(tmp_path, LossSign, loop(step, steps=60)).get("outcome") != "negated"


def test_a_pattern_that_is_to_mislead_a_model(tmp_path: Any) -> None:
    """Nothing of the model is trained: an attack makes the right answer unlikely, as it should."""

    def train() -> None:
        model, pattern = mlp(), torch.zeros(6, requires_grad=True)
        x, y = torch.randn(16, 6), torch.randint(4, (16,))
        optimizer = torch.optim.SGD([pattern], lr=0.5)
        for _ in range(60):
            optimizer.zero_grad()
            chosen(model(x + pattern), y).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    assert answer(tmp_path, LossSign, train).get("outcome") != "negated"


def test_actions_that_cost_are_drawn_less_and_less(tmp_path: Any) -> None:
    """A policy that learns by what actions cost, nought or one, has the same formula: its loss comes up to zero."""

    def step(model: nn.Module, x: Tensor, _y: Tensor) -> Tensor:
        policy = policy_of(model(x))
        drawn = policy.sample()
        loss: Tensor = (policy.log_prob(drawn) * (drawn != 2).float()).mean()
        return loss

    assert answer(tmp_path, LossSign, loop(step, steps=60)).get("outcome") != "negated"


def test_the_usual_sign_is_said(tmp_path: Any) -> None:
    assert answer(tmp_path, LossSign, loop(plain))["outcome"] == "usual"
    assert "unclear" in answer(tmp_path, LossSign, elbo(-1.0))  # the sign of the divergence is not looked at
    assert "unclear" in answer(tmp_path, LossSign, by_hand)


# --- loss_reduction


def vae(divided: bool) -> Train:
    def step(model: nn.Module, x: Tensor, _y: Tensor) -> Tensor:
        made, mean, log_variance = model(x)
        loss = F.binary_cross_entropy(made, torch.sigmoid(x), reduction="sum") + divergence(mean, log_variance)
        return loss / len(x) if divided else loss

    return loop(step, model=Vae, lr=1e-4)


NUMBERS: dict[str, Any] = {"model": single, "data": numbers, "lr": 1e-4}
SUMMED = {
    "sum": loop(lambda m, x, y: F.mse_loss(m(x), y, reduction="sum"), **NUMBERS),
    "old spelling": loop(lambda m, x, y: F.cross_entropy(m(x), y, reduction="none").sum(), lr=1e-4),
    "by hand": loop(lambda m, x, y: ((m(x) - y) ** 2).sum(), **NUMBERS),
    "half": loop(lambda m, x, y: 0.5 * ((m(x) - y) ** 2).sum(), **NUMBERS),
    "accumulated": loop(lambda m, x, y: F.mse_loss(m(x), y, reduction="sum") / 4, **NUMBERS),
    "scaled": loop(
        lambda m, x, y: torch.amp.GradScaler("cpu", init_scale=256.0).scale(F.mse_loss(m(x), y, reduction="sum")),
        **{**NUMBERS, "lr": 1e-6},
    ),
}
AVERAGED = {
    "mean": loop(plain),
    "divided": loop(lambda m, x, y: F.mse_loss(m(x), y, reduction="sum") / len(x), **NUMBERS),
    "times": loop(lambda m, x, y: F.mse_loss(m(x), y, reduction="sum") * (1 / 32), **NUMBERS),
    "per example": loop(lambda m, x, y: F.mse_loss(m(x), y, reduction="none").sum(1).mean(), **NUMBERS),
    "by hand": loop(lambda m, x, y: ((m(x) - y) ** 2).mean(), **NUMBERS),
    "vae, divided": vae(True),
    "gan": lambda: gan(lambda scores: F.binary_cross_entropy_with_logits(scores, torch.ones(16, 1))),
}


@pytest.mark.parametrize("train", SUMMED.values(), ids=SUMMED)
def test_a_sum_over_the_batch_is_measured(tmp_path: Any, train: Train) -> None:
    told = answer(tmp_path, LossReduction, train)
    measured = told["measured"]
    assert measured.get("doubled_over_single", measured.get("ratio")) == pytest.approx(2.0), told
    assert told["measured"]["optimizer"] == "SGD"
    assert told["where"]


@pytest.mark.parametrize("train", AVERAGED.values(), ids=AVERAGED)
def test_a_mean_over_the_batch_is_measured(tmp_path: Any, train: Train) -> None:
    assert answer(tmp_path, LossReduction, train)["measured"]["doubled_over_single"] == pytest.approx(1.0)


def test_one_summed_term_among_averages_counts_by_its_size(tmp_path: Any) -> None:
    told = answer(tmp_path, LossReduction, vae(False))
    assert 1.5 < told["measured"]["doubled_over_single"] < 2
    assert "unclear" in answer(tmp_path, LossReduction, by_hand)


# --- loss_term_sizes


def weighted(large: float) -> Step:
    return lambda m, x, y: F.cross_entropy(m(x), y) + large * F.mse_loss(m(x), torch.randn(32, 4))


def on_its_way(course: Callable[[int], float]) -> Train:
    """A second term of this size by step, such as the divergence of a code, which begins at zero."""
    step = itertools.count()
    return loop(lambda m, x, y: plain(m, x, y) + (m(x)[:, 0] * 0 + course(next(step))).abs().mean(), steps=40, lr=1e-3)


DOMINATED = {
    "two losses": loop(weighted(1e5), lr=1e-7),
    "raw units": loop(lambda m, x, y: plain(m, x, y) + F.mse_loss(m(x), torch.full((32, 4), 1e3)), lr=1e-7),
    "a term that never grows": on_its_way(lambda _: 1e-4),
    "one by hand": loop(lambda m, x, y: plain(m, x, y) + (m(x) - 1e3).abs().mean(), lr=1e-7),
    "squares by hand": loop(lambda m, x, _y: ((m(x) - 1e3) ** 2).mean() + (m(x) ** 2).mean(), lr=1e-7),
}
COMPARABLE = {
    "one term": loop(plain),
    "two": loop(weighted(1.0)),
    "stacked": loop(lambda m, x, y: torch.stack([plain(m, x, y), plain(m, -x, y)]).sum()),
    "small on purpose": loop(
        lambda m, x, y: plain(m, x, y) + 1e-6 * torch.stack([p.pow(2).sum() for p in m.parameters()]).sum()
    ),
    "switched off": loop(lambda m, x, y: plain(m, x, y) + 0.0 * F.mse_loss(m(x), torch.randn(32, 4))),
    "scaled": loop(
        lambda m, x, y: torch.amp.GradScaler("cpu", init_scale=4096.0).scale(plain(m, x, y) + m(x).abs().mean()),
        lr=1e-5,
    ),
    "vae": vae(False),
    "a term that begins small": on_its_way(lambda step: 1e-4 if step < 15 else 0.1),
}


@pytest.mark.parametrize("train", DOMINATED.values(), ids=DOMINATED)
def test_a_dominant_term_is_measured(tmp_path: Any, train: Train) -> None:
    told = answer(tmp_path, LossTermSizes, train)
    assert told["measured"]["largest_over_smallest"] > 100, told
    assert told["measured"]["terms"] == 2


@pytest.mark.parametrize("train", COMPARABLE.values(), ids=COMPARABLE)
def test_comparable_terms_are_left_alone(tmp_path: Any, train: Train) -> None:
    assert answer(tmp_path, LossTermSizes, train)["measured"]["largest_over_smallest"] < 100


def test_terms_that_cannot_be_read_are_unclear(tmp_path: Any) -> None:
    def step(model: nn.Module, x: Tensor, _y: Tensor) -> Tensor:
        made: Tensor = model(x).abs().mean() + model(x).exp().mean() + model(x).sin().mean()
        return made

    assert "unclear" in answer(tmp_path, LossTermSizes, loop(step))
    assert "unclear" in answer(tmp_path, LossTermSizes, nothing)
