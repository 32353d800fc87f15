"""Which parameters differ from their initial values after some steps?

Why it matters: a tensor that is equal to the last bit after several steps was never trained, whatever the loss curve
says.
Cannot tell: why it stands still: not in the optimiser, not reached by the loss, an exact zero gradient, or rounding.
Silent when: the tensor is frozen while others beside it train, or neither an optimiser nor the loss wants it.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from clew.observe.watch import Answer, OptimizerEvent, Saw, Watch, when_sampled
from clew.observe.watches._training_values import fingerprint, held_by
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    import torch

    from clew.observe.recorder import Recorder

LOOKS = 3
MOST = 5000


class Held:
    """One parameter as it was first seen."""

    __slots__ = ("changed", "counts", "looks", "name", "print", "tensor")

    def __init__(self, parameter: torch.Tensor, name: str) -> None:
        self.tensor = weakref.ref(parameter)
        self.print = fingerprint(parameter)
        self.name = name
        self.looks = 0
        self.changed = False
        self.counts = True


class ParametersChanged(Watch):
    test = "parameters_changed"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.held: dict[int, Held] = {}
        self.steps = 0

    @when_sampled
    def before_step(self, event: OptimizerEvent) -> None:
        if not event.sampled or len(self.held) >= MOST:
            return
        mine = {id(parameter): parameter for parameter in held_by(event.optimizer)}
        for _, model in self.recorder.live_models():
            parameters = list(model.parameters())
            if any(id(parameter) in mine for parameter in parameters):
                mine |= {id(parameter): parameter for parameter in parameters}
        fresh = {key: parameter for key, parameter in mine.items() if not self._known(key, parameter)}
        if fresh:
            names = self.recorder.parameter_names()
            for key, parameter in fresh.items():
                self.held[key] = Held(parameter, names.get(key, ""))

    def _known(self, key: int, parameter: torch.Tensor) -> bool:
        held = self.held.get(key)
        return held is not None and held.tensor() is parameter

    def after_step(self, event: OptimizerEvent) -> None:
        self.steps += 1
        if not event.sampled:
            return
        mine = {id(parameter) for parameter in held_by(event.optimizer)}
        others = {id(p) for _, held in self.recorder.live_optimizers() for p in held_by(held)} - mine
        trains = any(p.requires_grad and p.dim() > 1 for p in held_by(event.optimizer))
        for key, held in self.held.items():
            if held.changed or key in others:
                continue
            parameter = held.tensor()
            if parameter is None:
                continue
            held.looks += 1
            wanted = (key in mine or parameter.grad is not None) and parameter.numel() > 0
            held.counts = (parameter.requires_grad and wanted) or (key in mine and not trains)
            held.changed = fingerprint(parameter) != held.print

    def read(self) -> Answer:
        if not self.steps:
            return Unclear("no optimiser step was seen")
        known = [held for held in self.held.values() if held.changed or (held.looks >= LOOKS and held.counts)]
        still = [held for held in known if not held.changed]
        if not known:
            return Unclear(f"only {self.steps} optimiser steps were seen")
        figures = {"unchanged": len(still), "parameters": len(known)}
        if not still:
            return Saw("all", **figures)
        named = [Place(parameter=held.name) for held in still[:3] if held.name]
        return Saw("none" if len(still) == len(known) else "some_never", **figures).at(*named)
