"""Does the learned physical parameter stay inside its range?

Follows single numbers that an optimiser holds beside a network whose derivatives enter the loss, and the numbers of
short tensors that belong to no layer.

Why it matters: at zero the term that the number multiplies is switched off, and the equation becomes easy.
A number that never moved although its gradient was asked for at every step sits behind a bound too: what cuts it off
passes no gradient on. One that is kept positive by a softplus or a sigmoid is all but zero, or at its bound, where that
function is flat; one that is kept between two bounds and ran to one of them would go on if it could.
Cannot tell: a true value near zero or near the bound; of several numbers in one tensor, which of them ought to vanish,
since terms of an equation that is sought may.
Silent when: the number takes no part in the loss or its rate is zero, or lies in the interior at the end.
"""

from __future__ import annotations

import statistics
import weakref
from typing import TYPE_CHECKING, Any

from clew.observe.watch import Answer, Backward, OptimizerEvent, when_sampled
from clew.observe.watches._loss_graph import bare, inputs
from clew.observe.watches._physics_terms import Solved
from clew.observe.watches._reach import where_made
from clew.records.clue import Saw, Unclear

if TYPE_CHECKING:
    import torch

    from clew.records.place import Place

KEPT = 512
STEPS = 100
NEAR = 0.01
JITTER = 0.05
GONE = 1e-3  # of the highest learning rate
EDGE = 4.6  # where a sigmoid is within a hundredth of its bounds
FLAT = 10.0  # where softplus and sigmoid are within 5e-5 of their limits
WALKS, WALKED = 3, 8192
FEW = 8
STILL = "it never leaves its initial value: its gradient is exactly zero at all {} steps"


class Track:
    """The values of one number, thinned out as they become many."""

    def __init__(self, alone: bool = True) -> None:
        self.values: list[tuple[int, float]] = []
        self.every = 1
        self.pulled = False  # whether a gradient was ever other than zero
        self.asked = 0  # gradients that were there
        self.behind = ""  # the function that it goes through
        self.alone = alone  # whether it is the only number of its tensor
        self.tensor: weakref.ref[torch.Tensor] | None = None

    def add(self, step: int, value: float) -> None:
        if step % self.every == 0:
            self.values.append((step, value))
            if len(self.values) > KEPT:
                self.values = self.values[::2]
                self.every *= 2

    def cut_off(self) -> bool:
        """One and the same value all along, and gradients that are there and zero."""
        return self.asked >= STEPS and not self.pulled and len({value for _, value in self.values}) == 1

    def flat(self) -> bool:
        """Deep in the flat part of the function that it goes through, from the start to the end."""
        values = [value for _, value in self.values]
        low, high = bool(self.behind) and max(values) < -FLAT, self.behind == "Sigmoid" and min(values) > FLAT
        return low or high

    def at_edge(self) -> bool:
        """Within a hundredth of a bound that a sigmoid sets, for the last quarter, after a start in the interior."""
        last = self.values[-1][0]
        late = [value for step, value in self.values if step >= 0.75 * last]
        away = min(late) > EDGE or max(late) < -EDGE
        return self.behind == "Sigmoid" and len(late) >= 8 and away and abs(self.values[0][1]) < EDGE / 2

    def stuck(self, stopped: bool) -> bool:
        """At zero, but for a jitter about it, or, while others move, at one and the same value, for the last half."""
        last = self.values[-1][0]
        late = [value for step, value in self.values if step >= last / 2]
        early = [value for step, value in self.values if step < last / 2]
        largest = max(abs(value) for _, value in self.values)
        if not self.alone or len(late) < 8 or not early or largest == 0.0 or len(set(early)) < 3:
            return False
        at_zero = abs(statistics.fmean(late)) <= NEAR * largest and max(map(abs, late)) <= JITTER * largest
        return at_zero or (len(set(late)) == 1 and not stopped)


