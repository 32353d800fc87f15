"""Intervals and robust means, against scipy and slow versions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from clew.sweep.intervals import NONE, bca, bootstrap_t, improvement, iqm, t_interval, wilson

finite = st.floats(-1e6, 1e6).map(lambda x: round(x, 3))


@given(st.lists(finite, min_size=2, max_size=30))
def test_t_interval(values: list[float]) -> None:
    held = np.array(values)
    low, high = t_interval(held)
    error = held.std(ddof=1) / math.sqrt(len(held))
    if error > 0:
        expected = stats.t.interval(0.95, len(held) - 1, held.mean(), error)
        assert (low, high) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    else:
        assert low == high == held.mean()


@given(st.lists(finite, min_size=1, max_size=12))
def test_iqm_of_many_copies_is_the_trimmed_mean(values: list[float]) -> None:
    """With every value four times, a quarter of them is a whole number of values and plain trimming is exact."""
    assert iqm(np.array(values)) == pytest.approx(stats.trim_mean(np.repeat(values, 4), 0.25), rel=1e-9, abs=1e-6)


def test_bca_is_near_scipy() -> None:
    held = np.random.default_rng(5).lognormal(size=24)
    ours = bca(held, 0, resamples=20_000)
    theirs = stats.bootstrap(
        (held,), np.mean, n_resamples=20_000, method="BCa", random_state=np.random.default_rng(1)
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours[0] == pytest.approx(theirs.low, abs=0.03 * width)
    assert ours[1] == pytest.approx(theirs.high, abs=0.03 * width)


def test_bootstrap_t_against_a_slow_version() -> None:
    held = np.random.default_rng(6).normal(size=9)
    random = np.random.default_rng(7)
    picks = random.integers(0, 9, (300, 9))
    found = []
    for pick in picks:
        again = [float(held[at]) for at in pick]
        mean = sum(again) / 9
        spread = math.sqrt(sum((one - mean) ** 2 for one in again) / 8)
        found.append((mean - float(held.mean())) / (spread / 3))
    low, high = np.quantile(found, [0.025, 0.975])
    error = float(held.std(ddof=1)) / 3
    expected = (float(held.mean()) - high * error, float(held.mean()) - low * error)
    assert bootstrap_t(held, 7, resamples=300) == pytest.approx(expected)


def test_the_same_seed_gives_the_same_bits() -> None:
    held = np.random.default_rng(8).normal(size=21)
    assert bootstrap_t(held, 3) == bootstrap_t(held, 3)
    assert bca(held, 3) == bca(held, 3)
    assert bca(held, 3) != bca(held, 4)


def test_too_few_values_have_no_interval() -> None:
    assert math.isnan(t_interval(np.array([1.0]))[0])
    assert math.isnan(bca(np.arange(19.0), 0)[0])
    assert math.isnan(bootstrap_t(np.ones(8), 0)[0])
    assert NONE != NONE or math.isnan(NONE[0])


def test_t_interval_covers_at_five_seeds() -> None:
    tables = np.random.default_rng(9).standard_normal((2000, 5))
    inside = [low <= 0.0 <= high for low, high in map(t_interval, tables)]
    assert np.mean(inside) >= 0.93


@given(st.integers(0, 40), st.integers(1, 40))
def test_wilson(wins: int, n: int) -> None:
    wins = min(wins, n)
    expected = stats.binomtest(wins, n).proportion_ci(0.95, method="wilson")
    assert wilson(wins, n) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_improvement_counts_ties_half() -> None:
    assert improvement(np.array([1.0, 2.0, 3.0, 0.0]), np.array([0.0, 2.0, 4.0, -1.0])) == 0.625
