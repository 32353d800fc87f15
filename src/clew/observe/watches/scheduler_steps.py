"""How often does the scheduler step, and does that fit its settings?

Why it matters: a schedule counted in epochs and stepped per batch freezes the model within the first epoch; one
counted in batches and stepped per epoch never leaves its beginning; one stepped before the optimiser skips its first
rate; and a function that gives a rate where LambdaLR wants a factor multiplies the rate with itself.
Cannot tell: which horizon was intended when the rate is still moving.
Silent when: the rate returns by design (warm restarts, cycles), the run itself ends with the schedule, the first
step was skipped by a GradScaler, or the scheduler goes first and being one call ahead changes no rate by much.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.places import is_users, shown
from clew.observe.watch import Answer, Backward, OptimizerEvent, Saw, SchedulerStep, Watch
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

COLLAPSED = 1e-3
"""Of the highest rate so far: from here on a step moves nothing."""
LOW_AFTER_EPOCH = 0.05
FROZEN_STEPS = 20
EARLY, LITTLE = 10, 0.2
"""Milestones that are all passed in a tenth of the run, and what is left of the rate then."""
AHEAD = 0.04
"""Of all rates: what being one call ahead changed. A cosine over hundreds of batches does not notice."""
LONG = 12
FAR_BELOW, A_RATE, STEPS = 0.02, 0.2, 50
"""Of the rate that the optimiser was given: all that a schedule ever lets through. A schedule that gives the rate
itself belongs with an optimiser at 1."""
RETURNS = ("CosineAnnealingWarmRestarts", "CyclicLR")


class Run:
    """One scheduler: when it was called, and what the rate did."""

    def __init__(self, scheduler: Any) -> None:
        self.kind = type(_last(scheduler)).__name__
        self.optimizer = id(getattr(scheduler, "optimizer", None))
        self.total = _horizon(scheduler)
        self.last_milestone = max(getattr(scheduler, "milestones", None) or [0])
        self.places: Counter[Place | None] = Counter()
        self.first_place: Place | None = None
        self.calls = self.in_first_epoch = 0
        self.before_any = self.skipped_first = False  # called before any backward; and the first rate was gone by then
        self.again_there = 0  # calls at the first call's place, after steps
        self.between = 0  # steps with a call between their backward and them
        self.called_since_backward = self.pending = False
        self.steps = self.frozen_steps = 0
        self.highest = self.rate = 0.0
        self.before = 0.0  # the rate that the last call replaced
        self.changed = self.meant = 0.0  # over all steps: the rate less the one a call before, and that one
        self.after_first_epoch = 0.0  # rate over highest rate when the second epoch began; 0 before that
        self.base = max(getattr(scheduler, "base_lrs", None) or [0.0])
        self.rises = True
        self.function = _function(scheduler)

    def usual_place(self) -> Place | None:
        """Where most calls come from: one per epoch may be right, and those per batch beside it wrong."""
        return self.places.most_common(1)[0][0] if self.places else None


class SchedulerSteps(Watch):
    test = "scheduler_steps"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.runs: dict[int, Run] = {}
        self.backwards = self.steps = self.epochs = 0
        self.rates: dict[int, float] = {}  # the highest rate each optimiser stepped with
        self.taken: dict[int, int] = {}  # steps of each optimiser, also before its scheduler's first call

    def before_backward(self, event: Backward) -> None:
        del event
        self.backwards += 1
        for run in self.runs.values():
            run.called_since_backward = run.pending = False

    def scheduler(self, event: SchedulerStep) -> None:
        if id(event.scheduler) not in self.runs and len(self.runs) >= 64:
            return
        run = self.runs.setdefault(id(event.scheduler), Run(event.scheduler))
        run.calls += 1
        run.places[event.place] += 1
        run.called_since_backward = True
        if run.calls == 1:
            run.first_place = event.place
            run.before_any = not self.backwards
        elif run.steps and event.place == run.first_place:
            run.again_there += 1
        if event.epoch == 0:
            run.in_first_epoch += 1
        if run.optimizer not in self.rates and getattr(event.scheduler, "last_epoch", 0) > 0:
            run.skipped_first = True
        rate = _rate(getattr(event.scheduler, "optimizer", None))
        if rate is None:
            return
        run.rises = run.rises and rate >= run.rate
        run.before = run.rate if run.calls > 1 else self.rates.get(run.optimizer, run.base)
        run.rate, run.highest = rate, max(run.highest, rate, self.rates.get(run.optimizer, 0.0))
        if event.epoch and not run.after_first_epoch and run.highest:
            run.after_first_epoch = rate / run.highest

    def before_step(self, event: OptimizerEvent) -> None:
        self.steps += 1
        self.epochs = self.recorder.epoch
        key = id(event.optimizer)
        if key in self.rates or len(self.rates) < 64:
            self.rates[key] = max(self.rates.get(key, 0.0), _rate(event.optimizer) or 0.0)
            self.taken[key] = self.taken.get(key, 0) + 1
        for run in self.runs.values():
            if run.optimizer == key:
                run.steps += 1
                run.changed += abs(run.rate - run.before)
                run.meant += run.before
                run.pending, run.called_since_backward = run.called_since_backward, False
                run.frozen_steps += bool(run.highest) and run.rate <= COLLAPSED * run.highest

    def after_step(self, event: OptimizerEvent) -> None:
        """Only now is it known that no backward ran inside the step, in a closure."""
        for run in self.runs.values():
            if run.optimizer == id(event.optimizer):
                run.between += run.pending
                run.pending = False

    def read(self) -> Answer:
        if not self.runs:
            return Saw("plausible", schedulers=0) if self.steps else Unclear("no optimiser step was seen")
        for run in self.runs.values():
            figures = {"calls": run.calls, "steps": run.steps, "rate": run.rate, "highest_rate": run.highest}
            fault = self._too_fast(run) or self._too_slow(run)
            if fault:
                return Saw("wrong_cadence", **figures).at(run.usual_place()).saying(fault)
            if self._far_below(run):
                says = (
                    f"the optimiser got a learning rate of {run.base:.3g}, and the schedule never allows more "
                    f"than {self.rates[run.optimizer]:.3g}"
                )
                places = (run.function, run.usual_place())
                return Saw("far_below", base_rate=run.base, **figures).at(*places).saying(says)
            from_start = run.before_any and run.skipped_first and run.again_there
            first = from_start or run.between >= max(2, run.steps / 2)
            if run.steps > 1 and first and run.changed > AHEAD * run.meant:
                return Saw("before_optimizer", **figures).at(run.first_place)
        return Saw("plausible", schedulers=len(self.runs), steps=self.steps)

    def _too_fast(self, run: Run) -> str:
        if run.kind in RETURNS or not run.steps or run.calls < 0.8 * run.steps:
            return ""
        if run.kind == "CosineAnnealingLR" and run.total and run.calls >= 2 * run.total and run.calls > FROZEN_STEPS:
            return (
                f"{run.calls} scheduler calls, one per step, ran through a schedule of {run.total} steps again "
                "and again"
            )
        if run.last_milestone and run.calls >= EARLY * run.last_milestone and run.rate <= LITTLE * run.highest:
            return (
                f"stepped once per batch, the schedule passed its last milestone at call {run.last_milestone} "
                f"of {run.calls}, and the rest ran at {run.rate:.3g} instead of {run.highest:.3g}"
            )
        gone = run.frozen_steps >= max(FROZEN_STEPS, run.steps / 2)
        low = 0 < run.after_first_epoch <= LOW_AFTER_EPOCH
        early = low and run.in_first_epoch >= FROZEN_STEPS / 2 and run.steps >= 1.5 * run.in_first_epoch
        if gone or early:
            return (
                f"stepped once per batch, the schedule lowered the learning rate from {run.highest:.3g} to "
                f"{run.rate:.3g}"
            )
        return ""

    def _far_below(self, run: Run) -> bool:
        highest, steps = self.rates.get(run.optimizer, 0.0), self.taken.get(run.optimizer, 0)
        return not run.rises and steps >= STEPS and run.base <= A_RATE and 0 < highest <= FAR_BELOW * run.base

    def _too_slow(self, run: Run) -> str:
        steps = self.taken.get(run.optimizer, 0)
        if run.calls < 2 or steps < 4 * run.calls:
            return ""
        cut = 0 < self.recorder.limit <= self.recorder.step  # a run that was stopped says nothing about its horizon
        if run.total and not cut and abs(run.total - steps) <= 0.02 * steps:
            return f"a schedule of {run.total} steps was stepped {run.calls} times in {steps} optimiser steps"
        reached = 0.5 if run.calls >= LONG and not cut else 0.1 if cut else 0.3  # few calls may be a shortened run
        if run.calls >= 5 and run.rises and 0 < run.rate <= reached * run.base:
            return f"after {steps} optimiser steps the warm-up has reached {run.rate:.3g} of {run.base:.3g}"
        return ""


def _last(scheduler: Any) -> Any:
    """Of schedules that follow one another, the one that the rest of the run is left with."""
    parts = getattr(scheduler, "_schedulers", None)
    return _last(parts[-1]) if parts and hasattr(scheduler, "_milestones") else scheduler


def _horizon(scheduler: Any) -> int:
    """How many calls a schedule is made for, where it says so."""
    parts, milestones = (getattr(scheduler, name, None) for name in ("_schedulers", "_milestones"))
    if parts and milestones:
        rest = _horizon(parts[-1])
        return rest and milestones[-1] + rest
    for name in ("total_steps", "T_max", "total_iters"):
        held = getattr(scheduler, name, None)
        if isinstance(held, int) and held > 0:
            return held
    for function in getattr(scheduler, "lr_lambdas", None) or ():
        held = (getattr(function, "keywords", None) or {}).get("num_training_steps")
        if isinstance(held, int):
            return held
    return 0


def _function(scheduler: Any) -> Place | None:
    """The line of the user's function that a schedule asks for its factor."""
    for function in getattr(scheduler, "lr_lambdas", None) or ():
        code = getattr(getattr(function, "func", function), "__code__", None)
        if code is not None and is_users(code.co_filename):
            return Place(shown(code.co_filename), code.co_firstlineno, symbol=code.co_qualname)
    return None


def _rate(optimizer: Any) -> float | None:
    """The rate of the first group, unless reading it would wait for a device."""
    groups = getattr(optimizer, "param_groups", None) or [{}]
    held = groups[0].get("lr")
    if isinstance(held, torch.Tensor):
        return float(held) if held.device.type == "cpu" else None
    return float(held) if isinstance(held, int | float) else None
