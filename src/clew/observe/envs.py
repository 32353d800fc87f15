"""Notes what environments give out: observation, action, reward and how an episode stopped.

Only the outermost environment is followed: what a wrapper or a vector environment calls inside itself is part of its
step. Environments of gymnasium, gym and stable-baselines3 are found by their base classes, one that the script wrote
itself by a method `step` that takes an action and gives back an observation, a reward and a flag, or by a function of
that name which takes a state and an action.

Observations are kept as the hash of their 32-bit values: enough to know one again when it enters a network.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from itertools import islice
from types import FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from clew.observe.episodes import Episodes
from clew.observe.guard import release
from clew.observe.paid import Paid
from clew.observe.patches import HIDDEN, Patches, unframe
from clew.observe.places import is_users, users_place
from clew.observe.told import Form, Told, as_array, form_of, told_by

KEPT = 20_000
DENSE = 5_000
"""Environment steps that are all looked at. Later ones are only counted, except while the learner is sampled."""
COLUMNS = 4096
TRIES = 3
STEPS = ("step", "step_env", "env_step", "batch_step", "step_batch", "transition", "take_action", "perform_action")
ACTION = re.compile(r"^(a|u|act|acts|actions?|moves?|controls?|choices?)(_|$)")
FRAMES, VALUES, FUNCTIONS = 24, 400, 16
UNKNOWN = -(10**12)
"""Length so far of an episode whose beginning was not seen."""
BASES = (
    ("gymnasium.core", "Env"),
    ("gymnasium.vector.vector_env", "VectorEnv"),
    ("gym.core", "Env"),
    ("gym.vector.vector_env", "VectorEnv"),
    ("stable_baselines3.common.vec_env.base_vec_env", "VecEnv"),
)
_inside = threading.local()
_of: weakref.WeakKeyDictionary[Any, Experience] = weakref.WeakKeyDictionary()


Keys = list[int | None]


class Transition(NamedTuple):
    """One step of one environment. `seen` is what a network was given for the observation, where that was looked at."""

    lane: int  # one of several environments side by side has a lane of its own
    number: int  # within its lane
    key: int | None
    seen: int | None
    next_key: int | None
    reward: float
    action: int | None  # of a discrete choice
    terminated: bool
    truncated: bool
    flagged: bool  # the environment tells the two apart
    idle: bool  # a step that only started the next episode: its action had no effect


class Side(NamedTuple):
    """The state of one environment object between two steps."""

    first_lane: int
    keys: list[int | None]  # the observations to act on, by lane
    ended: list[bool]
    lengths: list[int]
    steps: int = 0


def afresh(held: Side | None) -> Side | None:
    """After a reset in the middle of an episode a number is left out: what follows is no step of the same episode."""
    return held if held is None or any(held.ended) else held._replace(steps=held.steps + 1)


class Experience:
    """What all environments of a process have shown so far. One per recorder."""

    def __init__(self, recorder: Any) -> None:
        self.recorder = weakref.ref(recorder)
        self.steps = 0
        self.episodes = Episodes()
        self.paid = Paid()
        self.lanes = 0
        self.counts: dict[int, int] = {}  # how many step together, by environment that is passed over
        self.sides: weakref.WeakKeyDictionary[Any, Side] = weakref.WeakKeyDictionary()
        self.kept: deque[Transition] = deque()
        self.by_key: dict[int, list[Transition]] = {}
        self.by_next: dict[int, list[Transition]] = {}
        self.by_number: dict[tuple[int, int], Transition] = {}
        self.since = -1  # updates of networks before the newest steps
        self.gathered = 0  # steps made since; none where some of them were not looked at
        self.lengths: set[int] = set()  # of ended episodes, the first few different ones
        self.terminated = self.truncated = 0
        self.flagged = False  # an environment said of an end that it was no mere limit
        self.overwritten = 0  # steps that wrote into the observation that was given out before
        self.handed: weakref.WeakKeyDictionary[Any, tuple[Any, int]] = weakref.WeakKeyDictionary()
        self.writer: type | None = None  # the environment that did
        self.begins: dict[type, bool] = {}  # of two observations: whether the first is the one that is acted on next
        self.undecided: weakref.WeakKeyDictionary[Any, tuple[Keys, Keys]] = weakref.WeakKeyDictionary()
        self.width = 0  # values in one observation
        self.given: tuple[list[int], int] | None = None  # rows and width of what a network saw last
        self.asked: Any = None  # the last call of a network since the last step
        self.choices: Any = None  # who chose the actions, where a study follows that
        self.place: Any = None
        self.followed: set[tuple[type, str]] = set()
        self.functions: set[tuple[str, str]] = set()

    @property
    def active(self) -> bool:
        return bool(self.steps or len(self.sides))

    # --- what networks are given

    def network_saw(self, keys: list[int], width: int) -> None:
        """A network was given these rows; the last of the right form before a step are what was acted on."""
        if width == self.width or self.given is None:
            self.given = (keys, width)

    # --- what environments give

    def passed_over(self, env: Any, reset: bool) -> None:
        """A call that is only counted; the next one that is looked at begins afresh."""
        if len(self.sides):
            held = self.sides.pop(env, None)
            if held is not None:
                self.counts[id(env)] = len(held.keys)
            self.given = None
        if not reset:
            self.since, self.gathered = -1, 0
            self.steps += self.counts.get(id(env), 1)

    def began(self, env: Any, result: Any) -> None:
        observation = result[0] if isinstance(result, tuple) and len(result) == 2 else result
        held = self.sides.get(env)
        lanes = int(getattr(env, "num_envs", 0) or 1) if held is None else len(held.keys)
        keys, width = keys_of(observation, lanes)
        self.width = width or self.width
        self.sides[env] = self._side(afresh(held), keys, [False] * lanes, [0] * lanes)
        self._hand_out(env, observation, lanes)

    def acts_on(self, env: Any, args: tuple[Any, ...], told: Told) -> None:
        """A function is given the state that it acts on: one that it did not give back last begins something new."""
        held = self.sides.get(env)
        lanes = len(told.rewards)
        width = keys_of(told.observation, lanes)[1]
        states = [keys_of(each, lanes) for each in args if not isinstance(each, int | float)]
        states = [each for each in states if width and each[1] == width]
        if len(states) != 1:
            return
        keys, self.width = states[0]
        if held is None or len(held.keys) != lanes:
            self.sides[env] = self._side(None, keys, [False] * lanes, [0] * lanes)
        elif held.keys != keys:
            kept = [one == other for one, other in zip(held.keys, keys, strict=True)]
            lengths = [length if same else 0 for length, same in zip(held.lengths, kept, strict=True)]
            self.sides[env] = self._side(held if any(kept) else afresh(held), keys, [False] * lanes, lengths)

    def _side(self, held: Side | None, keys: list[int | None], ended: list[bool], lengths: list[int]) -> Side:
        if held is not None and len(held.keys) == len(keys):
            return Side(held.first_lane, keys, ended, lengths, held.steps)
        self.lanes += len(keys)
        return Side(self.lanes - len(keys), keys, ended, lengths)

    def stepped(self, env: Any, action: Any, told: Told) -> None:
        lanes = len(told.rewards)
        self.steps += lanes
        recorder = self.recorder()
        if recorder is not None and recorder.step != self.since:
            self.since, self.gathered = recorder.step, 0
        self.gathered += lanes
        if self.place is None:
            self.place = users_place(3)
        held = self.sides.get(env)
        if held is None or len(held.keys) != lanes:
            held = self._side(None, [None] * lanes, [False] * lanes, [UNKNOWN] * lanes)
        keys, width = keys_of(told.observation, lanes)
        self.width = width or self.width
        if self._hand_out(env, told.observation, lanes) and keys != held.keys:
            self.overwritten += 1
            self.writer = type(getattr(env, "unwrapped", env))
        seen: list[int | None] = [None] * lanes
        if self.given is not None and len(self.given[0]) == lanes:
            seen = list(self.given[0])
        self.given = None
        actions = actions_of(action, lanes)
        self._chosen(env, held, actions)
        again = restarts_at_next_step(env) and lanes == len(held.keys)
        ends = (told.terminated | told.truncated).tolist()
        after, following = keys, keys
        if told.other is not None:
            after, following = self._two(env, keys, keys_of(told.other, lanes)[0], seen, ends)
        elif not restarts_at_once(env):
            following = [None if end else mark for end, mark in zip(ends, keys, strict=True)]
        for lane in range(lanes):
            self._keep(env, held, lane, again, after[lane], seen[lane], actions[lane], told)
        lengths = [0 if end else length + 1 for end, length in zip(ends, held.lengths, strict=True)]
        self.sides[env] = Side(held.first_lane, following, ends, lengths, held.steps + 1)

    def _two(self, env: Any, first: Keys, second: Keys, seen: Keys, ends: list[bool]) -> tuple[Keys, Keys]:
        """Of two observations by lane: what the step led to, and what is acted on next. The two differ where an
        episode ended, and what the network is asked about then tells which is which."""
        kind = type(env)
        for one, other, asked in zip(*self.undecided.pop(env, ([], [])), seen, strict=False):
            if kind not in self.begins and one != other and asked in (one, other):
                self.begins[kind] = asked == one
        if kind in self.begins:
            return (second, first) if self.begins[kind] else (first, second)
        self.undecided[env] = first, second
        known = [None if end else mark for end, mark in zip(ends, first, strict=True)]
        return known, known

    def _hand_out(self, env: Any, observation: Any, lanes: int) -> bool:
        """Whether the memory of this observation is that of the one before, which somebody may have kept."""
        if lanes > 1 or not isinstance(observation, np.ndarray):
            return False
        owner, at = observation, observation.ctypes.data
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        before = self.handed.get(env)
        self.handed[env] = weakref.ref(owner), at
        return before is not None and before[0]() is owner and before[1] == at

    def _chosen(self, env: Any, held: Side, actions: list[int | None]) -> None:
        recorder, asked = self.recorder(), self.asked
        self.asked = None
        if recorder is not None and recorder.sampled and self.choices is not None:
            self.choices.note(id(env), recorder.step, held.keys, actions, asked)
            self.choices.look_for_rates()

    def _keep(
        self,
        env: Any,
        held: Side,
        lane: int,
        again: bool,
        key: int | None,
        seen: int | None,
        action: int | None,
        told: Told,
    ) -> None:
        terminated, truncated = bool(told.terminated[lane]), bool(told.truncated[lane])
        if terminated or truncated:
            self.terminated += terminated
            self.truncated += truncated
            self.flagged = self.flagged or (terminated and told.flagged)
            if len(self.lengths) < 64 and held.lengths[lane] >= 0:
                self.lengths.add(held.lengths[lane] + 1)
            if told.other is None and restarts_at_once(env):
                key = final_key(told.info, lane)
        found = Transition(
            held.first_lane + lane,
            held.steps,
            held.keys[lane],
            seen,
            key,
            float(told.rewards[lane]),
            action,
            terminated,
            truncated and not terminated,
            told.flagged,
            again and held.ended[lane],
        )
        self.kept.append(found)
        self._index(found)
        if len(self.kept) > KEPT:
            self._forget()

    def _index(self, found: Transition) -> None:
        self.by_number[found.lane, found.number] = found
        for mark in {found.key, found.seen}:
            if mark is not None:
                self.by_key.setdefault(mark, []).append(found)
        if found.next_key is not None:
            self.by_next.setdefault(found.next_key, []).append(found)

    def _forget(self) -> None:
        while len(self.kept) > KEPT // 2:
            self.kept.popleft()
        self.by_number, self.by_key, self.by_next = {}, {}, {}
        for held in self.kept:
            self._index(held)

    # --- questions

    def knows(self, key: int) -> bool:
        return key in self.by_key or key in self.by_next

    def rollout(self) -> list[Transition]:
        """The steps that were made since the last update of a network, where all of them were looked at."""
        if not 0 < self.gathered <= len(self.kept):
            return []
        return list(islice(self.kept, len(self.kept) - self.gathered, None))

    def following(self, held: Transition) -> Transition | None:
        """The step that the same environment made next."""
        return self.by_number.get((held.lane, held.number + 1))


# --- reading values


def keys_of(observation: Any, lanes: int) -> tuple[list[int | None], int]:
    """One hash for each row, and how many values a row has; nothing for what is no array."""
    array = as_array(observation)
    if array is None or array.size == 0 or array.size % lanes:
        return [None] * lanes, 0
    rows = array.reshape(lanes, -1)
    return hashes(rows), rows.shape[1]


def hashes(rows: np.ndarray[Any, Any]) -> list[int | None]:
    thin = -(-rows.shape[1] // COLUMNS)
    values = np.ascontiguousarray(rows[:, ::thin], dtype=np.float32) + np.float32(0)  # one zero, not two
    return [hash(row.tobytes()) for row in values]


def actions_of(action: Any, lanes: int) -> list[int | None]:
    if lanes == 1 and type(action) is int:
        return [action]
    array = as_array(action)
    if array is None or array.size != lanes or array.dtype.kind not in "iu":
        return [None] * lanes
    return [int(one) for one in array.reshape(-1)]


def final_key(info: Any, lane: int) -> int | None:
    """The observation before the reset, where a vector environment keeps it."""
    found: Any = None
    if isinstance(info, dict):
        held = info.get("final_obs", info.get("final_observation"))
        found = held[lane] if held is not None and len(held) > lane else None
    elif isinstance(info, list | tuple) and len(info) > lane and isinstance(info[lane], dict):
        found = info[lane].get("terminal_observation")
    return None if found is None else keys_of(found, 1)[0][0]


def restarts_at_once(env: Any) -> bool:
    """Whether an ended episode is followed at once by the first observation of the next, in the same result."""
    if not hasattr(env, "num_envs"):
        return False
    mode = _autoreset(env)
    return mode is None or "SAME" in mode


def restarts_at_next_step(env: Any) -> bool:
    mode = _autoreset(env) if hasattr(env, "num_envs") else None
    return mode is not None and "NEXT" in mode


def _autoreset(env: Any) -> str | None:
    held = getattr(env, "metadata", None)
    mode = held.get("autoreset_mode") if isinstance(held, dict) else None
    return None if mode is None else str(getattr(mode, "name", mode))


# --- finding environments


def experience_of(recorder: Any) -> Experience:
    """The experience of this recorder."""
    held = _of.get(recorder)
    if held is None:
        held = _of[recorder] = Experience(recorder)
    return held


def patches_of(recorder: Any) -> Patches | None:
    """Where replacements for this recorder are kept, so that they go when it does."""
    from clew.observe import hooks

    return next((held.patches for held in list(hooks._installed) if held.recorder is recorder), None)


def find_environments(experience: Experience, patches: Patches) -> None:
    """Look for classes of environments that are there by now."""
    for name, base in BASES:
        kind = getattr(sys.modules.get(name), base, None)
        if isinstance(kind, type):
            for each in below(kind):
                _follow(each, experience, patches)
    for module in list(sys.modules.values()):
        if type(module) is ModuleType and is_users(str(vars(module).get("__file__") or "<none>")):
            for name, each in list(vars(module).items()):
                if isinstance(each, type) and each.__module__ == module.__name__ and _may_be_one(each):
                    _follow(each, experience, patches)
                elif name in STEPS and isinstance(each, FunctionType) and is_users(each.__code__.co_filename):
                    _follow_function(module, name, each, experience, patches)
    for each in _made_inside():
        if _may_be_one(each):
            _follow(each, experience, patches)


def _made_inside() -> Iterator[type]:
    """Classes of the script's own that were made inside a function, by what functions that are running hold."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(FRAMES):
        if frame is None:
            return
        if is_users(frame.f_code.co_filename):
            for value in list(frame.f_locals.values())[:VALUES]:
                kind = value if isinstance(value, type) else type(value)
                if "<locals>" in kind.__qualname__:
                    yield kind
        frame = frame.f_back


