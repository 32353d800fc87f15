"""Getting ready inside the observed process: wait for torch, then put the instruments on.

Nothing heavy is imported before the script does it itself, so that a process that never touches torch (a launcher, a
download helper) costs next to nothing.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import importlib.abc
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any, NoReturn

from clew.home import private
from clew.observe import crash, files, tally
from clew.observe.guard import Unwarned, own_part, release
from clew.observe.output import OutputCopy
from clew.observe.patches import unframe
from clew.observe.tally import TEXT

WAITED_FOR = ("torch", "sklearn", "pandas", "imblearn", "polars", "h5py", "pyarrow.parquet", "pyarrow.feather")


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls back when one of the modules it waits for has been imported by somebody else."""

    def __init__(self, names: Sequence[str], done: Callable[[str, ModuleType], None]) -> None:
        self.waiting = set(names)
        self.asking: set[str] = set()
        self.done = done

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Also asked by scripts that only want to know whether a module is there: it may not be imported yet."""
        del path, target
        if name not in self.waiting or name in self.asking:
            return None
        self.asking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asking.discard(name)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        run = loader.exec_module

        def run_and_tell(module: ModuleType) -> None:
            loader.exec_module = run
            try:
                run(module)
            except BaseException as error:
                unframe(error)
                raise
            if name in self.waiting:
                self.waiting.discard(name)
                self.done(name, module)

        loader.exec_module = run_and_tell
        return spec


class Session:
    """What is on in this process."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.pid = os.getpid()
        self.forked = False
        self.recorder: Any = None
        self.sources: set[str] = set()
        self.taper: Any = ()
        self.started = float(os.environ.get("CLEW_CLOCK") or time.monotonic())  # one clock for all processes
        self.copy = OutputCopy(os.path.join(folder, "output.jsonl"), self.started)
        if os.environ.get("CLEW_PROGRESS"):
            from clew.observe.progress import ProgressLine

            self.copy.progress = ProgressLine(folder)

    def imported(self, name: str, module: ModuleType) -> None:
        try:
            with Unwarned():
                if name == "torch":
                    self._watch_torch()
                    self._provenance(name, module)
                    self.write_sources()
                    atexit.register(self.end)  # before torch takes itself apart
                    os.register_at_fork(before=self.copy.before_fork, after_in_child=self.in_child)
                else:
                    self._provenance(name, module)
        except BaseException as error:  # noqa: BLE001  # said in the report; the script goes on unobserved
            release(error)
            self.trouble(f"could not observe {name}: {type(error).__name__}: {error}")

    def _watch_torch(self) -> None:
        from clew.observe.hooks import Hooks
        from clew.observe.recorder import Recorder
        from clew.observe.registry import all_watches
        from clew.observe.settings import Settings

        watches, failed = all_watches()
        for sentence in failed:
            self.trouble(sentence)
        before = tally.read(os.path.join(self.folder, f"{tally.BEGINS}{self.pid}"))[tally.STEPS]
        if before:
            self.trouble(f"process {self.pid} trained {before} steps before os.exec replaced it; they are not counted")
        limit = int(os.environ.get("CLEW_STEPS", "0") or 0)
        self.recorder = Recorder(
            self.folder, [*watches, Settings, self._kept_step()], os.environ.get("CLEW_SAMPLE", "auto"), limit
        )
        self.recorder.also_write = self.write_along
        hooks = Hooks(self.recorder, self.stop, self.trouble)
        for watch in self.recorder.watches:
            if isinstance(watch, self.taper):
                watch.hooks = hooks
        hooks.install()

    def _kept_step(self) -> Any:
        """The instrument that keeps one training step for the exams."""
        from clew.observe.taping import Taper, capture_folder

        folder = capture_folder(self.folder) if os.environ.get("CLEW_CAPTURE") == "1" else ""

        class Kept(Taper):
            def __init__(self, recorder: Any) -> None:
                super().__init__(recorder, folder)

        self.taper = Kept
        return Kept

    def in_child(self) -> None:
        """A forked process that may train (a worker of a DataLoader never does) is observed afresh."""
        self.pid, self.forked, self.recorder = os.getpid(), True, None
        self.copy.begin_anew()
        if not _forked_by_a_loader():
            try:
                self._watch_torch()
            except BaseException as error:  # noqa: BLE001  # as above
                release(error)
                self.trouble(f"could not observe a forked process: {type(error).__name__}: {error}")

    def _provenance(self, name: str, module: ModuleType) -> None:
        try:
            provenance = importlib.import_module("clew.observe.provenance")
        except ModuleNotFoundError:
            return
        provenance.install(name, module, self.recorder)

    def stop(self) -> None:
        """Enough steps were seen: end the script as if it had called sys.exit; if it will not, end it outright."""
        recorder = self.recorder
        if recorder is None:
            return
        if recorder.step > recorder.limit:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None and not stream.closed:
                    stream.flush()
            os._exit(0)
        raise SystemExit(0)

    def end(self) -> None:
        """The process is about to end: write everything down."""
        if os.getpid() != self.pid:
            return
        recorder, self.recorder = self.recorder, None
        try:
            if self.copy.progress is not None:
                self.copy.progress.clear()
            self.copy.log.flush()
            crash.write(self.folder, self.started)
            if recorder is not None:
                recorder.tally.put(TEXT, self.copy.log.file.missing)
            self.write_sources()
            self.write_files()
            own = own_part(getattr(sys, "last_value", None))
            if own:
                name = os.path.join(self.folder, f"own-{self.pid}")
                with open(name, "w", encoding="utf-8", opener=private) as file:
                    file.write(own)
            with Unwarned():
                if recorder is not None and (recorder.step or not self.forked):
                    recorder.settle(False)
                    recorder.checkpoint(final=True)
                    for watch in recorder.watches:
                        if isinstance(watch, self.taper):
                            self._keep(watch)
                        elif hasattr(watch, "write"):
                            watch.write(os.path.join(self.folder, f"settings-{self.pid}.json"))
        except BaseException as error:  # noqa: BLE001  # the run is over; what could not be written is said
            release(error)
            self.trouble(f"could not write what was seen: {type(error).__name__}: {error}")

    def write_along(self) -> None:
        """What goes with every checkpoint."""
        if self.recorder is not None:
            self.recorder.tally.put(TEXT, self.copy.log.file.missing)
        self.write_sources()
        self.write_files()
        if self.copy.progress is not None and self.recorder is not None:
            with suppress(Exception):  # a terminal that has gone away is no trouble of the run
                self.copy.progress.draw(self.recorder)

    def write_files(self) -> None:
        """Which data files were opened, by whom, as they were then."""
        files.write(os.path.join(self.folder, f"files-{self.pid}.json"))

    def _keep(self, taper: Any) -> None:
        taper.finish()
        if taper.folder and taper.why and taper.tape is None and taper.recorder.models:
            self.trouble(f"no training step could be captured for exams: {taper.why}")

    def write_sources(self) -> None:
        """Which of the user's own files were imported, the script among them: when it has ended, Python no longer says
        which it was."""
        from clew.observe.places import is_users

        modules = [module for module in list(sys.modules.values()) if issubclass(type(module), ModuleType)]
        # by way of object: some modules import themselves when they are asked for anything
        files = {str(object.__getattribute__(module, "__dict__").get("__file__")) for module in modules}
        self.sources.update(os.path.abspath(file) for file in files if file.endswith(".py") and is_users(file))
        if self.sources:
            path = os.path.join(self.folder, f"sources-{self.pid}")
            with (
                suppress(OSError),
                open(path, "w", encoding="utf-8", errors="surrogateescape", opener=private) as file,
            ):
                file.write("\n".join(sorted(self.sources)) + "\n")

    def trouble(self, sentence: str) -> None:
        with (
            suppress(OSError),
            open(
                os.path.join(self.folder, f"trouble-{os.getpid()}.txt"), "a", encoding="utf-8", opener=private
            ) as file,
        ):
            file.write(" ".join(sentence.split()) + "\n")


def _forked_by_a_loader() -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.endswith(os.path.join("torch", "utils", "data", "dataloader.py")):
            return True
        frame = frame.f_back
    return False


def begin(folder: str) -> Session:
    """Called once per process, before the script's first import."""
    session = Session(folder)
    if os.environ.get("CLEW_INSTRUMENTS") != "0":
        with suppress(Exception):
            files.install()
        sys.meta_path.insert(0, AfterImport(WAITED_FOR, session.imported))
    for name, stream in (("out", sys.stdout), ("err", sys.stderr)):
        if stream is not None:
            session.copy.attach(name, stream)
    atexit.register(session.end)
    _leave_in_order(session)
    return session


def _leave_in_order(session: Session) -> None:
    """`os._exit` runs no exit functions; forked processes end with it too. Not for other threads: they may call it
    because the main one hangs."""
    leave = os._exit

    @functools.wraps(leave)
    def _exit(status: int) -> NoReturn:
        if threading.current_thread() is threading.main_thread():
            session.end()
        leave(status)

    os._exit = _exit
