"""Subjects for the exams of the network: sound ones of many kinds, and one that is held like a captured step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from clew.exams.exam import find_exam
from clew.exams.sit import Sat, clue_of, sit
from clew.exams.subject import Seen, Subject
from clew.knowledge.base import load
from clew.records.clue import Reading, Saw, Unclear
from clew.records.place import Place

Pairs = list[tuple[torch.Tensor, torch.Tensor]]


def ask(exam: str, subject: Subject) -> Sat:
    torch.set_num_threads(1)
    return sit(find_exam(exam), subject)


def outcome(exam: str, subject: Subject) -> str:
    """The outcome as the knowledge base names it, or "unclear"."""
    return clue_of(load(), ask(exam, subject)).outcome


def why(exam: str, subject: Subject) -> str:
    answer = ask(exam, subject).answer
    assert isinstance(answer, Unclear), answer
    return answer.why


def figures(exam: str, subject: Subject) -> dict[str, Any]:
    answer = ask(exam, subject).answer
    assert isinstance(answer, Reading | Saw), answer
    return dict(answer.measured)


def places(exam: str, subject: Subject) -> tuple[Place, ...]:
    answer = ask(exam, subject).answer
    assert isinstance(answer, Reading | Saw), answer
    return answer.where


def classes(rows: int = 32, features: int = 20, kinds: int = 10, batches: int = 4) -> Pairs:
    source = torch.Generator().manual_seed(0)
    weights = torch.randn(features, kinds, generator=source)
    inputs = [torch.randn(rows, features, generator=source) for _ in range(batches)]
    return [(values, (values @ weights).argmax(1)) for values in inputs]


def pictures(rows: int = 32) -> Pairs:
    return [(values.reshape(rows, 1, 16, 16), labels) for values, labels in classes(rows, 256)]


def values(rows: int = 32, column: bool = True) -> Pairs:
    made = [(inputs, inputs[:, 0] * 2 + inputs[:, 1] ** 2) for inputs, _ in classes(rows, 8)]
    return [(inputs, wanted[:, None] if column else wanted) for inputs, wanted in made]


def tokens(rows: int = 8, length: int = 16) -> Pairs:
    source = torch.Generator().manual_seed(0)
    made = [torch.randint(50, (rows, length + 1), generator=source) for _ in range(4)]
    return [(held[:, :-1], held[:, 1:]) for held in made]


def token_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def perceptron(hidden: int = 64) -> nn.Module:
    return seeded(
        lambda: nn.Sequential(
            nn.Linear(20, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)
        )
    )


class Convolutions(nn.Module):
    """With batch norm, dropout, and rectifiers that are no modules."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.second, self.drop, self.last = nn.Conv2d(16, 32, 3, padding=1), nn.Dropout(0.5), nn.Linear(32 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        x = F.max_pool2d(F.relu(self.second(x)), 2)
        out: torch.Tensor = self.last(self.drop(x.flatten(1)))
        return out


class Transformer(nn.Module):
    def __init__(self, causal: bool = True) -> None:
        super().__init__()
        self.causal = causal
        self.table, self.positions = nn.Embedding(50, 32), nn.Embedding(64, 32)
        self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(2)])
        self.head = nn.Linear(32, 50)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        h = self.table(x) + self.positions(torch.arange(length, device=x.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=x.device) if self.causal else None
        for block in self.blocks:
            h = block(h, src_mask=mask)
        out: torch.Tensor = self.head(h)
        return out


class Recurrent(nn.Module):
    """Over (batch, time, 5), or over (time, batch, 5)."""

    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.cells, self.head = nn.LSTM(5, 16, 2, batch_first=batch_first), nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, _ = self.cells(x)
        out: torch.Tensor = self.head(h[:, -1] if self.batch_first else h[-1])
        return out


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.mean, self.spread = nn.Linear(20, 32), nn.Linear(32, 4), nn.Linear(32, 4)
        self.decode = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 20))

    def forward(self, x: torch.Tensor) -> Any:
        h = torch.relu(self.encode(x))
        mean, spread = self.mean(h), self.spread(h)
        return self.decode(mean + torch.randn_like(mean) * (spread / 2).exp()), mean, spread, x


def variational_loss(output: Any, _: Any) -> torch.Tensor:
    made, mean, spread, given = output
    loss: torch.Tensor = F.mse_loss(made, given) - 0.5 * (1 + spread - mean**2 - spread.exp()).mean()
    return loss


def sound() -> Iterator[tuple[str, Subject]]:
    """Untrained and sound, of every kind of input and target."""
    cells = seeded(Recurrent)
    yield "classifier", Subject(perceptron(), F.cross_entropy, classes())
    yield "pictures", Subject(seeded(Convolutions), F.cross_entropy, pictures())
    yield "tokens", Subject(seeded(Transformer), token_loss, tokens())
    sequences = [(given.reshape(8, 4, 5), given[:, :1]) for given, _ in classes(8)]
    yield "sequences", Subject(cells, F.mse_loss, sequences)
    turned = [(given.transpose(0, 1), wanted) for given, wanted in sequences]
    yield "time first", Subject(seeded(lambda: Recurrent(False)), F.mse_loss, turned)
    yield "regression", Subject(seeded(_regression), F.mse_loss, values())
    yield "autoencoder", Subject(seeded(_bottle), F.mse_loss, [(given, given) for given, _ in classes()])
    yield "no target", Subject(seeded(Variational), variational_loss, [given for given, _ in classes()])
    yield "one layer", Subject(seeded(lambda: nn.Linear(20, 10)), F.cross_entropy, classes(8))
    rare = [(given, (given[:, 0] > 2).long()) for given, _ in classes()]
    yield "imbalanced", Subject(perceptron(), F.cross_entropy, rare)


def _regression() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))


def _bottle() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 20))


class Flat(nn.Module):
    """Parameters without parts, as a captured step has them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        for name, parameter in model.named_parameters():
            self.register_parameter(name.replace(".", "_"), nn.Parameter(parameter.detach().clone()))


class Taped(Subject):
    """A perceptron replayed as a list of operations. `rows` writes the size of the batch into it."""

    def __init__(self, batches: Pairs, rows: int = 0, mixes: bool = False, **settings: Any) -> None:
        super().__init__(Flat(perceptron()), F.cross_entropy, batches, **settings)
        self.rows, self.mixes = rows, mixes

    def call(self, model: nn.Module, inputs: Any) -> Any:
        return self.walk(model, inputs)[0]

    def walk(self, model: nn.Module, inputs: Any) -> tuple[Any, list[Seen]]:
        held = dict(model.named_parameters())
        seen: list[Seen] = []
        x = inputs.view(self.rows, 20) if self.rows else inputs
        x = x.t().reshape(x.shape) if self.mixes else x
        for line, number in enumerate((0, 2, 4)):
            x = F.linear(x, held[f"{number}_weight"], held[f"{number}_bias"])
            seen.append(Seen(f"layer{number}", "linear", x, Place(file="train.py", line=10 + line)))
            if number < 4:
                x = F.relu(x)
                seen.append(Seen("", "relu", x, Place(file="train.py", line=10 + line)))
        return x, seen
