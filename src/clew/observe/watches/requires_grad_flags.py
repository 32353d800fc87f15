"""Which parameters have requires_grad switched off?

Why it matters: a parameter that is off receives no gradient, and an optimiser that holds it skips it without a word.
Cannot tell: whether the freezing is meant. Fine-tuning and adapters freeze on purpose.
Silent when: the frozen parameters are in no optimiser (feature extractors, targets, averaged copies) and something
else is left to train.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.observe.watch import Answer, OptimizerEvent, Raised, Saw, Watch, when_sampled
from clew.observe.watches._training_values import held_by
from clew.observe.watches.grad_mode_in_training import NO_GRAPH
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder


class Flags:
    """What one optimiser held at its latest step that was looked at."""

    def __init__(self, off: list[str], on: int, place: Place | None) -> None:
        self.off = off[:3]
        self.frozen = len(off)
        self.trainable = on
        self.place = place


class RequiresGradFlags(Watch):
    test = "requires_grad_flags"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.flags: dict[int, Flags] = {}
        self.made: dict[int, Place | None] = {}
        self.all_off: tuple[int, Place | None] | None = None

    def optimizer_made(self, event: OptimizerEvent) -> None:
        if len(self.made) < 256:
            self.made[event.number] = event.place

    @when_sampled
    def before_step(self, event: OptimizerEvent) -> None:
        if not event.sampled:
            return
        held = list(held_by(event.optimizer))
        off = [parameter for parameter in held if not parameter.requires_grad]
        names = self.recorder.parameter_names() if off else {}
        shown = [names.get(id(parameter), "") for parameter in off]
        self.flags[event.number] = Flags(shown, len(held) - len(off), self.made.get(event.number))

    def raised(self, event: Raised) -> None:
        """Backward found nothing to differentiate: is it because everything is switched off?"""
        if event.during == "backward" and NO_GRAPH in event.error:
            held = [p for _, model in self.recorder.live_models() for p in model.parameters()]
            if held and not any(parameter.requires_grad for parameter in held):
                self.all_off = (len(held), event.place)

    def read(self) -> Answer:
        if self.all_off is not None:
            return Saw("frozen", frozen=self.all_off[0], trainable=0).at(self.all_off[1])
        if not self.flags:
            return Unclear("no optimiser step was seen")
        worst = max(self.flags.values(), key=lambda held: (held.frozen and not held.trainable, held.frozen))
        if worst.frozen:
            named = Place(parameter=worst.off[0]) if worst.off[0] else None
            return Saw("frozen", frozen=worst.frozen, trainable=worst.trainable).at(worst.place, named)
        return Saw("trainable", trainable=sum(held.trainable for held in self.flags.values()))
