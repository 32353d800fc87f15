"""Collecting: every point and every NaN arrives, damage costs itself, what is known is not read twice.

The stores are written here byte by byte, as their makers do; where W&B or MLflow is installed, by them.
"""

import json
import math
import os
import sqlite3
import struct
import zlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.sweep.cache import keep
from clew.sweep.collect_folders import settings_in
from clew.sweep.collect_wandb import BLOCK, records
from clew.sweep.points import Collected, Found, Point
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
    read = records(framed(bodies))
    assert read.records == tuple(bodies)
    assert (read.damaged, read.torn) == (0, False)


def test_wandb_offline_runs(clew: Clew, tmp_path: Path) -> None:
    for index in range(4):
        folder = tmp_path / "wandb" / f"offline-run-{index}"
        (folder / "files").mkdir(parents=True)
        (folder / "files" / "output.log").write_text("printed\n")
        (folder / f"run-r{index}.wandb").write_bytes(wandb_log(0.1 * (index % 2 + 1), index // 2, f"r{index}"))
    torn = tmp_path / "wandb" / "offline-run-3" / "run-r3.wandb"
    torn.write_bytes(torn.read_bytes()[:-40])
    said = clew("sweep", "collect", "wandb")
    assert said.status == 1
    assert "ends inside a record" in said.err
    assert same(points(tmp_path), VALUES)
    rows = {row["run_id"]: row for row in pyarrow.parquet.read_table(tmp_path / "runs.parquet").to_pylist()}
    assert rows["r0"]["state"] == "finished"
    assert rows["r3"]["state"] == "crashed"
    assert (rows["r2"]["config.lr"], rows["r2"]["config.seed"], rows["r2"]["group"]) == (0.1, 1, "g1")
    assert (tmp_path / "runs.logs" / "r0.log").read_text() == "printed\n"


def test_a_damaged_record_costs_itself(tmp_path: Path) -> None:
    data = bytearray(framed([b"one", b"two", b"three"]))
    data[7 + 10 + 7] ^= 0xFF
    read = records(bytes(data))
    assert read.records == (b"one", b"three")
    assert read.damaged == 1
    assert tmp_path.exists()


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


def test_tensorboard_folders_keep_every_point(clew: Clew, tmp_path: Path) -> None:
    folder = tmp_path / "tb" / "lr=0.1,seed=3"
    folder.mkdir(parents=True)
    count = 12_000
    with open(folder / "events.out.tfevents.1.x", "wb") as file:
        for step in range(count):
            value = math.nan if step == 5 else step / 4
            scalar = field(1, b"acc") + bytes([0x15]) + struct.pack("<f", value)
            event = field(2, step) + field(5, field(1, scalar))
            head = struct.pack("<Q", len(event))
            file.write(head + struct.pack("<I", masked(head)) + event + struct.pack("<I", masked(event)))
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


def test_newer_wins_columns_merge_and_old_files_are_not_read_again(clew: Clew, tmp_path: Path) -> None:
    def found(name: str, updated: float, value: float, **config: object) -> Found:
        return Found(name, "s", "g", "finished", "", updated, config, (Point("acc", 0, value),))

    path = str(tmp_path / "runs.parquet")
    assert keep(path, Collected((found("a", 10.0, 1.0, lr=1), found("b", 10.0, 2.0)), ())).new == 2
    again = keep(path, Collected((found("a", 20.0, 3.0, wd=5), found("b", 5.0, 9.0), found("c", 1.0, 4.0)), ()))
    assert (again.new, again.renewed, again.total, again.points) == (1, 1, 3, 3)
    rows = {row["run_id"]: row for row in pyarrow.parquet.read_table(path).to_pylist()}
    assert (rows["a"]["acc"], rows["a"]["config.wd"], rows["b"]["acc"]) == (3.0, 5.0, 2.0)
    (tmp_path / "tb").mkdir()
    old = tmp_path / "tb" / "events.out.tfevents.1.x"
    old.write_bytes(b"\0" * 5)
    os.utime(old, (1.0, 1.0))
    assert clew("sweep", "collect", "tb").err == ""
    assert "middle of a record" in clew("sweep", "collect", "tb", "--all").err


def test_the_cache_says_how_old_it_is(clew: Clew, tmp_path: Path) -> None:
    held = [
        Found(f"{lr}{seed}", "s", "g", "finished", "", 1.0, {"lr": lr, "seed": seed}, (Point("acc", 0, lr + seed),))
        for lr in (1.0, 2.0, 3.0)
        for seed in range(3)
    ]
    keep(str(tmp_path / "runs.parquet"), Collected(tuple(held), ()), now=0.0)
    assert "days ago" in clew("sweep", "judge", "runs.parquet", "--metric", "acc").out


def test_nothing_to_collect(clew: Clew, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    said = clew("sweep", "collect", "empty")
    assert said.status == 2
    assert clew("sweep", "collect", "nowhere").status == 2
    assert not (tmp_path / "runs.parquet").exists()


def test_real_wandb_and_mlflow(tmp_path: Path, clew: Clew, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'ml.db'}")
    with mlflow.start_run():
        for step, value in enumerate(VALUES):
            mlflow.log_metric("acc", value, step=step)
    assert clew("sweep", "collect", "ml.db").status == 0
    assert same(points(tmp_path), VALUES)


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
