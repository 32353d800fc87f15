"""A curve made ready for reading: bad values set apart, its start, its noise and its course in a few levels."""

import math
from itertools import pairwise
from typing import NamedTuple

from clew.records.trace import Series
from clew.symptoms import smooth

LARGEST = 1e150  # far beyond any loss; keeps products and sums of values finite
COURSE = 30  # levels that the whole course is reduced to
FIRST = 20  # points that the starting noise is read from
MOST = 20_000  # points beyond which a curve is read in stretches


class Shape(NamedTuple):
    """`course` holds medians of neighbouring stretches; `start_error` and `course_error` are their standard errors."""

    steps: tuple[int, ...]
    values: tuple[float, ...]  # the finite ones, several of one step averaged
    per_epoch: bool
    bad: int
    total: int
    first_bad: int | None  # the step of the first value that is not finite
    ends_bad: bool  # no finite value comes after the last bad one
    start: float
    start_error: float
    noise: float  # scatter from point to point near the start
    course: tuple[float, ...]
    course_error: float

    @property
    def span(self) -> int:
        return self.steps[-1] - self.steps[0] + 1 if self.steps else 0

    @property
    def signed(self) -> bool:
        """Whether the start is so close to zero, or below it, that a ratio to it says nothing."""
        return self.start <= 0 or (self.start <= 4 * self.start_error and min(self.values) < 0)

    def late(self, share: float = 0.1) -> tuple[float, ...]:
        return self.values[-max(1 if self.per_epoch else 3, int(len(self.values) * share)) :]


def shape(series: Series, per_epoch: bool = False) -> Shape:
    """The shape of a series. Points stay in the order in which they were logged."""
    steps, values, bad, first_bad, ends_bad = _finite(series)
    if not values:
        return Shape((), (), per_epoch, bad, len(series.values), first_bad, ends_bad, 0.0, 0.0, 0.0, (), 0.0)
    scatter = 0.0 if per_epoch else smooth.noise(values[:FIRST])
    count = len(values) if per_epoch else max(1, min(COURSE, len(values) // 10))
    course = tuple(smooth.blocks(values, count))
    course_error = smooth.MEDIAN_COST * (smooth.noise(values) if not per_epoch else 0.0) / (len(values) / count) ** 0.5
    start, start_error = _start(values, course, course_error, scatter, per_epoch)
    total = len(series.values)
    return Shape(
        steps, values, per_epoch, bad, total, first_bad, ends_bad, start, start_error, scatter, course, course_error
    )


def _finite(series: Series) -> tuple[tuple[int, ...], tuple[float, ...], int, int | None, bool]:
    steps: list[int] = []
    sums: list[float] = []
    counts: list[int] = []
    bad, first_bad, ends_bad = 0, None, False
    ordered = all(a <= b for a, b in pairwise(series.steps))
    for at, (logged, value) in enumerate(zip(series.steps, series.values, strict=False)):
        step = logged if ordered else at  # a count that restarts (per epoch, after a resume) orders nothing
        if not math.isfinite(value):
            bad, ends_bad = bad + 1, True
            first_bad = logged if first_bad is None else first_bad
            continue
        ends_bad = False
        value = min(max(value, -LARGEST), LARGEST) if abs(value) > 1 / LARGEST else 0.0
        if steps and steps[-1] == step:
            sums[-1] += value
            counts[-1] += 1
        else:
            steps.append(step)
            sums.append(value)
            counts.append(1)
    values = tuple(total / count for total, count in zip(sums, counts, strict=True))
    return tuple(steps), values, bad, first_bad, ends_bad


def _start(
    values: tuple[float, ...], course: tuple[float, ...], course_error: float, scatter: float, per_epoch: bool
) -> tuple[float, float]:
    """The level of the first points: as few of them as the noise allows, because a good curve falls at once."""
    level = abs(smooth.median(values[: 3 if not per_epoch else 1]))
    wanted = math.ceil((20 * scatter / level) ** 2) if scatter < level else FIRST  # 5 % of the level
    count = 1 if per_epoch else min(max(wanted, 1), FIRST, len(values))
    start = smooth.median(values[:count])
    error = (smooth.MEDIAN_COST if count > 2 else 1.0) * scatter / count**0.5
    if values[0] > start + 5 * scatter:
        return values[0], scatter  # gone after one step: a loss that falls that fast still began where it began
    fall = -smooth.slope(values[:count]) * (count - 1)
    if fall > 6 * error:
        return start + fall / 2, 2 * error  # it falls within these very points: their level is not the first one
    if not per_epoch and len(course) >= 5 and abs(start - course[0]) <= 2 * error and course_error < error:
        return course[0], course_error
    return start, error


def largest_change(curve: Shape) -> tuple[float, float]:
    """The largest departure from the start as a share of it, and how far noise alone moves a level.

    Read in stretches so long that noise moves none of them by more than about 1 %, where the curve is long enough.
    """
    if not curve.start:
        return math.inf, 0.0  # nothing is a share of zero; a loss that begins at zero can only have departed from it
    if curve.per_epoch:
        levels, error = list(curve.values), 0.0
    else:
        scatter = smooth.MEDIAN_COST * smooth.noise(curve.values)
        relative = 100 * scatter / abs(curve.start)
        needed = relative * relative
        count = max(5, min(len(curve.course), int(len(curve.values) / max(needed, 1.0))))
        levels = smooth.blocks(curve.values, count)
        error = scatter / (len(curve.values) / count) ** 0.5 / abs(curve.start)
    first = levels[0] if abs(curve.start - levels[0]) <= 2 * curve.start_error else curve.start
    return (max(abs(level - first) for level in levels) / abs(first) if first else math.inf), error
