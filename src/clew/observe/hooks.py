"""What is attached to torch so that a run can be seen, and how it is taken off again.

Every patch calls the original, passes on what it returns or raises, and does nothing at all in forked worker processes,
in compiled, traced or vectorised code, and while clew itself calls torch. The patches themselves are in `taps`.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from clew.observe import alive
from clew.observe.fields import fields_of
from clew.observe.guard import release
from clew.observe.patches import Patches
from clew.observe.places import users_place
from clew.observe.recorder import Recorder
from clew.observe.watch import Forward, ModuleCall, OptimizerEvent, Raised, Watch

if TYPE_CHECKING:
    import torch

ATTACHED_AFTER_PHASE = 3
"""How many outermost forward calls are looked at after a change of phase (a loader starts, .eval(), no_grad)."""

REMEMBERED = 64
"""Models whose names are kept before those that are no more are looked for."""

PLAIN = frozenset((int, float, bool, str, bytes))

Told = TypeVar("Told", bound=Callable[..., None])


def harmless(tell: Told) -> Told:
    """Whatever fails while clew looks is said in the report and never reaches the script.

    What every step passes through catches it itself, which is one call less.
    """

    @functools.wraps(tell)
    def guarded(hooks: Hooks, *args: Any) -> None:
        try:
            tell(hooks, *args)
        except BaseException as error:  # noqa: BLE001  # see above
            release(error)
            hooks.failed(tell.__name__, error)

    return guarded  # type: ignore[return-value]  # the same signature


class Turn:
    """One pass over a loader."""

    __slots__ = ("epoch", "loader", "position")

    def __init__(self, loader: int, epoch: int) -> None:
        self.loader, self.epoch, self.position = loader, epoch, 0


class Hooks:
    """All patches of one recorder."""

    def __init__(
        self, recorder: Recorder, stop: Callable[[], None] | None = None, say: Callable[[str], None] | None = None
    ) -> None:
        self.recorder = recorder
        self.stop = stop
        self.say = say
        self.said: set[str] = set()
        self.patches = Patches()
        self.step_hooks: list[Any] = []
        self.handles: list[Any] = []
        self.thread: int | None = None  # the one that calls step; others run something else
        self.stack: list[Any] = []
        self.noting: Any = None  # the mode that notes the calls of a step, while it is on
        self.looks = 0  # outermost forward calls still to be looked at although the step is not sampled
        self.phases: dict[Hashable, int] = {}
        self.learning: dict[int, tuple[weakref.ref[Any], bool]] = {}
        self.roots: dict[int, tuple[weakref.ref[Any], dict[int, str]]] = {}
        self.compiled: set[type] = set()
        self.compiles = ""  # what was compiled first, and where
        self.loaders: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
        self.loaders_seen = 0
        self.turns: weakref.WeakKeyDictionary[Any, Turn] = weakref.WeakKeyDictionary()
        self.inside_function = False
        self.inside_backward = False
        self.inside_step = False

    # --- on and off

    def install(self) -> None:
        import torch

        from clew.observe import taps

        self.torch = torch
        self.optimizer = torch.optim.Optimizer
        self.compiling = torch.compiler.is_dynamo_compiling
        self.grad_enabled = torch.is_grad_enabled
        self.modes = torch._C._len_torch_dispatch_stack
        self.transforms = torch._C._functorch.peek_interpreter_stack
        self.tracing = torch._C._get_tracing_state
        self.has_cuda = torch.version.cuda is not None or torch.version.hip is not None
        self.recorder.say = self.trouble
        self.recorder.shield = torch._C.DisableTorchFunction
        taps.install(self)
        self.attach()
        _installed.add(self)
        self.recorder.installed()

    def uninstall(self) -> None:
        _installed.discard(self)
        self.detach()
        self.patches.remove()
        for handle in self.step_hooks:
            handle.remove()
        self.step_hooks.clear()
        self.compiled.clear()

    def silent(self) -> bool:
        """Whether an event is none of the run's own. To a compiler both answers are constants: nothing of clew becomes
        part of what it compiles. The taps that every step passes through ask the same without this call."""
        return self.recorder.busy or self.compiling()

    def elsewhere(self) -> bool:
        """Whether tensors are not what they seem (fake, traced, batched, being captured), or this is another thread."""
        if self.modes() or self.transforms() is not None or self.tracing() is not None:
            return True
        if self.thread is not None and self.thread != get_ident():
            return True
        cuda = self.torch.cuda
        return self.has_cuda and cuda.is_initialized() and bool(cuda.is_current_stream_capturing())

    def looking(self) -> bool:
        return self.recorder.sampled or self.looks > 0

    def failed(self, what: str, error: BaseException) -> None:
        self.trouble(f"could not follow {what.strip('_')}: {type(error).__name__}: {error}")

    def trouble(self, sentence: str) -> None:
        if self.say is not None and sentence not in self.said and len(self.said) < 20:
            self.said.add(sentence)
            self.say(sentence)

    # --- compiled and traced code

    def step_aside(self) -> tuple[bool, bool, Any]:
        """Out of the way while torch compiles or runs compiled code: it looks for module hooks and for modes, and would
        compile again whenever they come or go. Returns what was there: hooks, whether clew was busy, the mode."""
        core = self.torch._C
        mode = core._get_function_stack_at(on - 1) if (on := core._len_torch_function_stack()) else None
        before = bool(self.handles), self.recorder.busy, mode if mode is self.noting else None
        if before[2] is not None:
            core._pop_torch_function_stack()
        self.detach()
        self.recorder.busy = True
        return before

    def step_back(self, before: tuple[bool, bool, Any]) -> None:
        attached, self.recorder.busy, mode = before
        if mode is not None:
            self.torch._C._push_on_torch_function_stack(mode)
        if attached and not self.handles:
            self._register()

    # --- module calls, only while attached

    def attach(self) -> None:
        if not self.handles:
            self.stack.clear()
            self._register()

    def _register(self) -> None:
        module = self.torch.nn.modules.module
        self.handles = [
            module.register_module_forward_pre_hook(self._before_module),
            module.register_module_forward_hook(self._after_module, with_kwargs=True, always_call=True),
        ]

    def detach(self) -> None:
        module = self.torch.nn.modules.module
        for handle in self.handles:
            handle.remove()
            for name in ("_global_forward_hooks_with_kwargs", "_global_forward_hooks_always_called"):
                getattr(module, name, {}).pop(handle.id, None)  # torch forgets to
        self.handles.clear()

    def settle_attachment(self) -> None:
        """Attach for sampled steps and after a change of phase, detach otherwise."""
        if self.looking():
            self.attach()
        else:
            self.detach()

    def phase_changes(self, kind: Hashable) -> None:
        """Something began that may be an evaluation: look at the next forward calls, less often as it repeats."""
        seen = self.phases[kind] = self.phases.get(kind, 0) + 1
        if seen <= 8 or seen & (seen - 1) == 0:
            self.looks = ATTACHED_AFTER_PHASE
            self.attach()

    def _before_module(self, module: Any, _inputs: tuple[Any, ...]) -> None:
        if not (self.silent() or self.inside_backward or self.elsewhere()):
            self.stack.append(module)

    def _after_module(self, module: Any, inputs: tuple[Any, ...], *rest: Any) -> None:
        if self.silent() or self.inside_backward or self.elsewhere():
            return
        self._leave(module)
        if len(rest) == 2:  # named arguments and the output; after an exception torch gives neither
            self.module_returned(module, (*inputs, *rest[0].values()), rest[1])
        elif not self.stack:
            self._module_failed(module)

    @harmless
    def _module_failed(self, module: Any) -> None:
        error = sys.exc_info()[1]
        if error is not None and self.grad_enabled() and self._is_model(module):
            self.raised("forward", error)

    def _leave(self, module: Any) -> None:
        stack = self.stack
        for index in range(len(stack) - 1, -1, -1):
            if stack[index] is module:
                del stack[index:]
                return

    @harmless
    def module_returned(self, module: Any, inputs: tuple[Any, ...], output: Any) -> None:
        stack = self.stack  # the modules whose call this one was part of
        recorder = self.recorder
        grad = self.grad_enabled()
        root = stack[0] if stack else module
        if self.only_shapes(output):
            return
        if not self._is_model(root):
            if not stack and recorder.wants("aside"):
                recorder.tell("aside", ModuleCall(module, "", -1, inputs, output, recorder.step, not grad))
            return
        model = recorder.model_number(root)
        if recorder.wants("module"):
            name = self._name(root, module)
            recorder.tell("module", ModuleCall(module, name, model, inputs, output, recorder.step, not grad))
        if not stack:
            place = users_place()
            graph = alive.mark(tensors_in(output, self.torch)) if grad else None
            recorder.forward_called(model, module.training, grad, place, graph)
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
            forget_dead(self.learning)
            has = next(iter(module.parameters()), None) is not None
            held = self.learning[id(module)] = (weakref.ref(module), has)
        return held[1]

    def only_shapes(self, output: Any) -> bool:
        """Whether a call only worked out shapes. Subclasses and modes of the script do not hear the question."""
        if not isinstance(output, self.torch.Tensor):
            return False
        with self.recorder.shield():
            return bool(output.is_meta)

    def _name(self, root: Any, module: Any) -> str:
        held = self.roots.get(id(root))
        if held is None or held[0]() is not root:
            forget_dead(self.roots)
            names = {id(part): name for name, part in root.named_modules()}
            held = self.roots[id(root)] = (weakref.ref(root), names)
        return held[1].get(id(module), "?")

    # --- what several taps need

    def step_done(self) -> None:
        recorder = self.recorder
        try:
            recorder.step_done()
            self.settle_attachment()
        except BaseException as error:  # noqa: BLE001  # as in harmless
            release(error)
            self.failed("step", error)
        if recorder.limit and self.stop is not None and recorder.step >= recorder.limit:
            self.stop()

    @harmless
    def raised(self, during: str, error: BaseException) -> None:
        if isinstance(error, Exception):
            recorder = self.recorder
            event = Raised(f"{type(error).__name__}: {error}"[:300], during, recorder.step, users_place())
            recorder.tell("raised", event)

    def tell_optimizer(self, name: str, owner: Any) -> None:
        try:
            recorder = self.recorder
            sampled = recorder.sampled
            number = recorder.optimizer_number(owner) if isinstance(owner, self.optimizer) else -1
            if recorder.wants(name, sampled):
                recorder.tell(name, OptimizerEvent(owner, number, recorder.step, sampled, users_place(3)), sampled)
        except BaseException as error:  # noqa: BLE001  # as in harmless
            release(error)
            self.failed(name, error)


_installed: weakref.WeakSet[Hooks] = weakref.WeakSet()


def _in_a_fork() -> None:
    """A forked process (a DataLoader's worker, for one) goes on bare."""
    for hooks in list(_installed):
        for watch in hooks.recorder.watches:
            with suppress(Exception):
                watch.forked()
        hooks.uninstall()


os.register_at_fork(after_in_child=_in_a_fork)


def forget_dead(held: dict[int, tuple[weakref.ref[Any], Any]]) -> None:
    """A script that makes models all along, in a search or for each task, must not fill the memory with their names."""
    if len(held) >= REMEMBERED:
        for key in [key for key, (module, _) in held.items() if module() is None]:
            del held[key]


def tensors_in(value: Any, torch: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """All tensors of a batch, however it is nested."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 6:
        if isinstance(value, dict) or (hasattr(value, "items") and hasattr(value, "values")):
            for item in list(value.values())[:64]:
                yield from tensors_in(item, torch, depth + 1)
        elif isinstance(value, list | tuple):
            for item in value[:64]:
                yield from tensors_in(item, torch, depth + 1)
        elif value is not None and type(value) not in PLAIN:
            # Objects hold others, and those lead anywhere: they are followed a little way and no further.
            for item in list(fields_of(value).values())[:64]:
                yield from tensors_in(item, torch, max(depth + 1, 4))


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
