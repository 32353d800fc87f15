"""Crashed runs, diverged values, and the plain recipe."""

import numpy as np
import pytest

from clew.sweep.decide import aligned_ranks, decide, far_below, plain_recipe


def test_survivors_of_a_value_that_crashes_are_not_called_better() -> None:
    """The worst runs of value 0 crash: its survivors look better, and it must lean to the worse side."""
    random = np.random.default_rng(0)
    table = random.standard_normal((20, 4))
    crashed = np.zeros_like(table, dtype=bool)
    crashed[:, 0] = table[:, 0] < 0.0
    table[crashed] = np.nan
    found = decide(table, crashed)
    assert found.ranked
    assert found.rows[0].lead > 0
    assert found.rows[0].lean < 0
    assert found.rows[0].crashed == crashed.sum()


def test_ranks_do_not_depend_on_the_level_of_a_seed() -> None:
    random = np.random.default_rng(1)
    table = random.standard_normal((5, 3))
    crashed = np.zeros_like(table, dtype=bool)
    crashed[2, 1] = True
    table[2, 1] = np.nan
    moved = table + np.arange(5.0)[:, None] * 100
    assert aligned_ranks(table, crashed).tolist() == aligned_ranks(moved, crashed).tolist()
    assert aligned_ranks(table, crashed)[2, 1] == 1.0


def test_a_diverged_value_is_found_and_a_ladder_is_not() -> None:
    random = np.random.default_rng(2)
    table = random.standard_normal((5, 4))
    none = np.zeros_like(table, dtype=bool)
    assert far_below(table, none) == ()
    assert far_below(table + np.arange(4.0) * 20, none) == ()
    table[:, 2] -= 50
    assert far_below(table, none) == (2,)


def test_a_value_that_always_crashed_is_set_apart() -> None:
    table = np.random.default_rng(3).standard_normal((5, 3))
    crashed = np.zeros_like(table, dtype=bool)
    table[:, 1], crashed[:, 1] = np.nan, True
    found = decide(table, crashed)
    assert found.apart == (1,)
    assert not found.ranked


def test_the_plain_recipe_by_hand() -> None:
    table = np.array([[1.0, 2.0, 6.0], [2.0, 1.0, 9.0], [0.0, 3.0, 3.0]])
    rows = [(row - row.mean()) / row.std(ddof=1) for row in table]
    z = np.array(rows)
    mean, t = plain_recipe(table)
    assert mean == pytest.approx(z.mean(0))
    assert t == pytest.approx(z.mean(0) / (z.std(0, ddof=1) / np.sqrt(3)))


def test_two_values_that_agree_have_no_bound() -> None:
    _, t = plain_recipe(np.array([[0.0, 1.0], [3.0, 5.0], [2.0, 2.5]]))
    assert t.tolist() == [-np.inf, np.inf]
