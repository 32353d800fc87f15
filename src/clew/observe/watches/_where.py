"""Which lines belong to a layer: what several watches share.

A reader has to change the line that gave a layer its values, the line that made it, or the line that uses it. Which of
them comes first depends on how it was built: what stands in an nn.Sequential has no line of its own where it is used.
"""

from __future__ import annotations

import linecache
import re
from typing import TYPE_CHECKING, Any

from torch import nn

from clew.observe.origins import USED
from clew.observe.places import is_users, shown
from clew.observe.watches._reach import _part, where_made
from clew.records.place import Place

if TYPE_CHECKING:
    import torch

    from clew.observe.recorder import Recorder

MOST = 3


def module_at(recorder: Recorder, layer: tuple[int, str]) -> Any:
    """The module of this model and path, without a function that was named after it; None where it is gone."""
    model, name = layer
    held = recorder.models[model]() if 0 <= model < len(recorder.models) else None
    path = name.split(" (")[0]
    return _part(held, path.split(".")) if held is not None and path else held


def in_sequence(recorder: Recorder, layer: tuple[int, str]) -> bool:
    parent = (layer[0], layer[1].split(" (")[0].rpartition(".")[0])
    return isinstance(module_at(recorder, parent), nn.Sequential | nn.ModuleList | nn.ModuleDict)


def layer_places(
    recorder: Recorder, layer: tuple[int, str], used: Place | None, fed_by: tuple[int, str] | None, from_start: bool
) -> tuple[Place, ...]:
    """The lines to change when a layer's output is odd, most telling first. `fed_by` is the layer with weights before
    it; `from_start` says that it was odd before any step, which is the doing of the first values."""
    origins = recorder.origins
    before = module_at(recorder, fed_by) if fed_by is not None else None
    begun: tuple[Place | None, ...] = ()
    if isinstance(before, nn.Module):
        begun = tuple(origins.started(held) for held in before._parameters.values() if held is not None)
    given = [place for place in begun if place is not None] if from_start else []
    made = origins.made(module_at(recorder, layer))
    if isinstance(before, nn.Module) and from_start:
        given += [place for place in (origins.asked(before),) if place is not None]
    here = used._replace(role=USED) if used is not None else None
    order = (made, here) if in_sequence(recorder, layer) and "(" not in layer[1] else (here, made)
    return tuple(dict.fromkeys(place for place in (*given, *order) if place is not None))[:MOST]


def parameter_places(recorder: Recorder, model: Any, name: str, tensor: torch.Tensor) -> tuple[Place, ...]:
    """Where a parameter got its first values on purpose, then where it or its layer was made."""
    given = recorder.origins.started(tensor)
    owner = _part(model, name.split(".")[:-1]) if "." in name else None
    made = recorder.origins.made(owner) if owner is not None and not is_users(_file_of(owner)) else None
    if made is None and model is not None:
        made = where_made(model, name)
    asked = recorder.origins.asked(owner) if owner is not None else None
    return tuple(place._replace(parameter=name) for place in (given, asked, made) if place is not None)


def _file_of(module: Any) -> str:
    code = getattr(getattr(type(module), "__init__", None), "__code__", None)
    return code.co_filename if code is not None else "<none>"


def use_place(model: Any, name: str) -> Place | None:
    """The line of a forward of the user's that reads the part of the model that holds this parameter."""
    path = name.split(".")
    for length in range(len(path)):
        owner = _part(model, path[:length]) if length else model
        code = getattr(getattr(type(owner), "forward", None), "__code__", None)
        if code is None or not is_users(code.co_filename):
            continue
        line = _reads(code, path[length])
        if line:
            return Place(shown(code.co_filename), line, symbol=code.co_qualname, parameter=name, role=USED)
    return None


def _reads(code: Any, attribute: str) -> int:
    wanted = re.compile(rf"\bself\.{re.escape(attribute)}\b")
    lines = sorted({line for _, _, line in code.co_lines() if line is not None})
    return next((line for line in lines if wanted.search(linecache.getline(code.co_filename, line))), 0)
