"""Is the model in eval mode while it is validated?

Why it matters: with dropout active, or batch statistics in use, the validation figures describe a noisier model than
the one that will be used, and batch normalisation also learns from the validation data.
Cannot tell: passes under a loader that training uses too, unless they are scored, always on the same other tensor, or
over a whole data set when training has ended, or between its parts again and again.
Silent when: the model belongs to no optimiser and is no copy of one that does (an average of its weights) which is
scored in rounds of its own, or is called step after step (a teacher, a target); one batch is scored again and again
(Monte Carlo dropout), passes without gradient feed the training (pseudo-labels, rollouts, generated samples), or a call
of F.dropout in a model in eval mode says itself that it is to be active.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NamedTuple

from clew.observe.watch import Answer, Backward, Batch, Forward, Judged, LossCall, OptimizerEvent, Saw, Watch
from clew.observe.watches._data_names import HELD_OUT, called_here
from clew.observe.watches._training_functional import Call, Functional
from clew.observe.watches._training_layers import mode_layers, tensors
from clew.observe.watches._training_values import held_by, version
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    import torch
    from torch import nn

    from clew.observe.recorder import Recorder

AGAIN = 3
"""An input that one model scores this often in a row is being sampled from, not validated."""
INPUTS = 64
UNTRAINED = 3
"""Batches of another loader, one at a time between steps, that a model was given with gradients and to no end."""
IN_A_ROW = 3
"""Steps one after the other at which a copy is called: it takes part in the training."""
NAMES = 2
"""The line of a pass and the one that called its function say what it is given; those further out say other things."""
LARGER = 1.5
"""An input this much larger than every batch is a whole data set."""


class Input(NamedTuple):
    """A tensor that was given to a model: which one it is, how often it had been written to, its rows."""

    number: int
    version: int
    rows: int


class Passes:
    """The passes of one model, while batches came from one loader, that nothing was trained on."""

    def __init__(self) -> None:
        self.in_eval = self.in_train = self.run = self.longest = self.again = self.most_again = 0
        self.scored = 0
        self.whole = False  # the latest was over a whole data set, and nothing was trained since
        self.wholes: dict[int, set[int]] = {}  # by rows: at which steps there was one over a whole data set
        self.last: tuple[object, ...] = ()
        self.steps_by_input: dict[Input, set[int]] = {}
        self.untrained: set[int] = set()  # steps with a pass that was recorded, and that nothing was trained on
        self.at, self.row = -1, 0  # the step of the latest pass, and how many steps before it had one each
        self.takes_part = False
        self.named = False  # the script's own names say that what was given is held out
        self.layer = ""
        self.place: Place | None = None

    def count(self, step: int, apart: int) -> None:
        """One pass more. With several optimisers, steps that are `apart` follow one another."""
        if step != self.at:
            self.row = self.row + 1 if 0 < step - self.at <= apart else 0
            self.takes_part = self.takes_part or self.row >= IN_A_ROW
            self.at = step


class ModeInValidation(Watch):
    test = "mode_in_validation"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.passes: dict[tuple[int, int | None], Passes] = {}
        self.trained_under: set[int | None] = set()
        self.trained_on: set[Input] = set()
        self.inputs: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self.serial = 0
        self.trained: set[int] = set()
        self.shapes: set[tuple[torch.Size, ...]] = set()  # of the models that are trained
        self.copies: dict[int, bool] = {}  # by model that is not trained: whether it has the shapes of one that is
        self.layered = False
        self.batches = self.rows = 0
        self.open: tuple[Passes, Input | None] | None = None  # the last pass, until it is scored
        self.functional = Functional(recorder)
        self.calls: dict[int, list[Call]] = {}  # by model: what its latest pass called

    def installed(self) -> None:
        self.functional.listen()

    def batch(self, event: Batch) -> None:
        self.batches += 1
        self.rows = max([self.rows, *(held.shape[0] for held in event.tensors[:1] if held.dim())])

    def before_backward(self, event: Backward) -> None:
        del event
        self._training_goes_on()

    def _training_goes_on(self) -> None:
        for held in self.passes.values():
            held.run = 0
            held.whole = False
        self.open = None

    def before_step(self, event: OptimizerEvent) -> None:
        self._training_goes_on()
        if event.sampled:
            held = {id(parameter) for parameter in held_by(event.optimizer)}
            for number, model in self.recorder.live_models():
                if number not in self.trained and any(id(p) in held for p in model.parameters()):
                    self.trained.add(number)
                    self.shapes.add(_shapes(model))

    def forward(self, event: Forward) -> None:
        self.calls[event.model] = [call for call in self.functional.taken() if call.grad == event.grad]
        if event.grad:
            self.copies[event.model] = False
            given = self._input(event)
            if given is not None and len(self.trained_on) < 512:
                self.trained_on.add(given)
            return
        given = self._input(event)
        self._note(event.module, event.model, self.recorder.loader, event.training, event.place, given)

    def _input(self, event: Forward) -> Input | None:
        tensor = next(iter(tensors(event.inputs)), None)
        if tensor is None:
            return None
        held = self.inputs.get(id(tensor))
        if held is None or held[0]() is not tensor:
            if len(self.inputs) >= INPUTS:
                self.inputs = {key: kept for key, kept in self.inputs.items() if kept[0]() is not None}
            self.serial += 1
            held = self.inputs[id(tensor)] = (weakref.ref(tensor), self.serial)
        return Input(held[1], version(tensor)[1], tensor.shape[0] if tensor.dim() else 0)

    def judged(self, event: Judged) -> None:
        if event.backward:
            self.trained_under.add(event.loader)
        elif event.grad and event.loader is not None:
            model = self.recorder.models[event.model]()
            if model is not None:
                self._note(model, event.model, event.loader, event.training, event.place, None)
                held = self.passes.get((event.model, event.loader))
                if held is not None and len(held.untrained) < UNTRAINED:
                    held.untrained.add(self.recorder.step)

    def _note(
        self,
        model: nn.Module,
        number: int,
        loader: int | None,
        training: bool,
        place: Place | None,
        given: Input | None,
    ) -> None:
        layers = list(mode_layers(model))
        calls = [call for call in self.calls.get(number, []) if not call.deliberate(training)]
        if not (layers or calls) or len(self.passes) > 256:
            return
        self.layered = True
        held = self.passes.setdefault((number, loader), Passes())
        if number not in self.trained:
            held.count(self.recorder.step, max(1, len(self.recorder.live_optimizers())))
            held.named = held.named or (loader is not None and called_here(NAMES) == HELD_OUT)
            if number not in self.copies and self.shapes:
                self.copies[number] = _shapes(model) in self.shapes
        active = [name for name, layer in layers if layer.training] if training else []
        always = next((call for call in calls if call.on), None)
        if not active and always is None:
            held.in_eval += 1
            return
        held.in_train += 1
        held.layer = active[0] if active else ""
        if held.place is None:
            # In a model in eval mode it is the call that does not ask for the mode, otherwise the pass was made in it.
            held.place = always.place if always is not None and not training else place
        held.run += 1
        held.longest = max(held.longest, held.run)
        now = (self.batches, self.recorder.step, given if loader is None else None)
        held.again = held.again + 1 if held.last == now else 1
        held.last = now
        held.most_again = max(held.most_again, held.again)
        self.open = (held, given)
        held.whole = given is not None and 0 < LARGER * self.rows < given.rows and given not in self.trained_on
        if held.whole and given is not None and len(held.wholes) < INPUTS:
            held.wholes.setdefault(given.rows, set()).add(self.recorder.step)
        if given is not None and (given in held.steps_by_input or len(held.steps_by_input) < 16):
            steps = held.steps_by_input.setdefault(given, set())
            if len(steps) < 3:
                steps.add(self.recorder.step)

    def loss(self, event: LossCall) -> None:
        """A loss without gradient right after a pass without gradient is a score."""
        if not event.grad and self.open is not None:
            held, given = self.open
            whole = given is not None and given.rows > LARGER * self.rows
            held.scored += self.recorder.loader not in self.trained_under or whole
            self.open = None

    def read(self) -> Answer:
        if not self.trained:
            return Unclear("no model held by an optimiser was called")
        seen = {key: held for key, held in self.passes.items() if key[0] in self.trained or self.copies.get(key[0])}
        for (model, loader), held in seen.items():
            once = held.in_train and held.most_again < AGAIN
            validates = self._validates if model in self.trained else self._scores_a_copy
            if once and self.trained_under and validates(held, loader):
                module = Place(module=held.layer) if held.layer else None
                return Saw("train", passes=held.in_train, in_eval=held.in_eval).at(held.place, module)
        if any(held.in_eval for held in seen.values()):
            return Saw("eval", passes=sum(held.in_eval for held in seen.values()))
        if not self.layered:
            return Unclear("no mode-dependent layer ran outside training")
        return Unclear("no validation pass was seen")

    def _validates(self, held: Passes, loader: int | None) -> bool:
        if loader is not None and loader not in self.trained_under:
            return held.longest >= 2 or held.scored > 0 or len(held.untrained) >= UNTRAINED
        fixed = any(len(steps) > 1 for given, steps in held.steps_by_input.items() if given not in self.trained_on)
        again = any(len(steps) >= AGAIN for steps in held.wholes.values())
        return held.scored > 0 or ((fixed or held.whole or again) and len(self.trained) == 1)

    def _scores_a_copy(self, held: Passes, loader: int | None) -> bool:
        """Several passes between two steps whose results are scored; one that also ran in eval mode knows of it."""
        apart = held.scored > 0 or (held.named and loader is not None and loader not in self.trained_under)
        return apart and held.longest > 1 and not held.takes_part and not held.in_eval


def _shapes(model: nn.Module) -> tuple[torch.Size, ...]:
    return tuple(parameter.shape for parameter in model.parameters())
