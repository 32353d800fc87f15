"""An MLflow tracking server, through its REST interface; MLflow itself is not needed.

The server says NaN as text. An infinity arrives as the largest double where the store behind the server is a database;
it is taken for the infinity that it stands for, because a reading of exactly that size cannot be told from it.
"""

import base64
import os
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

from clew.errors import ClewError
from clew.sweep.ask import Unanswered, ask, ask_json
from clew.sweep.collect_mlflow import date, exact, own_tags
from clew.sweep.points import Found, Look, Points

PAGE, HISTORY = 1000, 25_000
SOURCE = re.compile(r"(?:mlflow:)?(https?://[^#?]+)(?:#/?(?:experiments/)?([^/?]+).*)?")


def is_server(source: str) -> bool:
    return bool(SOURCE.fullmatch(source))


def _headers() -> dict[str, str]:
    """The login that MLflow's own client would use."""
    if token := os.environ.get("MLFLOW_TRACKING_TOKEN"):
        return {"Authorization": f"Bearer {token}"}
    if user := os.environ.get("MLFLOW_TRACKING_USERNAME"):
        word = base64.b64encode(f"{user}:{os.environ.get('MLFLOW_TRACKING_PASSWORD', '')}".encode())
        return {"Authorization": f"Basic {word.decode()}"}
    return {}


class _Server:
    def __init__(self, base: str) -> None:
        self.base, self.headers = base.rstrip("/"), _headers()

    def get(self, verb: str, **words: object) -> dict[str, Any]:
        return ask_json(f"{self.base}/api/2.0/mlflow/{verb}?{urlencode(words)}", None, self.headers)

    def all(self, verb: str, part: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Every item of a list that comes in pages."""
        while True:
            held = ask_json(f"{self.base}/api/2.0/mlflow/{verb}", body, self.headers)
            yield from held.get(part) or []
            token = held.get("next_page_token")
            if not token or token == body.get("page_token"):
                return
            body = {**body, "page_token": token}


def read_server(source: str, look: Look, remarks: list[str]) -> Iterator[Found]:
    match = SOURCE.fullmatch(source)
    if match is None:
        raise ClewError(f"{source} is no address of an MLflow server.")
    server, wanted = _Server(match[1]), match[2]
    try:
        body: dict[str, Any] = {"max_results": PAGE}
        listed = server.all("experiments/search", "experiments", body)
        names = {str(one["experiment_id"]): str(one.get("name", "")) for one in listed}
        if wanted:
            names = {key: name for key, name in names.items() if wanted in (key, name, quote(name))}
            if not names:
                raise ClewError(f"{match[1]} has no experiment {wanted!r}.")
        for experiment, name in names.items():
            # Oldest first: runs that begin while we read come at the end and move no page.
            body = {"experiment_ids": [experiment], "max_results": PAGE, "order_by": ["attributes.start_time ASC"]}
            for run in server.all("runs/search", "runs", body):
                found = _run(server, source, name, run, look, remarks)
                if found is not None:
                    yield found
    except Unanswered as error:
        hint = ""
        if error.status in (401, 403):
            hint = "; set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        elif error.status == 404:
            hint = "; is it an MLflow server?"
        raise ClewError(f"{match[1]} could not be read: {error}{hint}.") from error


def _run(server: _Server, source: str, group: str, run: dict[str, Any], look: Look, remarks: list[str]) -> Found | None:
    info, data = run.get("info") or {}, run.get("data") or {}
    name = str(info.get("run_id") or info.get("run_uuid") or "")
    state = str(info.get("status") or "").lower()
    updated = float(info.get("end_time") or info.get("start_time") or 0) / 1000.0
    if not name or look.settled(updated, name):
        return None
    points = Points()
    try:
        for key in [str(one["key"]) for one in data.get("metrics") or []]:
            _history(server, name, key, points)
    except Unanswered as error:
        if not error.status:
            raise
        remarks.append(f"run {name} of {source} could not be read: {error}.")
        return None
    config = {str(one["key"]): one.get("value", "") for one in data.get("params") or []}
    tags = own_tags({str(one["key"]): one.get("value", "") for one in data.get("tags") or []})
    log = _output(server, str(info.get("artifact_uri") or ""))
    created = date(info.get("start_time"))
    return Found(name, source, group, state, created, updated, config, points, tags=tags, output=log)


def _history(server: _Server, run: str, key: str, points: Points) -> None:
    readings: list[tuple[int, int, float]] = []
    words: dict[str, object] = {"run_id": run, "metric_key": key, "max_results": HISTORY}
    while True:
        held = server.get("metrics/get-history", **words)
        for one in held.get("metrics") or []:
            value = exact(float(one.get("value", 0.0)), False)
            readings.append((int(one.get("step", 0)), int(one.get("timestamp", 0)), value))
        token = held.get("next_page_token")
        if not token or token == words.get("page_token"):
            break
        words["page_token"] = token
    for step, _, value in sorted(readings, key=lambda one: one[:2]):
        points.add(key, step, value)


def _output(server: _Server, artifacts: str) -> bytes:
    """The run's `output.log`, where it logged one and the server hands out artifacts."""
    if not artifacts.startswith("mlflow-artifacts:/"):
        return b""
    below = artifacts.removeprefix("mlflow-artifacts:").lstrip("/")
    try:
        return ask(f"{server.base}/api/2.0/mlflow-artifacts/artifacts/{quote(below)}/output.log", None, server.headers)
    except Unanswered:
        return b""
