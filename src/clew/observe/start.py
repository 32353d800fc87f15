"""Getting ready inside the observed process: wait for torch, then put the instruments on.

Nothing heavy is imported before the script does it itself, so that a process that never touches torch (a launcher, a
download helper) costs next to nothing.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.abc
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

WAITED_FOR = ("torch", "sklearn", "pandas", "imblearn")


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls back when one of the modules it waits for has been imported by somebody else."""

    def __init__(self, names: Sequence[str], done: Callable[[str, ModuleType], None]) -> None:
        self.waiting = set(names)
        self.done = done

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        del path, target
        if name not in self.waiting:
            return None
        self.waiting.discard(name)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            self.waiting.add(name)
            return spec
        run = spec.loader.exec_module

        def run_and_tell(module: ModuleType) -> None:
            run(module)
            self.done(name, module)

        spec.loader.exec_module = run_and_tell  # type: ignore[method-assign]  # this loader serves this module only
        return spec


class Session:
    """What is on in this process."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.pid = os.getpid()
        self.recorder: Any = None
        self.started = time.monotonic()

    def imported(self, name: str, module: ModuleType) -> None:
        try:
            if name == "torch":
                self._watch_torch()
            elif self.recorder is not None or name != "torch":
                self._provenance(name, module)
        except Exception as error:  # noqa: BLE001  # said in the report; the script goes on unobserved
            self.trouble(f"could not observe {name}: {type(error).__name__}: {error}")

    def _watch_torch(self) -> None:
        from clew.observe.hooks import Hooks
        from clew.observe.recorder import Recorder
        from clew.observe.registry import all_watches

        watches, failed = all_watches()
        for sentence in failed:
            self.trouble(sentence)
        limit = int(os.environ.get("CLEW_STEPS", "0") or 0)
        self.recorder = Recorder(self.folder, watches, os.environ.get("CLEW_SAMPLE", "auto"), limit)
        Hooks(self.recorder, self.stop).install()
        atexit.register(self.end)

    def _provenance(self, name: str, module: ModuleType) -> None:
        try:
            provenance = importlib.import_module("clew.observe.provenance")
        except ModuleNotFoundError:
            return
        provenance.install(name, module, self.recorder)

    def stop(self) -> None:
        """Enough steps were seen: end the script as if it had called sys.exit; if it will not, end it outright."""
        recorder = self.recorder
        if recorder.step > recorder.limit:
            self.end()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        with open(os.path.join(self.folder, "stopped"), "w", encoding="ascii") as file:
            file.write(str(recorder.step))
        raise SystemExit(0)

    def end(self) -> None:
        if self.recorder is None or os.getpid() != self.pid:
            return
        try:
            self.recorder.settle(False)
            self.recorder.checkpoint(final=True)
        except Exception as error:  # noqa: BLE001  # the run is over; what could not be written is said
            self.trouble(f"could not write what was seen: {type(error).__name__}: {error}")

    def trouble(self, sentence: str) -> None:
        with open(os.path.join(self.folder, f"trouble-{os.getpid()}.txt"), "a", encoding="utf-8") as file:
            file.write(sentence + "\n")


def begin(folder: str) -> Session:
    """Called once per process, before the script's first import."""
    session = Session(folder)
    sys.meta_path.insert(0, AfterImport(WAITED_FOR, session.imported))
    _copy_output(session)
    return session


def _copy_output(session: Session) -> None:
    """Keep a copy of what is printed. The streams stay the same objects; only their write is wrapped."""
    from clew.observe.output import OutputCopy

    copy = OutputCopy(os.path.join(session.folder, "output.jsonl"), session.started)
    for name, stream in (("out", sys.stdout), ("err", sys.stderr)):
        if stream is not None:
            copy.attach(name, stream)
    atexit.register(copy.flush)
