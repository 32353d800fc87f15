"""Collecting: every point and every NaN arrives, damage costs itself, what is known is not read twice.

The stores are written here byte by byte, as their makers do. test_collect_real.py has them written by their makers.
"""

import json
import math
import os
import sqlite3
import struct
import time
import zlib
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.sweep.cache import Kept, Writer
from clew.sweep.collect_folders import settings_in
from clew.sweep.collect_wandb import BLOCK, Pieces
from clew.sweep.points import Found, Points
from clew.sweep.summary import summarise
from clew.symptoms.logs_tensorboard import masked
from conftest import Clew

VALUES = [0.25, math.nan, math.inf, -math.inf, 1e-300, 0.5]


def same(found: list[float], expected: list[float]) -> bool:
    return [repr(one) for one in found] == [repr(one) for one in expected]


def points(path: Path, name: str = "acc") -> list[float]:
    rows = pyarrow.parquet.read_table(path / "runs.points.parquet").to_pylist()
    first = rows[0]["run_id"]
    return [row["value"] for row in rows if row["name"] == name and row["run_id"] == first]


def varint(value: int) -> bytes:
    made = b""
    while value > 0x7F:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


def field(number: int, body: bytes | int) -> bytes:
    if isinstance(body, int):
        return varint(number << 3) + varint(body)
    return varint(number << 3 | 2) + varint(len(body)) + body


def framed(bodies: list[bytes]) -> bytes:
    """The pieces of a log in blocks of 32 KiB."""
    data = bytearray(struct.pack("<4sHB", b":W&B", 0xBEE1, 0))
    for body in bodies:
        first = True
        while True:
            left = BLOCK - len(data) % BLOCK
            if left < 7:
                data += b"\0" * left
                continue
            part, body = body[: left - 7], body[left - 7 :]
            kind = (1 if not body else 2) if first else (4 if not body else 3)
            data += struct.pack("<IHB", zlib.crc32(part, zlib.crc32(bytes([kind]))), len(part), kind) + part
            first = False
            if not body:
                break
    return bytes(data)


def wandb_log(lr: float, seed: int, name: str) -> bytes:
    def item(key: str, value: object) -> bytes:
        return field(1, field(1, key.encode()) + field(16, json.dumps(value).encode()))

    run = (
        field(1, name.encode()) + field(3, b"project") + field(6, b"g1") + field(4, item("lr", lr) + item("seed", seed))
    )
    history = [field(2, item("acc", value) + item("_step", step)) for step, value in enumerate(VALUES)]
    return framed([field(17, run), field(4, b"x" * 70_000), *history, field(18, field(1, 0))])


@given(st.lists(st.binary(max_size=90_000), max_size=5))
def test_framing_comes_back(bodies: list[bytes]) -> None:
    read = Pieces(framed(bodies))
    assert list(read) == bodies
    assert (read.damaged, read.torn) == (0, False)


