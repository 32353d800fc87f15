"""Seeing that a script exchanges gradients between its ranks by hand."""

from __future__ import annotations

import functools
import math
import sys
import weakref
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.envs import patches_of
from clew.observe.guard import release
from clew.observe.patches import unframe
from clew.observe.places import is_users, place_of
from clew.observe.watches._training_values import held_by

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

CALLS = 512
"""Exchanges that are looked at."""
NEARLY = 0.9
CLOSE = 1e-5
PLACES = 2


class Exchanges:
    """Which optimisers' gradients were handed to an exchange with all other ranks, and by which lines."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = weakref.ref(recorder)
        self.calls = 0
        self.seen: dict[int, set[int]] = {}  # parameters by optimiser
        self.places: dict[int, list[Place]] = {}  # of optimisers most of whose gradients were exchanged

    def attach(self) -> None:
        patches = patches_of(self.recorder())
        if patches is not None:
            patches.replace(torch.distributed, "all_reduce", functools.partial(_around, weakref.ref(self)))

    def handed_over(self, tensor: Any) -> None:
        recorder = self.recorder()
        if recorder is None or recorder.busy or self.calls >= CALLS or not isinstance(tensor, torch.Tensor):
            return
        self.calls += 1
        with recorder.quietly(), torch.no_grad():
            for number, optimizer in recorder.live_optimizers():
                held = [parameter for parameter in held_by(optimizer) if parameter.grad is not None]
                if number in self.places or not held:
                    continue
                found = self.seen.setdefault(number, set())
                found.update(id(parameter) for parameter in held if _is(tensor, parameter.grad))
                whole = sum(parameter.numel() for parameter in held)
                covered = sum(parameter.numel() for parameter in held if id(parameter) in found)
                if covered >= NEARLY * whole or _laid_end_to_end(tensor, held, whole):
                    self.places[number] = _lines()


def _is(tensor: torch.Tensor, gradient: Any) -> bool:
    """The gradient itself, or a copy of it."""
    if tensor.numel() != gradient.numel() or tensor.device != gradient.device or tensor.numel() < 2:
        return tensor is gradient
    return tensor.data_ptr() == gradient.data_ptr() or torch.equal(tensor.reshape(-1), gradient.reshape(-1))


def _laid_end_to_end(tensor: torch.Tensor, held: list[Any], whole: int) -> bool:
    if tensor.numel() != whole or whole < 2:
        return False
    given, wanted = _size(tensor), math.hypot(*(_size(parameter.grad) for parameter in held))
    return given > 0.0 and abs(given - wanted) <= CLOSE * wanted


def _size(tensor: Any) -> float:
    if tensor.layout != torch.strided or not tensor.is_floating_point():
        return math.nan
    return float(torch.linalg.vector_norm(tensor.detach(), dtype=torch.float64))


def _lines() -> list[Place]:
    """The lines of the script that led here, innermost first."""
    frame: Any = sys._getframe(1)
    found: list[Place] = []
    while frame is not None and len(found) < PLACES:
        if is_users(frame.f_code.co_filename):
            found.append(place_of(frame))
        frame = frame.f_back
    return found


def _around(held: weakref.ref[Exchanges], original: Any) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        exchanges = held()
        given = args[0] if args else kwargs.get("tensor")
        group = kwargs.get("group", args[2] if len(args) > 2 else None)
        try:
            if exchanges is not None and exchanges.calls < CALLS and _is_whole(group):
                exchanges.handed_over(given)
        except BaseException as error:  # noqa: BLE001  # the script comes first: what cannot be read is not followed
            release(error)
            exchanges = None
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            unframe(error)
            raise

    return wrapper


def _is_whole(group: Any) -> bool:
    world = torch.distributed.get_world_size()
    return world > 1 and (group is None or group.size() == world)
