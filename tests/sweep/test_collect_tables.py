"""Tables as sources: long and wide, in blocks; whatever is wrong with one costs a sentence and itself."""

import json
import math
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.sweep import read
from clew.sweep.points import Look
from clew.sweep.read import read_table
from clew.sweep.table import Distinct, cell, column, numbers, stacked
from conftest import Clew


def runs(path: Path) -> dict[str, dict[str, Any]]:
    return {row["run_id"]: row for row in pyarrow.parquet.read_table(path / "runs.parquet").to_pylist()}


def points(path: Path, run: str, name: str) -> list[tuple[int, float]]:
    rows = pyarrow.parquet.read_table(path / "runs.points.parquet").to_pylist()
    return [(row["step"], row["value"]) for row in rows if row["run_id"] == run and row["name"] == name]


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize("block", [200, 1 << 20])
def test_a_row_for_every_step(
    clew: Clew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, block: int
) -> None:
    monkeypatch.setattr(read, "BLOCK", block)
    monkeypatch.setattr(read, "LINES", block // 20)
    table = [
        {"run_id": f"1e{run}", "lr": 0.1 * (run % 2 + 1), "seed": run // 2, "step": 10 * step, "acc": run + step / 100}
        for step in range(50)
        for run in range(4)
    ]
    if form == "csv":
        lines = [",".join(map(str, row.values())) for row in table]
        (tmp_path / "t.csv").write_text("\n".join([",".join(table[0]), *lines]) + "\n")
    elif form == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), tmp_path / "t.parquet")
    else:
        (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, table)) + "\n")
    said = clew("sweep", "collect", f"t.{form}")
    assert (said.status, said.err) == (0, "")
    held = runs(tmp_path)
    assert set(held) == {"1e0", "1e1", "1e2", "1e3"}
    for run in range(4):
        assert points(tmp_path, f"1e{run}", "acc") == [(10 * step, run + step / 100) for step in range(50)]
        assert held[f"1e{run}"]["acc"] == run + 49 / 100
        assert held[f"1e{run}"]["config.lr"] == 0.1 * (run % 2 + 1)


