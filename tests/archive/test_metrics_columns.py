"""Every point arrives exactly, from traces, from Parquet and from JSON lines."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clew.archive import metrics, runs
from clew.archive.model import METRICS, PARQUET, Run
from clew.errors import ClewError
from clew.records import exact
from clew.records.trace import Series

Points = list[tuple[str, str, int, float]]

names = st.sampled_from(["loss", "acc", "grad_norm", "ä/é"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=5
)
points = st.lists(
    st.tuples(names, st.sampled_from(["", "head.weight"]), st.integers(0, 99), st.floats(allow_nan=True)), max_size=40
)
quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)

TRACER = """
import sys
from clew.records import exact
with open(sys.argv[1], "a", buffering=1) as file:
    for step in range(10_000_000):
        file.write(exact.dumps(["loss", "", step, 1.0 / (step + 1)]) + "\\n")
        if step % 500 == 0:
            print(step, flush=True)
"""


def write(run: Run, pid: int, held: Points) -> None:
    text = "".join(exact.dumps(list(point)) + "\n" for point in held)
    Path(run.path(f"trace-{pid}.jsonl")).write_text(text)


def slow(parts: dict[int, Points]) -> dict[tuple[str, str], Series]:
    """The plainest way to say what should come out."""
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    several: dict[tuple[str, str], set[int]] = {}
    for pid, held in sorted(parts.items()):
        for name, of, step, value in held:
            found.setdefault((name, of), []).append((step, value))
            several.setdefault((name, of), set()).add(pid)
    for key, held_points in found.items():
        if len(several[key]) > 1:
            held_points.sort(key=lambda point: point[0])
    return {
        key: Series(key[0], tuple(step for step, _ in held), tuple(value for _, value in held), key[1])
        for key, held in found.items()
    }


def same(one: dict[tuple[str, str], Series], two: dict[tuple[str, str], Series]) -> bool:
    return set(one) == set(two) and all(exact.dumps(list(one[key])) == exact.dumps(list(two[key])) for key in one)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEW_HOME", str(tmp_path / ".clew"))
    return runs.begin(["a"])


@quick
@given(one=points, two=points, arrow=st.booleans())
def test_traces_and_columns_agree(tmp_path: Path, one: Points, two: Points, arrow: bool) -> None:
    pytest.importorskip("pyarrow")
    run = Run("run", str(tmp_path))
    for path in tmp_path.iterdir():
        path.unlink()
    write(run, 11, one)
    write(run, 12, two)
    wanted = slow({11: one, 12: two})
    assert same(metrics.read_metrics(run), wanted)
    with pytest.MonkeyPatch.context() as patch:
        if not arrow:
            patch.setattr(metrics, "_arrow", lambda: None)
        made = metrics.gather(run)
        assert made == ("" if not wanted else PARQUET if arrow else METRICS)
        patch.setattr(metrics, "SMALL", -1)
        read = metrics.read(run)
        assert read.source == (made or "traces")
        assert same(read.series, wanted)
        assert same(metrics.read_metrics(run, 12), slow({12: two}))
        for pid in (11, 12):
            os.unlink(run.path(f"trace-{pid}.jsonl"))
        assert same(metrics.read_metrics(run), wanted), "the columns stand by themselves"


def test_a_torn_trace_loses_its_last_line_and_says_so(run: Run) -> None:
    write(run, 5, [("loss", "", step, 0.5) for step in range(100)])
    path = Path(run.path("trace-5.jsonl"))
    path.write_bytes(path.read_bytes()[:-4])
    read = metrics.read(run)
    assert len(read.series["loss", ""].steps) == 99
    assert "trace-5.jsonl are torn" in read.remarks[0]


def test_kill_9_in_the_middle_of_a_trace(run: Run) -> None:
    path = run.path("trace-1.jsonl")
    writer = subprocess.Popen([sys.executable, "-c", TRACER, path], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    said = [int(writer.stdout.readline()) for _ in range(5)]
    writer.send_signal(signal.SIGKILL)
    said += [int(line) for line in writer.communicate()[0].split()]
    found = metrics.read_metrics(run)["loss", ""]
    assert found.steps == tuple(range(len(found.steps)))
    assert len(found.steps) > said[-1]
    assert found.values == tuple(1.0 / (step + 1) for step in found.steps)


def test_finishing_gathers_the_metrics(run: Run) -> None:
    write(run, 5, [("loss", "", 0, math.nan), ("loss", "", 1, -math.inf)])
    runs.finish(run, 0)
    assert os.path.exists(run.path(PARQUET)) or os.path.exists(run.path(METRICS))
    assert exact.dumps(metrics.read_metrics(run)["loss", ""].values) == exact.dumps([math.nan, -math.inf])


def test_a_damaged_parquet_falls_back_to_the_traces(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    write(run, 5, [("loss", "", 0, 1.0)])
    runs.finish(run, 0)
    path = Path(run.path(PARQUET))
    path.write_bytes(path.read_bytes()[:-9])
    monkeypatch.setattr(metrics, "SMALL", -1)
    read = metrics.read(run)
    assert read.series["loss", ""].values == (1.0,)
    assert "metrics.parquet is damaged" in read.remarks[0]
    os.unlink(run.path("trace-5.jsonl"))
    with pytest.raises(ClewError, match="is damaged"):
        metrics.read(run)


def test_parquet_of_others_and_of_the_future(run: Run) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for schema, says in ((None, "not written by clew"), ("clew/2", "newer clew"), ("clew/1", "no columns name")):
        table = arrow.table({"x": [1]}).replace_schema_metadata({"schema": schema} if schema else {})
        parquet.write_table(table, run.path(PARQUET))
        with pytest.raises(ClewError, match=says):
            metrics.read(run)


def test_columns_are_what_other_programs_expect(run: Run) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write(run, 5, [("loss", "", 0, math.nan), ("loss", "", 1, 1.0), ("norm", "head", 1, 2.0)])
    metrics.gather(run)
    rows = parquet.read_table(run.path(PARQUET)).to_pylist()
    assert [list(row) for row in rows] == [["name", "of", "step", "value", "pid"]] * 3
    assert math.isnan(rows[0]["value"])
    assert rows[2] == {"name": "norm", "of": "head", "step": 1, "value": 2.0, "pid": 5}
    column = parquet.ParquetFile(run.path(PARQUET)).metadata.row_group(0).column(3)
    assert column.path_in_schema == "value"
    assert column.statistics is None


def test_without_pyarrow_a_parquet_file_alone_is_a_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(run.path(PARQUET)).write_bytes(b"PAR1")
    monkeypatch.setattr(metrics, "_arrow", lambda: None)
    with pytest.raises(ClewError, match="needs pyarrow"):
        metrics.read(run)


def test_series_of_an_importer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    given_ = [Series("acc", (1, 2), (0.1, math.nan)), Series("acc", (5,), (0.2,), of="val")]
    for missing in (False, True):
        if missing:
            monkeypatch.setattr(metrics, "_arrow", lambda: None)
            Path(run.path(PARQUET)).unlink(missing_ok=True)
        metrics.keep(run, given_)
        assert same(metrics.read_metrics(run), {(item.name, item.of): item for item in given_})
    assert metrics.as_trace(run).parts("acc") == ("", "val")


def test_names_that_are_not_unicode(run: Run) -> None:
    write(run, 5, [("\ud800", "", 0, 1.0), ("\\ud800", "", 0, 2.0)])
    assert metrics.gather(run) == METRICS
    os.unlink(run.path("trace-5.jsonl"))
    assert {name: item.values for (name, _), item in metrics.read_metrics(run).items()} == {
        "\ud800": (1.0,),
        "\\ud800": (2.0,),
    }


def test_a_damaged_line_of_columns(run: Run) -> None:
    head = json.dumps({"schema": "clew/1"})
    good = json.dumps({"name": "a", "of": "", "pid": 1, "step": [0, 1], "value": [1.0, 2.0]})
    uneven = json.dumps({"name": "a", "of": "", "pid": 1, "step": [0], "value": []})
    Path(run.path(METRICS)).write_text(f"{head}\n{uneven}\n[]\n{good}\n{good[:20]}")
    read = metrics.read(run)
    assert read.series["a", ""].values == (1.0, 2.0)
    assert len(read.remarks) == 2
    Path(run.path(METRICS)).write_text('{"schema": "clew/2"}\n')
    with pytest.raises(ClewError, match="newer clew"):
        metrics.read(run)
