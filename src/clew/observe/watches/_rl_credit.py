"""What a policy without a value function is credited with: what followed its actions, what came before, or neither."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clew.observe.watches._rl_direction import BATCH, correlation, returns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clew.observe.envs import Experience, Transition
    from clew.observe.watches._rl_study import Study
    from clew.records.place import Place

    Floats = NDArray[np.float64]

DISCOUNTS = (0.5, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 1.0)
AHEAD = 0.9
CLEAR = 0.99
CLEARER = 0.1
OWN = 0.97
SAME = 1e-5
UPDATES = 3


class Credit(NamedTuple):
    """What the weights of log-probabilities follow in nearly all updates, with the rows that told it."""

    outcome: str  # an outcome of discount_in_targets
    rows: int
    place: Place | None


def credit(study: Study) -> Credit | None:
    """None where a value function is trained, which has its own part in the weights, and where they follow nothing."""
    if study.aimed:
        return None
    found: list[Credit] = []
    for held in study.policy.favoured:
        pairs = zip(held.weights, held.steps, strict=True) if held.steps else ()
        known = [(weight, step) for weight, step in pairs if step is not None]
        if len(known) >= max(BATCH, 0.9 * len(held.steps)):
            weights = np.array([weight for weight, _ in known])
            outcome = follows(weights, [step for _, step in known], study.experience)
            found += [Credit(outcome, len(known), held.place)] if outcome else []
    outcomes = {each.outcome for each in found}
    if len(found) < UPDATES or len(outcomes) > 1:
        return None
    return found[-1]._replace(rows=sum(each.rows for each in found))


def follows(weights: Floats, steps: list[Transition], experience: Experience) -> str:
    """What these weights go with; nothing where that is not clear."""
    if np.std(weights) < 1e-6 * np.abs(weights).max():
        return ""
    ahead = [returns(steps, experience, gamma) for gamma in DISCOUNTS]
    along = max((correlation(weights, sums) or 0.0 for sums in ahead), key=abs)
    if along <= -AHEAD:
        # Within one episode that pays alike at each step, what came before falls as what follows rises: which it is,
        # the discount tells.
        past = [sums for gamma in DISCOUNTS if (sums := _past(steps, experience, gamma)) is not None]
        behind = max((correlation(weights, sums) or 0.0 for sums in past), default=0.0)
        return "backwards" if 1 - behind < CLEARER * (1 + along) else ""
    if abs(along) >= AHEAD:
        return "usual" if along > CLEAR else ""
    own = correlation(weights, np.array([step.reward for step in steps])) or 0.0
    if own > CLEAR:
        return "nothing_later" if _blind(weights, steps, ahead[-1]) else ""
    if own > OWN:
        return ""
    before = [sums for gamma in DISCOUNTS if (sums := _past(steps, experience, gamma)) is not None]
    return "backwards" if max((correlation(weights, sums) or 0.0 for sums in before), default=0.0) > CLEAR else ""


def _blind(weights: Floats, steps: list[Transition], ahead: Floats) -> bool:
    """Most steps pay nothing themselves and get one and the same weight, whatever followed them."""
    unpaid = np.array([step.reward == 0.0 and not (step.terminated or step.truncated) for step in steps])
    if unpaid.sum() < max(BATCH, len(steps) // 2) or np.ptp(ahead[unpaid]) == 0.0:
        return False
    return float(np.ptp(weights[unpaid])) <= SAME * float(np.ptp(weights))


def _past(steps: list[Transition], experience: Experience, gamma: float) -> Floats | None:
    """The discounted sums of what each episode had paid by then; None where the beginning of one was not seen."""
    known: dict[tuple[int, int], float] = {}
    for step in steps:
        chain: list[Transition] = []
        each: Transition | None = step
        while each is not None and (each.lane, each.number) not in known:
            chain.append(each)
            before = experience.by_number.get((each.lane, each.number - 1))
            if before is None and (each.number or each.key is None):
                return None
            each = None if before is None or before.terminated or before.truncated else before
        total = 0.0 if each is None else known[each.lane, each.number]
        for one in reversed(chain):
            total = one.reward + gamma * total
            known[one.lane, one.number] = total
    return np.array([known[step.lane, step.number] for step in steps])
