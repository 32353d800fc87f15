"""Which parameters have requires_grad switched off, and were they ever trained?

Why it matters: a parameter that is off receives no gradient, and an optimiser that holds it skips it without a word.
Layers that are frozen as the constructor drew them stay random for ever: torch draws weights of linear and convolution
layers evenly between two bounds, and trained ones have tails. A table that gives the scores too, and is frozen while
all else trains, leaves the rest to turn answers towards what the table happened to be; Embedding.from_pretrained
freezes by default. A frozen matrix of zeros, such as the second half of an adapter, adds nothing for ever.
Cannot tell: whether the freezing is meant. Fine-tuning and adapters freeze on purpose.
Silent when: the frozen parameters are in no optimiser (feature extractors, targets, averaged copies) and something
else is left to train, unless most of the model, or a table of embeddings, is frozen as it was drawn. Random
projections by their names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from clew.observe.watch import Answer, LossCall, OptimizerEvent, Raised, Saw, Watch, when_sampled
from clew.observe.watches._loss_graph import bare, origin, saved
from clew.observe.watches._network_init import as_drawn, without_structure
from clew.observe.watches._training_values import held_by
from clew.observe.watches.grad_mode_in_training import NO_GRAPH
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    import torch

    from clew.observe.recorder import Recorder

MOST_OF_IT = 0.5
LEAST_TENSORS = 2
LEAST_VALUES = 256
HEADS = 4
FIRST, LATER = 3, 12
KEPT_BESIDE = (
    "mask",
    "mean",
    "var",
    "std",
    "count",
    "stat",
    "pos",
    "bias",
    "center",
    "centre",
    "memory",
    "state",
    "cls",
)
"""Words in the names of what is no weight."""
LEARNED = ("Conv", "LSTM", "GRU", "RNN", "Linear")
ON_PURPOSE = (
    "rand",
    "fourier",
    "proj",
    "feature",
    "target",
    "teacher",
    "momentum",
    "ema",
    "reservoir",
    "prior",
    "hash",
)


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
        self.drawn: tuple[list[str], int, int] | None = None
        self.looks = self.heads_looked = 0
        self.empty: list[str] = []  # frozen matrices of zeros
        self.head: str = ""  # the one frozen matrix, which gives the scores

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
        on = {id(parameter) for parameter in held if parameter.requires_grad}
        self._look_for_drawn(on, {id(parameter) for parameter in off})

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if not event.sampled or not event.grad or self.heads_looked >= HEADS or not isinstance(event.input, Tensor):
            return
        self.heads_looked += 1
        node = origin(event.input)
        factor = saved(node, "mat2") if node is not None and bare(node) in ("Mm", "Addmm") else None
        if factor is None or factor.requires_grad:
            return
        for _, model in self.recorder.live_models():
            named = {name: p for name, p in model.named_parameters() if p.dim() > 1}
            off = [name for name, p in named.items() if not p.requires_grad]
            if len(off) == 1 and len(named) > 2 and named[off[0]].data_ptr() == factor.data_ptr():
                self.head = off[0]

    def _look_for_drawn(self, trained: set[int], given: set[int]) -> None:
        """Once early and once late are enough: drawn weights that are frozen do not change."""
        self.looks += 1
        if self.looks not in (FIRST, LATER):
            return
        self.drawn, self.empty = None, []
        for _, model in self.recorder.live_models():
            named = {name: p for name, p in model.named_parameters() if p.dim() > 1}
            ends = {_end(name, p) for name, p in named.items() if id(p) in trained}
            off = {name: p for name, p in named.items() if not p.requires_grad and _end(name, p) not in ends}
            layers = [name for name in _layers(model, given) if ends and name in off and _drawn_layer(off[name])]
            if layers:
                self.drawn = (layers, len(off), len(named))
                return
            empty = [name for name, p in off.items() if _empty(name, p)] if ends and self.looks > FIRST else []
            if empty:
                self.empty = empty
                return
            if not ends or len(off) < LEAST_TENSORS:
                continue
            if sum(p.numel() for p in off.values()) < MOST_OF_IT * sum(p.numel() for p in named.values()):
                continue
            drawn = [name for name, p in off.items() if as_drawn(p)]
            if len(drawn) >= max(LEAST_TENSORS, len(off) / 2):
                self.drawn = (drawn, len(off), len(named))

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
        if self.drawn is not None:
            names, off, whole = self.drawn
            says = (
                f"{off} of {whole} weight matrices are frozen, and {len(names)} of them still have their "
                "initial values: they were neither trained nor loaded."
            )
            made = next((held.place for held in self.flags.values() if held.place is not None), None)
            held = Saw("frozen_as_drawn", frozen=off, as_drawn=len(names), matrices=whole)
            return held.at(Place(parameter=names[0]), made).saying(says)
        if self.empty:
            says = (
                f"{len(self.empty)} frozen weight matrices are all zero, for example {self.empty[0]}: the "
                "layers they were added for never learn."
            )
            made = next((held.place for held in self.flags.values() if held.place is not None), None)
            held = Saw("frozen_as_drawn", frozen=len(self.empty), as_drawn=len(self.empty))
            return held.at(Place(parameter=self.empty[0]), made).saying(says)
        if self.head:
            says = f"{self.head} produces the scores and is frozen, while everything else trains."
            return Saw("frozen_head", frozen=1).at(Place(parameter=self.head)).saying(says)
        worst = max(self.flags.values(), key=lambda held: (held.frozen and not held.trainable, held.frozen))
        if worst.frozen:
            named = Place(parameter=worst.off[0]) if worst.off[0] else None
            return Saw("frozen", frozen=worst.frozen, trainable=worst.trainable).at(worst.place, named)
        return Saw("trainable", trainable=sum(held.trainable for held in self.flags.values()))


def _layers(model: torch.nn.Module, given: set[int]) -> list[str]:
    """Layers that mean nothing until they are learned, by the name of their weights: embeddings, and others where the
    optimiser was given what it cannot train. Projections may be random on purpose; names often say so."""
    found = []
    for name, held in model.named_modules():
        kind = type(held).__name__
        learned = kind.startswith(LEARNED) and not any(word in name.lower() for word in ON_PURPOSE)
        for weight, parameter in held._parameters.items():
            if parameter is not None and (kind.startswith("Embedding") or (learned and id(parameter) in given)):
                found.append(f"{name}.{weight}" if name else weight)
    return found


def _empty(name: str, weight: torch.Tensor) -> bool:
    """A matrix of zeros is a start, as in adapters; buffers that are kept as parameters say so by their names."""
    if weight.numel() < LEAST_VALUES // 4 or any(word in name.lower() for word in (*ON_PURPOSE, *KEPT_BESIDE)):
        return False
    return not bool(weight.detach().any())


def _drawn_layer(weight: torch.Tensor) -> bool:
    return weight.dim() > 1 and weight.numel() >= LEAST_VALUES and as_drawn(weight) and without_structure(weight)


def _end(name: str, parameter: torch.Tensor) -> tuple[str, torch.Size]:
    """By which a copy beside the original (a target, a teacher, an average) is known: the last names, and the shape."""
    return ".".join(name.split(".")[-2:]), parameter.shape
