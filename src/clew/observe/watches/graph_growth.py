"""Are autograd graphs of past steps kept alive?

Why it matters: a running total of losses with their graphs, outputs kept in a list, or a state carried over without
detach holds every earlier step in memory, and sometimes walks back through all of them.
Cannot tell: who holds the graph where that is no list or table; memory that grows without graphs.
Silent when: a single earlier loss is kept, one for each of several optimisers, a few steps are linked on purpose, or
one graph is used again.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from clew.observe.watch import Answer, Backward, Batch, LossCall, Saw, Watch
from clew.observe.watches._holders import Holders
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

KEPT = 5
"""Steps whose graphs must be alive at once."""
LOOK_FROM = 32
"""From this step on, what holds them is looked for: some tens of milliseconds, a few times at most."""
AGE = 2
NODES = 48
TOKENS = 512
NAME = "clew"


class Token:
    """Hung on a node of a graph, it lives exactly as long as the node does, and holds nothing itself."""

    __slots__ = ("__weakref__",)


class GraphGrowth(Watch):
    test = "graph_growth"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.tokens: deque[tuple[weakref.ref[Token], int, int]] = deque(maxlen=TOKENS)
        self.batches = self.looks = self.most = 0
        self.place: Place | None = None
        self.most_place: Place | None = None
        self.holders, self.look_at = Holders(), LOOK_FROM
        self.optimizers = 1

    def batch(self, event: Batch) -> None:
        del event
        self.batches += 1

    def loss(self, event: LossCall) -> None:
        if event.grad and event.result.grad_fn is not None:
            self._hang(event.result.grad_fn)
            self.place = event.place

    def before_backward(self, event: Backward) -> None:
        if event.sampled:
            self._look()
        self.place = self.place or event.place
        node = event.loss.grad_fn
        if node is None:
            return
        if not event.sampled:
            self._hang(node)
            return
        waiting, met = deque([node]), {node}
        while waiting and len(met) < NODES:
            node = waiting.popleft()
            self._hang(node)
            for following, _ in node.next_functions:
                # An accumulator belongs to its parameter, not to the step.
                if following is not None and following not in met and following.name() != ACCUMULATOR:
                    met.add(following)
                    waiting.append(following)

    def _hang(self, node: Any) -> None:
        token = Token()
        node.metadata[NAME] = token
        self.tokens.append((weakref.ref(token), self.recorder.step, self.batches))

    def _look(self) -> None:
        """Count the earlier steps, or batches where no step came between, of which some node is alive."""
        now = self.recorder.step
        old = {(step, batch) for held, step, batch in self.tokens if step <= now - AGE and held() is not None}
        self.looks += now > AGE
        self.optimizers = max(self.optimizers, len(self.recorder.live_optimizers()))
        if len(old) > self.most:
            self.most, self.most_place = len(old), self.place
        if len(old) >= KEPT and now >= self.look_at:
            self.look_at = 3 * now // 2
            self.holders.look()

    def read(self) -> Answer:
        if not self.looks:
            return Unclear(f"only {self.recorder.step} optimiser steps were seen")
        if self.most >= KEPT + self.optimizers - 1:
            return (
                Saw("retained", steps=self.most)
                .at(self.holders.place, self.most_place)
                .saying(f"the graphs of {self.most} earlier steps were in memory at the same time")
            )
        return Saw("released", steps=self.most)


ACCUMULATOR = "torch::autograd::AccumulateGrad"
