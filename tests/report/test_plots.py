"""What a plot shows: inside its frame, in order, and with nothing that matters thinned away."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.records.trace import Series
from clew.report.axes import Tick, step_axis, value_axis
from clew.report.plots import HEIGHT, MOST_LINES, WIDTH, Plot, Zone, plot
from clew.report.thin import columns, in_order, span_of, spread, thinned

ANY = st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True)
FINITE = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=True)
STEPS = st.one_of(st.integers(0, 50), st.integers(-(10**18), 10**18))
SCALES = st.sampled_from(("auto", "log", "share"))


@st.composite
def any_series(draw: st.DrawFn, values: st.SearchStrategy[float] = ANY) -> Series:
    pairs = draw(st.lists(st.tuples(STEPS, values), max_size=60))
    return Series("loss", tuple(step for step, _ in pairs), tuple(value for _, value in pairs))


def of(*values: float, name: str = "loss") -> Series:
    return Series(name, tuple(range(len(values))), values)


def points(made: Plot) -> list[tuple[float, float]]:
    drawn = [point for line in made.lines for piece in line.pieces for point in piece]
    drawn += [point for line in made.lines for point in line.dots]
    if made.band is not None:
        drawn += [point for area in (*made.band.areas, *made.band.median) for point in area]
    return drawn


def check(made: Plot) -> None:
    """What holds for every plot that has a frame."""
    assert made.frame is not None
    for x, y in points(made):
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT
    for mark in made.marks:
        assert 0 <= mark.left < mark.right <= WIDTH
    for ticks, size in ((made.frame.steps.ticks, WIDTH), (made.frame.values.ticks, HEIGHT)):
        check_ticks(ticks, size)


def check_ticks(ticks: tuple[Tick, ...], size: float) -> None:
    assert 1 <= len(ticks) <= 10
    assert all(0 <= tick.at <= size for tick in ticks)
    assert all(math.isfinite(tick.value) for tick in ticks)
    assert all(one.value < other.value and one.at < other.at for one, other in pairwise(ticks))
    assert len({tick.label for tick in ticks}) == len(ticks), "no two ticks read alike"
    assert max(len(tick.label) for tick in ticks) <= 26


@given(st.lists(any_series(), min_size=1, max_size=3), SCALES)
def test_everything_drawn_lies_in_the_frame(held: list[Series], scale: str) -> None:
    made = plot("Loss", [(f"line {index}", series) for index, series in enumerate(held)], scale=scale)
    if any(series.steps for series in held):
        check(made)
        finite = any(math.isfinite(value) for series in held for value in series.values)
        assert bool(made.missing) == (not finite)
        assert bool(made.marks) == any(not math.isfinite(value) for series in held for value in series.values)
    else:
        assert made.frame is None
        assert made.missing


@given(st.lists(FINITE, min_size=1, max_size=30), SCALES, st.sampled_from(((), (1e-4, 1e-2))))
def test_ticks_increase_on_the_axis(values: list[float], scale: str, zone: tuple[float, ...]) -> None:
    check_ticks(value_axis(values, HEIGHT, scale, zone).ticks, HEIGHT)


@given(st.lists(FINITE, min_size=2, max_size=30), SCALES)
def test_larger_values_never_stand_lower(values: list[float], scale: str) -> None:
    axis = value_axis(values, HEIGHT, scale)
    assert all(axis.at(one) <= axis.at(other) for one, other in pairwise(sorted(values)))


@given(st.integers(-(10**19), 10**19), st.integers(1, 10**19))
def test_ticks_of_steps_are_whole_and_increase(first: int, length: int) -> None:
    axis = step_axis(first, first + length, WIDTH)
    assert all(isinstance(tick.value, int) for tick in axis.ticks)
    check_ticks(axis.ticks or (Tick(0, 0, ""),), WIDTH)


@given(any_series(), st.integers(1, 20))
def test_thinning_keeps_the_extremes_of_every_column(series: Series, count: int) -> None:
    series = in_order(series)
    if not series.steps:
        return
    first, last = span_of([series])
    thin = thinned(series, first, last, count)
    kept = thin.points
    assert kept == sorted(kept, key=lambda point: point[0])
    assert set(kept) <= set(zip(series.steps, series.values, strict=True))
    covered = 0
    for begin, end in columns(series.steps, first, last, count):
        assert begin == covered
        covered = end
        fine = [value for value in series.values[begin:end] if math.isfinite(value)]
        here = [value for step, value in kept if series.steps[begin] <= step <= series.steps[end - 1]]
        assert len(here) <= 4
        assert (min(here), max(here)) == (min(fine), max(fine)) if fine else not here
    assert covered == len(series.steps)


@given(any_series())
def test_every_value_that_is_not_finite_is_counted_and_cuts_the_line(series: Series) -> None:
    series = in_order(series)
    thin = thinned(series, *span_of([series]), 50)
    assert sum(bad.nan for bad in thin.bad) == sum(map(math.isnan, series.values))
    assert sum(bad.infinite for bad in thin.bad) == sum(map(math.isinf, series.values))
    stretches = sum(
        math.isfinite(value) and (index == 0 or not math.isfinite(series.values[index - 1]))
        for index, value in enumerate(series.values)
    )
    assert len(thin.pieces) <= stretches
    if all(end - begin <= 4 for begin, end in columns(series.steps, *span_of([series]), 50)):
        assert len(thin.pieces) == stretches


def test_a_spike_among_a_million_points_survives() -> None:
    generator = random.Random(0)
    values = [generator.uniform(1.0, 2.0) for _ in range(1_000_000)]
    values[123_456], values[765_432], values[500_000] = 90.0, 0.01, math.nan
    made = plot("Loss", [("loss", Series("loss", tuple(range(len(values))), tuple(values)))])
    check(made)
    drawn = points(made)
    assert len(drawn) <= 4 * WIDTH + 4, "the page stays small"
    assert made.frame is not None
    highest = made.frame.point((123_456, 90.0))
    lowest = made.frame.point((765_432, 0.01))
    assert min(drawn, key=lambda point: point[1]) == highest
    assert max(drawn, key=lambda point: point[1]) == lowest
    assert [mark.says for mark in made.marks] == ["1 NaN in loss, step 500000"]
    assert "highest 90 at step 123456" in made.says


def test_a_million_values_none_of_them_finite() -> None:
    made = plot("Loss", [("loss", Series("loss", tuple(range(10**6)), (math.nan,) * 10**6))])
    assert made.missing == "Not one value is finite."
    assert [(mark.left, mark.right) for mark in made.marks] == [(0, WIDTH)]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ((2.5,), "One finite value: 2.5 at step 0."),
        ((2.5, 2.5, 2.5), "Constant: 2.5."),
        ((0.0, 0.0), "Constant: 0."),
        ((math.nan, math.inf, -math.inf), "3 of 3 values are NaN or Inf, the first at step 0."),
        ((1.0, math.nan, 2.0), "1 of 3 values is NaN or Inf, the first at step 1."),
        ((5e-324, 1.7976931348623157e308), "From 4.941e-324 to 1.798e+308"),
        ((-1.7976931348623157e308, 1.7976931348623157e308), "From -1.798e+308 to 1.798e+308"),
        ((1e16, 1e16 + 2), "lowest 1e+16 at step 0"),
        ((1e-310, 2e-310), "lowest 1e-310 at step 0"),
        ((0.0, 5e-324), "highest 4.941e-324 at step 1"),
        ((1.7001445164716897e308, 1.7001955226328366e308), "lowest 1.7e+308 at step 0"),
    ],
)
@pytest.mark.parametrize("scale", ["auto", "log", "share"])
def test_odd_series(values: tuple[float, ...], says: str, scale: str) -> None:
    made = plot("Loss", [("loss", of(*values))], scale=scale)
    check(made)
    assert says in made.says


def test_a_single_point_is_a_dot_in_the_middle() -> None:
    made = plot("Loss", [("loss", Series("loss", (7,), (0.5,)))])
    (line,) = made.lines
    assert line.pieces == ()
    assert line.dots == ((WIDTH / 2, HEIGHT / 2),)


def test_no_series_is_an_empty_panel() -> None:
    made = plot("Loss", [("loss", of())])
    assert made.frame is None
    assert made.missing == "Nothing was recorded."


def test_the_scale_follows_the_values() -> None:
    def log(*values: float, scale: str = "auto") -> bool:
        return value_axis(values, HEIGHT, scale).log

    assert not log(1.0, 2.0)
    assert log(0.01, 2.0)
    assert not log(0.0, 100.0), "an exact zero has no place on a logarithmic axis that nobody asked for"
    assert not log(-1.0, 100.0)
    assert log(1.0, 10.0, scale="log")
    assert not log(1.0, 1.1, scale="log"), "less than a factor of three reads better on a linear axis"
    assert not log(-1.0, 10.0, scale="log")
    assert not log(0.0, 0.0, scale="log")


def test_zeros_stand_below_every_positive_value_on_a_logarithmic_axis() -> None:
    axis = value_axis([0.0, 1e-8, 1.0], HEIGHT, "log")
    assert axis.log
    assert axis.at(0.0) == 0.0
    assert axis.at(1e-8) > 10.0
    assert axis.ticks[0] == Tick(0.0, 0.0, "0")


def test_small_changes_are_not_blown_up() -> None:
    axis = value_axis([2.302585, 2.302586], HEIGHT)
    assert axis.at(2.302586) - axis.at(2.302585) < 2.0


def test_labels_read_as_engineers_write_them() -> None:
    def labels(*values: float, scale: str = "auto") -> list[str]:
        return [tick.label for tick in value_axis(values, HEIGHT, scale).ticks]

    assert labels(1.2, 2.4) == ["1.2", "1.4", "1.6", "1.8", "2.0", "2.2", "2.4"]
    assert labels(1e-8, 1.0, scale="log") == ["1e-8", "1e-6", "1e-4", "1e-2", "1"]
    assert labels(0.01, 10.0, scale="log") == ["0.01", "0.1", "1", "10"]
    assert labels(0.0, 1.0, scale="share") == ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]
    assert [tick.label for tick in step_axis(0, 5000, WIDTH).ticks] == [
        "0",
        "1,000",
        "2,000",
        "3,000",
        "4,000",
        "5,000",
    ]
    assert [tick.label for tick in step_axis(3, 5, WIDTH).ticks] == ["3", "4", "5"]


def test_the_axis_reaches_the_zone() -> None:
    made = plot("Ratio", [("w", of(1e-7, 2e-7))], scale="log", zone=Zone(1e-4, 1e-2, "healthy"))
    check(made)
    assert made.zone is not None
    assert made.frame is not None
    assert 0 <= made.zone.high < made.zone.low < HEIGHT - made.frame.values.at(2e-7)


def layer(index: int, values: list[float]) -> tuple[str, Series]:
    return (f"layers.{index}.weight", Series("grad_norm", tuple(range(len(values))), tuple(values)))


def test_up_to_eight_layers_are_all_drawn() -> None:
    made = plot("Gradients", [layer(index, [10.0**-index] * 5) for index in range(MOST_LINES)], scale="log")
    assert [line.label for line in made.lines] == [f"layers.{index}.weight" for index in range(MOST_LINES)]
    assert len({line.colour for line in made.lines}) == MOST_LINES
    assert made.band is None


def test_of_many_layers_the_outermost_are_drawn_and_the_rest_lies_in_the_band() -> None:
    held = [layer(index, [10.0 ** -(index % 7)] * 5) for index in range(60)]
    held[33] = layer(33, [1e6] * 5)
    held[41] = layer(41, [1e-30] * 5)
    held.append(("layers.60.bias", of(1.0, 1.0)))
    made = plot("Gradients", held, scale="log")
    check(made)
    labels = [line.label for line in made.lines]
    assert len(labels) == MOST_LINES
    assert {"layers.33.weight", "layers.41.weight", "layers.0.weight"} <= set(labels)
    assert labels == sorted(labels, key=lambda name: int(name.split(".")[1])), "in the order of the layers"
    assert made.band is not None
    assert made.band.label == "lowest to highest of all 61"
    assert made.frame is not None
    corners = {made.frame.point((0, 1e6)), made.frame.point((4, 1e-30))}
    assert corners <= set(made.band.areas[0])


def test_nan_in_a_layer_that_is_not_drawn_is_still_seen() -> None:
    held = [layer(index, [1.0 + index] * 40) for index in range(30)]
    chosen = {line.label for line in plot("Gradients", held).lines}
    hidden = next(index for index in range(30) if f"layers.{index}.weight" not in chosen)
    held[hidden] = layer(hidden, [1.0 + hidden] * 20 + [math.nan] * 20)
    made = plot("Gradients", held)
    assert [mark.says for mark in made.marks] == [f"20 NaN in layers.{hidden}.weight, steps 20 to 39"]
    assert f"the first at step 20, in layers.{hidden}.weight" in made.says


@given(st.lists(any_series(st.floats(-10, 10)), min_size=1, max_size=12))
def test_the_band_holds_every_value(held: list[Series]) -> None:
    lowest, median, highest = spread(held)
    bounds = dict(zip(lowest.steps, zip(lowest.values, median.values, highest.values, strict=True), strict=True))
    for series in held:
        for step, value in zip(series.steps, series.values, strict=True):
            low, middle, high = bounds[step]
            assert low <= value <= high
            assert low <= middle <= high


def test_the_band_ends_where_most_layers_are_not_finite() -> None:
    held = [layer(index, [1.0, math.nan]) for index in range(9)] + [layer(9, [0.0, 0.0])]
    lowest, median, highest = spread([series for _, series in held])
    assert (lowest.values[0], median.values[0], highest.values[0]) == (0.0, 1.0, 1.0)
    assert all(math.isnan(item.values[1]) for item in (lowest, median, highest))


@given(st.lists(any_series(), min_size=MOST_LINES + 1, max_size=MOST_LINES + 4))
def test_a_crowded_plot_of_anything_stays_in_its_frame(held: list[Series]) -> None:
    made = plot("Gradients", [(f"p{index}", series) for index, series in enumerate(held)], scale="log")
    if made.frame is not None:
        check(made)


def test_several_plots_share_their_steps() -> None:
    short = plot("Loss", [("loss", of(1.0, 2.0))], span=(0, 100), flags=[(50, "here"), (500, "beyond")])
    assert short.frame is not None
    assert short.lines[0].pieces[0][-1][0] == pytest.approx(WIDTH / 100)
    assert [(flag.at, flag.label) for flag in short.flags] == [(WIDTH / 2, "here")]


def test_a_trace_out_of_order_is_put_in_order() -> None:
    made = plot("Loss", [("loss", Series("loss", (5, 0, 3), (1.0, 2.0, 3.0)))])
    xs = [x for x, _ in made.lines[0].pieces[0]]
    assert xs == sorted(xs)
    assert made.lines[0].last == "1"
