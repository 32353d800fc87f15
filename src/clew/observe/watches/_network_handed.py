"""What became of the results of a model's layers: handed on with their graph, without it, or to nobody.

A result that goes on after `detach` keeps its memory, so it is known again by its address, or by its memory being alive
when the model returns; a layer behind others that is given numbers without a graph tells it too. A result that nobody
read is gone by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing import reductions

from clew.observe.hooks import tensors_in

if TYPE_CHECKING:
    from clew.observe.watch import Forward, ModuleCall

MOST = 4096
_weakly: Any = reductions.StorageWeakRef


class HandedOn:
    """Follows one training pass at a time; keeps no tensor alive."""

    def __init__(self) -> None:
        self.step = -1
        self._made: dict[int, tuple[str, Any]] = {}
        self._odd: dict[int, set[tuple[str, int]]] = {}  # by model: layers given numbers without a graph, and where
        self._raw: set[int] = set()  # addresses of what the first layers were given
        self.cut: dict[int, set[str]] = {}  # of each model, the layers where what was recorded goes on without a graph
        self.kept: dict[int, set[str]] = {}  # and those whose results were in memory whenever it returned
        self.blind = False  # some tensor has no memory that could be looked at
        self.unrecorded: dict[int, set[str]] = {}  # and those that ran without recording

    def module(self, event: ModuleCall) -> None:
        if event.evaluation or self.blind:
            return
        try:
            self._follow(event)
        except (RuntimeError, NotImplementedError):  # inside vmap, fake tensors, other kinds of storage
            self.blind = True

    def _follow(self, event: ModuleCall) -> None:
        if event.step != self.step or len(self._made) >= MOST:
            self.step = event.step
            self._made.clear()
            self._raw.clear()
            self._odd.clear()
        for tensor in tensors_in(event.inputs, torch):
            self._bare(event.model, tensor)
        trainable = any(held.requires_grad for held in event.module.parameters(recurse=False))
        if trainable:
            self._given(event)
        for tensor in tensors_in(event.output, torch):
            if _plain(tensor) and tensor.grad_fn is not None:
                self._made[tensor.data_ptr()] = (event.name, _weakly(tensor.untyped_storage()))
            elif trainable and tensor.is_floating_point():
                self.unrecorded.setdefault(event.model, set()).add(event.name)

    def _given(self, event: ModuleCall) -> None:
        """A layer behind others that is given numbers without a graph, which are no input of the model."""
        for tensor in tensors_in(event.inputs, torch):
            if not _plain(tensor) or not tensor.is_floating_point() or tensor.grad_fn is not None:
                continue
            if not self._made:
                self._raw.add(tensor.data_ptr())
            elif tensor.data_ptr() not in self._raw:
                memory = int(tensor.untyped_storage().data_ptr())
                self._odd.setdefault(event.model, set()).add((event.name, memory))

    def forward(self, event: Forward) -> None:
        if event.evaluation or not event.grad or self.blind:
            return
        given = {int(held.untyped_storage().data_ptr()) for held in tensors_in(event.inputs, torch) if _plain(held)}
        for name, memory in self._odd.pop(event.model, ()):
            if memory not in given:  # an input of the model may well come in behind other layers
                self.cut.setdefault(event.model, set()).add(name)
        for tensor in tensors_in(event.output, torch):
            self._bare(event.model, tensor)
        alive = {name for name, storage in self._made.values() if not storage.expired()}
        self.kept[event.model] = self.kept.get(event.model, alive) & alive

    def _bare(self, model: int, tensor: torch.Tensor) -> None:
        if tensor.grad_fn is None and _plain(tensor):
            name, storage = self._made.get(tensor.data_ptr(), ("", None))
            if storage is not None and storage.cdata == _weakly(tensor.untyped_storage()).cdata:
                self.cut.setdefault(model, set()).add(name)

    def dropped(self, model: int, layer: str) -> bool:
        """Whether nothing read what this layer gave out, as far as can be seen."""
        lost = (
            self.blind
            or self.cut.get(model)
            or layer in self.kept.get(model, ())
            or layer in self.unrecorded.get(model, ())
        )
        return not lost


def _plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.device.type != "meta" and tensor.numel() > 0