class PhysicalParameterTrack(Solved):
    test = "physical_parameter_track"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.tracks: dict[tuple[int, int, int], Track] = {}
        self.short: dict[tuple[int, int], bool] = {}
        self.rates = Track()
        self.behind: dict[int, str] = {}
        self.walks = 0

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        super().before_backward(event)
        if self.equations.updates and self.walks < WALKS and event.loss.grad_fn is not None:
            self.walks += 1
            self.behind |= flattened(event.loss.grad_fn)

    def before_step(self, event: OptimizerEvent) -> None:
        """At every step: reading a number that lies in main memory waits for nothing."""
        if not self.equations.updates:
            return
        number = 0
        self.rates.add(event.step, max(float(group["lr"]) for group in event.optimizer.param_groups))
        for group in event.optimizer.param_groups:
            for parameter in group["params"]:
                number += 1
                if parameter.numel() <= FEW and parameter.device.type == "cpu":
                    if (event.number, number) not in self.short:
                        self.short[event.number, number] = self._is_short(parameter, group["params"])
                    if self.short[event.number, number]:
                        self._follow((event.number, number), parameter, event.step, group["lr"])

    def _follow(self, mark: tuple[int, int], parameter: torch.Tensor, step: int, rate: float) -> None:
        pulls = None if parameter.grad is None or not rate > 0 else parameter.grad.reshape(-1).tolist()
        for index, value in enumerate(parameter.detach().reshape(-1).tolist()):
            track = self.tracks.get((*mark, index))
            if track is None:
                track = self.tracks[*mark, index] = Track(parameter.numel() == 1)
                track.tensor = weakref.ref(parameter)
            track.add(step, value)
            track.behind = self.behind.get(id(parameter), track.behind)
            if pulls is not None:
                track.asked += 1
                track.pulled = track.pulled or pulls[index] != 0.0

    def _is_short(self, parameter: torch.Tensor, beside: list[torch.Tensor]) -> bool:
        """A number, or a few in a tensor that is no weight and no bias of a layer."""
        if parameter.dim() == 0:
            return True
        for _, model in self.recorder.live_models():
            for module in model.modules():
                if any(held is parameter for held in module._parameters.values()):
                    kind = type(module)
                    return not kind.__module__.startswith("torch.") or kind.__name__.startswith("Parameter")
        # Of a model that was not seen: a bias follows a weight with as many rows.
        at = next(index for index, held in enumerate(beside) if held is parameter)
        before = beside[at - 1] if at else None
        return parameter.dim() == 1 and (before is None or before.dim() < 2 or len(before) != len(parameter))

    def _place(self, track: Track) -> Place | None:
        """Where the number is made, if a model holds it."""
        held = None if track.tensor is None else track.tensor()
        for _, model in self.recorder.live_models():
            for name, parameter in model.named_parameters():
                if parameter is held:
                    return where_made(model, name)
        return None

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        held = [track for track in self.tracks.values() if track.values]
        if not held:
            return Unclear("no optimiser holds a single number")
        if self.recorder.step < STEPS:
            return Unclear(f"seeing where a parameter settles takes about {STEPS} steps")
        rates = self.rates.values
        late = [rate for step, rate in rates if step >= rates[-1][0] / 2]
        stopped = max(late) <= GONE * max(rate for _, rate in rates)
        for track in held:
            if track.cut_off() or track.flat() or track.at_edge() or track.stuck(stopped):
                saw = Saw("at_zero_or_bound", start=track.values[0][1], end=track.values[-1][1])
                saw = saw.at(self._place(track), self.equations.place)
                return saw.saying(STILL.format(track.asked)) if track.cut_off() else saw
        if stopped:
            return Unclear("the learning rate is close to zero for half of the run")
        return Saw("moves", start=held[0].values[0][1], end=held[0].values[-1][1])


def flattened(root: Any) -> dict[int, str]:
    """Numbers that enter a loss through a function with a flat part, by id."""
    found: dict[int, str] = {}
    waiting, seen = [root], {root}
    while waiting and len(seen) < WALKED:
        node = waiting.pop()
        fed = inputs(node)
        kind = bare(node)
        if kind in ("Softplus", "Sigmoid") and fed:
            number = getattr(fed[0], "variable", None)
            if number is not None and number.numel() <= FEW:
                found[id(number)] = kind
        for held in fed:
            if held not in seen:
                seen.add(held)
                waiting.append(held)
    return found
