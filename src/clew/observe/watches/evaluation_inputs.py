"""Are the inputs of an evaluation the same in every epoch?

Looks at the first batch of each loader that is only evaluated on: the labels are those of the epoch before, so they are
the same examples in the same order. Their inputs must then be the same too.

Why it matters: random augmentation that was meant for training makes a validation figure noisy and mostly worse, and it
is not the figure of what will be used.
Cannot tell: whether averaging over random views is meant.
Silent when: the order changes, inputs come in several views or are binary (drawn from grey values for each epoch), or
there are fewer than three evaluations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.observe.watch import Answer, Batch, Saw
from clew.observe.watches._data_feed import FedWatch
from clew.observe.watches._training_values import fingerprint
from clew.records.clue import Unclear

if TYPE_CHECKING:
    import torch

    from clew.observe.recorder import Recorder
    from clew.records.place import Place

TIMES = 2


class First:
    """The first batch of one loader, epoch after epoch."""

    def __init__(self, place: Place | None) -> None:
        self.labels = self.inputs = 0
        self.same = self.other = self.epochs = 0
        self.place = place


class EvaluationInputs(FedWatch):
    test = "evaluation_inputs"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.firsts: dict[int, First] = {}

    def batch(self, event: Batch) -> None:
        super().batch(event)
        if event.position:
            return
        inputs, labels = parts(event.tensors)
        if inputs is None or labels is None:
            return
        held = self.firsts.setdefault(event.loader, First(event.place))
        # A fingerprint does not know the order, and a small set comes in one batch whatever its order is.
        of_labels, of_inputs = hash(labels.contiguous().numpy().tobytes()), fingerprint(inputs)
        if held.epochs and of_labels == held.labels:
            held.same += of_inputs == held.inputs
            held.other += of_inputs != held.inputs
        held.epochs += 1
        held.labels, held.inputs = of_labels, of_inputs

    def read(self) -> Answer:
        if self.feed.broken:
            return Unclear(self.feed.broken)
        only = {loader.number for loader in self.feed.loaders.values() if not loader.trained}
        evaluated = [held for number, held in self.firsts.items() if number in only]
        for held in evaluated:
            if held.other >= TIMES and not held.same:
                says = (
                    f"The same examples were evaluated {held.epochs} times with different inputs: something "
                    "random changes them."
                )
                return Saw("vary", evaluations=held.epochs).at(held.place).saying(says)
        if any(held.same for held in evaluated):
            return Saw("fixed", evaluations=max(held.epochs for held in evaluated))
        return Unclear("no loader returned the same evaluation examples three times")


def parts(tensors: list[torch.Tensor]) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Inputs and labels of a batch of one input and one label; nothing where it is otherwise."""
    if len(tensors) != 2:
        return None, None
    inputs, labels = tensors
    if not inputs.is_floating_point() or inputs.dim() < 2 or inputs.shape == labels.shape or labels.numel() < 2:
        return None, None
    if inputs.device.type != "cpu" or bool((labels == labels.flatten()[0]).all()):
        return None, None
    if bool(((inputs == 0) | (inputs == 1)).all()):
        return None, None  # drawn anew from the grey of each pixel, as models of binary images are evaluated
    return inputs, labels
