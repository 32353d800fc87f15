"""Switches between training and evaluation, and weights that are computed when they are looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clew.observe.hooks import harmless
from clew.observe.patches import unframe
from clew.observe.places import users_place
from clew.observe.watch import Mode

if TYPE_CHECKING:
    from clew.observe.hooks import Hooks


def install(hooks: Hooks, torch: Any) -> None:
    _modes(hooks, torch)
    _parametrizations(hooks, torch)


def _modes(hooks: Hooks, torch: Any) -> None:
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


def _parametrizations(hooks: Hooks, torch: Any) -> None:
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
