"""`clew sweep judge` from end to end: one table for every verdict, and input that cannot be judged."""

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.sweep import read
from clew.sweep.read import read_table
from conftest import Clew

Row = dict[str, Any]
Effect = Callable[[Any, int], float]


def rows(values: list[Any], seeds: int, effect: Effect, name: str = "lr", noise: float = 0.01) -> list[Row]:
    random = np.random.default_rng(11)
    return [
        {name: value, "seed": seed, "acc": float(0.7 + effect(value, seed) + 0.02 * seed + noise * random.normal())}
        for seed in range(seeds)
        for value in values
    ]


def write(path: Path, held: list[Row]) -> None:
    names = list(dict.fromkeys(name for row in held for name in row))
    lines = [",".join(names)] + [",".join(str(row.get(name, "")) for name in names) for row in held]
    path.write_text("\n".join(lines) + "\n")


def judged(clew: Clew, tmp_path: Path, held: list[Row], *words: str) -> tuple[int, dict[str, Any]]:
    write(tmp_path / "runs.csv", held)
    said = clew("sweep", "judge", "runs.csv", "--metric", "acc", "--json", "out.json", *words)
    assert said.err == ""
    return said.status, json.loads((tmp_path / "out.json").read_text())


def only(table: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = table["groups"][0]["params"][0]
    return found


def nothing(_value: Any, _seed: int) -> float:
    return 0.0


@pytest.fixture(params=["pyarrow", "plain"])
def _reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """CSV is read with and without pyarrow."""
    if request.param == "plain":
        monkeypatch.setitem(sys.modules, "pyarrow", None)


@pytest.mark.usefixtures("_reader")
def test_reliably_better(clew: Clew, tmp_path: Path) -> None:
    status, table = judged(clew, tmp_path, rows([0.001, 0.01, 0.1], 6, lambda v, _: 0.05 * (v == 0.01)))
    param = only(table)
    assert (status, param["verdict"], param["best"]) == (0, "reliable_better", 0.01)
    best = param["values"][1]
    assert set(best) >= {"value", "n_seeds", "mean", "q10", "q90", "z", "t", "p", "p_adjusted", "ci", "crashed"}
    assert best["ci"][0] < 0.05 < best["ci"][1]
    assert table["schema"] == "clew/1"
    assert table["command"] == "sweep judge"


def test_a_goal_of_min_turns_everything(clew: Clew, tmp_path: Path) -> None:
    held = rows([0.001, 0.01, 0.1], 6, lambda v, _: -0.05 * (v == 0.01))
    assert only(judged(clew, tmp_path, held, "--goal", "min")[1])["best"] == 0.01
    assert only(judged(clew, tmp_path, held, "--goal", "max")[1])["best"] is None


def test_no_effect(clew: Clew, tmp_path: Path) -> None:
    status, table = judged(clew, tmp_path, rows([0.001, 0.01, 0.1], 6, nothing))
    assert (status, only(table)["verdict"], only(table)["best"]) == (0, "no_effect", None)


@pytest.mark.parametrize(("limit", "says"), [("MOST_UNPACKED", "in one row group"), ("MOST_CELLS", "cells")])
def test_a_parquet_file_that_declares_too_much_is_refused(
    clew: Clew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, says: str
) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    monkeypatch.setattr(read, limit, 1000)
    table = arrow.table({"acc": ["x" * 500] * 600, "seed": [0] * 600})
    parquet.write_table(table, tmp_path / "big.parquet", compression="zstd", use_dictionary=False)
    for words in (("judge", "big.parquet", "--metric", "acc"), ("collect", "big.parquet")):
        said = clew("sweep", *words)
        assert said.status == 2
        assert says in said.err
        assert len(said.err.splitlines()) == 1


def test_one_seed_is_refused(clew: Clew, tmp_path: Path) -> None:
    status, table = judged(clew, tmp_path, rows(["a", "b", "c"], 1, lambda v, _: v == "b"), "--param", "lr")
    param = only(table)
    assert (status, param["verdict"]) == (1, "too_few_seeds")
    assert all(row["t"] is None and row["ci"] is None and row["p"] is None for row in param["values"])


def test_two_values_need_six_seeds(clew: Clew, tmp_path: Path) -> None:
    def effect(value: Any, _: int) -> float:
        return 0.2 if value == "b" else 0.0

    five = only(judged(clew, tmp_path, rows(["a", "b"], 5, effect))[1])
    assert five["verdict"] == "too_few_seeds"
    assert "six" in five["says"]
    assert only(judged(clew, tmp_path, rows(["a", "b"], 6, effect))[1])["verdict"] == "reliable_better"


def test_confounded(clew: Clew, tmp_path: Path) -> None:
    held = rows([0.001, 0.01, 0.1], 6, lambda v, _: v)
    for row in held:
        row["batch_size"] = {0.001: 16, 0.01: 32, 0.1: 64}[row["lr"]]
    status, table = judged(clew, tmp_path, held, "--param", "lr")
    assert (status, only(table)["verdict"], only(table)["also_varies"]) == (1, "confounded", ["batch_size"])
    assert only(table)["best"] is None


def test_a_crossed_parameter_does_not_confound(clew: Clew, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    held = [
        {"lr": lr, "wd": wd, "seed": seed, "acc": 0.05 * (lr == 0.01) + 0.3 * wd + 0.01 * random.normal()}
        for lr in (0.001, 0.01, 0.1)
        for wd in (0, 1)
        for seed in range(5)
    ]
    param = only(judged(clew, tmp_path, held, "--param", "lr")[1])
    assert (param["verdict"], param["best"]) == ("reliable_better", 0.01)


def test_crashed_runs_are_ranked_last(clew: Clew, tmp_path: Path) -> None:
    held = rows([0.001, 0.01, 0.1], 6, lambda v, _: 0.01 * (v == 0.1))
    for row in held:
        if row["lr"] == 0.1 and row["seed"] in (0, 1, 2):
            row["acc"] = "nan"
    status, table = judged(clew, tmp_path, held)
    assert (status, only(table)["verdict"]) == (1, "crashed_runs")
    assert only(table)["values"][2]["crashed"] == 3
    assert table["groups"][0]["crashed"] == 3


def test_lucky_seed(clew: Clew, tmp_path: Path) -> None:
    held = rows([0.001, 0.01, 0.1], 6, lambda v, s: 0.4 * (v == 0.1 and s == 3))
    param = only(judged(clew, tmp_path, held)[1])
    assert param["verdict"] == "lucky_seed"
    assert "seed 3" in param["says"]


def test_dose_response(clew: Clew, tmp_path: Path) -> None:
    held = rows([1, 2, 3, 4], 5, lambda v, _: 0.03 * v, "layers")
    param = only(judged(clew, tmp_path, held)[1])
    assert param["verdict"] == "dose_response"
    assert param["trend"]["r"] > 0.9
    assert param["trend"]["p"] < 0.01


def test_a_single_step_is_no_dose_response(clew: Clew, tmp_path: Path) -> None:
    held = rows([1, 2, 3, 4], 6, lambda v, _: 0.1 * (v == 4), "layers")
    assert only(judged(clew, tmp_path, held)[1])["verdict"] == "reliable_better"


def test_best_of_many(clew: Clew, tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    held = [{"k": k, "seed": s, "acc": float(random.normal() + 0.8 * (k == 7))} for s in range(8) for k in range(25)]
    param = only(judged(clew, tmp_path, held, "--param", "k")[1])
    assert param["verdict"] == "multiple_comparisons"
    assert any(item["id"] == "best_of_many" for item in param["warnings"])


def test_a_diverged_value_is_set_apart(clew: Clew, tmp_path: Path) -> None:
    held = rows([0.001, 0.01, 0.1, 10], 6, lambda v, _: -50.0 if v == 10 else 0.0)
    param = only(judged(clew, tmp_path, held)[1])
    assert [row["diverged"] for row in param["values"]] == [False, False, False, True]
    assert param["verdict"] == "no_effect"
    assert all(abs(row["z"]) < 0.9 for row in param["values"][:3])


def test_groups_are_never_compared_across(clew: Clew, tmp_path: Path) -> None:
    held = [{**row, "group": "a"} for row in rows([1, 2, 3], 4, nothing, "k")]
    held += [{**row, "group": "b", "acc": row["acc"] + 5} for row in rows([1, 2, 3], 4, nothing, "k")]
    table = judged(clew, tmp_path, held, "--param", "k")[1]
    assert [group["group"] for group in table["groups"]] == ["a", "b"]
    assert {only({"groups": [group]})["verdict"] for group in table["groups"]} == {"no_effect"}
    assert [g["group"] for g in judged(clew, tmp_path, held, "--param", "k", "--group", "b")[1]["groups"]] == ["b"]


def test_missing_duplicate_and_unequal_seeds_are_said(clew: Clew, tmp_path: Path) -> None:
    held = rows(["a", "b", "c"], 6, nothing)
    held = [*held[:-1], dict(held[0])]
    ids = {item["id"]: item["says"] for item in only(judged(clew, tmp_path, held)[1])["warnings"]}
    assert "c with seed 5" in ids["missing_cells"]
    assert ids["duplicates"].startswith("1 run")
    assert "seed_sets_differ" in ids


def test_values_without_shared_seeds_are_compared_unpaired(clew: Clew, tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    held = [
        {"opt": opt, "seed": 10 * at + s, "acc": random.normal() + 6 * (opt == "b")}
        for at, opt in enumerate("ab")
        for s in range(7)
    ]
    param = only(judged(clew, tmp_path, held, "--param", "opt")[1])
    assert param["paired"] is False
    assert param["verdict"] == "reliable_better"


@pytest.mark.parametrize("text", ["tpr - fpr", "-(fpr - tpr) * 2 / 2.0", "tpr**1 - `rate/fpr`"])
def test_a_metric_may_be_arithmetic_on_columns(clew: Clew, tmp_path: Path, text: str) -> None:
    random = np.random.default_rng(0)
    held: list[Row] = [
        {"lr": lr, "seed": seed, "tpr": 0.8 + lr, "fpr": (f := float(random.random())), "rate/fpr": f}
        for seed in range(6)
        for lr in (0.1, 0.2)
    ]
    write(tmp_path / "runs.csv", held)
    said = clew("sweep", "judge", "runs.csv", "--metric", text, "--json", "out.json")
    assert said.err == ""
    table = json.loads((tmp_path / "out.json").read_text())
    params = table["groups"][0]["params"]
    assert [param["name"] for param in params] == ["lr"]
    for row in params[0]["values"]:
        expected = [one["tpr"] - one["fpr"] for one in held if one["lr"] == row["value"]]
        assert row["mean"] == pytest.approx(sum(expected) / 6)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__import__('os').system('touch x') - 1", "brackets on columns"),
        ("acc - nothing", "no column 'nothing'"),
        ("acc -", "no metric"),
        ("acc if acc else 1", "no metric"),
        ("acc." * 4000 + "x - 1", "no metric"),
        ("acc - [acc for _ in acc]", "brackets on columns"),
    ],
)
def test_a_metric_is_never_evaluated(clew: Clew, tmp_path: Path, text: str, expected: str) -> None:
    write(tmp_path / "runs.csv", rows([1, 2], 6, nothing))
    said = clew("sweep", "judge", "runs.csv", "--metric", text)
    assert said.status == 2
    assert expected in said.err
    assert not (tmp_path / "x").exists()


def test_groups_of_one_sweep_are_merged(clew: Clew, tmp_path: Path) -> None:
    def part(name: str, seeds: range, **more: Any) -> list[Row]:
        random = np.random.default_rng(3)
        return [
            {"group": name, "lr": lr, "seed": seed, "acc": lr + 0.01 * float(random.random()), **more}
            for seed in seeds
            for lr in (0.1, 0.2)
        ]

    words = ("--merge", "A", "A-fill")
    status, table = judged(clew, tmp_path, part("A", range(4)) + part("A-fill", range(4, 8)), *words)
    assert (status, [group["group"] for group in table["groups"]]) == (0, ["A"])
    assert (table["groups"][0]["n_seeds"], only(table)["verdict"]) == (8, "reliable_better")
    for name, values in {"commit": ("a1", "b2"), "dropout": (0.1, 0.2)}.items():
        held = part("A", range(4), **{name: values[0]}) + part("A-fill", range(4, 8), **{name: values[1]})
        write(tmp_path / "runs.csv", held)
        said = clew("sweep", "judge", "runs.csv", "--metric", "acc", *words)
        assert said.status == 2
        assert f"{name} differs ({values[0]} and {values[1]})" in said.err
    assert "at least two" in clew("sweep", "judge", "runs.csv", "--metric", "acc", "--merge", "A").err
    assert "no group 'B'" in clew("sweep", "judge", "runs.csv", "--metric", "acc", "--merge", "A", "B").err


def test_the_same_seed_gives_the_same_file(clew: Clew, tmp_path: Path) -> None:
    held = rows([1, 2, 3, 4, 5], 8, lambda v, _: 0.004 * (v == 2), "k")
    judged(clew, tmp_path, held, "--param", "k")
    first = (tmp_path / "out.json").read_bytes()
    judged(clew, tmp_path, held, "--param", "k")
    assert (tmp_path / "out.json").read_bytes() == first


def test_the_page_is_written_and_escapes(clew: Clew, tmp_path: Path) -> None:
    held = rows(["<b>", "b", "c"], 6, nothing)
    write(tmp_path / "runs.csv", held)
    assert clew("sweep", "judge", "runs.csv", "--metric", "acc", "--html", "page.html").status == 0
    page = (tmp_path / "page.html").read_text()
    assert "<polyline" in page
    assert "&lt;b&gt;" in page
    assert "<b>," not in page


def test_after_and_where_choose_runs(clew: Clew, tmp_path: Path) -> None:
    held = [{**row, "created": f"2026-0{1 + row['seed'] // 4}-01", "host": "x"} for row in rows([1, 2, 3], 8, nothing)]
    table = judged(clew, tmp_path, held, "--after", "2026-02-01")[1]
    assert table["groups"][0]["n_runs"] == 12
    table = judged(clew, tmp_path, held, "--param", "lr", "--where", "seed=1")[1]
    assert table["groups"][0]["n_runs"] == 3


@pytest.mark.usefixtures("_reader")
@pytest.mark.parametrize(
    ("content", "words", "expected"),
    [
        (b"", [], "is empty"),
        (b"lr,seed,acc\n", [], "no rows"),
        (b"lr,seed,accuracy\n1,0,2\n2,0,3\n", [], "did you mean accuracy"),
        (b"lr,seed,acc\n1,0,0.5\n2,0,oops\n", ["--param", "lr"], "row 2"),
        (b"lr;seed;acc\n1;0;0,5\n2;0;0,7\n", ["--param", "lr"], "decimal point"),
        (b"lr,seed,acc\n1,0,nan\n2,0,nan\n", ["--param", "lr"], "nothing to compare"),
        (b"lr,seed,acc\n1,0,0.5\n", ["--param", "lr"], "one run"),
        (b"lr,seed,acc\n1,0,0.5\n1,1,0.5\n", ["--param", "lr"], "same value"),
        (b"lr,lr,acc\n1,0,0.5\n1,1,0.5\n", [], "two columns"),
        (b"lr,seed,acc\n1,0,0.5,9\n1,1,0.5\n", [], "no table"),
        (b"\x00\x01\x02garbage", [], "zero bytes"),
        (b"lr,seed,acc\n1,0,0.5\n2,0,0.6\n", ["--goal", "up"], "max or min"),
        (b"lr,seed,acc\n1,0,0.5\n2,0,0.6\n", ["--group", "x"], "no column that names groups"),
        (b"lr,seed,acc\n1,0,0.5\n2,0,0.6\n", ["--after", "soon"], "--after"),
    ],
)
def test_bad_input(clew: Clew, tmp_path: Path, content: bytes, words: list[str], expected: str) -> None:
    (tmp_path / "runs.csv").write_bytes(content)
    said = clew("sweep", "judge", "runs.csv", "--metric", "acc", "--json", "out.json", *words)
    assert said.status == 2
    assert expected in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(("reader", "expected"), [("pyarrow", "is damaged"), (None, "need pyarrow: pip install")])
def test_a_damaged_parquet_file(
    clew: Clew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str | None, expected: str
) -> None:
    if reader is None:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "runs.parquet").write_bytes(b"PAR1 but not really")
    said = clew("sweep", "judge", "runs.parquet", "--metric", "acc")
    assert (said.status, said.err.count("\n")) == (2, 1)
    assert expected in said.err


CELLS = st.sampled_from(
    ["0.1", "1e-1", " 7", "nan", "NaN", "inf", "", "null", "True", "x", "é y", "1" * 20, "-0", "a,b"]
)


@given(st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=30))
def test_both_readers_of_csv_see_the_same_cells(
    tmp_path_factory: pytest.TempPathFactory, held: list[list[str]]
) -> None:
    path = tmp_path_factory.mktemp("csv") / "runs.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["run_id", "lr", "acc"], *held])

    def cells() -> list[list[str]]:
        table = read_table(str(path))
        return [[repr(column.cell(row)) for column in table.columns.values()] for row in range(table.rows)]

    with pytest.MonkeyPatch.context() as patch:
        with_arrow = cells()
        patch.setitem(sys.modules, "pyarrow", None)
        assert cells() == with_arrow


