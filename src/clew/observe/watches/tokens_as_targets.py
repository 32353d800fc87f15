"""Is a sequence model asked for the very tokens that it is given?

Compares the class indices that cross_entropy and nll_loss get, position by position, with the token ids that were
embedded on the same step.

Why it matters: where the shift by one was forgotten the model only has to copy, its loss falls to zero, and it has
learned nothing of what comes next.
Cannot tell: an autoencoder of text with one input, which is asked for its input on purpose.
Silent when: targets are shifted, masked or labels of another kind, when two sequences are embedded (an encoder and a
decoder), and when rows are too short or too uniform to tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from clew.observe.watch import Answer, LossCall, ModuleCall, Saw, Watch, when_sampled
from clew.observe.watches._loss_values import CLASSES, ignored, integers
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.records.place import Place

CALLS = 3
COLUMNS = 4
SAME = 0.99
ALIKE = 0.6
"""Of neighbouring tokens: a sequence that mostly repeats itself looks the same shifted or not."""


class TokensAsTargets(Watch):
    test = "tokens_as_targets"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.tokens: list[torch.Tensor] = []
        self.step = -1
        self.calls = self.same = 0
        self.where: Place | None = None

    def module(self, event: ModuleCall) -> None:
        if not self.recorder.sampled or event.evaluation or not isinstance(event.module, torch.nn.Embedding):
            return
        value = event.inputs[0] if event.inputs else None
        if event.step != self.step:
            self.step, self.tokens = event.step, []
        if value is not None and integers(value) and value.dim() == 2 and max(value.shape) >= COLUMNS:
            self.tokens.append(value.detach())

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if not event.sampled or not event.grad or event.name not in CLASSES or not integers(event.target):
            return
        if event.step != self.step or not self.tokens:
            return
        ids, target = self.tokens[-1].reshape(-1), event.target.detach().reshape(-1)
        with torch.no_grad():
            one = all(torch.equal(value.reshape(-1), ids) for value in self.tokens)
            if not one or ids.numel() != target.numel():
                self.calls += 1
                return
            counted = target != ignored(event)
            if int(counted.sum()) < COLUMNS or float((ids[1:] == ids[:-1]).float().mean()) > ALIKE:
                return
            self.calls += 1
            if float((ids == target)[counted].float().mean()) >= SAME:
                self.same += 1
                self.where = event.place

    def read(self) -> Answer:
        if self.calls < CALLS:
            return Unclear("no sequence of tokens was seen beside targets of its length")
        if self.same < SAME * self.calls:
            return Saw("others", calls=self.calls)
        says = "the targets are the tokens of the input in the same places, so copying them is all there is to learn"
        return Saw("same", calls=self.calls).at(self.where).saying(says)
