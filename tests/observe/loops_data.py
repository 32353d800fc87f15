"""Small data sets and loops for the watches of the data."""

import linecache
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, TensorDataset

from clew.case.weigh import on_scale
from clew.knowledge import load
from clew.observe import files
from clew.observe.hooks import watching
from clew.observe.ledger import LEDGER
from clew.observe.watch import Watch

KNOWN = load()


def answer(folder: Any, watch: type[Watch], loop: Callable[[], Any], sample: str = "auto") -> dict[str, Any]:
    """What one watch says about a loop, with the outcome that the knowledge base makes of it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    LEDGER.clear()
    files.forget()
    try:
        with watching(folder, [watch], sample) as recorder:
            loop()
        assert not recorder.broken, recorder.broken
        (told,) = recorder.answers()
        assert recorder.answers() == [told], "asking twice must not change the answer"
    finally:
        torch.set_num_threads(threads)
        LEDGER.clear()
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
    """The source lines that an answer points at."""
    places = [place for place in told["where"] if "line" in place]
    return [linecache.getline(os.path.abspath(place["file"]), place["line"]).strip() for place in places]


def classes(examples: int = 256, features: int = 6, kinds: int = 4) -> tuple[Tensor, Tensor]:
    x = torch.randn(examples, features)
    return x, (x @ torch.randn(features, kinds)).argmax(1)


def loader(x: Tensor, y: Tensor, size: int = 16, **options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(x, y), batch_size=size, **{"shuffle": True, **options})


def mlp(features: int = 6, kinds: int = 4) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, kinds))


def unchanged(x: Tensor) -> Tensor:
    return x


def fit(
    batches: Iterable[Any],
    model: nn.Module | None = None,
    epochs: int = 2,
    change: Callable[[Tensor], Tensor] = unchanged,
    optimizer: torch.optim.Optimizer | None = None,
) -> nn.Module:
    """A plain training loop over class labels."""
    model = model or mlp()
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for x, y in batches:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(change(x)), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return model


def score(model: nn.Module, batches: Iterable[Any], change: Callable[[Tensor], Tensor] = unchanged) -> int:
    """A plain evaluation: its lines do not say on which data."""
    model.eval()
    with torch.no_grad():
        return sum(int((model(change(x)).argmax(1) == y).sum()) for x, y in batches)


def by_slices(x: Tensor, y: Tensor, size: int = 16) -> list[tuple[Tensor, Tensor]]:
    """Batches without a loader."""
    return [(x[start : start + size], y[start : start + size]) for start in range(0, len(x), size)]


class Grouped(Sampler[list[int]]):
    """Batches of a few classes, several examples of each in a row, as metric learning wants them."""

    def __init__(self, labels: Tensor, kinds: int, each: int, batches: int) -> None:
        self.labels, self.kinds, self.each, self.batches = labels, kinds, each, batches

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(self.batches):
            chosen = torch.randperm(int(self.labels.max()) + 1)[: self.kinds].tolist()
            rows = [torch.nonzero(self.labels == kind)[:, 0] for kind in chosen]
            yield [int(i) for held in rows for i in held[torch.randperm(len(held))[: self.each]].tolist()]

    def __len__(self) -> int:
        return self.batches


class Items(Dataset[Any]):
    """A data set by a function of the index."""

    def __init__(self, count: int, item: Callable[[int], Any]) -> None:
        self.count, self.item = count, item

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.item(index)


class Stream(IterableDataset[Any]):
    """Every worker yields every example."""

    def __init__(self, rows: Sequence[Any]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)
