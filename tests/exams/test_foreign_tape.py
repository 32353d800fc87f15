"""A tape from somebody else calls operations on tensors, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from taping import kept
from torch import nn
from torch.overrides import get_overridable_functions

from clew.errors import ClewError
from clew.exams.captured import captured
from clew.tape.coding import decode
from clew.tape.names import name_of


class Marking:
    """Unpickled, it leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def train(folder: Path) -> Path:
    def steps() -> None:
        model = nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(torch.randn(6, 3)), torch.randn(6, 1)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    kept(folder, steps)
    return folder / "capture-1"


@pytest.mark.parametrize("name", ["load", "save", "hub.load", "from_file", "_import_dotted_name", "Tensor.map_"])
def test_other_operations_are_refused_by_name(tmp_path: Path, name: str) -> None:
    held = train(tmp_path) / "tape.json"
    torch.save(Marking(tmp_path / "executed"), tmp_path / "evil.pt")
    table = json.loads(held.read_text())
    table["calls"].insert(0, [name, [str(tmp_path / "evil.pt")], {"dict": [["weights_only", False]]}, [], 0, -1, ""])
    held.write_text(json.dumps(table))
    with pytest.raises(ClewError, match=f"the tape calls '{name}', which is not among the operations"):
        captured(str(tmp_path))
    assert not (tmp_path / "executed").exists()


def test_other_constants_are_refused_by_name() -> None:
    with pytest.raises(ClewError, match="names 'load', which is no dtype"):
        decode({"torch": "load"}, lambda slot: slot, torch.device("cpu"), int)


@pytest.mark.parametrize(
    "kind", ["torch.optim.lr_scheduler.warnings.warn", "torch.optim.swa_utils.deepcopy", "os.abort"]
)
def test_an_optimiser_is_one_of_torchs_own(tmp_path: Path, kind: str) -> None:
    held = train(tmp_path) / "optimizer.json"
    table = json.loads(held.read_text())
    subject = captured(str(tmp_path))
    assert isinstance(subject.make_optimizer(subject.model), torch.optim.SGD)
    table[0]["kind"] = kind
    held.write_text(json.dumps(table))
    subject = captured(str(tmp_path))
    assert subject.make_optimizer(subject.model) is None


def test_all_that_torch_offers_a_forward_pass_can_stand_on_a_tape() -> None:
    """A torch that offers more needs more names in operations.txt."""
    spaces = (torch.nn.functional, torch.linalg, torch.fft, torch.special)
    known = get_overridable_functions()
    missing = [
        f"{space.__name__}.{function.__name__}"
        for space in spaces
        for function in known[space]
        if name_of(function) is None and not function.__name__.startswith("_")
    ]
    assert not missing
