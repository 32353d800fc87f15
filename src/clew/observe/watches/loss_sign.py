"""Does the optimiser descend the loss, or climb it?

Follows what backward is called on down to the loss functions it consists of, with the sign each of them has got on the
way, and reads `maximize` of the optimisers that step. Scores of classes that grow with a distance count as turned too,
and log-probabilities written out by hand that are minimised and nothing else, where the loss sinks below zero for good.

Why it matters: with the sign turned round the model learns what to avoid, at every learning rate.
Cannot tell: another likelihood, a reward or a similarity written out by hand with the wrong sign; an update by hand;
a loss that is climbed on purpose and alone, as in unlearning. Where such a term stands beside a loss function it is
unclear; sums of squares are not, since their sign is plain, nor is a KL divergence of s and exp(s).
Silent when: any other backward of the run descends (the two players of a GAN, domain confusion, adversarial examples),
the negated loss is one term among others, its factor changes from step to step (returns and advantages), or no
optimiser holds a parameter of the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from clew.observe.watch import Answer, Backward, LossCall, OptimizerEvent, Saw, Watch, when_sampled
from clew.observe.watches._loss_graph import Made, Term, distance_sign, falls_without_end, square_value, terms, value_of
from clew.observe.watches._loss_likelihood import likelihood
from clew.observe.watches._loss_values import plain, total
from clew.observe.watches._network_lines import lines_of
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.records.place import Place

MINIMISED = frozenset(
    "cross_entropy nll_loss binary_cross_entropy binary_cross_entropy_with_logits mse_loss l1_loss smooth_l1_loss "
    "huber_loss kl_div poisson_nll_loss gaussian_nll_loss ctc_loss multi_margin_loss multilabel_margin_loss "
    "multilabel_soft_margin_loss soft_margin_loss triplet_margin_loss".split()
)
MINOR = 0.1
ENOUGH = 3
LOOKS = 8
SUNK = 1.2
MOST = 10_000


class Call(NamedTuple):
    name: str
    value: float
    place: Place | None


class LossSign(Watch):
    test = "loss_sign"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.calls = Made(64)
        self.descending = self.climbing = self.other = self.beside = 0
        self.factors: list[float] = []
        self.where: tuple[Place | None, ...] = ()
        self.name = ""
        self.made: dict[int, Place | None] = {}
        self.maximizing: dict[int, bool] = {}
        self.trains_model = False
        self.looked = self.endless = 0
        self.endless_at: Place | None = None
        self.likely = 0  # backward calls on log-probabilities that are to be made small
        self.likely_at: tuple[Place | None, ...] = ()
        self.values: list[float] = []
        self.scored = self.far = 0  # calls whose scores were looked at, and those whose scores are distances
        self.far_at: tuple[Place | None, ...] = ()

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if event.sampled and event.grad and event.name in MINIMISED and plain(event.result):
            self.calls.note(event.result, Call(event.name, total(event.result), event.place))
            if event.name == "cross_entropy" and plain(event.input) and self.scored < LOOKS:
                self.scored += 1
                self._distances(event)

    def _distances(self, event: LossCall) -> None:
        """Scores that are distances: what is to be near is pushed away."""
        if event.input.grad_fn is not None and distance_sign(event.input) > 0:
            if not self.far:
                lines = lines_of(self.recorder, [event.input.grad_fn], event.result)
                self.far_at = (*(line for line in lines if line is not None), event.place)
            self.far += 1

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        if not event.sampled or not plain(event.loss):
            return
        if self.looked < LOOKS:
            self.looked += 1
            if falls_without_end(event.loss):
                self.endless, self.endless_at = self.endless + 1, event.place
            self._likelihood(event)
        if self.likely and len(self.values) < MOST:
            self.values.append(value_of(event.loss))
        parts = terms(event.loss, self.calls)
        known = [part for part in parts if part.known is not None and part.factor]
        if not known:
            self.other += 1
            return
        self.name = known[0].known.name
        if any((part.factor or 0.0) > 0 for part in known):
            self.descending += 1
            self.beside += any(part.known is None and not _plain_sign(part) for part in parts)
            self.where = self.where or (known[0].known.place, event.place)
        elif self._is_main(event, known, len(parts)):
            self.climbing += 1
            self.where = (known[0].known.place, event.place)
            self.factors = (self.factors + [abs(part.factor or 0.0) for part in known])[-64:]
        else:
            self.other += 1

    def _likelihood(self, event: Backward) -> None:
        found = likelihood(event.loss)
        if found is None or found.sign < 0:
            return
        if not any(self.likely_at):
            self.likely_at = (*lines_of(self.recorder, [event.loss.grad_fn, found.node], event.loss), event.place)
        self.likely += 1

    def _sinks(self) -> bool:
        """Whether the loss goes down below zero and further: where costs weigh log-probabilities, as in a policy that
        learns to avoid them, it comes up to zero instead."""
        few = max(1, len(self.values) // 4)
        early, late = sorted(self.values[:few])[few // 2], sorted(self.values[-few:])[few // 2]
        return len(self.values) > ENOUGH and late < 0 and late < SUNK * early

    def _is_main(self, event: Backward, known: list[Term], parts: int) -> bool:
        """Whether little besides the negated losses is in there, or less than they are and of the same sign, as in an
        evidence bound whose sign was never turned."""
        if len(known) == parts:
            return True
        theirs = float(sum((part.factor or 0.0) * part.known.value for part in known))
        rest = value_of(event.loss) - theirs
        return abs(rest) < MINOR * abs(theirs) or (theirs < 0 and theirs < rest < 0)

    def optimizer_made(self, event: OptimizerEvent) -> None:
        if len(self.made) < 64:
            self.made[event.number] = event.place

    @when_sampled
    def before_step(self, event: OptimizerEvent) -> None:
        if not event.sampled:
            return
        groups = event.optimizer.param_groups
        self.maximizing[event.number] = all(group.get("maximize", False) for group in groups)
        if not self.trains_model:
            names = self.recorder.parameter_names()
            self.trains_model = any(id(held) in names for group in groups for held in group["params"])

    def read(self) -> Answer:
        if self.endless >= ENOUGH and self.endless == self.looked and not any(self.maximizing.values()):
            text = "The loss holds a KL divergence with a minus: s - exp(s) falls without bound as s grows."
            return Saw("negated", maximize=False, loss="KL divergence").at(self.endless_at).saying(text)
        climbs = self.likely >= ENOUGH and self.likely == self.looked and not any(self.maximizing.values())
        if climbs and self.trains_model and self._sinks():
            text = "The loss is a log-probability without a minus: it falls without bound."
            return Saw("negated", maximize=False, loss="log-likelihood").at(*self.likely_at).saying(text)
        if self.far >= ENOUGH and self.far == self.scored and not any(self.maximizing.values()):
            text = (
                "The scores that cross_entropy raises for the right class are distances, so it pushes the right "
                "class away."
            )
            return Saw("negated", maximize=False, loss="distance").at(*self.far_at).saying(text)
        if not self.descending and not self.climbing:
            return Unclear("no value that backward was called on is clearly the result of a torch loss function")
        if not self.maximizing or not self.trains_model:
            return Unclear("no optimiser stepped the parameters of a model")
        maximized = all(self.maximizing.values())
        if maximized and self.descending and not self.climbing and not self.other:
            makers = [place for number, place in self.made.items() if self.maximizing.get(number)]
            text = f"The optimiser has maximize=True and increases {self.name}, which should fall."
            return Saw("negated", maximize=True, loss=self.name).at(*makers[:1], *self.where).saying(text)
        if self.climbing and not self.descending and not maximized:
            if self.other or not self._steady():
                return Unclear("a loss is negated in some backward calls, or with a factor that changes")
            text = f"backward is called on minus {self.name}, so every step raises it."
            return Saw("negated", maximize=False, loss=self.name).at(*self.where).saying(text)
        if self.beside:
            return Unclear("a hand-written term stands beside the loss function, and its sign is not known")
        return Saw("usual", backwards=self.descending + self.climbing)

    def _steady(self) -> bool:
        low, high = min(self.factors), max(self.factors)
        return high <= 1.01 * low and (self.climbing >= ENOUGH or low == high == 1.0)


def _plain_sign(part: Term) -> bool:
    """Whether a term is a sum of squares that is added."""
    return (part.factor or 0.0) > 0 and square_value(part.node) is not None