def test_wandb_offline_runs(clew: Clew, tmp_path: Path) -> None:
    for index in range(4):
        folder = tmp_path / "wandb" / f"offline-run-{index}"
        (folder / "files").mkdir(parents=True)
        (folder / "files" / "output.log").write_text("printed\n")
        (folder / f"run-r{index}.wandb").write_bytes(wandb_log(0.1 * (index % 2 + 1), index // 2, f"r{index}"))
    torn = tmp_path / "wandb" / "offline-run-3" / "run-r3.wandb"
    torn.write_bytes(torn.read_bytes()[:-40])
    os.utime(torn, (1.8e9, 1.7e9))
    said = clew("sweep", "collect", "wandb")
    assert said.status == 1
    assert "ends inside a record" in said.err
    assert same(points(tmp_path), VALUES)
    rows = {row["run_id"]: row for row in pyarrow.parquet.read_table(tmp_path / "runs.parquet").to_pylist()}
    assert rows["r0"]["state"] == "finished"
    assert rows["r3"]["state"] == "crashed"
    assert (rows["r2"]["config.lr"], rows["r2"]["config.seed"], rows["r2"]["group"]) == (0.1, 1, "g1")
    assert (tmp_path / "runs.logs" / "r0.log").read_text() == "printed\n"


def test_a_damaged_record_costs_itself() -> None:
    data = bytearray(framed([b"one", b"two", b"three"]))
    data[7 + 10 + 7] ^= 0xFF
    read = Pieces(bytes(data))
    assert list(read) == [b"one", b"three"]
    assert read.damaged == 1


def mlflow_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as held, held:
        held.executescript(
            "create table experiments (experiment_id integer, name text);"
            "create table runs (run_uuid text, experiment_id integer, status text, start_time int, end_time int);"
            "create table params (run_uuid text, key text, value text);"
            "create table metrics (key text, value double, timestamp int, run_uuid text, step int, is_nan bool);"
        )
        held.execute("insert into experiments values (1, 'exp')")
        held.execute("insert into runs values ('r', 1, 'FINISHED', 1760000000000, 1760000001000)")
        held.execute("insert into params values ('r', 'lr', '0.1')")
        for step, value in enumerate(VALUES):
            stored = 0.0 if math.isnan(value) else math.copysign(1.7976931348623157e308, value)
            stored = value if math.isfinite(value) else stored
            held.execute("insert into metrics values ('acc', ?, 0, 'r', ?, ?)", (stored, step, math.isnan(value)))


def test_mlflow_database(clew: Clew, tmp_path: Path) -> None:
    mlflow_database(tmp_path / "ml.db")
    assert clew("sweep", "collect", "ml.db").status == 0
    assert same(points(tmp_path), VALUES)


def test_mlflow_folder(clew: Clew, tmp_path: Path) -> None:
    run = tmp_path / "mlruns" / "1" / "abc"
    (run / "metrics" / "val").mkdir(parents=True)
    (run / "params").mkdir()
    (tmp_path / "mlruns" / "1" / "meta.yaml").write_text("name: exp\n")
    (run / "meta.yaml").write_text("run_id: abc\nstatus: 3\nstart_time: 1760000000000\n")
    (run / "params" / "lr").write_text("0.1")
    (run / "metrics" / "val" / "acc").write_text(
        "".join(f"1 {value!r} {at}\n" for at, value in enumerate(VALUES)) + "1 7"
    )
    assert clew("sweep", "collect", "mlruns").status == 0
    assert same(points(tmp_path, "val/acc"), VALUES)


def event(step: int, value: float) -> bytes:
    """One scalar, framed as TensorBoard does."""
    scalar = field(1, b"acc") + bytes([0x15]) + struct.pack("<f", value)
    held = field(2, step) + field(5, field(1, scalar))
    head = struct.pack("<Q", len(held))
    return head + struct.pack("<I", masked(head)) + held + struct.pack("<I", masked(held))


def test_tensorboard_folders_keep_every_point(clew: Clew, tmp_path: Path) -> None:
    folder = tmp_path / "tb" / "lr=0.1,seed=3"
    folder.mkdir(parents=True)
    count = 12_000
    with open(folder / "events.out.tfevents.1.x", "wb") as file:
        for step in range(count):
            file.write(event(step, math.nan if step == 5 else step / 4))
        file.write(b"\x05\0\0")
    said = clew("sweep", "collect", "tb")
    assert "middle of a record" in said.err
    found = points(tmp_path)
    assert len(found) == count
    assert math.isnan(found[5])
    assert found[-1] == (count - 1) / 4


def test_names_of_folders() -> None:
    assert settings_in("lr=0.1,seed=3") == {"lr": 0.1, "seed": 3}
    assert settings_in("runs/lr=1e-3_seed=2") == {"lr": 0.001, "seed": 2}


def test_a_corrupt_source_costs_itself_alone(clew: Clew, tmp_path: Path) -> None:
    mlflow_database(tmp_path / "ml.db")
    (tmp_path / "bad.db").write_bytes(b"this is no database at all" * 100)
    said = clew("sweep", "collect", "bad.db", "ml.db")
    assert said.status == 1
    assert "bad.db" in said.err
    assert pyarrow.parquet.read_table(tmp_path / "runs.parquet").num_rows == 1


def kept(path: str, *runs: Found, looked: dict[str, float] | None = None, now: float | None = None) -> Kept:
    with Writer(path) as writer:
        for found in runs:
            writer.add(found)
        return writer.finish(looked or {}, now)


def made(name: str, updated: float, value: float, **config: object) -> Found:
    return Found(name, "s", "g", "finished", "", updated, config, Points([("acc", 0, value)]))


def test_newer_wins_and_columns_merge(tmp_path: Path) -> None:
    path = str(tmp_path / "runs.parquet")
    assert kept(path, made("a", 10.0, 1.0, lr=1, opt=1), made("b", 10.0, 2.0)).new == 2
    again = kept(path, made("a", 20.0, 3.0, wd=5, opt="x"), made("b", 5.0, 9.0), made("c", 1.0, 4.0, opt=2.5))
    assert again == Kept(new=1, renewed=1, total=3, points=3)
    rows = {row["run_id"]: row for row in pyarrow.parquet.read_table(path).to_pylist()}
    assert (rows["a"]["acc"], rows["a"]["config.wd"], rows["b"]["acc"]) == (3.0, 5, 2.0)
    assert "config.lr" not in rows["a"]
    assert (rows["a"]["config.opt"], rows["c"]["config.opt"]) == ("x", "2.5")


def test_the_newest_of_one_look_wins_in_any_order(tmp_path: Path) -> None:
    for order in ([3.0, 1.0, 2.0], [1.0, 2.0, 3.0]):
        path = str(tmp_path / f"{order[0]}.parquet")
        assert kept(path, *(made("a", at, at) for at in order)) == Kept(1, 0, 1, 1)
        assert pyarrow.parquet.read_table(path).to_pylist()[0]["acc"] == 3.0
        assert [row["value"] for row in points_of(path)] == [3.0]


def points_of(path: str) -> list[dict[str, Any]]:
    return list(pyarrow.parquet.read_table(path.replace(".parquet", ".points.parquet")).to_pylist())


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(0, 5), st.lists(st.floats(width=64), max_size=4)), max_size=12
    ),
    st.integers(0, 12),
)
def test_any_two_looks_leave_the_newest_of_each_run(looks: list[tuple[str, int, list[float]]], cut: int) -> None:
    newest: dict[str, tuple[int, list[float]]] = {}
    for name, updated, values in looks:
        if name not in newest or updated >= newest[name][0]:
            newest[name] = (updated, values)

    def run(name: str, at: int, values: list[float]) -> Found:
        return Found(name, "s", "g", "", "", at, {}, Points(("acc", step, value) for step, value in enumerate(values)))

    with TemporaryDirectory() as folder:
        path = os.path.join(folder, "runs.parquet")
        for part in (looks[:cut], looks[cut:]):
            kept(path, *(run(*one) for one in part))
        found: dict[str, list[float]] = {name: [] for name in newest}
        for row in points_of(path):
            found[row["run_id"]].append(row["value"])
    for name, (_, values) in newest.items():
        assert same(found[name], values)


