"""Whether the accuracy that a script prints is that of the answers which its model gave."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from clew.records.clue import Unclear
from clew.symptoms.logs_names import METRIC, SPLITS, meaning, words
from clew.symptoms.model import Answer, Seen
from clew.symptoms.names import ACCURACY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clew.records.clue import Value
    from clew.records.trace import Series

LEAST = 50  # answers of a pass
FAR = 0.05
ERRORS = 5.0
UNSAID = 0.3
"""An accuracy that does not say of which examples it is may be that of training: it counts when it is this far off."""
PLAIN = {"accuracy", "acc", "accu", "top1", "clean", "avg", "mean", "average", "classification", "step", "epoch", "set"}
"""Words beside which an accuracy is the share of right answers. A balanced one, or one over tokens, is not."""


class Pass(NamedTuple):
    step: int
    right: float
    asked: float

    @property
    def share(self) -> float:
        return self.right / self.asked

    @property
    def slack(self) -> float:
        """A pass may have been followed for its first batches alone."""
        share = min(max(self.share, 0.02), 0.98)
        return max(FAR, ERRORS * math.sqrt(share * (1 - share) / self.asked))


def accuracy_recounted(series: Mapping[str, Series], passes: Sequence[Pass]) -> Answer:
    """The printed figure must lie near some pass, or between the passes before and after it."""
    counted = sorted(held for held in passes if held.asked >= LEAST)
    if not counted:
        return Unclear("no evaluation pass over held-out examples with labels was observed")
    accuracies = {name: held for name, held in series.items() if _is_accuracy(name) and held.values}
    printed = {name: held for name, held in accuracies.items() if meaning(name).split}
    unsaid = not printed and len(accuracies) == 1
    if unsaid:
        printed = accuracies
    if not printed:
        return Unclear("no accuracy was printed")
    name, held = max(printed.items(), key=lambda item: len(item[1].values))
    scale = 100.0 if max(held.values) > 1.5 else 1.0
    tail = [value / scale for value in held.values[-3:] if value == value]
    late = _late(counted)
    low = min(found.share - max(found.slack, unsaid * UNSAID) for found in late)
    high = max(found.share + max(found.slack, unsaid * UNSAID) for found in late)
    if not tail:
        return Unclear(f"{name} is not a number")
    figures = {"printed": tail[-1], "counted": late[-1].share, "answers": late[-1].asked}
    apart = all(value < low for value in tail) or all(value > high for value in tail)
    near = any(abs(found.share - value) < 0.005 for found in counted for value in tail)
    return Seen("differs", metric=name, **figures) if apart and not near else Seen("agrees", **figures)


def counted_apart(measured: Mapping[str, Value]) -> str:
    """The sentence of an accuracy that is not the one counted."""
    printed, counted = (f"{measured[name]:.1%}" for name in ("printed", "counted"))
    of = f"{counted} of {measured['answers']:.0f} predictions"
    return f"{measured['metric']} is printed as {printed}; clew counts {of} as correct."


def _late(counted: Sequence[Pass]) -> list[Pass]:
    """Those of the last third of training, and the last ones in any case: not every pass is followed."""
    end = counted[-1].step
    return [held for held in counted if held.step >= end * 2 / 3]


def _is_accuracy(name: str) -> bool:
    said = meaning(name)
    if said.role != METRIC or said.base not in ACCURACY or said.split not in ("val", "test", ""):
        return False
    return all(word in PLAIN or word in SPLITS for word in words(name))
