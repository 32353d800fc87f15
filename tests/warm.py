"""`clew run` on many small scripts, without paying for the import of torch each time.

A process that has imported torch, and nothing of the user's, forks for every run: one fork is `clew run`, and a fork of
that one is the script. All else is as at the command line: the run folder, the instruments, the order in which they see
things, the weighing and the report. Only what happens before torch is there differs, which the tests of launching see
with real processes.
"""

import atexit
import json
import os
import subprocess
import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

PRELOADED = """
    clew.app.run clew.cli.run clew.lint.run clew.observe.hooks clew.observe.recorder clew.observe.taping
    clew.report.run_html
""".split()

_servers: list["subprocess.Popen[str]"] = []


class Ran(NamedTuple):
    status: int
    out: str
    err: str


def warm_run(folder: Path, *words: str, **env: str) -> Ran:
    """`clew run WORDS` in a folder, with an archive of its own."""
    if not _servers:
        _servers.append(_started())
    (server,) = _servers
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps({"folder": str(folder), "words": words, "env": env}) + "\n")
    server.stdin.flush()
    said = server.stdout.readline()
    assert said, "the warm process has died"
    return Ran(int(said), *((folder / name).read_text() for name in (".warm-out", ".warm-err")))


def _started() -> "subprocess.Popen[str]":
    held = {name: value for name, value in os.environ.items() if not name.startswith(("CLEW_", "PYTEST_"))}
    held.update(OMP_NUM_THREADS="1", NO_COLOR="1", COLUMNS="80", HF_HUB_OFFLINE="1")
    server = subprocess.Popen(
        [sys.executable, __file__], env=held, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    atexit.register(_stop, server)
    return server


def _stop(server: "subprocess.Popen[str]") -> None:
    for pipe in (server.stdin, server.stdout):
        if pipe is not None:
            pipe.close()
    server.wait()


def _serve() -> None:
    import torch
    import torch._dynamo  # the first step of any optimiser imports it, which takes as long as torch itself

    from clew.knowledge import load
    from clew.observe.registry import all_watches

    for name in PRELOADED:
        import_module(name)
    load()
    all_watches()
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if not pid:
            _front(asked, torch)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(status, flush=True)


def _front(asked: dict[str, Any], torch: Any) -> NoReturn:
    """What `clew run` does beside the script."""
    from clew.app import repeat, run
    from clew.cli import main

    os.chdir(asked["folder"])
    os.environ.update(CLEW_HOME=os.path.join(asked["folder"], "kept"), **asked["env"])
    for number, name, flags in ((0, os.devnull, os.O_RDONLY), (1, ".warm-out", os.O_WRONLY), (2, ".warm-err", 1)):
        handle = os.open(name, flags | os.O_CREAT | os.O_TRUNC if number else flags, 0o644)
        os.dup2(handle, number)
        os.close(handle)

    def launch(command: list[str], folder: str, *more: Any, **named: Any) -> Any:
        return _launched(torch, command, folder, *more, **named)

    for module in (run, repeat):
        vars(module)["launch"] = launch
    status = 1
    try:
        status = main(["run", *asked["words"]])
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    except BaseException:  # noqa: BLE001  # whatever it was, the test shall see it
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _launched(
    torch: Any,
    command: list[str],
    folder: str,
    steps: int = 0,
    sample: str = "auto",
    _tick: Any = None,
    capture: bool = False,
    _instruments: bool = True,
    _told: Any = None,
) -> Any:
    import time

    from clew.observe.launch import Ended, environment

    started = time.monotonic()
    env = environment(folder, steps, sample, False, capture)
    pid = os.fork()
    if not pid:
        _script(torch, command[1:], folder, env)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    killed = -code if code < 0 else 0
    return Ended(128 + killed if killed else code, killed, time.monotonic() - started)


def _script(torch: Any, words: list[str], folder: str, env: dict[str, str]) -> NoReturn:
    """The script as Python would run it, once clew has been let in."""
    import random

    import numpy

    from clew.observe import files, start

    os.environ.clear()
    os.environ.update(env)
    files._files = files._Files()  # made when it was imported, it knows nothing of this run's folder
    sys.argv[:] = words
    sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
    main = ModuleType("__main__")
    main.__file__ = os.path.abspath(words[0])
    vars(main)["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    torch.seed()  # a fresh process draws its own numbers, and so must a fork
    random.seed()
    numpy.random.seed()
    atexit._clear()  # what the tests left to be done at the end is theirs
    session = start.begin(folder)
    session.imported("torch", torch)
    status = 0
    try:
        source = Path(words[0]).read_bytes()
        exec(compile(source, words[0], "exec"), vars(main))
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except BaseException:  # noqa: BLE001  # as the interpreter would
        sys.last_value = sys.exc_info()[1]
        sys.excepthook(*sys.exc_info())
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _serve()
