"""Steps of learning-rate schedulers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clew.observe.hooks import harmless
from clew.observe.patches import unframe
from clew.observe.places import users_place
from clew.observe.watch import SchedulerStep

if TYPE_CHECKING:
    from clew.observe.hooks import Hooks


def install(hooks: Hooks, torch: Any) -> None:
    owner = torch.optim.lr_scheduler
    depth = [0]  # a scheduler steps when it is made, and chained ones step those they are made of

    def make_init_quiet(original: Any) -> Any:
        def __init__(scheduler: Any, *args: Any, **kwargs: Any) -> None:
            depth[0] += 1
            try:
                original(scheduler, *args, **kwargs)
            except BaseException as error:
                unframe(error)
                raise
            finally:
                depth[0] -= 1

        return __init__

    def make(original: Any) -> Any:
        def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            depth[0] += 1
            try:
                result = original(scheduler, *args, **kwargs)
            except BaseException as error:
                unframe(error)
                raise
            finally:
                depth[0] -= 1
            if not depth[0] and not hooks.silent():
                _tell_scheduler(hooks, scheduler)
            return result

        return step

    # The module holds the names of other classes too, among them Optimizer, which has a step of its own.
    kinds = [value for value in vars(owner).values() if isinstance(value, type)]
    for kind in dict.fromkeys(kinds):
        if issubclass(kind, owner.LRScheduler | owner.ReduceLROnPlateau):
            if "step" in vars(kind):
                hooks.patches.replace(kind, "step", make)
            if "__init__" in vars(kind):
                hooks.patches.replace(kind, "__init__", make_init_quiet)


@harmless
def _tell_scheduler(hooks: Hooks, scheduler: Any) -> None:
    recorder = hooks.recorder
    if recorder.wants("scheduler"):
        recorder.tell("scheduler", SchedulerStep(scheduler, recorder.step, recorder.epoch, users_place()))
