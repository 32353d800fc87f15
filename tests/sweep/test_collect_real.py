"""Runs written by W&B, MLflow and TensorBoard themselves: every point and every NaN arrives as it was logged."""

import math
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from clew.sweep.collect_wandb import BLOCK
from conftest import Clew

VALUES = [0.25, math.nan, math.inf, -math.inf, 1e-300, -0.1, 3.0, 0.5]


def same(found: list[float], expected: list[float]) -> bool:
    return [struct.pack("<d", one) for one in found] == [struct.pack("<d", one) for one in expected]


def runs(path: Path) -> list[dict[str, Any]]:
    held = pyarrow.parquet.read_table(path / "runs.parquet").to_pylist()
    return sorted(held, key=lambda row: (str(row.get("config.lr")), str(row["run_id"])))


def points(path: Path, run: str, name: str) -> tuple[list[int], list[float]]:
    rows = pyarrow.parquet.read_table(path / "runs.points.parquet").to_pylist()
    held = [row for row in rows if row["run_id"] == run and row["name"] == name]
    return [row["step"] for row in held], [row["value"] for row in held]


WANDB = """
import math, sys
import wandb
values = [float(word) for word in sys.argv[1].split()]
for index in range(2):
    run = wandb.init(
        mode="offline", project="p", group="g", name=f"n{index}", dir=".",
        config={"lr": 0.1 * (index + 1), "seed": index, "optimizer": {"name": "adam", "betas": [0.9, 0.99]}},
        settings=wandb.Settings(silent=True, x_disable_stats=True, x_disable_meta=True),
    )
    for step, value in enumerate(values):
        run.log({"acc": value, "val/loss": value, "deep": {"er": step}, "said": "text", "on": True})
    # Records of more than one block: a long one, and many.
    run.log({"acc": 1.0, "text": "x" * 70_000}, step=100)  # the step stays open for the next one
    for step in range(101, 1101):
        run.log({"many": step / 7})
    run.summary["best"] = 0.75
    print("printed by run", index)
    run.finish(exit_code=index)
"""


@pytest.fixture(scope="module")
def wandb_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("wandb")
    folder = tmp_path_factory.mktemp("wandb_runs")
    away = {"WANDB_CACHE_DIR": "cache", "WANDB_CONFIG_DIR": "config", "WANDB_DATA_DIR": "data", "WANDB_MODE": "offline"}
    words = " ".join(map(repr, VALUES))
    # Whatever W&B keeps in the environment of this process, a service of its own among it, is not for those runs.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    made = subprocess.run(
        [sys.executable, "-c", WANDB, words], cwd=folder, env={**clean, **away}, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    return folder / "wandb"


def test_wandb_wrote_it(wandb_runs: Path, clew: Clew, tmp_path: Path) -> None:
    said = clew("sweep", "collect", str(wandb_runs))
    assert (said.status, said.err) == (0, "")
    first, second = runs(tmp_path)
    for row in (first, second):
        assert (row["group"], row["config.optimizer.name"]) == ("g", "adam")
        steps, values = points(tmp_path, row["run_id"], "acc")
        assert steps == [*range(len(VALUES)), 100]
        assert same(values, [*VALUES, 1.0])
        assert same(points(tmp_path, row["run_id"], "val/loss")[1], VALUES)
        assert points(tmp_path, row["run_id"], "deep.er")[1] == list(range(len(VALUES)))
        assert points(tmp_path, row["run_id"], "many") == ([*range(100, 1100)], [one / 7 for one in range(101, 1101)])
        assert row["best"] == 0.75
        assert row["created"]
        assert "said" not in row
    assert (first["config.lr"], first["config.seed"], first["state"]) == (0.1, 0, "finished")
    assert (second["config.lr"], second["config.seed"], second["state"]) == (0.2, 1, "failed")
    assert "printed by run 0" in (tmp_path / first["log"]).read_text()