def test_rows_that_share_an_id_are_all_kept(clew: Clew, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("run_id,lr,seed,acc\na,1,0,0.1\nb,1,1,0.2\na,1,0,0.3\n")
    said = clew("sweep", "collect", "t.csv")
    assert "1 run ids stand in several rows (2 in all) and no column names the step" in said.err
    assert points(tmp_path, "a", "acc") == [(0, 0.1), (1, 0.3)]
    assert runs(tmp_path)["a"]["acc"] == 0.3


def test_text_among_numbers_costs_its_cells(clew: Clew, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("run_id,lr,seed,acc,loss\na,1,0,0.1,1\nb,1,1,n.a!,2\nc,1,2,nan,inf\nd,1,3,,4\n")
    said = clew("sweep", "collect", "t.csv")
    assert said.err == "note: t.csv: 1 cell was left out of acc, for text where a number should be.\n"
    assert points(tmp_path, "b", "acc") == []
    assert math.isnan(points(tmp_path, "c", "acc")[0][1])
    assert points(tmp_path, "c", "loss") == [(0, math.inf)]
    assert points(tmp_path, "d", "acc") == []
    assert runs(tmp_path)["b"]["loss"] == 2.0


def test_every_bad_table_costs_itself_alone(clew: Clew, tmp_path: Path) -> None:
    bad = {
        "empty.csv": b"",
        "header.csv": b"run_id,acc\n",
        "zeros.csv": b"\0\1\2" * 50,
        "ragged.csv": b"run_id,acc\na,1\nb,1,2,3\n",
        "twice.csv": b"acc,acc\n1,2\n",
        "cut.parquet": b"PAR1" + b"x" * 40,
        "text.jsonl": b"not json\nneither\n",
        "list.json": b"[1, 2]",
        "torn.json": b'[{"a": 1},',
    }
    for name, data in bad.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "good.csv").write_text("run_id,lr,acc\na,1,0.5\n")
    said = clew("sweep", "collect", *bad, "good.csv", "--json", "out.json")
    assert said.status == 1
    lines = said.err.splitlines()
    assert len(lines) == len(bad)
    for name, line in zip(bad, lines, strict=True):
        assert line.startswith("note: ")
        assert name in line
        assert line.endswith(".")
    assert set(runs(tmp_path)) == {"a"}
    held = json.loads((tmp_path / "out.json").read_text())
    assert (held["command"], held["new"], held["total"]) == ("sweep collect", 1, 1)
    assert [bool(one["failed"]) for one in held["sources"]] == [True] * len(bad) + [False]


def test_encodings(clew: Clew, tmp_path: Path) -> None:
    text = "run_id,schedule,acc\nä,größer,0.5\nb,größer,0.25\n"
    for name, form in (("a.csv", "cp1252"), ("b.csv", "utf-16"), ("c.csv", "utf-8-sig")):
        (tmp_path / name).write_bytes(text.encode(form))
        clew("sweep", "collect", name, "--into", f"{name}.parquet")
        rows = pyarrow.parquet.read_table(tmp_path / f"{name}.parquet").to_pylist()
        assert {row["run_id"]: row["acc"] for row in rows} == {"ä": 0.5, "b": 0.25}
        assert {row["config.schedule"] for row in rows} == {"größer"}


def test_mixed_kinds_in_a_column(clew: Clew, tmp_path: Path) -> None:
    rows = [{"run_id": 1, "lr": 0.1, "acc": 1}, {"run_id": "2", "lr": "cosine", "acc": 2.5}, {"run_id": 3, "lr": True}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert clew("sweep", "collect", "t.jsonl").status == 0
    held = runs(tmp_path)
    assert [held[name]["config.lr"] for name in ("1", "2", "3")] == ["0.1", "cosine", "True"]
    assert (held["1"]["acc"], held["2"]["acc"], held["3"]["acc"]) == (1.0, 2.5, None)


def test_an_unchanged_table_is_not_read_again(clew: Clew, tmp_path: Path) -> None:
    import os

    (tmp_path / "t.csv").write_text("run_id,lr,acc\na,1,0.5\n")
    os.utime(tmp_path / "t.csv", (1e9, 1e9))
    assert "1 run new" in clew("sweep", "collect", "t.csv").out
    assert "0 runs read" in clew("sweep", "collect", "t.csv").out


def test_too_many_runs_for_a_cache(clew: Clew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clew.sweep import collect_tables

    monkeypatch.setattr(collect_tables, "MOST", 10)
    (tmp_path / "t.csv").write_text("run_id,lr,acc\n" + "".join(f"r{row},{row % 2},{row}\n" for row in range(20)))
    said = clew("sweep", "collect", "t.csv")
    assert said.status == 2
    assert "more than 10 runs, which is too many to collect; `clew sweep judge` reads it as it is." in said.err


CELLS = st.one_of(
    st.none(),
    st.floats(),
    st.integers(-(10**20), 10**20),
    st.sampled_from(
        ["", "nan", "inf", "-inf", "0.1", "1e-1", " 2", "x", "true", "é", "1_0", "NaN", "12345678901234567890"]
    ),
)


@settings(max_examples=60)
@given(st.lists(CELLS, min_size=1, max_size=30), st.integers(1, 7))
def test_blocks_of_a_column_are_the_column(values: list[Any], size: int) -> None:
    whole = column(values)
    parts = [(len(values[at : at + size]), column(values[at : at + size])) for at in range(0, len(values), size)]
    again = stacked([*parts, (2, None)])
    assert [repr(again.cell(row)) for row in range(len(values))] == [
        repr(whole.cell(row)) for row in range(len(values))
    ]
    assert again.cell(len(values)) is None
    assert len(again.labels) == len(whole.labels)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(st.floats(), st.none()), min_size=1, max_size=40))
def test_numbers_in_a_csv_come_back(tmp_path_factory: pytest.TempPathFactory, values: list[float | None]) -> None:
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text("acc,other\n" + "".join(f"{'' if one is None else repr(one)},1\n" for one in values))
    held = read_table(str(path))
    found, missing = numbers(held, "acc")
    assert missing.tolist() == [one is None for one in values]
    expected = [math.nan if one is None else one for one in values]
    assert [repr(float(one) + 0.0) for one in found] == [repr(one + 0.0) for one in expected]


def test_very_many_different_numbers_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "BLOCK", 1 << 14)
    monkeypatch.setattr(read, "MANY", 15_000)
    count = 30_000
    lines = "".join(f"r{row},{row % 3},{row / 7!r},{-row}\n" for row in range(count))
    (tmp_path / "t.csv").write_text("run_id,lr,acc,extra\n" + lines)
    held = read_table(str(tmp_path / "t.csv"), ("acc",))
    assert isinstance(held.columns["acc"].labels, Distinct)
    assert numbers(held, "acc")[0].tolist() == [row / 7 for row in range(count)]
    assert set(held.columns) == {"lr", "acc"}
    assert "run_id, extra" in held.notes[0] or "extra, run_id" in held.notes[0]


def test_a_number_of_many_digits_stays_itself() -> None:
    assert cell("1234567890123456789") == 1234567890123456789
    assert cell("123") == 123
    assert Look().settled(0.0, "x") is False
