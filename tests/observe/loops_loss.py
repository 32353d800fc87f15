"""Small models and loops for the watches around the loss."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clew.observe.hooks import watching
from clew.observe.watch import Watch

Step = Callable[[nn.Module, Tensor, Tensor], Tensor]


def answer(folder: Any, watch: type[Watch], train: Callable[[], Any]) -> dict[str, Any]:
    """What one watch says about a loop."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        with watching(folder, [watch]) as recorder:
            train()
            assert not recorder.broken, recorder.broken
            (told,) = recorder.answers()
    finally:
        torch.set_num_threads(threads)
    assert told["test"] == watch.test
    return told


def lines(told: dict[str, Any]) -> list[str]:
    """The source lines an answer points at, as text."""
    import linecache
    import os

    places = [place for place in told["where"] if "line" in place]
    return [linecache.getline(os.path.abspath(place["file"]), place["line"]).strip() for place in places]


def classes(examples: int = 32, features: int = 6, kinds: int = 4) -> tuple[Tensor, Tensor]:
    x = torch.randn(examples, features)
    return x, (x @ torch.randn(features, kinds)).argmax(1)


def numbers(examples: int = 32, features: int = 6) -> tuple[Tensor, Tensor]:
    x = torch.randn(examples, features)
    return x, torch.sin(x).sum(1, keepdim=True)


def flat() -> tuple[Tensor, Tensor]:
    x, y = numbers()
    return x, y[:, 0]


def binary() -> tuple[Tensor, Tensor]:
    return torch.randn(32, 6), (torch.arange(32) % 2).float()[:, None]


def single(*after: nn.Module) -> nn.Module:
    return mlp(1, *after)


def mlp(outputs: int = 4, *after: nn.Module, features: int = 6) -> nn.Module:
    return nn.Sequential(nn.Linear(features, 16), nn.Tanh(), nn.Linear(16, outputs), *after)


def fit(
    step: Step,
    model: Callable[[], nn.Module] | None = None,
    data: Callable[[], tuple[Tensor, Tensor]] = classes,
    steps: int = 6,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    **options: Any,
) -> nn.Module:
    """A plain full-batch loop; `step` makes the loss, `model` and `data` are called to make theirs."""
    net = model() if model is not None else mlp()
    x, y = data()
    held = optimizer(net.parameters(), **{"lr": 0.1, **options})
    for _ in range(steps):
        held.zero_grad()
        loss = step(net, x, y)
        loss.backward()  # type: ignore[no-untyped-call]
        held.step()
    return net


def plain(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def gan(generator_loss: Callable[[Tensor], Tensor], steps: int = 6, critic_steps: int = 1) -> None:
    """Two players, two optimisers, gradients across both models."""
    generator, critic = mlp(2, features=3), mlp(1, features=2)
    trains_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    trains_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for number in range(steps):
        real, noise = torch.randn(16, 2) + 2, torch.randn(16, 3)
        trains_critic.zero_grad()
        fake = generator(noise)
        right = F.binary_cross_entropy_with_logits(critic(real), torch.ones(16, 1))
        wrong = F.binary_cross_entropy_with_logits(critic(fake.detach()), torch.zeros(16, 1))
        (right + wrong).backward()  # type: ignore[no-untyped-call]
        trains_critic.step()
        if number % critic_steps == critic_steps - 1:
            trains_generator.zero_grad()
            generator_loss(critic(fake)).backward()  # type: ignore[no-untyped-call]
            trains_generator.step()


class Tokens(nn.Module):
    """A tiny language model: every position names the next token."""

    def __init__(self, vocabulary: int = 12, width: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.recur = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        made: Tensor = self.head(self.recur(self.embed(ids))[0])
        return made


def padded(rows: int = 12, columns: int = 9, pad: int = 0, vocabulary: int = 12) -> Tensor:
    """Token rows of different lengths, filled up with `pad`."""
    ids = torch.randint(1, vocabulary, (rows, columns))
    for row in range(rows):
        ids[row, columns - row % (columns - 3) :] = pad
    return ids


class Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(6, 4)
        self.decode = nn.Linear(2, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encode(x).chunk(2, dim=1)
        drawn = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return torch.sigmoid(self.decode(drawn)), mean, log_variance


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    return -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