def test_only_what_is_new_is_read_again_source_by_source(clew: Clew, tmp_path: Path) -> None:
    def folder(name: str, at: float) -> Path:
        (tmp_path / name).mkdir()
        path = tmp_path / name / "events.out.tfevents.1.x"
        path.write_bytes(event(0, 1.0) + b"\0" * 5)
        os.utime(path, (at, at))
        return path

    folder("tb", 1.0)
    assert "middle of a record" in clew("sweep", "collect", "tb").err
    again = clew("sweep", "collect", "tb")
    assert (again.status, again.err) == (0, "")
    assert "tb (tensorboard): 0 runs read" in again.out
    assert "last filled 0 minutes ago" in again.out
    assert "middle of a record" in clew("sweep", "collect", "tb", "--all").err
    # A source that was never looked at is new, however old its files are.
    folder("other", 1.0)
    assert "1 run new" in clew("sweep", "collect", "other").out
    # What changed within the margin before the last look is read again.
    os.utime(tmp_path / "tb" / "events.out.tfevents.1.x", (time.time() - 3600,) * 2)
    assert "1 renewed" in clew("sweep", "collect", "tb").out


def test_a_source_that_failed_is_not_taken_for_read(clew: Clew, tmp_path: Path) -> None:
    mlflow_database(tmp_path / "ml.db")
    whole = (tmp_path / "ml.db").read_bytes()
    (tmp_path / "a.csv").write_text("run_id,lr,acc\na,1,0.5\n")
    (tmp_path / "ml.db").write_bytes(whole[:3000])
    said = clew("sweep", "collect", "ml.db", "a.csv")
    assert said.status == 1
    assert "ml.db could not be read as an MLflow database" in said.err
    (tmp_path / "ml.db").write_bytes(whole)
    assert "1 run new" in clew("sweep", "collect", "ml.db").out


