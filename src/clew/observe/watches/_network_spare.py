"""Parts of a model that are left over by design: what only another setting calls, what was moved into a part beside it,
and by-products of the last block.

A layer whose every use stands below a condition belongs to another setting of the same class. Of blocks that are all
alike, the last one often gives out more than anybody reads, where the others hand the same on to the next.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import torch

from clew.observe.places import is_users

NUMBER = re.compile(r"\d+")
_known: dict[tuple[type, str], bool] = {}


def for_another_setting(model: torch.nn.Module, name: str, called: set[str]) -> bool:
    """Whether the outermost part around a parameter that was never called is used below a condition only."""
    path = name.split(".")
    for length in range(1, len(path)):
        held = ".".join(path[:length])
        if held in called:
            continue
        owner = _part(model, path[: length - 1])
        if not isinstance(owner, torch.nn.ModuleList | torch.nn.ModuleDict | torch.nn.Sequential):
            return _below_conditions(type(owner), path[length - 1])
    return False


def made_again_inside(model: torch.nn.Module, name: str, called: set[str]) -> bool:
    """Whether a layer that was never called has a namesake of the same form inside a part beside it which was: what was
    moved into an encoder stands there, and the first one was left behind."""
    owner, _, parameter = name.rpartition(".")
    above, _, own = owner.rpartition(".")
    shape = model.get_parameter(name).shape
    for other, held in model.named_parameters():
        inside = other.rpartition(".")[0]
        if (
            inside in called
            and inside != owner
            and inside.startswith(f"{above}." if above else "")
            and inside.endswith(f".{own}")
            and inside.count(".") > owner.count(".")
            and other.rpartition(".")[2] == parameter
            and held.shape == shape
        ):
            return True
    return False


def by_product(model: torch.nn.Module, name: str, reached: Callable[[Any], bool]) -> bool:
    """Whether a parameter is one of several alike in numbered blocks, of which all but the last take part."""
    parts = NUMBER.split(name)
    alike: dict[tuple[int, ...], bool] = {}
    for other, parameter in model.named_parameters():
        if NUMBER.split(other) == parts:
            alike[tuple(map(int, NUMBER.findall(other)))] = reached(parameter)
    own = tuple(map(int, NUMBER.findall(name)))
    block = {number[0]: used for number, used in alike.items() if number[1:] == own[1:]} if own else {}
    return len(block) > 1 and own[0] == max(block) and all(used for number, used in block.items() if number != own[0])


def _below_conditions(kind: type, attribute: str) -> bool:
    """Whether a class of the user's reads an attribute, outside of its `__init__`, only where a condition lets it."""
    held = _known.get((kind, attribute))
    if held is None:
        uses = [below for method in _methods(kind) for below in _uses(method, attribute)]
        held = _known[kind, attribute] = bool(uses) and all(uses)
    return held


def _methods(kind: type) -> Iterator[ast.AST]:
    for held in kind.__mro__:
        for name, function in vars(held).items():
            code = getattr(function, "__code__", None)
            if name == "__init__" or code is None or not is_users(code.co_filename):
                continue
            try:
                yield ast.parse(textwrap.dedent(inspect.getsource(function)))
            except (OSError, SyntaxError, TypeError):
                continue


def _uses(node: ast.AST, attribute: str, below: bool = False) -> Iterator[bool]:
    """For each use, whether it stands below a condition."""
    if isinstance(node, ast.Attribute) and node.attr == attribute:
        yield below
    for field, value in ast.iter_fields(node):
        inside = below or (isinstance(node, ast.If | ast.IfExp | ast.Match) and field not in ("test", "subject"))
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield from _uses(part, attribute, inside)


def _part(model: Any, path: list[str]) -> Any:
    for name in path:
        model = getattr(model, name, None)
    return model
