"""Does the loss depend, through autograd, on every trainable parameter?

Looks at the gradients after backward and before a step, and where there are none at the graph of the loss itself, over
all sampled steps and all losses together. A loss function that is given a copy of the model's output without its graph
counts as cut off when nothing else that backward runs on holds the output either, whatever a penalty adds to it. Where
a loss is taken of what unreached parameters give, its result was dropped or written over. On the first steps, what was
chosen by the scores of one part (the nearest code) and handed to the next is followed back: where no gradient goes past
the choice, and another term draws the part to what it chose, only that term trains it. The same is asked of a Gaussian
code and what is rebuilt from it.

Why it matters: optimisers skip parameters without a gradient silently, so whatever lies behind a detach, an item or a
re-wrapped tensor stays as it was initialised.
Cannot tell: a path that carries only zeros; a branch that was detached by accident from one detached on purpose, where
another loss still reaches it.
Silent when: the parameters are frozen, no optimiser holds them (target and EMA networks), or another loss of the run
reaches them (two players, stop-gradient).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from clew.observe.watch import (
    Answer,
    Backward,
    Forward,
    LossCall,
    ModuleCall,
    OptimizerEvent,
    Raised,
    Saw,
    when_sampled,
)
from clew.observe.watches._loss_code import code_cut_off
from clew.observe.watches._loss_cut import CutOff
from clew.observe.watches._loss_graph import parameters_under
from clew.observe.watches._network_handed import HandedOn
from clew.observe.watches._reach import Reach, is_prototype, where_made
from clew.records.clue import Unclear

if TYPE_CHECKING:
    import torch

    from clew.records.place import Place

SETTLED = 2
"""Steps of an optimiser after which a parameter without a gradient is no matter of a branch not taken yet."""
SHOWN = 5
MODULES = 10_000
CODES = 3
"""Looks at a loss that holds the divergence of a code."""
ENOUGH, DROPPED = 3, 8
"""Calls of a loss function whose result is dropped: how many tell, and after how many nobody looks any more."""


class LossReachesParameters(Reach):
    test = "loss_reaches_parameters"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.backwards = 0
        self.cut_off = CutOff()
        self.handed = HandedOn()
        self.place: Place | None = None
        self.trained = self.frozen = False
        self.without_graph: Place | None = None
        self.grad_mode = True
        self.missing: dict[int, tuple[int, int, list[Place]]] = {}
        self.lost: dict[int, set[int]] = {}  # by optimiser: the tensors behind that
        self.called: set[str] = set()
        self.used = False  # whether a module that holds one of them was called at all
        self.codes: list[bool] = []  # whether a code was cut off from what is rebuilt of it
        self.code_at: Place | None = None
        self.dropped: Counter[tuple[str, Place | None]] = Counter()  # losses taken of those

    def module(self, event: ModuleCall) -> None:
        self.handed.module(event)
        if len(self.called) < MODULES:
            self.called.add(event.name)

    def forward(self, event: Forward) -> None:
        self.handed.forward(event)
        self.grad_mode = event.grad
        self.cut_off.forward(event)

    @when_sampled
    def loss(self, event: LossCall) -> None:
        self.cut_off.loss(event)
        lost = {mark for held in self.lost.values() for mark in held}
        if lost and event.sampled and event.grad and event.result.grad_fn is not None and self._looks():
            under: set[int] = set()
            parameters_under([event.result], lambda leaf: under.add(id(leaf)))
            if under & lost:
                self.dropped[event.name, event.place] += 1

    def _looks(self) -> bool:
        return self.dropped.total() < DROPPED

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        if event.sampled:
            self.cut_off.before_backward(event)
            if len(self.codes) < CODES and event.step < SETTLED + 2 * CODES:
                cut = code_cut_off(event.loss)
                self.codes += [cut] if cut is not None else []
                self.code_at = event.place

    @when_sampled
    def after_backward(self, event: Backward) -> None:
        if not event.sampled:
            return
        self.backwards += 1
        self.place = event.place
        leaves = self.trainable()
        self.frozen = self.frozen or not leaves
        self.note_gradients(leaves)
        if leaves and not self.reached.any:
            # Gradients may have been taken without being stored; the graph says whether there is a way at all.
            parameters_under([event.loss], self._told)

    def _told(self, leaf: torch.Tensor) -> None:
        if leaf.requires_grad:
            self.reached.add(leaf)

    @when_sampled
    def before_step(self, event: OptimizerEvent) -> None:
        if not event.sampled:
            return
        leaves = [p for group in event.optimizer.param_groups for p in group["params"] if p.requires_grad]
        self.trained = self.trained or bool(leaves)
        self.note_gradients(leaves)
        self.steps[event.number] = self.steps.get(event.number, 0) + 1
        missing = [leaf for leaf in leaves if leaf not in self.reached]
        if self.steps[event.number] <= SETTLED and missing:
            return
        self.missing[event.number] = self._named(missing, len(leaves))
        self.lost[event.number] = {id(leaf) for leaf in missing} if self.missing[event.number][0] else set()

    def _named(self, missing: list[torch.Tensor], of: int) -> tuple[int, int, list[Place]]:
        places: list[Place] = []
        count = len(missing)
        ids = {id(leaf) for leaf in missing}
        for _, module in self.recorder.live_models() if missing else []:
            for name, parameter in module.named_parameters():
                if id(parameter) in ids:
                    ids.discard(id(parameter))
                    if is_prototype(module, name):
                        count -= 1
                        continue
                    self.used = self.used or name.rpartition(".")[0] in {"", *self.called}
                    if len(places) < SHOWN:
                        places.append(where_made(module, name))
        return count, of, places

    def raised(self, event: Raised) -> None:
        if event.during == "backward" and "does not require grad" in event.error and self.grad_mode:
            self.without_graph = event.place
            self.frozen = not self.trainable()

    def read(self) -> Answer:
        if not self.backwards:
            if self.without_graph is not None and not self.frozen:
                text = "The tensor that backward was called on has no graph, although gradients were enabled."
                return Saw("none", reached=0).at(self.without_graph).saying(text)
            return Unclear("no backward of a loss was seen")
        if not self.reached.any:
            if self.frozen:
                return Unclear("no parameter of the models that were seen is trainable")
            text = "backward ran and gave no parameter a gradient: the loss is detached from all of them."
            return Saw("none", reached=0).at(self.place).saying(text)
        if self.cut_off.found:
            text = (
                "The loss function gets the model's output detached, and nothing else that backward runs on "
                "depends on that output: all gradients come from a penalty."
            )
            return (
                Saw("none", reached=len(self.reached), backwards=self.cut_off.cut).at(self.cut_off.place).saying(text)
            )
        count = sum(missing for missing, _, _ in self.missing.values())
        if count:
            of = sum(total for missing, total, _ in self.missing.values() if missing)
            places = [place for _, _, held in self.missing.values() for place in held]
            text = f"{count} of {of} trainable tensors never get a gradient from any loss."
            if self.dropped.total() >= ENOUGH:
                (name, place), _ = self.dropped.most_common(1)[0]
                says = f"{text} {name} is computed from their output, and no loss that backward runs on uses it."
                return Saw("loss_dropped", missing=count, of=of).at(place, *places[:SHOWN]).saying(says)
            cut = sorted({name for held in self.handed.cut.values() for name in held})
            if cut and self.used:
                says = f"{text} At {', '.join(cut[:3])} their output is detached."
                return Saw("part_cut_off", missing=count, of=of).at(*places[:SHOWN]).saying(says)
            return Saw("some_missing", missing=count, of=of).at(*places[:SHOWN]).saying(text)
        if len(self.codes) == CODES and all(self.codes):
            text = (
                "No gradient of the reconstruction reaches the encoder: only the KL term trains it, towards "
                "a code that carries no information."
            )
            return Saw("part_cut_off", missing=0, of=0).at(self.code_at).saying(text)
        return self._chosen() or Saw("all", reached=len(self.reached))

    def _chosen(self) -> Saw | None:
        found = self.recorder.choice
        if found is None:
            return None
        names = ", ".join(found.lost[:2])
        text = (
            f"The output of {names} and others is only used to choose: no gradient flows back through the "
            "choice, so only the commitment term trains them."
        )
        return Saw("choice_cut_off", missing=len(found.lost)).at(found.chosen, found.pulled, found.given).saying(text)
