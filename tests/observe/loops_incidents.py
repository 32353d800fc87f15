"""Loops after known incidents, each beside the sound loops that look like it."""

# mypy: disable-error-code="no-untyped-call,no-any-return"
# torch leaves Tensor.backward without types, and these loops call little else.

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from loops_training import blobs, loader
from torch import Tensor, nn


def train(model: nn.Module, parameters: Any = None, epochs: int = 1, loss_of: Any = None) -> None:
    held = list(model.parameters()) if parameters is None else list(parameters)
    optimizer = torch.optim.SGD(held, lr=0.05)
    for _ in range(epochs):
        for x, y in loader():
            loss = F.cross_entropy(model(x), y) if loss_of is None else loss_of(model, x, y)
            optimizer.zero_grad()
            if loss.requires_grad:
                loss.backward()
            optimizer.step()


# --- modes of functions


class Dropped(nn.Module):
    """Dropout as a function, told about the mode in one of the ways people write it."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 3)
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.first(x))
        if self.how == "mode":
            h = F.dropout(h, 0.3, self.training)
        elif self.how == "mode by name":
            h = F.dropout(h, p=0.3, training=self.training)
        elif self.how == "default":
            h = F.dropout(h)
        elif self.how == "default two":
            h = F.dropout1d(h.unsqueeze(0), 0.2).squeeze(0)
        elif self.how == "said":
            h = F.dropout(h, p=0.3, training=True)
        elif self.how == "rate zero":
            h = F.dropout(h, p=0.0)
        return self.second(h)


class Normed(nn.Module):
    mean: Tensor
    var: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 3)
        self.register_buffer("mean", torch.zeros(16))
        self.register_buffer("var", torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        h = F.batch_norm(h, self.mean, self.var, training=self.training)
        return self.second(F.relu(h))


def with_validation(model: nn.Module, switch: bool = True, grad: bool = False, again: int = 1) -> None:
    """Two epochs; `switch` says whether validation calls eval(), `again` how often each batch is scored."""
    held_out = loader(20)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(2):
        model.train()
        for x, y in loader():
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        if switch:
            model.eval()
        with torch.set_grad_enabled(grad):
            for x, _ in held_out:
                for _ in range(again):
                    model(x)


def trained_in_eval(model: nn.Module) -> None:
    model.eval()
    train(model, epochs=2)


# --- teachers and targets


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def teacher(how: str) -> None:
    """Distillation from a network that was trained before and was never put into eval mode."""
    old = net()
    train(old)
    student = net()
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
    for x, _ in loader():
        with torch.set_grad_enabled(how == "in the graph"):
            target = old(x)
        target = target.detach() if how == "detached" else target
        loss = F.mse_loss(student(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Distiller(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.teacher, self.student = net(), net()

    def forward(self, x: Tensor) -> Tensor:
        return F.mse_loss(self.student(x), self.teacher(x))


def teacher_inside() -> None:
    model = Distiller()
    train(model, model.student.parameters(), loss_of=lambda m, x, _: m(x))


def averaged() -> None:
    model = net()
    slow = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in loader():
        loss = F.cross_entropy(model(x), y) + 0.1 * F.mse_loss(model(x), slow(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(slow.parameters(), model.parameters(), strict=True):
                old.lerp_(new, 0.1)


def head_forgotten(separate: bool) -> None:
    body, head = nn.Sequential(nn.Linear(6, 16), nn.ReLU()), nn.Linear(16, 3)
    whole = nn.Sequential(body, head)
    loss_of = (lambda _, x, y: F.cross_entropy(head(body(x)), y)) if separate else None
    train(whole, body.parameters(), loss_of=loss_of)


def body_forgotten() -> None:
    body, head = nn.Sequential(nn.Linear(6, 16), nn.ReLU()), nn.Linear(16, 3)
    train(head, head.parameters(), loss_of=lambda m, x, y: F.cross_entropy(m(body(x)), y))


class Weighted(nn.Module):
    """A weight of the loss that is learned, or should be."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.log_scale = net(), nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.exp(-self.log_scale) * F.cross_entropy(self.net(x), y) + self.log_scale


def scale_forgotten() -> None:
    model = Weighted()
    train(model, model.net.parameters(), loss_of=lambda m, x, y: m(x, y))


