"""Replacing functions of a library so that the script does not notice: neither in a traceback, nor in the place of a
warning, nor when it pickles, copies or inspects them, nor when it puts one into a class of its own.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

HIDDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "importlib_bootstrap_hooks.py")
"""The file name that replacements carry. When `warnings` counts up to the caller's line it steps over frames whose file
name has both "importlib" and "_bootstrap" in it, so a warning still names the line of the script."""

_NONE = object()


_signature = functools.lru_cache(512)(inspect.signature)


class Patch(NamedTuple):
    owner: Any
    name: str
    original: Any  # _NONE when the owner had it by inheritance
    replacement: Any


class Unbound(functools.partial[Any]):
    """Stands for a function written in C, or for a method that is bound already: neither becomes a method of a class
    that takes it up. What it does not have itself is the original's, its type included."""

    __wrapped__: Any

    @property  # type: ignore[misc]  # object's own can be written
    def __class__(self) -> Any:
        return type(self.__wrapped__)

    if hasattr(functools.partial, "__get__"):  # an Enum takes what has one for a method

        def __get__(self, instance: Any, owner: Any = None) -> Unbound:
            return self

    def __eq__(self, other: object) -> bool:
        """As torch hands the original to a subclass of Tensor, whose table has the replacement."""
        return original(other) is original(self)

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["__wrapped__"], name)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    def __reduce_ex__(self, protocol: Any) -> Any:
        bound = isinstance(self.__wrapped__, MethodType)
        return self.__wrapped__.__reduce_ex__(protocol) if bound else self.__qualname__


class Patches:
    """Everything that was replaced, which can be put back for a while or for good."""

    def __init__(self) -> None:
        self._held: list[Patch] = []
        self._off = 0

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace `owner.name` by `make(it)`; a missing name is left alone: versions differ."""
        inherited = getattr(owner, name, None)
        if inherited is None:
            return
        original = vars(owner).get(name, _NONE)
        replacement = hide(make(inherited))
        if isinstance(owner, ModuleType) and not _binds(inherited):
            replacement = Unbound(replacement)
        functools.update_wrapper(replacement, inherited)
        if not hasattr(inherited, "__wrapped__"):
            with suppress(TypeError, ValueError):
                replacement.__signature__ = _signature(inherited)  # getfullargspec does not follow __wrapped__
        if isinstance(owner, ModuleType):
            replacement.__module__, replacement.__qualname__ = owner.__name__, name
        else:
            replacement.__module__, replacement.__qualname__ = owner.__module__, f"{owner.__qualname__}.{name}"
            if isinstance(inspect.getattr_static(owner, name), staticmethod):
                replacement = staticmethod(replacement)
        self._held.append(Patch(owner, name, original, replacement))
        if not self._off:
            setattr(owner, name, replacement)

    def remove(self) -> None:
        self._put_back()
        self._held.clear()

    @contextmanager
    def away(self, everywhere: bool = False) -> Iterator[None]:
        """The library as it was, for the length of a block; with `everywhere` also by the names that other modules have
        for what is replaced, as after `from torch.nn.functional import softmax`."""
        self._off += 1
        if self._off == 1:
            self._put_back()
        bound = list(_bound()) if everywhere else []
        for space, name, function in bound:
            space[name] = original(function)
        try:
            yield
        finally:
            for space, name, function in bound:
                space[name] = function
            self._off -= 1
            if not self._off:
                for held in self._held:
                    if vars(held.owner).get(held.name, _NONE) is held.original:
                        setattr(held.owner, held.name, held.replacement)

    def _put_back(self) -> None:
        """Not over what the script has put there since."""
        for held in reversed(self._held):
            if original(vars(held.owner).get(held.name)) is not original(held.replacement):
                continue
            if held.original is not _NONE:
                setattr(held.owner, held.name, held.original)
            else:
                delattr(held.owner, held.name)


def _binds(function: Any) -> bool:
    """Whether it becomes a method of a class that takes it up."""
    bind = getattr(type(function), "__get__", None)
    return bind is not None and bind(function, _NONE, object) is not function


def _bound() -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Where modules other than torch's own hold a replacement by a name of theirs."""
    for module in list(sys.modules.values()):
        if type(module) is ModuleType and not module.__name__.startswith(("torch.", "clew.")):
            for name, value in list(vars(module).items()):
                if original(value) is not value:
                    yield vars(module), name, value


def hide(function: Any) -> Any:
    function.__code__ = function.__code__.replace(co_filename=HIDDEN)
    return function


def original(function: Any) -> Any:
    """What a replacement stands for; any other function is itself."""
    while _replaces(function):
        function = function.__wrapped__
    return function


def _replaces(value: Any) -> bool:
    kind = type(value)
    if kind is FunctionType:
        return bool(value.__code__.co_filename == HIDDEN) and hasattr(value, "__wrapped__")
    return kind is Unbound or (kind is staticmethod and _replaces(value.__wrapped__))


def unframe(error: BaseException) -> None:
    """Take the frame that has just caught an exception out of its traceback; a bare `raise` does not add it again."""
    trace = error.__traceback__
    if trace is not None:
        error.__traceback__ = trace.tb_next
