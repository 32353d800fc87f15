"""How far steps carry the weight matrices, measured on samples of them; and what becomes of the loss meanwhile."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.watches._training_values import matrices, median, real, skips

if TYPE_CHECKING:
    from clew.observe.watch import Backward, OptimizerEvent

VALUES = 2048
MOST = 400


TINY = 0.002
"""Weights of this size begin near zero on purpose, as tables of embeddings do; a usual step is as large as they are."""


class Moved:
    """The median over weight matrices of update over weight, for one step of each optimiser."""

    def __init__(self) -> None:
        self._before: dict[int, list[tuple[int, torch.Tensor]]] = {}
        self._from_zero: set[int] = set()

    def before(self, event: OptimizerEvent) -> None:
        self._before.pop(event.number, None)
        if skips(event.optimizer):
            return
        held = []
        for matrix in matrices(event.optimizer)[:MOST]:
            values = real(matrix, VALUES)
            if values is not None:
                held.append((id(matrix), values.clone()))
        self._before[event.number] = held

    def after(self, event: OptimizerEvent) -> float | None:
        """NaN when a weight is not finite any more; None when nothing could be compared."""
        now = {id(matrix): matrix for matrix in matrices(event.optimizer)[:MOST]}
        ratios = []
        for mark, old in self._before.pop(event.number, []):
            size = float(torch.linalg.vector_norm(old))
            new = real(now[mark], VALUES) if mark in now else None
            if size <= TINY * old.numel() ** 0.5:
                self._from_zero.add(mark)  # any update is huge against it
            elif new is not None and new.shape == old.shape and mark not in self._from_zero:
                ratios.append(float(torch.linalg.vector_norm(new - old)) / size)
        return median(ratios) if ratios else None


class Course:
    """The loss before the first step, and some later ones."""

    def __init__(self) -> None:
        self.first: list[float] = []
        self.later: list[tuple[int, float]] = []

    def note(self, event: Backward) -> None:
        loss = event.loss
        if loss.numel() != 1 or loss.is_meta or loss.is_complex():
            return
        value = float(loss.detach())
        if event.step == 0:
            self.first = [*self.first, value][:32]
        else:
            self.later = [*self.later, (event.step, value)][-MOST:]

    def late(self) -> float:
        """The middle of the later half read: NaN when that is too little, infinity when any is not finite."""
        values = [value for _, value in self.later[len(self.later) // 2 :]]
        if len(self.later) < 8:
            return math.nan
        return median(values) if all(math.isfinite(value) for value in values) else math.inf

    def over_first(self) -> float:
        """The late level over that of the untrained model; NaN when there is no such ratio."""
        start = median(self.first)
        late = self.late()
        if not math.isfinite(start) or start <= 0 or math.isnan(late):
            return math.nan
        return late / start


def adaptive(optimizer: Any) -> bool:
    """Whether the optimiser divides each gradient by its own size, so that a common factor hardly matters."""
    return "SGD" not in type(optimizer).__name__
