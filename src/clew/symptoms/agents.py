"""What the log of an agent shows: whether its returns rise, and how random its policy stays."""

import math

from clew.records.clue import Reading, Unclear
from clew.records.trace import Series
from clew.symptoms import smooth
from clew.symptoms.logs_names import words
from clew.symptoms.model import Answer, Seen

POINTS = 20
MOST_ACTIONS = 20
RANDOM = 0.97
ERRORS, SOME = 4.0, 0.1


def returns_course(returns: Series) -> Answer:
    """The last fifth of the logged returns against the first ones."""
    values = [value for value in returns.values if math.isfinite(value)]
    if len(values) < POINTS:
        return Unclear(f"{len(values)} returns were logged; {POINTS} are needed")
    few, many = max(3, len(values) // 20), len(values) // 5
    first, last = smooth.median(values[:few]), smooth.median(values[-many:])
    clear = max(ERRORS * smooth.noise(values) / few**0.5, SOME * max(abs(first), abs(last)))
    figures = {"first": first, "last": last}
    if abs(last - first) > clear:
        return Seen("rises" if last > first else "falls", **figures)
    if max(smooth.blocks(values, 5)) > first + clear:
        return Unclear("the returns were higher in the middle and are back at the start")
    return Seen("level", **figures)


def entropy_trend(entropy: Series) -> Answer:
    """The share of its maximum that the policy's entropy has a quarter into the run. A policy begins at about ln(n) for
    n actions; one whose entropy begins elsewhere chooses otherwise."""
    sign = -1.0 if "loss" in words(entropy.name) else 1.0
    values = [sign * value for value in entropy.values if math.isfinite(value)]
    if len(values) < POINTS:
        return Unclear(f"{len(values)} entropies were logged; {POINTS} are needed")
    start = max(values[:3])
    actions = round(math.exp(min(start, 10.0)))
    if not 2 <= actions <= MOST_ACTIONS or abs(start - math.log(actions)) > 0.02 * start:
        return Unclear(f"the entropy begins at {start:.3g}, which is not ln(n) for n actions")
    at = len(values) // 4
    share, late = (smooth.median(part) / math.log(actions) for part in (values[at : at + 5], values[-5:]))
    return Reading(entropy_share=min(share, late) if share > RANDOM else share, actions=actions)
