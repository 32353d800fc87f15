"""Are the parameters identical on all ranks?

Why it matters: replicas that have parted average gradients that belong to no single set of weights.
A script that hands its gradients to an all_reduce of all ranks wants replicas, and that call is followed for this.
Cannot tell: anything from one rank alone; replicas averaged now and then from parts of one model that lie on different
ranks, where the ranks exchange tensors in ways of the script's own.
Silent when: there is one process, parameters are sharded, or their names and shapes differ between ranks.

Each rank writes sums of its parameters and gradients into its trace; `clew.observe.ranks` compares them when the run is
over.
"""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.guard import release
from clew.observe.ranks import EXCHANGED, GRADIENT, PARAMETER, PLACE, REPLICATED, TALK
from clew.observe.watch import Answer, OptimizerEvent, Watch, when_sampled
from clew.observe.watches._training_exchange import Exchanges
from clew.observe.watches._training_values import held_by, real
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

WRAPPED = re.compile(r"^(model\d+\.)?(module\.)?")
MOST = 64
"""Parameters followed, evenly spread over the optimiser's."""


class RankParameters(Watch):
    test = "rank_parameters"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.recorded = 0
        self.placed: set[str] = set()
        self.exchanges = Exchanges(recorder)

    def _followed(self, event: OptimizerEvent) -> list[tuple[str, torch.Tensor]]:
        """Parameters with the number of their optimiser, name and shape. A wrapper's prefix is left out: a rank that
        also calls the bare model knows both names."""
        names = self.recorder.parameter_names()
        parameters = list(held_by(event.optimizer))
        if any(_sharded(parameter) or id(parameter) not in names for parameter in parameters):
            return []
        return [
            (f"{event.number} {WRAPPED.sub('', names[id(held)])} {'x'.join(map(str, held.shape)) or '1'}", held)
            for held in parameters[:: -(-len(parameters) // MOST) or 1]
        ]

    def installed(self) -> None:
        self.exchanges.attach()

    @when_sampled
    def after_step(self, event: OptimizerEvent) -> None:
        if not event.sampled or _world() < 2 or event.number < 0:
            return
        followed = self._followed(event)
        replicated = self._replicated()
        if replicated is None or not followed:
            return
        parameters = list(held_by(event.optimizer))
        record = self.recorder.record
        for of, parameter in followed:
            record(PARAMETER, _sum(parameter), of=of)
            record(GRADIENT, math.nan if parameter.grad is None else _sum(parameter.grad), of=of)
            self.recorded += 1
        record(REPLICATED, float(all(id(parameter) in replicated for parameter in parameters)), of=str(event.number))
        record(TALK, _talk())
        for place in self.exchanges.places.get(event.number, []):
            record(EXCHANGED, 1.0, of=f"{event.number} {place.file}:{place.line}")
        if event.place is not None and event.place.file and str(event.place) not in self.placed:
            self.placed.add(str(event.place))
            record(PLACE, 1.0, of=f"{event.number} {event.place.file}:{event.place.line}")

    def _replicated(self) -> set[int] | None:
        """The parameters that DistributedDataParallel keeps alike; None where the model is sharded."""
        held: set[int] = set()
        for _, model in self.recorder.live_models():
            for module in model.modules():
                kind = type(module).__name__
                if kind == "FullyShardedDataParallel":
                    return None
                if kind == "DistributedDataParallel" and not getattr(module, "_comm_hooks", None):
                    held.update(map(id, module.parameters()))
        return held

    def read(self) -> Answer:
        if _world() < 2:
            return Unclear("there is one process")
        if not self.recorded:
            return Unclear("no parameter held by every rank was checked")
        return Unclear("one rank alone cannot tell; the checksums of all ranks are compared after the run")


def _sharded(parameter: Any) -> bool:
    return hasattr(parameter, "_local_tensor") or type(parameter).__name__ == "FlatParameter"


def _sum(tensor: torch.Tensor) -> float:
    held = real(tensor)
    return math.nan if held is None else float(held.sum(dtype=torch.float64))


def _talk() -> float:
    """How many times the ranks have exchanged tensors; NaN where torch does not say."""
    try:
        groups: list[Any] = list(torch.distributed.distributed_c10d._world.pg_map)
        return float(sum(group._get_sequence_number_for_group() for group in groups))
    except BaseException as error:  # noqa: BLE001  # a backend without a count; nothing is concluded from NaN
        release(error)
        return math.nan


def _world() -> int:
    """Ranks that have found each other: a launcher may also start processes that have nothing to do with each other."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    return 1
