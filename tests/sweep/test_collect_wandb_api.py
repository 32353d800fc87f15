"""W&B's server: every row of history arrives although the server samples what is asked for too widely.

There is no W&B here, so a small server answers as theirs does to the queries that are asked: runs in pages, history as
lines of JSON with NaN as a word, and a sample wherever a window of steps holds more rows than were asked for. W&B's own
client, where it is installed, reads the same from it.
"""

import json
import math
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from clew.sweep import ask, collect_wandb_api
from conftest import Clew

WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def row(step: int, **values: float) -> str:
    held = {name: value if math.isfinite(value) else WORDS[str(value)] for name, value in values.items()}
    return json.dumps({"_step": step, "_runtime": 1.5, "_timestamp": 1.7e9, **held})


class Fake:
    """What the server holds, what it was asked, and how it misbehaves."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.busy = 0
        self.denied = False
        self.heartbeat = "2024-01-02T03:04:05"
        self.runs: dict[str, dict[int, str]] = {
            "dense": {step: row(step, acc=step / 7, loss=-1.0) for step in range(2500)},
            "sparse": {step * 1_000_003: row(step * 1_000_003, acc=float(step)) for step in range(40)},
            "clump": {3_000_000_000 + step: row(3_000_000_000 + step, acc=float(step)) for step in range(1700)},
            "odd": {
                0: row(0, acc=0.25),
                1: row(1, acc=math.nan),
                2: row(2, acc=math.inf),
                3: row(3, acc=-math.inf, **{"val/loss": 1e-300}),
            },
        }
        self.lost: dict[str, int] = {}
        self.address = ""

    def node(self, name: str) -> dict[str, Any]:
        lines = self.runs[name]
        return {
            "id": name,
            "name": name,
            "displayName": name,
            "state": "crashed" if name == "odd" else "finished",
            "group": "g",
            "sweepName": None,
            "jobType": None,
            "commit": None,
            "readOnly": False,
            "tags": [],
            "description": None,
            "notes": None,
            "projectId": "1",
            "systemMetrics": "{}",
            "user": {"name": "u", "username": "u"},
            "config": json.dumps(
                {"lr": {"value": 0.1, "desc": None}, "_wandb": {"value": {}}, "opt": {"value": {"b": 1}}}
            ),
            "summaryMetrics": json.dumps({"best": 0.9, "acc": 5, "_step": 3, "worst": "NaN"}),
            "createdAt": "2024-01-01T00:00:00",
            "heartbeatAt": self.heartbeat,
            "historyLineCount": len(lines) + self.lost.get(name, 0),
            "historyKeys": {"lastStep": max(lines), "sets": [], "keys": {}},
        }

    def answer(self, query: str, words: dict[str, Any]) -> dict[str, Any]:
        match = re.search(r"query\s+(\w+)", query)
        verb = match[1] if match else ""
        self.asked.append((verb, words))
        if words.get("project") not in (None, "project"):
            return {"data": {"project": None}}
        if "parquetHistory" in query:
            return {"data": {"project": {"run": {"parquetHistory": {"parquetUrls": [], "liveData": []}}}}}
        if re.search(r"\bhistory\(", query):
            return {"data": {"project": {"run": {"history": self.history(words)}}}}
        if "files(" in query:
            edges = []
            if words["run"] == "odd":
                edges = [{"node": {"name": "output.log", "directUrl": f"{self.address}/files/odd"}}]
            return {"data": {"project": {"run": {"files": {"edges": edges}}}}}
        if "runs(" in query:
            return {
                "data": {"project": {"internalId": "1", "readOnly": False, "runCount": 4, "runs": self.page(words)}}
            }
        if "run(" in query:
            return {"data": {"project": {"internalId": "1", "run": self.node(words["name"])}}}
        return {"data": {"viewer": {"id": "v", "entity": "me", "flags": "{}", "username": "u", "teams": {"edges": []}}}}

    def page(self, words: dict[str, Any]) -> dict[str, Any]:
        names, size = list(self.runs), min(int(words.get("perPage") or 50), 3)
        first = int(words.get("cursor") or 0)
        chosen = enumerate(names[first : first + size], first + 1)
        edges = [{"node": self.node(name), "cursor": str(place)} for place, name in chosen]
        after = first + size
        return {"edges": edges, "pageInfo": {"endCursor": str(after), "hasNextPage": after < len(names)}}

    def history(self, words: dict[str, Any]) -> list[str]:
        lines = self.runs[words["run"]]
        held = [line for step, line in sorted(lines.items()) if words["minStep"] <= step < words["maxStep"]]
        most = int(words["pageSize"])
        # A sample is somewhat shorter than what was asked for.
        return held if len(held) <= most else held[:: math.ceil(len(held) / (0.9 * most))]


def handler(fake: Fake) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.send(200, b"Traceback\nRuntimeError: boom\n" if self.path == "/files/odd" else b"{}")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path != "/graphql":
                self.send(404, b"{}")
                return
            held = json.loads(body)
            if fake.busy:
                fake.busy -= 1
                self.send(429, b"{}")
            elif fake.denied or not self.headers.get("Authorization", "").startswith("Basic "):
                self.send(401, json.dumps({"error": "user is not logged in"}).encode())
            else:
                self.send(200, json.dumps(fake.answer(held["query"], held.get("variables") or {})).encode())

        def log_message(self, *_: object) -> None:
            return

    return Handler


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Fake]:
    made = Fake()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(made))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    made.address = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("WANDB_BASE_URL", made.address)
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setattr(ask, "PAUSE", 0.01)
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


def points(path: Path, run: str, name: str = "acc") -> dict[int, float]:
    rows = pyarrow.parquet.read_table(path / "runs.points.parquet").to_pylist()
    held = [item for item in rows if item["run_id"] == run and item["name"] == name]
    assert len({item["step"] for item in held}) == len(held)
    return {item["step"]: item["value"] for item in held}


def test_every_row_arrives_unsampled(fake: Fake, clew: Clew, tmp_path: Path) -> None:
    fake.busy = 2
    said = clew("sweep", "collect", "wandb:me/project")
    assert (said.status, said.err) == (0, "")
    assert "4 runs new" in said.out
    assert points(tmp_path, "dense") == {step: step / 7 for step in range(2500)}
    assert points(tmp_path, "sparse") == {step * 1_000_003: float(step) for step in range(40)}
    assert points(tmp_path, "clump") == {3_000_000_000 + step: float(step) for step in range(1700)}
    odd = points(tmp_path, "odd")
    assert math.isnan(odd[1])
    assert (odd[0], odd[2], odd[3]) == (0.25, math.inf, -math.inf)
    assert points(tmp_path, "odd", "val/loss") == {3: 1e-300}
    asked = [words for verb, words in fake.asked if verb == "HistoryPage"]
    assert len(asked) < 100, "steps that are far apart must not be walked through one window at a time"
    rows = {item["run_id"]: item for item in pyarrow.parquet.read_table(tmp_path / "runs.parquet").to_pylist()}
    held = rows["odd"]
    assert (held["state"], held["group"], held["config.lr"], held["config.opt.b"]) == ("crashed", "g", 0.1, 1)
    assert (held["best"], held["acc"]) == (0.9, -math.inf)
    assert math.isnan(held["worst"])
    assert (tmp_path / held["log"]).read_text().endswith("RuntimeError: boom\n")


def test_only_new_runs_are_asked_for_again(fake: Fake, clew: Clew) -> None:
    assert clew("sweep", "collect", "wandb:me/project").status == 0
    fake.asked.clear()
    assert "0 runs read" in clew("sweep", "collect", "wandb:me/project").out
    assert {verb for verb, _ in fake.asked} == {"Runs"}
    fake.heartbeat = "2999-01-01T00:00:00"
    assert "4 renewed" in clew("sweep", "collect", "wandb:me/project").out


def test_rows_that_do_not_arrive_are_missed(fake: Fake, clew: Clew) -> None:
    fake.lost["odd"] = 3
    said = clew("sweep", "collect", "wandb:me/project")
    assert said.status == 1
    assert "run odd of wandb:me/project has 7 rows of history; 4 arrived." in said.err


def test_one_sentence_for_every_way_to_fail(fake: Fake, clew: Clew, monkeypatch: pytest.MonkeyPatch) -> None:
    said = clew("sweep", "collect", "wandb:me/nosuch")
    assert (said.status, "no such project, or this login may not see it" in said.err) == (2, True)
    fake.denied = True
    said = clew("sweep", "collect", "wandb:me/project")
    assert (said.status, "not logged in; is WANDB_API_KEY still valid?" in said.err) == (2, True)
    monkeypatch.delenv("WANDB_API_KEY")
    said = clew("sweep", "collect", "wandb:me/project")
    assert said.err.strip().endswith("set WANDB_API_KEY, or log in with `wandb login`.")
    assert said.err.count("\n") == 1
    monkeypatch.setenv("WANDB_API_KEY", "x")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    said = clew("sweep", "collect", "wandb:me/project")
    assert (said.status, "Connection refused" in said.err) == (2, True)
    assert "ENTITY/PROJECT" in clew("sweep", "collect", "wandb:me").err


@pytest.mark.usefixtures("fake")
def test_a_stored_login_is_found(clew: Clew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY")
    (tmp_path / "none").write_text("machine 127.0.0.1\n  login user\n  password 0123\n")
    (tmp_path / "none").chmod(0o600)
    assert clew("sweep", "collect", "wandb:me/project").status == 0


@pytest.mark.filterwarnings("ignore")
def test_wandbs_own_client_reads_the_same(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    for name in ("CACHE", "CONFIG", "DATA"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    api = wandb.Api(overrides={"base_url": fake.address}, api_key="0123456789" * 4)
    held = {run.id: run for run in api.runs("me/project")}
    assert set(held) == set(fake.runs)
    theirs = list(held["dense"].scan_history(page_size=1000))
    points, rows = collect_wandb_api._history(
        collect_wandb_api._project("wandb:me/project"), "dense", fake.node("dense")
    )
    assert len(theirs) == rows == 2500
    assert [one["acc"] for one in theirs] == list(points.series["acc"].values)
    assert held["odd"].config == {"lr": 0.1, "opt": {"b": 1}}
    wandb.teardown()
