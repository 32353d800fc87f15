"""Calls of loss functions, and of the functions that often go wrong before them."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from clew.observe.guard import release
from clew.observe.hooks import harmless
from clew.observe.patches import unframe
from clew.observe.places import users_place
from clew.observe.watch import FunctionCall, LossCall

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
FUNCTIONS = ("softmax", "log_softmax", "sigmoid", "argmax", "normalize")


def install(hooks: Hooks, torch: Any) -> None:
    losses = torch.nn.functional
    for name in LOSSES:
        if hasattr(losses, name):
            parameters = list(inspect.signature(getattr(losses, name)).parameters)
            hooks.patches.replace(losses, name, functools.partial(_loss, hooks, name, parameters))
    for name in FUNCTIONS:
        for owner in (torch, torch.nn.functional, torch.Tensor):
            if hasattr(owner, name):
                hooks.patches.replace(owner, name, functools.partial(_function, hooks, name))


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
        look = hooks.looking()
        if not recorder.wants("loss", look) or hooks.only_shapes(result):
            return
        given = {**dict(zip(parameters, args, strict=False)), **kwargs}
        first, second = given.pop(parameters[0], None), given.pop(parameters[1], None)
        grad = hooks.grad_enabled()
        event = LossCall(name, first, second, given, result, recorder.step, grad, look, users_place(3))
        recorder.tell("loss", event, look)
    except BaseException as error:  # noqa: BLE001  # as in harmless
        release(error)
        hooks.failed(name, error)


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
    if isinstance(first, hooks.torch.Tensor) and not hooks.only_shapes(first):
        options = dict(kwargs)
        further = ("p", "dim") if name == "normalize" else ("dim",)
        options.update(zip(further, args[1:], strict=False))
        grad = hooks.grad_enabled()
        recorder.tell("function", FunctionCall(name, first, options, result, recorder.step, grad, True, users_place()))
