"""The calls of torch that tell what a run does: losses, backward, steps, schedules, modes, batches.

Each replacement runs the original and then hands the event on. Where an exception passes through, the replacement takes
itself out of the traceback.
"""

from __future__ import annotations

import functools
import inspect
import types
from importlib import import_module
from threading import get_ident
from typing import TYPE_CHECKING, Any

from clew.observe.hooks import Turn, harmless, tensors_in
from clew.observe.patches import hide, unframe
from clew.observe.places import users_place
from clew.observe.watch import Backward, Batch, Clip, FunctionCall, LossCall, Mode, SchedulerStep

if TYPE_CHECKING:
    from clew.observe.hooks import Hooks

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


def install(hooks: Hooks) -> None:
    for tap in (losses, functions, backward, grad_modes, optimizers, clips, schedulers, modes, loaders):
        tap(hooks, hooks.torch)
    for tap in (parametrizations, compilers):
        tap(hooks, hooks.torch)


# --- functions


def losses(hooks: Hooks, torch: Any) -> None:
    owner = torch.nn.functional
    for name in LOSSES:
        if hasattr(owner, name):
            parameters = list(inspect.signature(getattr(owner, name)).parameters)
            hooks.patches.replace(owner, name, functools.partial(_loss, hooks, name, parameters))


def _loss(hooks: Hooks, name: str, parameters: list[str], original: Any) -> Any:
    recorder, compiling = hooks.recorder, hooks.compiling

    def loss(*args: Any, **kwargs: Any) -> Any:
        if recorder.busy or compiling():
            return original(*args, **kwargs)
        try:
            if hooks.inside_function or hooks.inside_backward or hooks.elsewhere():
                return original(*args, **kwargs)
            hooks.inside_function = True
            try:
                result = original(*args, **kwargs)
            finally:
                hooks.inside_function = False
        except BaseException as error:
            hooks.raised(name, error)
            unframe(error)
            raise
        _tell_loss(hooks, name, parameters, args, kwargs, result)
        return result

    return loss


def _tell_loss(hooks: Hooks, name: str, parameters: list[str], args: Any, kwargs: Any, result: Any) -> None:
    try:
        recorder = hooks.recorder
        look = recorder.sampled or hooks.looks > 0
        if not recorder.wants("loss", look) or result.is_meta:
            return
        given = {**dict(zip(parameters, args, strict=False)), **kwargs}
        first, second = given.pop(parameters[0], None), given.pop(parameters[1], None)
        grad = hooks.grad_enabled()
        event = LossCall(name, first, second, given, result, recorder.step, grad, look, users_place(3))
        recorder.tell("loss", event, look)
    except Exception as error:  # noqa: BLE001  # as in harmless
        hooks.failed(name, error)


def functions(hooks: Hooks, torch: Any) -> None:
    for name in FUNCTIONS:
        for owner in (torch, torch.nn.functional, torch.Tensor):
            if hasattr(owner, name):
                hooks.patches.replace(owner, name, functools.partial(_function, hooks, name))


def _function(hooks: Hooks, name: str, original: Any) -> Any:
    recorder, compiling = hooks.recorder, hooks.compiling

    def function(*args: Any, **kwargs: Any) -> Any:
        if recorder.busy or compiling():
            return original(*args, **kwargs)
        try:
            if not (recorder.sampled or hooks.looks > 0) or hooks.inside_function or hooks.inside_backward:
                return original(*args, **kwargs)
            hooks.inside_function = True
            try:
                result = original(*args, **kwargs)
            finally:
                hooks.inside_function = False
        except BaseException as error:
            unframe(error)
            raise
        if recorder.wants("function") and not hooks.elsewhere():
            _tell_function(hooks, name, args, kwargs, result)
        return result

    return function


@harmless
def _tell_function(hooks: Hooks, name: str, args: Any, kwargs: Any, result: Any) -> None:
    recorder = hooks.recorder
    first = args[0] if args else kwargs.get("input")
    if isinstance(first, hooks.torch.Tensor) and not first.is_meta:
        options = dict(kwargs)
        if len(args) > 1:
            options.setdefault("dim", args[1])
        grad = hooks.grad_enabled()
        recorder.tell("function", FunctionCall(name, first, options, result, recorder.step, grad, True, users_place()))


# --- autograd


