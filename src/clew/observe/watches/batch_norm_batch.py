"""Over how many examples does batch normalisation average in training?

Why it matters: statistics of a handful of examples are noise, and the running averages that eval mode uses fit no
batch.
Cannot tell: how much harm it does: two large images still give thousands of values per channel.
Silent when: only the last batch of an epoch is short, or the layers are in eval mode.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
from torch import nn

from clew.observe.watch import Answer, ModuleCall, OptimizerEvent, Saw, Watch
from clew.observe.watches._training_layers import NORMALISES
from clew.observe.watches._training_values import median
from clew.records.clue import Reading, Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

READINGS = 64
SIGNS = 3
"""Two values become -1 and 1 whatever they were, three are hardly better."""


class BatchNormBatch(Watch):
    test = "batch_norm_batch"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.layers: dict[str, list[tuple[int, int]]] = {}  # examples, and values per channel
        self.calls = self.steps = 0

    def module(self, event: ModuleCall) -> None:
        self.calls += 1
        if event.evaluation or not event.module.training or not isinstance(event.module, NORMALISES):
            return
        given = event.inputs[0] if event.inputs else None
        if not isinstance(given, torch.Tensor) or given.dim() < 2 or not given.shape[1]:
            return
        ranks = int(os.environ.get("WORLD_SIZE", "1") or 1) if isinstance(event.module, nn.SyncBatchNorm) else 1
        held = self.layers.setdefault(f"{event.model}:{event.name}", [])
        if len(held) < READINGS:
            held.append((given.shape[0] * ranks, given.numel() // given.shape[1] * ranks))

    def after_step(self, event: OptimizerEvent) -> None:
        del event
        self.steps += 1

    def read(self) -> Answer:
        if self.layers:
            examples = {name: median(float(first) for first, _ in held) for name, held in self.layers.items()}
            least = min(examples, key=lambda name: examples[name])
            values = median(float(second) for _, second in self.layers[least])
            if values <= SIGNS:
                says = f"each channel is normalised over {values:g} values, which leaves little but their signs"
                layer = Place(module=least.partition(":")[2])
                return Saw("signs_only", values=values, examples=examples[least]).at(layer).saying(says)
            reading = Reading(examples_per_normalisation=examples[least], values_per_channel=values)
            return reading.at(Place(module=least.partition(":")[2]))
        if not self.calls:
            return Unclear("no module was called")
        return Saw("enough", layers=0) if self.steps else Unclear("no training step was seen")
