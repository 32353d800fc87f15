"""Are the parameters identical on all ranks?

Why it matters: replicas that have parted average gradients that belong to no single set of weights.
Cannot tell: anything from one rank alone. Each rank writes a series of sums, and the ranks are compared afterwards.
Silent when: there is one process, or parameters are sharded on purpose.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from clew.observe.watch import Answer, OptimizerEvent, Watch
from clew.observe.watches._training_values import held_by, real
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

MOST = 64
"""Parameters followed, evenly spread over the optimiser's."""


class RankParameters(Watch):
    test = "rank_parameters"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.recorded = 0

    def after_step(self, event: OptimizerEvent) -> None:
        if not event.sampled or _world() < 2:
            return
        parameters = list(held_by(event.optimizer))
        for place in range(0, len(parameters), -(-len(parameters) // MOST) or 1):
            parameter = parameters[place]
            held = None if hasattr(parameter, "_local_tensor") else real(parameter)
            if held is not None:
                value = float(held.sum(dtype=torch.float64))
                self.recorder.record("fingerprint", value, of=f"{event.number}.{place}")
                self.recorded += 1

    def read(self) -> Answer:
        if _world() < 2:
            return Unclear("there is one process")
        if not self.recorded:
            return Unclear("no parameter that every rank holds was looked at")
        return Unclear("one rank alone cannot tell; the sums of all ranks are compared when the run is over")


def _world() -> int:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return int(os.environ.get("WORLD_SIZE", "1") or 1)
