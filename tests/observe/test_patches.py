"""What stands in the place of a library's function behaves like it: in a class body, in a pickle, under inspection.

One program makes every call of `Patches.replace` that the source has; each is held against what was there before.
"""

# mypy: disable-error-code="no-untyped-call"

import ast
import copy
import inspect
import pickle
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from launching import bare, clew_run, script
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from clew import observe
from clew.observe.hooks import Hooks, watching
from clew.observe.patches import Patches
from clew.observe.recorder import Recorder
from clew.observe.registry import all_watches
from clew.observe.taping import Taper

SOURCE = Path(observe.__file__).parent


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        del ctx
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        del ctx
        return grads[0] * 2


class Env:
    def reset(self) -> int:
        return 0

    def step(self, action: int) -> tuple[int, float, bool, dict[str, int]]:
        return action, 1.0, False, {}


def step(state: int, action: int) -> tuple[int, float, bool]:
    return state + action, 1.0, False


def program() -> None:
    """A little of everything that some watch waits for."""
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = torch.randn(8, 3)
    for x, y in DataLoader(TensorDataset(torch.randn(8, 3), torch.zeros(8, dtype=torch.long)), 4):
        model(rows[:4].mul_(0.5))
        optimizer.zero_grad()
        F.cross_entropy(Twice.apply(model(x)), y).backward()
        optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler imports what torch has given up
        torch.compile(nn.Linear(2, 2))
        torch.compiler.reset()


class Site(NamedTuple):
    file: str
    line: int


class Met(NamedTuple):
    what: str
    before: tuple[Any, ...]
    after: tuple[Any, ...]


