"""Keeps one training step of the run, so that it can be examined after the run has ended.

On the first sampled steps every torch call is noted; where a backward begins, the calls that led to its loss are cut
out as a tape and written down with the parameters as they were, and further batches that went the same way. Which rows
a batch was picked from is noted with or without a tape, on every sampled step.
"""

from __future__ import annotations

import os
import time
import weakref
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

from clew.observe.choices import cut_by_choice
from clew.observe.cut import Cut, Names, Uncut, cut, signature
from clew.observe.guard import release
from clew.observe.patches import hide, original, unframe
from clew.observe.picked import FOLLOWED
from clew.observe.places import users_place
from clew.observe.procedure import Procedure, augmenting
from clew.observe.roll import Roll, tensors
from clew.observe.watch import (
    Backward,
    Batch,
    Clip,
    Forward,
    LossCall,
    OptimizerEvent,
    SchedulerStep,
    Watch,
    when_sampled,
)
from clew.records.clue import Answer, Unclear
from clew.tape import files

if TYPE_CHECKING:
    from clew.observe.hooks import Hooks
    from clew.observe.recorder import Recorder

MOST_BATCHES = 24
LAST_STEP = 2000
MOST_FAILURES = 6
LOOKS = 4  # backward passes whose calls are looked through for choices
MOST_BYTES = 64 << 20  # of batches
MOST_STATE = 512 << 20  # of parameters and buffers
SHARE = 0.01  # of the time may go into keeping late states


