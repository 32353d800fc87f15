"""The raw record of torch calls between two optimiser steps, from which tapes are cut.

Values that a call made are known by weak reference, so that nothing lives longer than the script lets it. Only what
enters from outside (batches, targets, constants) is held until the step is over.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from clew.observe.drawn import DRAWING, Draws, Made
from clew.records.place import Place
from clew.tape.coding import Unencodable, decode, encode
from clew.tape.model import Under
from clew.tape.names import name_of, short

MOST_CALLS = 20_000
INTO_PYTHON = frozenset({"item", "tolist", "numpy", "__array__", "__float__", "__int__", "__index__", "__bool__"})
OUTWARD = frozenset({"backward", "retain_grad", "register_hook"})


class Raw(NamedTuple):
    """One call as it was made. `root` is which call of an outermost module it was part of, -1 for none; `trained` is
    whether its result takes part in the gradient."""

    function: str  # empty when it cannot be called again
    said: str
    args: Any
    kwargs: Any
    uses: tuple[int, ...]
    made: tuple[int, ...]
    under: Under
    place: Place | None
    module: str
    root: int
    trained: bool


class Held(NamedTuple):
    tensor: Any
    version: int


class Roll:
    """All calls since the last step. `where()` gives the place, the module's path and the number of the outermost
    call that is under way."""

    def __init__(self, torch: Any, where: Callable[[], tuple[Place | None, str, int]]) -> None:
        self.torch = torch
        self.where = where
        self.clear()

    def clear(self) -> None:
        self.calls: list[Raw] = []
        self.held: dict[int, Held] = {}
        self.left: dict[str, int] = {}
        self.full = False
        self.draws = Draws()
        self._slots: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._inner: set[int] = set()
        self._trained: set[int] = set()
        self._next = 0

    # --- slots

    def slot(self, tensor: Any) -> int:
        found = self.find(tensor)
        if found is None:
            found = self._next
            self._next += 1
            self._slots[id(tensor)] = (weakref.ref(tensor), found)
        return found

    def find(self, tensor: Any) -> int | None:
        held = self._slots.get(id(tensor))
        return held[1] if held is not None and held[0]() is tensor else None

    def tensor(self, slot: int) -> Any:
        held = self.held.get(slot)
        return held.tensor if held is not None else None

    # --- calls

    def before(self, function: Any, args: Any, kwargs: Any) -> tuple[Any, Any, list[Any], str] | None:
        """What the call is given, read before it can change it."""
        used: list[Any] = []

        def slot(tensor: Any) -> int:
            used.append(tensor)
            return self.slot(tensor)

        try:
            given = encode(list(args), slot), encode(kwargs, slot), used, ""
        except Unencodable as error:
            given = None, None, used, f"takes a {error}"
        if self.draws.drawn:
            self.draws.before(_said(function), [self.slot(tensor) for tensor in used], used)
        return given

    def after(self, function: Any, given: tuple[Any, Any, list[Any], str], result: Any) -> None:
        args, kwargs, used, odd = given
        name, said = name_of(function), _said(function)
        if said in OUTWARD:
            return
        results = list(tensors(result, self.torch))
        if not results and said == "__setitem__":
            results = used[:1]
        if not results:
            if said in INTO_PYTHON and used:
                self._leaves(said, used[0])
            return
        if len(self.calls) >= MOST_CALLS:
            self.full = True
            return
        place, module, root = self.where()
        trained = any(tensor.requires_grad for tensor in results) and self.torch.is_grad_enabled()
        inner = trained or root >= 0
        uses = tuple(self.slot(tensor) for tensor in used)
        if inner:
            for slot, tensor in zip(uses, used, strict=True):
                if slot not in self._inner and slot not in self.held:
                    self.held[slot] = Held(tensor, _version(tensor))
                elif slot in self._inner and slot not in self._trained and (node := _was(tensor, results)) is not None:
                    self._custom(slot, node)
        made = tuple(self.slot(tensor) for tensor in results)
        if not inner and not odd and (self.draws.drawn or said in DRAWING):
            again = partial(self._again, function, args, kwargs, dict(zip(uses, used, strict=True)))
            self.draws.after(Made(said, uses, used, made, results, again, place))
        if trained:
            self._trained.update(made)
        if inner:
            self._inner.update(made)
        elif not set(made) & set(uses):
            self._inner.difference_update(made)
        call = Raw(
            "" if odd or name is None else name,
            said,
            args,
            kwargs,
            uses,
            made,
            self._under(),
            place,
            module,
            root,
            trained,
        )
        self.calls.append(call)

    def _again(self, function: Any, args: Any, kwargs: Any, own: dict[int, Any], other: dict[int, Any]) -> Any:
        """The result of a call with other values in the place of some of its own."""
        held = {**own, **other}
        device = next((tensor.device for tensor in own.values()), None)
        given = decode([args, kwargs], held.__getitem__, device, int)
        if given[1].get("out") is not None or given[1].get("inplace"):
            raise ValueError("a call that writes to its arguments is not repeated")
        with self.torch.no_grad():
            return function(*given[0], **given[1])

    def _custom(self, slot: int, node: Any) -> None:
        """A value got a gradient of its own making: it came out of an autograd function that the user wrote."""
        self._trained.add(slot)
        name = type(node).__name__.removesuffix("Backward")
        place, module, root = self.where()
        self.calls.append(
            Raw("", f"the autograd function {name}", None, None, (), (slot,), self._under(), place, module, root, True)
        )

    def changed(self, slot: int) -> bool:
        """Whether a value from outside was written to after it was used."""
        held = self.held[slot]
        return _version(held.tensor) != held.version

    def _leaves(self, said: str, tensor: Any) -> None:
        slot = self.find(tensor)
        if slot is not None and slot in self._inner:
            place, _, _ = self.where()
            said = said.strip("_")
            self.left[
                f"{place or 'somewhere'} reads a value into Python ({said}); replays use that value as a constant"
            ] = slot

    def _under(self) -> Under:
        torch = self.torch
        grad = torch.is_grad_enabled()
        for device in ("cuda", "cpu"):
            if torch.is_autocast_enabled(device):
                return Under(grad, (device, str(torch.get_autocast_dtype(device)).removeprefix("torch.")))
        return Under(grad)


def _said(function: Any) -> str:
    name = name_of(function)
    return short(name) if name else getattr(function, "__name__", "a call")


def tensors(value: Any, torch: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item, torch)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item, torch)


def _was(tensor: Any, results: list[Any]) -> Any:
    """What a value came from before the call: one that was written to in place has the call itself in front."""
    node = tensor.grad_fn
    if node is not None and any(tensor is result for result in results):
        return node.next_functions[0][0] if node.next_functions else None
    return node


def _version(tensor: Any) -> int:
    return 0 if tensor.is_inference() else int(tensor._version)
