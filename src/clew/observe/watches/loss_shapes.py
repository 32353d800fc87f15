"""Do prediction and target have the same shape where the loss subtracts or multiplies them?

Shapes are compared at every call of an element-wise loss function. Where the loss is a mean or sum over a difference
written by hand, the graph shows the shape of the prediction and of the difference; likewise where each prediction, such
as the log-probability of an action, is multiplied by a weight of its own.

Why it matters: (B, 1) against (B,) becomes a (B, B) table of every prediction against every target, whose optimum is
the mean of all targets for every input. A target that was made so is seen by its square shape.
Cannot tell: equal shapes with axes in the wrong order; other formulas written by hand.
Silent when: one side simply expands to the other's shape (a scalar target, a per-channel target), or axes of length 1
were put in on purpose to compare all pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from clew.observe.watch import Answer, Backward, LossCall, Saw, Watch, when_sampled
from clew.observe.watches._loss_graph import MOVES, PICKS, Key, Made, bare, inputs, key, residual, saved, shape, terms
from clew.observe.watches._loss_values import reduction
from clew.observe.watches._network_lines import line_of
from clew.observe.watches._rl_lines import computing
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.records.place import Place

ELEMENTWISE = frozenset(
    "mse_loss l1_loss smooth_l1_loss huber_loss poisson_nll_loss gaussian_nll_loss kl_div soft_margin_loss "
    "hinge_embedding_loss".split()
)

PAIRS = frozenset("Mm Addmm Bmm Cdist EuclideanDist".split())
TABLE = 64
TRIES = 12


class LossShapes(Watch):
    test = "loss_shapes"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.looked = 0
        self.calls = Made(32)
        self.found: tuple[str, str, str, Place | None] | None = None
        self.tries = 0
        self.weight = False  # what it met was a weight, such as an advantage
        self.made_at: Place | None = None  # the line that made the prediction
        self.asked = TRIES

    def loss(self, event: LossCall) -> None:
        if self.found is not None and event.sampled and event.place == self.found[3]:
            self._made(getattr(event.input, "grad_fn", None), event.result)
        if self.found is not None or not isinstance(event.input, torch.Tensor):
            return
        if event.sampled:
            self.calls.note(event.result, event.name)
            self.looked += 1
        if event.name in ELEMENTWISE and isinstance(event.target, torch.Tensor):
            given, wanted = event.input.shape, event.target.shape
            if given != wanted and self._by_accident(event):
                together = _together(given, wanted)
                if together not in (None, given, wanted) or _table(given, wanted):
                    self.found = (str(tuple(given)), str(tuple(wanted)), str(tuple(together or ())), event.place)

    def _made(self, node: Any, loss: Any) -> None:
        """Looked up until it is known: at the first steps no graph has been followed yet."""
        if self.made_at is None and self.asked and node is not None and isinstance(loss, torch.Tensor):
            self.asked -= 1
            self.made_at = line_of(self.recorder, node, loss)

    def _by_accident(self, event: LossCall) -> bool:
        if event.input.dim() != event.target.dim():
            return True
        # Same number of axes, and each side has one of length 1 where the other has not: mostly all pairs on purpose.
        node = event.input.grad_fn
        return reduction(event) != "none" and node is not None and not _given_axes(node)

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        if not event.sampled or (self.found is not None and not self.tries):
            return
        for term in terms(event.loss, self.calls):
            difference = residual(term.node) if term.known is None else None
            if difference is not None:
                self.looked += 1
                self._by_hand(difference, event)
            elif term.known is None and (self.found is None or self.tries):
                self._weighed(term.node, event)

    def _by_hand(self, difference: Any, event: Backward) -> None:
        operands = [fed for fed, _ in difference.next_functions]
        made = [fed for fed in operands if fed is not None]
        # The target must be a constant: two computed sides may be pairs on purpose.
        if len(operands) != 2 or len(made) != 1 or _given_axes(made[0]):
            return
        given, together = shape(made[0]), shape(difference)
        if given is None or together is None or len(together) != 2 or together[0] != together[1] or together[0] < 2:
            return
        length = together[0]
        if given not in ((length, 1), (length,)):
            return
        self._made(made[0], event.loss)
        self._difference(difference, given, together, event)

    def _difference(self, node: Any, given: tuple[int, ...], together: tuple[int, ...], event: Backward) -> None:
        line = line_of(self.recorder, node, event.loss)
        # Until its line is known the same difference is looked at again in later steps.
        self.tries = (self.tries or TRIES) - 1 if line is None else 0
        wanted = f"({together[0]},)" if len(given) == 2 else f"({together[0]}, 1)"
        self.found = (str(given), wanted, str(together), line or event.place)

    def _weighed(self, reduced: Any, event: Backward) -> None:
        """A mean or sum over a square table that one value for each example and one constant weight for each make: the
        mean of such a table is a product of two means."""
        fed = inputs(reduced)
        size = shape(fed[0]) if bare(reduced) in ("Mean", "Sum") and len(fed) == 1 else None
        if size is None or len(size) != 2 or size[0] != size[1] or size[0] < 2 or shape(reduced) != ():
            return
        entered = _entering(fed[0], size)
        if entered is None:
            return
        node, made, weight = entered
        self._made(next((one for one in inputs(node) if shape(one) == made), None), event.loss)
        if weight is None:  # a difference, whose other side the graph does not keep
            self._difference(node, made, size, event)
        else:
            self.found = (str(made), str(weight), str(size), event.place)
            self.weight = True

    def read(self) -> Answer:
        if self.found is not None:
            given, wanted, together, place = self.found
            what = "weight" if self.weight else "target"
            text = (
                f"A prediction of shape {given} meets a {what} of shape {wanted}; broadcasting makes {together} "
                "of them."
            )
            lines = computing("policy loss", place) if self.weight else []
            saw = Saw("broadcast", prediction=given, target=wanted, together=together)
            return saw.at(*lines, place, *([self.made_at] if self.made_at not in (None, place) else [])).saying(text)
        if not self.looked:
            return Unclear("no call of a loss function and no difference written by hand was seen")
        return Saw("match", calls=self.looked)


def _table(given: torch.Size, wanted: torch.Size) -> bool:
    """One prediction for each example against a square table: the target was broadcast before it came here."""
    length = given[0] if len(given) else 0
    return length > 1 and tuple(wanted) == (length, length) and tuple(given) in ((length,), (length, 1))


def _entering(top: Any, size: tuple[int, ...]) -> tuple[Any, tuple[int, ...], tuple[int, ...] | None] | None:
    """The operation of a square table that one value for each example enters and one constant, the shape of that value,
    and the shape of the constant where it is a weight. None where other things enter, such as a product of matrices:
    then the table is meant."""
    ones = ((size[0], 1), size[:1])
    found: tuple[Any, tuple[int, ...], tuple[int, ...] | None] | None = None
    waiting, seen = [top], set[Key]()
    while waiting and len(seen) < TABLE:
        node = waiting.pop()
        if key(node) in seen:
            continue
        if bare(node) in PAIRS:
            return None
        seen.add(key(node))
        made = inputs(node)
        for fed in made:
            given = shape(fed)
            if given == size:
                waiting.append(fed)
                continue
            if given == ():
                continue
            if given not in ones or _given_axes(fed):
                return None
            if len(made) > 1 or len(node.next_functions) != 2:
                continue
            if bare(node) == "Mul":
                weight = saved(node, "other") if node.next_functions[0][0] is not None else saved(node, "self")
                other = None if weight is None else tuple(weight.shape)
                if other in ones and other != given:
                    return node, given, other
            elif bare(node) in ("Sub", "Add"):
                found = (node, given, None)
    return found


def _given_axes(node: Any) -> bool:
    """Whether axes were put in, or entries picked, between the model and here."""
    for _ in range(8):
        if bare(node) in ("Unsqueeze", "Index", "Expand", "Slice"):
            return True
        fed = inputs(node)
        if bare(node) not in MOVES | PICKS or len(fed) != 1:
            return False
        node = fed[0]
    return False


def _together(first: torch.Size, second: torch.Size) -> torch.Size | None:
    try:
        return torch.Size(torch.broadcast_shapes(first, second))  # type: ignore[no-untyped-call]
    except RuntimeError:
        return None
