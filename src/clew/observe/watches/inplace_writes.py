"""Does an in-place write change values that autograd or later code still needs?

Why it matters: autograd guards what it saved against ordinary in-place operations, but not against writes through
.data or a NumPy view; then the gradient belongs to other values than the loss. A stored data set that is normalised in
place shrinks again in every epoch, and one that noise is added to in place turns into noise.
Cannot tell: most such writes. It sees inputs of layers that change between forward and backward without autograd's
knowledge, arrays of a data set that change from epoch to epoch, parts of a stored tensor that are written to as a model
is given them and come back so, batches whose spread changes by one factor, and errors that autograd raises.
Silent when: autograd itself guards the write, as with ReLU(inplace=True), or nothing was seen: then it is unclear.
"""

from __future__ import annotations

import weakref
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from clew.observe.watch import Answer, Backward, Batch, Forward, ModuleCall, Raised, Saw, Watch
from clew.observe.watches._data_rewritten import Rewritten
from clew.observe.watches._data_stored import Stored
from clew.observe.watches._training_layers import tensors
from clew.observe.watches._training_values import fingerprint, real, sample, version
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

GUARDED = "modified by an inplace operation"
INPUTS = 64
VALUES = 4096
LITTLE, MUCH = 1.5, 5.0
"""A factor between epochs is drift when it repeats three times above the first, or twice above the second."""
ALIKE = 1.2
TIMES = 2

Kept = tuple["weakref.ref[torch.Tensor]", int, int, str, "Place | None"]


class InplaceWrites(Watch):
    test = "inplace_writes"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.saved: list[Kept] = []
        self.changed = self.compared = 0
        self.name = ""
        self.place: Place | None = None
        self.guarded: tuple[str, Place | None] | None = None
        self.spreads: dict[int, list[float]] = {}
        self.drift: tuple[float, Place | None] | None = None
        self.stored = Stored()
        self.rewritten = Rewritten(recorder)

    def forward(self, event: Forward) -> None:
        self.rewritten.forward(event)

    def module(self, event: ModuleCall) -> None:
        """A layer with weights keeps its input for the gradient of those weights."""
        if event.evaluation or not self.recorder.sampled or len(self.saved) >= INPUTS:
            return
        if not any(parameter.requires_grad for parameter in event.module.parameters(recurse=False)):
            return
        for tensor in tensors(event.inputs):
            held = sample(tensor, VALUES)
            if held is not None and not tensor.is_inference():
                kept = (weakref.ref(tensor), version(tensor)[1], fingerprint(held), event.name, self.recorder.place())
                self.saved.append(kept)

    def before_backward(self, event: Backward) -> None:
        del event
        saved, self.saved = self.saved, []
        for reference, before, mark, name, place in saved:
            tensor = reference()
            if tensor is None or version(tensor)[1] != before:
                continue  # gone, or written to in a way that autograd notices
            held = sample(tensor, VALUES)
            self.compared += 1
            if held is not None and fingerprint(held) != mark:
                self.changed += 1
                self.name, self.place = self.name or name, self.place or place

    def batch(self, event: Batch) -> None:
        if not event.position:
            self.stored.look(event.loader, event.source)
        tensor = next((held for held in event.tensors if held.is_floating_point()), None)
        if event.position or tensor is None or (held := real(tensor)) is None or held.numel() < 2:
            return
        spreads = self.spreads.setdefault(event.loader, [])
        spreads.append(float(held.std()))
        del spreads[:-4]
        factors = [later / sooner if sooner else 0.0 for sooner, later in pairwise(spreads)]
        for times, least in ((TIMES + 1, LITTLE), (TIMES, MUCH)):
            recent = factors[-times:]
            if len(recent) == times and _one_factor(recent, least):
                self.drift = (recent[-1], event.place)

    def raised(self, event: Raised) -> None:
        if GUARDED in event.error:
            self.guarded = (event.error, event.place)

    def read(self) -> Answer:
        if self.guarded is not None:
            error, place = self.guarded
            return Saw("corrupting", errors=1).at(place).saying(f"autograd raised: {error[:160]}")
        if self.changed >= TIMES:
            module = Place(module=self.name) if self.name else None
            text = "a layer's input was overwritten between its forward and backward pass without autograd noticing"
            return Saw("corrupting", tensors=self.changed).at(self.place, module).saying(text)
        written = self.stored.written()
        if written is not None:
            text = f"the data set's stored {written.name} is overwritten as it is read, in every epoch"
            return Saw("corrupting", epochs=written.times).at(written.place).saying(text)
        site = self.rewritten.found()
        if site is not None:
            text = "parts of a stored tensor are overwritten in place, and rows come back as an earlier write left them"
            return Saw("corrupting", rows=site.back).at(site.place).saying(text)
        if self.drift is not None:
            factor, place = self.drift
            text = f"from epoch to epoch the spread of the loader's batches changes by a factor of {factor:.3g}"
            return Saw("corrupting", factor=factor).at(place).saying(text)
        if self.rewritten.broken:
            return Unclear(f"writes to stored tensors could not be traced: {self.rewritten.broken}")
        if self.compared:
            return Unclear(f"none of {self.compared} layer inputs was overwritten; other writes are not checked")
        return Unclear("no layer input could be compared between forward and backward")


def _one_factor(factors: list[float], least: float) -> bool:
    """Whether all factors point the same way, by at least so much, and are about the same."""
    low, high = min(factors), max(factors)
    return low > 0 and high / low <= ALIKE and (low >= least or high <= 1 / least)
