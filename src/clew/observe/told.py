"""What a step of an environment gave back, taken apart: observation, reward, and how the episode stopped.

Most give a tuple in the order of gymnasium. Others have an order of their own, give a flag for all environments side by
side, keep the last observation of an episode beside the first of the next, or name the parts in a dict, a named tuple
or a dataclass. What has names is read by them. In a tuple of another order the parts are told by what they are: flags
are truth values, the reward is the one number for each flag, an observation is an array. Where that leaves a choice,
nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

MOST = 12
WORDS = {
    "reward": re.compile(r"^(step_)?(rewards?|rew|rews|r)$"),
    "terminated": re.compile(
        r"^(is_)?(terminated|terminations?|terminals?|term|dones?|d|over|game_over|finished|ended)$"
    ),
    "truncated": re.compile(r"^(is_)?(truncated|truncations?|trunc|timed?_?outs?|time_limit(_reached)?)$"),
    "observation": re.compile(r"^(next_|new_)?(obs|observations?|states?|s|x)(_next|_new)?$"),
    "final": re.compile(r"^(final|terminal|last)_(obs|observations?|states?)$"),
}


class Told(NamedTuple):
    """What a call of step gave back, taken apart."""

    observation: Any
    rewards: np.ndarray[Any, Any]
    terminated: np.ndarray[Any, Any]
    truncated: np.ndarray[Any, Any]
    flagged: bool  # the environment tells a true end from a limit
    info: Any
    other: Any = None  # a second observation: one of the two is the last of an episode, where the other begins the next


class Form(NamedTuple):
    """Where in a result the parts stand: places in a tuple, or names."""

    observation: Any
    reward: Any
    terminated: Any = None
    truncated: Any = None
    other: Any = None

    def part(self, name: str, result: Any) -> Any:
        where = getattr(self, name)
        if where is None:
            return None
        if isinstance(where, int):
            return result[where] if isinstance(result, tuple | list) and len(result) > where else None
        return named(result).get(where)


GYMNASIUM = Form(0, 1, 2, 3)


def told_by(result: Any, form: Form | None = None) -> Told | None:
    """A step's result taken apart; None for what no environment would give back."""
    if form is None:
        usual = in_usual_order(result)
        if usual is not None:
            return usual
        form = form_of(result)
    if form is None:
        return None
    if form == GYMNASIUM:
        return in_usual_order(result)
    rewards = numbers(form.part("reward", result))
    observation = form.part("observation", result)
    if rewards is None or as_array(observation) is None:
        return None
    ended, cut = flags(form.part("terminated", result)), flags(form.part("truncated", result))
    ended, cut = spread(ended, len(rewards)), spread(cut, len(rewards))
    if ended is None and form.terminated is not None:
        return None
    none = np.zeros(len(rewards), bool)
    both = form.terminated is not None and form.truncated is not None and cut is not None
    ended = none if ended is None else ended
    return Told(
        observation,
        rewards,
        ended,
        none if cut is None or not both else cut,
        both,
        info_in(result),
        form.part("other", result),
    )


def in_usual_order(result: Any) -> Told | None:
    """observation, reward, end, and perhaps a limit and more."""
    if not isinstance(result, tuple) or len(result) < 3 or isinstance(result[1], bool | np.bool_):
        return None
    rewards, seen, ended = numbers(result[1]), as_array(result[0]), flags(result[2])
    if rewards is None or seen is None or ended is None:
        return None
    if len(ended) != len(rewards) and (seen.ndim < 2 or len(seen) != len(rewards)):
        return None
    ended = spread(ended, len(rewards))
    if ended is None:
        return None
    info = next((held for held in result[3:] if isinstance(held, dict | list | tuple)), None)
    cut = spread(flags(result[3]), len(ended)) if len(result) > 3 else None
    if cut is not None:
        return Told(result[0], rewards, ended, cut, True, info)
    cut = limits(info, len(ended))
    if cut is not None:
        return Told(result[0], rewards, ended & ~cut, cut, True, info)
    return Told(result[0], rewards, ended, np.zeros_like(ended), False, info)


