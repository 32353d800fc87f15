"""Small models and loops for the watches of the network."""

import linecache
import os
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clew.case.weigh import on_scale
from clew.knowledge import load
from clew.observe.hooks import watching
from clew.observe.watch import Watch

KNOWN = load()


def answer(folder: Any, watch: type[Watch], train: Callable[[], Any], sample: str = "auto") -> dict[str, Any]:
    """What one watch says about a loop, with the outcome that the knowledge base makes of it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        with watching(folder, [watch], sample) as recorder:
            kept = train()
            assert not recorder.broken, recorder.broken
            (told,) = recorder.answers()
            assert recorder.answers() == [told], "asking twice must not change the answer"
            del kept
    finally:
        torch.set_num_threads(threads)
    return judged(told)


def judged(told: dict[str, Any]) -> dict[str, Any]:
    test = KNOWN.tests[told["test"]]
    if "unclear" in told:
        return {**told, "outcome": "unclear"}
    if test.scale is not None and "outcome" not in told:
        told = {**told, "outcome": on_scale(test.scale, float(told["measured"][test.scale.of]))}
    assert test.outcome(told["outcome"]) is not None, told
    return told


def lines(told: dict[str, Any]) -> list[str]:
    """The source lines that an answer points at, a stretch of them joined."""
    found = []
    for place in told["where"]:
        if "line" in place:
            rows = range(place["line"], place.get("end_line", place["line"]) + 1)
            text = [linecache.getline(os.path.abspath(place["file"]), row).strip() for row in rows]
            found.append(" | ".join(text))
    return found


def classes(examples: int = 64, features: int = 8, kinds: int = 4) -> tuple[Tensor, Tensor]:
    x = torch.randn(examples, features)
    return x, (x @ torch.randn(features, kinds)).argmax(1)


def fit(
    model: nn.Module, steps: int = 12, rate: float = 0.05, data: tuple[Tensor, Tensor] | None = None, **options: Any
) -> nn.Module:
    """A plain loop: the model is returned so that it is still there when the watch is asked."""
    x, y = data or classes()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, **options)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model


def fit_loss(model: nn.Module, loss: Callable[[nn.Module], Tensor], steps: int = 12, rate: float = 0.05) -> nn.Module:
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model


class Layers(nn.Module):
    """Linear layers with any function between them, given as code would write it."""

    def __init__(self, between: Callable[[Tensor], Tensor], depth: int = 3, width: int = 16, inputs: int = 8) -> None:
        super().__init__()
        sizes = [inputs, *[width] * (depth - 1), 4]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        for layer in list(self.layers)[:-1]:
            x = self.between(layer(x))
        return self.layers[-1](x)  # type: ignore[no-any-return]


class Conv(nn.Module):
    """The small picture classifier of every tutorial: functions for everything without weights."""

    def __init__(self, act: Callable[[Tensor], Tensor] = F.relu) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.fc1 = nn.Linear(16 * 5 * 5, 32)
        self.fc2 = nn.Linear(32, 4)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.conv1(x))
        x = F.max_pool2d(self.act(self.conv2(x)), 2)
        x = F.dropout(torch.flatten(x, 1), 0.25, self.training)
        return self.fc2(self.act(self.fc1(x)))  # type: ignore[no-any-return]


def pictures(examples: int = 32) -> tuple[Tensor, Tensor]:
    return torch.randn(examples, 1, 14, 14), torch.randint(0, 4, (examples,))


class Attention(nn.Module):
    """One hand-written transformer block behind a projection, with a causal mask of minus infinities."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.project = nn.Linear(8, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.project(x)
        q, k, v = self.qkv(x).chunk(3, -1)
        hidden = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        scores = (q @ k.transpose(1, 2) / 4).masked_fill(hidden, float("-inf"))
        x = x + self.out(scores.softmax(-1) @ v)
        return self.head(F.layer_norm(x, (x.shape[-1],)).mean(1))  # type: ignore[no-any-return]


def sequences(examples: int = 16, length: int = 6) -> tuple[Tensor, Tensor]:
    return torch.randn(examples, length, 8), torch.randint(0, 4, (examples,))


