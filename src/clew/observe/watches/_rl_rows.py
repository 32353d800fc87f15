"""Finding the rows of a value loss again among the steps of the environments, and losses written out by hand."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from clew.observe.watches._loss_graph import Key, bare, inputs, key, saved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from clew.observe.envs import Experience, Transition

    Floats = NDArray[np.float64]

SLIPS = 8
"""How many of the newest steps a rollout may lack: the learner may have acted once more since."""
FOUND = 0.6


def resolve(experience: Experience, keys: list[int], others: list[list[int]]) -> list[Transition | None]:
    """The step that each row stems from, None where it cannot be told."""
    found = in_order(experience, keys)
    return found if found is not None else out_of_order(experience, keys, others)


def out_of_order(experience: Experience, keys: list[int], others: list[list[int]]) -> list[Transition | None]:
    """Rows one by one. `others` are observations that other calls of the same size were made on: those that followed
    may be among them, which tells steps from one state apart."""
    for following in reversed(others):
        if following != keys and len(following) == len(keys):
            paired = [pair(experience, one, then) for one, then in zip(keys, following, strict=True)]
            if sum(step is not None for step in paired) >= FOUND * len(keys):
                return paired
    return [only(experience.by_key.get(mark, [])) for mark in keys]


def in_order(experience: Experience, keys: list[int]) -> list[Transition | None] | None:
    """A rollout in the order in which it was gathered, or one environment after the other."""
    if len(keys) < 2 or len(experience.kept) < len(keys):
        return None
    for slip in range(min(SLIPS, len(experience.kept) - len(keys)) + 1):
        start = len(experience.kept) - len(keys) - slip
        held = list(islice(experience.kept, start, start + len(keys)))
        if all(mark in (step.key, step.seen) for mark, step in zip(keys, held, strict=True)):
            return list(held)
        if not slip and any(step.lane != held[0].lane for step in held):
            held.sort(key=lambda step: (step.lane, step.number))
            if all(mark in (step.key, step.seen) for mark, step in zip(keys, held, strict=True)):
                return list(held)
    return None


def pair(experience: Experience, one: int, then: int) -> Transition | None:
    steps = experience.by_key.get(one, [])
    own = [step for step in steps if step.next_key == then]
    if own:
        return only(own)
    # What began the next episode may have been kept in the place of what ended this one.
    ended = [step for step in steps if step.terminated or step.truncated]
    return only([step for step in ended if acted_on_next(experience, step) == then])


def acted_on_next(experience: Experience, step: Transition) -> int | None:
    """The observation that was acted on next."""
    following = experience.following(step)
    return None if following is None else following.key if following.key is not None else following.seen


def only(steps: list[Transition]) -> Transition | None:
    """The step that is meant: the one there is, or any of several that were alike in all that matters here."""
    if not steps:
        return None
    if len({(step.reward, step.terminated, step.truncated, step.next_key) for step in steps[-64:]}) > 1:
        return None
    return steps[-1]


class Squared(NamedTuple):
    """The square of a difference on the way to a loss. `sign` is 1 where the network's side came first."""

    node: Any
    difference: Floats
    sign: float
    chosen: NDArray[np.int64] | None  # the action whose value was taken

    def values(self, calls: list[Any]) -> Floats | None:
        """What the network gave, row by row."""
        count = len(self.difference)
        for call in reversed(calls):
            for values in call.outputs:
                if call.rows == count and values.shape[1] == 1:
                    return np.asarray(values[:, 0])
                chosen = self.chosen
                if call.rows == count and chosen is not None and len(chosen) == count and chosen.max() < len(values.T):
                    return np.asarray(values[np.arange(count), chosen])
        if calls and sum(call.rows for call in calls) == count:
            parts = [call.outputs[-1][:, 0] for call in calls if call.outputs and call.outputs[-1].shape[1] == 1]
            return np.concatenate(parts) if len(parts) == len(calls) else None
        return None


def squares(root: Any, known: dict[Key, Any], most: int) -> Iterator[Squared]:
    """Squares of differences in the graph of a loss, above the networks' own calls."""
    waiting: list[Any] = [root]
    seen: set[Key] = set()
    while waiting and len(seen) < most:
        node = waiting.pop()
        mark = key(node)
        if mark in seen or mark in known:
            continue
        seen.add(mark)
        found = _squared(node, known, most)
        if found is not None:
            yield found
        else:
            waiting += inputs(node)


def _squared(node: Any, known: dict[Key, Any], most: int) -> Squared | None:
    fed, name = inputs(node), bare(node)
    twice = name == "Mul" and len(fed) == 2 and key(fed[0]) == key(fed[1])
    if not fed or not (twice or (name == "Pow" and getattr(node, "_saved_exponent", 0) == 2)):
        return None
    base = saved(node, "self")
    operands = _difference(fed[0])
    if base is None or operands is None or not 0 < base.numel() <= most:
        return None
    first = operands[0] is not None and reaches(operands[0], known)
    second = operands[1] is not None and reaches(operands[1], known)
    if first == second:
        return None
    side = operands[0] if first else operands[1]
    with torch.no_grad():
        values = base.detach().to("cpu", torch.float64).reshape(-1).numpy()
    return Squared(side, values, 1.0 if first else -1.0, gathered(side))


def _difference(node: Any) -> tuple[Any, Any] | None:
    while bare(node) in ("View", "ReshapeAlias", "Squeeze", "Unsqueeze", "Clone", "Neg") and len(inputs(node)) == 1:
        node = inputs(node)[0]
    if bare(node) != "Sub" or len(node.next_functions) != 2:
        return None
    return node.next_functions[0][0], node.next_functions[1][0]


def reaches(node: Any, known: dict[Key, Any], most: int = 256) -> bool:
    waiting: list[Any] = [node]
    seen: set[Key] = set()
    while waiting and len(seen) < most:
        node = waiting.pop()
        mark = key(node)
        if mark in known:
            return True
        if mark not in seen:
            seen.add(mark)
            waiting += inputs(node)
    return False


def gathered(node: Any) -> NDArray[np.int64] | None:
    """Which action's value was taken from each row."""
    for _ in range(8):
        if bare(node) == "Gather":
            index = saved(node, "index")
            return None if index is None else np.asarray(index.detach().to("cpu", torch.int64).reshape(-1).numpy())
        fed = inputs(node)
        if len(fed) != 1:
            return None
        node = fed[0]
    return None
