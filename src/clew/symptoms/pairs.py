"""What two curves say together: training and validation, loss and metric."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from clew.records.clue import Reading, Unclear, Value
from clew.symptoms import smooth
from clew.symptoms.model import Answer, Seen
from clew.symptoms.names import ACCURACY, CONSTANT, kind, main_loss
from clew.symptoms.shape import Shape, largest_change, shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clew.records.trace import Series

NEAR_PERFECT = 0.99
AT_CHANCE = 0.05
WORSE_THAN_NOISE = 3.0


class Metric(NamedTuple):
    name: str
    word: str
    rises: bool
    held_out: bool
    curve: Shape
    best: float  # 1 or 100 where the metric has an upper end, 0 where lower is better


def read_pairs(
    series: Mapping[str, Series],
    loss: Shape | None,
    chance: float | None,
    constant: float | None,
    epochs: tuple[int, ...],
    per_epoch: bool,
) -> dict[str, Answer]:
    held_out_name, why = main_loss(series, held_out=True)
    held_out = shape(series[held_out_name], per_epoch=True) if held_out_name else None
    metric = main_metric(series)
    open_end = next((name for name in series if kind(name).metric), "")
    no_metric = Unclear(f"{open_end} has no known best value" if open_end else "no metric was recorded")
    return {
        "train_val_gap": train_val_gap(loss, held_out) if held_out else metric_gap(series, metric) or Unclear(why),
        "val_turns_up": val_turns_up(loss, held_out) if held_out else Unclear(why),
        "val_erratic": val_erratic(loss, held_out) if held_out else Unclear(why),
        "metric_at_chance": metric_at_chance(metric, chance, constant) if metric else no_metric,
        "metric_vs_loss": metric_vs_loss(metric, loss) if metric else no_metric,
        "metric_nonfinite": metric_nonfinite(series, loss),
        "too_good_too_soon": too_good_too_soon(metric, epochs, per_epoch) if metric else no_metric,
    }


def main_metric(series: Mapping[str, Series]) -> Metric | None:
    """Validation before training, accuracy before the rest, then by name."""
    found = []
    for name, held in series.items():
        said = kind(name)
        if said.loss or not said.metric or (said.rises and said.metric not in CONSTANT):
            continue
        curve = shape(held, per_epoch=True)
        if curve.values:
            highest = max(curve.values)
            best = 0.0 if not said.rises else 100.0 if 5.0 < highest <= 100.0 else 1.0
            if said.rises and highest > best:
                continue  # a score without a known upper end
            found.append(Metric(name, said.metric, said.rises, said.held_out, curve, best))
    rank = {word: place for place, word in enumerate((*ACCURACY, *CONSTANT))}
    return min(found, key=lambda m: (not m.held_out, rank.get(m.word, 99), m.name), default=None)


def train_val_gap(loss: Shape | None, held_out: Shape) -> Answer:
    if loss is None or not loss.values:
        return Unclear("no training loss was recorded to compare the validation loss with")
    if loss.signed:
        return Unclear("the training loss starts at or around zero, so a ratio to its start is meaningless")
    late = [(step, value) for step, value in zip(held_out.steps, held_out.values, strict=True) if step > loss.steps[0]]
    late = late[-max(1, len(late) // 3) :]
    if not late or len(loss.values) < (2 if loss.per_epoch else 10):
        return Unclear("no validation loss was recorded after the start of training, or too few training losses")
    gaps = [value - _around(loss, step) for step, value in late]
    if _error(loss) / len(gaps) ** 0.5 > 0.06 * loss.start:
        return Unclear("the training loss is too noisy to compare the validation loss with it")
    gap = smooth.median(gaps) / loss.start
    if abs(gap) > 0.1 and (loss.ends_bad or smooth.median(loss.late()) > 1.5 * loss.start):
        return Unclear("the training loss diverged, so a gap to it is meaningless")
    return Reading(gap_over_start=gap, evaluations=len(gaps))


def metric_gap(series: Mapping[str, Series], metric: Metric | None) -> Answer | None:
    """The same of a metric that was recorded for both sets: how far validation falls short, as a share of the best."""
    if metric is None or not metric.held_out or not metric.rises:
        return None
    own = [held for name, held in series.items() if (said := kind(name)).metric == metric.word and not said.held_out]
    values = [value for held in own for value in held.values if math.isfinite(value)]
    if len(own) != 1 or len(values) < 3 or len(metric.curve.values) < 3 or max(values) > metric.best:
        return None
    late = (smooth.median(part[-max(1, len(part) // 3) :]) for part in (values, metric.curve.values))
    trained, validated = late
    return Reading(gap_over_start=(trained - validated) / metric.best, train=trained, validation=validated)


def val_turns_up(loss: Shape | None, held_out: Shape) -> Answer:
    """Whether the validation loss falls and then rises while the training loss goes on falling."""
    values = held_out.values
    if loss is None or loss.signed or len(values) < 6:
        return Unclear(f"a training loss with a stable level and six evaluations are needed; there are {len(values)}")
    low = min(range(len(values)), key=values.__getitem__)
    last = max(1, len(values) // 4)
    fall, rise = max(values[0], loss.start) - values[low], smooth.median(values[-last:]) - values[low]
    trained = _around(loss, held_out.steps[low]) - _around(loss, held_out.steps[-1])
    turns = (
        low < len(values) - last
        and fall > 0.1 * loss.start
        and rise > max(0.1 * loss.start, 3 * smooth.noise(values) / last**0.5)
        and trained > max(0.02 * loss.start, 2 * _error(loss))
    )
    figures: dict[str, Value] = {"lowest_at": held_out.steps[low], "rise_over_start": rise / loss.start}
    if not turns:
        return Seen("no", **figures)
    unit = "epoch" if held_out.steps[-1] - held_out.steps[0] == len(values) - 1 else "step"
    ends = {"train_end": _around(loss, held_out.steps[-1]), "val_lowest": values[low], "val_end": values[-1]}
    return Seen("turns", unit=unit, **ends, **figures)


def val_erratic(loss: Shape | None, held_out: Shape) -> Answer:
    if loss is None or not loss.values:
        return Unclear("no training loss was recorded to compare the validation curve with")
    values = held_out.values
    if len(values) < 5:
        return Unclear(f"there are {len(values)} evaluations; five are needed")
    trained = [_around(loss, step) for step in held_out.steps]
    # The first evaluation comes after some training, so what was gained before it counts from the starting loss.
    first = values[0] if loss.signed else max(values[0], loss.start)
    gain, train_gain = first - min(values), max(trained[0], loss.start) - min(trained)
    if gain <= 0.05 * abs(first) or train_gain <= max(0.0, 2 * _error(loss)):
        return Unclear("validation or training never improved, so jumps have no scale")
    jumps = [
        max(0.0, (b - a) / gain) - max(0.0, (trained[i + 1] - trained[i]) / train_gain)
        for i, (a, b) in enumerate(pairwise(values))
    ]
    return Reading(largest_jump_over_improvement=max(0.0, max(jumps)), evaluations=len(values))


def metric_at_chance(metric: Metric, chance: float | None, constant: float | None) -> Answer:
    if not metric.rises:
        return Unclear(f"{metric.name} has no known best value, so a gain cannot be measured")
    if len(metric.curve.values) < 3:
        return Unclear(f"{metric.name} was recorded {len(metric.curve.values)} times; three are needed")
    known = constant if constant is not None and metric.word in ACCURACY else CONSTANT[metric.word]
    guessed = known is None
    if known is None:
        known = _uniform(chance) if metric.word in ACCURACY else None
    late = metric.curve.values[-max(3, len(metric.curve.values) // 3) :]
    if known is None and smooth.median(late) < AT_CHANCE * metric.best:
        known = 0.0  # whatever a constant answer scores, it is not less than nothing
    if known is None:
        return Unclear(f"the {metric.name} of a constant prediction is unknown")
    floor = known * metric.best if known <= 1 else known
    if not floor < metric.best:
        return Unclear("a constant prediction is already perfect")
    gain = (smooth.median(late) - floor) / (metric.best - floor)
    if guessed and 0.05 <= gain < 0.5:
        return Unclear("better than uniform guessing, which a constant prediction also is when one class is frequent")
    return Reading(gain_over_constant=gain, constant=floor)


def metric_nonfinite(series: Mapping[str, Series], loss: Shape | None) -> Answer:
    """A figure may well be undefined before anything was learned; it counts when it still is at the end."""
    known = {name: held.values for name, held in series.items() if kind(name).metric and held.values}
    if not known or loss is None or not loss.values or not math.isfinite(loss.values[-1]):
        return Unclear("no metric was recorded beside a finite loss")
    bad = [name for name, values in known.items() if not any(math.isfinite(value) for value in values[-2:])]
    return Seen("seen", metric=bad[0]) if bad else Seen("absent", metrics=len(known))


def metric_vs_loss(metric: Metric, loss: Shape | None) -> Answer:
    if loss is None or not loss.values or loss.signed:
        return Unclear("no training loss with a stable level was recorded to compare the metric with")
    values, steps = metric.curve.values, metric.curve.steps
    if len(values) < 4:
        return Unclear(f"{metric.name} was recorded {len(values)} times; four are needed")
    if steps[-1] < loss.steps[0] or steps[0] > loss.steps[-1]:
        return Unclear(f"{metric.name} and the loss were not recorded over the same steps")
    if not loss.start:
        return Unclear("the loss begins at zero, so a ratio to it is meaningless")
    tail = max(1, len(values) // 4)
    early, late = smooth.median(values[:tail]), smooth.median(values[-tail:])
    sign = 1.0 if metric.rises else -1.0
    room = metric.best - early if metric.rises else early
    if metric.rises and early >= 0.95 * metric.best:
        return Unclear(f"{metric.name} was near its best at its first recorded value")
    scatter = smooth.noise(values) if len(values) >= 6 else 0.0
    gain = sign * (late - early)
    gained = gain > max(0.02 * abs(room), 2 * scatter / tail**0.5)
    before, after = (smooth.median([_around(loss, step) for step in part]) for part in (steps[:tail], steps[-tail:]))
    fall = (before - after) / loss.start
    change, change_error = largest_change(loss)
    error = 2 * 2**0.5 * _error(loss) / loss.start
    figures = {"loss_fall_over_start": fall, "metric_gain": gain}
    if gained and fall > 0.02:
        return Seen("both_move", **figures)
    if fall >= -error and _much_worse(metric, early, late, scatter):
        return Seen("metric_worsens", early=early, late=late, **figures)
    if fall >= 0.1 + error and not gained:
        return Seen("loss_falls_metric_flat", **figures)
    if change < 0.05 and change_error <= 0.03 and abs(gain) <= max(0.02 * abs(room), 2 * scatter / tail**0.5):
        return Seen("neither_moves", **figures)
    return Unclear("loss and metric move too little, or differently, to be called aligned")


def _much_worse(metric: Metric, early: float, late: float, scatter: float) -> bool:
    """Whether the metric lost most of what it had, by more than it jumps about."""
    lost = early - late if metric.rises else late - early
    if lost <= WORSE_THAN_NOISE * scatter:
        return False
    return lost > 0.4 * early and lost > 0.2 * metric.best if metric.rises else lost > early > 0


def too_good_too_soon(metric: Metric, epochs: tuple[int, ...], per_epoch: bool) -> Answer:
    if not metric.rises:
        return Unclear(f"{metric.name} has no known best value")
    if not metric.held_out:
        return Unclear("only a metric on held-out data can be too good, and none was recorded")
    limit = NEAR_PERFECT * metric.best
    curve = metric.curve
    if max(curve.values) < limit:
        return Seen("plausible", best=max(curve.values))
    marks = sorted(set(epochs))
    if len(marks) > 1:
        first = [value for step, value in zip(curve.steps, curve.values, strict=True) if step <= marks[1]]
    elif per_epoch and len(curve.values) > 1:
        first = list(curve.values[:1])
    else:
        return Unclear(f"{metric.name} comes close to perfect, but where the first epoch ends is unknown")
    if not first:
        return Unclear("nothing was evaluated within the first epoch")
    return Seen("suspicious" if max(first) >= limit else "plausible", first_epoch=max(first))


def _around(loss: Shape, step: int) -> float:
    """The smoothed training loss at a step: the median of the points before it."""
    if loss.per_epoch:
        at = min(max(bisect_right(loss.steps, step) - 1, 0), len(loss.values) - 1)
        return loss.values[at]
    width = _width(loss)
    at = min(max(bisect_right(loss.steps, step), width), len(loss.values))
    return smooth.median(loss.values[max(0, at - width) : at])


def _width(loss: Shape) -> int:
    return max(3, min(20, len(loss.values) // 20))


def _error(loss: Shape) -> float:
    """The standard error of the smoothed training loss at one step."""
    return 0.0 if loss.per_epoch else smooth.MEDIAN_COST * smooth.noise(loss.values) / _width(loss) ** 0.5


def _uniform(chance: float | None) -> float | None:
    """1/C where the chance loss is that of C balanced classes."""
    if chance is None or not 0 < chance < 14:
        return None
    classes = round(math.exp(chance))
    return 1 / classes if classes >= 2 and abs(math.log(classes) - chance) < 1e-3 else None