def again(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301  # what this test has just made


def outcome(call: Callable[..., Any], *args: Any) -> Any:
    try:
        return call(*args)
    except Exception as error:  # noqa: BLE001  # which one it is belongs to the comparison
        return type(error)


def character(owner: Any, name: str) -> tuple[Any, ...]:
    """Whatever a program could tell two callables apart by, but for the object itself."""
    held = getattr(owner, name)
    body: Any = type("Body", (), {"held": held})
    module = isinstance(owner, ModuleType)
    kind = isinstance(inspect.getattr_static(owner, name), staticmethod)
    return (
        not module or outcome(lambda: body().held is held),
        not module or outcome(lambda: body.held is held),
        outcome(lambda: again(held) is held),
        outcome(lambda: copy.copy(held) is held and copy.deepcopy(held) is held),
        outcome(lambda: str(inspect.signature(held))),
        outcome(lambda: str(inspect.getfullargspec(held))) if module else None,
        [asked(held) for asked in (callable, inspect.isbuiltin, inspect.ismethod)],
        inspect.isroutine(held),
        kind,
        held.__name__,
        held.__doc__,
    )


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> dict[Site, list[Met]]:
    folder, met = tmp_path_factory.mktemp("walked"), dict[Site, list[Met]]()
    replace = Patches.replace

    def noting(patches: Patches, owner: Any, name: str, make: Any) -> None:
        before = character(owner, name) if hasattr(owner, name) else ()
        held = len(patches._held)
        replace(patches, owner, name, make)
        frame: FrameType = sys._getframe(1)
        place = Site(str(Path(frame.f_code.co_filename).relative_to(SOURCE)), frame.f_lineno)
        if len(patches._held) > held:
            met.setdefault(place, []).append(Met(f"{owner.__name__}.{name}", before, character(owner, name)))

    class Kept(Taper):
        def __init__(self, recorder: Recorder) -> None:
            super().__init__(recorder, str(folder / "capture"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Patches, "replace", noting)
        recorder = Recorder(str(folder), [*all_watches()[0], Kept])
        hooks = Hooks(recorder)
        for watch in recorder.watches:
            if isinstance(watch, Kept):
                watch.hooks = hooks
        hooks.install()
        try:
            program()
        finally:
            for watch in recorder.watches:
                if isinstance(watch, Kept):
                    watch.end()
            hooks.uninstall()
    return met


def calls() -> list[Site]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(attr="replace"), args=[_, _, ast.AST()]):
                    if not isinstance(node.args[2], ast.Constant):
                        found.append(Site(str(path.relative_to(SOURCE)), node.lineno))
    return found


@pytest.mark.parametrize("site", calls(), ids=lambda site: f"{site.file}:{site.line}")
def test_a_replacement_is_like_what_it_replaces(walked: dict[Site, list[Met]], site: Site) -> None:
    assert site in walked, f"nothing in this test makes the call at {site}: add to `program` what it waits for"
    for met in walked[site]:
        pickles = (
            *met.before[:2],
            True,
            *met.before[3:],
        )  # also what torch makes in a function and could not be pickled
        assert met.after in (met.before, pickles), met.what


def test_functions_in_class_bodies_and_maps_do_what_they_did(tmp_path: Path) -> None:
    with watching(tmp_path, all_watches()[0]):

        class Body:
            out, order, digest, seed, numpy = torch.softmax, torch.randperm, hash, random.seed, np.random.default_rng

        body: Any = Body()
        assert body.out(torch.zeros(2), 0).tolist() == [0.5, 0.5]
        assert sorted(body.order(3).tolist()) == [0, 1, 2]
        assert body.digest(7) == 7
        body.seed(3)
        first, _ = random.random(), random.seed(3)
        assert first == random.random()
        assert list(map(torch.sigmoid, [torch.zeros(1)])) == [torch.tensor([0.5])]
        assert list(map(hash, (1, 2))) == [1, 2]
        assert repr(torch.softmax).startswith("<built-in method softmax")


def test_a_name_taken_before_the_first_step_still_pickles(tmp_path: Path) -> None:
    """Pickle looks a function up by its name and wants to find the same one."""
    with watching(tmp_path, all_watches()[0]):
        held = [F.dropout, torch.autograd.grad, torch.distributed.all_reduce, torch.manual_seed, F.cross_entropy]
        program()
        held += [F.relu, F.dropout]
        assert again(held) == held


def test_what_the_script_puts_there_itself_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own: Any = print
    with watching(tmp_path, all_watches()[0]):
        monkeypatch.setattr(F, "softmax", own)
        torch.fx.symbolic_trace(nn.ReLU())
        assert F.softmax is own
    assert F.softmax is own


OVERRIDES = """
import enum, traceback
import torch, torch.nn.functional as F
from torch.overrides import TorchFunctionMode, resolve_name

x, heard = torch.arange(6.0).view(2, 3), []
TABLE = {torch.softmax: "softmax", F.cross_entropy: "cross-entropy", torch.Tensor.softmax: "method"}

class Own(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        heard.append(resolve_name(function))
        return TABLE[function] if function in TABLE else super().__torch_function__(function, types, args, kwargs or {})

class Mode(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        heard.append(resolve_name(function))
        return function(*args, **(kwargs or {}))

class Choice(enum.Enum):
    soft, hashed = torch.softmax, hash

own = x.as_subclass(Own)
print(torch.softmax(own, 1), F.cross_entropy(own, torch.tensor([0, 1])), own.softmax(1), list(Choice.__members__))
torch.sigmoid(own)
with Mode():
    F.cross_entropy(x, torch.tensor([0, 1])), torch.softmax(x, 1), x.softmax(1)
print(heard)
for wrong in (lambda: hash([]), lambda: torch.softmax(x), lambda: F.cross_entropy(x, x[:1])):
    try:
        wrong()
    except Exception:
        print(traceback.format_exc())
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
"""


def test_overrides_of_torch_hear_what_they_hear_bare(tmp_path: Path) -> None:
    script(tmp_path, OVERRIDES)
    under = clew_run(tmp_path, "--quiet", "train.py")
    assert (under.status, under.out) == (0, bare(tmp_path, "train.py").out)