def test_every_cut_of_a_wandb_file_gives_what_was_whole(wandb_runs: Path, clew: Clew, tmp_path: Path) -> None:
    (path,) = sorted(wandb_runs.glob("offline-run-*/*.wandb"))[:1]
    data = path.read_bytes()
    assert len(data) > 3 * BLOCK
    counts = []
    for index, cut in enumerate((len(data) - 1, len(data) - 5000, 2 * BLOCK + 3, BLOCK - 100, 4000)):
        folder = tmp_path / f"cut{index}"
        folder.mkdir()
        (folder / path.name).write_bytes(data[:cut])
        os.utime(folder / path.name, (1.7e9, 1.7e9))
        said = clew("sweep", "collect", folder.name, "--into", f"{index}.parquet")
        assert "ends inside a record" in said.err
        row = pyarrow.parquet.read_table(tmp_path / f"{index}.parquet").to_pylist()[0]
        assert row["state"] == "crashed"
        held = pyarrow.parquet.read_table(tmp_path / f"{index}.points.parquet").to_pylist()
        many = [one["value"] for one in held if one["name"] == "many"]
        assert many == [step / 7 for step in range(101, 101 + len(many))]
        counts.append(len(held))
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[1] > counts[2] > 0


def test_a_flipped_bit_in_a_wandb_file_costs_its_record(wandb_runs: Path, clew: Clew, tmp_path: Path) -> None:
    (path,) = sorted(wandb_runs.glob("offline-run-*/*.wandb"))[:1]
    data = bytearray(path.read_bytes())
    (tmp_path / "bad").mkdir()
    at = data.rindex(b"many", 0, len(data) // 2)
    data[at] ^= 0x20
    (tmp_path / "bad" / path.name).write_bytes(data)
    said = clew("sweep", "collect", "bad")
    assert said.status == 1
    assert "1 damaged records left out" in said.err
    (row,) = runs(tmp_path)
    assert len(points(tmp_path, row["run_id"], "many")[0]) >= 999 - 1
    assert same(points(tmp_path, row["run_id"], "acc")[1], [*VALUES, 1.0])


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_wrote_it(clew: Clew, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    count = 11_000
    for seed in range(2):
        writer = SummaryWriter(str(tmp_path / "tb" / f"run{seed}"), flush_secs=1000)
        for step, value in enumerate(VALUES):
            writer.add_scalar("acc", value, step)
            writer.add_scalar("new", value, step, new_style=True)
            writer.add_scalar("exact", value, step, new_style=True, double_precision=True)
        for step in range(count if seed else 5):
            writer.add_scalar("many", step / 4, step)
        writer.add_text("note", "text")
        writer.add_histogram("h", np.array([1.0, 2.0]), 0)
        writer.add_hparams({"lr": 0.1, "opt": "adam", "seed": seed, "flag": True}, {"final": 0.5})
        writer.close()
    said = clew("sweep", "collect", "tb")
    assert (said.status, said.err) == (0, "")
    rows = runs(tmp_path)
    assert [(row["config.lr"], row["config.opt"], row["config.seed"], row["final"]) for row in rows] == [
        (0.1, "adam", 0, 0.5),
        (0.1, "adam", 1, 0.5),
    ]
    as_float = [struct.unpack("<f", struct.pack("<f", value))[0] for value in VALUES]
    for row in rows:
        for name, expected in (("acc", as_float), ("new", as_float), ("exact", VALUES)):
            steps, values = points(tmp_path, row["run_id"], name)
            assert steps == list(range(len(VALUES)))
            assert same(values, expected)
    assert points(tmp_path, rows[1]["run_id"], "many")[1] == [step / 4 for step in range(count)]


def log_with_mlflow(mlflow: Any, uri: str) -> list[str]:
    """Two runs, one of them failed; the last of three was deleted. Returns the ids of the two."""
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment("the experiment")
    made = []
    for index in range(3):
        run = client.create_run(experiment, tags={"who": "me"}).info.run_id
        for name, value in (("lr", 0.1 * (index + 1)), ("seed", index), ("note", "a: b")):
            client.log_param(run, name, value)
        for name in ("acc", "val/loss"):
            stamps = [mlflow.entities.Metric(name, value, 1000 + step, step) for step, value in enumerate(VALUES)]
            client.log_batch(run, metrics=stamps)
        client.set_terminated(run, "FAILED" if index == 1 else "FINISHED")
        made.append(run)
    client.delete_run(made.pop())
    return made


def check_mlflow(folder: Path, made: list[str]) -> None:
    rows = runs(folder)
    assert [row["run_id"] for row in rows] == made
    assert [row["state"] for row in rows] == ["finished", "failed"]
    assert {row["group"] for row in rows} == {"the experiment"}
    assert [(row["config.lr"], row["config.seed"]) for row in rows] == [("0.1", "0"), ("0.2", "1")]
    assert {(row["tag.who"], row["config.note"]) for row in rows} == {("me", "a: b")}
    for run in made:
        for name in ("acc", "val/loss"):
            steps, values = points(folder, run, name)
            assert steps == list(range(len(VALUES)))
            assert same(values, VALUES)


class Mlflow:
    """A tracking server on loopback over a database of its own."""

    def __init__(self, folder: Path) -> None:
        import socket

        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            port = held.getsockname()[1]
        self.folder, self.address = folder, f"http://127.0.0.1:{port}"
        self.database = folder / "ml.db"
        self.log = open(folder / "log", "w")  # noqa: SIM115 - the server writes to it until it is stopped
        quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "DO_NOT_TRACK": "1"}
        words = ["--backend-store-uri", f"sqlite:///{self.database}", "--artifacts-destination", str(folder / "art")]
        where = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *words, *where],
            cwd=folder,
            env={**os.environ, **quiet},
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait(self) -> None:
        from urllib.error import URLError
        from urllib.request import ProxyHandler, build_opener

        until = time.monotonic() + 120
        while time.monotonic() < until:
            assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
            try:
                with build_opener(ProxyHandler({})).open(f"{self.address}/health", timeout=5):
                    return
            except (URLError, OSError):
                time.sleep(0.2)
        raise AssertionError("the MLflow server does not answer")

    def stop(self) -> None:
        import signal
        from contextlib import suppress

        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mlflow]:
    pytest.importorskip("mlflow")
    pytest.importorskip("flask")
    made = Mlflow(tmp_path_factory.mktemp("mlflow"))
    try:
        made.wait()
        yield made
    finally:
        made.stop()


