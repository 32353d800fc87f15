"""Is softmax taken over the classes, and the loss reduced over the right axes?

Every softmax that feeds a loss is followed to the loss call, and its sums over the class axis are taken there. A view
that cuts the channels of a convolution apart, and an argmax over the batch of what the loss saw, count as well. So does
a table of similarities between examples whose vectors were brought to length one along the examples, and a loss written
out by hand that picks one of several log-probabilities, or weighs them with one-hot labels, along another axis than the
one they were normalised over.

Why it matters: a softmax over the batch makes examples compete with each other instead of classes. Nothing raises, and
the loss still falls a little.
Cannot tell: axes of equal length in the wrong order, and a softmax inside the network, such as attention over queries.
Silent when: the softmax stays inside the network, or the scores form a square table as in contrastive losses.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.watch import Answer, Backward, FunctionCall, LossCall, Saw, Watch, when_sampled
from clew.observe.watches._loss_chosen import SOFTMAXES, Chosen, axis_of, chosen
from clew.observe.watches._loss_graph import LARGE, LINEAR, MOVES, NEAR, Made, bare, inputs, saved, shape, walk
from clew.observe.watches._loss_values import by_class, plain
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clew.records.place import Place

CLASS_LOSSES = frozenset(("cross_entropy", "nll_loss"))
OTHER_LOSSES = frozenset(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "kl_div"))
BELOW_LOG = MOVES | frozenset(("Clamp", "ClampMin", "ClampMax", "Add"))
"""What stands between a softmax and a logarithm taken by hand."""
IN_PLACE = frozenset("Log Clamp ClampMin ClampMax Add Clone ToCopy".split())
"""What changes values and leaves every axis where it is."""
WRONG = 0.02
TRIES = 8


class SoftmaxAxis(Watch):
    test = "softmax_axis"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.softmaxes = Made()
        self.looked = 0
        self.found: tuple[str, tuple[Place | None, ...], float] | None = None
        self.scores: weakref.ref[torch.Tensor] | None = None
        self.by_hand = 0
        self.tries = TRIES
        self.across: tuple[int, int, Place | None] | None = None  # vectors of unit length over the batch: step, rows

    def function(self, event: FunctionCall) -> None:
        if event.name in ("softmax", "log_softmax"):
            self.softmaxes.note(event.result, event.place)
        elif event.name == "normalize":
            self._lengths(event)
        elif event.name == "argmax" and self.found is None and self._over_batch(event):
            text = f"argmax runs over the {event.input.shape[0]} examples of the batch, not over the classes."
            self.found = (text, (event.place,), 0.0)

    def _lengths(self, event: FunctionCall) -> None:
        """Weights may be scaled by column, and so may features that are compared with each other; examples may not."""
        held = event.input
        over = event.options.get("dim", 1)
        if held.dim() == 2 and held.grad_fn is not None and over in (0, -2) and held.shape[0] != held.shape[1]:
            self.across = (event.step, held.shape[0], event.place)

    def _over_batch(self, event: FunctionCall) -> bool:
        held = self.scores() if self.scores is not None else None
        if held is None or held.dim() != 2 or event.input.shape != held.shape or held.shape[0] == held.shape[1]:
            return False
        same = event.input is held or (plain(held) and event.input.data_ptr() == held.data_ptr())
        return same and held.shape[0] > 1 and event.options.get("dim") in (0, -2)

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if not event.sampled or event.name not in CLASS_LOSSES | OTHER_LOSSES or not plain(event.input):
            return
        self.looked += 1
        if event.name == "cross_entropy":
            self.scores = weakref.ref(event.input)
        if self.found is not None or event.input.grad_fn is None:
            return
        if event.name in CLASS_LOSSES:
            self._scrambled(event)
            self._compared(event)
        # Where only part of the values was picked on the way, the sums say nothing, and the walk ends there.
        node = walk(event.input.grad_fn, MOVES)
        by_hand = bare(node) == "Log"
        node = walk(inputs(node)[0], BELOW_LOG) if by_hand else node
        if bare(node) == "Softmax" or (bare(node) == "LogSoftmax" and not by_hand):
            self._sums(event, node, by_hand)

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        if not event.sampled or self.found is not None or not self.tries or event.loss.grad_fn is None:
            return
        self.tries -= 1
        for node, axis in picked(event.loss.grad_fn):
            sizes, over = shape(node), _axis(node, len(shape(node) or ()))
            self.by_hand += 1
            # Along the first axis one example may be taken after the other.
            if sizes is not None and len(sizes) == 2 and (over, axis) == (0, 1) and 1 < sizes[0] != sizes[1] > 1:
                text = (
                    f"A softmax over axis 0 of {sizes} feeds the loss, which picks one of the {sizes[1]} "
                    "values along axis 1: it does not normalise over the classes."
                )
                self.found = (text, (self.softmaxes.get(node), event.place), 0.0)
                return
        for held in taken(event.loss.grad_fn):
            self.by_hand += 1
            if held.apart():
                text = (
                    f"A softmax over axis {held.over} of {held.sizes} feeds the loss, which picks one of the "
                    f"{held.sizes[held.along]} values along axis {held.along}: it does not normalise over the classes."
                )
                self.found = (text, (self.softmaxes.get(held.node), event.place), 0.0)
                return
        for node, classes in weighed(event.loss.grad_fn):
            over = _axis(node, len(shape(node) or ()))
            self.by_hand += 1
            if over is not None and over != classes:
                text = (
                    f"A softmax over axis {over} is multiplied by one-hot labels whose classes lie on axis "
                    f"{classes}: it does not normalise over the classes."
                )
                self.found = (text, (self.softmaxes.get(node), event.place), 0.0)
                return

    def _compared(self, event: LossCall) -> None:
        """Similarities of examples with examples, of vectors that were scaled along the examples."""
        if self.across is None or self.across[0] != event.step or self.found is not None:
            return
        _, rows, place = self.across
        if event.input.dim() == 2 and event.input.shape[0] == rows and event.input.shape[1] in (rows, rows - 1):
            text = f"normalize runs over the {rows} examples of the batch, and its result is used to compare examples."
            self.found = (text, (place, event.place), 0.0)

    def _sums(self, event: LossCall, node: Any, by_hand: bool) -> None:
        """A softmax feeds this loss: its values must sum to one over the classes."""
        seen = event.input
        if seen.dim() < 2 or seen.shape[0] == seen.shape[1]:
            return
        # Over one class alone a softmax is 1 whatever the scores are; over several its axis is wrong.
        if seen.shape[1] == 1 and shape(node) == tuple(seen.shape) and _axis(node, seen.dim()) == 1:
            self.found = (
                "A softmax runs over an axis of length 1 and returns 1 for every input.",
                self._at(event, node),
                1.0,
            )
            return
        if event.name in OTHER_LOSSES and (seen.dim() != 2 or _axis(node, 2) != 0 or shape(node) != tuple(seen.shape)):
            return
        logs = by_hand or bare(node) == "LogSoftmax"
        rows = by_class(seen)
        sums = (rows.exp() if logs else rows).sum(1)
        off = float((sums - 1).abs().mean())
        if math.isfinite(off) and off > WRONG:
            axis = _axis(node, len(shape(node) or ()))
            text = f"A softmax over axis {axis} feeds {event.name}; its values do not sum to 1 over the classes."
            self.found = (text, self._at(event, node), float(sums.mean()))

    def _at(self, event: LossCall, node: Any) -> tuple[Place | None, ...]:
        return self.softmaxes.get(node), event.place

    def _scrambled(self, event: LossCall) -> None:
        """A convolution's (batch, classes, positions) viewed as (rows, classes) without moving the classes last."""
        node: Any = event.input.grad_fn
        if bare(node) not in ("View", "UnsafeView", "ReshapeAlias") or event.input.dim() != 2:
            return
        fed = inputs(node)
        before = shape(fed[0]) if fed else None
        if before is None or bare(fed[0]) != "Convolution" or len(before) < 3 or math.prod(before[2:]) == 1:
            return
        if before[1] == event.input.shape[1] and event.input.shape[0] == math.prod(before) // before[1]:
            rows = tuple(event.input.shape)
            text = f"An output of shape {before} is viewed as {rows}: each row mixes classes and positions."
            self.found = (text, (event.place,), 0.0)

    def read(self) -> Answer:
        if self.found is not None:
            text, places, mean = self.found
            return Saw("wrong", sum_over_classes=mean).at(*places).saying(text)
        if not self.looked and not self.by_hand:
            return Unclear("no call of a loss function over classes was seen")
        return Saw("right", calls=self.looked + self.by_hand)


