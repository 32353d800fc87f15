"""The torch functions that can stand on a tape, by name and back.

A name is the place where everybody finds the function: `Tensor.add`, `nn.functional.relu`, `conv2d`, `Tensor.T` for an
attribute. Functions that clew has replaced are known by what they replace. A tape may come from somebody else, so
`operations.txt` lists what may be called: torch's operations on tensors, and nothing that reads files, imports or
takes a function.
"""

from __future__ import annotations

import functools
import os
import re
from typing import Any

from clew.errors import ClewError

ATTRIBUTES = ("T", "mT", "H", "mH", "real", "imag", "data")


@functools.cache
def operations() -> dict[str, list[str]]:
    """The names that are allowed, by where in torch they stand; torch itself is ""."""
    with open(os.path.join(os.path.dirname(__file__), "operations.txt"), encoding="ascii") as file:
        held = re.findall(r"^(\S+):((?:\s+\w+)+)$", file.read(), re.MULTILINE)
    return {"" if space == "torch" else space: names.split() for space, names in held}


@functools.cache
def tables() -> tuple[dict[Any, str], dict[str, Any]]:
    import torch

    by_function: dict[Any, str] = {}
    by_name: dict[str, Any] = {}
    for space, names in operations().items():
        owner: Any = torch
        for part in space.split(".") if space else ():
            owner = getattr(owner, part)
        for name in names:
            value = getattr(owner, name, None)
            full = f"{space}.{name}" if space else name
            by_name[full] = value
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
    by_name = tables()[1]
    if name not in by_name:
        raise ClewError(f"the tape calls {name!r}, which is not among the operations that clew replays.")
    return by_name[name]


def short(name: str) -> str:
    """`nn.functional.relu` as people say it."""
    return name.rpartition(".")[2]
