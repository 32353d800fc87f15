"""Arguments of torch calls as plain JSON values, and back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from clew.errors import ClewError


class Unencodable(Exception):
    """An argument that is no value: it names its type."""


def encode(value: Any, slot: Callable[[Any], int]) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return {"t": slot(value)}
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, list):
        return [encode(item, slot) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [encode(item, slot) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[encode(key, slot), encode(item, slot)] for key, item in value.items()]}
    if isinstance(value, slice):
        return {"slice": [encode(item, slot) for item in (value.start, value.stop, value.step)]}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": value.type}
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a number of numpy's
        return encode(value.item(), slot)
    raise Unencodable(type(value).__name__)


def decode(value: Any, tensor: Callable[[int], Any], device: Any, number: Callable[[int], int]) -> Any:
    """`number` may put another number in the place of one: a batch size."""
    if isinstance(value, list):
        return [decode(item, tensor, device, number) for item in value]
    if type(value) is int:
        return number(value)
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind == "t":
        return tensor(held)
    if kind == "tuple":
        return tuple(decode(item, tensor, device, number) for item in held)
    if kind == "dict":
        return {decode(key, tensor, device, number): decode(item, tensor, device, number) for key, item in held}
    if kind == "slice":
        return slice(*(decode(item, tensor, device, number) for item in held))
    if kind == "ellipsis":
        return Ellipsis
    if kind == "complex":
        return complex(*held)
    if kind == "torch":
        return constant(held)
    if kind == "device":
        return device
    raise ClewError(f"the tape holds an argument of unknown kind {kind!r}.")


@functools.cache
def _constants() -> dict[str, Any]:
    import torch

    kinds = torch.dtype | torch.memory_format | torch.layout
    return {name: value for name, value in vars(torch).items() if isinstance(value, kinds)}


def constant(name: Any) -> Any:
    """A dtype, layout or memory format by its name in torch."""
    held = _constants().get(name)
    if held is None:
        raise ClewError(f"the tape names {name!r}, which is no dtype, layout or memory format of torch.")
    return held


def slots_in(value: Any) -> list[int]:
    """The slots of the tensors in an encoded argument."""
    if isinstance(value, list):
        return [slot for item in value for slot in slots_in(item)]
    if isinstance(value, dict):
        ((kind, held),) = value.items()
        if kind == "t":
            return [held]
        if kind in ("tuple", "slice"):
            return slots_in(held)
        if kind == "dict":
            return [slot for pair in held for slot in slots_in(pair)]
    return []
