"""Are the terms of the loss of comparable size?

Follows what backward is called on down to its weighted terms and reads their values on sampled steps: results of loss
functions, means and sums of squares written by hand, and one further term as what the others leave. Where the loss
holds the divergence of a Gaussian code from a standard one, it looks whether that has pressed the code to nothing.

Why it matters: where one term exceeds another by orders of magnitude, that term alone is trained.
Cannot tell: size from influence; two or more terms of other kinds written by hand.
Silent when: the small term carries an explicit weight well below the others', since somebody chose it; a term is
exactly zero or switched off for the moment, or begins small and grows, as the divergence of a code does: the smaller
ratio counts, of all looks and of those in the second half of the run; every term falls below a quarter of its start.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

from clew.observe.watch import Answer, Backward, LossCall, Watch, when_sampled
from clew.observe.watches._loss_graph import Made, Term, divergence, square_value, terms, value_of
from clew.observe.watches._loss_values import ENDS, all_fell, plain, total
from clew.observe.watches._network_lines import line_of
from clew.records.clue import Reading, Saw, Unclear

if TYPE_CHECKING:
    from clew.records.place import Place

CHOSEN = 0.1
"""A weight this far below 1, or below all the others, was put there on purpose."""
LOOKED_UP = 16
RESOLVED = 1e-5
"""What the known terms leave of the total is rounding below this share of it."""


EMPTY, TRAINED, LATEST = 0.05, 100, 3
"""A code with means this near to each other and variances this near to one says nothing of the example; by then so many
steps have been made, and so many looks in a row have seen it."""


class Call(NamedTuple):
    value: float
    place: Place | None


class Size(NamedTuple):
    size: float
    weight: float
    place: Place | None


class LossTermSizes(Watch):
    test = "loss_term_sizes"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.looked_up = 0
        self.calls = Made(64)
        self.ratios: list[tuple[int, float]] = []  # with the step
        self.looks: list[list[float]] = []  # the first and the last, without weights
        self.unreadable = self.most = 0
        self.widest = 1.0
        self.where: tuple[Place | None, ...] = ()
        self.empty = 0  # looks in a row at which the code was empty
        self.codes = 0  # numbers in the code
        self.code_at: tuple[Place | None, ...] = ()

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if event.sampled and event.grad and plain(event.result):
            self.calls.note(event.result, Call(total(event.result), event.place))

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        if not event.sampled or not plain(event.loss) or event.loss.numel() != 1:
            return
        parts = terms(event.loss, self.calls)
        if event.step >= TRAINED:
            self._code(event, parts)
        if len(parts) == 1:
            self._keep(event, 1.0, 1)
        elif parts:
            sizes = self._sizes(event, parts)
            if sizes is None:
                self.unreadable += 1
            elif sizes:
                self._compare(sizes, len(parts), event)

    def _code(self, event: Backward, parts: list[Term]) -> None:
        held = divergence(event.loss)
        if held is None or held.sign < 0 or held.variances is None or held.means is None:
            return
        variances, means = held.variances.detach().float(), held.means.detach().float()
        if variances.shape != means.shape or means.dim() < 2 or len(means) < 4:
            return
        apart = float(means.std(0).max())
        empty = apart < EMPTY and float(variances.log().abs().max()) < 2 * EMPTY
        self.empty = self.empty + 1 if empty else 0
        if empty and not self.code_at:
            calls = [part.known.place for part in parts if part.known is not None]
            self.code_at = (*calls[:1], line_of(self.recorder, held.node, event.loss), event.place)
            self.codes = int(means[0].numel())

    def _compare(self, sizes: list[Size], parts: int, event: Backward) -> None:
        largest = max(sizes, key=lambda held: held.size)
        usual = min(1.0, max(held.weight for held in sizes))
        smallest = min((held for held in sizes if held.weight >= CHOSEN * usual), key=lambda held: held.size)
        ratio = largest.size / smallest.size
        if ratio > self.widest:
            self.widest, self.where = ratio, (largest.place, smallest.place, event.place)
        self._keep(event, ratio, parts)
        self.looks.append([held.size / held.weight for held in sizes])
        del self.looks[ENDS:-ENDS]

    def _sizes(self, event: Backward, parts: list[Term]) -> list[Size] | None:
        """Every term that counts at present; None when one drowns in rounding or more than one cannot be read."""
        found: list[Size] = []
        together = 0.0
        unread: list[Term] = []
        for part in parts:
            place = part.known.place if part.known is not None else None
            value = part.known.value if part.known is not None else square_value(part.node)
            if value is None or part.factor is None:
                unread.append(part)
                continue
            together += part.factor * value
            line = place or self._by_hand(part, event)
            found.append(Size(abs(part.factor * value), abs(part.factor), line))
            self.recorder.record("loss term", part.factor * value, of=str(place or "by hand"))
        if len(unread) > 1:
            return None
        if unread:
            whole = value_of(event.loss)
            rest = abs(whole - together)
            if not rest > RESOLVED * max(abs(whole), abs(together)):
                return None
            found.append(Size(rest, abs(unread[0].factor or 1.0), self._by_hand(unread[0], event)))
        return [held for held in found if held.size > 0 and math.isfinite(held.size)]

    def _by_hand(self, part: Term, event: Backward) -> Place | None:
        """The line of a term that no loss function made: looked up a few times, it does not change."""
        self.looked_up += 1
        return line_of(self.recorder, part.node, event.loss) if self.looked_up <= LOOKED_UP else None

    def _keep(self, event: Backward, ratio: float, parts: int) -> None:
        self.ratios = [*self.ratios, (event.step, ratio)][-200:]
        self.most = max(self.most, parts)

    def read(self) -> Answer:
        if self.empty >= LATEST:
            says = (
                f"the {self.codes} latent dimensions have the same mean and variance 1 for every example: the "
                "KL term outweighs the reconstruction, which learns nothing about its input"
            )
            return Saw("code_empty", numbers=self.codes, looks=self.empty).at(*self.code_at).saying(says)
        if not self.ratios:
            if self.unreadable:
                return Unclear("the loss has hand-written terms whose values cannot be separated")
            return Unclear("no backward was seen on a loss with a graph")
        late = [ratio for step, ratio in self.ratios if 2 * step >= self.ratios[-1][0]]
        ratios = late, [ratio for _, ratio in self.ratios]
        ratio = min(map(statistics.median, ratios))
        places = dict.fromkeys(place for place in self.where if place is not None)
        if all_fell(self.looks):
            says = f"the largest term is {ratio:.3g} times the smallest, and each falls below a quarter of its start"
            return Saw("comparable", largest_over_smallest=ratio, terms=self.most).at(*places).saying(says)
        return Reading(largest_over_smallest=ratio, terms=self.most).at(*places)
