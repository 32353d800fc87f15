"""W&B's server, through the GraphQL interface that its own client uses; W&B itself is not needed.

History is asked for in windows of steps no wider than the number of rows that are asked for: a wider window may be
answered with a sample. The server says how many rows there are, and they are counted.
"""

import base64
import json
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from clew.errors import ClewError
from clew.sweep.ask import Unanswered, ask, ask_json
from clew.sweep.collect_wandb import readings, settings
from clew.sweep.points import Found, Look, Points

HOME = "https://api.wandb.ai"
PAGE, ROWS, WIDEST = 100, 1000, 1 << 40
SOURCE = re.compile(r"wandb:([^/\s]+)/([^/\s]+)|https://(?:www\.)?wandb\.ai/([^/\s]+)/([^/?#\s]+).*")

RUNS = """query Runs($entity: String!, $project: String!, $cursor: String, $perPage: Int!, $order: String) {
  project(name: $project, entityName: $entity) {
    runs(after: $cursor, first: $perPage, order: $order) {
      edges { node {
        name state group sweepName config summaryMetrics createdAt heartbeatAt historyLineCount historyKeys tags
      } cursor }
      pageInfo { endCursor hasNextPage }
    }
  }
}"""
HISTORY = """query HistoryPage($entity: String!, $project: String!, $run: String!, $minStep: Int64!, $maxStep: Int64!,
    $pageSize: Int!) {
  project(name: $project, entityName: $entity) {
    run(name: $run) { history(minStep: $minStep, maxStep: $maxStep, samples: $pageSize) }
  }
}"""
FILES = """query RunFiles($entity: String!, $project: String!, $run: String!, $fileNames: [String]) {
  project(name: $project, entityName: $entity) {
    run(name: $run) { files(names: $fileNames) { edges { node { name directUrl } } } }
  }
}"""


class _Project(NamedTuple):
    base: str
    entity: str
    project: str
    headers: dict[str, str]

    def ask(self, query: str, **words: object) -> dict[str, Any]:
        """What the server holds of the project."""
        variables = {"entity": self.entity, "project": self.project, **words}
        held = ask_json(f"{self.base}/graphql", {"query": query, "variables": variables}, self.headers)
        if held.get("errors"):
            first = held["errors"][0]
            raise Unanswered(str(first.get("message", first) if isinstance(first, dict) else first).rstrip("."), 400)
        project = (held.get("data") or {}).get("project")
        if project is None:
            raise Unanswered("there is no such project, or this login may not see it", 404)
        return dict(project)


def is_project(source: str) -> bool:
    return bool(SOURCE.fullmatch(source))


def _project(source: str) -> _Project:
    match = SOURCE.fullmatch(source)
    if match is None:
        raise ClewError(f"{source} is no W&B project; name it as wandb:ENTITY/PROJECT.")
    base = os.environ.get("WANDB_BASE_URL", HOME).rstrip("/")
    key = os.environ.get("WANDB_API_KEY") or _stored(urlsplit(base).hostname or "")
    if not key:
        raise ClewError(f"{source} needs a login at W&B: set WANDB_API_KEY, or log in with `wandb login`.")
    word = base64.b64encode(f"api:{key}".encode()).decode()
    return _Project(base, match[1] or match[3], match[2] or match[4], {"Authorization": f"Basic {word}"})


def _stored(host: str) -> str:
    """The key that `wandb login` stores."""
    import netrc

    try:
        held = netrc.netrc(os.environ.get("NETRC") or None).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return ""
    return str(held[2] or "") if held else ""


