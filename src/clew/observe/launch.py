"""Running somebody's command as it is, with clew in its environment, and waiting for it properly.

The command runs in a process of its own that inherits the terminal: same arguments, folder, standard streams and
signals as a bare run. clew waits beside it, passes on what it is told, and looks at the trace when it has ended.
"""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

from clew.errors import ClewError

BOOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "boot")
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
FROM_THE_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)
ENDING = (signal.SIGTERM, signal.SIGHUP, *FROM_THE_KEYBOARD)
HEARD_SECONDS = 0.5
"""Within which the witness ends by a signal to the whole group."""
LEFT_SECONDS = 4.0
"""From a signal that asks clew to end until it ends by it, with its report out or not."""


class Ended(NamedTuple):
    """How the command ended. `status` is what a shell would report."""

    status: int
    signal: int
    seconds: float


class Told:
    """What clew is told by signals, from the start of the command until its report is out."""

    def __init__(self) -> None:
        self.asked = 0  # the first signal that asked to end
        self.late = 0  # one that came when the command had ended
        self.stop: Callable[[], None] | None = None  # ends what is being made for the report
        self.child: subprocess.Popen[bytes] | None = None
        self._witness: subprocess.Popen[bytes] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Told":
        return self

    def __exit__(self, *_: object) -> None:
        self._restore(*self._before)
        self._dismiss()
        signal.setitimer(signal.ITIMER_REAL, 0.0)

    def started(self, child: "subprocess.Popen[bytes]") -> None:
        """From now on; a command that was started with signals ignored has them ignored."""
        self.child = child
        self._witness = _witness()
        for number in (*PASSED_ON, *FROM_THE_KEYBOARD):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before.setdefault(number, signal.signal(number, self._hear))

    def ended(self) -> None:
        """The keyboard speaks to clew again."""
        self.child = None
        self._dismiss()
        self._restore(*FROM_THE_KEYBOARD)
        if self.asked in PASSED_ON:
            self._hurry(self.asked)

    def _restore(self, *numbers: int) -> None:
        for number in numbers:
            if number in self._before:
                signal.signal(number, self._before.pop(number))

    def _hear(self, number: int, _: FrameType | None) -> None:
        if number in ENDING:
            self.asked = self.asked or number
        if self.child is not None:
            if not self._group_heard():
                self.child.send_signal(number)
        elif number in ENDING:
            self.late = number
            self._hurry(number)
            if self.stop is not None:
                self.stop()

    def _group_heard(self) -> bool:
        """Whether the signal went to the whole group, as Ctrl-C at a terminal does, and so to the command as well."""
        if self._witness is None:
            return False
        try:
            self._witness.wait(HEARD_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        self._dismiss()
        self._witness = _witness()
        return True

    def _dismiss(self) -> None:
        if self._witness is not None and self._witness.stdin is not None:
            self._witness.stdin.close()
            self._witness.wait()
            self._witness = None

    def _hurry(self, by: int) -> None:
        signal.signal(signal.SIGALRM, lambda *_: end_like(by))
        signal.setitimer(signal.ITIMER_REAL, LEFT_SECONDS)


def _witness() -> "subprocess.Popen[bytes] | None":
    """A process of the same group that ends by any signal, or when clew ends."""
    try:
        return subprocess.Popen(
            ["cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
        )
    except OSError:
        return None


def end_like(number: int) -> None:
    """End by the signal that ended the script, so that whoever waits for clew sees what they would have seen."""
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(signal.Signals(number))


def command_for(words: list[str], module: str = "", launcher: bool = False) -> list[str]:
    """The command that a bare run would use."""
    if module:
        return [sys.executable, "-m", module, *words]
    if not words:
        raise ClewError("say which script to run: clew run train.py")
    if launcher:
        return words
    if words[0].endswith(".ipynb"):
        raise ClewError(
            f"{words[0]} is a notebook, and clew runs scripts; jupyter nbconvert --to script {words[0]} makes one."
        )
    if not os.path.exists(words[0]):
        raise ClewError(
            f"there is no script {words[0]!r} here; for a command of another kind: clew run -- {' '.join(words)}"
        )
    if os.path.isdir(words[0]) and not os.path.exists(os.path.join(words[0], "__main__.py")):
        raise ClewError(f"{words[0]!r} is a folder without __main__.py; name the script in it.")
    return [sys.executable, *words]


def environment(
    folder: str, steps: int, sample: str, progress: bool = False, capture: bool = False, instruments: bool = True
) -> dict[str, str]:
    """The environment of the command: as it is, with the way into the process in front of the path."""
    held = dict(os.environ)
    path = held.get("PYTHONPATH")
    held["PYTHONPATH"] = BOOT + (os.pathsep + path if path else "")
    held["CLEW_RUN_FOLDER"] = folder
    held["CLEW_SOURCE"] = SOURCE
    held["CLEW_CLOCK"] = repr(time.monotonic())
    held["CLEW_STEPS"] = str(steps)
    held["CLEW_SAMPLE"] = sample
    held["CLEW_PROGRESS"] = "1" if progress else ""
    held["CLEW_CAPTURE"] = "1" if capture else ""
    held["CLEW_INSTRUMENTS"] = "1" if instruments else "0"
    return held


def launch(
    command: list[str],
    folder: str,
    steps: int = 0,
    sample: str = "auto",
    tick: Callable[[], None] | None = None,
    capture: bool = False,
    instruments: bool = True,
    told: Told | None = None,
) -> Ended:
    """Run the command to its end. Ctrl-C reaches it as usual; clew itself stays to report. With `tick`, which is called
    twice a second, the observed process shows its progress; with `capture` it keeps a training step for exams."""
    if told is None:
        with Told() as told:
            return launch(command, folder, steps, sample, tick, capture, instruments, told)
    started = time.monotonic()
    try:
        child = subprocess.Popen(
            command, env=environment(folder, steps, sample, tick is not None, capture, instruments)
        )
    except OSError as error:
        raise ClewError(f"cannot run {command[0]}: {error.strerror}.") from error
    told.started(child)
    while True:
        try:
            code = child.wait(0.5 if tick else None)
            break
        except subprocess.TimeoutExpired:
            if tick:
                tick()
    told.ended()
    killed = -code if code < 0 else 0
    return Ended(128 + killed if killed else code, killed, time.monotonic() - started)
