"""Whether the score that an agent's script prints comes to something: successes, wins, scores, returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clew.records.clue import Unclear
from clew.symptoms import smooth
from clew.symptoms.logs_names import METRIC, meaning
from clew.symptoms.model import Answer, Seen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clew.records.trace import Series

SHARES = ("success", "accuracy", "hits", "em")
PAID = ("reward", "rewards", "rew", "return", "returns", "score")
POINTS = 5
POOR = 0.5
FALLEN = 0.75
CLEAR = 3.0


class Score(NamedTuple):
    name: str
    share: bool  # of episodes that went well, between nothing and all
    values: tuple[float, ...]


def own_score(series: Mapping[str, Series], returns: str) -> Answer:
    """`returns` is what the course of the returns was seen to be: "rises", "level", "falls" or nothing."""
    found = scores(series)
    if not found:
        return Unclear("no score was printed often enough")
    for score in found:
        first, late, error = ends(score.values)
        figures = {"first": first, "last": late, "points": float(len(score.values))}
        if score.share and returns == "rises" and late < POOR and late <= first + max(CLEAR * error, 0.05):
            return Seen("not_what_is_paid", score=score.name, **figures)
        if first - late > max(CLEAR * error, (1.0 - FALLEN) * abs(first)) and late < min(score.values[:2]):
            return Seen("falls", score=score.name, **figures)
    first, late, _ = ends(found[0].values)
    return Seen("holds", first=first, last=late, points=len(found[0].values))


def scores(series: Mapping[str, Series]) -> list[Score]:
    """Shares of successes first: they are about the task, whatever is paid."""
    found = []
    for name, held in series.items():
        said = meaning(name)
        if said.role == METRIC and said.goal == "up" and said.base in (*SHARES, *PAID) and len(held.values) >= POINTS:
            values = tuple(value for value in held.values if value == value)
            within = all(0.0 <= value <= 1.0 for value in values)
            if len(values) >= POINTS and (within or said.base in PAID):
                found.append(Score(name, said.base in SHARES and within, values))
    return sorted(found, key=lambda score: (not score.share, score.name))


def ends(values: tuple[float, ...]) -> tuple[float, float, float]:
    """The level at the start, that of the last third, and the error of their difference."""
    tail = values[-max(2, len(values) // 3) :]
    head = values[: max(1, len(values) // 10)]
    scatter = smooth.noise(values) if len(values) >= 6 else 0.0
    return smooth.median(head), smooth.median(tail), scatter * (1 / len(head) + 1 / len(tail)) ** 0.5