VALIDATED: list[tuple[str, Callable[[], None]]] = [
    ("train", lambda: with_validation(Dropped("default"))),
    ("train", lambda: with_validation(Dropped("default two"))),
    ("train", lambda: with_validation(Dropped("default"), grad=True)),
    ("train", lambda: with_validation(Dropped("mode"), switch=False)),
    ("train", lambda: with_validation(Dropped("mode by name"), switch=False)),
    ("train", lambda: with_validation(Normed(), switch=False)),
    ("eval", lambda: with_validation(Dropped("mode"))),
    ("eval", lambda: with_validation(Dropped("mode by name"))),
    ("eval", lambda: with_validation(Normed())),
    ("unclear", lambda: with_validation(Dropped("rate zero"))),
    ("unclear", lambda: with_validation(Dropped("said"))),
    ("unclear", lambda: with_validation(Dropped("none"))),
    ("unclear", lambda: with_validation(Dropped("default"), again=8)),
]
TRAINED: list[tuple[str, Callable[[], None]]] = [
    ("eval", lambda: trained_in_eval(Dropped("mode"))),
    ("eval", lambda: trained_in_eval(Dropped("mode by name"))),
    ("eval", lambda: trained_in_eval(Normed())),
    ("train", lambda: with_validation(Dropped("mode"))),
    ("train", lambda: trained_in_eval(Dropped("default"))),
    ("unclear", lambda: trained_in_eval(Dropped("none"))),
]
COVERED: list[tuple[str, Callable[[], None]]] = [
    ("complete", partial(teacher, "without grad")),
    ("complete", partial(teacher, "detached")),
    ("complete", partial(teacher, "in the graph")),
    ("complete", teacher_inside),
    ("complete", averaged),
    ("missing", partial(head_forgotten, False)),
    ("missing", partial(head_forgotten, True)),
    ("missing", body_forgotten),
    ("missing", scale_forgotten),
]


# --- frozen layers in the optimiser


def inverted_filter() -> None:
    model = net()
    for p in model[0].parameters():
        p.requires_grad = False
    held = filter(lambda p: not p.requires_grad, model.parameters())
    train(model, held)


def frozen_after_the_optimiser_was_made() -> None:
    body, head = net(), nn.Linear(3, 3)
    model = nn.Sequential(body, head)
    optimizer = torch.optim.Adam(body.parameters(), lr=1e-3)
    body.requires_grad_(False)
    for x, y in loader():
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def head_only() -> None:
    model = net()
    model[0].requires_grad_(False)
    train(model)


def unfrozen_later() -> None:
    model = net()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    for step, (x, y) in enumerate(loader()):
        model[0].requires_grad_(step > 4)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def switched_off_in_turn() -> None:
    maker, judge = nn.Linear(4, 6), nn.Linear(6, 1)
    makes = torch.optim.Adam(maker.parameters(), lr=1e-3)
    judges = torch.optim.Adam(judge.parameters(), lr=1e-3)
    for x, _ in loader():
        judge.requires_grad_(True)
        judges.zero_grad()
        (judge(maker(torch.randn(12, 4)).detach()).mean() - judge(x).mean()).backward()
        judge.requires_grad_(False)
        judges.step()
        makes.zero_grad()
        (-judge(maker(torch.randn(12, 4))).mean()).backward()
        makes.step()


FROZEN: list[tuple[str, Callable[[], None]]] = [
    ("nothing", inverted_filter),
    ("nothing", frozen_after_the_optimiser_was_made),
    ("something", head_only),
    ("something", unfrozen_later),
    ("something", switched_off_in_turn),
    ("unclear", lambda: None),
]


# --- spectral normalisation


def critic(new: bool = False) -> nn.Sequential:
    put = nn.utils.parametrizations.spectral_norm if new else nn.utils.spectral_norm
    return nn.Sequential(put(nn.Linear(6, 32)), nn.ReLU(), put(nn.Linear(32, 3)))


