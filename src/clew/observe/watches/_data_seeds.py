"""Where random generators are given the same seed again at step after step: what they draw is then always the same."""

from __future__ import annotations

import functools
import random
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from clew.observe.envs import patches_of
from clew.observe.patches import unframe
from clew.observe.places import users_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from clew.observe.recorder import Recorder
    from clew.records.place import Place

LINES, PARTS = 64, 8
SEEDED = ((np.random, "default_rng"), (np.random, "seed"), (torch, "manual_seed"), (random, "seed"))


class Seeds:
    """The lines that seed, with the seed, and the sampled steps at which they did so."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = weakref.ref(recorder)
        self.steps: dict[tuple[Place, str], set[int]] = {}

    def attach(self) -> None:
        patches = patches_of(self.recorder())
        if patches is not None:
            for owner, name in SEEDED:
                patches.replace(owner, name, functools.partial(_around, weakref.ref(self)))

    def note(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        recorder = self.recorder()
        given = [*args, *kwargs.values()]
        if recorder is None or recorder.busy or not recorder.sampled or not recorder.step:
            return
        if len(given) != 1 or not _plain(given[0]):
            return  # without a seed the system gives one
        place = users_place(3)
        if place is not None and ((place, repr(given[0])) in self.steps or len(self.steps) < LINES):
            self.steps.setdefault((place, repr(given[0])), set()).add(recorder.step)

    def again(self, least: int) -> Place | None:
        """A line that has given the same seed at so many steps."""
        return next((place for (place, _), steps in self.steps.items() if len(steps) >= least), None)


def _plain(seed: Any) -> bool:
    """A number, or a few of them: what can be written down at no cost."""
    if isinstance(seed, list | tuple):
        return len(seed) <= PARTS and all(isinstance(part, int) for part in seed)
    return isinstance(seed, int)


def _around(held: weakref.ref[Seeds], original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def seed(*args: Any, **kwargs: Any) -> Any:
        seeds = None if torch.compiler.is_compiling() else held()
        if seeds is not None:
            seeds.note(args, kwargs)
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            unframe(error)
            raise

    return seed
