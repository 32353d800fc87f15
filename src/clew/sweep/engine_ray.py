"""Running a queue of jobs on a Ray cluster: the same plan and the same archive as on this machine.

The archive stays here. What a run prints comes back while it prints it, so a run that is lost with its worker or node
is kept with all it had said; it is made once more, and both runs are in the archive.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from clew.archive import code, files, metrics, runs
from clew.archive.model import OUTPUT, Run
from clew.archive.output import OutputLog
from clew.archive.setting import variables
from clew.errors import ClewError
from clew.records.trace import Series
from clew.sweep import ray_worker
from clew.sweep.local import Done, Options, from_lines, labels, named_for, pattern, run_jobs, script_of
from clew.sweep.plan import Job, Plan
from clew.sweep.sources import sources

NODE = "node.json"
LOST = "lost"
LARGEST = 1 << 24
"""Code larger than this in all is not sent along: the nodes must then share the folder."""


def run_all(
    plan: Plan, group: str, queue: list[Job], digest: str, options: Options, tell: Callable[[Done], None]
) -> int:
    """Run the jobs in their order; returns how many did not end well."""
    ray, ours = connect(options)
    try:
        ray.cloudpickle.register_pickle_by_value(ray_worker)
        task = ray.remote(ray_worker.work).options(
            num_returns="streaming",
            max_retries=0,
            num_cpus=options.cpus_per_run,
            num_gpus=options.gpus_per_run,
        )
        slots = [""] * (options.jobs or places(ray, options))

        def one(job: Job, _: str, stop: threading.Event) -> Done:
            return run_one(ray, task, plan, group, job, digest, options, stop)

        return run_jobs(queue, slots, one, tell)
    finally:
        ray.cloudpickle.unregister_pickle_by_value(ray_worker)
        if ours:
            ray.shutdown()


def connect(options: Options) -> tuple[Any, bool]:
    """The library, and whether the connection was made here. Without an address, a cluster of this machine alone."""
    from importlib.util import find_spec

    if find_spec("ray") is None:
        raise ClewError("--engine ray needs Ray: pip install 'clew[ray]'")
    where = options.address or os.environ.get("RAY_ADDRESS") or "local"
    _reach(where)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    if ray.is_initialized():
        return ray, False
    words: dict[str, Any] = {"address": where, "logging_level": "ERROR", "log_to_driver": False}
    if where == "local":
        words |= {"include_dashboard": False} | ({"num_cpus": options.jobs} if options.jobs else {})
    try:
        ray.init(**words)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        why = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
        raise ClewError(f"no Ray cluster answers at {where}: {why}.") from error
    return ray, True


def _reach(where: str) -> None:
    """Ray itself tries for minutes before it says that nobody answers."""
    import socket

    host, sign, port = where.removeprefix("ray://").rpartition(":")
    if where in ("local", "auto") or not sign:
        return
    if not port.isdigit():
        raise ClewError(f"--address takes HOST:PORT, not {where!r}.")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise ClewError(f"no Ray cluster answers at {where}: {error.strerror or error}.") from error


def places(ray: Any, options: Options) -> int:
    """How many runs the cluster has room for at once; a node that joins later is used for runs that wait."""
    held = ray.cluster_resources()
    rooms = [held.get("CPU", 1.0) / options.cpus_per_run] if options.cpus_per_run > 0 else []
    if options.gpus_per_run > 0:
        if held.get("GPU", 0.0) < options.gpus_per_run:
            raise ClewError(
                f"the Ray cluster has {held.get('GPU', 0.0):g} GPUs; a run asks for {options.gpus_per_run:g}."
            )
        rooms.append(held["GPU"] / options.gpus_per_run)
    return max(1, int(min(rooms, default=1.0)))


def run_one(
    ray: Any, task: Any, plan: Plan, group: str, job: Job, digest: str, options: Options, stop: threading.Event
) -> Done:
    """A run that is lost with its worker or node is made once more; both attempts are kept."""
    first = _attempt(ray, task, plan, group, job, digest, options, stop, "")
    if first.signal != LOST or stop.is_set():
        return first
    again = _attempt(ray, task, plan, group, job, digest, options, stop, first.run.id)
    return again._replace(lost=1 + (again.signal == LOST))


def _attempt(
    ray: Any,
    task: Any,
    plan: Plan,
    group: str,
    job: Job,
    digest: str,
    options: Options,
    stop: threading.Event,
    earlier: str,
) -> Done:
    cwd = os.path.abspath(options.cwd)
    named = labels(plan, group, job, digest)
    held = runs.begin(job.command, cwd, script_of(job), labels=named, rerun_of=earlier, home=options.home)
    own = sources(job.command, cwd)
    code.snapshot(held, own)
    began = time.monotonic()
    follow = Follow(held, plan.metric, OutputLog(held.path(OUTPUT), began))
    environment = {**variables(), **named_for(group), "PYTHONUNBUFFERED": "1"}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    lost = _stream(ray, task.remote(job.command, cwd, _packed(own, cwd), environment), follow, stop)
    if lost:
        follow.log.write("err", f"{lost}\n")
        follow.tail = lost
    follow.log.flush()
    seconds = time.monotonic() - began
    if follow.found:
        metrics.keep(held, [Series(plan.metric, tuple(range(len(follow.found))), tuple(follow.found))])
    status = follow.status
    signal: int | str = LOST if status is None else -status if status < 0 else ""
    end = runs.finish(held, None if status is None or status < 0 else status, signal=signal, seconds=seconds)
    last = follow.found[-1] if follow.found else None
    return Done(job, held, end.exit, end.signal, seconds, last, follow.tail)


def _packed(paths: list[str], cwd: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in paths:
        name = os.path.relpath(path, cwd)
        if not name.startswith(os.pardir):
            found[name] = files.read_bytes(path)
    return found if sum(map(len, found.values())) <= LARGEST else {}


def _stream(ray: Any, pieces: Any, follow: "Follow", stop: threading.Event) -> str:
    """Take in what the run says until it ends; a sentence when it was lost instead."""
    try:
        while True:
            ready, _ = ray.wait([pieces], timeout=0.2)
            if ready:
                follow.take(*ray.get(next(pieces)))
            elif stop.is_set():
                ray.cancel(pieces, force=True)
                return "stopped"
    except StopIteration:
        return "" if follow.status is not None else "the worker ended without saying how the run ended"
    except ray.exceptions.RayError as error:
        if follow.status is not None:
            return ""
        kind = type(error).__name__
        return f"the worker was lost ({kind}): {next(iter(str(error).strip().splitlines()), '').rstrip('.')}."


class Follow:
    """What is known of a run so far."""

    def __init__(self, run: Run, metric: str, log: OutputLog) -> None:
        self.run, self.metric, self.log = run, metric, log
        self.wanted = pattern(metric)
        self.found: list[float] = []
        self.tail, self.rest = "", ""
        self.status: int | None = None

    def take(self, kind: str, held: Any) -> None:
        if kind == "node":
            files.write_table(self.run.path(NODE), held)
        elif kind == "exit":
            self._lines(self.rest + "\n" if self.rest else "")
            self.status = held
        elif kind == "metrics":
            self.found += from_lines(held.decode("utf-8", "replace").splitlines(), self.metric)
        else:
            text = held.decode("utf-8", "replace")
            self.log.write("out", text)
            self._lines(self.rest + text)

    def _lines(self, text: str) -> None:
        *whole, self.rest = text.split("\n")
        for line in whole:
            self.found += [float(one) for one in self.wanted.findall(line)]
            self.tail = line.strip()[:200] or self.tail
