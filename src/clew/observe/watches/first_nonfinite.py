"""Where does the first NaN or infinity come from?

When a training loss is not finite, reads its graph in the order of execution for the first operation that had finite
inputs and a result that is not. When the loss is finite and gradients are not, the operation is one whose derivative is
infinite at a value it got, such as a square root at zero.

When loss and gradients are finite and the weights are not after the step, the update made it; so it did when the loss
had grown a millionfold before.

Why it matters: one bad value spreads through every later operation, and one step later to every weight.
Cannot tell: what drove the values there. Where the lines of the user's code could not be followed (a debugger is on, or
code is compiled) only the stretch between two calls is known. A step between samples is read on the CPU only, and for a
bad gradient only where the graph has roots, logarithms or divisions and there is time (a fiftieth of the run); of the
rest it is told which operation had come nearest to failing. With checkpointing nothing that was recomputed is read.
Silent when: a scaler skips the step, or infinities are masked out and the loss stays finite.
"""

from __future__ import annotations

import math
import time
import weakref
from typing import Any, NamedTuple

import torch

from clew.observe.watch import (
    Answer,
    Backward,
    Batch,
    FunctionCall,
    LossCall,
    ModuleCall,
    OptimizerEvent,
    Saw,
    Watch,
    when_sampled,
)
from clew.observe.watches._loss_graph import bare
from clew.observe.watches._network_graph import first_tensor, norms, number, readable, whole_graph
from clew.observe.watches._network_hazards import hazard, past_casts
from clew.observe.watches._network_lines import MOST
from clew.observe.watches._network_origin import STEEP, Origin, nearly_armed, origin
from clew.observe.watches._network_spans import Layout, Span, _extent
from clew.observe.watches._training_values import held_by, skips
from clew.records.clue import Unclear
from clew.records.place import Place

FAR = 100.0
"""A loss that has grown so much says that the weights were carried away, whatever came near to zero on the way."""
SHARE = 0.02
"""Of the time may go into reading graphs between samples."""
BLOWN_UP = 1e6
"""How far a loss must have grown for an overflow to be the end of a divergence and not the fault itself."""


class Found(NamedTuple):
    origin: Origin
    step: int
    places: tuple[Place | None, ...]
    says: str


class Owed(NamedTuple):
    """An operation whose line is still to be learned, from the next graph of the same size."""

    at: int  # relative to the first operation of its graph
    size: tuple[int, int]


