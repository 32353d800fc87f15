"""How the rows of one model come and go: which stay in call after call, which are new, which are scored right after.

Kept as digests, from the calls that were looked at.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from clew.observe.rows import Digests
    from clew.records.place import Place

SEEN = 50_000
CALLS, AFTER = 6, 6
MOST = 64
BACK, GAP = 2, 6  # calls that a row must have been in before, so many steps apart at least
LEAST_ROWS = 4
LEAST_SHARE = 0.15
ALL_TOLD, AT_MOST = 0.8, 1.1
LATELY = 4  # steps
INSIDE = 0.9
NEW = 0.3


class Standing(NamedTuple):
    rows: int
    share: float
    new: float
    calls: int
    place: Place | None


class Course:
    """The training calls and the evaluations of one model."""

    def __init__(self) -> None:
        self.calls = 0
        self.place: Place | None = None
        self.last: deque[tuple[int, set[int]]] = deque(maxlen=BACK)
        self.stayed: list[int] = []  # rows of a call that were there on several calls long before it
        self.shares: list[float] = []
        self.seen: set[int] = set()
        self.rows = self.fresh = 0
        self.lately: dict[int, set[int]] = {}  # by step
        self.scored_after = self.scored_else = 0
        self.scored_at: Place | None = None
        self.scored_rows = 0

    def trained(self, digests: Digests, step: int, place: Place | None) -> None:
        rows = set(digests.tolist())
        self.lately[step] = self.lately.get(step, set()) | rows
        while len(self.lately) > LATELY:
            self.lately.pop(next(iter(self.lately)))
        self.calls += 1
        self.place = place
        if self.calls > 1 and len(self.seen) < SEEN:
            self.rows += len(rows)
            self.fresh += len(rows - self.seen)
        if len(self.seen) < SEEN:
            self.seen |= rows
        if self.last and step - self.last[-1][0] < GAP:
            return
        if len(self.last) == BACK and len(self.shares) < MOST:
            stayed = rows.intersection(*(held for _, held in self.last))
            self.stayed.append(len(stayed))
            self.shares.append(len(stayed) / len(rows))
        self.last.append((step, rows))

    def evaluated(self, digests: Digests, step: int, place: Place | None) -> None:
        """A call in eval mode and without gradients. `step` counts the steps that were made before it."""
        rows = set(digests.tolist())
        if step - 1 not in self.lately:
            # Which rows that step saw is not known. What is scored elsewhere, or in other numbers, is something else.
            self.scored_else += self.scored_after > 0 and (place != self.scored_at or len(digests) != self.scored_rows)
        elif len(rows & self.lately[step - 1]) >= INSIDE * len(rows) and not rows & self.lately.get(step, set()):
            self.scored_after += 1
            self.scored_at, self.scored_rows = place, len(digests)
        else:
            self.scored_else += 1

    def new_share(self) -> float:
        return self.fresh / self.rows if self.rows else 0.0

    def standing(self) -> Standing | None:
        """Rows that are there in call after call, where the others come once. Windows that slide have fewer and fewer
        rows in common the further they are apart."""
        if len(self.shares) < CALLS:
            return None
        share, new, rows = median(self.shares), self.new_share(), round(median(self.stayed))
        if min(share, new) < LEAST_SHARE or not ALL_TOLD <= share + new <= AT_MOST or rows < LEAST_ROWS:
            return None  # where there are more of both, whole batches recur beside others: a small set that is cycled
        return Standing(rows, share, new, self.calls, self.place)

    def scored_late(self) -> int:
        """How many batches were scored right after they were learned from, where nothing else was ever scored and the
        rows are a stream: most of them would have been new to the model one step before."""
        late = self.scored_after >= AFTER and not self.scored_else and self.new_share() >= NEW
        return self.scored_after if late else 0
