"""Is the loss averaged or summed over the batch?

Follows what backward is called on down to the loss functions, or squares and absolute differences written by hand, that
it consists of, and takes the factor that each got on the way. A sum whose factor is not about one over the batch size
doubles with the batch.

Why it matters: the gradient of a sum grows with the batch, and under plain SGD the step with it.
Cannot tell: whether the sum is meant, as over the pixels of a VAE with Adam; sums over other formulas written by hand.
A cross-entropy with one answer per example has nothing but examples to sum over and is told apart. A division by the
number of backward passes per step makes a mean of parts, not of examples.
Silent when: the sum is divided by the batch size, the number of tokens or anything of that order; a batch of one.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from clew.observe.watch import Answer, Backward, LossCall, OptimizerEvent, Saw, Watch, when_sampled
from clew.observe.watches._loss_graph import Made, Term, bare, residual, terms, value_of
from clew.observe.watches._loss_values import plain, reduction, total
from clew.observe.watches._network_lines import line_of
from clew.records.clue import Reading, Unclear

if TYPE_CHECKING:
    from clew.records.place import Place

UNDIVIDED = 0.24
"""A constant such as 1/2, or four accumulated batches, leaves a sum a sum."""


CLASSES = ("cross_entropy", "nll_loss")


class Call(NamedTuple):
    reduction: str
    per_example: bool  # one class for each example
    examples: int
    value: float
    place: Place | None


class LossReduction(Watch):
    test = "loss_reduction"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.calls = Made(64)
        self.ratios: list[float] = []
        self.examples = 0
        self.where: Place | None = None
        self.optimizer = ""
        self.backwards = 0  # since the last step
        self.parts = 1  # backward passes of the last step
        self.of_examples = self.summed = 0

    def before_step(self, event: OptimizerEvent) -> None:
        self.parts, self.backwards = max(1, self.backwards), 0
        # Adam and its kin cancel a constant factor, plain SGD does not: part of the reading, not of the judgement.
        if not self.optimizer:
            self.optimizer = type(event.optimizer).__name__

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if event.sampled and event.grad and plain(event.result) and isinstance(event.input, torch.Tensor):
            axis = 1 if event.name == "ctc_loss" else 0
            examples = event.input.shape[axis] if event.input.dim() > axis else 1
            single = event.name in CLASSES and event.input.dim() == 2
            held = Call(reduction(event), single, examples, total(event.result), event.place)
            self.calls.note(event.result, held)

    def before_backward(self, event: Backward) -> None:
        self.backwards += 1
        if not event.sampled or not plain(event.loss) or event.loss.numel() != 1:
            return
        summed = averaged = signed = 0.0
        by_hand: set[bool | None] = set()
        for term in terms(event.loss, self.calls):
            verdict = self._doubles(term, event)
            if term.known is None or verdict is None:
                by_hand.add(verdict)
                continue
            value = (term.factor or 0.0) * term.known.value
            signed += value
            summed, averaged = (summed + abs(value), averaged) if verdict else (summed, averaged + abs(value))
        # What was written by hand has no value of its own here: it is what the others leave.
        rest = abs(value_of(event.loss) - signed) if by_hand else 0.0
        if None in by_hand and rest > summed + averaged:
            return
        summed, averaged = (summed + rest, averaged) if by_hand == {True} else (summed, averaged + rest)
        if summed + averaged > 0:
            self.ratios = [*self.ratios, 1 + summed / (summed + averaged)][-100:]

    def _doubles(self, term: Term, event: Backward) -> bool | None:
        """Whether this term doubles with the batch; None where that cannot be seen."""
        if term.known is not None:
            call = term.known
            if call.reduction not in ("sum", "none") or call.examples < 2:
                return False if call.reduction != "none" else None
            doubles = self._undivided(term.factor, call.examples)
            self._note(doubles, call.examples, call.place)
            if doubles:
                self.summed += 1
                self.of_examples += call.per_example
            return doubles
        if residual(term.node) is None:
            return None
        if bare(term.node) == "Mean":
            return False
        sizes = getattr(term.node, "_saved_self_sym_sizes", None) or ()
        if not str(term.node.name()).endswith("0") or not sizes or int(sizes[0]) < 2:
            return None
        doubles = self._undivided(term.factor, int(sizes[0]))
        line = line_of(self.recorder, term.node, event.loss) if doubles and self.where is None else self.where
        self._note(doubles, int(sizes[0]), line or event.place)
        return doubles

    def _undivided(self, factor: float | None, examples: int) -> bool | None:
        if factor is None:
            return None
        whole = abs(factor) * self.parts
        return whole >= UNDIVIDED and whole * examples >= 2

    def _note(self, doubles: bool | None, examples: int, place: Place | None) -> None:
        if doubles:
            self.examples, self.where = examples, place

    def read(self) -> Answer:
        if not self.ratios:
            return Unclear("no backward was seen on the result of a loss function over more than one example")
        middle = statistics.median(self.ratios)
        if middle > 1.5 and self.of_examples > self.summed / 2 and self.where is not None:
            divided = f", divided only by the {self.parts} backward passes of a step" if self.parts > 1 else ""
            return (
                Saw("sum_of_answers", ratio=middle, examples=self.examples, optimizer=self.optimizer)
                .at(self.where)
                .saying(f"a cross-entropy is summed over {self.examples} examples with one class each{divided}")
            )
        if middle > 1.5:
            reading = Reading(doubled_over_single=middle, examples=self.examples, optimizer=self.optimizer)
            return reading.at(self.where) if self.where is not None else reading
        return Reading(doubled_over_single=middle)
