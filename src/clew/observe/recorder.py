"""Hands every event of a run to the watches, keeps the count of steps, and writes down what they see.

One recorder per process. It decides which steps are sampled: the first ten, then ever sparser ones, and some more where
a later stage begins with an optimiser of its own. Between samples an event costs a few counters and nothing waits for
the device.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from clew.observe import alive
from clew.observe.guard import Unwarned, release
from clew.observe.losses import Losses
from clew.observe.origins import Origins
from clew.observe.picked import Picked
from clew.observe.places import users_place
from clew.observe.recount import Recount
from clew.observe.stream import Stream
from clew.observe.tally import NUMBERS, STEPS, Tally
from clew.observe.watch import EVENTS, Answer, Judged, Saw, Watch
from clew.observe.watches._network_lines import Followed, Lines
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.choices import Cut
    from clew.records.place import Place

CLOSURES = 8
BACKWARDS = 128
"""Evaluations within one step that are all looked at."""
DENSE = 10
SPARSE = 200  # steps between samples in the long run,
SPARSEST = 1000  # or up to so many where steps are so short that
SHARE = 0.005  # looking at one in 200 would take more of the time than this
STAGES, FRESH = 4, 5
"""So many optimisers that are made later begin a stage of their own, whose first steps are looked at like the first."""
CHECKPOINT_SECONDS = 3.0


Listener = tuple[Watch, Callable[[Any], None]]


def between(listeners: list[Listener]) -> list[Listener]:
    """Those that want to be told between sampled steps too."""
    return [held for held in listeners if not getattr(held[1], "when_sampled", False)]


class Recorder:
    """`step` counts the optimiser steps done by any optimiser in this process."""

    def __init__(self, folder: str, watches: list[type[Watch]], sample: str = "auto", limit: int = 0) -> None:
        self.pid = os.getpid()
        self.step = 0
        self.epoch = 0
        self.limit = limit
        self.sample = sample
        self.next_sample = 0
        self.dense = DENSE  # up to which step every one is sampled
        self._stages = 0
        self.sampled = True
        self._closures = 0  # evaluations within the step that is being made
        self.evaluations = 0  # and within the last one
        self._held = True  # whether that step is sampled
        self._backwards = 0  # since the last step
        self._kept = True  # whether the step was sampled in which there are too many of them
        self.told = 0  # events so far: what several watches share can tell by it that it has seen one already
        self.ending = False  # True once the run has ended and what was seen is written for the last time
        self.busy = False  # True while clew itself calls torch: hooks then stay silent
        self.shield: Callable[[], Any] = nullcontext  # keeps clew's calls from modes and subclasses of the script
        self.rank: tuple[int, int] | None = None
        self.also_write: Callable[[], None] | None = None
        self.say: Callable[[str], None] | None = None  # for what no test can answer for
        self.stream = Stream(os.path.join(folder, f"trace-{self.pid}.jsonl"))
        self.tally = Tally(folder)
        self.answers_path = os.path.join(folder, f"answers-{self.pid}.json")
        self.broken: dict[str, str] = {}
        self.models: list[weakref.ref[Any]] = []
        self._model_numbers: dict[int, int] = {}
        self.optimizers: list[weakref.ref[Any]] = []
        self._optimizer_numbers: dict[int, int] = {}
        self.loader: int | None = None  # whose batch came last
        self.trains_on: int | None = None  # the first loader whose batch a backward followed
        self._passes: dict[int, tuple[int, int]] = {}
        self._pending: list[tuple[Judged, alive.Held]] = []
        self.started = self._last_checkpoint = self._step_end = self._sample_end = time.monotonic()
        self._sample_step = 0
        self._gap = SPARSE
        self.picked = Picked()
        self.losses = Losses(self)
        self.recount = Recount(self)
        self.origins = Origins()
        self.lines = Lines(self)  # which line made which operation of the first graphs
        self.followed = Followed(self)
        self.choice: Cut | None = None  # one that no gradient goes past, in the first steps
        self.watches: list[Watch] = []
        for watch in watches:
            try:
                self.watches.append(watch(self))
            except BaseException as error:  # noqa: BLE001  # one that cannot even begin is named like one that fails later
                release(error)
                self.broken[watch.test] = failure(error)
        self._listeners = {name: self._listening(name) for name in EVENTS}
        self._between = {name: between(listeners) for name, listeners in self._listeners.items()}

    # --- telling the watches

    def _listening(self, name: str) -> list[Listener]:
        plain = getattr(Watch, name)
        told = (self.followed, self.losses, self.recount, *self.watches)
        return [(watch, getattr(watch, name)) for watch in told if getattr(type(watch), name) is not plain]

    def installed(self) -> None:
        """The hooks are on."""
        for watch in self.watches:
            try:
                watch.installed()
            except BaseException as error:  # noqa: BLE001  # as in tell
                release(error)
                self._switch_off(watch, error)

    def wants(self, name: str, sampled: bool = True) -> bool:
        return bool((self._listeners if sampled else self._between)[name])

    def tell(self, name: str, event: Any, sampled: bool = True) -> None:
        """Give an event to every watch that follows it. A watch that fails is switched off and says why."""
        listeners = (self._listeners if sampled else self._between)[name]
        if not listeners:
            return
        self.told += 1
        with Quiet(self):
            for watch, method in listeners:
                try:
                    method(event)
                except BaseException as error:  # noqa: BLE001  # whatever an instrument does wrong, the run goes on
                    release(error)
                    self._switch_off(watch, error)

    def quietly(self) -> Quiet:
        """While clew itself calls torch outside `tell`."""
        return Quiet(self)

    def _switch_off(self, watch: Watch, error: BaseException) -> None:
        if watch in (self.followed, self.losses, self.recount):
            self._complain(error)
        else:
            self.broken[watch.test] = failure(error)
        for name, listeners in self._listeners.items():
            self._listeners[name] = [held for held in listeners if held[0] is not watch]
            self._between[name] = between(self._listeners[name])

    def _complain(self, error: BaseException) -> None:
        if self.say is not None:
            self.say(f"could not follow the losses: {type(error).__name__}: {error}")

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
            self._stage_begins()
        return number

    def _stage_begins(self) -> None:
        """Not before the next step: this one may have begun without being looked at."""
        if self.step >= DENSE and self._stages < STAGES:
            self._stages += 1
            self.dense = self.step + 1 + FRESH
            self.next_sample = min(self.next_sample, self.step + 1)

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

    def forward_called(
        self, model: int, training: bool, grad: bool, place: Place | None, graph: alive.Held = None
    ) -> None:
        self._pending.append((Judged(model, training, grad, False, self.loader, self.step, place), graph))
        if len(self._pending) > 256:
            self.settle(False)

    def settle(self, backward: bool, loss: Any = None) -> None:
        """Decide what the forward calls since the last decision were. `loss` is what the backward begins at."""
        if backward and self.trains_on is None and self.loader is not None:
            self._training_begins(self.loader)
        pending, self._pending = self._pending, []
        # A graph that nobody holds any more is no part of this backward.
        could_be = [held.grad and (graph is None or graph() is not None) for held, graph in pending]
        doubt = any(could and not held.training for (held, _), could in zip(pending, could_be, strict=True))
        tokens = alive.reached(loss) if backward and loss is not None and doubt else None
        for (held, graph), could in zip(pending, could_be, strict=True):
            part = tokens is None or graph is None or graph() in tokens
            self.tell("judged", held._replace(backward=backward and could and part))

    def pass_began(self, loader: int, epoch: int) -> None:
        """A loader starts from the beginning. Until one is known to train, the first one counts the epochs."""
        if self.trains_on is None:
            self._passes[loader] = (epoch, self.step)
        if loader == (self.trains_on or 0):
            self.epoch = epoch
        if loader == self.trains_on:
            self.record("epoch", epoch)

    def _training_begins(self, loader: int) -> None:
        self.trains_on = loader
        self.epoch, step = self._passes.get(loader, (0, self.step))
        self._passes.clear()
        self.record("epoch", self.epoch, step=step)

    def closure_done(self) -> None:
        """One evaluation more within a step. An optimiser may make thousands: they are looked at ever more rarely."""
        self._closures += 1
        if self._closures == 1:
            self._held = self.sampled
        few = self._closures < CLOSURES or self._closures & (self._closures - 1) == 0
        self.sampled = self._held and few

    def closures_end(self) -> None:
        """The step is over, and is told as it began."""
        self.evaluations = self._closures
        if self._closures:
            self._closures, self.sampled = 0, self._held

    def backward_done(self) -> None:
        """One backward more without a step. Where updates are made by hand no step will come: after as many as anybody
        accumulates they are looked at ever more rarely."""
        self._backwards += 1
        if self._backwards == BACKWARDS:
            self._kept = self.sampled
        if self._backwards >= BACKWARDS:
            self.sampled = self._kept and self._backwards & (self._backwards - 1) == 0

    def step_begins(self) -> None:
        if self._backwards >= BACKWARDS:
            self.sampled = self._kept
        self._backwards = 0

    def step_done(self) -> None:
        """One optimiser step more."""
        self.step += 1
        self.tally.put(STEPS, self.step)
        if self.rank is None:
            self.rank = _rank()
        now = time.monotonic()
        if self.sampled:
            between = self.step - 1 - self._sample_step
            if between > DENSE:
                usual = (self._step_end - self._sample_end) / between
                self._gap = spacing(now - self._step_end - usual, usual)
            self._sample_step, self._sample_end = self.step, now
            self.next_sample = self._following(self.step - 1)
        self._step_end = now
        self.sampled = self.step >= self.next_sample
        if self.step == DENSE or now - self._last_checkpoint > CHECKPOINT_SECONDS:
            self.checkpoint()

    def _following(self, step: int) -> int:
        if self.sample == "every":
            return step + 1
        if self.sample != "auto":
            return step + int(self.sample)
        return step + 1 if step + 1 < self.dense else step + min(max(step // 2, 1), self._gap)

    def checkpoint(self, final: bool = False) -> None:
        """Write down everything seen so far, so that a killed run keeps it."""
        self.ending = final
        try:
            with self.quietly():
                self.losses.write()
                self.recount.write()
        except BaseException as error:  # noqa: BLE001  # as in tell
            release(error)
            self._complain(error)
        self.stream.flush()
        self.tally.put(NUMBERS, self.stream.file.missing)
        self._last_checkpoint = time.monotonic()
        self.stream.whole(self.answers_path, {"final": final, **self.summary(), "answers": self.answers()})
        if self.also_write is not None:
            self.also_write()

    def summary(self) -> dict[str, Any]:
        rank, world = self.rank or _rank()
        return {
            "pid": self.pid,
            "rank": rank,
            "world": world,
            "part": world > 1 or _is_part(),
            "steps": self.step,
            "seconds": time.monotonic() - self.started,
            "models": len(self.models),
            "optimizers": len(self.optimizers),
        }

    def answers(self) -> list[dict[str, Any]]:
        """What every watch says, as plain values."""
        with self.quietly():
            never = set(self.broken) - {watch.test for watch in self.watches}
            return [
                *(self._answer(watch) for watch in self.watches if watch.test),  # others keep things for later
                *({"test": test, "unclear": self.broken[test]} for test in sorted(never)),
            ]

    def _answer(self, watch: Watch) -> dict[str, Any]:
        answer: Answer
        if watch.test in self.broken:
            answer = Unclear(self.broken[watch.test])
        else:
            try:
                answer = watch.read()
            except BaseException as error:  # noqa: BLE001  # as above: it is said, and the run goes on
                release(error)
                answer = Unclear(failure(error))
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


class Quiet(Unwarned):
    """Neither hooks nor modes of the script see what is called inside, and nothing warns."""

    __slots__ = ("_recorder", "_shield", "_was")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __enter__(self) -> None:
        recorder = self._recorder
        super().__enter__()
        self._was, recorder.busy = recorder.busy, True
        self._shield = recorder.shield()
        self._shield.__enter__()

    def __exit__(self, *_: object) -> None:
        self._shield.__exit__(None, None, None)
        self._recorder.busy = self._was
        super().__exit__()


def spacing(extra: float, usual: float) -> int:
    """How many steps to leave between samples, from what a sampled step takes more than the usual time of a step."""
    if usual <= 0 or extra <= SHARE * SPARSE * usual:
        return SPARSE
    return int(min(extra / usual / SHARE, SPARSEST))


def failure(error: BaseException) -> str:
    return f"its instrument failed: {type(error).__name__}: {error}"


def _is_part() -> bool:
    """Whether another process of the same program made this one to work with it."""
    made = sys.modules.get("multiprocessing.process")
    return made is not None and made.parent_process() is not None


def _rank() -> tuple[int, int]:
    """Which process of how many, as torch.distributed or the launcher says."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    try:
        return int(os.environ.get("RANK") or 0), int(os.environ.get("WORLD_SIZE") or 1)
    except ValueError:
        return 0, 1