def picked(root: Any) -> Iterator[tuple[Any, int]]:
    """Softmaxes near the end of a graph of which one value for each example is taken, with the axis of the choice."""
    waiting: list[Any] = [root]
    for _ in range(NEAR):
        if not waiting:
            return
        node = waiting.pop()
        name = bare(node)
        if name in ("Select", "Gather", "Index"):
            axis = _axis(node, 2) if name != "Index" else 1
            below = walk(inputs(node)[0], MOVES) if inputs(node) else None
            if below is not None and bare(below) == "Log" and inputs(below):
                below = walk(inputs(below)[0], BELOW_LOG)
            if below is not None and bare(below) in SOFTMAXES and axis is not None:
                yield below, axis
        elif name in LINEAR:
            waiting += inputs(node)


def taken(root: Any) -> Iterator[Chosen]:
    """Choices by labels near the end of a graph, of softmaxes with more than two axes."""
    waiting: list[Any] = [root]
    for _ in range(NEAR):
        if not waiting:
            return
        node = waiting.pop()
        if bare(node) == "Gather":
            held = chosen(node)
            if held is not None:
                yield held
        elif bare(node) in LINEAR:
            waiting += inputs(node)


def weighed(root: Any) -> Iterator[tuple[Any, int]]:
    """Softmaxes near the end of a graph that are multiplied by one-hot labels, with the axis of the classes."""
    waiting: list[Any] = [root]
    for _ in range(NEAR):
        if not waiting:
            return
        node = waiting.pop()
        fed = inputs(node)
        if bare(node) == "Mul" and len(fed) == 1:
            below, labels = walk(fed[0], IN_PLACE), saved(node, "other")
            labels = saved(node, "self") if labels is None else labels
            classes = one_hot_axis(labels) if labels is not None and bare(below) in SOFTMAXES else None
            if classes is not None and labels is not None and shape(below) == tuple(labels.shape):
                yield below, classes
                continue
        if bare(node) in LINEAR:
            waiting += fed


def one_hot_axis(labels: torch.Tensor) -> int | None:
    """The one axis along which labels hold a single 1 and zeros; None where there is no such axis or several."""
    if labels.dim() < 2 or not 1 < labels.numel() <= LARGE:
        return None
    with torch.no_grad():
        if not bool(((labels == 0) | (labels == 1)).all()):
            return None
        axes = [axis for axis, size in enumerate(labels.shape) if size > 1 and bool((labels.sum(axis) == 1).all())]
    return axes[0] if len(axes) == 1 else None


def _axis(node: Any, dims: int) -> int | None:
    """The axis a softmax or a choice ran over, from 0."""
    return axis_of(getattr(node, "_saved_dim", None), dims)