@pytest.mark.parametrize("form", ["jsonl", "parquet", "utf-16", "cp1252", "tab"])
def test_every_form_of_table_says_the_same(clew: Clew, tmp_path: Path, form: str) -> None:
    held = rows(["é", "b", "c"], 6, lambda v, _: 0.05 * (v == "b"))
    expected = only(judged(clew, tmp_path, held)[1])
    names = list(held[0])
    text = "\n".join([",".join(names)] + [",".join(str(row[name]) for name in names) for row in held])
    path = tmp_path / f"other.{form}"
    if form == "jsonl":
        lines = [json.dumps({"config": {"lr": row["lr"]}, "seed": row["seed"], "acc": row["acc"]}) for row in held]
        path.write_text("\n".join(lines) + "\n{torn")
    elif form == "parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(held), path)
    elif form == "tab":
        path.write_text(text.replace(",", "\t"))
    else:
        path.write_bytes(text.encode(form))
    said = clew("sweep", "judge", path.name, "--metric", "acc", "--json", "again.json")
    assert said.err == ""
    found = only(json.loads((tmp_path / "again.json").read_text()))
    assert found["best"] == "b"
    assert [row["p_adjusted"] for row in found["values"]] == [row["p_adjusted"] for row in expected["values"]]


def test_mixed_ways_to_write_a_number_are_one_value(clew: Clew, tmp_path: Path) -> None:
    text = "lr,seed,acc\n0.10,0,1\n1e-1,1,2\n0.1,2,3\n0.2,0,1\n.2,1,2\n0.20,2,3\n"
    (tmp_path / "runs.csv").write_text(text)
    clew("sweep", "judge", "runs.csv", "--metric", "acc", "--json", "out.json")
    values = only(json.loads((tmp_path / "out.json").read_text()))["values"]
    assert [row["value"] for row in values] == [0.1, 0.2]
    assert [row["n_seeds"] for row in values] == [3, 3]


def test_a_run_logged_step_by_step_counts_once(clew: Clew, tmp_path: Path) -> None:
    held = [
        {"run_id": f"{v}-{s}", "lr": v, "seed": s, "step": step, "acc": v + s + 0.1 * step}
        for v in (1, 2, 3)
        for s in range(4)
        for step in range(5)
    ]
    table = judged(clew, tmp_path, held, "--param", "lr")[1]
    assert table["groups"][0]["n_runs"] == 12
    assert only(table)["values"][0]["mean"] == pytest.approx(1 + 1.5 + 0.4)


def test_no_torch_is_imported(tmp_path: Path) -> None:
    write(tmp_path / "runs.csv", rows([1, 2, 3], 4, nothing))
    code = (
        "import sys; from clew.cli import main;"
        "main(['sweep', 'judge', 'runs.csv', '--metric', 'acc', '--param', 'lr']);"
        "sys.exit(3 if 'torch' in sys.modules or 'scipy' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0
