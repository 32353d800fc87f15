"""Steps of optimisers, the clearing of gradients, and their clipping."""

from __future__ import annotations

import functools
import inspect
import types
from importlib import import_module
from threading import get_ident
from typing import TYPE_CHECKING, Any

from clew.observe.hooks import harmless
from clew.observe.patches import hide, unframe
from clew.observe.places import users_place
from clew.observe.watch import Clip

if TYPE_CHECKING:
    from clew.observe.hooks import Hooks


def install(hooks: Hooks, torch: Any) -> None:
    _steps(hooks)
    _makers(hooks, torch)
    for owner in (torch.nn.utils, torch.nn.utils.clip_grad):
        hooks.patches.replace(owner, "clip_grad_norm_", functools.partial(_clip, hooks, "norm"))
        hooks.patches.replace(owner, "clip_grad_value_", functools.partial(_clip, hooks, "value"))


def _steps(hooks: Hooks) -> None:
    owner = import_module("torch.optim.optimizer")
    recorder, compiling = hooks.recorder, hooks.compiling

    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not (recorder.busy or compiling()):
            hooks.thread = get_ident()
            recorder.step_begins()
            hooks.tell_optimizer("before_step", optimizer)
            hooks.inside_step = True

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        hooks.inside_step = False
        recorder.closures_end()
        if not (recorder.busy or compiling()):
            hooks.tell_optimizer("after_step", optimizer)
            hooks.step_done()

    hooks.step_hooks += [
        owner.register_optimizer_step_pre_hook(hide(before)),
        owner.register_optimizer_step_post_hook(hide(after)),
    ]


def _makers(hooks: Hooks, torch: Any) -> None:
    recorder, compiling = hooks.recorder, hooks.compiling

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
            try:
                result = original(owner, *args, **kwargs)
            except BaseException as error:
                unframe(error)
                raise
            if not (recorder.busy or compiling()):
                hooks.tell_optimizer("zero_grad", owner)
            return result

        return zero_grad

    hooks.patches.replace(torch.optim.Optimizer, "__init__", make_init)
    hooks.patches.replace(torch.optim.Optimizer, "zero_grad", make_zero)
    hooks.patches.replace(torch.nn.Module, "zero_grad", make_zero)


def _clip(hooks: Hooks, kind: str, original: Any) -> Any:
    names = list(inspect.signature(original).parameters)[:3]

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
        by = given.get(names[2], 2.0) if kind == "norm" else 2.0
        _tell_clip(hooks, kind, held, given.get(names[1]), norm, by)
        return norm

    return clip


@harmless
def _tell_clip(hooks: Hooks, kind: str, parameters: Any, limit: Any, norm: Any, by: Any) -> None:
    recorder = hooks.recorder
    sampled = recorder.sampled
    if recorder.wants("clip", sampled):
        held = [parameters] if isinstance(parameters, hooks.torch.Tensor) else list(parameters)
        event = Clip(kind, held, limit, norm, recorder.step, sampled, users_place(4), float(by))
        recorder.tell("clip", event, sampled)