def critic_in_eval(new: bool = False, how: str = "train") -> None:
    model = critic(new)
    if new:
        with torch.no_grad():
            for name, held in model.named_parameters():
                if name.endswith("original"):
                    held.normal_(0, 2.0)
    if how == "sanity check":
        model.eval()
        with torch.no_grad():
            model(blobs()[0])
        model.train()
    elif how == "loaded":
        old = critic(new)
        for _ in range(30):
            old(blobs()[0])
        model.load_state_dict(old.state_dict())
        model.eval()
    elif how == "train":
        model.eval()
    if how == "fixed judge":
        model.eval().requires_grad_(False)
        maker = nn.Linear(6, 6)
        train(maker, loss_of=lambda m, x, y: F.cross_entropy(model(m(x)), y))
    else:
        train(model)


SPECTRAL: list[tuple[str, Callable[[], None]]] = [
    ("never", critic_in_eval),
    ("never", partial(critic_in_eval, new=True)),
    ("never", partial(critic_in_eval, how="fixed judge")),
    ("estimated", partial(critic_in_eval, how="in training")),
    ("estimated", partial(critic_in_eval, new=True, how="in training")),
    ("estimated", partial(critic_in_eval, how="sanity check")),
    ("estimated", partial(critic_in_eval, how="loaded")),
    ("unclear", lambda: train(net())),
]


# --- results that nobody takes


