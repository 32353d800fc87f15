"""Do the edges of graphs that were joined into one batch stay within their graphs?

Small graphs become one large one by putting their nodes behind one another. The numbers of the nodes in the edges must
then be raised by the number of nodes before. A batch is read as such when it holds a value per node, the number of the
graph of each node, pairs of node numbers, and a value per graph.

Why it matters: edges that keep their numbers all run between nodes of the first graphs; the other graphs have none.
Cannot tell: batches that are put together outside the loader, and edges that are made inside the model.
Silent when: something in the batch says which edges belong to which graph, so that the model may raise the numbers; one
set of edges is meant for all graphs, so that no edge occurs twice.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import torch

from clew.observe.hooks import tensors_in
from clew.observe.watch import Answer, Batch, Saw, Watch
from clew.observe.watches._data_source import put_together
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

BATCHES = 8
GRAPHS, VALUES = 4, 2_000_000
TWICE = 0.05  # share of the edges
JOINS = re.compile(r"edge\w*.*(\.append\(|\.extend\(|\+=|\bcat\(|\bstack\(|\bconcatenate\()", re.IGNORECASE)


class Joined(NamedTuple):
    graphs: int
    nodes: int
    largest: int  # nodes of the largest graph
    edges: int
    highest: int  # number of a node in an edge
    across: int  # edges between two graphs
    twice: float  # share of edges that occurred before
    place: Place | None

    @property
    def kept_numbers(self) -> bool:
        """Every number would do within the largest graph alone."""
        return self.highest < self.largest and self.edges >= self.graphs and self.twice >= TWICE


class GraphEdges(Watch):
    test = "graph_edges"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.joined: list[Joined] = []
        self.looked = 0

    def batch(self, event: Batch) -> None:
        if self.looked >= BATCHES:
            return
        self.looked += 1
        found = _joined(
            event.tensors or list(tensors_in(event.value, torch)), put_together(event.source, JOINS) or event.place
        )
        if found is not None:
            self.joined.append(found)

    def read(self) -> Answer:
        if not self.joined:
            return Unclear("no batch of several graphs with their edges was seen")
        kept = [held for held in self.joined if held.kept_numbers]
        if len(kept) == len(self.joined):
            first = kept[0]
            return (
                Saw("first_graphs", edges=first.edges, highest=first.highest, nodes=first.nodes, graphs=first.graphs)
                .at(first.place)
                .saying(
                    f"{first.graphs} graphs with {first.nodes} nodes are joined into a batch, but no edge "
                    f"names a node above {first.highest}: the node indices lack the offset, so all edges lie "
                    "in the first graph"
                )
            )
        if any(held.highest < held.largest for held in self.joined):
            return Unclear(
                "the edges name nodes of the first graphs only, once each: they may be shared by all graphs on purpose"
            )
        if any(held.across for held in self.joined):
            return Unclear("some edges connect different graphs, which may be intended")
        return Saw("own_graph", batches=len(self.joined))


def _joined(tensors: list[torch.Tensor], place: Place | None) -> Joined | None:
    held = [tensor for tensor in tensors if tensor.device.type == "cpu" and tensor.layout is torch.strided]
    whole = [tensor for tensor in held if not tensor.is_floating_point() and 0 < tensor.numel() <= VALUES]
    pairs = [tensor for tensor in whole if tensor.dim() == 2 and 2 in tensor.shape and tensor.dtype is torch.int64]
    for owner in (tensor for tensor in whole if _numbers_graphs(tensor)) if pairs else ():
        nodes, graphs = len(owner), int(owner[-1]) + 1
        others = [tensor for tensor in held if tensor is not owner and tensor.dim()]
        if not {nodes, graphs} <= {len(tensor) for tensor in others}:
            continue
        for pair in pairs:
            edges = pair if pair.shape[0] == 2 else pair.t()
            inside = int(edges.min()) >= 0 and int(edges.max()) < nodes
            if inside and not _told_apart(whole, owner, graphs, edges.shape[1]):
                return _read(owner, edges, graphs, place)
    return None


def _numbers_graphs(tensor: torch.Tensor) -> bool:
    """0, 0, 0, 1, 1, 2 and so on: no number left out, and not each once."""
    if tensor.dim() != 1 or tensor.dtype not in (torch.int64, torch.int32) or int(tensor[0]) != 0:
        return False
    steps = tensor[1:] - tensor[:-1]
    rising = bool(((steps == 0) | (steps == 1)).all())
    return rising and GRAPHS <= int(tensor[-1]) + 1 <= len(tensor) // 2


def _told_apart(whole: list[torch.Tensor], owner: torch.Tensor, graphs: int, edges: int) -> bool:
    """Whether a number per edge, counts per graph or where each graph begins would let a model raise the numbers."""
    for tensor in whole:
        if tensor is owner or tensor.dim() != 1:
            continue
        counts = len(tensor) == graphs and int(tensor.sum()) in (edges, len(owner))
        if len(tensor) == edges or counts or len(tensor) == graphs + 1 or _rises(tensor, graphs):
            return True
    return False


def _rises(tensor: torch.Tensor, graphs: int) -> bool:
    return len(tensor) == graphs and tensor.dtype is torch.int64 and bool((tensor[1:] > tensor[:-1]).all())


def _read(owner: torch.Tensor, edges: torch.Tensor, graphs: int, place: Place | None) -> Joined:
    first, second = edges.detach()
    different = len(torch.unique(first * len(owner) + second))
    return Joined(
        graphs,
        len(owner),
        int(torch.bincount(owner).max()),
        edges.shape[1],
        int(edges.max()),
        int((owner[first] != owner[second]).sum()),
        1 - different / edges.shape[1],
        place,
    )
