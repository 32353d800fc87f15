"""Is the optimiser built once, or anew during training?

Why it matters: momentum and second moments start from nothing each time, so Adam takes its large first step again and
again, and a scheduler made earlier goes on steering an optimiser that is no longer used.
Cannot tell: a rebuild that is meant, when it repeats as regularly as one that is not.
Silent when: the optimiser keeps no state (plain SGD), the parameters are other ones (folds, tasks, stages), they were
written to since the last step (restored weights, a new client), or it happened fewer than three times; twice is enough
where each was made with the same settings and lived for as many steps, as those of epochs do.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from clew.observe.watch import Answer, OptimizerEvent, Saw, Watch
from clew.observe.watches._training_values import held_by, version
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    import torch

    from clew.observe.recorder import Recorder

REBUILDS, ALIKE = 3, 2
EVERY_STEP = 2
"""Rebuilds that suffice when there was one step between them each time."""
LOOKED_AT = 3
"""Parameters by which one optimiser is told to be over the same tensors as another."""


class Site:
    """The optimisers that one line of the script made."""

    def __init__(self) -> None:
        self.tensors: list[weakref.ref[torch.Tensor]] = []
        self.size = self.rebuilds = self.rapid = 0
        self.number = -1
        self.steps = 0  # taken by the latest one
        self.lives: set[tuple[int, str]] = set()  # steps and settings of those before
        self.versions: list[tuple[int, int]] = []
        self.place: Place | None = None


class OptimizerRebuilt(Watch):
    test = "optimizer_rebuilt"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.sites: dict[tuple[str, str], Site] = {}
        self.latest: dict[int, Site] = {}
        self.made = self.steps = 0

    def optimizer_made(self, event: OptimizerEvent) -> None:
        self.made += 1
        key = (type(event.optimizer).__name__, str(event.place))
        if key not in self.sites and len(self.sites) >= 64:
            return
        site = self.sites.setdefault(key, Site())
        parameters = list(held_by(event.optimizer))
        watched = parameters[:LOOKED_AT]
        same = len(parameters) == site.size and all(
            held() is parameter for held, parameter in zip(site.tensors, watched, strict=True)
        )
        untouched = site.versions == [version(parameter) for parameter in watched]
        if same and untouched and site.steps and _keeps_state(event.optimizer):
            site.rebuilds += 1
            site.rapid += site.steps == 1
            site.lives.add((site.steps, str(event.optimizer.defaults)))
        elif not same:
            site.rebuilds = site.rapid = 0
            site.lives.clear()
            site.size = len(parameters)
            site.tensors = [weakref.ref(parameter) for parameter in watched]
        self.latest.pop(site.number, None)
        self.latest[event.number] = site
        site.number, site.steps, site.place = event.number, 0, event.place

    def after_step(self, event: OptimizerEvent) -> None:
        self.steps += 1
        site = self.latest.get(event.number)
        if site is not None:
            site.steps += 1
            site.versions = [version(held()) for held in site.tensors]

    def read(self) -> Answer:
        if not self.made:
            return Unclear("no optimiser of torch.optim was created")
        for site in self.sites.values():
            alike = site.rebuilds >= ALIKE and len(site.lives) == 1
            if site.rebuilds >= REBUILDS or alike or (site.rapid >= EVERY_STEP and site.rapid == site.rebuilds):
                return Saw("rebuilt", times=site.rebuilds + 1, steps=self.steps).at(site.place)
        if not self.steps:
            return Unclear("no optimiser step was seen")
        if any(site.rebuilds for site in self.sites.values()):
            return Unclear(
                "an optimiser was created again over the same parameters, too rarely to be in the training loop"
            )
        return Saw("kept", made=self.made)


def _keeps_state(optimizer: Any) -> bool:
    """Plain SGD starts from nothing at every step anyway."""
    return type(optimizer).__name__ != "SGD" or any(group.get("momentum") for group in optimizer.param_groups)
