"""In which order do zero_grad, backward and step happen?

Why it matters: `.grad` is a running sum, and step uses whatever stands there. Gradients that are never cleared,
cleared too soon, or not there yet make every step follow something else than the loss of its batch.
Cannot tell: whether accumulation over several batches is meant; what optimisers outside torch.optim do.
Silent when: gradients are cleared in any way at all (by hand, by the model, once per accumulation window), another
optimiser's loss merely passes through (GANs, actor and critic), backward runs in a closure inside step, or a wrapper
that looks like an optimiser leaves the step to the one it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.observe.watch import Answer, Backward, Batch, Forward, OptimizerEvent, Saw, Watch, when_sampled
from clew.observe.watches._training_values import any_gradient, held_by, version
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

DENSE = 10
"""So many steps at the start are all looked at. Later the backward after a sampled step is not."""
THROWN_AWAY = 3
BACKWARDS_WITHOUT_STEP = 20
OTHERS_STEP = 10
"""How many gradients of one optimiser must be cleared unused, while others step, before its step counts as missing."""


class Turn:
    """What happened to one optimiser since its last step, and what came of its earlier turns."""

    def __init__(self) -> None:
        self.covered = False  # an optimiser that steps holds all that this one holds
        self.steps = self.looked = self.stale = self.zeroed = self.late = self.bare = self.thrown = 0
        self.passed = 0  # gradients that the loss of an optimiser that stepped left here on its way to its own network
        self.between = 0  # steps before which gradients of the very line that filled them were cleared unused
        self.lost: set[Place] = set()  # where the gradients came from that were cleared in this turn
        self.reached_ever = False
        self.awaiting = False  # stepped on work that no backward had followed yet
        self.marks: list[tuple[int, int]] = []
        self.step_place: Place | None = None
        self.zero_place: Place | None = None
        self.backward_place: Place | None = None
        self.begin()
        self.work = False

    def begin(self) -> None:
        self.known = True  # everything in this turn was looked at
        self.cleared = self.filled = self.empty = self.inside = self.closure = False
        self.reached = self.unused = 0
        self.lost = set()
        self.work = False

    def end(self) -> None:
        """A step is over: judge the turn that led to it."""
        if self.known:
            self.looked += 1
            if self.steps and self.reached and not self.cleared:
                self.stale += 1
            if not self.closure:
                self.between += self.filled and self.backward_place in self.lost
                if self.empty and self.filled and not self.work:
                    self.zeroed += 1
                if self.empty and not self.reached_ever:
                    self.bare += 1
                self.awaiting = self.work
        self.steps += 1
        self.begin()


class EventOrder(Watch):
    test = "event_order"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.turns: dict[int, Turn] = {}
        self.stepped: set[int] = set()  # since the last backward
        self.backwards = 0
        self.recorded = False  # some pass of a model ran with gradients on
        self.backward_place: Place | None = None

    def turn(self, number: int) -> Turn:
        return self.turns.setdefault(number, Turn())

    def _new_work(self) -> None:
        for turn in self.turns.values():
            turn.work = True
            turn.awaiting = False

    def batch(self, event: Batch) -> None:
        del event
        self._new_work()

    def forward(self, event: Forward) -> None:
        if event.grad:
            self.recorded = True
            self._new_work()

    def before_backward(self, event: Backward) -> None:
        self.backwards += 1
        self.stepped.clear()
        self.backward_place = event.place
        if not event.sampled:
            for turn in self.turns.values():
                turn.known = False
            return
        for number, optimizer in self.recorder.live_optimizers():
            turn = self.turn(number)
            turn.cleared = turn.cleared or not any_gradient(held_by(optimizer))
            turn.marks = [version(parameter.grad) for parameter in held_by(optimizer)]

    @when_sampled
    def after_backward(self, event: Backward) -> None:
        if not event.sampled:
            return
        for number, optimizer in self.recorder.live_optimizers():
            turn = self.turn(number)
            if turn.marks == [version(parameter.grad) for parameter in held_by(optimizer)]:
                continue
            turn.reached += 1
            turn.unused += 1
            turn.reached_ever = True
            turn.filled = any_gradient(held_by(optimizer))
            turn.closure = turn.inside
            turn.late += turn.awaiting
            turn.work = turn.awaiting = False
            turn.backward_place = event.place

    def zero_grad(self, event: OptimizerEvent) -> None:
        numbers = [event.number]
        if event.number < 0:  # a model cleared its own: which optimisers are empty now?
            live = self.recorder.live_optimizers() if event.sampled else []
            numbers = [number for number, held in live if all(p.grad is None for p in held_by(held))]
        for number in numbers:
            turn = self.turn(number)
            if turn.unused and not self._used_by_others(number):
                turn.thrown += 1
                turn.passed += bool(self.stepped - {event.number})
                turn.zero_place = event.place
                if turn.backward_place is not None:
                    turn.lost.add(turn.backward_place)
            turn.cleared = True
            turn.unused = 0

    def _used_by_others(self, number: int) -> bool:
        """Whether another optimiser that holds the same parameters has stepped on these gradients."""
        live = dict(self.recorder.live_optimizers())
        own = {id(parameter) for parameter in held_by(live[number])} if number in live else set()
        others = self.stepped.intersection(live) - {number}
        return own <= {id(parameter) for other in others for parameter in held_by(live[other])}

    def _cover(self, event: OptimizerEvent) -> None:
        """Another optimiser may be built around the one that steps, as SAM is: then this one steps for it."""
        held = {id(parameter) for parameter in held_by(event.optimizer)}
        for number, other in self.recorder.live_optimizers():
            turn = self.turn(number)
            if number != event.number and not turn.steps and not turn.covered:
                turn.covered = {id(parameter) for parameter in held_by(other)} <= held

    def before_step(self, event: OptimizerEvent) -> None:
        turn = self.turn(event.number)
        turn.inside = True
        turn.step_place = event.place
        if event.sampled:
            turn.empty = not any_gradient(held_by(event.optimizer))
        else:
            turn.known = False

    def after_step(self, event: OptimizerEvent) -> None:
        self.stepped.add(event.number)
        self.turn(event.number).end()
        if event.sampled:
            self._cover(event)

    def read(self) -> Answer:
        if not self.turns:
            return Unclear("no torch.optim optimiser ran")
        for turn in self.turns.values():
            share = turn.looked / 2
            if turn.late > 1 and turn.late >= min(share, DENSE / 2):
                return Saw("step_before_backward", steps=turn.late, of=turn.looked).at(
                    turn.step_place, turn.backward_place
                )
            if turn.between > 1 and turn.between >= share:
                says = "gradients are cleared between the backward passes of one step: only the last batch counts"
                return Saw("zeroed_before_step", steps=turn.between, of=turn.looked).at(turn.zero_place).saying(says)
            if turn.zeroed and turn.zeroed >= share:
                return Saw("zeroed_before_step", steps=turn.zeroed, of=turn.looked).at(turn.zero_place, turn.step_place)
            if turn.stale and turn.stale >= (turn.looked - 1) / 2:
                return Saw("no_zero_grad", steps=turn.stale, of=turn.looked - 1).at(
                    turn.backward_place, turn.step_place
                )
        return self._steps()

    def _steps(self) -> Answer:
        turns = list(self.turns.values())
        stepped = sum(turn.steps for turn in turns)
        bare = max(turn.bare for turn in turns)
        if bare > 2 and not self.backwards and not self.recorded:
            return Unclear("backward never ran, and no forward pass with gradients was seen either")
        if bare > 2 and not self.backwards:
            place = next(turn.step_place for turn in turns if turn.bare)
            return (
                Saw("step_before_backward", steps=bare, backwards=0)
                .at(place)
                .saying(f"{stepped} optimiser steps ran and backward never did")
            )
        for turn in turns:
            enough = (
                turn.thrown >= OTHERS_STEP
                if stepped
                else (turn.thrown >= THROWN_AWAY or self.backwards >= BACKWARDS_WITHOUT_STEP)
            )
            if not turn.steps and turn.reached_ever and enough and not turn.covered:
                return Saw("no_step", backwards=self.backwards, steps=stepped).at(turn.backward_place)
        if not stepped:
            return Unclear(
                "too few backward passes to conclude that no step follows" if self.backwards else "nothing ran"
            )
        if not any(turn.looked for turn in turns):
            return Unclear("no complete step was checked")
        passed = max(turn.passed if turn.steps else 0 for turn in turns)
        more = {"through_others": passed} if passed >= THROWN_AWAY else {}
        return Saw("usual", steps=stepped, backwards=self.backwards, **more)
