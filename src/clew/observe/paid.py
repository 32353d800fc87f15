"""What wrappers around an environment make of its reward: whether a constant reward arrives with another sign, moved by
something that changes slowly and has nothing to do with the state, as the mean of a normaliser does."""

from __future__ import annotations

from typing import Any

import numpy as np

STEPS = 200
OPPOSITE = 0.8
STEADY, HARDLY = 0.95, 0.05
"""In so many steps the reward that arrives lies so near to the one before, as a share of it."""
MOVES = 0.02


class Paid:
    """Steps whose innermost reward is always the same, beside what the script was given for them."""

    def __init__(self) -> None:
        self.reward: float | None = None  # what the innermost environment pays for every step so far
        self.varied = False
        self.steps = self.opposite = self.steady = 0
        self.last: float | None = None
        self.low, self.high = np.inf, -np.inf
        self.wrapper: type | None = None

    def note(self, env: Any, inner: np.ndarray[Any, Any], given: np.ndarray[Any, Any]) -> None:
        if self.varied or inner.shape != given.shape or not inner.size:
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

    @property
    def turned(self) -> bool:
        """Whether a reward that is always the same arrives with the other sign, and not by a constant factor."""
        if self.varied or self.steps < STEPS or self.last is None:
            return False
        moves = self.high - self.low > MOVES * abs(self.last)
        return moves and self.opposite > OPPOSITE * self.steps and self.steady > STEADY * self.steps