@pytest.mark.filterwarnings("ignore")
def test_an_mlflow_server_and_its_database(
    server: Mlflow, clew: Clew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    from clew.sweep import collect_mlflow_server

    made = log_with_mlflow(mlflow, server.address)
    # Small pages: what is asked for in several answers is put together.
    monkeypatch.setattr(collect_mlflow_server, "PAGE", 1)
    monkeypatch.setattr(collect_mlflow_server, "HISTORY", 3)
    said = clew("sweep", "collect", server.address)
    assert (said.status, said.err) == (0, "")
    check_mlflow(tmp_path, made)
    # The database is another source of the same runs: nothing is there twice.
    assert "2 runs read" in clew("sweep", "collect", str(server.database)).out
    check_mlflow(tmp_path, made)
    assert clew("sweep", "collect", f"{server.address}/#/experiments/nosuch").status == 1
    assert "2 runs read" in clew("sweep", "collect", f"mlflow:{server.address}#the experiment", "--all").out


@pytest.mark.filterwarnings("ignore")
def test_mlflow_wrote_a_folder(clew: Clew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    made = log_with_mlflow(mlflow, (tmp_path / "mlruns").as_uri())
    said = clew("sweep", "collect", "mlruns")
    assert (said.status, said.err) == (0, "")
    check_mlflow(tmp_path, made)
