"""The graph behind an output: its operations, which weights feed it directly, and the user's line of an operation."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

import clew
from clew.exams.batches import Batch, is_values, tensors
from clew.exams.lab import Lab, Seen
from clew.records.place import Place

MOST = 50_000
MOVES = frozenset(
    "View UnsafeView ReshapeAlias Reshape Flatten Unflatten Transpose T Permute Movedim Squeeze Unsqueeze Clone ToCopy "
    "Alias Contiguous Expand Slice Select".split()
)
AFFINE = ("Addmm", "Mm", "Bmm", "Baddbmm", "Addbmm", "Linear", "Convolution", "Bilinear")
FRAME = re.compile(r'\s*File "(.+?)", line (\d+), in (.+)')


def bare(node: Any) -> str:
    """`Relu` for ReluBackward0."""
    return re.sub(r"Backward\d*$", "", str(node.name()))


def fed_by(node: Any) -> list[Any]:
    return [fed for fed, _ in node.next_functions if fed is not None]


def is_affine(node: Any) -> bool:
    name = bare(node)
    return any(kind in name for kind in AFFINE)


def graph(roots: Iterable[Any], most: int = MOST) -> list[Any]:
    """Every operation behind these, latest first; cut off when there are too many."""
    waiting = [root for root in roots if root is not None]
    seen: set[Any] = set(waiting)
    while waiting and len(seen) < most:
        for node in fed_by(waiting.pop()):
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    return sorted(seen, key=lambda node: -int(node._sequence_nr()) if not hasattr(node, "variable") else 0)


def users_of(nodes: Iterable[Any]) -> dict[Any, list[Any]]:
    """Which operations take in what each operation gives out."""
    found: dict[Any, list[Any]] = {}
    for node in nodes:
        for fed in fed_by(node):
            found.setdefault(fed, []).append(node)
    return found


def roots(output: Any) -> list[Any]:
    return [value.grad_fn for value in tensors(output) if value.grad_fn is not None]


def head_weights(output: Any) -> set[int]:
    """The ids of the parameters of the last affine operations before the output."""
    found: set[int] = set()
    waiting, seen = roots(output), set(roots(output))
    while waiting:
        node = waiting.pop()
        if is_affine(node):
            found |= {id(leaf) for leaf in _leaves_near(node)}
            continue
        for fed in fed_by(node):
            if fed not in seen and not hasattr(fed, "variable"):
                seen.add(fed)
                waiting.append(fed)
    return found


def _leaves_near(node: Any) -> Iterator[torch.Tensor]:
    for fed in fed_by(node):
        while bare(fed) in MOVES and len(fed_by(fed)) == 1:
            fed = fed_by(fed)[0]
        if hasattr(fed, "variable"):
            yield fed.variable


def saved(node: Any, name: str = "result") -> torch.Tensor | None:
    """A value that an operation kept; None when it is hooked, released or written over."""
    try:
        value = getattr(node, f"_saved_{name}")
    except (AttributeError, RuntimeError):
        return None
    return value.detach() if isinstance(value, torch.Tensor) else None


@contextmanager
def noting_lines() -> Iterator[None]:
    """Operations made inside remember the line that made them."""
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        yield


_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_CLEW = os.path.dirname(os.path.abspath(clew.__file__)) + os.sep


def is_users(path: str) -> bool:
    return not path.startswith((_TORCH, _CLEW, "<"))


def line_of(node: Any) -> Place | None:
    """The user's line that made an operation, where lines were noted."""
    for text in reversed(node.metadata.get("traceback_", [])):
        frame = FRAME.match(text)
        if frame and frame[1].startswith(_CLEW):
            return None
        if frame and is_users(frame[1]):
            return Place(file=frame[1], line=int(frame[2]), symbol=frame[3])
    return None


def line_now() -> Place | None:
    """The innermost line of the user's that is being executed, for one who was called by torch. What calls the exam is
    none of the subject's."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_CLEW):
        frame = frame.f_back
    while frame is not None and not frame.f_code.co_filename.startswith(_CLEW):
        if is_users(frame.f_code.co_filename):
            return Place(file=frame.f_code.co_filename, line=frame.f_lineno, symbol=frame.f_code.co_name)
        frame = frame.f_back
    return None


def nearest(node: Any, seen: list[Seen]) -> Seen | None:
    """What was seen on the way at this operation, or last before it."""
    at = int(node._sequence_nr())
    numbered = [(int(held.value.grad_fn._sequence_nr()), held) for held in seen if held.value.grad_fn is not None]
    before = [pair for pair in numbered if pair[0] <= at]
    return max(before, key=lambda pair: pair[0])[1] if before else None


def place_of(node: Any, seen: list[Seen], lab: Lab) -> Place | None:
    """The module and the line of an operation, as far as either is known."""
    near = nearest(node, seen)
    known = None
    if near is not None:
        known = near.place or (lab.place(near.name) if near.name else None)
    return joined(known, line_of(node) if known is None or known.file is None else None)


def joined(known: Place | None, line: Place | None) -> Place | None:
    """The line, with what the other place says besides."""
    if line is None:
        return known
    return line._replace(module=known.module if known else None, parameter=known.parameter if known else None)


def all_trained(model: torch.nn.Module) -> torch.nn.Module:
    """A copy in which everything takes a gradient, so that its graph is whole."""
    for parameter in model.parameters():
        if is_values(parameter):
            parameter.requires_grad_(True)
    return model


def walked(lab: Lab, model: torch.nn.Module, batch: Batch) -> tuple[Any, list[Seen]]:
    """The output with its whole graph and the lines of its operations, and what was seen on the way."""
    with lab.seeded(), noting_lines():
        return lab.walk(model, batch)
