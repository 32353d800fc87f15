"""Which actions updates favour, against how well they turned out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from clew.observe.watches._rl_rows import resolve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clew.observe.envs import Experience, Transition
    from clew.observe.watches._rl_policy import Favoured
    from clew.observe.watches._rl_study import Aimed, Study
    from clew.records.place import Place

    Floats = NDArray[np.float64]

BATCH = 8
NEAR = 5
"""How many steps may lie between the update of the policy and that of the value function on the same batch."""
DISCOUNTS = (0.9, 0.95, 0.97, 0.98, 0.99, 1.0)
EXACT = 0.98


def agreements(study: Study) -> list[tuple[float, Place | None]]:
    """One correlation for each update that can be judged."""
    found: list[tuple[float, Place | None]] = []
    for held in (*study.policy.favoured, *study.policy.by_hand):
        if len(held.weights) < BATCH or np.std(held.weights) < 1e-6 * np.abs(held.weights).max():
            continue
        value = with_values(held, list(study.aimed)) if study.aimed else with_returns(held, study.experience)
        if value is not None:
            found.append((value, held.place))
    return found


def with_values(held: Favoured, aimed: list[Aimed]) -> float | None:
    closest = beside(held, aimed)
    return None if closest is None else correlation(held.weights, closest.targets - closest.values)


def beside(held: Favoured, aimed: list[Aimed]) -> Aimed | None:
    """The update of the value function on the same rows."""
    near = [each for each in aimed if abs(each.step - held.step) <= NEAR and each.keys == held.keys]
    return min(near, key=lambda each: abs(each.step - held.step)) if near else None


def with_returns(held: Favoured, experience: Experience) -> float | None:
    """Only where one discount explains the weights nearly exactly: nothing else may pull at them then."""
    steps = held.steps or resolve(experience, held.keys, [])
    known = [(weight, step) for weight, step in zip(held.weights, steps, strict=True) if step is not None]
    if len(known) < max(BATCH, len(steps) // 2):
        return None
    weights = np.array([weight for weight, _ in known])
    found = [correlation(weights, returns([step for _, step in known], experience, gamma)) for gamma in DISCOUNTS]
    best = max((value for value in found if value is not None), key=abs, default=0.0)
    return best if abs(best) > EXACT else None


def returns(steps: list[Transition], experience: Experience, gamma: float) -> Floats:
    known: dict[tuple[int, int], float] = {}
    for step in sorted(steps, key=lambda each: -each.number):
        chain: list[Transition] = []
        each: Transition | None = step
        while each is not None and (each.lane, each.number) not in known:
            chain.append(each)
            if each.terminated or each.truncated:
                break
            each = experience.following(each)
        total = 0.0
        if each is not None and (each.lane, each.number) in known:
            total = known[each.lane, each.number]
        for one in reversed(chain):
            total = one.reward + gamma * total
            known[one.lane, one.number] = total
    return np.array([known[step.lane, step.number] for step in steps])


def correlation(one: Floats, other: Floats) -> float | None:
    if np.std(one) == 0 or np.std(other) < 1e-9 * max(1e-9, float(np.abs(other).max())):
        return None
    return float(np.corrcoef(one, other)[0, 1])
