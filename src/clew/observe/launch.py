"""Running somebody's command as it is, with clew in its environment, and waiting for it properly.

The command runs in a process of its own that inherits the terminal: same arguments, folder, standard streams and
signals as a bare run. clew waits beside it, passes on what it is told, and looks at the trace when it has ended.
"""

import os
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
FROM_THE_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)  # the terminal sends these to the command as well


class Ended(NamedTuple):
    """How the command ended. `status` is what a shell would report."""

    status: int
    signal: int
    seconds: float


def command_for(words: list[str], module: str = "", launcher: bool = False) -> list[str]:
    """The command that a bare run would use."""
    if module:
        return [sys.executable, "-m", module, *words]
    if not words:
        raise ClewError("say which script to run: clew run train.py")
    if launcher:
        return words
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
) -> Ended:
    """Run the command to its end. Ctrl-C reaches it as usual; clew itself stays to report. With `tick`, which is called
    twice a second, the observed process shows its progress; with `capture` it keeps a training step for exams."""
    started = time.monotonic()
    try:
        child = subprocess.Popen(
            command, env=environment(folder, steps, sample, tick is not None, capture, instruments)
        )
    except OSError as error:
        raise ClewError(f"cannot run {command[0]}: {error.strerror}.") from error

    def pass_on(number: int, _: FrameType | None) -> None:
        child.send_signal(number)

    before: dict[int, Any] = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    before |= {number: signal.signal(number, signal.SIG_IGN) for number in FROM_THE_KEYBOARD}
    try:
        while True:
            try:
                code = child.wait(0.5 if tick else None)
                break
            except subprocess.TimeoutExpired:
                if tick:
                    tick()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    killed = -code if code < 0 else 0
    return Ended(128 + killed if killed else code, killed, time.monotonic() - started)