class FirstNonfinite(Watch):
    test = "first_nonfinite"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.losses = 0
        self.found: Found | None = None
        self.lost = ""
        self.smallest, self.latest, self.first = math.inf, 0.0, math.nan
        self.layout = Layout()
        self.lines = recorder.lines
        self.owed: Owed | None = None
        self.step_place: Place | None = None
        self.odd: dict[int, set[int]] = {}  # by optimiser: tensors that were not finite to begin with, masks mostly
        self.may_be_steep = False
        self.spent = 0.0
        self.steep: tuple[int, Origin, tuple[Place | None, ...]] | None = None
        self.near: tuple[float, Found] | None = None  # what came nearest to failing
        self.batch_tensors: list[weakref.ref[torch.Tensor]] = []
        self.batch_place: Place | None = None

    @property
    def over(self) -> bool:
        return self.found is not None or bool(self.lost)

    # --- what happens where

    def batch(self, event: Batch) -> None:
        value = list(event.value.values()) if isinstance(event.value, dict) else event.value
        held = value if isinstance(value, list | tuple) else [value]
        self.batch_tensors = [weakref.ref(value) for value in held[:8] if isinstance(value, torch.Tensor)]
        self.batch_place = event.place

    def module(self, event: ModuleCall) -> None:
        if not event.evaluation and not self.over:
            taken = max((number(value) for value in event.inputs), default=-1)
            name = event.name or type(event.module).__name__
            made = number(first_tensor(event.output))
            self.layout.note(event.step, Span(taken, made, name, self.recorder.place()))

    def function(self, event: FunctionCall) -> None:
        if event.grad and not self.over:
            span = Span(number(event.input), number(event.result), event.name, event.place)
            self.layout.note(event.step, span)

    @when_sampled
    def loss(self, event: LossCall) -> None:
        """Between samples the value is read before backward, once."""
        if self.over or not event.grad or not isinstance(event.result, torch.Tensor):
            return
        bad = event.result.grad_fn is not None and self._is_bad(event.result, event.sampled)
        if bad or event.sampled:
            taken = max(number(event.input), number(event.target))
            self.layout.note(event.step, Span(taken, number(event.result), event.name, event.place))
        if bad:
            self._investigate(event.result, event.step, event.place)

    # --- when something is not finite

    def _is_bad(self, loss: torch.Tensor, sampled: bool) -> bool:
        """On the CPU a value costs nothing; elsewhere reading it would make the machine wait."""
        if loss.numel() != 1 or loss.is_meta or not (sampled or loss.is_cpu):
            return False
        value = loss.item()
        if math.isfinite(value):
            self.smallest, self.latest = min(self.smallest, abs(value)), abs(value)
            self.first = abs(value) if math.isnan(self.first) else self.first
            return False
        return True

    def before_backward(self, event: Backward) -> None:
        if self.owed is not None:
            self._pay(event)
        if self.over:
            return
        self.losses += 1
        if self._is_bad(event.loss, event.sampled):
            self._investigate(event.loss, event.step, event.place)
        elif event.sampled:
            nodes = self.recorder.followed.graph
            if nodes is not None:
                self.layout.keep(nodes)
                self.may_be_steep = self.may_be_steep or any(bare(node) in STEEP for node in nodes)
                self._read_slopes(event, nodes)
        elif self._has_time(event):
            began = time.monotonic()
            nodes = whole_graph(event.loss.grad_fn, MOST)
            if nodes is not None:
                self._read_slopes(event, nodes)
            self.spent += time.monotonic() - began

    def _read_slopes(self, event: Backward, nodes: list[Any]) -> None:
        steep = hazard(nodes)
        self.steep = (event.step, steep, self._places(steep.at, nodes, event.place)) if steep else None
        near = nearly_armed(nodes)
        if near is not None and (self.near is None or near[0] < self.near[0]):
            says = f"At step {event.step} {near[1].operation} got {near[0]:.1g}, nearly zero, and at a step after it "
            says += "gradients stopped being finite."
            self.near = (near[0], Found(near[1], event.step, self._places(near[1].at, nodes, event.place), says))

    def _has_time(self, event: Backward) -> bool:
        """Whether a graph between samples may be read for slopes that are infinite: after the step it is too late."""
        if event.sampled or not self.may_be_steep or event.loss.grad_fn is None or not event.loss.is_cpu:
            return False
        return self.spent <= SHARE * (time.monotonic() - self.recorder.started)

    def _places(self, at: int, nodes: list[Any], end: Place | None) -> tuple[Place | None, ...]:
        """The line that made an operation, with the module whose call it was part of."""
        around = self.layout.around(at, end)
        line = self.lines.at(at, nodes)
        if line is None:
            base, size = _extent(nodes)
            self.owed = Owed(at - base, size)
            self.recorder.followed.owed = True
            return around
        same = [place for place in around if place is not None and place.file == line.file and place.line == line.line]
        if same:
            return (line._replace(module=same[0].module),)
        within = [place for place in around if place is not None and place.end_line is None]
        return (line, *within)

    def _pay(self, event: Backward) -> None:
        """The line that was owed, from this graph: its values are of no use any more, its shape is."""
        if event.loss.grad_fn is None or self.owed is None:
            return
        nodes = whole_graph(event.loss.grad_fn, MOST)
        base, size = _extent(nodes) if nodes is not None else (0, (0, 0))
        if nodes is not None and size == self.owed.size:
            line = self.lines.at(base + self.owed.at, nodes)
            if line is not None and self.found is not None:
                kept = tuple(place for place in self.found.places if place is not None and place.end_line is None)
                self.found = self.found._replace(places=(line, *kept))
            self.owed = None if line is not None else self.owed
            self.recorder.followed.owed = self.owed is not None

    def _investigate(self, loss: torch.Tensor, step: int, place: Place | None) -> None:
        nodes = whole_graph(loss.grad_fn, MOST) if loss.grad_fn is not None else None
        if nodes is None:
            self.lost = f"the loss was not finite at step {step}, and its graph could not be followed"
            return
        weights = [node.variable for node in nodes if hasattr(node, "variable")]
        first = origin(nodes, loss.grad_fn)
        if not all_finite(weights) or (first and first.outcome == "weights"):
            self._from_weights(step)
        elif first is None:
            self.lost = f"the loss was not finite at step {step}, and no operation saved the values that would show why"
        else:
            first = past_casts(first, nodes)
            self.layout.match(nodes)
            self._settle(first, step, self._places(first.at, nodes, place))

    def _settle(self, first: Origin, step: int, places: tuple[Place | None, ...]) -> None:
        if first.outcome == "in_data":
            alive = [held for ref in self.batch_tensors if (held := ref()) is not None and readable(held)]
            if alive and all(bool(torch.isfinite(held).all()) for held in alive):
                self.lost = (
                    "a value computed without gradients was already non-finite when it entered the model at "
                    f"step {step}"
                )
                return
            places = (self.batch_place, *places)
        blown_up = self.latest > BLOWN_UP * max(self.smallest, 1e-3)
        if first.outcome == "in_overflow" and blown_up and "Exp" not in first.operation:
            says = (
                f"The loss had grown to {self.latest:.3g} before it stopped being finite at step {step}: the "
                "updates diverged and the numbers overflowed."
            )
            self.found = Found(Origin("in_update", first.operation, first.at), step, (self.step_place, *places), says)
            return
        words = {"in_data": "came in with the data", "in_log": "arose in a logarithm, root or power"}
        words |= {"in_division": "arose in a division", "in_overflow": "arose from an overflow"}
        says = f"The first value that is not finite {words[first.outcome]}, at step {step} ({first.operation})."
        self.found = Found(first, step, places, says)

    def _from_weights(self, step: int) -> None:
        if self.steep is not None and self.steep[0] == step - 1:
            self._from_derivative(step - 1)
        elif self.near is not None and not self.latest > FAR * max(self.first, 1.0):
            self.found = self.near[1]
        else:
            self.lost = (
                f"the weights were not finite before step {step}: the first bad value arose in a gradient or "
                "an update on a step that was not sampled (--sample every would show it)"
            )

    @when_sampled
    def before_step(self, event: OptimizerEvent) -> None:
        self.step_place = event.place
        if self.over or skips(event.optimizer):
            return
        if event.number not in self.odd and len(self.odd) < 64:
            self.odd[event.number] = {id(held) for held in held_by(event.optimizer) if not all_finite([held])}
        gradients = [parameter.grad for parameter in held_by(event.optimizer) if parameter.grad is not None]
        if all_finite(gradients):
            return
        if self.steep is not None and self.steep[0] == event.step:
            self._from_derivative(event.step)
        else:
            self.lost = f"gradients were not finite at step {event.step} although the loss was; the cause is not known"

    @when_sampled
    def after_step(self, event: OptimizerEvent) -> None:
        """Finite gradients went in: if the weights are not finite now, the update itself did it."""
        if self.over or not self.losses or skips(event.optimizer):
            return
        odd = self.odd.get(event.number)
        weights = [weight for weight in held_by(event.optimizer) if odd is not None and id(weight) not in odd]
        if all_finite(weights):
            return
        largest = max((float(group.get("lr") or 0.0) for group in event.optimizer.param_groups), default=0.0)
        kinds = sorted({str(weight.dtype).removeprefix("torch.") for weight in weights})
        says = (
            f"Loss and gradients are finite at step {event.step}, the weights after it are not: the update "
            f"itself overflowed, with learning rate {largest:g} on {', '.join(kinds)} weights."
        )
        operation = f"{type(event.optimizer).__name__}.step"
        self.found = Found(Origin("in_update", operation, -1), event.step, (event.place or self.step_place,), says)

    def _from_derivative(self, step: int) -> None:
        if self.steep is not None:
            _, hazard, places = self.steep
            says = f"The loss is finite at step {step}, the derivative of {hazard.operation} is not."
            self.found = Found(hazard, step, places, says)

    def read(self) -> Answer:
        if self.found is not None:
            first = self.found
            told = Saw(first.origin.outcome, step=first.step, operation=first.origin.operation)
            return told.at(*first.places).saying(first.says)
        if self.lost:
            return Unclear(self.lost)
        if not self.losses:
            return Unclear("no backward pass was seen")
        return Saw("none", losses=self.losses)


def all_finite(tensors: list[torch.Tensor]) -> bool:
    """By the norms first, in one go; a norm can overflow where the values do not."""
    sizes = norms(tensors)
    doubtful = [tensor for tensor, size in zip(tensors, sizes, strict=True) if not math.isfinite(size)]
    return all(bool(torch.isfinite(tensor.detach()).all()) for tensor in doubtful)
