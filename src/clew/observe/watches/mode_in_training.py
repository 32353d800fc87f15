"""Is the model in training mode while it trains?

Why it matters: in eval mode dropout is off and batch normalisation neither uses nor updates the statistics of the
batch, so what is trained is another model than the one that was designed.
Cannot tell: whether eval mode is meant; layers that read the mode in code of their own, unless they pass it on to
dropout or batch normalisation as a function.
Silent when: only frozen parts are in eval mode, single batch-norm layers are (the usual way to keep their statistics),
the pass in eval mode trains another model (a generator through its discriminator), or no layer depends on the mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clew.observe.origins import USED
from clew.observe.watch import Answer, Batch, Forward, Judged, Mode, OptimizerEvent, Saw, Watch, when_sampled
from clew.observe.watches._training_functional import Call, Functional
from clew.observe.watches._training_layers import DROPS, mode_layers
from clew.observe.watches._training_values import held_by
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

BEFORE = "train() belongs before this line"
STREAK = 2
MANY = 5
SHARE = 0.1


class Trained:
    """How one model stood in the passes that its own optimiser used."""

    def __init__(self) -> None:
        self.forwards = self.in_eval = 0  # since the last step of an optimiser that holds it
        self.turns = self.eval_turns = self.streak = 0
        self.layers = 0
        self.name = ""
        self.place: Place | None = None
        self.left_on = False
        self.mode_place: Place | None = None


class ModeInTraining(Watch):
    test = "mode_in_training"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.models: dict[int, Trained] = {}
        self.eval_places: dict[int, Place | None] = {}
        self.evaluated = False  # something was evaluated since the last .eval()
        self.loop: Place | None = None  # where the training batches are taken from their loader
        self.functional = Functional(recorder)
        self.calls: dict[int, list[Call]] = {}

    def installed(self) -> None:
        self.functional.listen()

    def forward(self, event: Forward) -> None:
        self.calls[event.model] = [call for call in self.functional.taken() if call.grad]

    def mode(self, event: Mode) -> None:
        self.evaluated = False
        if not event.training and (len(self.eval_places) < 64 or id(event.module) in self.eval_places):
            self.eval_places[id(event.module)] = event.place

    def judged(self, event: Judged) -> None:
        if not event.backward:
            self.evaluated = True
            return
        model = self.recorder.models[event.model]()
        if model is None:
            return
        held = self.models.setdefault(event.model, Trained())
        held.forwards += 1
        optimized = [p for _, optimizer in self.recorder.live_optimizers() for p in held_by(optimizer)]
        layers = list(mode_layers(model, {id(p) for p in optimized if p.requires_grad}))
        frozen = any(not parameter.requires_grad for parameter in model.parameters())
        calls = [] if frozen else self.calls.get(event.model, [])  # which part made a call is not known
        held.layers = len(layers) + len(calls)
        if self._all_off(layers, event.training, calls):
            held.in_eval += 1
            held.place = event.place
            held.left_on = held.left_on or self.evaluated
            held.name = layers[0][0] if layers else ""
            held.mode_place = self.eval_places.get(id(model))
            if held.mode_place is None:
                held.mode_place = next((self.eval_places.get(id(part)) for part in model.children()), None)

    def _all_off(self, layers: list[tuple[str, Any]], training: bool, calls: list[Call]) -> bool:
        """Whether all layers that matter are off; below a model in training mode batch norm alone may be on purpose."""
        if any(layer.training for _, layer in layers) or any(call.on for call in calls):
            return False
        if not layers:
            return bool(calls) and not training
        return not training or any(isinstance(layer, DROPS) for _, layer in layers)

    @when_sampled
    def batch(self, event: Batch) -> None:
        if event.loader == self.recorder.trains_on:
            self.loop = event.place

    def _lines(self, trained: Trained) -> list[Place | None]:
        """After an evaluation it is .train() that is missing before the loop; otherwise .eval() is the wrong line."""
        loop = self.loop._replace(role=BEFORE) if self.loop is not None else None
        off = trained.mode_place._replace(role="switched off here") if trained.mode_place is not None else None
        used = trained.place._replace(role=USED) if trained.place is not None else None
        return [loop or used, off, used] if trained.left_on or off is None else [off, loop, used]

    def before_step(self, event: OptimizerEvent) -> None:
        held = {id(parameter) for parameter in held_by(event.optimizer)} if self._waiting() else set()
        for number, trained in self.models.items():
            model = self.recorder.models[number]()
            self.calls.pop(number, None)
            if not trained.forwards or model is None:
                continue
            if not any(id(parameter) in held for parameter in model.parameters() if parameter.requires_grad):
                continue
            trained.turns += 1
            if trained.in_eval == trained.forwards:
                trained.eval_turns += 1
                trained.streak += 1
            else:
                trained.streak = 0
            trained.forwards = trained.in_eval = 0

    def _waiting(self) -> bool:
        return any(trained.forwards for trained in self.models.values())

    def read(self) -> Answer:
        turns = sum(trained.turns for trained in self.models.values())
        if not turns:
            return Unclear("no forward pass was followed by backward and an optimiser step")
        for trained in self.models.values():
            often = trained.eval_turns >= MANY and trained.eval_turns >= SHARE * trained.turns
            if trained.streak >= STREAK or often:
                module = Place(module=trained.name) if trained.name else None
                return Saw("eval", steps=trained.eval_turns, of=trained.turns).at(*self._lines(trained), module)
        if not any(trained.layers for trained in self.models.values() if trained.turns):
            return Unclear("no layer of the trained models depends on the mode")
        return Saw("train", steps=turns)
