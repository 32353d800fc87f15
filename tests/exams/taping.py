"""Keeping a training step inside the test's own process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clew.exams.captured import CapturedSubject
from clew.observe.hooks import Hooks
from clew.observe.recorder import Recorder
from clew.observe.taping import Taper


@contextmanager
def taping(folder: Path) -> Iterator[Taper]:
    """Whatever trains inside the block is kept in `folder`."""

    class Kept(Taper):
        def __init__(self, recorder: Recorder) -> None:
            super().__init__(recorder, str(folder / "capture-1"))

    recorder = Recorder(str(folder), [Kept])
    hooks = Hooks(recorder)
    (taper,) = recorder.watches
    assert isinstance(taper, Taper)
    taper.hooks = hooks
    hooks.install()
    try:
        yield taper
    finally:
        taper.finish()
        hooks.uninstall()
        assert not recorder.broken, recorder.broken


def kept(folder: Path, train: Callable[[], Any]) -> CapturedSubject:
    with taping(folder) as taper:
        train()
    assert taper.tape is not None, taper.why
    return CapturedSubject(str(folder / "capture-1"))
