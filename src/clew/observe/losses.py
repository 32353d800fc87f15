"""The loss curves of a run, one for each line that calls backward, and what the main one is made of.

The line whose backward came first is the main one: its curve is the series ("loss", ""). Every other line has its own,
("loss", "train.py:57"): the second network of a GAN, a critic, a later stage. Which line is called most often is known
only at the end, and a curve that changed its line on the way would be two curves in one.

A loss that a GradScaler has multiplied is recorded as it was before.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from clew.observe.baseline import MadeOf, Targets, made_of, mean_value, targets_of
from clew.observe.watch import Answer, Backward, LossCall, Watch, when_sampled
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

HELD_LOSSES = 256  # more than the steps between two samples, so that nothing waits for the device between them
CURVES = 32  # lines with a curve of their own; what further ones call is not recorded
SAME = 1e-3  # relative difference up to which a loss is the mean of one call of a loss function


class Scaled(NamedTuple):
    """What a GradScaler made of a loss. The value is a number without its graph."""

    given: weakref.ref[torch.Tensor]
    made: weakref.ref[torch.Tensor]
    value: torch.Tensor
    factor: torch.Tensor  # as it stands until the scaler's next update, which comes after the step

    def before(self, loss: torch.Tensor) -> torch.Tensor:
        """The value of a loss as it was before the scaler came."""
        if loss is self.made():
            return self.value
        if loss is self.given():  # scaled, and the result not used
            return loss.detach()
        return loss.detach() / self.factor.to(loss.device)  # several scaled losses, added


class Losses(Watch):
    """An instrument of the recorder's own: it is told like a watch and writes series instead of answering a test."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.curves: dict[Place | None, str] = {}
        self._latest: tuple[Any, str] = (self, "")  # of no place yet
        self._waiting: list[tuple[int, str, torch.Tensor]] = []
        self._scaled: Scaled | None = None
        self._calls: dict[int, MadeOf] = {}
        self._written: dict[str, set[float]] = {}
        self._targets: dict[str, Targets] = {}
        self._counted = 0

    # --- the curves

    def scaled(self, given: torch.Tensor, made: torch.Tensor, factor: torch.Tensor) -> None:
        """A GradScaler multiplied a loss; the next backward is likely to be called on it."""
        self._scaled = Scaled(weakref.ref(given), weakref.ref(made), given.detach(), factor)

    def before_backward(self, event: Backward) -> None:
        loss, scaled = event.loss, self._scaled
        if loss.numel() != 1 or loss.is_meta:
            return
        of = self._latest[1] if event.place is self._latest[0] else self._curve(event.place)
        if of is None:
            return
        value = loss
        if scaled is not None:
            value, self._scaled = scaled.before(loss), None
        if value.is_cpu:
            self.recorder.record("loss", value.item(), of)
        else:
            self._waiting.append((event.step, of, value.detach().clone()))  # the script may change its own in place
            if event.sampled or len(self._waiting) >= HELD_LOSSES:
                self.flush()
        if event.sampled:
            if not of:
                self._explain(loss, value.item(), event.step)
            self._calls.clear()

    def _curve(self, place: Place | None) -> str | None:
        if place not in self.curves:
            if len(self.curves) >= CURVES:
                return None
            line = "elsewhere" if place is None else f"{place.file}:{place.line}"
            self.curves[place] = line if self.curves else ""
        self._latest = (place, self.curves[place])
        return self._latest[1]

    def flush(self) -> None:
        """Write the losses that were kept back, waiting for the device once for all of them."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            numbers = values_of([loss for _, _, loss in waiting])
            for (step, of, _), number in zip(waiting, numbers, strict=True):
                self.recorder.record("loss", number, of, step)

    # --- what the main loss is made of

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if not event.grad or event.result.grad_fn is None:
            return
        if len(self._calls) >= 64:  # losses that no backward follows
            self._calls.clear()
        with torch.no_grad():
            self._calls[event.result.grad_fn._sequence_nr()] = MadeOf(event.name, mean_value(event), targets_of(event))

    def _explain(self, loss: torch.Tensor, value: float, step: int) -> None:
        call = made_of(loss.grad_fn, self._calls)
        if call is None or call.mean is None:
            return
        mean = float(call.mean)
        if mean * value > 0 or mean == value:
            self._once(f"loss function {call.name}", 1.0, step)
        if call.targets is None or not abs(mean - value) <= SAME * abs(mean):
            return  # weighted, divided by the steps of an accumulation, or one term of several: on another scale
        if call.targets.classes:
            self._once("classes", float(call.targets.classes), step)
        held = self._targets.get(call.name)
        if held is None:
            self._targets[call.name] = call.targets
        else:
            held.add(call.targets)

    def _once(self, name: str, value: float, step: int) -> None:
        """Each value once: a reader sees by their number whether it was always the same."""
        known = self._written.setdefault(name, set())
        if value not in known and len(known) < 16:
            known.add(value)
            self.recorder.record(name, value, step=step)

    def write(self) -> None:
        """At a checkpoint: what is still in hand, and what the best constant answer would have cost."""
        self.flush()
        if len(self._targets) != 1:
            return
        (held,) = self._targets.values()
        constant = held.constant_loss() if held.count > self._counted else None
        if constant is not None:
            self._counted = held.count
            self.recorder.record("constant loss", constant)

    def read(self) -> Answer:
        return Unclear("it answers no test")


def values_of(scalars: list[Any]) -> list[float]:
    """The values of one-element tensors; those of one device and kind wait for it together, once."""
    if len({(scalar.device, scalar.dtype) for scalar in scalars}) == 1:
        return [float(value) for value in torch.stack([scalar.reshape(()) for scalar in scalars]).tolist()]
    return [float(scalar) for scalar in scalars]
