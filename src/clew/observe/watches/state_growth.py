"""Do the states of a recurrent layer grow from one position to the next?

Takes the root mean square of the states at each position, of recurrent layers and of cells that are called again and
again, on the first sampled training passes. The growth is that from the second position to the largest after it.

Why it matters: a state that grows by some factor at each position is that factor to the power of the length at the end,
and its gradient grows alike. Clipping and adaptive rates then hide that no step means anything.
Cannot tell: recurrences that are written out without a layer or cell for them; growth that a short sequence hides.
Silent when: states are bounded, as those of LSTM, GRU and tanh are, or grow less than a hundredfold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from clew.observe.watch import Answer, ModuleCall, Watch
from clew.observe.watches._network_graph import first_tensor, readable
from clew.observe.watches._reach import where_made
from clew.records.clue import Reading, Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

PASSES = 4
FEWEST = 4


class StateGrowth(Watch):
    test = "state_growth"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.seen: dict[tuple[int, str], int] = {}
        self.cells: dict[tuple[int, str], tuple[int, list[torch.Tensor]]] = {}
        self.growth = 0.0
        self.positions = 0
        self.layer = ""
        self.place: Place | None = None

    def module(self, event: ModuleCall) -> None:
        key = (event.model, event.name)
        if event.evaluation or not isinstance(event.module, nn.RNNBase | nn.RNNCellBase):
            return
        if isinstance(event.module, nn.RNNCellBase):
            self._cell(key, event)
        elif self.seen.get(key, 0) < PASSES:
            self.seen[key] = self.seen.get(key, 0) + 1
            for sizes in _over_time(event.output[0], event.module):
                self._judge(sizes, event)

    def _cell(self, key: tuple[int, str], event: ModuleCall) -> None:
        """The states of one pass, call by call, told apart from those of the next by the step."""
        step, held = self.cells.get(key, (-1, []))
        if step != event.step:
            if self.seen.get(key, 0) >= PASSES:
                return
            self.seen[key] = self.seen.get(key, 0) + 1
            step, held = event.step, []
        state = first_tensor(event.output)
        if state is not None and readable(state) and len(held) < 4096:
            held.append(state.detach().double().square().mean().sqrt())
            self.cells[key] = (step, held)
            if len(held) >= FEWEST:
                self._judge(torch.stack(held), event)

    def _judge(self, sizes: torch.Tensor, event: ModuleCall) -> None:
        """From the second position on: the first is still near the state that everything starts with."""
        if len(sizes) < FEWEST or not float(sizes[1]) > 0:
            return
        growth = float(sizes[2:].max() / sizes[1])
        self.positions = max(self.positions, len(sizes))
        if not growth <= self.growth:
            self.growth, self.layer = growth, event.name
            model = dict(self.recorder.live_models()).get(event.model)
            if model is not None and event.name:
                place = where_made(model, f"{event.name}.weight_hh_l0")
                self.place = place._replace(parameter=None, module=event.name)

    def read(self) -> Answer:
        if not self.positions:
            return Unclear("no recurrent layer or cell was called on four positions or more")
        reading = Reading(growth=self.growth, positions=self.positions, layer=self.layer)
        return reading.at(self.place) if self.place is not None and not self.growth < 100 else reading


def _over_time(states: Any, layer: nn.RNNBase) -> list[torch.Tensor]:
    """The root mean square at each position, for each direction in the order in which it goes."""
    if isinstance(states, PackedSequence):
        # Only the examples that go on to the end: shorter ones leave on the way, and the mean would jump.
        sizes, last = states.batch_sizes.tolist(), int(states.batch_sizes[-1])
        starts = [sum(sizes[:position]) for position in range(len(sizes))]
        held = torch.stack([states.data.detach()[start : start + last].double() for start in starts])
    elif isinstance(states, torch.Tensor) and readable(states) and states.dim() in (2, 3):
        held = states.detach().double()
        held = held.transpose(0, 1) if held.dim() == 3 and layer.batch_first else held
    else:
        return []
    ways = held.reshape(len(held), -1, held.shape[-1]).chunk(2 if layer.bidirectional else 1, 2)
    sizes = [way.square().mean((1, 2)).sqrt() for way in ways]
    return [size.flip(0) if number else size for number, size in enumerate(sizes)]
