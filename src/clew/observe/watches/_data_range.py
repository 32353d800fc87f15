"""Whether a model is evaluated on values that lie far outside of all it was trained on, input by input.

Every input counts: a time, a level of noise or a condition that is given beside the data goes wrong as easily. A copy
of the trained model (an average, a wrapper) is known by its shapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from clew.observe.hooks import tensors_in
from clew.observe.watches._training_values import real

if TYPE_CHECKING:
    from clew.observe.watch import Forward
    from clew.records.place import Place

VALUES = 2048
TRAINED, EVALUATED = 5, 3
"""Calls that must have been looked at on either side."""
MOST = 0.5
KEPT = 64


class Seen:
    """One input of one kind of model."""

    def __init__(self) -> None:
        self.low, self.high = float("inf"), float("-inf")
        self.trained = self.evaluated = self.outside = 0
        self.step, self.began_inside = -1, False  # of the evaluation at hand, which may call the model many times
        self.away: dict[int, bool] = {}  # by the step of an evaluation: it began inside and ran away
        self.values = (0.0, 0.0)
        self.place: Place | None = None


class Outside(NamedTuple):
    number: int
    training: tuple[float, float]
    evaluation: tuple[float, float]
    calls: int
    place: Place | None
    fed_back: bool  # an evaluation begins inside and is led outside by what the model itself answers


class Ranges:
    def __init__(self) -> None:
        self._shapes: dict[int, tuple[torch.Size, ...]] = {}
        self._seen: dict[tuple[tuple[torch.Size, ...], int, int], Seen] = {}

    def note(self, event: Forward) -> None:
        shapes = self._shapes.get(event.model)
        if shapes is None:
            if len(self._shapes) >= KEPT:
                return
            shapes = self._shapes[event.model] = tuple(weight.shape for weight in event.module.parameters())
        for number, tensor in enumerate(tensors_in(event.inputs, torch)):
            if not tensor.is_floating_point() and (tensor.dim() != 1 or tensor.dtype == torch.bool):
                continue  # token ids and masks; a single integer counts the items of a batch
            if not tensor.is_floating_point() and _offsets(tensor):
                continue
            key = (shapes, number, tensor.dim())
            if key in self._seen or len(self._seen) < KEPT:
                self._add(self._seen.setdefault(key, Seen()), tensor, event)

    def _add(self, seen: Seen, tensor: torch.Tensor, event: Forward) -> None:
        held = real(tensor, VALUES)
        if held is None or (event.evaluation and seen.trained < TRAINED):
            return
        if not event.evaluation:
            seen.low, seen.high = min(seen.low, float(held.min())), max(seen.high, float(held.max()))
            seen.trained += 1
            return
        span = seen.high - seen.low
        if not 0 < span < float("inf"):
            return
        seen.evaluated += 1
        off = float(((held < seen.low - span) | (held > seen.high + span)).float().mean()) > MOST
        if seen.step != event.step:
            seen.step, seen.began_inside = event.step, not off
            if len(seen.away) < 4 * KEPT:
                seen.away[event.step] = False
        if off:
            seen.values, seen.place = (float(held.min()), float(held.max())), event.place
            if seen.began_inside:
                seen.away[event.step] = True
            else:
                seen.outside += 1

    def outside(self) -> Outside | None:
        """What begins outside comes first: a sampler that is told the wrong time runs away as well."""
        led = None
        for (_, number, _), seen in self._seen.items():
            lately = list(seen.away.values())[-EVALUATED:]
            straight = seen.outside >= EVALUATED and seen.outside >= MOST * seen.evaluated
            if straight or (len(lately) == EVALUATED and all(lately)):
                span = (seen.low, seen.high)
                found = Outside(number, span, seen.values, seen.evaluated, seen.place, not straight)
                if straight:
                    return found
                led = led or found
        return led


def _offsets(tensor: torch.Tensor) -> bool:
    """Where bags begin in a row of all their entries: from 0 up, as far as the batch is long."""
    if tensor.dim() != 1 or len(tensor) < 2 or int(tensor[0]) != 0:
        return False
    return bool((tensor[1:] >= tensor[:-1]).all()) and int(tensor[-1]) > 0
