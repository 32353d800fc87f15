"""Lines that draw the same positions at step after step.

However a generator came to begin anew (made inside the function that draws, seeded again, copied), what it gives tells.
A line that draws for several sets is followed by how many numbers it draws of how many.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from clew.observe.envs import patches_of
from clew.observe.guard import release
from clew.observe.patches import unframe
from clew.observe.places import users_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from clew.observe.recorder import Recorder
    from clew.records.place import Place

LINES, READ = 64, 256
DRAWING = ("randint", "randperm")


class Kind(NamedTuple):
    place: Place
    size: int
    of: int  # how many different numbers can come


class Draws:
    """By line and size: the numbers that came first, and the sampled steps at which they came again."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = weakref.ref(recorder)
        self.first: dict[Kind, int] = {}
        self.steps: dict[Kind, set[int]] = {}
        self.varied: set[Kind] = set()
        self.broken = ""  # why draws are not followed any more

    def attach(self) -> None:
        patches = patches_of(self.recorder())
        if patches is not None and _devices_known():
            for name in DRAWING:
                patches.replace(torch, name, functools.partial(_around, weakref.ref(self)))

    def wanted(self) -> bool:
        """Before the first step data may be made, by many draws."""
        recorder = self.recorder()
        return not self.broken and recorder is not None and recorder.step > 0 and recorder.sampled and not recorder.busy

    def note(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        recorder, of = self.recorder(), _range(args, kwargs)
        place = users_place(3) if of is not None and _readable(result) else None
        if recorder is None or place is None or of is None:
            return
        kind = Kind(place, result.numel(), of)
        if kind in self.varied or (kind not in self.first and len(self.first) >= LINES):
            return
        with recorder.quietly():
            drawn = hash(tuple(result.reshape(-1)[:READ].tolist()))
        if self.first.setdefault(kind, drawn) != drawn:
            self.varied.add(kind)
        self.steps.setdefault(kind, set()).add(recorder.step)

    def again(self, least: int, rows: int) -> Place | None:
        """A line that drew the same at so many steps, enough for so many rows, out of more than these."""
        for kind, steps in self.steps.items():
            if kind not in self.varied and len(steps) >= least and kind.size >= rows and kind.of > rows:
                return kind.place
        return None


def _devices_known() -> bool:
    """`with torch.device(...)` knows the functions that make tensors by what they are when it first asks: it asks now,
    before they are replaced."""
    try:
        from torch.utils import _device

        return torch.randint in _device._device_constructors()
    except (ImportError, AttributeError):
        return False


def _readable(result: Any) -> bool:
    if not isinstance(result, torch.Tensor) or not result.dim() or result.device.type not in ("cpu", "cuda"):
        return False
    return not (result.is_cuda and torch.cuda.is_current_stream_capturing())


def _range(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """How many numbers there are to draw from: the last of the leading whole numbers is the end, one before it the
    beginning. None where that is not said in whole numbers."""
    leading = []
    for held in args[:2]:
        if not isinstance(held, int):
            break
        leading.append(held)
    end = kwargs.get("high", kwargs.get("n", leading[-1] if leading else None))
    begin = kwargs.get("low", leading[0] if len(leading) > 1 else 0)
    return end - begin if isinstance(end, int) and isinstance(begin, int) else None


def _around(held: weakref.ref[Draws], original: Callable[..., Any]) -> Callable[..., Any]:
    def draw(*args: Any, **kwargs: Any) -> Any:
        draws = None if torch.compiler.is_compiling() else held()
        if draws is None or not draws.wanted():
            return original(*args, **kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            unframe(error)
            raise
        try:
            draws.note(args, kwargs, result)
        except BaseException as error:  # noqa: BLE001  # whatever goes wrong here, the script goes on
            release(error)
            draws.broken = f"{type(error).__name__}: {error}"
        return result

    return draw