def below(kind: type) -> Iterator[type]:
    waiting: list[type] = [kind]
    known: set[type] = set()
    while waiting:
        each = waiting.pop()
        if each not in known:
            known.add(each)
            yield each
            waiting += type.__subclasses__(each)


def _may_be_one(kind: type) -> bool:
    """A class of the script's own with `step(action)`, which is no module, optimiser or scheduler."""
    found = [held for name in STEPS if isinstance(held := vars(kind).get(name), FunctionType)]
    if not any(step.__code__.co_argcount >= 2 for step in found):
        return False
    return not any(base.__module__.split(".")[0] in ("torch", "pytorch_lightning", "lightning") for base in kind.mro())


def _follow(kind: type, experience: Experience, patches: Patches) -> None:
    for name in (*STEPS, "reset"):
        if isinstance(vars(kind).get(name), FunctionType) and (kind, name) not in experience.followed:
            experience.followed.add((kind, name))
            patches.replace(kind, name, functools.partial(_around, weakref.ref(experience), name == "reset"))


def _follow_function(
    module: ModuleType, name: str, function: FunctionType, experience: Experience, patches: Patches
) -> None:
    """An environment that is a function of a state and an action, by whatever module it is called from."""
    if function.__code__.co_filename == HIDDEN or function.__code__.co_argcount < 2:
        return
    if (module.__name__, name) not in experience.functions and len(experience.functions) < FUNCTIONS:
        experience.functions.add((module.__name__, name))
        patches.replace(module, name, functools.partial(_around_function, weakref.ref(experience)))


