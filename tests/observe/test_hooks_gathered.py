"""Hooks that are registered again and again, and ways of using hooks that are sound."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from loops_training import answers, text_at
from torch import nn
from torch.nn.utils import parametrizations

from clew.observe.watches.hooks_gathered import HooksGathered

Each = Callable[[nn.Module, int], None]


def train(each: Each, epochs: int = 12) -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), parametrizations.weight_norm(nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        each(model, epoch)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(4, 3)).square().mean().backward()
            optimizer.step()


def note(found: list[Any]) -> Callable[..., None]:
    def hook(module: Any, inputs: Any, output: Any) -> None:
        del module, inputs
        found.append(float(output.detach().mean()))

    return hook


def every_epoch(model: nn.Module, epoch: int) -> None:
    del epoch
    for module in model.modules():
        module.register_forward_hook(note([]))


def on_parameters(model: nn.Module, epoch: int) -> None:
    del epoch
    next(model.parameters()).register_hook(lambda gradient: 1.0 * gradient)


def nothing(model: nn.Module, epoch: int) -> None:
    del model, epoch


def once(model: nn.Module, epoch: int) -> None:
    if not epoch:
        for _ in range(6):
            every_epoch(model, epoch)


def a_few(model: nn.Module, epoch: int) -> None:
    if epoch < 3:
        every_epoch(model, epoch)


def for_a_look() -> Each:
    held: list[Any] = []

    def each(model: nn.Module, epoch: int) -> None:
        del epoch
        while held:
            held.pop().remove()
        held.extend(module.register_forward_hook(note([])) for module in model.modules())

    return each


@pytest.mark.parametrize("each", [every_epoch, on_parameters])
def test_hooks_that_become_more(tmp_path: Path, each: Each) -> None:
    found = answers(tmp_path, lambda: train(each), HooksGathered)["hooks_gathered"]
    assert found["outcome"] == "gathers", found
    assert "register_" in text_at(found)


@pytest.mark.parametrize("each", [nothing, once, a_few, for_a_look()])
def test_hooks_that_do_not(tmp_path: Path, each: Each) -> None:
    found = answers(tmp_path, lambda: train(each), HooksGathered)["hooks_gathered"]
    assert found["outcome"] == "as_many", found


def test_too_short_to_tell(tmp_path: Path) -> None:
    found = answers(tmp_path, lambda: train(every_epoch, 1), HooksGathered)["hooks_gathered"]
    assert found["outcome"] == "unclear", found
