"""Do two linear layers follow each other with no nonlinearity between?

On the first training steps, follows the graph from what a Linear or convolution module takes in down to what made it.
Reshaping, dropout and batch normalisation are passed by, since they bend nothing once training is over.

Why it matters: two affine maps in a row are one affine map, so the layer adds nothing but the look of depth.
Cannot tell: a deep linear network that is meant to be one.
Silent when: the pair is a factorisation (the middle narrower than both sides), the middle is used elsewhere too (a skip
connection, several heads), the two belong to different parts of the model (an encoder and its head), or a convolution
is grouped or one half of a separable kernel. Attention has a product between its projections.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn

from clew.observe.origins import USED
from clew.observe.watch import Answer, Backward, ModuleCall, Saw, Watch
from clew.observe.watches._loss_graph import MOVES, bare, inputs
from clew.observe.watches._network_graph import (
    AFFINE,
    CONVOLUTIONS,
    Calls,
    first_tensor,
    layer_name,
    number,
    way,
    whole_graph,
)
from clew.observe.watches._training_layers import DROPS, NORMALISES
from clew.observe.watches._where import in_sequence, module_at
from clew.records.clue import Unclear
from clew.records.place import Place

STEPS = 3
"""Training steps that are looked at: which layers follow each other seldom changes."""
PAIRS = 64
PASSED = (*DROPS, *NORMALISES, nn.Identity, nn.Flatten, nn.Unflatten)


class Layer(NamedTuple):
    """What is needed of a layer, without holding on to it."""

    name: tuple[int, str]
    mark: int
    takes: int
    gives: int
    grouped: bool
    kernel: tuple[int, ...]


class Pair(NamedTuple):
    """Two layers, by model and name, with the numbers of the nodes between them."""

    first: tuple[int, str]
    second: tuple[int, str]
    between: tuple[int, ...]
    places: tuple[Place, ...]


class LinearStack(Watch):
    test = "linear_stack"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.made = Calls()
        self.waiting: list[Pair] = []
        self.found: dict[tuple[tuple[int, str], tuple[int, str]], Pair] = {}
        self.layers = 0
        self.steps: set[int] = set()
        self.checked = 0

    def module(self, event: ModuleCall) -> None:
        if event.evaluation or (event.step not in self.steps and len(self.steps) >= STEPS):
            return
        self.steps.add(event.step)
        if event.step != self.made.step:
            self.waiting.clear()
        if not isinstance(event.module, AFFINE):
            # A module that hands its input on as it is made no node: what made the input is not its doing.
            if isinstance(event.module, PASSED) and number(event.output) != number(first_tensor(event.inputs)):
                self.made.note(event, None)
            return
        self.layers += 1
        got = first_tensor(event.inputs)
        if got is not None and got.grad_fn is not None and len(self.waiting) < PAIRS:
            self._follow(event, got.grad_fn)
        self.made.note(event, described(event))

    def _follow(self, event: ModuleCall, node: Any) -> None:
        nodes = list(way(node, lambda held: self.made.get(held) is None and self._passes(held)))
        first, second = self.made.get(nodes[-1]), described(event)
        if first is not None and siblings(first.name, second.name) and collapses(first, second):
            between = tuple(int(passed._sequence_nr()) for passed in nodes)
            self.waiting.append(Pair(first.name, second.name, between, self._lines(first.name, second.name)))

    def _lines(self, first: tuple[int, str], second: tuple[int, str]) -> tuple[Place, ...]:
        """What stands in a sequence is joined where it is made, other layers where they are called."""
        origins = self.recorder.origins
        made = [origins.made(module_at(self.recorder, layer)) for layer in (second, first)]
        here = self.recorder.place()
        used = here._replace(role=USED) if here is not None else None
        order = (*made, used) if in_sequence(self.recorder, second) else (used, *made)
        return tuple(dict.fromkeys(place for place in order if place is not None))

    def _passes(self, node: Any) -> bool:
        return self.made.has(node) or (bare(node) in MOVES and len(inputs(node)) == 1) or bare(node) == "NativeDropout"

    def before_backward(self, event: Backward) -> None:
        self.checked += 1
        if not self.waiting or event.loss.grad_fn is None:
            return
        nodes = whole_graph(event.loss.grad_fn)
        if nodes is None:
            return
        uses: dict[int, int] = {}
        for node in nodes:
            for fed in inputs(node):
                uses[int(fed._sequence_nr())] = uses.get(int(fed._sequence_nr()), 0) + 1
        rest = []
        for pair in self.waiting:
            counts = [uses.get(mark, 0) for mark in pair.between]
            if all(count == 1 for count in counts):
                self.found[pair.first, pair.second] = pair
            elif not any(counts):
                rest.append(pair)  # another loss may reach it
        self.waiting = rest

    def read(self) -> Answer:
        if not self.checked or not self.layers:
            return Unclear("no linear or convolution layer ran in training")
        if not self.found:
            return Saw("separated", layers=self.layers)
        pairs = list(self.found.values())
        names = [(layer_name(self.recorder, pair.first), layer_name(self.recorder, pair.second)) for pair in pairs]
        places = [(*pair.places, Place())[0]._replace(module=name[1]) for pair, name in zip(pairs, names, strict=True)]
        places += pairs[0].places[1:]
        text = (
            f"The output of {names[0][0]} goes into {names[0][1]} with no nonlinearity between, so both are one "
            "linear map."
        )
        return Saw("stacked", pairs=len(pairs)).at(*places[:5]).saying(text)


def described(event: ModuleCall) -> Layer:
    layer: Any = event.module
    kernel = tuple(layer.kernel_size) if isinstance(layer, CONVOLUTIONS) else ()
    takes, gives = (getattr(layer, f"{side}_channels" if kernel else f"{side}_features") for side in ("in", "out"))
    return Layer((event.model, event.name), id(layer), takes, gives, getattr(layer, "groups", 1) > 1, kernel)


def siblings(first: tuple[int, str], second: tuple[int, str]) -> bool:
    """Whether two layers stand side by side, or at the same place of two equal blocks.

    The end of an encoder and the head on top of it are two parts with an interface between, linear on purpose.
    """
    if first[0] != second[0]:
        return False
    (parent, _, last), (other_parent, _, other_last) = (name.rpartition(".") for _, name in (first, second))
    if parent == other_parent:
        return True
    kinds = [[word for word in name.split(".") if not word.isdigit()] for _, name in (first, second)]
    return kinds[0] == kinds[1] and last == other_last


def collapses(first: Layer, second: Layer) -> bool:
    """Whether the two are one map that a single layer of the same kind would do as well."""
    if first.mark == second.mark or first.grouped or second.grouped:
        return False  # depthwise and pointwise make up one cheap convolution
    for kernel in (first.kernel, second.kernel):
        if kernel and max(kernel) > 1 and min(kernel) < max(kernel):
            return False  # 1×n and n×1: a separable kernel
    return not first.gives < min(first.takes, second.gives)
