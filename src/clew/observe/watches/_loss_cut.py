"""A loss function that was given a copy of the model's output without its graph, while backward ran on something else.

A penalty on the weights that is added to it still gives every parameter a gradient, so the gradients look whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from clew.observe.hooks import tensors_in
from clew.observe.watch import Backward, Forward, LossCall
from clew.observe.watches._loss_graph import Made

if TYPE_CHECKING:
    from clew.records.place import Place

ENOUGH = 3
MOST = 64


class CutOff:
    """Follows the outputs of training calls to the next backward."""

    def __init__(self) -> None:
        self.outputs = Made(MOST)
        self.memory: set[int] = set()
        self.cut = self.through = 0
        self.bare: Place | None = None
        self.place: Place | None = None

    def forward(self, event: Forward) -> None:
        if event.evaluation or not event.grad:
            return
        for tensor in list(tensors_in(event.output, torch))[:MOST]:
            if tensor.grad_fn is not None and tensor.layout is torch.strided and tensor.device.type != "meta":
                self.outputs.note(tensor, True)
                self.memory.add(tensor.data_ptr())

    def loss(self, event: LossCall) -> None:
        given = event.input
        if not event.grad or event.result.grad_fn is not None or not isinstance(given, torch.Tensor):
            return
        if self.memory and given.layout is torch.strided and given.data_ptr() in self.memory:
            self.bare = event.place

    def before_backward(self, event: Backward) -> None:
        if self.memory:
            if any(self.outputs.under(event.loss)):
                self.through += 1
            elif self.bare is not None:
                self.cut, self.place = self.cut + 1, self.bare
        self.outputs, self.memory, self.bare = Made(MOST), set(), None

    @property
    def found(self) -> bool:
        return self.cut >= ENOUGH and not self.through