def gan(steps: int = 10, output: nn.Module | None = None, gain: float = 1.0) -> list[nn.Module]:
    """Two models, two optimisers, gradients across."""
    generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 16), *([output] if output else []))
    critic = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    with torch.no_grad():
        generator[2].weight.mul_(gain)  # type: ignore[operator]
    first = torch.optim.Adam(generator.parameters(), lr=1e-3)
    second = torch.optim.Adam(critic.parameters(), lr=1e-3)
    real = torch.randn(32, 16)
    for _ in range(steps):
        made = generator(torch.randn(32, 4))
        second.zero_grad()
        (F.softplus(-critic(real)).mean() + F.softplus(critic(made.detach())).mean()).backward()  # type: ignore[no-untyped-call]
        second.step()
        first.zero_grad()
        F.softplus(-critic(made)).mean().backward()  # type: ignore[no-untyped-call]
        first.step()
    return [generator, critic]


def lbfgs(model: nn.Module, steps: int = 4) -> nn.Module:
    x, y = classes()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=3)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    for _ in range(steps):
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    return model


def accumulate(model: nn.Module, parts: int = 4, steps: int = 6) -> nn.Module:
    x, y = classes(64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True):
            (F.cross_entropy(model(a), b) / parts).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return model


def frozen(model: nn.Module, parameters: Iterable[Tensor]) -> nn.Module:
    for parameter in parameters:
        parameter.requires_grad = False
    return model


def sound_models() -> dict[str, Callable[[], Any]]:
    """Loops with nothing wrong: no watch may raise an alarm on any of them."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(20, 16)
            self.lstm = nn.LSTM(16, 16, batch_first=True)
            self.head = nn.Linear(16, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.lstm(self.embed(x))[0][:, -1])  # type: ignore[no-any-return]

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Linear(8, 32)
            self.a, self.b = nn.Linear(32, 32), nn.Linear(32, 32)
            self.head = nn.Linear(32, 4)
            nn.init.zeros_(self.b.weight)
            nn.init.zeros_(self.b.bias)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            x = x + self.b(F.relu(self.a(x)))
            return self.head(F.relu(x))  # type: ignore[no-any-return]

    def tokens() -> tuple[Tensor, Tensor]:
        return torch.randint(0, 20, (16, 7)), torch.randint(0, 4, (16,))

    def plain() -> nn.Sequential:
        return nn.Sequential(
            nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)
        )

    def headless() -> nn.Module:
        model = plain()
        nn.init.zeros_(model[-1].weight)  # type: ignore[arg-type]
        return model

    def normed() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))

    def double() -> Any:
        x, y = classes()
        return fit(plain().double(), data=(x.double(), y))

    def half() -> Any:
        x, y = classes()
        model = plain()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(12):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return model

    def checkpointed() -> Any:
        from torch.utils.checkpoint import checkpoint

        body, head = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32)), nn.Linear(32, 4)
        x, y = classes()

        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.body, self.head = body, head

            def forward(self, x: Tensor) -> Tensor:
                return self.head(F.relu(checkpoint(self.body, x, use_reentrant=False)))  # type: ignore[no-any-return]

        return fit(Model(), data=(x, y))

    return {
        "plain": lambda: fit(plain()),
        "tanh": lambda: fit(Layers(torch.tanh)),
        "convolutions": lambda: fit(Conv(), data=pictures()),
        "attention": lambda: fit(Attention(), data=sequences()),
        "recurrent": lambda: fit(Recurrent(), data=tokens()),
        "residual": lambda: fit(Residual()),
        "zero head": lambda: fit(headless()),
        "batch norm": lambda: fit(normed()),
        "gan": lambda: gan(output=nn.Tanh()),
        "lbfgs": lambda: lbfgs(plain()),
        "accumulation": lambda: accumulate(plain()),
        "frozen backbone": lambda: fit(frozen(model := plain(), model[0].parameters())),
        "float64": double,
        "autocast": half,
        "checkpointing": checkpointed,
    }


def stack() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))


def initialised(model: nn.Module, function: Callable[[Tensor], Any], *layers: nn.Module) -> nn.Module:
    with torch.no_grad():
        for layer in layers:
            function(layer.weight)  # type: ignore[arg-type]
    return model


class LowRank(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = frozen(nn.Linear(8, 32), []).requires_grad_(False)
        self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 32, bias=False)
        self.head = nn.Linear(32, 4)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.base(x) + self.up(self.down(x))))  # type: ignore[no-any-return]


class Modulated(nn.Module):
    """Modulation and output start at zero, as in diffusion transformers: only the output moves on the first step."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.shift, self.out = nn.Linear(8, 32), nn.Linear(8, 32), nn.Linear(32, 4)
        nn.init.zeros_(self.shift.weight)
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.stem(x)) * (1 + self.shift(x)))  # type: ignore[no-any-return]
