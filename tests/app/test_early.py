"""Names that nothing defines and calls that do not fit are named before the start, and stop nothing."""

import textwrap
from pathlib import Path

import pytest
from launching import clew_run, script

from clew.lint.early import early

HELPERS = """
import math
from dataclasses import dataclass
from functools import partial

def make(a, b, *, c=1):
    return math.sqrt(a) + npp.sum(b)

@dataclass
class Config:
    lr: float = 0.1
"""
TRAIN = """
from __future__ import annotations
import torch
from helpers import Config, make

class Net(torch.nn.Module):
    def __init__(self, width, depth=2):
        super().__init__()
        self.line = torch.nn.Linear(width, 2)

    def forward(self, x, mask=None):
        return self.line(x)

    def score(self, x: NoSuchType) -> AlsoNone:
        return self(x).sum()

net = Net(3)
"""


def told(folder: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(folder)
    (folder / "helpers.py").write_text(HELPERS)
    (folder / "train.py").write_text(TRAIN + textwrap.dedent(source))
    found = early("train.py")
    assert next(one for one in found if one.path == "helpers.py").says == "npp is not defined"
    return [one.says for one in found if one.path == "train.py"]


WRONG = {
    "def late():\n    return modle(1)": "modle is not defined",
    "n = 0\ndef late():\n    print(n)\n    n = 1": "n is used before it is given a value",
    "Net()": "Net.__init__ (line 7) is called without width",
    "Net(1, 2, 3)": "Net.__init__ (line 7) takes 2 arguments, and 3 are given",
    "Net(width=1, hidden=2)": "Net.__init__ (line 7) takes no argument 'hidden'",
    "net(1, 2, 3)": "Net.forward (line 11) takes 2 arguments, and 3 are given",
    "net.score()": "Net.score (line 14) is called without x",
    "make(1)": "make (line 6) is called without b",
    "make(1, 2, 3)": "make (line 6) takes 2 arguments, and 3 are given",
}
FINE = [
    "Net(1, 2)(3, 4)",
    "net.score(x=1)",
    "make(1, 2, c=3)",
    "make(*args) if (args := [1, 2]) else make(**{'a': 1, 'b': 2})",
    "Config(lr=1.0)",
    "from functools import partial\nmake = partial(make, b=1)\nmake(1)",
    "try:\n    make(1)\nexcept TypeError:\n    pass",
    "try:\n    unicode\nexcept NameError:\n    unicode = str",
    "import sys\nif sys.version_info[0] < 3:\n    range = xrange",
    "exec('lr = 1')\nprint(lr)",
    "class Wide(Net):\n    def score(self, x, y):\n        return 1\ndef f(net: Net):\n    return net.score(1, 2)",
    "def any_of(*parts, **more):\n    return parts\nany_of(1, 2, a=3)",
    "import contextlib\n@contextlib.contextmanager\ndef held(a):\n    yield a\nheld(1, 2, 3)",
]


@pytest.mark.parametrize("source", WRONG)
def test_what_would_end_the_run_is_named(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(tmp_path, source, monkeypatch) == [WRONG[source]]


@pytest.mark.parametrize("source", FINE)
def test_sound_code_is_let_be(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(tmp_path, source, monkeypatch) == []


def test_the_run_is_told_of_them_first_and_starts(tmp_path: Path) -> None:
    script(tmp_path, "import torch\nprint('started')\nif torch.rand(1) > 2:\n    modle(1)\n")
    ran = clew_run(tmp_path, "--no-exams", "train.py")
    assert ran.status == 0
    assert "started" in ran.out
    assert ran.err.startswith("clew: train.py:4: modle is not defined\n")


def test_a_script_that_cannot_be_read_gets_no_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("def f(:\n")
    assert early("train.py") == []
