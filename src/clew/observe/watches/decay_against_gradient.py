"""Does weight decay move the weights more than the loss does?

Where decay has won, little is left of either part and they balance. So it also looks at how much is left of the weights
themselves: where nearly all of them are gone, and decay is no smaller than half of the gradient, decay took them. A
penalty on the weights that is written into the loss counts as decay; its part of a gradient is told by the graph.

Why it matters: decay that outweighs the gradient pulls the weights to zero whatever the data say.
Cannot tell: a decay that is too strong from a gradient that has died; a penalty on copies of the weights.
Silent when: the optimiser's rule for decay is not known (optimisers outside torch.optim), there is no decay, or a step
takes next to nothing off the weights: branches that start at zero have no gradient while the rate warms up, and any
decay outweighs nothing.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.watch import Answer, Backward, OptimizerEvent, Saw, Watch, when_sampled
from clew.observe.watches._training_penalty import Penalties
from clew.observe.watches._training_values import loss_scale, median, rate, real, skips
from clew.records.clue import Reading, Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

DECOUPLED = ("AdamW",)
COUPLED = ("SGD", "Adam", "Adamax", "RMSprop", "Adagrad", "Adadelta", "ASGD", "NAdam", "RAdam")
VALUES = 4096
GONE, SHARE, AT_LEAST, MATRICES = 0.05, 0.6, 0.5, 2
"""What may be left of a matrix at most, the part of all weights that must have gone so, the share of decay that must be
there at least, and in how many matrices."""
FEEBLE = 1e-5
"""The part of a weight that decay must take off in a step to have an effect: one per cent in a thousand steps."""


class DecayAgainstGradient(Watch):
    test = "decay_against_gradient"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.before: dict[int, list[tuple[torch.Tensor, float, torch.Tensor]]] = {}
        self.ratios: deque[float] = deque(maxlen=200)
        self.sizes: dict[int, tuple[float, float, int]] = {}  # by parameter: its norm when first seen, now, its size
        self.steps = self.without = self.unknown = 0
        self.penalties = Penalties()
        self.penalised: list[float] = []
        self.place: Place | None = None

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        if event.sampled and event.loss.dim() == 0:
            self.penalties.listen(event.loss)

    @when_sampled
    def after_backward(self, event: Backward) -> None:
        self.penalties.done()
        for parameter, part in self.penalties.parts.values():
            if parameter.grad is not None and not parameter.grad.is_sparse:
                self._note(parameter, parameter.detach())
                self.penalised += _ratio(_norm(part), _norm(parameter.grad - part))
                self.place = event.place
        self.penalties.parts.clear()

    def before_step(self, event: OptimizerEvent) -> None:
        self.before.pop(event.number, None)
        if not event.sampled or skips(event.optimizer):
            return
        self.steps += 1
        found: list[float] = []
        decays = False
        for group in event.optimizer.param_groups:
            decay = float(group.get("weight_decay") or 0.0)
            rule = _rule(event.optimizer, group)
            if not decay or _feeble(event.optimizer, group, rule, decay):
                continue
            decays = True
            if rule == "decoupled":
                self._keep(event, group, decay)
            elif rule == "coupled":
                found += self._coupled(group, decay, loss_scale(event.optimizer))
            else:
                self.unknown += 1
        found, self.penalised = found + self.penalised, []
        self.without += not decays and not found
        if found:
            self.ratios.append(median(found))

    def _coupled(self, group: dict[str, Any], decay: float, scale: float) -> list[float]:
        """Decay that is added to the gradient: compare the two as they stand."""
        found = []
        for parameter in group["params"]:
            weight, gradient = real(parameter, VALUES), None
            if parameter.grad is not None and parameter.dim() > 1 and not parameter.grad.is_sparse:
                gradient = real(parameter.grad, VALUES)
            if weight is not None and gradient is not None:
                self._note(parameter, weight)
                found += _ratio(decay * _norm(weight), _norm(gradient) / scale)
        return found

    def _keep(self, event: OptimizerEvent, group: dict[str, Any], decay: float) -> None:
        """Decay beside the gradient: what the loss did is the update less the decay, and is known after the step."""
        kept = self.before.setdefault(event.number, [])
        for parameter in group["params"]:
            weight = real(parameter, VALUES) if parameter.grad is not None and parameter.dim() > 1 else None
            if weight is not None:
                self._note(parameter, weight)
                kept.append((parameter, rate(group) * decay, weight.clone()))

    def _note(self, parameter: torch.Tensor, weight: torch.Tensor) -> None:
        now = _norm(weight)
        first = self.sizes[id(parameter)][0] if id(parameter) in self.sizes else now
        self.sizes[id(parameter)] = first, now, parameter.numel()

    def _gone(self) -> float:
        """The share of the weights that stand in matrices of which next to nothing is left."""
        whole = sum(count for _, _, count in self.sizes.values())
        gone = [count for first, now, count in self.sizes.values() if now < GONE * first]
        return sum(gone) / whole if len(gone) >= MATRICES else 0.0

    def after_step(self, event: OptimizerEvent) -> None:
        found = []
        for parameter, share, old in self.before.pop(event.number, []):
            new = real(parameter, VALUES)
            if new is not None and new.shape == old.shape:
                found += _ratio(share * _norm(old), _norm(new - old * (1 - share)))
        if found:
            self.ratios.append(median(found))

    def read(self) -> Answer:
        if not self.steps:
            return Unclear("no optimiser step was seen")
        gone = self._gone()
        if self.ratios and gone >= SHARE and median(self.ratios) >= AT_LEAST:
            says = (
                f"{100 * gone:.0f} % of the weights shrank below {100 * GONE:.0f} % of their size through weight decay"
            )
            figures = {"gone": gone, "decay_over_gradient": median(self.ratios), "matrices": len(self.sizes)}
            return Saw("withered", **figures).saying(says).at(self.place)
        if self.ratios:
            reading = Reading(median_decay_over_gradient_part=median(self.ratios), steps=len(self.ratios))
            return reading.at(self.place) if self.place is not None and median(self.ratios) >= 1 else reading
        if self.unknown:
            return Unclear("how this optimiser applies weight decay is unknown")
        if self.without:
            return Reading(median_decay_over_gradient_part=0.0, steps=self.steps)
        return Unclear("no weight matrix with both gradient and decay was checked")


def _rule(optimizer: Any, group: dict[str, Any]) -> str:
    if not type(optimizer).__module__.startswith("torch.optim"):
        return ""
    name = type(optimizer).__name__
    if name in DECOUPLED or group.get("decoupled_weight_decay"):
        return "decoupled"
    return "coupled" if name in COUPLED else ""


def _feeble(optimizer: Any, group: dict[str, Any], rule: str, decay: float) -> bool:
    """Whether the decay itself is too small to tell. Adaptive steps have the size of the rate however small it is."""
    if rule != "decoupled" and type(optimizer).__name__ not in ("SGD", "ASGD"):
        return False
    gain = 1 / max(1 - float(group.get("momentum") or 0.0), 1e-3) if rule == "coupled" else 1.0
    return rate(group) * decay * gain < FEEBLE


def _norm(values: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(values))


def _ratio(decay: float, gradient: float) -> list[float]:
    """One ratio, or nothing where neither part is there or one is not finite."""
    if not math.isfinite(decay) or not math.isfinite(gradient) or (not decay and not gradient):
        return []
    return [decay / gradient if gradient else math.inf]