class Taper(Watch):
    """`hooks` is set once they are installed. Answers no test: what it leaves behind is a folder."""

    test = ""
    hooks: Hooks

    def __init__(self, recorder: Recorder, folder: str = "") -> None:
        super().__init__(recorder)
        import torch

        self.torch = torch
        self.folder = folder
        self.roll = Roll(torch, self._where)
        self.mode: Any = None
        self.over = False
        self.why = ""  # why no tape could be cut
        self.failures = 0
        self.signature: tuple[Any, ...] | None = None
        self.tape: Cut | None = None
        self.batches = self.validations = 0
        self.bytes = 0
        self.names: Names | None = None
        self.state: dict[str, weakref.ref[Any]] = {}
        self.arguments: dict[int, tuple[weakref.ref[Any], tuple[int, int]]] = {}
        self.roots = 0
        self.looks = LOOKS
        self._inside: Any = None
        self.loaded: list[weakref.ref[Any]] = []
        self.procedure = Procedure()
        self.iterator: weakref.ref[Any] | None = None
        self.backward_at = -1  # the step of the last backward
        self.target_at: int | None = None
        self.waiting: list[dict[str, Any]] = []  # inputs of an evaluation whose targets are still to be seen
        self.spent = 0.0

    # --- when calls are noted

    def installed(self) -> None:
        """For good: a layer may keep a function that it took at any time, and is pickled with the function's name."""
        noting_functions(self)

    def _on(self) -> None:
        """Begin to note calls, unless something else of the script's own listens to them already. Also where no step is
        kept, or none any more: what rows were picked from is noted as well."""
        if self.mode is not None or not self.recorder.sampled or self.recorder.step > LAST_STEP:
            return
        if self.hooks.compiled or self.hooks.elsewhere() or self.torch._C._len_torch_function_stack():
            return
        self.mode = self.hooks.noting = mode_class()(self)
        self.mode.__enter__()

    def _off(self) -> None:
        mode, stack = self.mode, self.torch._C._len_torch_function_stack
        if mode is None:
            return
        if stack() and self.torch._C._get_function_stack_at(stack() - 1) is mode:
            self.mode = None
            mode.__exit__(None, None, None)
        self.roll.clear()

    def quiet(self) -> bool:
        hooks = self.hooks
        return self.recorder.busy or hooks.inside_backward or hooks.elsewhere() or not self.recorder.sampled

    def end(self, why: str = "") -> None:
        """No step is kept any more."""
        self.over = True
        self.why = self.why or why
        self.roll.clear()
        self._off()

    def forked(self) -> None:
        self.folder = ""
        self.end()

    def _where(self) -> tuple[Any, str, int]:
        stack = self.hooks.stack
        if not stack:
            self._inside = None
            return users_place(4), "", -1
        if self._inside is not stack[0]:
            self._inside = stack[0]
            self.roots += 1
        return users_place(4), self.hooks._name(stack[0], stack[-1]), self.roots

    # --- events

    def optimizer_made(self, event: OptimizerEvent) -> None:
        del event
        self._on()

    def batch(self, event: Batch) -> None:
        if not event.sampled:
            # An evaluation may fall between samples, and its targets are in the loader's batch.
            if self.target_at is not None and self.validations < MOST_BATCHES:
                self.loaded = [weakref.ref(tensor) for tensor in tensors(event.value, self.torch)]
            return
        self.loaded = [weakref.ref(tensor) for tensor in event.tensors]
        self.iterator = _weakly(event.source)
        self._on()

    @when_sampled
    def zero_grad(self, event: OptimizerEvent) -> None:
        del event
        self._on()

    def forward(self, event: Forward) -> None:
        given = list(tensors(event.inputs, self.torch))
        if event.evaluation:
            self._evaluated(event, given)
            return
        self.waiting = []
        for position, tensor in enumerate(given):
            if id(tensor) not in self.arguments or self.arguments[id(tensor)][0]() is not tensor:
                self.arguments[id(tensor)] = (weakref.ref(tensor), (event.model, position))
        self._inside = None

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        self.backward_at = event.step
        if self.over or self.mode is None or not event.sampled:
            return
        try:
            self._cut(event.loss)
        except Uncut as error:
            self.failures += 1
            self.why = self.why or str(error)
            if self.failures >= MOST_FAILURES:
                self.end()

    @when_sampled
    def clip(self, event: Clip) -> None:
        if self.folder and event.step == self.backward_at and self.names is not None:
            self.procedure.clipped(event, self.names.parameters)

    def scheduler(self, event: SchedulerStep) -> None:
        self.procedure.scheduled(event)

    @when_sampled
    def before_step(self, event: OptimizerEvent) -> None:
        if self.folder and event.number >= 0:
            self.procedure.stepped(event.number, event.optimizer, event.step)

    @when_sampled
    def after_step(self, event: OptimizerEvent) -> None:
        del event
        if self.recorder.step > 10:
            self._late()
        if self.recorder._following(self.recorder.step) > self.recorder.step + 1:
            self._off()
        if self.over:
            return
        if self.tape is not None and not os.path.exists(os.path.join(self.folder, files.OPTIMIZERS)):
            self._optimizers()
        self.roll.clear()
        self.arguments.clear()
        if self.batches >= MOST_BATCHES or self.bytes > MOST_BYTES or self.recorder.step > LAST_STEP:
            self.end()

    def read(self) -> Answer:
        return Unclear("")

    def noted(self, named: Any, function: Any, args: Any, kwargs: Any) -> Any:
        """Make the call and note it, under the name of the function that `function` stands for."""
        given, looks = None, not self.quiet()
        if looks and not self.over:
            try:
                given = self.roll.before(named, args, kwargs)
            except BaseException as error:  # noqa: BLE001  # the step cannot be kept; the run goes on
                release(error)
                self._fails(error)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            unframe(error)
            raise
        if given is not None:
            try:
                with self.recorder.quietly():
                    self.roll.after(named, given, result)
            except BaseException as error:  # noqa: BLE001  # as above
                release(error)
                self._fails(error)
        if looks and not self.hooks.stack and (said := getattr(named, "__name__", "")) in FOLLOWED:
            self._picks(said, args, kwargs, result)
        return result

    hide(noted)

    def _picks(self, said: str, args: Any, kwargs: Any, result: Any) -> None:
        """Outside of any model and any gradient."""
        try:
            with self.recorder.quietly():
                results = list(tensors(result, self.torch))
                if not (self.torch.is_grad_enabled() and any(tensor.requires_grad for tensor in results)):
                    self.recorder.picked.note(said, list(tensors([args, kwargs], self.torch)), results)
        except BaseException as error:  # noqa: BLE001  # as above
            release(error)
            self.hooks.failed("picked rows", error)

    def _fails(self, error: BaseException) -> None:
        self.over, self.why = True, self.why or f"{type(error).__name__}: {error}"

    # --- keeping

    def _cut(self, loss: Any) -> None:
        self.names = Names(self.recorder.parameter_names(), self._buffers(), self._arguments())
        for _, optimizer in self.recorder.live_optimizers():
            for number, group in enumerate(optimizer.param_groups):
                for place, parameter in enumerate(group["params"]):
                    self.names.parameters.setdefault(id(parameter), f"parameter {number}.{place}")
        self._choices(self.names)
        if not self.folder:
            if not self.looks:
                self.end()
            return
        found = cut(self.roll, loss, self.names, self.recorder.step)
        if self.signature is None:
            self._first(found)
        elif signature(found.tape) != self.signature:
            return
        data = {
            f"{value.role}{number}": found.tensors[value.slot]
            for number, value in enumerate(found.tape.of_role("input", "target"))
        }
        self.bytes += sum(tensor.numel() * tensor.element_size() for tensor in data.values())
        files.write_tensors(self.folder, f"batch-{self.batches}.safetensors", data)
        self._undisturbed(found)
        self.batches += 1

    def _choices(self, names: Names) -> None:
        if self.recorder.choice is None and self.looks:
            self.looks -= 1
            held = {
                slot: names.parameters[id(tensor)]
                for slot, (tensor, _) in self.roll.held.items()
                if tensor.requires_grad and id(tensor) in names.parameters
            }
            self.recorder.choice = cut_by_choice(self.roll.calls, held)

    def _undisturbed(self, found: Cut) -> None:
        """Keep the inputs as they were before the script put random numbers on them, where that was seen."""
        draws = self.roll.draws
        entering = list(enumerate(found.tape.of_role("input", "target")))
        drawn = [value for _, value in entering if value.slot in draws.drawn and value.role == "input"]
        if not drawn or self.procedure.drawn:
            return
        if not any(value.slot in draws.plain for value in drawn):
            return  # all noise, such as what a generator starts from
        at = next((draws.places[value.slot] for value in drawn if value.slot in draws.places), None)
        self.procedure.places["augmentation"] = at
        roles = [value for value in found.tape.values if value.role in ("target", "constant")]
        if any(value.slot in draws.drawn for value in roles):
            self.procedure.drawn = "random numbers enter the loss too"
        elif not all(value.slot in draws.plain for value in drawn):
            self.procedure.drawn = "the inputs before augmentation were not recorded"
        else:
            plain = {
                f"{value.role}{number}": draws.plain.get(value.slot, found.tensors[value.slot])
                for number, value in entering
                if value.role == "input"
            }
            self.bytes += sum(tensor.numel() * tensor.element_size() for tensor in plain.values())
            files.write_tensors(self.folder, f"plain-{self.batches}.safetensors", plain)

    def _first(self, found: Cut) -> None:
        held = {
            value.name if value.role != "constant" else f"constant {value.slot}": found.tensors[value.slot]
            for value in found.tape.of_role("parameter", "buffer", "constant")
        }
        size = sum(tensor.numel() * tensor.element_size() for tensor in held.values())
        if size > MOST_STATE:
            self.end(f"its parameters take {size >> 20} MiB, more than the {MOST_STATE >> 20} MiB that are kept")
            raise Uncut(self.why)
        os.makedirs(self.folder, 0o700, exist_ok=True)
        files.write_tensors(self.folder, files.START, held)
        files.write_tape(self.folder, found.tape)
        self.signature = signature(found.tape)
        self.tape = found._replace(tensors={})
        self.state = {
            value.name: weakref.ref(found.tensors[value.slot]) for value in found.tape.of_role("parameter", "buffer")
        }
        self.target_at = self._position(found)
        iterator = self.iterator() if self.iterator is not None else None
        if iterator is not None:
            self.procedure.loader = augmenting(iterator)

    def _position(self, found: Cut) -> int | None:
        """Where in a loader's batch the target stood, when it did."""
        targets = found.tape.of_role("target")
        for position, held in enumerate(self.loaded):
            tensor = held()
            if tensor is not None and len(targets) == 1 and _same(self.torch, tensor, found.tensors[targets[0].slot]):
                return position
        return None

    def _evaluated(self, event: Forward, given: list[Any]) -> None:
        """Inputs of an evaluation, and what they are compared with once that is seen."""
        if self.tape is None or self.validations >= MOST_BATCHES or self.bytes > MOST_BYTES:
            return
        inputs = self.tape.tape.of_role("input", "target")
        data = {}
        for number, value in enumerate(inputs):
            if value.argument is not None and value.argument[0] == event.model and value.argument[1] < len(given):
                data[f"{value.role}{number}"] = given[value.argument[1]]
        if (
            any(value.role == "input" and f"input{number}" not in data for number, value in enumerate(inputs))
            or not data
        ):
            return
        missing = [
            f"target{number}"
            for number, value in enumerate(inputs)
            if value.role == "target" and f"target{number}" not in data
        ]
        if len(missing) == 1:
            if self.target_at is not None and self.target_at < len(self.loaded):
                found = self.loaded[self.target_at]()
                if found is not None:
                    data[missing[0]] = found
            else:
                held = {name: tensor.detach().clone() for name, tensor in data.items()}
                self.waiting = [*self.waiting, {**held, "?": missing[0]}][-MOST_BATCHES:]
                return
        self._keep_validation(data)

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if not self.waiting or event.grad or not isinstance(event.target, self.torch.Tensor):
            return
        waiting, self.waiting = self.waiting, []
        sizes = [_rows(data) for data in waiting]
        together = event.target.dim() > 0 and len(event.target) == sum(sizes) and len(waiting) > 1
        # Outputs that were joined for one loss have their targets one after the other.
        parts = self.torch.split(event.target, sizes) if together else [event.target]
        for data, target in zip(waiting if together else waiting[-1:], parts, strict=True):
            if self.validations < MOST_BATCHES:
                data[data.pop("?")] = target
                self._keep_validation(data)

    def _keep_validation(self, data: dict[str, Any]) -> None:
        self.bytes += sum(tensor.numel() * tensor.element_size() for tensor in data.values())
        files.write_tensors(self.folder, f"val-{self.validations}.safetensors", data)
        self.validations += 1

    def _optimizers(self) -> None:
        assert self.names is not None
        told = []
        for number, optimizer in self.recorder.live_optimizers():
            groups = [
                {
                    "settings": {name: value for name, value in group.items() if _plain(value) and name != "params"},
                    "parameters": [self.names.parameters.get(id(held), "") for held in group["params"]],
                }
                for group in optimizer.param_groups
            ]
            kind = type(optimizer)
            told.append({"kind": f"{kind.__module__}.{kind.__qualname__}", "groups": groups, "number": number})
        files.write_json(self.folder, files.OPTIMIZERS, told)

    def _late(self, final: bool = False) -> None:
        """Keep the state as it is now, when that has become cheap against the time since."""
        if not self.state or (not final and not self.recorder.sampled):
            return
        began = time.monotonic()
        if not final and self.spent > SHARE * (began - self.recorder.started):
            return
        live = {name: held() for name, held in self.state.items()}
        if all(tensor is not None for tensor in live.values()):
            files.write_tensors(self.folder, files.END, live)
        files.write_json(self.folder, files.PROCEDURE, self.procedure.told())
        self.spent += time.monotonic() - began

    def finish(self) -> None:
        """The run is about to end."""
        self.end()
        self._off()
        if self.tape is None:
            compiled = self.hooks.compiles and f"{self.hooks.compiles}, and compiled code cannot be captured"
            self.why = compiled or self.why or "no backward call was seen on a sampled step"
            return
        with self.recorder.quietly():
            self._late(final=True)

    def _buffers(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for number, module in self.recorder.live_models():
            prefix = f"model{number}." if len(self.recorder.models) > 1 else ""
            for name, buffer in module.named_buffers():
                found.setdefault(id(buffer), prefix + name)
        return found

    def _arguments(self) -> dict[int, tuple[int, int]]:
        return {key: place for key, (held, place) in self.arguments.items() if held() is not None}


def mode_class() -> Any:
    """A mode that notes calls; made when torch is there."""
    from torch.overrides import TorchFunctionMode

    class Noting(TorchFunctionMode):
        def __init__(self, taper: Taper) -> None:
            super().__init__()
            self.taper = taper

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            func = original(func)  # torch names itself by looking itself up, and finds what clew put there
            try:
                return self.taper.noted(func, func, args, kwargs or {})
            except BaseException as error:
                unframe(error)
                raise

    hide(Noting.__torch_function__)
    return Noting


def noting_functions(taper: Taper) -> None:
    """torch.nn.functional, noting its own calls. What is written in Python there would pass itself on to a mode, and
    then be on the stack twice: a warning that counts frames up to the script would name torch."""
    functional = taper.torch.nn.functional
    # Layers of transformers hold relu by default, since before it could be replaced, and are pickled with its name.
    for name, value in list(vars(functional).items()):
        own = isinstance(value, FunctionType) and value.__module__ == functional.__name__
        if own and name != "relu" and not name.startswith("_"):
            taper.hooks.patches.replace(functional, name, partial(_noting, taper))


def _noting(taper: Taper, function: Any) -> Any:
    core, compiling = taper.torch._C, taper.hooks.compiling

    def noted(*args: Any, **kwargs: Any) -> Any:
        mode = taper.mode
        on_top = mode is not None and not compiling() and core._len_torch_function_stack() == 1
        if not on_top or core._get_function_stack_at(0) is not mode:
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                unframe(error)
                raise
        core._pop_torch_function_stack()
        try:
            return taper.noted(original(function), function, args, kwargs)
        except BaseException as error:
            unframe(error)
            raise
        finally:
            core._push_on_torch_function_stack(mode)

    return noted


def _weakly(value: Any) -> weakref.ref[Any] | None:
    try:
        return weakref.ref(value)
    except TypeError:
        return None


def _same(torch: Any, one: Any, other: Any) -> bool:
    return one is other or (
        one.shape == other.shape
        and one.dtype == other.dtype
        and bool(torch.equal(one.detach().cpu(), other.detach().cpu()))
    )


def _rows(data: dict[str, Any]) -> int:
    """Examples of what waits for its target."""
    first = next(value for name, value in data.items() if name != "?")
    return len(first) if first.dim() else 1


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def capture_folder(folder: str) -> str:
    """Where this process keeps its step; nothing for ranks other than the first, whose steps are the same."""
    if (os.environ.get("RANK") or "0") != "0":
        return ""
    return os.path.join(folder, f"capture-{os.getpid()}")


__all__ = ["Taper", "capture_folder"]
