"""Does clipping happen between backward and step, and after unscaling?

Why it matters: clipping that runs before backward, after step, or on gradients a GradScaler has still to divide, does
not act on the gradients that are stepped with. Peaks pass, or the true gradient shrinks by the scaler's factor.
Cannot tell: whether the limit is sensible; clipping by hooks on single tensors.
Silent when: the limit is infinite (the call is used to measure), or one clip after the last backward is in its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from clew.observe.watch import Answer, Backward, Clip, OptimizerEvent, Saw, Watch
from clew.observe.watches._training_values import held_by, loss_scale, real, version
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    import torch

    from clew.observe.recorder import Recorder

STEPS = 2
READ_OF = 4
"""Gradients of which a few values are compared between clip and step."""


class Turn:
    """What happened to one optimiser's gradients since its last step."""

    def __init__(self) -> None:
        self.marks: list[tuple[int, int]] = []
        self.known = True
        self.clipped = False  # at all in this turn
        self.after = False  # and no backward reached them since
        self.reached = False
        self.ids: set[int] = set()  # a few of the parameters that were clipped
        self.sizes: dict[int, float] = {}
        self.stepping = self.closure = False
        self.factor_now = 1.0
        self.steps = self.misplaced = self.scaled = self.looked = 0
        self.factor = 1.0
        self.place: Place | None = None
        self.step_place: Place | None = None

    def end(self) -> None:
        self.stepping = self.closure = False
        self.factor_now = 1.0
        self.known, self.clipped, self.after, self.reached, self.sizes = True, False, False, False, {}


class ClipPosition(Watch):
    test = "clip_position"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.turns: dict[int, Turn] = {}
        self.clips = self.empty = self.steps = 0
        self.empty_place: Place | None = None

    def before_backward(self, event: Backward) -> None:
        self._mark(event, after=False)

    def after_backward(self, event: Backward) -> None:
        self._mark(event, after=True)

    def _mark(self, event: Backward, after: bool) -> None:
        for number, optimizer in self.recorder.live_optimizers() if self.clips else ():
            turn = self.turns.setdefault(number, Turn())
            if not event.sampled:
                turn.known = False
                continue
            marks = [version(parameter.grad) for parameter in held_by(optimizer)]
            if after and marks != turn.marks:
                turn.reached, turn.after, turn.sizes = True, False, {}
                turn.closure = turn.stepping
            turn.marks = marks

    def clip(self, event: Clip) -> None:
        if math.isinf(float(event.limit)):
            return
        self.clips += 1
        if not event.parameters:
            self.empty += 1
            self.empty_place = event.place
            return
        clipped = {id(parameter) for parameter in event.parameters}
        for number, optimizer in self.recorder.live_optimizers():
            mine = list(held_by(optimizer))
            if any(id(parameter) in clipped for parameter in mine):
                turn = self.turns.setdefault(number, Turn())
                turn.clipped = turn.after = True
                turn.place = event.place
                turn.known = turn.known and event.sampled
                if event.sampled:
                    turn.ids = {id(p) for p in [p for p in mine if id(p) in clipped][:READ_OF]}
                    turn.sizes = _sizes(event.parameters, turn.ids)

    def before_step(self, event: OptimizerEvent) -> None:
        self.steps += 1
        turn = self.turns.get(event.number)
        if turn is not None:
            turn.stepping = True
            turn.known = turn.known and event.sampled
            if turn.known and turn.after and turn.sizes:
                turn.factor_now = self._factor(event, turn)

    def after_step(self, event: OptimizerEvent) -> None:
        """Judged only now: in a closure, backward and clipping come inside the step."""
        turn = self.turns.get(event.number)
        if turn is None:
            return
        if turn.known and turn.clipped:
            turn.looked += 1
            turn.step_place = event.place
            turn.misplaced += turn.reached and not turn.after
            if turn.factor_now > 1 and not turn.closure:
                turn.factor = turn.factor_now
                turn.scaled += 1
        turn.end()

    def _factor(self, event: OptimizerEvent, turn: Turn) -> float:
        """By how much all gradients shrank alike since the clip: a GradScaler's doing, or a division that came late."""
        pending = loss_scale(event.optimizer)
        if pending > 1:
            return pending
        now = _sizes(held_by(event.optimizer), turn.ids)
        ratios = [turn.sizes[key] / size for key, size in now.items() if size > 0 and key in turn.sizes]
        alike = bool(ratios) and max(ratios) - min(ratios) <= 1e-3 * max(ratios)
        return min(ratios) if alike and min(ratios) >= 2 else 1.0

    def read(self) -> Answer:
        if not self.steps:
            return Unclear("no optimiser step was seen")
        if self.empty > STEPS and self.empty == self.clips:
            return (
                Saw("misplaced", clips=self.clips, parameters=0)
                .at(self.empty_place)
                .saying("clipping got no parameters, for example from a generator that was already used up")
            )
        for turn in self.turns.values():
            if turn.misplaced >= max(STEPS, turn.looked / 2):
                return Saw("misplaced", steps=turn.misplaced, of=turn.looked).at(turn.place, turn.step_place)
            if turn.scaled >= max(STEPS, turn.looked / 2):
                return (
                    Saw("misplaced", steps=turn.scaled, factor=turn.factor)
                    .at(turn.place)
                    .saying(
                        f"clipping ran on gradients that were divided by {turn.factor:.0f} afterwards, before the step"
                    )
                )
        if self.clips and not any(turn.looked for turn in self.turns.values()):
            return Unclear("no step with clipped gradients was sampled")
        return Saw("right", clips=self.clips)


def _sizes(parameters: Iterable[torch.Tensor], wanted: set[int]) -> dict[int, float]:
    """The largest absolute gradient of a few tensors, by id: dividing the gradients divides it."""
    held = {id(p): real(p.grad) for p in parameters if id(p) in wanted and p.grad is not None}
    return {key: float(values.abs().max()) for key, values in held.items() if values is not None}
