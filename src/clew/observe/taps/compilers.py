"""Compiled and traced code, which is left alone: what it calls is the torch it would see without clew."""

from __future__ import annotations

import functools
import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any

from clew.observe.guard import disturbs
from clew.observe.patches import hide, unframe
from clew.observe.places import users_place

if TYPE_CHECKING:
    from clew.observe.hooks import Hooks


def install(hooks: Hooks, torch: Any) -> None:
    def make_compile(original: Any) -> Any:
        def compile(*args: Any, **kwargs: Any) -> Any:
            try:
                with hooks.patches.away():
                    # The compiler looks once, by name, which functions it knows.
                    known = import_module("torch._dynamo.trace_rules").get_torch_obj_rule_map
                    known.cache_clear()
                    known()
                made = original(*args, **kwargs)
            except BaseException as error:
                disturbs(error, "torch.compile")
                unframe(error)
                raise
            given = args[0] if args else kwargs.get("model")
            if given is None or made is given or hooks.silent():
                return made
            name = getattr(given, "__qualname__", type(given).__name__)
            place = users_place()
            hooks.compiles = hooks.compiles or f"{place or 'torch'} compiles {name}"
            hooks.trouble(f"{place or 'torch'} compiles {name}: what happens inside compiled code cannot be observed")
            if isinstance(made, torch.nn.Module):
                _compiled_modules(hooks, type(made))
                return made
            return _compiled_function(hooks, given, made)

        return compile

    hooks.patches.replace(torch, "compile", make_compile)

    def make_traced(what: str, original: Any) -> Any:
        looks_up = "_frames_up" in inspect.signature(original).parameters

        def traced(*args: Any, **kwargs: Any) -> Any:
            if looks_up:  # a class finds what it names in the frame of whoever scripts it: this is one frame more
                kwargs["_frames_up"] = kwargs.get("_frames_up", 0) + 1
            before = hooks.step_aside()
            try:
                with hooks.patches.away(everywhere=True):
                    return original(*args, **kwargs)
            except BaseException as error:
                disturbs(error, what)
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
        hooks.patches.replace(owner, name, functools.partial(make_traced, f"{owner.__name__}.{name}"))


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
                disturbs(error, "compiled code")
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
            disturbs(error, "compiled code")
            unframe(error)
            raise
        finally:
            hooks.step_back(before)
        if before[0] and module is not None and not hooks.inside_backward and not hooks.elsewhere():
            hooks.module_returned(module, (*args, *kwargs.values()), result)
        return result

    return hide(compiled)
