"""Running a queue of jobs on this machine: a process for each, so many at a time.

One process per run and nothing shared: whatever kills one, a crash, a signal, lack of memory, costs that run alone.
Every run goes into the archive from its first moment; a scheduler that is killed leaves runs that count as interrupted,
and the next one makes exactly those again.
"""

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import IO, Any, NamedTuple

from clew.archive import code, metrics, runs
from clew.archive.model import OUTPUT, Run
from clew.archive.output import OutputLog
from clew.home import private
from clew.records.trace import Series
from clew.sweep.plan import Job, Plan
from clew.sweep.sources import sources

METRICS_FILE = "CLEW_SWEEP_METRICS"
NUMBER = r"([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?))"
TAIL = 1 << 16


class Done(NamedTuple):
    """A run that has ended. `value` is the last reading of the metric, None when it printed none."""

    job: Job
    run: Run
    exit: int | None
    signal: str
    seconds: float
    value: float | None
    last_line: str
    lost: int = 0
    """How often a worker or node was lost with this run; it is made again once."""

    @property
    def fine(self) -> bool:
        return self.exit == 0 and self.value is not None


class Options(NamedTuple):
    """`jobs` at a time, 0 for as many as there is room for. The last three are for a Ray cluster."""

    jobs: int = 1
    gpus: tuple[str, ...] = ()
    cwd: str = "."
    home: str = ""
    address: str = ""
    cpus_per_run: float = 1.0
    gpus_per_run: float = 0.0


def run_all(
    plan: Plan, group: str, jobs: list[Job], digest: str, options: Options, tell: Callable[[Done], None]
) -> int:
    """Run the jobs in their order; returns how many did not end well. Ctrl-C ends those that run, and stops."""

    def one(job: Job, gpu: str, stop: threading.Event) -> Done:
        return run_one(plan, group, job, gpu, digest, options, stop)

    return run_jobs(jobs, list(options.gpus) or [""] * max(1, options.jobs), one, tell)


def run_jobs(
    jobs: list[Job],
    slots: list[str],
    one: Callable[[Job, str, threading.Event], Done],
    tell: Callable[[Done], None],
) -> int:
    """The scheduler that all engines share: a thread for every slot, each with one run at a time."""
    waiting: SimpleQueue[Job] = SimpleQueue()
    for job in jobs:
        waiting.put(job)
    done: SimpleQueue[Done | BaseException] = SimpleQueue()
    stop = threading.Event()
    threads = [threading.Thread(target=_work, args=(slot, waiting, one, done, stop)) for slot in slots[: len(jobs)]]
    for thread in threads:
        thread.start()
    failed = 0
    try:
        left = len(jobs)
        while left:
            try:
                item = done.get(timeout=0.2)
            except Empty:
                if not any(thread.is_alive() for thread in threads) and done.empty():
                    break
                continue
            left -= 1
            if isinstance(item, BaseException):
                raise item
            failed += not item.fine
            tell(item)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    return failed


def _work(
    slot: str,
    waiting: "SimpleQueue[Job]",
    one: Callable[[Job, str, threading.Event], Done],
    done: "SimpleQueue[Done | BaseException]",
    stop: threading.Event,
) -> None:
    while not stop.is_set():
        try:
            job = waiting.get_nowait()
        except Empty:
            return
        try:
            done.put(one(job, slot, stop))
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits for the run
            done.put(error)
            return


def named_for(group: str) -> dict[str, str]:
    """Trackers that the script writes to file its runs under the group."""
    return {"CLEW_SWEEP_GROUP": group, "WANDB_RUN_GROUP": group, "MLFLOW_EXPERIMENT_NAME": group}


def labels(plan: Plan, group: str, job: Job, digest: str) -> dict[str, Any]:
    return {
        "group": group,
        "seed": job.seed,
        "sweep.base": plan.base,
        "sweep.code": digest,
        **{f"config.{name}": value for name, value in job.point},
    }


