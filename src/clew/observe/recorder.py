"""Hands every event of a run to the watches, keeps the count of steps, and writes down what they see.

One recorder per process. It decides which steps are sampled: the first ten, then ever sparser ones. Between samples an
event costs a few counters and nothing waits for the device.
"""

from __future__ import annotations

import os
import time
import weakref
from typing import TYPE_CHECKING, Any

from clew.observe.places import users_place
from clew.observe.stream import Stream
from clew.observe.watch import EVENTS, Answer, Judged, Saw, Watch
from clew.records.clue import Reading, Unclear

if TYPE_CHECKING:
    from clew.records.place import Place

DENSE = 10
SPARSEST = 200
HELD_LOSSES = 64
CHECKPOINT_SECONDS = 3.0


class Recorder:
    """`step` counts the optimiser steps done by any optimiser in this process."""

    def __init__(self, folder: str, watches: list[type[Watch]], sample: str = "auto", limit: int = 0) -> None:
        self.pid = os.getpid()
        self.step = 0
        self.epoch = 0
        self.limit = limit
        self.sample = sample
        self.next_sample = 0
        self.sampled = True
        self.busy = False  # True while clew itself calls torch: hooks then stay silent
        self.stream = Stream(os.path.join(folder, f"trace-{self.pid}.jsonl"))
        self.answers_path = os.path.join(folder, f"answers-{self.pid}.json")
        self.broken: dict[str, str] = {}
        self.watches = [watch(self) for watch in watches]
        self._listeners = {name: self._listening(name) for name in EVENTS}
        self.models: list[weakref.ref[Any]] = []
        self._model_numbers: dict[int, int] = {}
        self.optimizers: list[weakref.ref[Any]] = []
        self._optimizer_numbers: dict[int, int] = {}
        self.loader: int | None = None
        self._pending: list[Judged] = []
        self._losses: list[tuple[int, Any]] = []
        self._last_checkpoint = time.monotonic()
        self.started = time.monotonic()

    # --- telling the watches

    def _listening(self, name: str) -> list[Watch]:
        plain = getattr(Watch, name)
        return [watch for watch in self.watches if getattr(type(watch), name) is not plain]

    def wants(self, name: str) -> bool:
        return bool(self._listeners[name])

    def tell(self, name: str, event: Any) -> None:
        """Give an event to every watch that follows it. A watch that fails is switched off and says why."""
        listeners = self._listeners[name]
        if not listeners:
            return
        self.busy = True
        try:
            for watch in listeners[:]:
                try:
                    getattr(watch, name)(event)
                except Exception as error:  # noqa: BLE001  # whatever an instrument does wrong, the run goes on
                    self._switch_off(watch, error)
        finally:
            self.busy = False

    def _switch_off(self, watch: Watch, error: Exception) -> None:
        self.broken[watch.test] = f"its instrument failed: {type(error).__name__}: {error}"
        for listeners in self._listeners.values():
            if watch in listeners:
                listeners.remove(watch)

    # --- what watches may ask

    def place(self) -> Place | None:
        return users_place(2)

    def record(self, name: str, value: float, of: str = "", step: int | None = None) -> None:
        """Keep one number of a series."""
        self.stream.number(name, of, self.step if step is None else step, value)

    def model_number(self, module: Any) -> int:
        """Models are numbered as they are first called. The number outlives the model, its memory does not."""
        number = self._model_numbers.get(id(module))
        if number is None or self.models[number]() is not module:
            number = len(self.models)
            self.models.append(weakref.ref(module))
            self._model_numbers[id(module)] = number
        return number

    def optimizer_number(self, optimizer: Any) -> int:
        number = self._optimizer_numbers.get(id(optimizer))
        if number is None or self.optimizers[number]() is not optimizer:
            number = len(self.optimizers)
            self.optimizers.append(weakref.ref(optimizer))
            self._optimizer_numbers[id(optimizer)] = number
        return number

    def live_models(self) -> list[tuple[int, Any]]:
        """The models that were called and still exist, outermost ones only."""
        found = [(number, held()) for number, held in enumerate(self.models)]
        return [(number, module) for number, module in found if module is not None]

    def live_optimizers(self) -> list[tuple[int, Any]]:
        found = [(number, held()) for number, held in enumerate(self.optimizers)]
        return [(number, optimizer) for number, optimizer in found if optimizer is not None]

    def parameter_names(self) -> dict[int, str]:
        """Names by id() of every parameter of the models that were called."""
        names: dict[int, str] = {}
        for number, module in self.live_models():
            prefix = f"model{number}." if len(self.models) > 1 else ""
            for name, parameter in module.named_parameters():
                names.setdefault(id(parameter), prefix + name)
        return names

    # --- the clock of the run

    def forward_called(self, model: int, training: bool, grad: bool, place: Place | None) -> None:
        self._pending.append(Judged(model, training, grad, False, self.loader, self.step, place))
        if len(self._pending) > 256:
            self.settle(False)

    def settle(self, backward: bool) -> None:
        """Decide what the forward calls since the last decision were."""
        pending, self._pending = self._pending, []
        for held in pending:
            self.tell("judged", held._replace(backward=backward and held.grad))

    def loss_backed(self, loss: Any) -> None:
        """Remember a loss without waiting for it."""
        if loss.numel() == 1:
            self._losses.append((self.step, loss.detach()))
            if self.sampled or len(self._losses) >= HELD_LOSSES:
                self.flush_losses()

    def flush_losses(self) -> None:
        held, self._losses = self._losses, []
        for step, loss in held:
            self.record("loss", float(loss), step=step)

    def step_done(self) -> None:
        """One optimiser step more. Returns normally, or stops the run when enough steps were seen."""
        self.step += 1
        if self.sampled:
            self.next_sample = self._following(self.step - 1)
        self.sampled = self.step >= self.next_sample
        if self.sampled or time.monotonic() - self._last_checkpoint > CHECKPOINT_SECONDS:
            self.checkpoint_if_due()

    def _following(self, step: int) -> int:
        if self.sample == "every":
            return step + 1
        if self.sample != "auto":
            return step + int(self.sample)
        return step + 1 if step + 1 < DENSE else step + min(max(step // 2, 1), SPARSEST)

    def checkpoint_if_due(self) -> None:
        if time.monotonic() - self._last_checkpoint > CHECKPOINT_SECONDS:
            self.checkpoint()

    def checkpoint(self, final: bool = False) -> None:
        """Write down everything seen so far, so that a killed run keeps it."""
        self.flush_losses()
        self.stream.flush()
        self._last_checkpoint = time.monotonic()
        self.stream.whole(self.answers_path, {"final": final, **self.summary(), "answers": self.answers()})

    def summary(self) -> dict[str, Any]:
        return {
            "pid": self.pid,
            "rank": int(os.environ.get("RANK", "0") or 0),
            "world": int(os.environ.get("WORLD_SIZE", "1") or 1),
            "steps": self.step,
            "seconds": time.monotonic() - self.started,
            "models": len(self.models),
            "optimizers": len(self.optimizers),
        }

    def answers(self) -> list[dict[str, Any]]:
        """What every watch says, as plain values."""
        self.busy = True
        try:
            return [self._answer(watch) for watch in self.watches]
        finally:
            self.busy = False

    def _answer(self, watch: Watch) -> dict[str, Any]:
        answer: Answer
        if watch.test in self.broken:
            answer = Unclear(self.broken[watch.test])
        else:
            try:
                answer = watch.read()
            except Exception as error:  # noqa: BLE001  # as above: it is said, and the run goes on
                answer = Unclear(f"its instrument failed: {type(error).__name__}: {error}")
        table: dict[str, Any] = {"test": watch.test}
        if isinstance(answer, Unclear):
            table["unclear"] = answer.why
            return table
        table["measured"] = dict(answer.measured)
        table["where"] = [place.to_json() for place in answer.where]
        if isinstance(answer, Saw):
            table["outcome"] = answer.outcome
            table["says"] = answer.says
        return table


__all__ = ["Reading", "Recorder"]
