"""What data loaders give out, and how often they are started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clew.observe.guard import release
from clew.observe.hooks import Turn, harmless, tensors_in
from clew.observe.patches import unframe
from clew.observe.places import users_place
from clew.observe.watch import Batch

if TYPE_CHECKING:
    from clew.observe.hooks import Hooks


def install(hooks: Hooks, torch: Any) -> None:
    owner = torch.utils.data.dataloader
    turns, recorder = hooks.turns, hooks.recorder

    def make_iter(original: Any) -> Any:
        def __iter__(loader: Any) -> Any:
            try:
                iterator = original(loader)
            except BaseException as error:
                unframe(error)
                raise
            if not hooks.silent():
                _started(hooks, loader, iterator)
            return iterator

        return __iter__

    def make_next(original: Any) -> Any:
        def __next__(iterator: Any) -> Any:
            try:
                value = original(iterator)
            except BaseException as error:
                unframe(error)
                raise
            if not recorder.busy and (turn := turns.get(iterator)) is not None:
                _tell_batch(hooks, iterator, turn, value)
            return value

        return __next__

    hooks.patches.replace(owner.DataLoader, "__iter__", make_iter)
    hooks.patches.replace(owner._BaseDataLoaderIter, "__next__", make_next)


@harmless
def _started(hooks: Hooks, loader: Any, iterator: Any) -> None:
    held = hooks.loaders.get(loader)
    if held is None:
        held = hooks.loaders[loader] = [hooks.loaders_seen, -1]
        hooks.loaders_seen += 1
        made = hooks.recorder.origins.made(loader)
        if made is not None:
            hooks.recorder.origins.loaders[held[0]] = made
    held[1] += 1
    number, epoch = held
    hooks.turns[iterator] = Turn(number, epoch)
    hooks.recorder.settle(False)
    hooks.recorder.pass_began(number, epoch)
    hooks.phase_changes(f"loader {number}")


def _tell_batch(hooks: Hooks, iterator: Any, turn: Turn, value: Any) -> None:
    try:
        recorder = hooks.recorder
        recorder.settle(False)
        recorder.loader, position, step = turn.loader, turn.position, recorder.step
        turn.position += 1
        sampled = recorder.sampled or position < 2
        if recorder.wants("batch", sampled):
            tensors = list(tensors_in(value, hooks.torch)) if sampled else []
            place = users_place(3)
            event = Batch(value, tensors, turn.loader, turn.epoch, position, step, sampled, place, iterator)
            recorder.tell("batch", event, sampled)
    except BaseException as error:  # noqa: BLE001  # as in harmless
        release(error)
        hooks.failed("batch", error)
