"""Backward, the scaling of a loss before it, and the switching off of gradients."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from clew.observe.guard import release
from clew.observe.hooks import harmless
from clew.observe.patches import unframe
from clew.observe.places import users_place
from clew.observe.watch import Backward

if TYPE_CHECKING:
    from clew.observe.hooks import Hooks


def install(hooks: Hooks, torch: Any) -> None:
    _backward(hooks, torch)
    _scalers(hooks, torch)
    _grad_modes(hooks, torch)


def _backward(hooks: Hooks, torch: Any) -> None:
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
                if hooks.inside_step:
                    recorder.closure_done()
                    hooks.settle_attachment()
                else:
                    recorder.backward_done()
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
        recorder.settle(True, loss)
        recorder.tell("before_backward", event, event.sampled)
        return event
    except BaseException as error:  # noqa: BLE001  # as in harmless
        release(error)
        hooks.failed("backward", error)
        return None


def _scalers(hooks: Hooks, torch: Any) -> None:
    """A GradScaler multiplies the loss before backward; the curve is that of the loss it was given."""

    def make(original: Any) -> Any:
        def scale(scaler: Any, outputs: Any) -> Any:
            try:
                result = original(scaler, outputs)
            except BaseException as error:
                unframe(error)
                raise
            if not hooks.silent():
                _tell_scaled(hooks, scaler, outputs, result)
            return result

        return scale

    owner = getattr(torch.amp, "GradScaler", None)
    if owner is not None:
        hooks.patches.replace(owner, "scale", make)


@harmless
def _tell_scaled(hooks: Hooks, scaler: Any, given: Any, scaled: Any) -> None:
    if isinstance(given, list | tuple) and given and isinstance(scaled, list | tuple):
        given, scaled = given[0], scaled[0]  # as `_before_backward` takes the first of several
    if isinstance(given, hooks.torch.Tensor) and scaled is not given:
        with hooks.recorder.quietly():
            hooks.recorder.losses.scaled(given, scaled, scaler._scale)


def _grad_modes(hooks: Hooks, torch: Any) -> None:
    def make(original: Any) -> Any:
        def __enter__(guard: Any) -> Any:
            if not (hooks.silent() or hooks.inside_step or hooks.inside_backward) and hooks.grad_enabled():
                # By place: initialisers enter it too, once for each parameter.
                frame = sys._getframe(1)
                if frame.f_code.co_name == "decorate_context" and frame.f_back is not None:
                    frame = frame.f_back
                hooks.phase_changes((frame.f_code, frame.f_lineno))
            return original(guard)

        return __enter__

    for kind in (torch.autograd.grad_mode.no_grad, torch.autograd.grad_mode.inference_mode):
        hooks.patches.replace(kind, "__enter__", make)