def form_of(result: Any, resets: bool = False) -> Form | None:
    """Where the parts of a result stand; None where it is no environment's or leaves a choice. What has a reset may do
    without a flag: its episodes end when whoever plays says so."""
    if in_usual_order(result) is not None:
        return GYMNASIUM
    if resets and _without_a_flag(result):
        return Form(0, 1)
    names = named(result)
    found = _by_names(names) if names else None
    if found is not None or not isinstance(result, tuple) or not 3 <= len(result) <= MOST:
        return found
    return _by_kind(result)


def _without_a_flag(result: Any) -> bool:
    """An observation and its reward, and perhaps notes."""
    if not isinstance(result, tuple) or not 2 <= len(result) <= 3 or not all(isinstance(e, dict) for e in result[2:]):
        return False
    seen, paid = as_array(result[0]), numbers(result[1])
    if seen is None or paid is None or truth(result[1]) or not np.ndim(_plain(result[0])) or grown(*result[:2]):
        return False
    return len(paid) == 1 if seen.ndim < 2 else len(paid) in (1, len(seen))


def _by_names(names: dict[str, Any]) -> Form | None:
    """The parts of what has names: a dict, a named tuple, a dataclass."""
    found = {part: next((name for name in names if word.search(name.lower())), None) for part, word in WORDS.items()}
    reward, observation = found["reward"], found["observation"]
    end = found["terminated"]
    if reward is None or observation is None or end is None or observation == reward:
        return None
    rewards = numbers(names[reward])
    if rewards is None or as_array(names[observation]) is None or grown(names[observation], names[reward]):
        return None
    if spread(flags(names[end]), len(rewards)) is None:
        return None
    cut = found["truncated"]
    if cut is not None and spread(flags(names[cut]), len(rewards)) is None:
        cut = None
    return Form(observation, reward, end, cut, found["final"])


def _by_kind(result: Sequence[Any]) -> Form | None:
    """The parts of a tuple of another order, by what they are."""
    ends = [at for at, held in enumerate(result) if truth(held)]
    if not 1 <= len(ends) <= 2:
        return None
    lanes = max(getattr(as_array(result[at]), "size", 1) for at in ends)
    arrays = {at: array for at, held in enumerate(result) if at not in ends and (array := as_array(held)) is not None}
    paying = [
        at for at, array in arrays.items() if array.ndim <= 1 and array.size == lanes and not _whole(array, lanes)
    ]
    if len(paying) > 1 and lanes == 1:
        paying = [at for at in paying if arrays[at].dtype.kind == "f" and arrays[at].size == np.size(result[at])]
        paying = [at for at in paying if np.ndim(_plain(result[at])) == 0]
    if len(paying) != 1 or not np.isfinite(arrays[paying[0]]).all():
        return None
    seen = [
        at
        for at, array in arrays.items()
        if at != paying[0] and np.ndim(_plain(result[at])) and (lanes == 1 or (array.ndim > 1 and len(array) == lanes))
    ]
    if not seen or grown(*(result[at] for at in (*seen, *paying))):
        return None
    other = next((at for at in seen[1:] if arrays[at].shape == arrays[seen[0]].shape), None)
    return Form(seen[0], paying[0], ends[0], ends[1] if len(ends) > 1 else None, other)


def _whole(array: np.ndarray[Any, Any], lanes: int) -> bool:
    """Whole numbers beside several environments are counts or states; a single one may be a score."""
    return lanes > 1 and array.dtype.kind != "f"


def _plain(value: Any) -> Any:
    return value if not hasattr(value, "detach") else as_array(value)


def grown(*parts: Any) -> bool:
    """Whether something has a gradient: then it came out of a network, and this is a step of training."""
    return any(bool(getattr(part, "requires_grad", False)) for part in parts)


# --- reading values


def named(result: Any) -> dict[str, Any]:
    """The parts of a result by name; nothing for what has no names."""
    if isinstance(result, dict):
        held = result
    elif isinstance(result, tuple):
        held = dict(zip(getattr(result, "_fields", ()), result, strict=False))
    elif hasattr(type(result), "__dataclass_fields__"):
        held = {name: getattr(result, name, None) for name in type(result).__dataclass_fields__}
    else:
        return {}
    return {name: part for name, part in held.items() if isinstance(name, str)} if len(held) <= MOST else {}


