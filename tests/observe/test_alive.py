"""Which forward calls a backward belongs to, told by the graphs that are alive."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from clew.observe import alive
from clew.observe.recorder import Recorder
from clew.observe.watch import Judged, Watch


class Notes(Watch):
    test = "notes"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.seen: list[Judged] = []

    def judged(self, event: Judged) -> None:
        self.seen.append(event)


def test_a_token_is_gone_with_its_graph() -> None:
    model = nn.Linear(3, 2)
    held = model(torch.randn(4, 3))
    token = alive.mark([held])
    assert token is not None
    assert token() in (alive.reached(held.sum()) or ())
    assert token() not in (alive.reached(model(torch.randn(4, 3)).sum()) or ())
    del held
    assert token() is None
    with torch.no_grad():
        assert alive.mark([model(torch.randn(4, 3))]) is None


def test_what_only_passes_through_keeps_its_first_token() -> None:
    state = nn.Linear(3, 2)(torch.randn(4, 3))
    first = alive.mark([state])
    assert alive.mark([state]) is None
    assert first is not None
    assert first() is not None


def test_a_graph_too_large_to_walk() -> None:
    x = torch.ones(1, requires_grad=True)
    for _ in range(alive.NODES + 10):
        x = x + 1
    assert alive.reached(x) is None


def judged(folder: Path, kept: bool, training: bool) -> list[bool]:
    """An evaluation with gradients, then a backward that has nothing to do with it; the training pass was not seen."""
    recorder = Recorder(str(folder), [Notes])
    model = nn.Linear(3, 2)
    scores = model(torch.randn(4, 3))
    recorder.forward_called(0, training, True, None, alive.mark([scores]))
    if not kept:
        del scores
    recorder.settle(True, model(torch.randn(4, 3)).sum())
    (notes,) = recorder.watches
    assert isinstance(notes, Notes)
    return [event.backward for event in notes.seen]


def test_an_evaluation_is_not_what_the_next_backward_trains_on(tmp_path: Path) -> None:
    assert judged(tmp_path, kept=False, training=False) == [False]
    assert judged(tmp_path, kept=True, training=False) == [False]
    assert judged(tmp_path, kept=False, training=True) == [False]
