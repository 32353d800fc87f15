"""Is the backward of the script's own autograd functions the derivative of their forward?

Of each `torch.autograd.Function` that the script defines, copies of what its first call was given are kept. When the
run has ended, gradients and centred differences are compared on them in float64.

Why it matters: autograd believes a hand-written backward. A lost factor, a wrong sign or a forgotten mask trains on
nonsense, and the layers around it make up for a part of it.
Cannot tell: an inexact gradient that was chosen, as of an implicit layer that is solved to a tolerance, from a mistake.
A mistake that shows only for other inputs than those of the first call.
Silent when: the forward passes its input on unchanged (gradient reversal, scaling) or is flat (straight-through,
surrogate gradients): both change the gradient on purpose and are unclear, as are functions that write, print or talk to
other processes, which are not called again.
"""

from __future__ import annotations

import inspect
import linecache
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.guard import release
from clew.observe.patches import Patches, original, unframe
from clew.observe.places import is_users, shown
from clew.observe.watch import Answer, Backward, Batch, OptimizerEvent, Saw, Watch, when_sampled
from clew.observe.watches._custom_check import AGREES, Checked, Kept, backward_name, check
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clew.observe.recorder import Recorder

WRONG = 1e-2
MOST_KINDS = 8
MOST_BYTES = 8 << 20
LAST_STEP = 2000
SECONDS = 1.5
"""For one function; all of them together take no more than twice that."""
PLAIN = (type(None), bool, int, float, str, torch.Size, torch.dtype, torch.device)


class CustomBackward(Watch):
    test = "custom_backward"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.seen: weakref.WeakSet[type] = weakref.WeakSet()
        self.patches: dict[type, Patches] = {}
        self.kept: dict[type, Kept] = {}
        self.refused: dict[type, str] = {}
        self.answer: Answer | None = None
        self.count = 0  # of the functions that there were when it was last looked for new ones
        self.over = False

    # --- finding the functions

    def optimizer_made(self, event: OptimizerEvent) -> None:
        del event
        self._look()

    @when_sampled
    def batch(self, event: Batch) -> None:
        del event
        self._look()

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        del event
        self._look()

    def _look(self) -> None:
        """Follow the functions that were defined since."""
        if self.over:
            return
        if self.recorder.step > LAST_STEP or len(self.kept) >= MOST_KINDS:
            self._leave()
            return
        count = len(torch.autograd.Function.__subclasses__())
        if count == self.count:
            return
        self.count = count
        for kind in _kinds(torch.autograd.Function):
            if kind not in self.seen:
                self.seen.add(kind)
                if _of_the_user(kind):
                    held = self.patches[kind] = Patches()
                    held.replace(kind, "forward", partial(self._following, kind))

    def _leave(self) -> None:
        self.over = True
        for held in self.patches.values():
            held.remove()
        self.patches.clear()

    def forked(self) -> None:
        self._leave()

    def _following(self, kind: type, forward: Any) -> Any:
        recorder, compiling = self.recorder, torch.compiler.is_dynamo_compiling
        forward = original(forward)  # a class that it inherits from may be followed already

        def followed(*args: Any, **kwargs: Any) -> Any:
            if recorder.busy or compiling() or not recorder.sampled:
                return forward(*args, **kwargs)
            self._called(kind, args)
            try:
                return forward(*args, **kwargs)
            except BaseException as error:
                unframe(error)
                raise

        return followed

    # --- keeping what they are given

    def _called(self, kind: type, args: tuple[Any, ...]) -> None:
        if kind in self.kept or torch._C._functorch.peek_interpreter_stack() is not None:
            return
        try:
            with self.recorder.quietly():
                self._keep(kind, args if _has_setup(kind) else args[1:])
        except BaseException as error:  # noqa: BLE001  # the function goes unchecked, and the run goes on
            release(error)
            self.refused[kind] = f"its arguments could not be kept: {type(error).__name__}: {error}"

    def _keep(self, kind: type, args: tuple[Any, ...]) -> None:
        tensors = list(_tensors(args))
        if not any(tensor.requires_grad for tensor in tensors):
            return  # an evaluation, or inputs that come first in the network; another call may be of more use
        odd = next((value for value in _leaves(args) if not isinstance(value, (*PLAIN, torch.Tensor))), None)
        if odd is not None:
            self.refused[kind] = f"it takes a {type(odd).__name__}, which cannot be copied as a plain value"
            return
        if sum(tensor.numel() * tensor.element_size() for tensor in tensors) > MOST_BYTES:
            self.refused[kind] = f"its inputs take more than {MOST_BYTES >> 20} MiB"
            return
        wanted = tuple(bool(tensor.requires_grad) for tensor in tensors)
        self.kept[kind] = Kept(kind, _copied(args), wanted, _names(kind, len(args)))
        self.refused.pop(kind, None)
        self.patches.pop(kind).remove()

    # --- the answer

    def read(self) -> Answer:
        if self.answer is not None:
            return self.answer
        kinds = [*self.kept, *(kind for kind in self.refused if kind not in self.kept)]
        if self.recorder.ending:
            self._leave()
        if not kinds:
            return Saw("none")
        if not self.recorder.ending:
            return Unclear("autograd functions are checked after the run")
        self.answer = self._checked(kinds)
        return self.answer

    def _checked(self, kinds: list[type]) -> Answer:
        found: dict[type, Checked] = {}
        for kind in kinds:
            limit = min(SECONDS, 2 * SECONDS / len(self.kept)) if self.kept else SECONDS
            held = self.kept.get(kind)
            found[kind] = check(held, limit) if held is not None else Checked(None, why=self.refused[kind])
        self.kept.clear()
        wrong = {kind: held for kind, held in found.items() if held.worst is not None and held.worst.error >= AGREES}
        if wrong:
            kind = max(wrong, key=lambda kind: wrong[kind].worst.error)  # type: ignore[union-attr]
            return _seen(kind, wrong[kind], len(wrong))
        unclear = [f"{kind.__name__}: {held.why}" for kind, held in found.items() if held.worst is None]
        if unclear:
            return Unclear("; ".join(unclear))
        largest = max(held.worst.error for held in found.values() if held.worst is not None)
        names = ", ".join(kind.__name__ for kind in found)
        return Saw("right", largest_relative_error=largest, functions=names).saying(
            f"The backward of {names} agrees with centred differences of forward to {largest:.1g}."
        )


