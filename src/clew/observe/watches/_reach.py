"""Which parameters gradients get to: what two watches share.

A parameter counts as reached once it has a `.grad` after a backward or before a step, whatever way it got there, or
once a graph was seen to end in it. Optimisers say which parameters are meant to be trained.
"""

from __future__ import annotations

import linecache
import re
import weakref
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.places import is_users, shown
from clew.observe.watch import Watch
from clew.records.place import Place

if TYPE_CHECKING:
    from collections.abc import Iterable


class Leaves:
    """A set of tensors that keeps none of them alive."""

    def __init__(self) -> None:
        self._held: dict[int, weakref.ref[torch.Tensor]] = {}
        self.any = False
        self._crowded = 4096

    def add(self, leaf: torch.Tensor) -> None:
        held = self._held.get(id(leaf))
        if held is None or held() is not leaf:
            self._held[id(leaf)] = weakref.ref(leaf)
            self.any = True
            if len(self._held) >= self._crowded:
                self._held = {mark: ref for mark, ref in self._held.items() if ref() is not None}
                self._crowded = max(4096, 2 * len(self._held))

    def __contains__(self, leaf: torch.Tensor) -> bool:
        held = self._held.get(id(leaf))
        return held is not None and held() is leaf

    def __len__(self) -> int:
        return len(self._held)


class Reach(Watch):
    """Keeps what was reached; `test` is left to those that answer with it."""

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.reached = Leaves()
        self.steps: dict[int, int] = {}

    def note_gradients(self, leaves: Iterable[torch.Tensor]) -> None:
        for leaf in leaves:
            if leaf.grad is not None:
                self.reached.add(leaf)

    def trainable(self) -> list[torch.Tensor]:
        """What the optimisers hold and may change; where there is no optimiser, the parameters of the models."""
        held = [
            leaf
            for _, optimizer in self.recorder.live_optimizers()
            for group in optimizer.param_groups
            for leaf in group["params"]
        ]
        if not held:
            held = [leaf for _, module in self.recorder.live_models() for leaf in module.parameters()]
        return [leaf for leaf in {id(leaf): leaf for leaf in held}.values() if leaf.requires_grad]


def is_prototype(model: torch.nn.Module, name: str) -> bool:
    """Whether a parameter belongs to a transformer layer that was only given to nn.TransformerEncoder or -Decoder to be
    copied, and was then kept as an attribute."""
    kinds = (torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer)
    stacks = (torch.nn.TransformerEncoder, torch.nn.TransformerDecoder)
    path = name.split(".")
    for length in range(1, len(path)):
        if isinstance(_part(model, path[:length]), kinds):
            inside = any(isinstance(_part(model, path[:short]), stacks) for short in range(length))
            return not inside and any(isinstance(part, stacks) for part in model.modules())
    return False


def where_made(model: torch.nn.Module, name: str) -> Place:
    """The line of the user's __init__ that makes the module or parameter of this name, as far as it can be found."""
    path = name.split(".")
    for length in range(len(path) - 1, -1, -1):
        owner = _part(model, path[:length])
        code = getattr(getattr(type(owner), "__init__", None), "__code__", None)
        if code is None or not is_users(code.co_filename):
            continue
        wanted = re.compile(rf"\bself\.{re.escape(path[length])}\b\s*(:[^=]+)?=[^=]")
        last = max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)
        for line in range(code.co_firstlineno, last + 1):
            if wanted.search(linecache.getline(code.co_filename, line)):
                return Place(shown(code.co_filename), line, parameter=name)
        return Place(shown(code.co_filename), code.co_firstlineno, parameter=name)
    return Place(parameter=name)


def _part(model: torch.nn.Module, path: list[str]) -> Any:
    part: Any = model
    for attribute in path:
        part = getattr(part, attribute, None)
    return part
