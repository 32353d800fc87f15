"""Graphs that are joined into one batch: node numbers in the edges must be raised."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from loops_data import answer
from torch import Tensor
from torch.utils.data import DataLoader

from clew.observe.hooks import tensors_in
from clew.observe.watches.graph_edges import GraphEdges

Graph = tuple[Tensor, Tensor, int]


def graphs(count: int = 48, edges: int = 14) -> list[Graph]:
    draw = torch.Generator().manual_seed(3)
    sizes = torch.randint(5, 12, (count,), generator=draw).tolist()
    return [(torch.rand(n, 3), torch.randint(0, n, (edges, 2), generator=draw), n % 2) for n in sizes]


def joined(items: list[Graph], raised: bool, turned: bool = False) -> list[Tensor]:
    offset, edges = 0, []
    for x, e, _ in items:
        edges.append(e + offset if raised else e)
        offset += len(x)
    pairs = torch.cat(edges)
    owner = torch.cat([torch.full((len(x),), k) for k, (x, _, _) in enumerate(items)])
    labels = torch.tensor([y for *_, y in items])
    return [torch.cat([x for x, _, _ in items]), pairs.t() if turned else pairs, owner, labels]


def with_counts(items: list[Graph]) -> list[Tensor]:
    """The model may raise the numbers itself: it is told how many edges each graph has."""
    return [*joined(items, raised=False), torch.tensor([len(e) for _, e, _ in items])]


def one_set(items: list[Graph]) -> list[Tensor]:
    """The same edges are meant for all graphs."""
    held = joined(items, raised=True)
    return [
        held[0],
        torch.tensor([[i, (i + 1) % 5] for i in range(5)] + [[i, (i + 2) % 5] for i in range(5)]),
        *held[2:],
    ]


def across(items: list[Graph]) -> list[Tensor]:
    held = joined(items, raised=True)
    last = len(held[0]) - 1
    return [held[0], torch.cat([held[1], torch.tensor([[0, last]])]), *held[2:]]


class Carrier:
    """A class of the user's own that does nothing but hold."""

    def __init__(self, held: list[Tensor]) -> None:
        self.x, self.edges, self.owner, self.y = held


@dataclass(slots=True)
class Record:
    x: Tensor
    edges: Tensor
    owner: Tensor
    y: Tensor


def spaced(held: list[Tensor]) -> SimpleNamespace:
    return SimpleNamespace(**dict(zip(("x", "edges", "owner", "y"), held, strict=True)), n_graphs=8)


WAYS: dict[str, tuple[Any, str]] = {
    "raised": (lambda items: joined(items, raised=True), "own_graph"),
    "as they were": (lambda items: joined(items, raised=False), "first_graphs"),
    "as they were, two rows": (lambda items: joined(items, raised=False, turned=True), "first_graphs"),
    "as they were, in a namespace": (lambda items: spaced(joined(items, raised=False)), "first_graphs"),
    "raised, in a namespace": (lambda items: spaced(joined(items, raised=True)), "own_graph"),
    "as they were, in a class": (lambda items: Carrier(joined(items, raised=False)), "first_graphs"),
    "as they were, in a data class": (lambda items: Record(*joined(items, raised=False)), "first_graphs"),
    "counts given": (with_counts, "unclear"),
    "one set for all": (one_set, "unclear"),
    "across": (across, "unclear"),
    "no edges": (lambda items: joined(items, raised=True)[::2], "unclear"),
}


@pytest.mark.parametrize("way", WAYS)
def test_edges_must_stay_within_their_graph(tmp_path: Any, way: str) -> None:
    collate, outcome = WAYS[way]
    held: Any = graphs()

    def loop() -> None:
        for _ in DataLoader(held, 8, shuffle=True, collate_fn=collate):
            pass

    told = answer(tmp_path, GraphEdges, loop)
    assert told["outcome"] == outcome, told


def test_what_can_be_called_and_what_libraries_made_carry_nothing() -> None:
    """A network that is handed to another one is no batch, nor is a distribution that a policy answers with."""
    weight = torch.nn.Linear(2, 2)
    assert list(tensors_in((weight, torch.distributions.Normal(torch.zeros(3), torch.ones(3)), 3, "a"), torch)) == []
    inner = SimpleNamespace(a=torch.ones(1), items=4)
    assert len(list(tensors_in([SimpleNamespace(b=[inner], c=torch.zeros(2))], torch))) == 2


def test_the_line_that_joins_the_edges_is_named(tmp_path: Any) -> None:
    def collate(items: list[Graph]) -> list[Tensor]:
        edges = []
        for _, e, _ in items:
            edges.append(e)
        held = joined(items, raised=False)
        held[1] = torch.cat(edges)
        return held

    given: Any = graphs()
    told = answer(tmp_path, GraphEdges, lambda: list(DataLoader(given, 8, collate_fn=collate)))
    assert told["outcome"] == "first_graphs"
    assert told["where"][0]["line"] == collate.__code__.co_firstlineno + 3
