"""What wrappers around an environment make of its reward: whether a constant reward arrives with another sign, moved by
something that changes slowly and has nothing to do with the state, as the mean of a normaliser does; whether the mean
was taken off rewards that vary; and whether every reward of an environment that comes with a library arrives with its
sign turned round."""

from __future__ import annotations

import inspect
import sys
from collections import deque
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from clew.observe.places import is_users, users_code

STEPS = 200
OPPOSITE = 0.8
STEADY, HARDLY = 0.95, 0.05
"""In so many steps the reward that arrives lies so near to the one before, as a share of it."""
MOVES = 0.02
ALIKE = 0.01
"""How far factors of one sign change may lie apart, as a share of the factor."""
WINDOW = 200
LINE = 0.1
"""How far rewards that arrive may lie from a line through those that were paid, as a share of their deviation."""
OFF, ABOUT = 0.3, 0.2
"""How far what is taken off lies from zero at least, and from the mean of the whole run at most, in deviations."""


class Centred(NamedTuple):
    """What arrives is `factor` times what was paid less `taken`, which is near the mean `paid`."""

    factor: float
    paid: float
    taken: float
    steps: int


class Paid:
    """Steps whose innermost reward is always the same, beside what the script was given for them."""

    def __init__(self) -> None:
        self.reward: float | None = None  # what the innermost environment pays for every step so far
        self.varied = False
        self.steps = self.opposite = self.steady = 0
        self.last: float | None = None
        self.low, self.high = np.inf, -np.inf
        self.wrapper: type | None = None
        self.paying = 0
        self.factors = [np.inf, -np.inf]
        self.by: CodeType | None = None
        self.pairs: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        self.sums = np.zeros(2)  # of what was paid, and of its square
        self.count = 0
        self.on_its_way: CodeType | None = None

    def note(self, env: Any, inner: np.ndarray[Any, Any], given: np.ndarray[Any, Any]) -> None:
        if inner.shape != given.shape or not inner.size:
            return
        self._held_against(env, inner, given)
        self._summed(env, float(inner.flat[0]), float(given.flat[0]))
        if self.varied:
            return
        reward = float(inner.flat[0])
        if bool((inner != reward).any()) or (self.reward is not None and reward != self.reward) or not reward:
            self.varied = True
            return
        self.reward, self.wrapper = reward, type(env)
        arrived = float(given.flat[0])
        alike = bool((np.abs(given - arrived) <= HARDLY * abs(arrived)).all())
        near = self.last is None or abs(arrived - self.last) <= HARDLY * abs(self.last)
        self.steps += 1
        self.opposite += arrived * reward < 0
        self.steady += alike and near
        self.low, self.high = min(self.low, arrived), max(self.high, arrived)
        self.last = arrived

    def _held_against(self, env: Any, inner: np.ndarray[Any, Any], given: np.ndarray[Any, Any]) -> None:
        pays = inner != 0
        if not bool(pays.any()):
            return
        factors = given[pays] / inner[pays]
        self.factors = [min(self.factors[0], float(factors.min())), max(self.factors[1], float(factors.max()))]
        if not self.paying:
            self.by = _made_by(env) if _of_a_library(env) else None
        self.paying += 1

    def _summed(self, env: Any, paid: float, given: float) -> None:
        if not self.count:
            self.on_its_way = _made_by(env)
        self.count += 1
        self.sums += (paid, paid * paid)
        self.pairs.append((paid, given))

    @property
    def centred(self) -> Centred | None:
        """Rewards that vary and arrive less their mean, by a line of the user's: over the latest steps what arrives is
        a line of what was paid, and crosses zero at its mean."""
        if self.on_its_way is None or self.count < 2 * WINDOW:
            return None
        mean, square = self.sums / self.count
        spread = np.sqrt(max(square - mean**2, 0.0))
        paid, given = np.array(self.pairs).T
        if not paid.std() > 0 or not given.std() > 0:
            return None
        factor, offset = np.polyfit(paid, given, 1)
        left = given - offset - factor * paid
        if factor <= 0 or left.std() > LINE * given.std():
            return None
        taken = -offset / factor
        if abs(taken) < OFF * spread or abs(taken - mean) > ABOUT * spread:
            return None
        return Centred(float(factor), float(mean), float(taken), self.count)

    @property
    def negated(self) -> bool:
        """Whether every reward of a library's environment arrives times one negative number, by a line of the user."""
        low, high = self.factors
        return self.by is not None and self.paying >= STEPS and high < 0 and high - low <= ALIKE * abs(low)

    @property
    def turned(self) -> bool:
        """Whether a reward that is always the same arrives with the other sign, and not by a constant factor."""
        if self.varied or self.steps < STEPS or self.last is None:
            return False
        moves = self.high - self.low > MOVES * abs(self.last)
        return moves and self.opposite > OPPOSITE * self.steps and self.steady > STEADY * self.steps


def _innermost(env: Any) -> Any:
    several = getattr(env, "envs", None)
    env = several[0] if isinstance(several, list | tuple) and several else env
    return getattr(env, "unwrapped", env)


def _of_a_library(env: Any) -> bool:
    """What an environment of one's own pays may be a cost; that of a library is a reward."""
    file = getattr(sys.modules.get(type(_innermost(env)).__module__), "__file__", None)
    return file is not None and not is_users(file)


def _made_by(env: Any) -> CodeType | None:
    """The user's function that makes the reward on its way out: a method of a wrapper, or what a wrapper was given."""
    several = getattr(env, "envs", None)
    held = several[0] if isinstance(several, list | tuple) and several else env
    for _ in range(20):
        for name in ("reward", "step"):
            made = getattr(type(held), name, None)
            code = users_code(inspect.unwrap(made)) if made is not None else None  # clew stands around it
            if code is not None:
                return code
        given = next((vars(held)[name] for name in ("func", "f") if name in getattr(held, "__dict__", {})), None)
        code = users_code(given)
        if code is not None:
            return code
        inner = getattr(held, "__dict__", {}).get("env")
        if inner is None:
            return None
        held = inner
    return None
