"""What the curves of a run look like: one reader per test of the loss curve, and one that reads them all.

Every reader returns the number that the scale of its test asks for, or an outcome where the test has no scale, or
`Unclear` with the reason. A short curve, one drowned in noise and one that crosses zero are unclear, not healthy.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING

from clew.records.clue import Reading, Unclear
from clew.symptoms import pairs, smooth
from clew.symptoms.logs_names import LOSS_TERM, meaning
from clew.symptoms.model import Answer, Seen
from clew.symptoms.names import kind, main_loss
from clew.symptoms.shape import MOST, Shape, largest_change, shape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clew.records.trace import Series

NEVER_NEGATIVE = {
    "cross_entropy",
    "nll_loss",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "hinge_embedding_loss",
    "multi_margin_loss",
    "triplet_margin_loss",
}


def read_curves(
    series: Mapping[str, Series],
    chance: float | None = None,
    *,
    constant: float | None = None,
    constant_loss: float | None = None,
    epochs: Sequence[int] = (),
    per_epoch: bool = False,
    loss_name: str = "",
) -> dict[str, Answer]:
    """Everything that the curves of one run show, by test.

    `series` by name, as logged. `chance` is the loss that guessing would give (ln C for C balanced classes), `constant`
    the accuracy and `constant_loss` the loss of the best constant answer, `epochs` the steps at which epochs begin,
    `per_epoch` whether each point is a mean over an epoch, `loss_name` the function of torch.nn.functional that made
    the training loss, if known.
    """
    name, why = main_loss(series, held_out=False)
    loss = shape(series[name], per_epoch) if name is not None else None
    if loss is not None and not per_epoch and (count := smooth.turns(loss.values[:MOST])) > 1:
        loss, why = None, f"the loss jumps between {count} levels, as when several losses are trained alternately"
    found: dict[str, Answer] = {}
    if name is None or loss is None:
        found = {test: Unclear(why) for test in (*READERS, "loss_goes_negative", "loss_epoch_sawtooth", "init_loss")}
    else:
        found = {test: reader(loss) for test, reader in READERS.items()}
        found["loss_goes_negative"] = loss_goes_negative(loss, loss_name)
        found["loss_epoch_sawtooth"] = loss_epoch_sawtooth(loss, epochs)
        found["init_loss"] = init_loss(series[name], chance, per_epoch)
        if meaning(name).role == LOSS_TERM:
            found["training_fit"] = Unclear("only a term of the training loss was recorded")
        for test in ("loss_stuck_from_start", "loss_plateau"):
            found[test] = _beside_constant(found[test], loss, constant_loss)
    found["loss_nonfinite"] = loss_nonfinite([shape(held) for held in _training_losses(series)])
    found.update(pairs.read_pairs(series, loss, chance, constant, tuple(epochs), per_epoch))
    return found


def _training_losses(series: Mapping[str, Series]) -> list[Series]:
    return [held for name, held in series.items() if (said := kind(name)).loss and not said.held_out]


def loss_nonfinite(losses: Sequence[Shape]) -> Answer:
    total = sum(loss.total for loss in losses)
    if not total:
        return Unclear("no training loss was recorded")
    steps = [loss.first_bad for loss in losses if loss.first_bad is not None]
    share = sum(loss.bad for loss in losses) / total
    return Reading(nonfinite_share=share, first_step=min(steps)) if steps else Reading(nonfinite_share=share)


def nonfinite_onset(loss: Shape) -> Answer:
    """Whether the loss climbed over several points before the first one that is not finite."""
    broke = math.inf if loss.first_bad is None else loss.first_bad
    before = [value for step, value in zip(loss.steps, loss.values, strict=True) if step < broke]
    if len(before) < 6:
        return Unclear(f"{len(before)} finite losses come before the first NaN; six are needed")
    if loss.first_bad is None:
        return Seen("absent")
    if loss.signed:
        return Unclear("the loss starts at or around zero, so a ratio to its lowest level is meaningless")
    tail = before[-max(3, len(before) // 10) :]
    lowest = min(smooth.running_median(before, 1 if loss.per_epoch else 5))
    climb = smooth.median(tail) / lowest if lowest > 0 else 1.0
    climbs = climb > 1.5 and smooth.rank_trend(before[-max(5, len(tail)) :]) > 0.6
    return Seen("climbs" if climbs else "suddenly", last_over_lowest=climb, first_step=loss.first_bad)


def loss_stuck_from_start(loss: Shape) -> Answer:
    if too_short := _too_short(loss, points=20, span=100):
        return too_short
    if loss.signed and abs(loss.start) <= 4 * loss.start_error:
        return Unclear("the loss starts around zero, so a ratio to its start is meaningless")
    change, error = largest_change(loss)
    if error > 0.03 and change < 0.15 + 2 * error:
        return Unclear("the loss is too noisy for a run this short: its level is uncertain by more than a few per cent")
    return Reading(largest_relative_change=change, points=len(loss.values))


def loss_diverges(loss: Shape) -> Answer:
    if len(loss.values) < 5:
        return _too_short(loss, points=5) or Unclear("the curve is too short")
    if loss.signed:
        return Unclear("the loss starts at or around zero, so twice its start is no usable limit")
    late = loss.values[-3:] if loss.ends_bad else loss.late()
    low = smooth.quantile(late, 0.25)
    margin = 4 * max(loss.start_error, loss.course_error)
    before = loss.values[: -len(late)]
    parts = len(before) if loss.per_epoch else max(1, min(len(loss.course), len(before) // 10))
    lowest = min(smooth.blocks(before, parts), default=loss.start)
    fell = lowest < 0.9 * loss.start - margin
    if 0 < 10 * max(loss.values[:2]) < low and not fell:  # tenfold is beyond any noise, and noise is hard to tell here
        return Seen("at_once", late_over_start=low / max(loss.values[:2]))
    figures = {"late_over_start": low / loss.start, "lowest_over_start": lowest / loss.start}
    if not fell and low > 2 * loss.start + margin:
        return Seen("at_once", **figures)
    if fell and low > 1.05 * loss.start + margin:
        return Seen("after_falling", **figures)
    return _too_short(loss, points=20) or Seen("stable", **figures)


def training_fit(loss: Shape) -> Answer:
    if loss.signed or loss.ends_bad or len(loss.values) < 6:
        return Unclear("the end of the loss over its start says nothing here")
    return Reading(end_over_start=smooth.median(loss.late()) / loss.start)


def loss_oscillates(loss: Shape) -> Answer:
    if loss.per_epoch:
        return Unclear("each point is the mean of an epoch, which hides step-to-step swings")
    if too_short := _too_short(loss, points=50):
        return too_short
    if loss.signed:
        return Unclear("the loss starts at or around zero, so a ratio to its start is meaningless")
    left = []
    for part in _stretches(loss.values[10:]):  # the steepest points, where a median lags behind the curve
        left += [abs(a - b) / loss.start for a, b in zip(part, smooth.running_median(part, 21), strict=True)]
    kept = sorted(left)[: max(1, int(0.99 * len(left)))]  # one spike in a hundred points is no swing
    swing = (sum(share * share for share in kept) / len(kept)) ** 0.5
    return Reading(swing_over_start=swing, points=len(left))


def loss_rises(loss: Shape) -> Answer:
    if too_short := _too_short(loss, points=6 if loss.per_epoch else 50):
        return too_short
    course = loss.course if loss.per_epoch else smooth.blocks(loss.values, max(8, len(loss.course)))
    error = max(loss.start_error, loss.course_error)
    scale = max(abs(loss.start), error)
    rise, peak = course[-1] - loss.start, max(course) - loss.start
    steady = (
        rise > 0.1 * scale + 4 * error
        and rise > 0.7 * peak
        and min(course) > loss.start - 0.02 * scale - 3 * error
        and smooth.rank_trend(course) > 0.6
        and smooth.rank_trend(course[: max(4, len(course) // 2)]) > 0.4
    )
    return Seen("steadily" if steady else "no", rise_over_start=rise / scale if scale else 0.0)


def loss_goes_negative(loss: Shape, loss_name: str) -> Answer:
    if not loss.values:
        return Unclear("no finite training loss was recorded")
    lowest = min(smooth.running_median(_thin(loss.values), 1 if loss.per_epoch or len(loss.values) < 20 else 11))
    late = smooth.median(loss.late())
    figure = lowest if late < 0 else max(lowest, 0.0) if lowest >= 0 else late
    if figure < 0 and loss_name not in NEVER_NEGATIVE:
        return Unclear("the loss goes below zero, which some losses do by design")
    return Reading(lowest_smoothed_loss=figure)


def loss_plateau(loss: Shape) -> Answer:
    if too_short := _too_short(loss, points=9 if loss.per_epoch else 90):
        return too_short
    if loss.signed:
        return Unclear("the loss starts at or around zero, so a ratio to its start is meaningless")
    last = loss.values[-len(loss.values) // 3 :]
    levels = smooth.blocks(last, min(len(last), 30))
    fall = -smooth.slope(levels) * len(levels) / loss.start
    scatter = smooth.noise(levels) if loss.per_epoch else smooth.noise(last)
    error = 1.5 * smooth.MEDIAN_COST * scatter * (12 / len(last)) ** 0.5 / loss.start
    if fall > 2 * error and fall > 0.01:
        return Reading(flat_level=0.0, fall_in_last_third=fall)
    if fall < -2 * error and fall < -0.04:
        return Unclear("the loss rises over the last third, so this is not a plateau")
    if abs(fall) + 2 * error > 0.04:
        return Unclear("the noise hides whether the loss still falls over the last third")
    return Reading(flat_level=max(0.0, smooth.median(last) / loss.start), fall_in_last_third=fall)


def loss_spike_at_start(loss: Shape) -> Answer:
    if loss.per_epoch:
        return Unclear("each point is the mean of an epoch, which hides the first steps")
    early = [value for step, value in zip(loss.steps, loss.values, strict=True) if step - loss.steps[0] < 300]
    if len(early) < 30 or len(loss.values) < 60:
        return Unclear(f"only {len(early)} losses of the first 300 steps were recorded; 30 and a later part are needed")
    if loss.signed:
        return Unclear("the loss starts at or around zero, so a ratio to it is meaningless")
    relative = min(loss.noise / loss.start, 1.0)
    width = min(25, max(3, int((10 * relative) ** 2) | 1))
    first = smooth.median(early[: min(width, 5)])
    peak = max(smooth.running_median(early, width)[width // 2 :])
    ratio = max(peak / first, 1.0) if first > 0 else 1.0
    if ratio > 2 and smooth.median(loss.late()) > 0.7 * peak:
        return Unclear("the loss rose early and stayed high, so this is not a spike")
    return Reading(early_peak_over_start=ratio)


def loss_epoch_sawtooth(loss: Shape, epochs: Sequence[int]) -> Answer:
    if loss.per_epoch:
        return Unclear("each point is the mean of an epoch, which hides the jumps at epoch boundaries")
    marks = [mark for mark in sorted(set(epochs)) if loss.steps and loss.steps[0] < mark <= loss.steps[-1]]
    if len(marks) < 3:
        return Unclear(f"{len(marks)} epoch boundaries lie within the curve; three are needed")
    edges = [bisect_left(loss.steps, mark) for mark in marks]
    length = min(b - a for a, b in pairwise([0, *edges, len(loss.values)]))
    if length < 10:
        return Unclear(f"an epoch has only {length} logged losses; ten are needed to see jumps between epochs")
    scale = max(abs(loss.start), loss.start_error)
    near = max(3, min(20, length // 5))
    jumps, drifts = [], []
    for low, high in zip(edges, [*edges[1:], len(loss.values)], strict=True):
        before, after = loss.values[max(0, low - near) : low], loss.values[low : low + near]
        jumps.append(smooth.median(after) - smooth.median(before))
        drifts.append(smooth.median(loss.values[max(low, high - near) : high]) - smooth.median(after))
    error = smooth.MEDIAN_COST * smooth.noise(loss.values) * (2 / near) ** 0.5
    limit = max(0.05 * scale, 3 * error)
    up = sum(jump > limit for jump in jumps)
    down = sum(jump < -limit and drift > limit for jump, drift in zip(jumps, drifts, strict=True))
    seen = max(up, down) >= 0.7 * len(jumps)
    share = smooth.median(jumps) / scale if scale else 0.0
    return Seen("seen" if seen else "absent", median_jump_over_start=share, boundaries=len(jumps))


def init_loss(series: Series, chance: float | None, per_epoch: bool) -> Answer:
    if chance is None or not chance > 0:
        return Unclear("the loss of guessing is unknown")
    if per_epoch:
        return Unclear("the first point is the mean of an epoch, not the loss of the untrained model")
    if not series.values:
        return Unclear("no training loss was recorded")
    if series.steps[0] > 2:
        return Unclear(f"the first loss was logged at step {series.steps[0]}, after training had begun")
    return Reading(loss_over_chance=series.values[0] / chance)


def _beside_constant(answer: Answer, loss: Shape, constant_loss: float | None) -> Answer:
    """The same answer, with how the last part of the curve compares with answering the same to every example."""
    if not isinstance(answer, Reading) or constant_loss is None or not constant_loss > 0 or not loss.values:
        return answer
    return Reading(**dict(answer.measured), end_over_constant_answer=smooth.median(loss.late()) / constant_loss)


READERS = {
    "loss_stuck_from_start": loss_stuck_from_start,
    "loss_diverges": loss_diverges,
    "training_fit": training_fit,
    "loss_oscillates": loss_oscillates,
    "loss_rises": loss_rises,
    "nonfinite_onset": nonfinite_onset,
    "loss_plateau": loss_plateau,
    "loss_spike_at_start": loss_spike_at_start,
}


def _too_short(loss: Shape, points: int, span: int = 0) -> Unclear | None:
    if loss.per_epoch:
        points, span = min(points, 6), 0
    if len(loss.values) < points:
        return Unclear(f"the curve has {len(loss.values)} finite points, {points} are needed")
    if loss.span < span:
        return Unclear(f"the curve covers {loss.span} steps, {span} are needed")
    return None


def _stretches(values: tuple[float, ...], length: int = 200) -> list[tuple[float, ...]]:
    """The whole curve, or evenly spaced parts of a very long one: neighbours stay neighbours."""
    if len(values) <= MOST:
        return [values]
    parts = MOST // length
    return [values[i * len(values) // parts :][:length] for i in range(parts)]


def _thin(values: tuple[float, ...]) -> list[float]:
    return list(values) if len(values) <= MOST else smooth.blocks(values, MOST)
