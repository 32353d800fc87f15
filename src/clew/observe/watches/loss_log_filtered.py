"""Does the trainer log the losses that are not finite?

The Trainer of transformers adds the average of the losses before it in the place of one that is NaN or infinite, unless
it is told not to (logging_nan_inf_filter). The log then looks sound while every step is lost.

Why it matters: one reads the log and sees a loss that is not there.
Cannot tell: other trainers that smooth or skip in ways of their own.
Silent when: losses are finite, the filter is off, or no such trainer runs. On a GPU only sampled steps are read.
"""

from __future__ import annotations

import gc
import math
import sys
from typing import TYPE_CHECKING

from clew.observe.watch import Answer, Backward, Saw, Watch
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from types import FrameType

    from clew.observe.recorder import Recorder
    from clew.records.place import Place


class LossLogFiltered(Watch):
    test = "loss_log_filtered"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.losses = self.bad = 0
        self.first = -1
        self.filters: bool | None = None
        self.place: Place | None = None

    def before_backward(self, event: Backward) -> None:
        loss = event.loss
        if loss.numel() != 1 or loss.is_meta or not (event.sampled or loss.device.type == "cpu"):
            return
        self.losses += 1
        if not math.isfinite(float(loss.detach())):
            self.bad += 1
            if self.first < 0:
                self.first, self.place = event.step, event.place
                self.filters = filtering()

    def read(self) -> Answer:
        if not self.losses:
            return Unclear("no loss entered backward")
        if not self.bad:
            return Saw("honest", losses=self.losses)
        if self.filters is None:
            return Unclear("some losses are not finite, and how the script logs them is unknown")
        if not self.filters:
            return Saw("honest", losses=self.losses)
        figures = {"losses": self.losses, "not_finite": self.bad, "first_step": self.first}
        says = (
            f"{self.bad} of {self.losses} losses that entered backward are not finite, from step {self.first} "
            "on; the Trainer logs the average of earlier ones instead (logging_nan_inf_filter is on)."
        )
        return Saw("filtered", **figures).at(self.place).saying(says)


def filtering() -> bool | None:
    """Whether a Trainer of transformers is at work that filters its log; None when there is none.

    Looked for among all objects, once and only when a loss is not finite: to read the local names of a running frame
    would keep what they stand for alive, batches among them.
    """
    module = sys.modules.get("transformers.trainer")
    kind = getattr(module, "Trainer", None)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != getattr(module, "__file__", None):
        frame = frame.f_back
    if frame is None or not isinstance(kind, type):
        return None
    held = [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]
    return any(bool(getattr(thing.args, "logging_nan_inf_filter", False)) for thing in held)