class Shape:
    """How the results of one `step` are read. One whose results cannot be read several times is left alone."""

    def __init__(self, original: Any, first: int) -> None:
        self.form: Form | None = None
        self.strange = 0
        code = getattr(inspect.unwrap(original), "__code__", None)
        names = code.co_varnames[: code.co_argcount] if code is not None else ()
        acts = [at for at, name in enumerate(names) if ACTION.search(name)]
        self.names = names
        self.action = acts[0] if acts else first

    def action_in(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.action < len(args):
            return args[self.action]
        name = self.names[self.action] if self.action < len(self.names) else ""
        return kwargs[name] if name in kwargs else next(iter(kwargs.values()), None)


def _around(held: weakref.ref[Experience], reset: bool, original: Any) -> Any:
    shape = Shape(original, 1)

    def wrapper(env: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(_inside, "depth", 0) or shape.strange >= TRIES:
            result = original(env, *args, **kwargs)
            if not reset and getattr(_inside, "paid", None) is None:
                _inside.paid = result  # of the innermost environment, which returns first
            return result
        _inside.depth = 1
        _inside.paid = None
        try:
            result = original(env, *args, **kwargs)
        except BaseException as error:
            unframe(error)
            raise
        finally:
            _inside.depth = 0
        experience = held()
        if experience is not None:
            _tell(experience, shape, reset, env, (env, *args), kwargs, result)
        return result

    return wrapper


def _around_function(held: weakref.ref[Experience], original: Any) -> Any:
    shape = Shape(original, 1)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        experience = held()
        if experience is not None and not getattr(_inside, "depth", 0) and shape.strange < TRIES:
            _tell(experience, shape, False, original, args, kwargs, result)
        return result

    return wrapper


def _tell(
    experience: Experience, shape: Shape, reset: bool, env: Any, args: tuple[Any, ...], kwargs: Any, result: Any
) -> None:
    recorder = experience.recorder()
    if recorder is None or recorder.busy or recorder.pid != os.getpid():
        return
    try:
        if reset:
            experience.episodes.began(env)
        elif shape.form is not None:
            experience.episodes.stepped(env, recorder.step, result, shape.form)
        if not (recorder.sampled or experience.steps < DENSE):
            experience.passed_over(env, reset)
            return
        with recorder.quietly():
            if reset:
                if result is not None:
                    experience.began(env, result)
                return
            if shape.form is None:
                shape.form = form_of(result, resets=hasattr(env, "reset"))
                if shape.form is not None:
                    experience.episodes.stepped(env, recorder.step, result, shape.form)
            told = None if shape.form is None else told_by(result, shape.form)
            if told is None:
                shape.strange += 1
                return
            shape.strange = 0
            inner = told_by(_inside.paid) if getattr(_inside, "paid", None) is not None else None
            _inside.paid = None
            if inner is not None:
                # Of several environments side by side the first one is the first to return.
                given = told.rewards[:1] if inner.rewards.size == 1 else told.rewards
                experience.paid.note(env, inner.rewards, given)
            if isinstance(env, FunctionType):
                experience.acts_on(env, args, told)
            experience.stepped(env, shape.action_in(args, kwargs), told)
    except BaseException as error:  # noqa: BLE001  # the script comes first: what cannot be read is not followed
        release(error)
        shape.strange += 1