class Attention(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.mix, self.out = nn.Linear(6, 18), nn.Linear(6, 3)
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(0)
        q, k, v = self.mix(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        if self.how == "causal dropped":
            scores.masked_fill(later, -1e9)
        elif self.how == "some dropped":
            scores.masked_fill(scores < -5, -1e9)
        elif self.how == "in place":
            scores.masked_fill_(later, -1e9)
        elif self.how == "limit dropped":
            scores.clamp(-50, 50)
        elif self.how == "limit by name dropped":
            scores.clip(min=-50)
        else:
            scores = scores.masked_fill(later, -1e9)
        return self.out(scores.softmax(-1) @ v).squeeze(0)


def filled_in(how: str) -> None:
    """Some words of each sentence are to be guessed."""
    model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(12):
        ids = torch.randint(2, 20, (16, 10))
        hide = torch.rand(ids.shape) < 0.2
        shown, labels = ids.clone(), ids.masked_fill(~hide, -100)
        if how == "assigned":
            shown = shown.masked_fill(hide, 1)
        elif how == "in place":
            shown.masked_fill_(hide, 1)
        elif how == "labels":
            shown[hide], labels = 1, ids
            labels.masked_fill(~hide, -100)
        else:
            shown.masked_fill(hide, 1)
        optimizer.zero_grad()
        if how == "ignored":
            F.cross_entropy(model(shown).transpose(1, 2), labels).backward()
        elif how in ("labels", "others"):  # all words are asked for, or those that were never to be hidden
            wanted = labels if how == "labels" else ids.masked_fill(hide, -100)
            F.cross_entropy(model(shown).transpose(1, 2), wanted).backward()
        else:
            F.cross_entropy(model(shown)[hide], ids[hide]).backward()
        optimizer.step()


DROPPED: list[tuple[str, Callable[[], None], str]] = [
    ("causal_mask", lambda: train(Attention("causal dropped")), "scores.masked_fill(later, -1e9)"),
    ("mask", lambda: train(Attention("some dropped")), "scores.masked_fill(scores < -5, -1e9)"),
    ("limit", lambda: train(Attention("limit dropped")), "scores.clamp(-50, 50)"),
    ("limit", lambda: train(Attention("limit by name dropped")), "scores.clip(min=-50)"),
    ("cover", partial(filled_in, "gathered"), "shown.masked_fill(hide, 1)"),
    ("cover", partial(filled_in, "ignored"), "shown.masked_fill(hide, 1)"),
    ("mask", partial(filled_in, "labels"), "labels.masked_fill(~hide, -100)"),
    ("mask", partial(filled_in, "others"), "shown.masked_fill(hide, 1)"),
    ("none", partial(filled_in, "assigned"), ""),
    ("none", partial(filled_in, "in place"), ""),
    ("none", lambda: train(Attention("in place")), ""),
    ("none", lambda: train(Attention("assigned")), ""),
    ("unclear", lambda: None, ""),
]


# --- how far steps go


def regress(
    optimizer: Any,
    *,
    scale: float = 1.0,
    reduction: str = "mean",
    steps: int = 150,
    clip: float = 0.0,
    depth: int = 1,
    schedule: Any = None,
    activation: type[nn.Module] = nn.ReLU,
) -> None:
    x = scale * (torch.randn(256, 6) + (scale > 1))
    y = torch.sin(x / scale).sum(1, keepdim=True) + 3
    middle: list[nn.Module] = []
    for _ in range(depth):
        middle += [nn.Linear(32, 32), activation()]
    model = nn.Sequential(nn.Linear(6, 32), activation(), *middle, nn.Linear(32, 1))
    made = optimizer(model.parameters())
    scheduler = schedule(made) if schedule is not None else None
    for step in range(steps):
        rows = torch.arange(step * 32, step * 32 + 32) % 256
        loss = F.mse_loss(model(x[rows]), y[rows], reduction=reduction)
        made.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        made.step()
        if scheduler is not None:
            scheduler.step()


def sgd(rate: float, momentum: float = 0.0) -> Any:
    return lambda parameters: torch.optim.SGD(parameters, lr=rate, momentum=momentum)


def adam(rate: float) -> Any:
    return lambda parameters: torch.optim.Adam(parameters, lr=rate)


def rising(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) / 1e6)


THROWN: list[tuple[str, Callable[[], None]]] = [
    ("by_raw_inputs", lambda: regress(sgd(0.01), scale=300.0)),
    ("by_raw_inputs", lambda: regress(sgd(1e-3, 0.9), scale=2000.0)),
    ("by_summed_loss", lambda: regress(sgd(0.05), reduction="sum")),
    ("by_summed_loss", lambda: regress(sgd(0.02, 0.9), reduction="sum")),
    ("by_rate", lambda: regress(sgd(30.0))),
    ("by_rate", lambda: regress(adam(3.0))),
    ("kept", lambda: regress(adam(1e-3), scale=300.0)),
    ("kept", lambda: regress(sgd(1e-3), reduction="sum")),
    ("kept", lambda: regress(adam(1e-2), reduction="sum")),
    ("kept", lambda: regress(sgd(0.02))),
    ("kept", lambda: regress(adam(0.05))),
    ("unclear", lambda: regress(adam(3.0), steps=4)),
    ("unclear", lambda: None),
]
TRAVELLED: list[tuple[str, Callable[[], None]]] = [
    ("nowhere", lambda: regress(adam(1e-8), steps=200)),
    ("nowhere", lambda: regress(sgd(1e-7), steps=200)),
    ("somewhere", lambda: regress(adam(1e-4), steps=200)),
    ("somewhere", lambda: regress(sgd(1e-2), steps=200)),
    ("unclear", lambda: regress(adam(1e-2), steps=200, schedule=rising)),
    ("unclear", lambda: regress(sgd(1e-3), steps=200, clip=1e-4)),
    ("unclear", lambda: regress(adam(1e-8), steps=50)),
]
CLIPPED: list[tuple[str, Callable[[], None]]] = [
    ("sets_the_step", lambda: regress(sgd(0.05), clip=1e-3)),
    ("sets_the_step", lambda: regress(sgd(0.05, 0.9), clip=1e-2)),
    ("trims", lambda: regress(sgd(0.05), clip=1.0)),
    ("trims", lambda: regress(sgd(0.05), clip=float("inf"))),
    ("trims", lambda: regress(sgd(0.05))),
    ("unclear", lambda: regress(adam(1e-3), clip=1e-3)),
    ("sets_the_step", lambda: regress(adam(1e-3), clip=1e-9)),  # below what Adam adds to the size
    ("unclear", lambda: regress(sgd(0.05), clip=1e-3, steps=8)),
]
DEPTHS: list[tuple[str, Callable[[], None]]] = [
    ("first_stand_still", lambda: regress(sgd(0.1), depth=8, activation=nn.Sigmoid, steps=30)),
    ("first_stand_still", lambda: regress(sgd(0.05, 0.9), depth=10, activation=nn.Sigmoid, steps=30)),
    ("alike", lambda: regress(adam(1e-3), depth=8, activation=nn.Sigmoid, steps=30)),
    ("alike", lambda: regress(sgd(0.01), depth=6, steps=30)),
    ("alike", lambda: regress(adam(1e-3), depth=6, steps=30)),
    ("unclear", lambda: regress(sgd(0.01), steps=30)),
]
