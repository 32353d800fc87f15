"""The permutation test, against slow versions and scipy."""

import math
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from clew.sweep.permute import guard, leads, own_t, statistics, unpaired, within_seeds


def slow(table: list[list[float]]) -> tuple[list[float], list[float]]:
    """Every rearrangement within every seed, one after another."""

    def lead(rows: list[tuple[float, ...]], v: int) -> float:
        gaps = [row[v] - (sum(row) - row[v]) / (len(row) - 1) for row in rows]
        return abs(sum(gaps) / math.sqrt(len(gaps)))

    values = len(table[0])
    observed = [lead([tuple(row) for row in table], v) for v in range(values)]
    count, one, largest = 0, [0] * values, [0] * values
    for rows in product(*(list(permutations(row)) for row in table)):
        found = [lead(list(rows), v) for v in range(values)]
        count += 1
        for v in range(values):
            one[v] += found[v] >= observed[v] * (1 - 1e-9) - 1e-12
            largest[v] += max(found) >= observed[v] * (1 - 1e-9) - 1e-12
    return [x / count for x in one], [x / count for x in largest]


def plain_p(lead: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> float:
    """Of scipy, which has no p for leads that are all equal: those are certain unless they are zero."""
    if lead.std() <= 1e-12 * max(1.0, float(np.abs(lead).max())):
        return 0.0 if abs(float(lead.mean())) > 1e-12 else 1.0
    return float(stats.ttest_1samp(lead, 0.0).pvalue)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 3), st.integers(2, 4), st.integers(0, 10_000))
@example(2, 4, 284)  # leads that cancel but for rounding
def test_enumeration(values: int, seeds: int, seed: int) -> None:
    table = np.random.default_rng(seed).normal(size=(seeds, values)).round(2)
    found = within_seeds(table)
    p, adjusted = slow(table.tolist())
    assert found.exact
    assert found.p == pytest.approx(p)
    plain = [plain_p(column) for column in leads(table).T]
    expected = [max(a, b, min(1.0, guard(values, seeds) * c)) for a, b, c in zip(p, adjusted, plain, strict=True)]
    assert found.adjusted == pytest.approx(expected, abs=1e-7)


def test_two_values_are_a_sign_flip_test() -> None:
    table = np.random.default_rng(1).normal(size=(8, 2))
    gaps = table[:, 0] - table[:, 1]
    expected = stats.permutation_test(
        (gaps,), lambda x: abs(np.mean(x)), permutation_type="samples", alternative="greater", n_resamples=np.inf
    ).pvalue
    assert within_seeds(table).p[0] == pytest.approx(expected)


def test_drawn_rearrangements_come_near_all_of_them() -> None:
    table = np.random.default_rng(2).normal(size=(4, 3))
    every = within_seeds(table)
    import clew.sweep.permute as permute

    kept, permute.EVERY = permute.EVERY, 0
    try:
        drawn = within_seeds(table, seed=5)
        again = within_seeds(table, seed=5)
    finally:
        permute.EVERY = kept
    assert not drawn.exact
    assert drawn == again
    assert drawn.p == pytest.approx(every.p, abs=0.02)


@pytest.mark.parametrize(("values", "seeds", "least"), [(2, 5, 2 / 32), (2, 6, 2 / 64), (3, 3, 6 / 216), (2, 2, 0.5)])
def test_the_smallest_p_that_is_possible(values: int, seeds: int, least: float) -> None:
    table = np.arange(float(values))[None, :] * 100 + np.arange(float(seeds))[:, None]
    found = within_seeds(table)
    assert found.least == pytest.approx(least)
    assert min(found.p) >= found.least - 1e-12


def test_missing_cells_stay_missing() -> None:
    table = np.array([[1.0, 2.0, 4.0], [1.5, np.nan, 4.5], [1.0, 2.0, 4.0], [0.5, 2.5, 4.0]])
    assert np.isnan(leads(table)[1, 1])
    assert leads(table)[1, 0] == pytest.approx(-3.0)
    found = within_seeds(table)
    assert found.tables == 6 * 2 * 6 * 6
    assert found.p[2] < found.p[1]


def test_own_t_is_that_of_scipy() -> None:
    table = np.random.default_rng(3).normal(size=(7, 4))
    for (t, n), column in zip(own_t(table), leads(table).T, strict=True):
        assert n == 7
        assert t == pytest.approx(stats.ttest_1samp(column, 0.0).statistic)


def test_a_constant_lead_has_no_bound() -> None:
    table = np.array([[0.0, 1.0], [5.0, 6.0], [2.0, 3.0]])
    assert own_t(table)[1][0] == math.inf
    assert statistics(table)[1] == pytest.approx(math.sqrt(3))


def test_unpaired_is_uniform_under_noise_and_small_for_an_effect() -> None:
    random = np.random.default_rng(4)
    found = [unpaired([random.normal(size=6), random.normal(size=6)], seed, 199).p[0] for seed in range(120)]
    assert stats.kstest(found, "uniform").pvalue > 0.001
    assert unpaired([random.normal(size=8), random.normal(size=8) + 5.0], 0, 999).adjusted[1] < 0.01


def test_false_alarms_in_pure_noise_stay_at_five_per_cent() -> None:
    """A small version of `bench/sweep.py errors`."""
    random = np.random.default_rng(5)
    alarms = 0
    for _ in range(300):
        table = random.lognormal(size=(5, 4)) + random.normal(size=(5, 1))
        alarms += min(within_seeds(table, 0, 199).adjusted) <= 0.05
    assert alarms / 300 <= 0.08
