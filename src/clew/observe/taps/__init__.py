"""The calls of torch that tell what a run does: losses, backward, steps, schedules, modes, batches.

Each replacement runs the original and then hands the event on. Where an exception passes through, the replacement takes
itself out of the traceback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.observe.taps import autograd, batches, compilers, functions, makers, modules, optimizers, schedules

if TYPE_CHECKING:
    from clew.observe.hooks import Hooks


def install(hooks: Hooks) -> None:
    for part in (functions, autograd, optimizers, schedules, modules, batches, makers, compilers):
        part.install(hooks, hooks.torch)
