"""Do the first updates replace the weights and leave the model worse than untrained, and what makes them so large?

Looks at the first ten steps: an update larger than the weights it changes, after which the loss does not come back to
where it was before the first step, or several times larger, after which it never falls below that. For an agent, whose
losses have no such level, the returns of its episodes are asked in their place. Units that were free and are pinned
after such an update count as well, unless the loss falls to a tenth. A rate that is raised is followed further. What
enters the step as a factor is then looked up: inputs in raw units, which every gradient of the first layer is
multiplied by, and under plain SGD a loss that is summed over the batch. Where there is neither, the learning rate
itself is what is left.

Why it matters: the run goes on from a random point far out, and often never returns.
Cannot tell: a gradient that explodes over depth or time, or initial weights that are too small to compare with.
Silent when: the loss falls below that of the untrained model all the same, as with Adam at a bold rate; when weights
begin at zero; on losses that may be negative.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from clew.observe.watch import Answer, Backward, Forward, LossCall, ModuleCall, OptimizerEvent, Saw, when_sampled
from clew.observe.watches._loss_values import reduction
from clew.observe.watches._rl_study import Study
from clew.observe.watches._training_updates import Course, Moved, adaptive
from clew.observe.watches._training_values import held_by, total_norm
from clew.observe.watches.input_scale import InputScale
from clew.observe.watches.returns_course import course_of
from clew.records.clue import Reading, Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

FIRST = 10
RAISED = 2.0
FREE, PINNED, FELL = 0.7, 0.95, 0.1
ENDS: dict[type, tuple[float, float]] = {
    torch.nn.Tanh: (-0.99, 0.99),
    torch.nn.Sigmoid: (0.01, 0.99),
    torch.nn.ReLU: (0.0, math.inf),
}
RAW = 10.0
WORSE = 1.5
FAR, NO_BETTER = 2.0, 0.95
"""An update of several times the weights, after which the whole run never does better than untrained."""
YOUNG = 100
"""Steps within which a loss that is a little below its start may still come down."""
FURTHEST, HARDLY = 10.0, 0.9
"""Where hardly anything is left of the weights, what an untrained model loses against guessing is no gain."""


class StepThrown(InputScale):
    test = "step_thrown"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.moved, self.course = Moved(), Course()
        self.largest = 0.0
        self.at_step = -1
        self.steps = 0
        self.summed = self.examples = 0
        self.loss_place: Place | None = None
        self.step_place: Place | None = None
        self.made: Place | None = None
        self.rate = 0.0
        self.adapts = False
        self.first_rate = 0.0
        self.given = True  # gradients that are numbers
        self.free: dict[str, float] = {}
        self.pinned = (0.0, "")

    def module(self, event: ModuleCall) -> None:
        if event.step < FIRST:
            super().module(event)
        if event.step < FIRST + 1 and not event.evaluation:
            self._note_units(event)

    def _note_units(self, event: ModuleCall) -> None:
        """The share of values at the ends of an activation, in the untrained model and after the first steps."""
        ends = ENDS.get(type(event.module))
        if ends is None or not isinstance(event.output, torch.Tensor) or not event.output.numel():
            return
        with torch.no_grad():
            values = event.output.detach()
            share = float(((values <= ends[0]) | (values >= ends[1])).float().mean())
        if event.step == 0:
            self.free.setdefault(event.name, share)
        elif self.free.get(event.name, 1.0) < FREE:
            self.pinned = max(self.pinned, (share, event.name))

    def forward(self, event: Forward) -> None:
        if event.step < FIRST:
            super().forward(event)

    def optimizer_made(self, event: OptimizerEvent) -> None:
        self.made = self.made or event.place

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if event.grad and event.step < FIRST and reduction(event) == "sum" and event.input.dim():
            self.summed += 1
            self.examples, self.loss_place = int(event.input.shape[0]), event.place

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        self.course.note(event)

    def _early(self, event: OptimizerEvent) -> bool:
        """Among the first steps, or while a rate that is being raised is well above that of the first step."""
        rate = max(float(group.get("lr") or 0.0) for group in event.optimizer.param_groups)
        self.first_rate = self.first_rate or rate
        return event.step < FIRST or rate > RAISED * self.first_rate > 0.0

    @when_sampled
    def before_step(self, event: OptimizerEvent) -> None:
        """An update that is no number because its gradient is none was thrown by nothing in the step."""
        self.given = math.isfinite(total_norm(held_by(event.optimizer)))
        if self._early(event) and self.given:
            self.moved.before(event)

    @when_sampled
    def after_step(self, event: OptimizerEvent) -> None:
        if not self._early(event) or not self.given:
            return
        ratio = self.moved.after(event)
        if ratio is None:
            return
        self.steps += 1
        ratio = ratio if math.isfinite(ratio) else math.inf
        if ratio > self.largest:
            self.largest, self.at_step, self.step_place = ratio, event.step, event.place
            self.rate = max(float(group.get("lr") or 0.0) for group in event.optimizer.param_groups)
            self.adapts = adaptive(event.optimizer)

    def read(self) -> Answer:
        if not self.steps:
            return Unclear("no optimiser step over non-zero weights was checked")
        if self.largest <= 1:
            return Saw("kept", largest_update_over_weight=self.largest, steps=self.steps)
        worse = self.course.over_first()
        study = Study.of(self.recorder)
        came = course_of(study, self.recorder.step) if study.experience.steps and not study.broken else None
        if came is None and math.isnan(worse):
            return Unclear("an update was larger than the weights, and too few losses followed to see its effect")
        if isinstance(came, Unclear):
            return Unclear(f"an update was larger than the weights, and {came.why}")
        if self._withstood(worse, getattr(came, "outcome", "")):
            return Saw("kept", largest_update_over_weight=self.largest, late_over_untrained=worse)
        scale = super().read()
        rms = float(dict(scale.measured).get("rms", 0.0) or 0.0) if isinstance(scale, Reading) else 0.0
        ends = (
            "the returns do not rise"
            if came is not None
            else f"the loss stays at {worse:.3g} times that of the untrained model"
            if math.isfinite(worse)
            else "the loss is no longer finite at the end"
        )
        thrown = f"The update of step {self.at_step} is {_times(self.largest)} the weights it changes, and {ends}"
        figures = {"largest_update_over_weight": self.largest, "late_over_untrained": worse}
        if rms > RAW and isinstance(scale, Reading):
            says = f"{thrown}. The inputs of the first layer have a root mean square of {rms:.3g}."
            return Saw("by_raw_inputs", rms=rms, **figures).at(*scale.where, self.step_place).saying(says)
        if self.summed and self.examples > 4 and not self.adapts:
            says = (
                f"{thrown}. The loss is a sum over {self.examples} examples, which makes each step that many "
                "times longer."
            )
            held = Saw("by_summed_loss", examples=self.examples, **figures)
            return held.at(self.loss_place, self.made).saying(says)
        says = f"{thrown}. The learning rate is {self.rate:g}."
        return Saw("by_rate", rate=self.rate, **figures).at(self.made, self.step_place).saying(says)

    def _withstood(self, worse: float, returns: str) -> bool:
        if returns:
            return returns == "rises" or (returns == "level" and self.largest < FAR)
        if self.pinned[0] > PINNED and self.largest > FAR and not worse < FELL:
            return False
        return worse < WORSE and not self._no_better(worse)

    def _no_better(self, worse: float) -> bool:
        if worse < 1 and self.recorder.step < YOUNG:
            return False  # it is on its way down
        return worse >= (HARDLY if self.largest >= FURTHEST else NO_BETTER if self.largest >= FAR else WORSE)


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times" if math.isfinite(ratio) else "infinitely many times"
