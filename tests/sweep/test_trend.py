"""Trends against scipy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from clew.sweep.trend import correlation, ranks, trend
from clew.sweep.warn import expected_maximum


@given(st.lists(st.integers(-5, 5), min_size=3, max_size=12))
def test_ranks(values: list[int]) -> None:
    assert ranks(np.array(values, dtype=float)).tolist() == stats.rankdata(values).tolist()


def test_slopes_and_correlations() -> None:
    values = [1.0, 2.0, 3.0, 5.0]
    table = np.random.default_rng(0).normal(size=(6, 4)) + np.array(values)
    found = trend(values, table)
    assert found is not None
    slopes = [stats.linregress(values, row).slope for row in table]
    expected = stats.ttest_1samp(slopes, 0.0)
    assert (found.t, found.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert found.r == pytest.approx(np.mean([stats.pearsonr(values, row).statistic for row in table]))
    assert found.spearman == pytest.approx(np.mean([stats.spearmanr(values, row).statistic for row in table]))
    assert not found.log


def test_wide_ranges_are_taken_by_their_logarithm() -> None:
    found = trend([0.001, 0.01, 0.1], np.array([[1.0, 2.0, 3.0], [1.0, 2.1, 3.0]]))
    assert found is not None
    assert found.log
    assert found.slope == pytest.approx(1.0)


def test_a_peak_is_told_from_a_slope() -> None:
    random = np.random.default_rng(1)
    up = trend([1, 2, 3, 4, 5], np.arange(5.0) + 0.1 * random.normal(size=(5, 5)))
    peak = trend([1, 2, 3, 4, 5], np.array([0.0, 1.0, 2.0, 1.0, 0.0]) + 0.1 * random.normal(size=(5, 5)))
    assert up is not None
    assert up.shape == "rising"
    assert peak is not None
    assert (peak.shape, peak.peak) == ("peak", 3.0)


def test_no_trend_without_three_values_or_two_seeds() -> None:
    assert trend([1, 2], np.zeros((5, 2))) is None
    assert trend([1, 2, 3], np.zeros((1, 3))) is None


def test_correlation_of_a_constant_is_zero() -> None:
    assert correlation(np.ones(4), np.arange(4.0)) == 0.0


def test_expected_maximum_of_noise() -> None:
    drawn = np.random.default_rng(2).normal(size=(40_000, 10)).max(1).mean()
    assert expected_maximum(10) == pytest.approx(drawn, abs=0.02)
    assert expected_maximum(2) == pytest.approx(1 / np.sqrt(np.pi), abs=1e-4)