def run_one(plan: Plan, group: str, job: Job, gpu: str, digest: str, options: Options, stop: threading.Event) -> Done:
    cwd = os.path.abspath(options.cwd)
    held = runs.begin(job.command, cwd, script_of(job), labels=labels(plan, group, job, digest), home=options.home)
    code.snapshot(held, sources(job.command, cwd))
    open(held.path("sweep-metrics.jsonl"), "a", opener=private).close()
    environment = {**os.environ, METRICS_FILE: held.path("sweep-metrics.jsonl"), **named_for(group)}
    environment.setdefault("PYTHONUNBUFFERED", "1")
    if gpu:
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    began = time.monotonic()
    log = OutputLog(held.path(OUTPUT), began)
    try:
        process = subprocess.Popen(
            job.command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        log.write("err", f"cannot start {job.command[0]}: {error.strerror}\n")
        log.flush()
        runs.finish(held, 127, seconds=0.0)
        return Done(job, held, 127, "", 0.0, None, f"cannot start {job.command[0]}: {error.strerror}")
    found: list[float] = []
    tail: list[str] = []
    reader = threading.Thread(target=_read, args=(process.stdout, log, pattern(plan.metric), found, tail))
    reader.start()
    status = _wait(process, stop)
    # A process that the run left behind may hold its output open: what it prints is no longer waited for.
    reader.join(timeout=5)
    if process.stdout is not None and not reader.is_alive():
        process.stdout.close()
    log.flush()
    seconds = time.monotonic() - began
    found += _from_file(held.path("sweep-metrics.jsonl"), plan.metric)
    if found:
        metrics.keep(held, [Series(plan.metric, tuple(range(len(found))), tuple(found))])
    end = runs.finish(held, status if status >= 0 else None, signal=-status if status < 0 else "", seconds=seconds)
    return Done(job, held, end.exit, end.signal, seconds, found[-1] if found else None, tail[-1] if tail else "")


def script_of(job: Job) -> str:
    return next((word for word in job.command if word.endswith(".py")), job.command[0])


def _wait(process: "subprocess.Popen[str]", stop: threading.Event) -> int:
    """Its exit status; when everything stops, the run and its children are asked to end, then made to."""
    while True:
        try:
            return process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            if not stop.is_set():
                continue
        import signal

        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
                return process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                continue
            except ProcessLookupError:
                return process.wait()


def pattern(metric: str) -> "re.Pattern[str]":
    """`acc: 0.9`, `acc=0.9`, `"acc": 0.9`, `acc 0.9`: a reading of the metric in printed text."""
    return re.compile(rf"(?<![\w./-]){re.escape(metric)}[\"']?\s*[:=]?\s*{NUMBER}(?![\w])", re.IGNORECASE)


def _read(
    stream: IO[str] | None, log: OutputLog, wanted: "re.Pattern[str]", found: list[float], tail: list[str]
) -> None:
    if stream is None:
        return
    for line in stream:
        log.write("out", line)
        found.extend(float(text) for text in wanted.findall(line))
        if line.strip():
            tail[:] = [line.strip()[:200]]


def _from_file(path: str, metric: str) -> list[float]:
    """What the script wrote to the file that CLEW_SWEEP_METRICS names: one JSON object per line."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return from_lines(file, metric)
    except OSError:
        return []


def from_lines(lines: Iterable[str], metric: str) -> list[float]:
    import json

    found: list[float] = []
    for line in lines:
        try:
            held = json.loads(line)
        except ValueError:
            continue
        if isinstance(held, dict) and isinstance(held.get(metric), int | float):
            found.append(float(held[metric]))
    return found


def finished(home: str, group: str) -> dict[tuple[str, int], str]:
    """The cells of a group that have a run which ended, by point and seed; and the state of each."""
    from clew.sweep.archive import row_of

    found = {}
    for record in runs.all_runs(home).records:
        held = dict(record.labels)
        if held.get("group") == group and record.state == "finished":
            found[key_of(held), int(held.get("seed", 0))] = str(row_of(record, [])["state"])
    return found


def key_of(held: dict[str, Any]) -> str:
    return repr(sorted((name, str(value)) for name, value in held.items() if name.startswith("config.")))


def groups_of(home: str, name: str) -> list[tuple[str, str, str]]:
    """Groups of a sweep, oldest first, each with the digests of its code and its base."""
    found: dict[str, tuple[str, str, str]] = {}
    for record in runs.all_runs(home).records:
        held = dict(record.labels)
        group = str(held.get("group", ""))
        if group.startswith(f"{name}-") and "sweep.base" in held:
            found.setdefault(group, (group, str(held["sweep.code"]), str(held["sweep.base"])))
    return list(found.values())