def backward(hooks: Hooks, torch: Any) -> None:
    recorder, compiling = hooks.recorder, hooks.compiling

    def make(original: Any) -> Any:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if recorder.busy or compiling() or hooks.inside_backward or hooks.elsewhere():
                return original(tensors, *args, **kwargs)
            event = _before_backward(hooks, tensors)
            hooks.inside_backward = True
            try:
                result = original(tensors, *args, **kwargs)
            except BaseException as error:
                hooks.inside_backward = False
                hooks.raised("backward", error)
                unframe(error)
                raise
            hooks.inside_backward = False
            if event:
                recorder.tell("after_backward", event, event.sampled)
            return result

        return backward

    hooks.patches.replace(torch.autograd, "backward", make)


def _before_backward(hooks: Hooks, tensors: Any) -> Backward | None:
    try:
        loss = tensors if isinstance(tensors, hooks.torch.Tensor) else next(iter(tensors), None)
        if not isinstance(loss, hooks.torch.Tensor):
            return None
        recorder = hooks.recorder
        event = Backward(loss, recorder.step, recorder.sampled, users_place(3))
        recorder.settle(True)
        recorder.tell("before_backward", event, event.sampled)
        recorder.loss_backed(loss)
        return event
    except Exception as error:  # noqa: BLE001  # as in harmless
        hooks.failed("backward", error)
        return None


def grad_modes(hooks: Hooks, torch: Any) -> None:
    def make(original: Any) -> Any:
        def __enter__(guard: Any) -> Any:
            if not (hooks.silent() or hooks.inside_step or hooks.inside_backward) and hooks.grad_enabled():
                hooks.phase_changes("no_grad")
            return original(guard)

        return __enter__

    for kind in (torch.autograd.grad_mode.no_grad, torch.autograd.grad_mode.inference_mode):
        hooks.patches.replace(kind, "__enter__", make)


# --- optimisers