def _seen(kind: Any, held: Checked, functions: int) -> Saw:
    worst = held.worst
    assert worst is not None
    name = backward_name(kind)
    outcome = "wrong" if worst.error >= WRONG else "uncomfortable"
    return (
        Saw(
            outcome,
            largest_relative_error=worst.error,
            function=kind.__name__,
            input=worst.argument,
            gradient=worst.gradient,
            difference=worst.difference,
            entries=held.entries,
            entries_apart=held.apart,
            functions=functions,
        )
        .at(_place(kind, name))
        .saying(
            f"{kind.__name__}.{name} is not the derivative of its forward: for entry {worst.at} of "
            f"{worst.argument} it gives {worst.gradient:.4g} where centred differences give "
            f"{worst.difference:.4g}, a relative error of {worst.error:.2g}; {held.apart} of {held.entries} "
            "entries differ."
        )
    )


def _kinds(base: Any) -> Iterator[type]:
    for kind in base.__subclasses__():
        yield kind
        if kind.__module__.partition(".")[0] != "torch" or kind.__name__ == "InplaceFunction":
            yield from _kinds(kind)


def _of_the_user(kind: Any) -> bool:
    """Whether forward and backward both stand in the user's own files."""
    return all(
        (code := _code(getattr(kind, name, None))) is not None and is_users(code.co_filename)
        for name in ("forward", backward_name(kind))
    )


def _code(function: Any) -> Any:
    return getattr(inspect.unwrap(original(function)), "__code__", None) if function is not None else None


def _place(kind: type, name: str) -> Place | None:
    code = _code(getattr(kind, name))
    if code is None:
        return None
    line = code.co_firstlineno  # that of a decorator, where there is one
    while linecache.getline(code.co_filename, line).lstrip().startswith("@"):
        line += 1
    return Place(shown(code.co_filename), line, symbol=code.co_qualname)


def _has_setup(kind: Any) -> bool:
    return kind.setup_context is not torch.autograd.Function.setup_context


def _names(kind: Any, count: int) -> tuple[str, ...]:
    """The names of the arguments, as forward has them."""
    code = _code(kind.forward)
    held = list(code.co_varnames[: code.co_argcount])[0 if _has_setup(kind) else 1 :]
    return tuple(held[index] if index < len(held) else f"input {index}" for index in range(count))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Size):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    else:
        yield value


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (item for item in _leaves(value) if isinstance(item, torch.Tensor))


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, torch.Size):
        return value
    if isinstance(value, list | tuple):
        held = [_copied(item) for item in value]
        return held if isinstance(value, list) else tuple(held)
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return value
