"""What is patched in torch so that a run can be seen, and how it is taken off again.

Every patch calls the original first or last, passes on what it returns or raises, and does nothing at all in forked
worker processes, while a graph is being compiled, and while clew itself calls torch.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from clew.observe.places import users_place
from clew.observe.recorder import Recorder
from clew.observe.watch import (
    Backward,
    Batch,
    Clip,
    Forward,
    FunctionCall,
    LossCall,
    Mode,
    ModuleCall,
    OptimizerEvent,
    Raised,
    SchedulerStep,
    Watch,
)

if TYPE_CHECKING:
    import torch

LOSSES = (
    "cross_entropy",
    "nll_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "kl_div",
    "poisson_nll_loss",
    "gaussian_nll_loss",
    "ctc_loss",
    "cosine_embedding_loss",
    "hinge_embedding_loss",
    "margin_ranking_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
)
FUNCTIONS = ("softmax", "log_softmax", "sigmoid", "argmax")
ATTACHED_AFTER_PHASE = 3
"""How many outermost forward calls are looked at after a change of phase (a loader starts, .eval(), no_grad)."""


class Hooks:
    """All patches of one recorder."""

    def __init__(self, recorder: Recorder, stop: Callable[[], None] | None = None) -> None:
        self.recorder = recorder
        self.stop = stop
        self.undo: list[Callable[[], None]] = []
        self.handles: list[Any] = []
        self.depth = 0
        self.names: dict[int, str] = {}
        self.stack: list[Any] = []
        self.looks = 0  # outermost forward calls still to be looked at although the step is not sampled
        self.phases: dict[str, int] = {}
        self.loaders: dict[int, list[int]] = {}
        self.learning: dict[int, tuple[weakref.ref[Any], bool]] = {}
        self.mode_depth = 0
        self.inside_scheduler = 0
        self.compiled = False

    # --- on and off

    def install(self) -> None:
        import torch

        self.torch = torch
        self._losses()
        self._functions()
        self._autograd()
        self._optimizers()
        self._schedulers()
        self._modes()
        self._loaders()
        self.attach()

    def uninstall(self) -> None:
        self.detach()
        for undo in reversed(self.undo):
            undo()
        self.undo.clear()

    def patch(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace `owner.name` by `make(original)`; a missing name is left alone: versions differ."""
        original = owner.__dict__.get(name) if isinstance(owner, type) else getattr(owner, name, None)
        if original is None:
            return
        inherited = getattr(owner, name)
        wrapper = make(inherited if not isinstance(original, staticmethod) else original.__func__)
        functools.update_wrapper(wrapper, inherited)
        setattr(owner, name, wrapper)
        self.undo.append(lambda: setattr(owner, name, original))

    def silent(self) -> bool:
        """Whether an event is none of the run's own."""
        recorder = self.recorder
        return recorder.busy or os.getpid() != recorder.pid or self.torch.compiler.is_compiling()

    # --- module calls, only while attached

    def attach(self) -> None:
        if self.handles or self.compiled:
            return
        module = self.torch.nn.modules.module
        self.depth = 0
        self.stack.clear()
        self.handles = [
            module.register_module_forward_pre_hook(self._before_module),
            module.register_module_forward_hook(self._after_module),
        ]

    def detach(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles.clear()

    def settle_attachment(self) -> None:
        """Attach for sampled steps and after a change of phase, detach otherwise."""
        if self.recorder.sampled or self.looks > 0:
            self.attach()
        else:
            self.detach()

    def phase_changes(self, kind: str) -> None:
        """Something began that may be an evaluation: look at the next forward calls, less often as it repeats."""
        seen = self.phases[kind] = self.phases.get(kind, 0) + 1
        if seen <= 8 or seen & (seen - 1) == 0:
            self.looks = ATTACHED_AFTER_PHASE
            self.attach()

    def _before_module(self, module: Any, _inputs: tuple[Any, ...]) -> None:
        if self.silent():
            return
        if self.depth == 0:
            self.stack.clear()
        self.depth += 1
        self.stack.append(module)

    def _after_module(self, module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if self.silent():
            return
        while self.stack and self.stack[-1] is not module:
            self.stack.pop()  # a forward that raised never came back here
        if self.stack:
            self.stack.pop()
        self.depth = len(self.stack)
        recorder = self.recorder
        grad = self.torch.is_grad_enabled()
        root = self.stack[0] if self.stack else module
        if not self._is_model(root):
            return
        model = recorder.model_number(root)
        if id(root) not in self.names:
            self.names.update({id(part): name for name, part in root.named_modules()})
            self.names[id(root)] = ""
        if recorder.wants("module"):
            name = self.names.get(id(module), "?")
            event = ModuleCall(module, name, model, inputs, output, recorder.step, not grad)
            recorder.tell("module", event)
        if self.depth == 0:
            place = users_place()
            recorder.forward_called(model, module.training, grad, place)
            call = Forward(module, model, inputs, output, module.training, grad, recorder.step, not grad, place)
            recorder.tell("forward", call)
            if self.looks > 0:
                self.looks -= 1
                if not recorder.sampled and self.looks == 0:
                    self.detach()

    def _is_model(self, module: Any) -> bool:
        """Losses, activations and metrics called by themselves are modules too, and no models."""
        held = self.learning.get(id(module))
        if held is None or held[0]() is not module:
            has = next(iter(module.parameters()), None) is not None
            held = self.learning[id(module)] = (weakref.ref(module), has)
        return held[1]

    # --- functions

    def _losses(self) -> None:
        import inspect

        for name in LOSSES:
            original = getattr(self.torch.nn.functional, name, None)
            if original is None:
                continue
            parameters = list(inspect.signature(original).parameters)
            self.patch(self.torch.nn.functional, name, functools.partial(self._loss, name, parameters))

    def _loss(self, name: str, parameters: list[str], function: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if self.silent():
                return function(*args, **kwargs)
            result = self.guarded(name, function, args, kwargs)
            given = {**dict(zip(parameters, args, strict=False)), **kwargs}
            first, second = given.pop(parameters[0], None), given.pop(parameters[1], None)
            recorder = self.recorder
            recorder.tell(
                "loss",
                LossCall(
                    name,
                    first,
                    second,
                    given,
                    result,
                    recorder.step,
                    self.torch.is_grad_enabled(),
                    recorder.sampled or self.looks > 0,
                    users_place(),
                ),
            )
            return result

        return wrapper

    def _functions(self) -> None:
        torch = self.torch
        for name in FUNCTIONS:
            for owner in (torch, torch.nn.functional, torch.Tensor):
                if hasattr(owner, name):
                    self._patch_function(owner, name)

    def _patch_function(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)
        own = name in vars(owner)
        busy = [False]

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            recorder = self.recorder
            if not (recorder.sampled or self.looks > 0) or busy[0] or self.silent() or not recorder.wants("function"):
                return original(*args, **kwargs)
            result = original(*args, **kwargs)
            first = args[0] if args else kwargs.get("input")
            if isinstance(first, self.torch.Tensor) and not self.inside_function:
                options = dict(kwargs)
                if len(args) > 1:
                    options.setdefault("dim", args[1])
                event = FunctionCall(
                    name, first, options, result, recorder.step, self.torch.is_grad_enabled(), True, users_place()
                )
                recorder.tell("function", event)
            return result

        functools.update_wrapper(wrapper, original, assigned=("__name__", "__doc__"), updated=())
        setattr(owner, name, wrapper)
        if own:
            self.undo.append(lambda: setattr(owner, name, original))
        else:
            self.undo.append(lambda: delattr(owner, name))

    inside_function = False

    def guarded(self, during: str, function: Any, args: Any, kwargs: Any) -> Any:
        """Call the original, and note an exception that leaves it."""
        try:
            return function(*args, **kwargs)
        except Exception as error:
            recorder = self.recorder
            event = Raised(f"{type(error).__name__}: {error}"[:300], during, recorder.step, users_place())
            recorder.tell("raised", event)
            raise

    # --- autograd

    def _autograd(self) -> None:
        def make(backward: Any) -> Any:
            def wrapper(tensors: Any, *args: Any, **kwargs: Any) -> Any:
                if self.silent():
                    return backward(tensors, *args, **kwargs)
                recorder = self.recorder
                loss = tensors[0] if isinstance(tensors, list | tuple) else tensors
                event = Backward(loss, recorder.step, recorder.sampled, users_place())
                recorder.settle(True)
                recorder.tell("before_backward", event)
                recorder.loss_backed(loss)
                result = self.guarded("backward", backward, (tensors, *args), kwargs)
                recorder.tell("after_backward", event)
                return result

            return wrapper

        self.patch(self.torch.autograd, "backward", make)

        def make_enter(enter: Any) -> Any:
            def wrapper(guard: Any) -> Any:
                if not self.silent() and self.torch.is_grad_enabled() and not self.inside_step:
                    self.phase_changes("no_grad")
                return enter(guard)

            return wrapper

        for kind in (self.torch.autograd.grad_mode.no_grad, self.torch.autograd.grad_mode.inference_mode):
            self.patch(kind, "__enter__", make_enter)

    inside_step = False

    # --- optimisers

    def _optimizers(self) -> None:
        optim = self.torch.optim
        module = import_module("torch.optim.optimizer")
        before = module.register_optimizer_step_pre_hook(self._before_step)
        after = module.register_optimizer_step_post_hook(self._after_step)
        self.undo += [before.remove, after.remove]

        def make_init(init: Any) -> Any:
            def wrapper(optimizer: Any, *args: Any, **kwargs: Any) -> None:
                init(optimizer, *args, **kwargs)
                if not self.silent():
                    self.recorder.tell("optimizer_made", self._optimizer_event(optimizer))

            return wrapper

        self.patch(optim.Optimizer, "__init__", make_init)

        def make_zero(zero: Any) -> Any:
            def wrapper(owner: Any, *args: Any, **kwargs: Any) -> Any:
                result = zero(owner, *args, **kwargs)
                if not self.silent():
                    self.recorder.tell("zero_grad", self._optimizer_event(owner))
                return result

            return wrapper

        self.patch(optim.Optimizer, "zero_grad", make_zero)
        self.patch(self.torch.nn.Module, "zero_grad", make_zero)

        def make_clip(kind: str) -> Callable[[Any], Any]:
            def make(clip: Any) -> Any:
                def wrapper(parameters: Any, limit: float, *args: Any, **kwargs: Any) -> Any:
                    held = [parameters] if isinstance(parameters, self.torch.Tensor) else list(parameters)
                    norm = clip(held, limit, *args, **kwargs)
                    if not self.silent():
                        recorder = self.recorder
                        event = Clip(kind, held, limit, norm, recorder.step, recorder.sampled, users_place())
                        recorder.tell("clip", event)
                    return norm

                return wrapper

            return make

        utils = self.torch.nn.utils
        for owner in (utils, utils.clip_grad):
            self.patch(owner, "clip_grad_norm_", make_clip("norm"))
            self.patch(owner, "clip_grad_value_", make_clip("value"))

    def _optimizer_event(self, owner: Any) -> OptimizerEvent:
        recorder = self.recorder
        number = recorder.optimizer_number(owner) if isinstance(owner, self.torch.optim.Optimizer) else -1
        return OptimizerEvent(owner, number, recorder.step, recorder.sampled, users_place())

    def _before_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not self.silent():
            self.recorder.tell("before_step", self._optimizer_event(optimizer))
            self.inside_step = True

    def _after_step(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self.inside_step = False
        if self.silent():
            return
        recorder = self.recorder
        recorder.tell("after_step", self._optimizer_event(optimizer))
        recorder.step_done()
        self.settle_attachment()
        if self.stop is not None and recorder.limit and recorder.step >= recorder.limit:
            self.stop()

    # --- schedulers, modes, loaders

    def _schedulers(self) -> None:
        schedulers = self.torch.optim.lr_scheduler

        def make(step: Any) -> Any:
            def wrapper(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
                inner, self.inside_scheduler = self.inside_scheduler, self.inside_scheduler + 1
                try:
                    return step(scheduler, *args, **kwargs)
                finally:
                    self.inside_scheduler = inner
                    initial = getattr(scheduler, "_step_count", 2) <= 1 and not hasattr(scheduler, "_clew_made")
                    if not inner and not self.silent() and not initial and not self.making_scheduler:
                        recorder = self.recorder
                        event = SchedulerStep(scheduler, recorder.step, recorder.epoch, users_place())
                        recorder.tell("scheduler", event)

            return wrapper

        def make_initial(initial: Any) -> Any:
            def wrapper(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
                before, self.making_scheduler = self.making_scheduler, True
                try:
                    return initial(scheduler, *args, **kwargs)
                finally:
                    self.making_scheduler = before

            return wrapper

        for kind in {value for value in vars(schedulers).values() if isinstance(value, type)}:
            if "step" in kind.__dict__:
                self.patch(kind, "step", make)
            if "_initial_step" in kind.__dict__:
                self.patch(kind, "_initial_step", make_initial)

    making_scheduler = False

    def _modes(self) -> None:
        def make(train: Any) -> Any:
            def wrapper(module: Any, mode: bool = True) -> Any:
                if self.mode_depth or self.silent():
                    return train(module, mode)
                self.mode_depth += 1
                try:
                    result = train(module, mode)
                finally:
                    self.mode_depth -= 1
                if not mode:
                    self.phase_changes("eval")
                recorder = self.recorder
                recorder.tell("mode", Mode(module, mode, recorder.step, users_place()))
                return result

            return wrapper

        self.patch(self.torch.nn.Module, "train", make)

    def _loaders(self) -> None:
        dataloader = self.torch.utils.data.dataloader

        def make_iter(iterate: Any) -> Any:
            def wrapper(loader: Any) -> Any:
                iterator = iterate(loader)
                if not self.silent():
                    held = self.loaders.setdefault(id(loader), [len(self.loaders), -1])
                    held[1] += 1
                    if held[0] == 0:
                        self.recorder.epoch = held[1]
                    try:
                        iterator._clew = [held[0], held[1], 0]
                    except AttributeError:
                        return iterator
                    self.recorder.settle(False)
                    self.phase_changes(f"loader {held[0]}")
                return iterator

            return wrapper

        def make_next(following: Any) -> Any:
            def wrapper(iterator: Any) -> Any:
                value = following(iterator)
                held = getattr(iterator, "_clew", None)
                if held is not None and not self.silent():
                    recorder = self.recorder
                    recorder.settle(False)
                    recorder.loader = held[0]
                    if recorder.wants("batch"):
                        sampled = recorder.sampled or held[2] < 2
                        tensors = list(tensors_in(value, self.torch)) if sampled else []
                        event = Batch(value, tensors, held[0], held[1], held[2], recorder.step, sampled, users_place())
                        recorder.tell("batch", event)
                    held[2] += 1
                return value

            return wrapper

        self.patch(dataloader.DataLoader, "__iter__", make_iter)
        self.patch(dataloader._BaseDataLoaderIter, "__next__", make_next)


def tensors_in(value: Any, torch: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """All tensors of a batch, however it is nested."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 6:
        if isinstance(value, dict) or hasattr(value, "items"):
            for item in list(value.values())[:64]:
                yield from tensors_in(item, torch, depth + 1)
        elif isinstance(value, list | tuple):
            for item in value[:64]:
                yield from tensors_in(item, torch, depth + 1)


@contextmanager
def watching(folder: Any, watches: list[type[Watch]], sample: str = "auto") -> Iterator[Recorder]:
    """Observe what happens inside the block: for tests and notebooks."""
    recorder = Recorder(str(folder), watches, sample)
    hooks = Hooks(recorder)
    hooks.install()
    try:
        yield recorder
    finally:
        recorder.settle(False)
        hooks.uninstall()