def optimizers(hooks: Hooks, torch: Any) -> None:
    owner = import_module("torch.optim.optimizer")
    recorder, compiling = hooks.recorder, hooks.compiling

    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not (recorder.busy or compiling()):
            hooks.thread = get_ident()
            hooks.tell_optimizer("before_step", optimizer)
            hooks.inside_step = True

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        hooks.inside_step = False
        if not (recorder.busy or compiling()):
            hooks.tell_optimizer("after_step", optimizer)
            hooks.step_done()

    hooks.step_hooks += [
        owner.register_optimizer_step_pre_hook(hide(before)),
        owner.register_optimizer_step_post_hook(hide(after)),
    ]

    def make_init(original: Any) -> Any:
        def __init__(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            try:
                original(optimizer, *args, **kwargs)
            except BaseException as error:
                unframe(error)
                raise
            if not hooks.silent():
                hooks.tell_optimizer("optimizer_made", optimizer)

        return __init__

    def make_zero(original: Any) -> Any:
        def zero_grad(owner: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(owner, *args, **kwargs)
            if not (recorder.busy or compiling()):
                hooks.tell_optimizer("zero_grad", owner)
            return result

        return zero_grad

    hooks.patches.replace(torch.optim.Optimizer, "__init__", make_init)
    hooks.patches.replace(torch.optim.Optimizer, "zero_grad", make_zero)
    hooks.patches.replace(torch.nn.Module, "zero_grad", make_zero)


def clips(hooks: Hooks, torch: Any) -> None:
    for owner in (torch.nn.utils, torch.nn.utils.clip_grad):
        hooks.patches.replace(owner, "clip_grad_norm_", functools.partial(_clip, hooks, "norm"))
        hooks.patches.replace(owner, "clip_grad_value_", functools.partial(_clip, hooks, "value"))


def _clip(hooks: Hooks, kind: str, original: Any) -> Any:
    names = list(inspect.signature(original).parameters)[:2]

    def clip(*args: Any, **kwargs: Any) -> Any:
        if hooks.silent():
            return original(*args, **kwargs)
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        held = given.get(names[0])
        if isinstance(held, types.GeneratorType):  # it can be read only once, and torch asks whether it is one
            held = list(held)
            again = (parameter for parameter in held)
            args, kwargs = ((again, *args[1:]), kwargs) if args else (args, {**kwargs, names[0]: again})
        try:
            norm = original(*args, **kwargs)
        except BaseException as error:
            unframe(error)
            raise
        _tell_clip(hooks, kind, held, given.get(names[1]), norm)
        return norm

    return clip


@harmless
def _tell_clip(hooks: Hooks, kind: str, parameters: Any, limit: Any, norm: Any) -> None:
    recorder = hooks.recorder
    sampled = recorder.sampled
    if recorder.wants("clip", sampled):
        held = [parameters] if isinstance(parameters, hooks.torch.Tensor) else list(parameters)
        recorder.tell("clip", Clip(kind, held, limit, norm, recorder.step, sampled, users_place(4)), sampled)


# --- schedules, modes, loaders


def schedulers(hooks: Hooks, torch: Any) -> None:
    owner = torch.optim.lr_scheduler
    depth = [0]  # a scheduler steps when it is made, and chained ones step those they are made of

    def make_init_quiet(original: Any) -> Any:
        def __init__(scheduler: Any, *args: Any, **kwargs: Any) -> None:
            depth[0] += 1
            try:
                original(scheduler, *args, **kwargs)
            except BaseException as error:
                unframe(error)
                raise
            finally:
                depth[0] -= 1

        return __init__

    def make(original: Any) -> Any:
        def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            depth[0] += 1
            try:
                result = original(scheduler, *args, **kwargs)
            except BaseException as error:
                unframe(error)
                raise
            finally:
                depth[0] -= 1
            if not depth[0] and not hooks.silent():
                _tell_scheduler(hooks, scheduler)
            return result

        return step

    for kind in {value for value in vars(owner).values() if isinstance(value, type)}:
        if "step" in vars(kind):
            hooks.patches.replace(kind, "step", make)
        if "__init__" in vars(kind) and issubclass(kind, owner.LRScheduler):
            hooks.patches.replace(kind, "__init__", make_init_quiet)


@harmless
def _tell_scheduler(hooks: Hooks, scheduler: Any) -> None:
    recorder = hooks.recorder
    if recorder.wants("scheduler"):
        recorder.tell("scheduler", SchedulerStep(scheduler, recorder.step, recorder.epoch, users_place()))


def modes(hooks: Hooks, torch: Any) -> None:
    depth = [0]

    def make(original: Any) -> Any:
        def train(module: Any, mode: bool = True) -> Any:
            if depth[0] or hooks.silent():
                return original(module, mode)
            depth[0] += 1
            try:
                result = original(module, mode)
            except BaseException as error:
                unframe(error)
                raise
            finally:
                depth[0] -= 1
            _tell_mode(hooks, module, mode)
            return result

        return train

    hooks.patches.replace(torch.nn.Module, "train", make)


@harmless
def _tell_mode(hooks: Hooks, module: Any, mode: bool) -> None:
    if not mode:
        hooks.phase_changes("eval")
    recorder = hooks.recorder
    if recorder.wants("mode"):
        recorder.tell("mode", Mode(module, mode, recorder.step, users_place()))


def loaders(hooks: Hooks, torch: Any) -> None:
    owner = torch.utils.data.dataloader
    known, turns, recorder = hooks.loaders, hooks.turns, hooks.recorder

    @harmless
    def started(hooks: Hooks, loader: Any, iterator: Any) -> None:
        held = known.get(loader)
        if held is None:
            held = known[loader] = [hooks.loaders_seen, -1]
            hooks.loaders_seen += 1
        held[1] += 1
        if held[0] == 0:
            hooks.recorder.epoch = held[1]
        turns[iterator] = Turn(held[0], held[1])
        hooks.recorder.settle(False)
        hooks.phase_changes(f"loader {held[0]}")

    def make_iter(original: Any) -> Any:
        def __iter__(loader: Any) -> Any:
            try:
                iterator = original(loader)
            except BaseException as error:
                unframe(error)
                raise
            if not hooks.silent():
                started(hooks, loader, iterator)
            return iterator

        return __iter__

    def make_next(original: Any) -> Any:
        def __next__(iterator: Any) -> Any:
            try:
                value = original(iterator)
            except BaseException as error:
                unframe(error)
                raise
            if not recorder.busy and (turn := turns.get(iterator)) is not None:
                _tell_batch(hooks, iterator, turn, value)
            return value

        return __next__

    hooks.patches.replace(owner.DataLoader, "__iter__", make_iter)
    hooks.patches.replace(owner._BaseDataLoaderIter, "__next__", make_next)


def _tell_batch(hooks: Hooks, iterator: Any, turn: Turn, value: Any) -> None:
    try:
        recorder = hooks.recorder
        recorder.settle(False)
        recorder.loader, position, step = turn.loader, turn.position, recorder.step
        turn.position += 1
        sampled = recorder.sampled or position < 2
        if recorder.wants("batch", sampled):
            tensors = list(tensors_in(value, hooks.torch)) if sampled else []
            place = users_place(3)
            event = Batch(value, tensors, turn.loader, turn.epoch, position, step, sampled, place, iterator)
            recorder.tell("batch", event, sampled)
    except Exception as error:  # noqa: BLE001  # as in harmless
        hooks.failed("batch", error)


# --- leaving no trace


def parametrizations(hooks: Hooks, torch: Any) -> None:
    """To look at a weight that is computed on access must not count as an access: spectral norm, for one, updates its
    buffers each time it is asked."""

    def make(original: Any) -> Any:
        looking = [False]

        def forward(held: Any, *args: Any, **kwargs: Any) -> Any:
            if hooks.compiling() or not hooks.recorder.busy or looking[0]:
                return original(held, *args, **kwargs)
            looking[0] = True
            state = torch.get_rng_state()
            try:
                own = {name: buffer.clone() for name, buffer in held.named_buffers()}
                return torch.func.functional_call(held, own, args, kwargs)
            finally:
                looking[0] = False
                torch.set_rng_state(state)

        return forward

    hooks.patches.replace(torch.nn.utils.parametrize.ParametrizationList, "forward", make)


# --- compilers


def compilers(hooks: Hooks, torch: Any) -> None:
    """Compiled and traced code is left alone: what it calls is the torch it would see without clew."""

    def make_compile(original: Any) -> Any:
        def compile(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            given = args[0] if args else kwargs.get("model")
            if given is None or made is given or hooks.silent():
                return made
            name = getattr(given, "__qualname__", type(given).__name__)
            place = users_place()
            hooks.trouble(f"{place or 'torch'} compiles {name}: what happens inside compiled code cannot be observed")
            if isinstance(made, torch.nn.Module):
                _compiled_modules(hooks, type(made))
                return made
            return _compiled_function(hooks, given, made)

        return compile

    hooks.patches.replace(torch, "compile", make_compile)

    def make_traced(original: Any) -> Any:
        def traced(*args: Any, **kwargs: Any) -> Any:
            before = hooks.step_aside()
            try:
                with hooks.patches.away():
                    return original(*args, **kwargs)
            except BaseException as error:
                unframe(error)
                raise
            finally:
                hooks.step_back(before)

        return traced

    for owner, name in (
        (torch.jit, "script"),
        (torch.jit, "trace"),
        (torch.jit, "trace_module"),
        (torch.fx.Tracer, "trace"),
        (torch.export, "export"),
    ):
        hooks.patches.replace(owner, name, make_traced)


def _compiled_modules(hooks: Hooks, kind: type) -> None:
    """Calls of a compiled module, from outside."""
    if kind in hooks.compiled:
        return
    hooks.compiled.add(kind)

    def make(original: Any) -> Any:
        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
            if hooks.silent():
                return original(module, *args, **kwargs)
            before = hooks.step_aside()
            try:
                result = original(module, *args, **kwargs)
            except BaseException as error:
                unframe(error)
                raise
            finally:
                hooks.step_back(before)
            if before[0] and not hooks.inside_backward and not hooks.elsewhere():
                hooks.module_returned(module._orig_mod, (*args, *kwargs.values()), result)
            return result

        return __call__

    hooks.patches.replace(kind, "__call__", make)


def _compiled_function(hooks: Hooks, given: Any, made: Any) -> Any:
    """Calls of a compiled function; `module.compile()` comes here with the module's own call."""
    owner = getattr(given, "__self__", None)
    module = owner if isinstance(owner, hooks.torch.nn.Module) and given.__name__ == "_call_impl" else None

    @functools.wraps(made)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        if hooks.silent():
            return made(*args, **kwargs)
        before = hooks.step_aside()
        try:
            result = made(*args, **kwargs)
        except BaseException as error:
            unframe(error)
            raise
        finally:
            hooks.step_back(before)
        if before[0] and module is not None and not hooks.inside_backward and not hooks.elsewhere():
            hooks.module_returned(module, (*args, *kwargs.values()), result)
        return result

    return hide(compiled)
