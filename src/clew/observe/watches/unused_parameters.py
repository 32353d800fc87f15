"""Are there parameters on which no output depends?

Follows the graphs of the model's outputs to the parameters they end in, over all sampled training passes, and notes
which modules were called. A parameter that no output and no gradient ever reached is unused when its module was never
called, or was called and nothing read what it gave out.

Why it matters: the part that was meant to do the work is missing from the computation, and the rest makes up for it.
Cannot tell: parts kept on purpose; an expert or branch that no batch has chosen so far.
Silent when: the module was called and its result went on without its graph (loss_reaches_parameters tells that), the
parameters are frozen or in no optimiser, an output depends on them though the loss does not (a pooler), a transformer
layer served only as the pattern for a stack of copies, the part is only called under a condition (another setting of
the same class) or was made again inside a part beside it, or it makes what only the last of several alike blocks gives
out for nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from clew.observe.watch import Answer, Backward, Forward, ModuleCall, OptimizerEvent, Saw, when_sampled
from clew.observe.watches._loss_graph import parameters_under
from clew.observe.watches._network_handed import HandedOn
from clew.observe.watches._network_spare import by_product, for_another_setting, made_again_inside
from clew.observe.watches._reach import Leaves, Reach, is_prototype, where_made
from clew.observe.watches._where import use_place
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clew.records.place import Place

SETTLED = 2
SHOWN = 5


class UnusedParameters(Reach):
    test = "unused_parameters"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.called: dict[int, set[str]] = {}
        self.whole: set[int] = set()
        self.forwards = 0
        self.unused: dict[tuple[int, int], tuple[int, list[Place]]] = {}
        self.too_large = False
        self.handed = HandedOn()
        self.dropped = 0

    def module(self, event: ModuleCall) -> None:
        self.called.setdefault(event.model, set()).add(event.name)
        self.handed.module(event)

    def forward(self, event: Forward) -> None:
        self.handed.forward(event)
        if not event.grad:
            return
        self.forwards += 1
        if event.model in self.whole:
            return
        if not parameters_under(list(_tensors(event.output)), self.reached.add):
            self.too_large = True
        if all(p in self.reached for p in event.module.parameters() if p.requires_grad):
            self.whole.add(event.model)

    @when_sampled
    def after_backward(self, event: Backward) -> None:
        if event.sampled:
            for number, module in self.recorder.live_models():
                if number not in self.whole:
                    self.note_gradients(module.parameters())

    @when_sampled
    def before_step(self, event: OptimizerEvent) -> None:
        if not event.sampled:
            return
        steps = self.steps[event.number] = self.steps.get(event.number, 0) + 1
        trained = Leaves()
        for group in event.optimizer.param_groups:
            for leaf in group["params"]:
                trained.add(leaf)
        if steps > SETTLED:
            for number, module in self.recorder.live_models():
                whole = number in self.whole
                found = (0, []) if whole else self._unused(number, module, trained)
                self.unused[event.number, number] = found

    def _unused(self, number: int, module: torch.nn.Module, trained: Leaves) -> tuple[int, list[Place]]:
        left = [
            (name, parameter)
            for name, parameter in module.named_parameters()
            if parameter.requires_grad and parameter in trained and parameter not in self.reached
        ]
        called = self.called.get(number, set())
        dropped = {name for name, _ in left if self._owner(name) in called and self._is_leaf(module, name)}
        # A parameter outside of all layers is not reached either: what was computed with both may have been cut off.
        # Where it belongs to a part whose own result nobody read, that is the reason.
        thrown = {owner for name, _ in left if (owner := self._owner(name)) in called and self._thrown(number, owner)}
        mixed = any(not self._is_leaf(module, name) and self._owner(name) not in thrown for name, _ in left)
        cut = {name for name in dropped if mixed or not self.handed.dropped(number, self._owner(name))}
        found = [name for name, _ in left if not self._taken_part(module, name, cut)]
        found = [name for name in found if not is_prototype(module, name)]
        found = [name for name in found if not self._left_over(module, name, called, dropped - cut)]
        self.dropped = len(dropped - cut)
        if len(left) == sum(1 for p in module.parameters() if p.requires_grad):
            return 0, []  # a model no loss has anything to do with is another matter
        return len(found), [_place(module, name) for name in found[:SHOWN]]

    def _thrown(self, number: int, part: str) -> bool:
        return bool(part) and self.handed.dropped(number, part)

    def _left_over(self, module: torch.nn.Module, name: str, called: set[str], dropped: set[str]) -> bool:
        if name in dropped:
            return by_product(module, name, lambda parameter: parameter in self.reached)
        left = self._owner(name) not in called
        return left and (for_another_setting(module, name, called) or made_again_inside(module, name, called))

    def _taken_part(self, module: torch.nn.Module, name: str, cut: set[str]) -> bool:
        # A module that holds others may use its own parameters or not; only where nothing was cut is it clear.
        return name in cut if self._is_leaf(module, name) else bool(cut)

    def _owner(self, name: str) -> str:
        return name.rpartition(".")[0]

    def _is_leaf(self, module: torch.nn.Module, name: str) -> bool:
        owner = module.get_submodule(self._owner(name))
        lists = (torch.nn.ParameterList, torch.nn.ParameterDict)
        return not isinstance(owner, lists) and next(owner.children(), None) is None

    def read(self) -> Answer:
        count = sum(held for held, _ in self.unused.values())
        if not self.forwards:
            return Unclear("no training pass of a model was seen")
        if count and not self.too_large:
            places = [place for _, held in self.unused.values() for place in held]
            names = ", ".join(str(place.parameter) for place in places[:3])
            more = f" and {count - 3} more" if count > 3 else ""
            how = "nothing uses the output of their modules" if self.dropped else "their modules were never called"
            text = f"No output depends on {names}{more}, and {how}."
            return Saw("unused", tensors=count).at(*places[:SHOWN]).saying(text)
        if not self.unused and len(self.whole) < len(self.recorder.models):
            return Unclear("too few steps were seen to call a parameter unused")
        if count:
            return Unclear("the graphs of the outputs are too large to trace")
        return Saw("none", models=len(self.recorder.models))


def _tensors(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """The tensors in what a model gave out. Nothing is iterated that iterating could use up."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 6:
        if isinstance(value, dict):
            held = list(value.values())
        elif isinstance(value, list | tuple):
            held = list(value)
        else:
            held = list(vars(value).values()) if hasattr(value, "__dict__") else []
        for part in held[:64]:
            yield from _tensors(part, depth + 1)


def _place(module: torch.nn.Module, name: str) -> Place:
    """Of a list of layers, the line that goes through it and leaves some out; else where the parameter was made."""
    listed = any(part.isdigit() for part in name.split("."))
    return (use_place(module, name) if listed else None) or where_made(module, name)