def info_in(result: Any) -> Any:
    parts = result if isinstance(result, tuple) else named(result).values()
    return next((held for held in parts if isinstance(held, dict)), None)


def as_array(value: Any) -> np.ndarray[Any, Any] | None:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()
    if isinstance(value, int | float):
        return np.array([value], np.float32)
    if not isinstance(value, np.ndarray | np.generic | list | tuple):
        return None
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        return None
    return array if array.dtype.kind in "fiub" else None


def numbers(value: Any) -> np.ndarray[Any, Any] | None:
    """One finite number for each environment; None for anything else."""
    array = as_array(value)
    if array is None or array.ndim > 1 or array.dtype.kind == "b" or not np.isfinite(array).all():
        return None
    return array.reshape(-1).astype(np.float64)


def truth(value: Any) -> bool:
    """Whether this is a truth value, or one for each environment."""
    if isinstance(value, bool | np.bool_):
        return True
    kind = getattr(value, "dtype", None)
    return kind is not None and str(kind).removeprefix("torch.") == "bool" and getattr(value, "ndim", 2) <= 1


def flags(value: Any) -> np.ndarray[Any, Any] | None:
    """Flags by lane; None for what is no flag."""
    if isinstance(value, bool | np.bool_):
        return np.array([bool(value)])
    if isinstance(value, int | float) and value in (0, 1):
        return np.array([bool(value)])
    array = as_array(value) if hasattr(value, "shape") else None
    if array is None or array.ndim > 1 or not (array.dtype.kind == "b" or np.isin(array, (0, 1)).all()):
        return None
    return array.reshape(-1).astype(bool)


def spread(held: np.ndarray[Any, Any] | None, lanes: int) -> np.ndarray[Any, Any] | None:
    """One flag for each environment: those that run side by side for a fixed time may have one for all."""
    if held is None or len(held) == lanes:
        return held
    return np.repeat(held, lanes) if len(held) == 1 else None


def limits(info: Any, lanes: int) -> np.ndarray[Any, Any] | None:
    """The older way to say that a time limit was reached."""
    held = [info] if isinstance(info, dict) and lanes == 1 else info
    if not isinstance(held, list | tuple) or len(held) != lanes or not all(isinstance(one, dict) for one in held):
        return None
    if not any("TimeLimit.truncated" in one for one in held):
        return None
    return np.array([bool(one.get("TimeLimit.truncated", False)) for one in held])


def taken(result: Any, form: Form) -> tuple[list[float], list[bool], list[bool]] | None:
    """Rewards, ends and limits by lane, at little cost; None where a result is not of that form."""
    reward = form.part("reward", result)
    ended = False if form.terminated is None else form.part("terminated", result)
    cut = form.part("truncated", result)
    if isinstance(reward, int | float | np.generic) and isinstance(ended, bool | np.bool_ | int):
        stopped = isinstance(cut, bool | np.bool_) and bool(cut)
        return [float(reward)], [bool(ended) or stopped], [stopped]
    if not hasattr(reward, "tolist") or getattr(reward, "is_cuda", False):
        return None  # to read a device at every step would make it wait
    rewards, ends = reward.tolist(), _listed(ended)
    if not isinstance(rewards, list):
        return [float(rewards)], [bool(ends[0]) if isinstance(ends, list) and ends else bool(ends)], [False]
    ends = ends if isinstance(ends, list) else [ends] * len(rewards)
    if len(ends) != len(rewards) or (rewards and isinstance(rewards[0], list)):
        return None
    cuts = _listed(cut)
    cuts = [cuts] * len(rewards) if isinstance(cuts, bool) else cuts
    if not isinstance(cuts, list) or len(cuts) != len(rewards) or not all(isinstance(each, bool) for each in cuts):
        cuts = [False] * len(rewards)
    return rewards, [bool(one or other) for one, other in zip(ends, cuts, strict=True)], cuts


def _listed(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
