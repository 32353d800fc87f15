"""Follows random numbers that a script puts on its batches outside of the model, and what would be there without them.

A value that is made of data and of drawn numbers stands for the data that it was made of, as long as both have one
shape. What is picked by drawn numbers (a batch by its indices) is data like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from clew.records.place import Place

SOURCES = frozenset(
    "rand randn randint randperm rand_like randn_like randint_like normal bernoulli poisson multinomial uniform_ "
    "normal_ bernoulli_ random_ exponential_ geometric_ log_normal_ cauchy_ _sample_dirichlet _standard_gamma".split()
)
DISTURBING = frozenset(
    "dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout".split()
)
DRAWING = SOURCES | DISTURBING
PICKING = frozenset("__getitem__ index_select gather take take_along_dim masked_select embedding index".split())


PURE = PICKING | frozenset(
    "add __add__ __radd__ sub __sub__ __rsub__ rsub mul __mul__ __rmul__ multiply subtract div divide true_divide "
    "__truediv__ __rtruediv__ __neg__ neg negative pow __pow__ sqrt exp log log1p abs clamp clip minimum maximum where "
    "mean std var sum amin amax to float double half bfloat16 cpu cuda clone contiguous view reshape flatten unflatten "
    "permute transpose t movedim unsqueeze squeeze expand expand_as repeat stack cat concat hstack vstack chunk flip "
    "roll narrow matmul __matmul__ mm bmm einsum normalize interpolate pad layer_norm tanh sigmoid detach".split()
)
"""What writes nowhere and draws nothing, so that it can be called once more. Anything else is not."""


class Made(NamedTuple):
    """A call outside of the model. `again` makes it once more with other values in the place of some slots."""

    said: str
    uses: tuple[int, ...]
    used: Sequence[Any]
    made: tuple[int, ...]
    results: Sequence[Any]
    again: Callable[[dict[int, Any]], Any]
    place: Place | None


class Draws:
    """`drawn` are the slots whose values depend on random numbers; `plain` holds what would be in some of them."""

    def __init__(self) -> None:
        self.drawn: set[int] = set()
        self.plain: dict[int, Any] = {}
        self.places: dict[int, Place | None] = {}
        self._written: Any = None

    def before(self, said: str, uses: Sequence[int], used: Sequence[Any]) -> None:
        """A call that writes into its first argument takes the data away that it disturbs."""
        self._written = None
        if not self.drawn or not uses or not _writes(said) or uses[0] in self.drawn:
            return
        if any(slot in self.drawn for slot in uses[1:]) or said in SOURCES:
            self._written = used[0].detach().clone()

    def after(self, call: Made) -> None:
        if call.said in SOURCES:
            self._draw(call)
        elif call.said in DISTURBING and call.uses:
            self._stands_for(call, self.plain.get(call.uses[0], call.used[0]))
        elif call.said in PICKING:
            if call.uses and call.uses[0] in self.drawn:
                self._once_more(call)
        elif not self.drawn.isdisjoint(call.uses):
            self._combines(call)

    def _draw(self, call: Made) -> None:
        self.drawn.update(call.made)
        for slot in call.made:
            self.plain.pop(slot, None)

    def _stands_for(self, call: Made, data: Any) -> None:
        self._draw(call)
        if len(call.results) == 1 and _alike(call.results[0], data):
            self.plain[call.made[0]] = data
            self.places[call.made[0]] = call.place

    def _combines(self, call: Made) -> None:
        noise = [slot for slot in call.uses if slot in self.drawn and slot not in self.plain]
        if noise:
            data = [
                self._written if index == 0 and self._written is not None else self.plain.get(slot, tensor)
                for index, (slot, tensor) in enumerate(zip(call.uses, call.used, strict=True))
                if slot not in noise
            ]
            fitting = [held for held in data if _alike(call.results[0], held)]
            self._stands_for(call, next((held for held in fitting if not _even(held)), None))
            return
        self._once_more(call)

    def _once_more(self, call: Made) -> None:
        """The call with undisturbed data in the place of the disturbed."""
        held = {slot: self.plain[slot] for slot in call.uses if slot in self.plain}
        place = next((self.places[slot] for slot in held if slot in self.places), None)
        made = None
        if held and call.said in PURE and len(call.results) == 1:
            with suppress(Exception):  # then it is not known what would be there
                made = call.again(held)
        self._draw(call)
        if made is not None:
            self.plain[call.made[0]] = made
            self.places[call.made[0]] = place


def _writes(said: str) -> bool:
    in_place = said.endswith("_") and not said.endswith("__")
    return in_place or said == "__setitem__" or (said.startswith("__i") and said not in ("__invert__", "__index__"))


def _even(data: Any) -> bool:
    """Whether all entries are equal: what is filled in where a mask says so."""
    return bool((data == data.reshape(-1)[:1]).all())


def _alike(result: Any, data: Any) -> bool:
    return data is not None and data.shape == result.shape and data.dtype == result.dtype
