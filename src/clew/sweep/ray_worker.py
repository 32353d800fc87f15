"""One run on a node of a Ray cluster. Travels to the node by value and needs nothing there but Python.

A generator: it yields what the run prints while it prints it, so that a node that is lost takes nothing with it that
was already said. The run dies with its worker; otherwise a killed worker would leave it training for nobody.
"""

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

TICK = 0.2
DIE_WITH_PARENT = """
import ctypes, os, signal, sys
try:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
except (OSError, AttributeError):
    pass
try:
    os.execvp(sys.argv[1], sys.argv[1:])
except OSError as error:
    print(f"cannot start {sys.argv[1]}: {error.strerror}", flush=True)
    sys.exit(127)
"""


def work(
    command: tuple[str, ...], cwd: str, files: dict[str, bytes], environment: dict[str, str]
) -> Iterator[tuple[str, Any]]:
    """`files` are written to a folder of their own where the node does not have `cwd`."""
    with tempfile.TemporaryDirectory(prefix="clew-sweep-") as folder:
        metrics = os.path.join(folder, "metrics.jsonl")
        at = cwd if os.path.isdir(cwd) and all(os.path.exists(os.path.join(cwd, name)) for name in files) else ""
        if not at:
            at = os.path.join(folder, "code")
            _unpack(at, files)
        yield "node", _node(at == cwd)
        process = subprocess.Popen(
            [sys.executable, "-c", DIE_WITH_PARENT, *command],
            cwd=at,
            env={**os.environ, **environment, "CLEW_SWEEP_METRICS": metrics},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield from _follow(process, metrics)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _unpack(folder: str, files: dict[str, bytes]) -> None:
    os.makedirs(folder)
    for name, content in files.items():
        path = os.path.normpath(os.path.join(folder, name))
        if not path.startswith(folder + os.sep):
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)


def _node(shared: bool) -> dict[str, Any]:
    return {
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "cpus": os.cpu_count(),
        "gpus": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        "shared_folder": shared,
        "worker": os.getpid(),
    }


def _follow(process: "subprocess.Popen[bytes]", metrics: str) -> Iterator[tuple[str, Any]]:
    assert process.stdout is not None
    stream = process.stdout.fileno()
    os.set_blocking(stream, False)
    picked = selectors.DefaultSelector()
    picked.register(stream, selectors.EVENT_READ)
    place, last, held, open_ = 0, time.monotonic(), b"", True
    while open_ and (process.poll() is None or picked.select(0)):
        if picked.select(TICK):
            piece = os.read(stream, 1 << 16)
            open_, held = bool(piece), held + piece
        if held and (time.monotonic() - last > TICK or len(held) > 1 << 18):
            yield "out", held
            held, last = b"", time.monotonic()
            place, more = _more(metrics, place)
            if more:
                yield "metrics", more
    picked.close()
    if held:
        yield "out", held
    status = process.wait()
    _, more = _more(metrics, place)
    if more:
        yield "metrics", more
    yield "exit", status


def _more(path: str, place: int) -> tuple[int, bytes]:
    """What was appended since `place`, up to the last line end."""
    try:
        with open(path, "rb") as file:
            file.seek(place)
            held = file.read()
    except OSError:
        return place, b""
    whole = held[: held.rfind(b"\n") + 1]
    return place + len(whole), whole
