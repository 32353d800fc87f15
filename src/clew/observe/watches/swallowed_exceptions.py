"""Are exceptions raised inside the training step and caught by the script?

Why it matters: the batches that fail are never trained on, and they are not a random sample of the data.
Cannot tell: errors inside loader workers or in the script's own code between the calls that are watched.
Silent when: the error ends training, a search for the largest batch that fits runs out of memory once, or the
exception is control flow (StopIteration, KeyboardInterrupt). A model may be called once to see whether it takes what it
is given: one error in its call says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.observe.watch import Answer, Backward, Batch, Forward, OptimizerEvent, Raised, Saw, Watch
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

CONTROL = ("StopIteration", "KeyboardInterrupt", "SystemExit", "GeneratorExit", "StopAsyncIteration")
MEMORY = ("OutOfMemoryError", "out of memory")


class SwallowedExceptions(Watch):
    test = "swallowed_exceptions"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.raised_times = self.caught = self.memory = self.worked = 0
        self.in_steps = 0  # errors elsewhere than in the call of a model
        self.open = 0  # errors since the last sign that training goes on
        self.moved = True  # the script has done something since the last error
        self.error = ""
        self.place: Place | None = None

    def raised(self, event: Raised) -> None:
        if event.error.startswith(CONTROL) or (event.during == "forward" and event.error.startswith("TypeError")):
            return
        if self.open and not self.moved:
            return  # the same error on its way out, through a call around the one that raised it
        self._goes_on()
        self.moved = False
        self.raised_times += 1
        self.memory += any(word in event.error for word in MEMORY)
        self.open += 1
        self.in_steps += event.during != "forward"
        if not self.error:
            self.error, self.place = event.error, event.place

    def batch(self, event: Batch) -> None:
        del event
        self.moved = True

    def forward(self, event: Forward) -> None:
        del event
        self.moved = True

    def before_backward(self, event: Backward) -> None:
        del event
        self.worked += 1
        self._goes_on()

    def before_step(self, event: OptimizerEvent) -> None:
        del event
        self.worked += 1
        self._goes_on()

    def _goes_on(self) -> None:
        self.caught += self.open
        self.open = 0
        self.moved = True

    def read(self) -> Answer:
        several = self.in_steps or self.raised_times > 1
        if self.caught and several and (self.memory < self.raised_times or self.memory > 1):
            return (
                Saw("caught", times=self.raised_times)
                .at(self.place)
                .saying(f"{self.raised_times} errors in the training step were caught; the first: {self.error[:120]}")
            )
        if not self.worked and not self.raised_times:
            return Unclear("neither backward nor an optimiser step was seen")
        return Saw("none", raised=self.raised_times)
