"""Does an optimiser hold every trainable parameter of the model that is trained?

Why it matters: a parameter that the loss reaches and no optimiser holds keeps its random start, and the rest fits
itself around it.
Cannot tell: a parameter left out on purpose from one forgotten; layers that a module holds without registering them
(registered_modules looks for those).
Silent when: the parameters move by other means, belong to a network in eval mode of which nothing is optimised (a
perceptual loss), only inputs are optimised, another optimiser holds them (GANs, actor and critic), or they stand beside
what is optimised and not in series with it (a teacher, whatever its mode and whether or not gradients run into it).
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from clew.observe.watch import Answer, Backward, OptimizerEvent, Saw, Watch, when_sampled
from clew.observe.watches._loss_graph import parameters_under
from clew.observe.watches._named import called
from clew.observe.watches._training_series import series
from clew.observe.watches._training_values import fingerprint, held_by
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    import torch

    from clew.observe.recorder import Recorder

LOOKS = 2
MOST = 4000
RETIRED = 20
"""An optimiser that rested for so many steps of others, and longer than it ever did before, is of an earlier phase."""
FREE = -1
"""Stands for the model of parameters that belong to none."""


class Left:
    """A parameter with a gradient that no optimiser held when it was looked at."""

    def __init__(self, parameter: torch.Tensor, name: str, model: int) -> None:
        self.held = weakref.ref(parameter)
        self.name = name
        self.model = model
        self.print = fingerprint(parameter)
        self.looks = 0
        self.first_step = -1
        self.joined = False  # in series with something optimised


class OptimizerCoverage(Watch):
    test = "optimizer_coverage"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.left: dict[int, Left] = {}
        self.models: dict[int, tuple[bool, bool]] = {}  # holds something optimised, in training mode
        self.made: dict[int, Place | None] = {}
        self.idle: dict[int, int] = {}  # steps of an optimiser that none of whose parameters had a gradient for
        self.busy: set[int] = set()  # optimisers with a gradient or with a parameter of a called model
        self.fed: set[int] = set()  # optimisers that had a gradient to step with
        self.stepped: dict[int, int] = {}
        self.any_model_optimised = False
        self.parameters = self.looks = 0
        self.turns: dict[int, tuple[int, int]] = {}  # by optimiser: its last step, and its longest rest
        self.frozen: dict[int, weakref.ref[torch.Tensor]] = {}

    def optimizer_made(self, event: OptimizerEvent) -> None:
        if len(self.made) < 256:
            self.made[event.number] = event.place

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        """The graph says what the loss reaches; gradients may be left over from something else."""
        optimized = self._optimized()
        left: dict[int, tuple[torch.Tensor, str, int]] = {}
        for number, model in self.recorder.live_models():
            has = False
            for name, parameter in model.named_parameters():
                if id(parameter) in optimized:
                    has = True
                elif parameter.requires_grad and len(left) < MOST:
                    left.setdefault(id(parameter), (parameter, name, number))
                if not parameter.requires_grad and len(self.frozen) < MOST:
                    self.frozen[id(parameter)] = weakref.ref(parameter)
            before = self.models.get(number, (False, False))
            self.models[number] = (has or before[0], model.training or before[1])
            self.any_model_optimised = self.any_model_optimised or has
        if event.loss.grad_fn is not None:
            self._add_free(event, optimized, left)
        if left and event.loss.grad_fn is not None:
            self._note(event, optimized, left)

    def _optimized(self) -> set[int]:
        """What optimisers hold. One of an earlier phase does not count for what was frozen since and set free again:
        whoever frees a parameter wants it to train."""
        found: set[int] = set()
        for number, optimizer in self.recorder.live_optimizers():
            marks = {id(p) for p in held_by(optimizer)}
            if self._retired(number):
                marks -= {mark for mark, held in self.frozen.items() if held() is not None}
            found |= marks
        return found

    def _retired(self, number: int) -> bool:
        last, rest = self.turns.get(number, (self.recorder.step, 0))
        return self.recorder.step - last > max(RETIRED, 2 * rest)

    def _add_free(self, event: Backward, optimized: set[int], left: dict[int, tuple[torch.Tensor, str, int]]) -> None:
        """Parameters that a script keeps beside its models, as a coefficient of an equation or a learned weight."""
        from torch import nn

        known = {id(parameter) for _, model in self.recorder.live_models() for parameter in model.parameters()}
        found: list[torch.Tensor] = []
        parameters_under([event.loss], found.append)
        for leaf in found:
            free = isinstance(leaf, nn.Parameter) and leaf.requires_grad
            if free and id(leaf) not in known and id(leaf) not in optimized:
                name = self.left[id(leaf)].name if id(leaf) in self.left else called(leaf)
                left.setdefault(id(leaf), (leaf, name, FREE))
        self.models[FREE] = (self.any_model_optimised, True)

    def _note(self, event: Backward, optimized: set[int], left: dict[int, tuple[torch.Tensor, str, int]]) -> None:
        seen = series(event.loss.grad_fn, optimized, left.keys())
        if seen is None:
            return
        for mark in seen.reached:
            parameter = left[mark][0]
            held = self.left.get(mark)
            if held is None or held.held() is not parameter:
                if len(self.left) >= MOST:
                    return
                held = self.left[mark] = Left(*left[mark])
            # Where the loss reaches nothing that is optimised, what it does reach beside it is what should have been.
            alone = not seen.held and self.models[held.model][0]
            held.joined = held.joined or alone or mark in seen.joined

    def after_step(self, event: OptimizerEvent) -> None:
        last, rest = self.turns.get(event.number, (event.step, 0))
        self.turns[event.number] = event.step, max(rest, event.step - last)
        if event.sampled:
            self._look(event)

    def _look(self, event: OptimizerEvent) -> None:
        self.looks += 1
        optimized = self._optimized()
        for key, held in list(self.left.items()):
            parameter = held.held()
            if parameter is None or not parameter.requires_grad or key in optimized:
                del self.left[key]
            elif fingerprint(parameter) != held.print:
                held.looks = -MOST  # something else moves it
            elif held.first_step != event.step:
                held.first_step = event.step
                held.looks += 1
        mine = list(held_by(event.optimizer))
        called = {id(p) for _, model in self.recorder.live_models() for p in model.parameters()}
        self.stepped[event.number] = self.stepped.get(event.number, 0) + 1
        if any(p.grad is not None for p in mine):
            self.fed.add(event.number)
        if event.number in self.fed or any(id(p) in called for p in mine):
            self.busy.add(event.number)
        else:
            self.idle[event.number] = self.idle.get(event.number, 0) + 1

    def read(self) -> Answer:
        if not self.looks:
            return Unclear("no optimiser step was seen")
        left = [held for held in self.left.values() if held.looks >= LOOKS]
        idle = [number for number, steps in self.idle.items() if steps >= LOOKS and number not in self.busy]
        others = [held for held in left if not self.models[held.model][0]]
        if not idle and not self.fed and len(others) == len(left) and max(self.stepped.values(), default=0) >= LOOKS:
            # Of a model that is called beside the one that learns, as the target network of an agent is.
            idle = sorted(self.stepped)
        if idle and left and not (self.any_model_optimised and self.fed):
            return Saw("other_model", optimisers=len(idle), parameters=len(left)).at(
                self.made.get(idle[0]), Place(parameter=left[0].name)
            )
        joined = [held for held in left if held.joined]
        partly = [held for held in joined if self.models[held.model][0]]
        whole = [held for held in joined if self.models[held.model][1]] if self.any_model_optimised else []
        missing = partly or whole
        if missing:
            at_work = sorted(self.busy.intersection(self.made), key=lambda number: (self._retired(number), number))
            place = self.made[at_work[0]] if at_work else None
            names = [held.name for held in missing]
            shown = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
            return (
                Saw("missing", parameters=len(names))
                .at(place, Place(parameter=names[0]))
                .saying(f"{len(names)} trainable parameters that the loss depends on are in no optimiser: {shown}")
            )
        if not self.any_model_optimised:
            return Unclear("no optimiser holds a parameter of a model that was called")
        return Saw("complete", steps=self.looks)
