"""Are gradients recorded during the training forward pass?

Why it matters: a part that runs under no_grad or inference_mode has no graph. Its parameters never receive a gradient,
while the parts behind it go on learning and hide it.
Cannot tell: a graph that is cut further on by detach, item or numpy (loss_reaches_parameters sees that).
Silent when: the part is frozen or in no optimiser (feature extractors, targets), or its gradient arrives all the same
(activation checkpointing runs the first pass without a graph and records it again during backward).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from clew.observe.watch import Answer, Forward, ModuleCall, OptimizerEvent, Raised, Saw, Watch
from clew.observe.watches._training_values import held_by
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

PASSES = 2
MOST = 2000
NO_GRAPH = "does not require grad and does not have a grad_fn"


class Part:
    """A module with parameters of its own, and how its passes ran."""

    def __init__(self) -> None:
        self.on = self.off = self.since = 0
        self.looked = 0  # steps of its optimiser that were looked at
        self.turns = 0  # steps of its optimiser after a pass without a graph, with no gradient there
        self.name = ""
        self.place: Place | None = None


class GradModeInTraining(Watch):
    test = "grad_mode_in_training"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.parts: dict[int, Part] = {}
        self.inside: list[tuple[int, str, bool, Place | None]] = []
        self.fed: set[int] = set()  # parts that received a gradient after all
        self.steps = self.judged_steps = 0
        self.raised_at: Place | None = None
        self.raised_without = False

    def module(self, event: ModuleCall) -> None:
        if next(iter(event.module.parameters(recurse=False)), None) is None or len(self.inside) >= MOST:
            return
        off = not torch.is_grad_enabled()
        place = self.recorder.place() if off else None
        self.inside.append((id(event.module), event.name, off, place))

    def forward(self, event: Forward) -> None:
        """A part without a graph inside a model with one is the fault; a whole model without one may be validation."""
        inside, self.inside = self.inside, []
        if event.grad:
            for key, name, off, place in inside:
                self._note(key, name, off, place)
        self._note(id(event.module), "", not event.grad, event.place)

    def _note(self, key: int, name: str, off: bool, place: Place | None) -> None:
        if key not in self.parts and len(self.parts) >= MOST:
            return
        part = self.parts.setdefault(key, Part())
        part.name = part.name or name
        if off:
            part.off += 1
            part.since += 1
            part.place = part.place or place
        else:
            part.on += 1

    def before_step(self, event: OptimizerEvent) -> None:
        self.steps += 1
        if not event.sampled:
            for known in self.parts.values():
                known.since = 0
            return
        self.judged_steps += 1
        held = {id(parameter) for parameter in held_by(event.optimizer)}
        for _, model in self.recorder.live_models():
            for module in model.modules():
                part = self.parts.get(id(module))
                if part is None:
                    continue
                mine = [p for p in module.parameters() if p.requires_grad and id(p) in held]
                if not mine:
                    continue
                part.looked += 1
                if any(p.grad is not None for p in mine):
                    self.fed.add(id(module))
                elif part.since:
                    part.turns += 1
                part.since = 0

    def raised(self, event: Raised) -> None:
        if event.during == "backward" and NO_GRAPH in event.error:
            self.raised_at = event.place
            self.raised_without = any(part.off and not part.on for part in self.parts.values())

    def read(self) -> Answer:
        off = [
            part
            for key, part in self.parts.items()
            if part.turns >= max(PASSES, part.looked / 2) and not part.on and key not in self.fed
        ]
        if off:
            first = max(off, key=lambda part: (part.turns, not part.name))
            module = Place(module=first.name) if first.name else None
            return Saw("off", passes=first.off, parts=len(off)).at(first.place, module)
        if self.raised_without:
            place = next((part.place for part in self.parts.values() if part.off and not part.on), None)
            return Saw("off", passes=1).at(place, self.raised_at)
        if not self.judged_steps:
            return Unclear("no optimiser step was seen")
        if not any(part.on for part in self.parts.values()):
            return Unclear("no module with parameters was called in training")
        return Saw("on", steps=self.judged_steps)
