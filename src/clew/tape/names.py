"""The torch functions that can stand on a tape, by name and back.

A name is the place where everybody finds the function: `Tensor.add`, `nn.functional.relu`, `conv2d`, `Tensor.T` for an
attribute. Functions that clew has replaced are known by what they replace.
"""

from __future__ import annotations

import functools
from typing import Any

SPACES = (
    "Tensor",
    "nn.functional",
    "",
    "functional",
    "_C._nn",
    "_C._linalg",
    "_C._fft",
    "_C._special",
    "autograd",
    "_VF",
)
ATTRIBUTES = ("T", "mT", "H", "mH", "real", "imag", "data")


@functools.cache
def tables() -> tuple[dict[Any, str], dict[str, Any]]:
    import torch

    by_function: dict[Any, str] = {}
    by_name: dict[str, Any] = {}
    for space in SPACES:
        owner: Any = torch
        for part in space.split(".") if space else ():
            owner = getattr(owner, part)
        for name in dir(owner):
            if name.startswith("__") and space != "Tensor":
                continue
            value = getattr(owner, name, None)
            if not callable(value) or isinstance(value, type):
                continue
            full = f"{space}.{name}" if space else name
            by_name.setdefault(full, value)
            while value is not None:
                try:
                    by_function.setdefault(value, full)
                except TypeError:
                    break
                value = getattr(value, "__wrapped__", None)
    return by_function, by_name


def name_of(function: Any) -> str | None:
    """The name of a function on a tape, None when it has none there."""
    if getattr(function, "__name__", "") == "__get__":
        name = getattr(function.__self__, "__name__", "")
        return f"Tensor.{name}" if name in ATTRIBUTES else None
    try:
        return tables()[0].get(function)
    except TypeError:
        return None


def function_of(name: str) -> Any:
    """The function behind a name; None when this torch has it not."""
    space, _, last = name.rpartition(".")
    if space == "Tensor" and last in ATTRIBUTES:
        return lambda tensor: getattr(tensor, last)
    return tables()[1].get(name)


def short(name: str) -> str:
    """`nn.functional.relu` as people say it."""
    return name.rpartition(".")[2]
