"""What a random search shows: nothing in noise, the parameter that matters, its range, its cliff."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from clew.sweep.distributions import NORMAL, f_cdf
from clew.sweep.importance import Settings, basis, cliffs, narrowed, share_interval, shares
from clew.sweep.trend import ranks
from conftest import Clew

Effect = Callable[[Any], Any]


def searched(random: np.random.Generator, count: int, params: int, effect: Effect, noise: float = 1.0) -> Settings:
    x = random.random((count, params))
    y = effect(x) + noise * random.standard_normal(count)
    score = np.array([NORMAL.inv_cdf((one - 0.5) / count) for one in ranks(y)])
    columns = tuple(tuple(map(float, column)) for column in x.T)
    return Settings(tuple("abcdefgh"[:params]), columns, score, np.ones(count), np.zeros(count))


def nothing(x: Any) -> Any:
    return 0.0 * x[:, 0]


@pytest.mark.parametrize("shift", [0.0, 0.3, 7.0, 80.0])
def test_the_noncentral_f_is_that_of_scipy(shift: float) -> None:
    for f, d1, d2 in ((0.3, 1, 5), (2.5, 3, 20), (30.0, 2, 40)):
        expected = stats.ncf.cdf(f, d1, d2, shift) if shift else stats.f.cdf(f, d1, d2)
        assert f_cdf(f, d1, d2, shift) == pytest.approx(expected, abs=1e-9)


def test_an_interval_of_the_share_turns_the_noncentral_f_around() -> None:
    low, high = share_interval(6.0, 3, 30)
    for share, expected in ((low, 0.975), (high, 0.025)):
        assert f_cdf(6.0, 3, 30, share / (1 - share) * 34) == pytest.approx(expected, abs=1e-6)
    assert share_interval(0.5, 3, 30)[0] == 0.0


def test_f_is_that_of_a_regression_with_and_without() -> None:
    held = searched(np.random.default_rng(3), 30, 2, lambda x: 2.0 * x[:, 1])
    parts = [np.ones((30, 1)), *(basis(column, 3) for column in held.columns)]

    def left(x: Any) -> float:
        return float(np.linalg.lstsq(x, held.score, rcond=None)[1][0])

    whole, without = left(np.hstack(parts)), left(np.hstack([parts[0], parts[2]]))
    f = (without - whole) / 3 / (whole / (30 - 7))
    found = shares(held, 0, 49)[0]
    assert found.share == pytest.approx(max(0.0, (f - 1) * 3 / ((f - 1) * 3 + 30)))


def test_in_noise_nothing_is_told() -> None:
    """A small version of `bench/sweep.py importance`."""
    random = np.random.default_rng(0)
    told = steep = 0
    for index in range(40):
        held = searched(random, 24, 3, nothing)
        told += min(one.p for one in shares(held, index, 199)) <= 0.05
        steep += bool(cliffs(held))
    assert told <= 7
    assert steep <= 7


def test_what_matters_is_found_and_the_draws_are_fixed() -> None:
    held = searched(np.random.default_rng(1), 40, 4, lambda x: 6.0 * x[:, 2])
    found = shares(held, 5)
    assert [one.p <= 0.05 for one in found] == [False, False, True, False]
    assert found[2].low < found[2].share < found[2].high
    assert shares(held, 5) == found


def test_the_narrowed_range_says_how_many_carry_it() -> None:
    held = searched(np.random.default_rng(2), 40, 2, lambda x: -20.0 * (x[:, 0] - 0.3) ** 2, 0.1)
    found = narrowed(held, 0)
    assert found.low is not None
    assert found.high is not None
    assert 0.05 < found.low < 0.3 < found.high < 0.55
    assert (found.carried, found.of) == (10, 40)
    assert found.by_chance is not None
    assert found.by_chance < 0.01
    assert (narrowed(held, 1).by_chance or 0.0) > 0.05


def test_the_chance_of_lying_so_close_is_that_of_uniform_draws() -> None:
    """The span of k uniform numbers follows a beta distribution with k - 1 and 2."""
    k, span = 7, 0.5
    assert k * span ** (k - 1) - (k - 1) * span**k == pytest.approx(stats.beta.cdf(span, k - 1, 2))


def test_a_cliff_beside_the_best() -> None:
    held = searched(np.random.default_rng(4), 40, 2, lambda x: np.where(x[:, 0] > 0.7, -9.0, 3 * x[:, 0]), 0.05)
    found = cliffs(held)
    assert [(one.name, one.side) for one in found] == [("a", "above")]
    assert found[0].value < 0.7 < found[0].next_value


def write_search(path: Path, broken: bool = False) -> None:
    random = np.random.default_rng(6)
    lines = ["run_id,lr,wd,opt,seed,acc"]
    for index in range(30):
        lr, wd, opt = 10 ** random.uniform(-5, 0), 10 ** random.uniform(-6, -2), random.choice(["adam", "sgd"])
        for seed in range(2):
            acc = 0.8 - 0.05 * (math.log10(lr) + 3) ** 2 + 0.02 * random.normal()
            lines.append(f"{index}-{seed},{lr:.4g},{wd:.4g},{opt},{seed},{'nan' if broken and lr > 0.02 else acc}")
    path.write_text("\n".join(lines) + "\n")


def test_the_command(clew: Clew, tmp_path: Path) -> None:
    write_search(tmp_path / "s.csv", broken=True)
    said = clew("sweep", "importance", "s.csv", "--metric", "acc", "--json", "out.json")
    assert (said.status, said.err) == (0, "")
    table = json.loads((tmp_path / "out.json").read_text())
    group = table["groups"][0]
    assert (table["command"], group["settings"], group["runs"]) == ("sweep importance", 30, 60)
    assert [row["name"] for row in group["importance"] if row["mattered"]] == ["lr"]
    assert [row["name"] for row in group["ranges"]] == ["lr"]
    assert group["ranges"][0]["high"] < 0.03
    assert "Mattered: lr" in said.out


@pytest.mark.parametrize(
    ("content", "words", "expected"),
    [
        ("lr,acc\n1,2\n3,4\n", [], "at least eight"),
        ("lr,acc\n" + "".join(f"{i},{i}\n" for i in range(9)), ["--param", "rl"], "no parameter 'rl'"),
        ("acc\n1\n2\n", [], "no parameter varies"),
        (
            "".join([",".join("abcdefgh") + ",acc\n", *(",".join([str(i)] * 9) + "\n" for i in range(9))]),
            [],
            "no param",
        ),
    ],
)
def test_searches_that_cannot_be_read(
    clew: Clew, tmp_path: Path, content: str, words: list[str], expected: str
) -> None:
    (tmp_path / "s.csv").write_text(content)
    said = clew("sweep", "importance", "s.csv", "--metric", "acc", *words)
    assert said.status == 2
    assert expected in said.err
