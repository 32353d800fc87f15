"""Which collector reads a source, and reading them all into the cache."""

import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from clew.errors import ClewError
from clew.reading import opened
from clew.records.masked import masked
from clew.sweep import cache, collect_folders, collect_mlflow, collect_mlflow_server, collect_wandb, collect_wandb_api
from clew.sweep.archive import is_archive
from clew.sweep.points import Found, Look, Points
from clew.symptoms.logs_tensorboard import Damage, fields, records, scalars


class Source(NamedTuple):
    """How one source fared. `since` is how far back it was read, 0 for all of it; `runs` what was new in it."""

    source: str
    kind: str
    runs: int
    since: float
    failed: str


class Gathered(NamedTuple):
    """What collecting brought. `before` is when the cache was filled last, 0 for never."""

    new: int
    renewed: int
    total: int
    points: int
    before: float
    sources: tuple[Source, ...]
    remarks: tuple[str, ...]


def kind_of(source: str) -> str:
    """What a source is; a sentence when it is nothing that can be read."""
    if collect_wandb_api.is_project(source):
        return "wandb server"
    if collect_mlflow_server.is_server(source):
        return "mlflow server"
    if source.startswith("wandb:"):
        raise ClewError(f"{source} is no W&B project; name it as wandb:ENTITY/PROJECT.")
    if not os.path.exists(source):
        raise ClewError(f"there is no {source}.")
    if is_archive(source):
        return "clew"
    if collect_mlflow.is_store(source):
        return "mlflow"
    if os.path.isfile(source):
        return "wandb" if source.endswith(".wandb") else "tensorboard" if "tfevents" in source else "table"
    if collect_wandb.logs_below(source):
        return "wandb"
    if collect_folders.event_files(source):
        return "tensorboard"
    raise ClewError(f"{source} holds no runs of clew, W&B, MLflow or TensorBoard.")


def collect(sources: list[str], into: str, whole: bool = False) -> Gathered:
    """Read sources into the cache. Of a source that was read before, only what changed since, less a day."""
    kinds = [(source, kind_of(source)) for source in sources]
    told: list[Source] = []
    remarks: list[str] = []
    looked: dict[str, float] = {}
    with cache.Writer(into) as writer:
        for source, kind in kinds:
            key = source if kind.endswith("server") else os.path.abspath(source)
            look = Look() if whole else writer.was.look(key)
            began, count, failed = time.time(), 0, ""
            try:
                for found in _read(source, kind, look, remarks):
                    writer.add(found._replace(config=_masked(found.config), tags=_masked(found.tags or {})))
                    count += not found.more
                looked[key] = began
            except ClewError as error:
                failed = str(error)
                remarks.append(failed)
            told.append(Source(source, kind, count, look.since, failed))
        if not writer.held:
            raise ClewError(f"no run was found: {remarks[0] if remarks else 'there is none in ' + ', '.join(sources)}")
        kept = writer.finish(looked)
    return Gathered(*kept, writer.was.collected, tuple(told), tuple(remarks))


def _masked(held: dict[str, Any]) -> dict[str, Any]:
    return {name: masked(name, value) for name, value in held.items()}


def _read(source: str, kind: str, look: Look, remarks: list[str]) -> Iterator[Found]:
    if kind == "wandb server":
        return collect_wandb_api.read_project(source, look, remarks)
    if kind == "mlflow server":
        return collect_mlflow_server.read_server(source, look, remarks)
    path = os.path.abspath(source)
    if kind == "mlflow":
        return collect_mlflow.read_store(path, look, remarks)
    if kind == "wandb":
        return collect_wandb.read_folder(path, fields, look, remarks)
    if kind == "tensorboard":
        return collect_folders.read_events(path, _scalars, look, remarks)
    if kind == "clew":
        from clew.sweep.collect_archive import read_runs

        return read_runs(path, look, remarks)
    from clew.sweep.collect_tables import read_file

    return read_file(source, look, remarks)


def _scalars(path: str, points: Points, stated: collect_folders.Stated) -> list[str]:
    """Every scalar of an event file; what is damaged costs itself and a sentence."""
    remarks, damaged = [], 0
    with opened(path) as file:
        try:
            for record in records(file):
                try:
                    step, held = scalars(record) if record is not None else (0, [])
                    collect_folders.stated(record or b"", fields, stated)
                except (ValueError, IndexError):
                    damaged += 1
                    continue
                damaged += record is None
                for name, value in held:
                    points.add(name, step, value)
        except Damage as damage:
            remarks.append(f"{damage}; the points before it were read.")
    if damaged:
        remarks.append(f"{damaged} damaged records left out.")
    return remarks
