"""Is the result of a call that changes nothing in place thrown away?

`scores.masked_fill(mask, -inf)` on a line by itself makes a masked copy and drops it: the method that writes in place
ends in an underscore. On steps that are looked at, the instruction after the call says whether anything takes the
result. What a dropped mask was to cover is compared with what the loss then asks for: where these are the same values,
the answers stand in the input.

Why it matters: the mask or the limit that the line was written for is never applied, and nothing complains.
Cannot tell: results that are kept under a name and never used; what the line was for, beyond the shape of its mask and
the values below it.
Silent when: the result is used in any way, or the call writes in place.
"""

from __future__ import annotations

import dis
import functools
import sys
from typing import TYPE_CHECKING, Any

import torch

from clew.observe import hooks as observed
from clew.observe.patches import HIDDEN, unframe
from clew.observe.places import is_users, users_place
from clew.observe.watch import Answer, Batch, Forward, LossCall, ModuleCall, OptimizerEvent, Saw, Watch
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from types import CodeType

    from clew.observe.recorder import Recorder
    from clew.records.place import Place

MASKS = ("masked_fill", "masked_scatter", "index_fill", "scatter", "tril", "triu")
LIMITS = ("clamp", "clip", "clamp_min", "clamp_max", "nan_to_num")
SHOWN = 8
COVERED = 1 << 16
FEWEST, KINDS = 8, 3
"""So many values, of so many kinds, do not agree by accident."""


class DiscardedResult(Watch):
    test = "discarded_result"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.found: dict[str, list[Place]] = {}
        self.known: dict[tuple[CodeType, int], bool] = {}
        self.listening = False
        self.forwards = 0
        self.covered: tuple[torch.Tensor, torch.Tensor, Place | None] | None = None  # values, their mask, the line
        self.asked_for: list[Place] = []

    def optimizer_made(self, event: OptimizerEvent) -> None:
        del event
        self._listen()

    def batch(self, event: Batch) -> None:
        del event
        self._listen()

    def module(self, event: ModuleCall) -> None:
        del event
        self._listen()

    def forward(self, event: Forward) -> None:
        del event
        self.forwards += 1

    def _listen(self) -> None:
        """Once, and through the patches of the hooks, which take everything off again."""
        if self.listening:
            return
        self.listening = True
        held = next((item for item in observed._installed if item.recorder is self.recorder), None)
        if held is not None:
            for name in (*MASKS, *LIMITS):
                held.patches.replace(torch.Tensor, name, functools.partial(self._tapped, held, name))

    def _tapped(self, held: observed.Hooks, name: str, original: Any) -> Any:
        recorder, compiling = held.recorder, held.compiling

        def method(*args: Any, **kwargs: Any) -> Any:
            if recorder.busy or compiling() or not held.looking() or held.inside_backward:
                return original(*args, **kwargs)
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                unframe(error)
                raise
            frame = sys._getframe(1)
            key = (frame.f_code, frame.f_lasti)
            thrown = self.known.get(key)
            if thrown is None and len(self.known) < 4096:
                thrown = self.known[key] = is_users(frame.f_code.co_filename) and is_dropped(*key)
                if thrown:
                    self._note(name, args, kwargs, users_place())
            if thrown and name == "masked_fill" and not self.asked_for:
                self._cover(args, kwargs, users_place())
            return result

        return method

    def _note(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], place: Place | None) -> None:
        kind = "limit" if name in LIMITS else "mask"
        mask = kwargs.get("mask", args[1] if len(args) > 1 else None)
        if kind == "mask" and isinstance(mask, torch.Tensor) and is_causal(mask):
            kind = "causal_mask"
        if place is not None and len(self.found.setdefault(kind, [])) < SHOWN:
            self.found[kind].append(place)

    def _cover(self, args: tuple[Any, ...], kwargs: dict[str, Any], place: Place | None) -> None:
        """Keep what the mask was to hide until the loss of this step is known."""
        mask: Any = kwargs.get("mask", args[1] if len(args) > 1 else None)
        self.covered = None
        if not isinstance(mask, torch.Tensor):
            return
        self.recorder.busy = True
        try:
            values, mask = args[0].detach(), mask.detach()
            if mask.dtype is torch.bool and mask.shape == values.shape and values.numel() <= COVERED:
                self.covered = values[mask], mask.clone(), place
        except (RuntimeError, NotImplementedError):  # tensors inside vmap and the like hold no values to compare
            self.covered = None
        finally:
            self.recorder.busy = False

    def loss(self, event: LossCall) -> None:
        covered, self.covered = self.covered, None
        if covered is None or not event.grad or not isinstance(event.target, torch.Tensor):
            return
        values, mask, place = covered
        if place is not None and len(torch.unique(values)) >= KINDS and asks_for(event.target.detach(), values, mask):
            self.asked_for.append(place)

    def read(self) -> Answer:
        if self.asked_for:
            text = "the masked copy is unused, and the loss asks for the values that the mask should hide"
            return Saw("cover", lines=1).at(self.asked_for[0]).saying(text)
        for kind in ("causal_mask", "mask", "limit"):
            if kind in self.found:
                places = self.found[kind]
                return Saw(kind, lines=len(places)).at(*places)
        return Saw("none", passes=self.forwards) if self.forwards else Unclear("no forward pass was checked")


def is_dropped(code: CodeType, at: int) -> bool:
    """Whether the instruction after the call at this offset throws its result away."""
    if code.co_filename == HIDDEN:
        return False
    following = next((held for held in dis.get_instructions(code) if held.offset > at), None)
    return following is not None and following.opname == "POP_TOP"


def asks_for(target: torch.Tensor, values: torch.Tensor, mask: torch.Tensor) -> bool:
    """Whether a target is what stands below a mask and nothing else: gathered, or in place and the rest ignored."""
    if len(values) < FEWEST or target.dtype != values.dtype:
        return False
    if target.numel() == len(values):
        return bool((target.flatten() == values).all())
    if target.numel() != mask.numel() or target.is_floating_point():
        return False
    laid = target.reshape(mask.shape)
    return bool((laid[mask] == values).all()) and bool((laid[~mask] < 0).all())


def is_causal(mask: torch.Tensor) -> bool:
    """Whether a mask hides what comes later: true above the diagonal of its last two axes and nowhere else."""
    if mask.dtype is not torch.bool or mask.is_meta or mask.dim() < 2 or mask.shape[-1] != mask.shape[-2]:
        return False
    with torch.no_grad():
        one = mask.detach().reshape(-1, *mask.shape[-2:])[0]
        if one.shape[0] < 2 or one.shape[0] > 4096:
            return False
        return bool((one == torch.ones_like(one).triu(1)).all())
