"""A kept training step replays as it was: same loss, same gradients, by the same names."""

import copy
import io
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from taping import kept, taping
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from clew.errors import ClewError
from clew.exams.captured import CapturedSubject, captured
from clew.exams.lab import seed_all

torch.set_num_threads(1)


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 36, 3)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        image = image * 2 - 1
        hidden = F.relu(self.norm(self.conv(image)), inplace=True)
        return self.head(hidden.view(hidden.size(0), -1))  # type: ignore[no-any-return]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.place = nn.Parameter(torch.randn(5, 8))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        hidden = self.layer(self.embed(tokens) + self.place[: tokens.shape[1]], src_mask=mask)
        return torch.matmul(hidden, self.embed.weight.T)  # tied


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(3, 6, num_layers=2, batch_first=True)
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(6, 1))

    def forward(self, series: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(series, lengths, batch_first=True, enforce_sorted=False)
        _, (hidden, _) = self.cell(packed)
        return self.head(hidden[-1])  # type: ignore[no-any-return]


class Labelled(nn.Module):
    """Computes its own loss from labels that it is given, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.body(inputs)
        return {"loss": F.cross_entropy(logits.view(-1, 3), labels.view(-1).long()), "logits": logits}


class Gathered(nn.Module):
    """Sums up over groups of rows, and puts the sums in places, by writing into tensors of zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(3, 4).index_add_(0, group, self.own(x))
        turned = torch.zeros(3, 4)
        turned[torch.tensor([2, 0, 1])] = total.relu()
        return self.head(turned)  # type: ignore[no-any-return]


class Case(NamedTuple):
    """`loss(model, *batch)` as a script would write it."""

    model: Callable[[], nn.Module]
    batch: Callable[[], tuple[torch.Tensor, ...]]
    loss: Callable[..., torch.Tensor]
    inputs: int
    targets: int


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


def numbers(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(8))


def two_heads(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    output = model(x)
    penalty = sum(parameter.pow(2).sum() for parameter in model.parameters())
    total: torch.Tensor = F.mse_loss(output[:, :1], y) + 0.1 * output[:, 1:].abs().mean() + 1e-3 * penalty
    return total


def residual(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A physics loss: the derivative of the network enters it."""
    x = x.clone().requires_grad_()
    u = model(x)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    return torch.mean((slope - torch.cos(x)) ** 2)


def guided(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        goal = model(x.flip(0)).softmax(1)
    return F.kl_div(model(x).log_softmax(1), goal, reduction="batchmean")


def in_bf16(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.cross_entropy(model(x), y)


CASES = {
    "conv": Case(Conv, lambda: (noise(6, 1, 8, 8), numbers(3, 6)), lambda m, x, y: F.cross_entropy(m(x), y), 1, 1),
    "attention": Case(
        Attention,
        lambda: (numbers(11, 4, 6),),
        lambda m, t: F.cross_entropy(m(t[:, :-1]).transpose(1, 2), t[:, 1:]),
        1,
        1,
    ),
    "recurrent": Case(
        Recurrent,
        lambda: (noise(5, 7, 3), torch.tensor([7, 3, 5, 2, 6]), noise(5, 1)),
        lambda m, x, n, y: F.mse_loss(m(x, n), y),
        2,
        1,
    ),
    "labelled": Case(
        Labelled, lambda: (noise(6, 4), numbers(3, 6)), lambda m, x, y: m(inputs=x, labels=y)["loss"], 1, 1
    ),
    "gathered": Case(
        Gathered,
        lambda: (noise(7, 3), torch.tensor([0, 0, 1, 1, 1, 2, 2]), numbers(2, 3)),
        lambda m, x, group, y: F.cross_entropy(m(x, group), y),
        2,
        1,
    ),
    "autoencoder": Case(
        lambda: nn.Sequential(nn.Linear(5, 2), nn.Linear(2, 5)),
        lambda: (noise(6, 5),),
        lambda m, x: (m(x) - x).pow(2).mean(),
        1,
        1,
    ),
    "two heads": Case(lambda: nn.Linear(3, 3), lambda: (noise(6, 3), noise(6, 1)), two_heads, 1, 1),
    "physics": Case(
        lambda: nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)), lambda: (noise(9, 1),), residual, 1, 0
    ),
    "guided": Case(lambda: nn.Linear(4, 3), lambda: (noise(6, 4),), guided, 1, 1),
    "bf16": Case(
        lambda: nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)),
        lambda: (noise(6, 4), numbers(3, 6)),
        in_bf16,
        1,
        1,
    ),
}


def steps(case: Case, model: nn.Module, count: int = 3) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(count):
        optimizer.zero_grad()
        case.loss(model, *case.batch()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@pytest.mark.parametrize("name", CASES)
def test_a_replay_has_the_loss_and_the_gradients_of_the_step(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    seed_all(3)
    model = case.model()
    reference = copy.deepcopy(model)
    subject = kept(tmp_path, lambda: steps(case, model))
    assert subject.untrue() == ""

    loss = case.loss(reference, *case.batch())
    loss.backward()  # type: ignore[no-untyped-call]
    replayed = subject.copy().train()
    batch = subject.batches[0]
    value = subject.value(subject.call(replayed, batch.inputs), batch.target)
    value.backward()  # type: ignore[no-untyped-call]

    assert value.item() == pytest.approx(loss.item(), rel=1e-5)
    mine = dict(replayed.named_parameters())
    for held, parameter in reference.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(mine[held].grad, parameter.grad, rtol=1e-4, atol=1e-6)
    assert len(subject.tape.of_role("input")) == case.inputs
    assert len(subject.tape.of_role("target")) == case.targets
    assert len(subject.batches) == 3


def digits(model: nn.Module, batch: int, epochs: int = 2) -> Callable[[], None]:
    def train() -> None:
        x, y = noise(50, 6), numbers(3, 50)
        loader = DataLoader(TensorDataset(x[:40], y[:40]), batch)
        held_out = DataLoader(TensorDataset(x[40:], y[40:]), 5)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-2)
        for _ in range(epochs):
            model.train()
            for inputs, labels in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            model.eval()
            with torch.no_grad():
                for inputs, _ in held_out:
                    model(inputs)

    return train


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))


def test_modes_are_followed_without_the_classes(tmp_path: Path) -> None:
    seed_all(0)
    model = dropping()
    subject = kept(tmp_path, digits(model, 16))
    held = subject.trained()
    assert held is not None
    model.eval()
    inputs = subject.batches[1].inputs
    torch.testing.assert_close(subject.call(held.eval(), inputs), model(*inputs))
    assert subject.random
    first, second = subject.call(held.train(), inputs), subject.call(held.train(), inputs)
    assert not torch.equal(first, second)


def test_outputs_that_are_joined_for_one_loss_get_their_targets(tmp_path: Path) -> None:
    seed_all(0)
    model, x, y = nn.Linear(6, 3), noise(40, 6), numbers(3, 40)

    def train() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(6):
            for start in range(0, 24, 8):
                optimizer.zero_grad()
                F.cross_entropy(model(x[start : start + 8]), y[start : start + 8]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            with torch.no_grad():
                F.cross_entropy(torch.cat([model(part) for part in torch.split(x[24:], 6)]), y[24:])

    held = kept(tmp_path, train).val_batches
    assert [len(batch.inputs[0]) for batch in held[:3]] == [6, 6, 4]
    for batch, start in zip(held, (24, 30, 36), strict=False):
        torch.testing.assert_close(batch.target, y[start : start + len(batch.inputs[0])])


def test_validation_data_and_the_optimiser_are_kept(tmp_path: Path) -> None:
    seed_all(0)
    subject = kept(tmp_path, digits(dropping(), 16))
    assert [batch.inputs[0].shape[0] for batch in subject.val_batches[:2]] == [5, 5]
    assert all(batch.target is not None and batch.target.dtype == torch.int64 for batch in subject.val_batches)
    optimizer = subject.make_optimizer(subject.copy())
    assert isinstance(optimizer, torch.optim.SGD)
    assert (optimizer.param_groups[0]["momentum"], optimizer.param_groups[0]["weight_decay"]) == (0.9, 1e-2)


def test_other_batch_sizes_replay(tmp_path: Path) -> None:
    seed_all(0)
    case = CASES["conv"]
    model = case.model()
    subject = kept(tmp_path, lambda: steps(case, model))
    for rows in (1, 3, 13):
        output = subject.call(subject.copy().eval(), (noise(rows, 1, 8, 8),))
        assert output.shape == (rows, 3)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        del ctx
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        del ctx
        return grads[0] * 2


doubled = Doubled.apply  # as many write it: bound before anybody could look


@pytest.mark.parametrize("apply", [Doubled.apply, doubled, lambda x: Doubled.apply(x)])  # type: ignore[no-untyped-call]
def test_an_autograd_function_of_the_users_is_named(tmp_path: Path, apply: Any) -> None:
    model = nn.Linear(3, 2)
    with taping(tmp_path) as taper:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            apply(model(noise(4, 3))).pow(2).mean().backward()
            optimizer.step()
    assert taper.tape is None
    assert "Doubled" in taper.why
    assert "cannot be called again" in taper.why
    with pytest.raises(ClewError, match="no training step was kept"):
        captured(str(tmp_path))


class Doubling(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return doubled(super().forward(x)).add_(1)  # type: ignore[no-any-return, no-untyped-call]


def test_writing_to_what_came_out_of_such_a_function_does_not_hide_it(tmp_path: Path) -> None:
    model = Doubling(3, 2)
    with taping(tmp_path) as taper:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(noise(4, 3)).pow(2).mean().backward()
        optimizer.step()
    assert taper.tape is None
    assert "cannot be called again" in taper.why


def test_what_is_read_into_python_is_said(tmp_path: Path) -> None:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        output = model(x)
        return torch.mean(output**2) * (1.0 / max(float(output.detach().abs().max()), 1e-3))

    case = Case(lambda: nn.Linear(3, 2), lambda: (noise(4, 3),), loss, 1, 0)
    model = case.model()
    subject = kept(tmp_path, lambda: steps(case, model))
    assert subject.parts() == []  # what is read is not on the way of the gradient
    assert subject.untrue() == ""


def test_several_losses_are_told_apart(tmp_path: Path) -> None:
    case = CASES["two heads"]
    model = case.model()
    subject = kept(tmp_path, lambda: steps(case, model))
    terms = subject.terms(subject.copy(), subject.batches[0])
    assert len(terms) >= 3
    total = sum(float(term.detach()) for term in terms.values())
    assert total == pytest.approx(subject.tape.value, rel=1e-5)


def test_terms_go_by_the_names_that_the_script_gives_them(tmp_path: Path) -> None:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        output = model(x)
        fit = output.pow(2).mean()
        total: torch.Tensor = fit + output.abs().mean() + output.exp().mean()
        return total

    case = Case(lambda: nn.Linear(3, 2), lambda: (noise(4, 3),), loss, 1, 0)
    model = case.model()
    subject = kept(tmp_path, lambda: steps(case, model))
    first, second, third = subject.terms(subject.copy(), subject.batches[0])
    assert re.fullmatch(r"fit at .*test_tape.py:\d+( .*)?", first)
    assert re.fullmatch(r"mean at .*test_tape.py:\d+.* \(1 of 2 there\)", second)
    assert re.fullmatch(r"mean at .*test_tape.py:\d+.* \(2 of 2 there\)", third)


def test_a_difference_is_a_sum_with_a_sign(tmp_path: Path) -> None:
    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        output = model(x)
        return torch.sub(output.pow(2).mean(), 0.1 * output.mean() + output.abs().mean())

    case = Case(lambda: nn.Linear(3, 2), lambda: (noise(4, 3),), loss, 1, 0)
    model = case.model()
    subject = kept(tmp_path, lambda: steps(case, model))
    terms = subject.terms(subject.copy(), subject.batches[0])
    assert len(terms) == 3
    assert sum(name.startswith("minus ") for name in terms) == 2
    assert all("test_tape.py:" in name and "term" not in name for name in terms)
    assert sum(float(term.detach()) for term in terms.values()) == pytest.approx(subject.tape.value, rel=1e-4)


def test_nothing_is_noted_once_enough_was_kept(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    case = Case(lambda: model, lambda: (noise(4, 3), noise(4, 2)), lambda m, x, y: F.mse_loss(m(x), y), 1, 1)
    with taping(tmp_path) as taper:
        steps(case, model, 12)
        assert torch._C._len_torch_function_stack() == 0
        assert taper.mode is None
    assert isinstance(CapturedSubject(str(tmp_path / "capture-1")), CapturedSubject)


@pytest.mark.parametrize("save", ["torch", "pickle"])
def test_a_model_that_holds_a_function_is_saved_while_a_step_is_kept(tmp_path: Path, save: str) -> None:
    layer = nn.TransformerEncoderLayer(4, 1, 8, batch_first=True)  # holds relu
    saved = 0

    def train() -> None:
        nonlocal saved
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
        for _ in range(6):
            loss = F.mse_loss(layer(torch.randn(4, 3, 4)), torch.zeros(4, 3, 4))
            if save == "torch":
                torch.save(layer, io.BytesIO())
            else:
                assert pickle.dumps(layer)
            saved += 1
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    kept(tmp_path, train)
    assert saved == 6
