"""The t distribution and the power of a paired test, against scipy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from clew.sweep.distributions import paired_power, seeds_needed, smallest_effect, t_quantile, t_two_sided


@given(st.floats(-80, 80), st.integers(1, 300))
def test_tail_of_t(t: float, df: int) -> None:
    assert t_two_sided(t, df) == pytest.approx(2 * stats.t.sf(abs(t), df), rel=1e-7, abs=1e-14)


@given(st.floats(0.0005, 0.9995), st.integers(1, 200))
def test_quantile_of_t(p: float, df: int) -> None:
    assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-7, abs=1e-7)


def test_tail_at_the_edges() -> None:
    assert t_two_sided(math.inf, 4) == 0.0
    assert t_two_sided(0.0, 4) == 1.0
    assert math.isnan(t_two_sided(1.0, 0))


@pytest.mark.parametrize("n", [2, 3, 5, 10, 40])
@pytest.mark.parametrize("effect", [0.0, 0.5, 1.0, 2.0])
def test_power_is_that_of_the_noncentral_t(n: int, effect: float) -> None:
    critical = stats.t.ppf(0.975, n - 1)
    shift = effect * math.sqrt(n)
    expected = stats.nct.sf(critical, n - 1, shift) + stats.nct.cdf(-critical, n - 1, shift)
    assert paired_power(effect, n) == pytest.approx(expected, abs=2e-4)


def test_smallest_effect_and_seeds_are_inverse() -> None:
    for n in (3, 6, 15):
        effect = smallest_effect(n)
        assert paired_power(effect, n) == pytest.approx(0.8, abs=1e-6)
        assert seeds_needed(effect * 1.0001) == n
    assert seeds_needed(0.0) is None
    assert smallest_effect(1) == math.inf


def test_power_in_simulated_sweeps() -> None:
    random = np.random.default_rng(3)
    gaps = random.standard_normal((4000, 8)) + 1.0
    seen = np.mean(stats.ttest_1samp(gaps, 0.0, axis=1).pvalue <= 0.05)
    assert paired_power(1.0, 8) == pytest.approx(seen, abs=0.03)
