"""Does the model use layers or parameters that it does not register?

On the first backward passes, follows the graph of the loss to the tensors that it ends in. Those that no called model
yields from parameters() and no optimiser holds are then looked for in plain lists, dicts and attributes of the models,
and among what was made anew since the last pass.

Why it matters: parameters(), to(), eval() and state_dict() pass such layers by; they stay as they were initialised.
Cannot tell: weights kept outside on purpose and changed by hand, without an optimiser.
Silent when: an optimiser holds them, they are frozen, they have the shape of an input (adversarial noise), or the
hidden module was put in eval mode on purpose, as a teacher or a network that measures perceptual distance is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from clew.observe.watch import Answer, Backward, Forward, Saw, Watch, when_sampled
from clew.observe.watches._loss_graph import parameters_under
from clew.observe.watches._reach import Leaves, where_made
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSES = 6
DEEP = 4
ITEMS = 10_000
OWN = frozenset(vars(nn.Module()))


class RegisteredModules(Watch):
    test = "registered_modules"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.passes = 0
        self.reached = 0
        self.sharded = False
        self.found: dict[str, Place] = {}
        self.fresh = Leaves()
        self.fresh_shapes: dict[tuple[int, ...], int] = {}
        self.given: set[tuple[int, ...]] = set()
        self.place: Place | None = None

    def forward(self, event: Forward) -> None:
        if self.passes < PASSES:
            self.place = event.place or self.place
            shapes = {tuple(value.shape) for value in event.inputs if isinstance(value, torch.Tensor)}
            self.given = shapes | (self.given if len(self.given) < 64 else set())

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        if not event.sampled or self.passes >= PASSES or self.sharded or event.loss.grad_fn is None:
            return
        self.passes += 1
        leaves: list[torch.Tensor] = []
        parameters_under([event.loss], leaves.append)
        self.reached += len(leaves)
        held = self._held()
        lost = [leaf for leaf in leaves if leaf.requires_grad and leaf.is_leaf and id(leaf) not in held]
        if not lost:
            return
        models = [model for _, model in self.recorder.live_models()]
        # Fully sharded training swaps parameters for whole ones during the passes.
        self.sharded = any("FSDP" in type(part).__name__ for model in models for part in model.modules())
        if not self.sharded and self.recorder.optimizers:
            self._name({id(leaf): leaf for leaf in lost}, models)

    def _held(self) -> set[int]:
        held = {id(p) for _, model in self.recorder.live_models() for p in model.parameters()}
        for _, optimizer in self.recorder.live_optimizers():
            held |= {id(p) for group in optimizer.param_groups for p in group["params"]}
        return held

    def _name(self, lost: dict[int, torch.Tensor], models: list[nn.Module]) -> None:
        for model in models:
            for prefix, part in model.named_modules():
                for attribute, path, leaf in hidden(part):
                    if lost.pop(id(leaf), None) is None:
                        continue
                    place = where_made(part, attribute)
                    name = ".".join(word for word in (prefix, path) if word)
                    self.found.setdefault(name, place._replace(parameter=name))
        for leaf in lost.values():
            if isinstance(leaf, nn.Parameter) and leaf.dim() > 1 and tuple(leaf.shape) not in self.given:
                self._note_fresh(leaf)

    def _note_fresh(self, leaf: nn.Parameter) -> None:
        """A parameter of nobody, on every pass another one of the same shape: a layer made inside forward."""
        if leaf not in self.fresh:
            self.fresh.add(leaf)
            shape = tuple(leaf.shape)
            if shape in self.fresh_shapes or len(self.fresh_shapes) < 64:
                self.fresh_shapes[shape] = self.fresh_shapes.get(shape, 0) + 1

    def read(self) -> Answer:
        if not self.passes:
            return Unclear("no backward pass was seen")
        if self.sharded:
            return Unclear("the parameters are sharded, so they cannot be matched with those of the model")
        if self.found:
            names = list(self.found)
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            text = f"The loss depends on {', '.join(names[:3])}{more}, which neither the model nor the optimiser holds."
            return Saw("unregistered", tensors=len(names)).at(*list(self.found.values())[:5]).saying(text)
        remade = [shape for shape, count in self.fresh_shapes.items() if count >= 3]
        if remade:
            text = f"Parameters of shape {remade[0]} are created in every forward pass, so they are never trained."
            return Saw("unregistered", tensors=len(remade)).at(self.place).saying(text)
        return Saw("all", tensors=self.reached)


def hidden(part: nn.Module) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Trainable tensors that a module holds without registering them: attribute, path and tensor."""
    left = [ITEMS]
    for attribute, value in list(vars(part).items()):
        if attribute not in OWN:
            for path, leaf in _inside(value, attribute, DEEP, left):
                yield attribute, path, leaf


def _inside(value: Any, path: str, deep: int, left: list[int]) -> Iterator[tuple[str, torch.Tensor]]:
    left[0] -= 1
    if left[0] < 0 or deep < 0:
        return
    if isinstance(value, torch.Tensor):
        if value.is_leaf and value.requires_grad:
            yield path, value
        elif not value.is_leaf and value.grad_fn is not None:
            for fed, _ in value.grad_fn.next_functions:  # nn.Parameter(x).to(device) is no parameter any more
                leaf = getattr(fed, "variable", None)
                if isinstance(leaf, nn.Parameter):
                    yield path, leaf
    elif isinstance(value, nn.Module):
        if value.training:
            yield from ((f"{path}.{name}", leaf) for name, leaf in value.named_parameters())
    elif isinstance(value, dict):
        for key, item in list(value.items()):
            yield from _inside(item, f"{path}[{key!r}]", deep - 1, left)
    elif isinstance(value, list | tuple | set | frozenset):
        for at, item in enumerate(list(value)):
            yield from _inside(item, f"{path}[{at}]", deep - 1, left)
    elif hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value):
        for name, item in list(vars(value).items()):
            yield from _inside(item, f"{path}.{name}", deep - 2, left)