def read_project(source: str, look: Look, remarks: list[str]) -> Iterator[Found]:
    project = _project(source)
    cursor = None
    try:
        while True:
            # Oldest first: runs that begin while we read come at the end and move no page.
            held = project.ask(RUNS, cursor=cursor, perPage=PAGE, order="+created_at")["runs"]
            for edge in held["edges"]:
                try:
                    found = _run(project, source, edge["node"], look, remarks)
                except Unanswered as error:
                    if not error.status:
                        raise
                    remarks.append(f"run {edge['node'].get('name')} of {source} could not be read: {error}.")
                    continue
                if found is not None:
                    yield found
            info = held["pageInfo"]
            if not info.get("hasNextPage") or info.get("endCursor") in (None, cursor):
                return
            cursor = info["endCursor"]
    except Unanswered as error:
        hint = "; is WANDB_API_KEY still valid?" if error.status in (401, 403) else ""
        raise ClewError(f"{source} could not be read: {error}{hint}.") from error
    except (KeyError, TypeError, OverflowError, ValueError) as error:
        raise ClewError(f"{source} could not be read: {project.base} does not answer as W&B does ({error}).") from error


def _run(project: _Project, source: str, node: dict[str, Any], look: Look, remarks: list[str]) -> Found | None:
    name, state = str(node["name"]), str(node.get("state") or "").lower()
    updated = _moment(node.get("heartbeatAt") or node.get("createdAt"))
    if look.settled(updated, name):
        return None
    points, rows = _history(project, name, node)
    expected = int(node.get("historyLineCount") or 0)
    if rows < expected:
        remarks.append(f"run {name} of {source} has {expected} rows of history; {rows} arrived.")
    config = {
        key: value["value"] if isinstance(value, dict) and "value" in value else value
        for key, value in _object(node.get("config")).items()
    }
    summary = dict(readings(_object(node.get("summaryMetrics"))))
    group = str(node.get("group") or node.get("sweepName") or project.project)
    created = str(node.get("createdAt") or "")
    output = _output(project, name, source, remarks)
    place = f"wandb:{project.entity}/{project.project}"
    return Found(name, place, group, state, created, updated, settings(config), points, summary, output=output)


def _object(text: Any) -> dict[str, Any]:
    held = json.loads(text) if isinstance(text, str) and text else text
    return held if isinstance(held, dict) else {}


def _moment(text: Any) -> float:
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _history(project: _Project, run: str, node: dict[str, Any]) -> tuple[Points, int]:
    """Every row. Where the steps are far apart, wide windows are tried first and believed if they bring every row."""
    expected = int(node.get("historyLineCount") or 0)
    last = _object(node.get("historyKeys")).get("lastStep")
    end = int(last) + 1 if isinstance(last, int | float) else expected
    if end > 20 * max(expected, ROWS):
        points, rows = _scan(project, run, end, WIDEST)
        if rows >= expected:
            return points, rows
    return _scan(project, run, end, ROWS)


def _scan(project: _Project, run: str, end: int, widest: int) -> tuple[Points, int]:
    points, rows, at, width = Points(), 0, 0, ROWS
    while at < end:
        held = project.ask(HISTORY, run=run, minStep=at, maxStep=at + width, pageSize=ROWS)["run"]
        lines = (held or {}).get("history") or []
        if len(lines) * 2 >= ROWS and width > ROWS:
            width = max(ROWS, width // 8)
            continue
        for line in lines:
            row = _object(line)
            step = row.get("_step", rows)
            for name, value in readings(row):
                points.add(name, int(step), value)
            rows += 1
        at += width
        if len(lines) * 8 < ROWS:
            width = min(width * 4, widest)
    return points, rows


def _output(project: _Project, run: str, source: str, remarks: list[str]) -> bytes:
    """The run's `output.log`, where it has one."""
    held = project.ask(FILES, run=run, fileNames=["output.log"])["run"] or {}
    for edge in (held.get("files") or {}).get("edges") or []:
        url = str(edge["node"].get("directUrl") or "")
        if edge["node"].get("name") == "output.log" and url:
            # The login is for W&B alone, not for the store that holds the file.
            ours = urlsplit(url).netloc == urlsplit(project.base).netloc
            try:
                return ask(url, None, project.headers if ours else {})
            except Unanswered as error:
                remarks.append(f"output.log of run {run} of {source} could not be fetched: {error}.")
    return b""
