"""Where modules and loaders are made, and where parameters get their first values."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from clew.observe.guard import release
from clew.observe.patches import unframe

if TYPE_CHECKING:
    from clew.observe.hooks import Hooks

INITIALISERS = (
    "uniform_",
    "normal_",
    "trunc_normal_",
    "constant_",
    "ones_",
    "zeros_",
    "eye_",
    "dirac_",
    "xavier_uniform_",
    "xavier_normal_",
    "kaiming_uniform_",
    "kaiming_normal_",
    "orthogonal_",
    "sparse_",
)


def install(hooks: Hooks, torch: Any) -> None:
    hooks.patches.replace(torch.nn.Module, "__init__", functools.partial(_made, hooks))
    hooks.patches.replace(torch.utils.data.DataLoader, "__init__", functools.partial(_made, hooks))
    for name in INITIALISERS:
        hooks.patches.replace(torch.nn.init, name, functools.partial(_started, hooks, torch.nn.Parameter))


def _made(hooks: Hooks, original: Any) -> Any:
    recorder, compiling = hooks.recorder, hooks.compiling

    def __init__(thing: Any, *args: Any, **kwargs: Any) -> None:
        try:
            original(thing, *args, **kwargs)
        except BaseException as error:
            unframe(error)
            raise
        if not (recorder.busy or compiling()):
            try:
                recorder.origins.note_made(thing, sys._getframe(1))
            except BaseException as error:  # noqa: BLE001  # as in harmless
                release(error)
                hooks.failed("making", error)

    return __init__


def _started(hooks: Hooks, parameter: type, original: Any) -> Any:
    recorder, compiling = hooks.recorder, hooks.compiling

    def fill(*args: Any, **kwargs: Any) -> Any:
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            unframe(error)
            raise
        if not (recorder.busy or compiling() or recorder.step):
            try:
                tensor = args[0] if args else kwargs["tensor"]
                recorder.origins.note_started(tensor, sys._getframe(1), isinstance(tensor, parameter))
            except BaseException as error:  # noqa: BLE001  # as in harmless
                release(error)
                hooks.failed("first values", error)
        return result

    return fill
