"""How far updates move a policy, from its distributions at the same observations before and after.

Three looks: an update that asks for actions again after it has stepped; an observation that comes again after one step;
and the entropy of all that is acted on, from one step to the next. The last is a rough bound, and counts only where the
policy is nearly random before one update and nearly decided after it.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Any

import torch

KEPT = 40_000
ROWS = 4096
PAIRS = 8
NEAR = 4
"""Steps of all optimisers that one update of the policy may take, where a critic has an optimiser of its own."""
RANDOM, DECIDED = 0.7, 0.15


class Moves:
    def __init__(self) -> None:
        self.held: dict[int, tuple[int, torch.Tensor]] = {}  # step and log-probabilities of all actions, by observation
        self.found: deque[float] = deque(maxlen=400)  # KL(old, new), a mean over a batch each
        self.modal = self.rows = 0  # actions of updates: those that were the likeliest, and all
        self.expected = 0.0  # how many of them would be, had they been drawn
        self._pairs: list[float] = []
        self._step = -1

    def acted(self, step: int, keys: list[int], logs: torch.Tensor) -> None:
        """Actions are being drawn for these observations."""
        if step != self._step:
            self.close()
            self._step = step
        for mark, now in zip(keys, logs, strict=True):
            before = self.held.get(mark)
            if before is not None and before[0] == step - 1 and len(self._pairs) < ROWS:
                self._pairs.append(divergence(before[1], now))
            self.held[mark] = step, now
        if len(self.held) > KEPT:
            self.held.clear()

    def close(self) -> None:
        if len(self._pairs) >= PAIRS:
            self.found.append(sum(self._pairs) / len(self._pairs))
        self._pairs = []

    def asked_again(self, step: int, keys: list[int], logs: torch.Tensor) -> None:
        """An update asks for the distributions of observations that were acted on, after a step was made."""
        if len(set(keys)) < len(keys):
            return
        pairs = [(self.held[mark], now) for mark, now in zip(keys, logs, strict=True) if mark in self.held]
        moved = [divergence(before, now) for (when, before), now in pairs if when < step]
        if len(moved) >= max(PAIRS, 0.9 * len(keys)):
            self.found.append(sum(moved) / len(moved))

    def chosen(self, logs: torch.Tensor, actions: torch.Tensor) -> None:
        """The actions that an update is about, beside the distributions that should have drawn them."""
        best = logs.max(-1)
        taken = logs.gather(-1, actions.reshape(-1, 1)).squeeze(-1)
        self.rows += len(logs)
        self.modal += int((taken >= best.values - 1e-6).sum())
        self.expected += float(best.values.exp().sum())


def jump(entropies: Any) -> tuple[float, float] | None:
    """Shares of the largest entropy before and after one update, where that took it from nearly all to nearly none."""
    by_step: dict[int, list[float]] = {}
    for step, share in entropies:
        by_step.setdefault(step, []).append(share)
    means = sorted((step, sum(shares) / len(shares)) for step, shares in by_step.items())
    found = [
        (before, after)
        for (first, before), (then, after) in pairwise(means)
        if then - first <= NEAR and before > RANDOM and after < DECIDED
    ]
    return max(found, key=lambda pair: pair[0] - pair[1], default=None)


def given_as(distribution: Any) -> tuple[torch.Tensor, bool] | None:
    """What a choice among several actions was made of, and whether that is logits. Of the two ways to give it the one
    that was used: to ask for the other would make the distribution keep it."""
    while isinstance(distribution, torch.distributions.Independent):
        distribution = distribution.base_dist
    if not isinstance(distribution, torch.distributions.Categorical) or distribution._num_events < 2:
        return None
    held = vars(distribution)
    given = held.get("logits", held.get("probs"))
    return (given, "logits" in held) if given is not None and 0 < given.numel() <= ROWS * 64 else None


def log_probabilities(distribution: Any) -> torch.Tensor | None:
    """All actions at every observation, for a choice among several; as it was given, which changes nothing in it."""
    held = given_as(distribution)
    if held is None:
        return None
    with torch.no_grad():
        values: torch.Tensor = held[0].detach().to("cpu", torch.float64).reshape(-1, held[0].shape[-1])
        return values.log_softmax(-1) if held[1] else values.clamp_min(1e-30).log()


def divergence(before: torch.Tensor, after: torch.Tensor) -> float:
    return float((before.exp() * (before - after).clamp(-50.0, 50.0)).sum()) if before.shape == after.shape else 0.0
