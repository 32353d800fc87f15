"""Does an actor that learns through its critic climb the value that the critic gives?

When a network steps on a score that another network gave to its output, and that other one learns in turns of its own,
the gradient that arrives at the score is noted. Of a value it must be negative: the loss falls as the value rises.

Why it matters: with the sign wrong the agent learns the worst action that its critic knows, and both losses fall.
Cannot tell: a critic of costs from one of rewards, where nothing is called a cost.
Silent when: actions are drawn and their log-probabilities weighed (policy_direction looks at those), or actor and
critic step together.
"""

from __future__ import annotations

import linecache
import weakref
from typing import TYPE_CHECKING, NamedTuple

import torch

from clew.observe.envs import experience_of
from clew.observe.hooks import tensors_in
from clew.observe.watch import Answer, Forward, OptimizerEvent, Saw, Watch
from clew.observe.watches._rl_lines import computing
from clew.observe.watches._training_values import held_by
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

CLEAR = 0.9
TURNS = 4
HELD = 32


class Pushed(NamedTuple):
    """Which way the scores of one call of a critic were pushed: 1 where the loss falls as they fall."""

    critic: int
    push: float
    place: Place | None


class ActorPull(Watch):
    test = "actor_pull"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.fired: list[Pushed] = []
        self.learns: set[int] = set()
        self.turns: dict[int, list[Pushed]] = {}

    def forward(self, event: Forward) -> None:
        if not self.recorder.sampled or not event.grad or len(self.recorder.optimizers) < 2:
            return
        through = any(held.grad_fn is not None for held in tensors_in(event.inputs, torch))
        output = next((held for held in tensors_in(event.output, torch) if held.requires_grad), None)
        if not through or output is None or (output.dim() > 1 and output.shape[-1] != 1):
            return
        watch, critic, place = weakref.ref(self), event.model, event.place

        def pushed(gradient: torch.Tensor) -> None:
            held = watch()
            if held is not None and not held.recorder.busy and len(held.fired) < HELD:
                with held.recorder.quietly():
                    signs = gradient.detach().sign()
                    some = float(signs.abs().sum())
                    push = float(signs.sum()) / some if some else 0.0
                held.fired.append(Pushed(critic, push, place))

        output.register_hook(pushed)  # type: ignore[no-untyped-call]

    def before_step(self, event: OptimizerEvent) -> None:
        fired, self.fired = self.fired, []
        if not event.sampled:
            return
        own = {id(parameter) for parameter in held_by(event.optimizer)}
        steps = {number for number, held in self.recorder.live_models() if own & {id(p) for p in held.parameters()}}
        self.learns |= steps
        for seen in fired:
            if steps and seen.critic not in steps:
                self.turns.setdefault(seen.critic, []).append(seen)

    def read(self) -> Answer:
        if not experience_of(self.recorder).steps:
            return Unclear("no environment step was seen")
        known = {critic: seen for critic, seen in self.turns.items() if critic in self.learns and len(seen) >= TURNS}
        if not known:
            return Unclear("no actor that learns through a separately trained critic was seen")
        for seen in known.values():
            down = sum(held.push > CLEAR for held in seen)
            if down >= CLEAR * len(seen) and not _cost(seen[-1].place):
                says = "the actor's loss falls when the value of its actions falls: it learns the worst action"
                places = (*computing("policy loss", seen[-1].place), seen[-1].place)
                return Saw("down", turns=len(seen)).at(*places).saying(says)
        return Saw("up", turns=sum(map(len, known.values())))


def _cost(place: Place | None) -> bool:
    line = linecache.getline(place.file, place.line) if place is not None and place.file and place.line else ""
    return "cost" in line.lower()
