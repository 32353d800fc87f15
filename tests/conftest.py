"""Every test that runs a command does so in a folder and with a cache of its own."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import hypothesis
import pytest

from clew.cli import main
from clew.home import home

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # bf16 beyond it dies on some processors
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the processes that tests start need not compile clew one by one
os.environ.setdefault("OMP_NUM_THREADS", "1")  # two workers share the machine, and each starts processes of its own

# No deadline: a busy machine is no fault. Half of the usual examples; tests that need more ask for them.
hypothesis.settings.register_profile("clew", deadline=None, max_examples=50)
hypothesis.settings.load_profile("clew")


# Tests that start whole training runs by the dozen: of those with parameters `make test` makes one in so many, always
# the same ones. CLEW_TESTS=all, or naming a file, makes all of them.
ONE_IN = {"test_zoo": 5, "test_programs": 6, "test_faults": 4, "test_launch": 3, "test_rl": 2, "test_situations": 2}


def pytest_configure(config: pytest.Config) -> None:
    os.environ.pop("CLEW_HOME", None)
    archive = home(tempfile.gettempdir())
    if os.path.isdir(archive):
        raise pytest.UsageError(
            f"{archive} lies above the folders of the tests, which would write into it: move it away."
        )
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and os.environ.get("CLEW_TESTS") != "all":
        os.environ["CLEW_TESTS"] = "some"  # the workers see where their tests come from no more


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("CLEW_TESTS") != "some":
        return
    left = [item for item in items if "[" in item.name and crc32(item.nodeid.encode()) % ONE_IN.get(item.path.stem, 1)]
    if left:
        items[:] = [item for item in items if item not in set(left)]
        config.hook.pytest_deselected(items=left)


class Said(NamedTuple):
    status: int
    out: str
    err: str


Clew = Callable[..., Said]


@pytest.fixture
def clew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Clew:
    """Run `clew WORDS…` in an empty folder, as a pipe would see it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLEW_HOME", raising=False)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words: str) -> Said:
        try:
            status = main(list(words))
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 1
        out, err = capsys.readouterr()
        return Said(status, out, err)

    return run