def test_two_folders_of_the_same_name_stay_two_runs(clew: Clew, tmp_path: Path) -> None:
    for place in ("a", "b"):
        folder = tmp_path / place / "tb" / "lr=0.1" / "seed=3"
        folder.mkdir(parents=True)
        (folder / "events.out.tfevents.1.x").write_bytes(event(0, 1.0))
    assert "2 runs new" in clew("sweep", "collect", "a/tb", "b/tb").out
    rows = pyarrow.parquet.read_table(tmp_path / "runs.parquet").to_pylist()
    assert [(row["config.lr"], row["config.seed"], row["group"]) for row in rows] == [(0.1, 3, "tb")] * 2


def test_one_cache_is_filled_by_one_at_a_time(clew: Clew, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("run_id,lr,acc\na,1,0.5\n")
    with Writer(str(tmp_path / "runs.parquet")):
        said = clew("sweep", "collect", "a.csv")
    assert (said.status, "another clew" in said.err) == (2, True)
    assert clew("sweep", "collect", "a.csv").status == 0
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "runs.parquet", "runs.points.parquet"]


def test_a_table_is_never_overwritten_as_if_it_were_a_cache(clew: Clew, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"run_id": ["a"], "acc": [1.0]}), tmp_path / "mine.parquet")
    (tmp_path / "a.csv").write_text("run_id,lr,acc\na,1,0.5\n")
    said = clew("sweep", "collect", "a.csv", "--into", "mine.parquet")
    assert said.status == 2
    assert "no cache" in said.err


def test_the_cache_says_how_old_it_is(clew: Clew, tmp_path: Path) -> None:
    held = [
        Found(f"{lr}{seed}", "s", "g", "finished", "", 1.0, {"lr": lr, "seed": seed}, Points([("acc", 0, lr + seed)]))
        for lr in (1.0, 2.0, 3.0)
        for seed in range(3)
    ]
    kept(str(tmp_path / "runs.parquet"), *held, now=0.0)
    assert "days ago" in clew("sweep", "judge", "runs.parquet", "--metric", "acc").out


def test_nothing_to_collect(clew: Clew, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    said = clew("sweep", "collect", "empty")
    assert said.status == 2
    assert clew("sweep", "collect", "nowhere").status == 2
    assert not (tmp_path / "runs.parquet").exists()


def test_summary_of_many_groups_against_a_slow_version() -> None:
    random = np.random.default_rng(0)
    group, value, seed = (part.ravel() for part in np.indices((3, 4, 5)))
    metric = random.normal(size=60)
    metric[7] = np.nan
    found = summarise(group, value, seed, metric)
    table = metric.reshape(3, 4, 5)
    for g in range(3):
        z = (table[g] - np.nanmean(table[g], 0)) / np.nanstd(table[g], 0, ddof=1)
        for v in range(4):
            held = table[g, v][np.isfinite(table[g, v])]
            assert found.mean[g, v] == pytest.approx(held.mean())
            assert (found.q10[g, v], found.q90[g, v]) == pytest.approx(tuple(np.quantile(held, [0.1, 0.9])))
            own = z[v][np.isfinite(z[v])]
            assert found.z[g, v] == pytest.approx(own.mean())
            assert found.t[g, v] == pytest.approx(own.mean() / (own.std(ddof=1) / math.sqrt(len(own))))
    assert found.crashed.sum() == 1
