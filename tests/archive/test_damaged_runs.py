"""However a run is damaged, every reader ends in an answer or a sentence, and the other runs are read."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from clew.archive import runs
from clew.cli import main

TRAIN = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    x = torch.randn(16, 4)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}", flush=True)
"""
ODD = ["1e999", "-1e999", "NaN", "9" * 400, "-1", "0", "9223372036854775808", "null", "true", '""', '"x"', '"\\u0000"',
       '"../../../etc/passwd"', "[]", "{}", "[[]]", '{"$float": "x"}', '{"$float": []}', "[" * 2000 + "]" * 2000,
       '"\\ud800"',
       '"\\u001b[2J"']  # fmt: skip
COMMANDS = {
    "list": ["runs"],
    "show": ["show", "RUN", "--json", "answer.json"],
    "output": ["show", "RUN", "--output"],
    "metrics": ["show", "RUN", "--metrics", "loss"],
    "code": ["show", "RUN", "--code"],
    "source": ["show", "RUN", "--code", "train.py"],
    "page": ["show", "RUN", "--html", "page.html"],
    "diff": ["runs", "diff", "RUN", "OTHER", "--json", "answer.json"],
    "gc": ["runs", "gc", "--older-than", "1d", "--dry-run"],
    "rerun": ["runs", "rerun", "RUN", "--only-prepare"],
    "collect": ["sweep", "collect", ".clew", "--into", "runs.parquet", "--all"],
    "judge": ["sweep", "judge", ".clew", "--metric", "loss", "--goal", "min"],
    "plan": ["exam", "RUN", "--list"],
}


class Archive(NamedTuple):
    folder: Path
    run: str
    other: str
    files: list[Path]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "train.py").write_text(TRAIN)
    command = [sys.executable, "-m", "clew", "run", "--keep-capture", "--budget", "1", "train.py"]
    environment = {name: value for name, value in os.environ.items() if name != "CLEW_HOME"}
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    (run,) = runs.all_ids(str(folder / ".clew"))
    other = runs.begin(["python", "other.py", "--lr", "1"], str(folder), "other.py", home=str(folder / ".clew"))
    Path(other.path("trace-1.jsonl")).write_text('["loss","",1,0.5]\n["loss","",2,0.25]\n')
    runs.finish(other, 0)
    below = folder / ".clew" / "runs" / run
    files = sorted(path for path in below.rglob("*") if path.is_file() and not path.name.startswith(("batch-", "val-")))
    before = os.getcwd()
    os.chdir(folder)
    yield Archive(folder, run, other.id, files)
    os.chdir(before)


def replaced(text: str, where: int, odd: str) -> str:
    """JSON in which one value is another."""
    spots: list[tuple[Any, Any]] = []

    def walk(held: Any) -> None:
        keys = list(held) if isinstance(held, dict) else range(len(held)) if isinstance(held, list) else ()
        for key in keys:
            spots.append((held, key))
            walk(held[key])

    root = [json.loads(text)]
    walk(root)
    owner, key = spots[where % len(spots)]
    owner[key] = "@odd@"
    return json.dumps(root)[1:-1].replace('"@odd@"', odd)


def lacking(text: str, where: int) -> str:
    table = json.loads(text)
    if isinstance(table, dict) and table:
        del table[list(table)[where % len(table)]]
    return json.dumps(table)


def damaged(data: bytes, path: Path, kind: str, where: int, odd: str) -> bytes:
    if kind in ("value", "key"):
        change: Callable[[str], str] = (
            (lambda text: replaced(text, where, odd)) if kind == "value" else (lambda text: lacking(text, where))
        )
        if path.suffix == ".json":
            return change(data.decode()).encode()
        if path.suffix == ".jsonl" and data:
            lines = data.decode().splitlines()
            at = where % len(lines)
            lines[at] = change(lines[at])
            return ("\n".join(lines) + "\n").encode()
    at = where % (len(data) + 1)
    if kind == "cut":
        return data[:at]
    if kind == "torn":  # one write was cut off, and the next came behind it
        return data[:at] + data[at + 7 :]
    return data[:at] + bytes([where % 256, 0, 255]) + data[at + 3 :]


KINDS = st.sampled_from(["value", "value", "value", "key", "cut", "torn", "bytes", "gone", "folder", "pipe"])


@settings(
    max_examples=150,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    st.integers(0, 10**6),
    KINDS,
    st.integers(0, 10**6),
    st.sampled_from(ODD),
    st.lists(st.sampled_from(sorted(COMMANDS)), min_size=3, max_size=3),
)
def test_every_reader_ends_in_an_answer_or_a_sentence(
    archive: Archive, file: int, kind: str, where: int, odd: str, commands: list[str]
) -> None:
    check(archive, archive.files[file % len(archive.files)], kind, where, odd, commands)


@pytest.mark.parametrize("odd", ["1e999", "-1e999", "NaN", "9" * 400])
@pytest.mark.parametrize("name", ["steps", "seconds", "exit"])
def test_no_number_at_the_end_of_a_run_stops_the_others(archive: Archive, name: str, odd: str) -> None:
    path = next(path for path in archive.files if path.name == "end.json")
    where = list(json.loads(path.read_text())).index(name) + 1
    assert f'"{name}": {odd}' in replaced(path.read_text(), where, odd)
    check(archive, path, "value", where, odd, ["list", "show", "gc", "collect", "judge", "diff"])


def check(archive: Archive, path: Path, kind: str, where: int, odd: str, commands: list[str]) -> None:
    data = path.read_bytes()
    try:
        if kind in ("gone", "folder", "pipe"):
            path.unlink()
            if kind != "gone":
                path.mkdir() if kind == "folder" else os.mkfifo(path)
        else:
            path.write_bytes(damaged(data, path, kind, where, odd))
        said = answered(["runs"])
        assert archive.other[-4:] in said
        for name in commands:
            words = [{"RUN": archive.run, "OTHER": archive.other}.get(word, word) for word in COMMANDS[name]]
            answered(words)
    finally:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        path.write_bytes(data)


def answered(words: list[str]) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = main(words)
    assert status in (0, 1, 2), words
    return said.getvalue()
