"""Do the ranks exchange their gradients before they step?

DistributedDataParallel averages gradients only in a backward pass that follows a call of the wrapper itself, through
hooks on the parameters as they were when it was made. Process groups count what they are asked to do: a group that was
asked for nothing between backward and the end of the step has exchanged nothing.

Why it matters: each rank then trains a model of its own on its own part of the data, and only one of them is saved.
Cannot tell: an exchange of something else at that moment from one of gradients; groups that do not count.
Silent when: there is one process or no wrapper; when the inner module is called for evaluation only, when steps are
accumulated under no_sync, and when the script averages by hand.
"""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import torch

from clew.observe.watch import Answer, Backward, Forward, OptimizerEvent, Saw, Watch, when_sampled
from clew.records.clue import Unclear
from clew.records.place import Place

LOOKS = 2


class GradientsExchanged(Watch):
    test = "gradients_exchanged"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.wrapper: weakref.ref[Any] | None = None
        self.searched: dict[int, int] = {}
        self.past: Place | None = None  # where the inner module was called since the last step
        self.through: Place | None = None
        self.before: int | None = None
        self.silent = {"bypassed": 0, "lost": 0}
        self.places: dict[str, Place | None] = {}
        self.exchanged = 0

    def forward(self, event: Forward) -> None:
        kind = _wrapper()
        if kind is None or not event.grad:
            return
        if isinstance(event.module, kind):
            self.wrapper = weakref.ref(event.module)
            if event.module.require_backward_grad_sync:
                self.through = event.place
        elif self._is_inside(kind, event):
            self.past = event.place

    def _is_inside(self, kind: type, event: Forward) -> bool:
        """Whether a module that was called by itself is one that a wrapper has in it."""
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return False
        if self.wrapper is None and self.searched.get(event.model, 0) < LOOKS:
            self.searched[event.model] = self.searched.get(event.model, 0) + 1
            for held in gc.get_objects():
                if issubclass(type(held), kind):
                    self.wrapper = weakref.ref(held)
        wrapper = self.wrapper() if self.wrapper is not None else None
        return wrapper is not None and any(part is event.module for part in wrapper.module.modules())

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        del event
        if self.before is None and (self.past is not None or self.through is not None):
            self.before = self._count()

    def _count(self) -> int | None:
        """How often the wrapper's group was asked for something."""
        wrapper = self.wrapper() if self.wrapper is not None else None
        if wrapper is None or wrapper.process_group.size() < 2:
            return None
        try:
            return int(wrapper.process_group._get_sequence_number_for_group())
        except (AttributeError, RuntimeError):
            return None

    @when_sampled
    def after_step(self, event: OptimizerEvent) -> None:
        del event
        before, self.before = self.before, None
        past, through, self.past, self.through = self.past, self.through, None, None
        now = self._count()
        if before is None or now is None:
            return
        if now > before:
            self.exchanged += 1
            return
        how = "lost" if through is not None else "bypassed"
        self.silent[how] += 1
        self.places[how] = through or past

    def read(self) -> Answer:
        for how, steps in self.silent.items():
            if steps >= LOOKS and not self.exchanged:
                says = {
                    "bypassed": "The module inside the DistributedDataParallel wrapper is called directly in training",
                    "lost": (
                        "The DistributedDataParallel wrapper has lost its hooks, which happens when the model is "
                        "moved or cast after wrapping"
                    ),
                }[how]
                return (
                    Saw(how, steps=steps)
                    .at(self.places[how])
                    .saying(f"{says}: the ranks exchanged no gradient on {steps} of {steps} sampled steps.")
                )
        if self.exchanged:
            return Saw("exchanged", steps=self.exchanged)
        return Unclear("no step of a model wrapped for several ranks was seen")


def _wrapper() -> type | None:
    module = sys.modules.get("torch.nn.parallel.distributed")
    return getattr(module, "DistributedDataParallel", None)
