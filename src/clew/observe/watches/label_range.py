"""Do the labels lie in the range and format that the loss expects?

Reads minimum and maximum of the targets at each kind of loss call on sampled steps, the sums of class probabilities,
and whether a bounded last activation can reach the targets at all.

Why it matters: binary cross-entropy with targets of -1 or 255 has no lower bound, rows of class probabilities that do
not sum to one weigh examples by accident, and a sigmoid never reaches a target of 5.
Cannot tell: labels in the right range that are wrong; one output more than there are classes.
Silent when: labels equal ignore_index, rows are all zero (a mask), or binary targets are softened to a little outside
[0, 1], as some GANs do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from clew.observe.watch import Answer, LossCall, Raised, Saw, Watch, when_sampled
from clew.observe.watches._loss_graph import bare, made_by, origin
from clew.observe.watches._loss_values import by_class, plain, some
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.records.place import Place

BINARY = frozenset(("binary_cross_entropy", "binary_cross_entropy_with_logits", "multilabel_soft_margin_loss"))
SIGNED = frozenset(("soft_margin_loss", "hinge_embedding_loss"))
DIFFERENCES = frozenset(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"))
BOUNDS = {"Sigmoid": (0.0, 1.0), "Softmax": (0.0, 1.0), "Tanh": (-1.0, 1.0)}
SOFTENED = (-0.05, 1.25)
UNREACHABLE_SHARE = 0.2
MANY = 0.1  # of the rows hold more than one label
ENOUGH = 4  # calls


class LabelRange(Watch):
    test = "label_range"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.looked = 0
        self.many = self.whole = self.classes = self.numbers = 0
        self.where: Place | None = None
        self.found: tuple[str, float, float, Place | None] | None = None

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if not event.sampled or self.found is not None or not plain(event.target) or not plain(event.input):
            return
        target = event.target.detach()
        if event.name in BINARY:
            self._outside(event, *SOFTENED, "binary targets in [0, 1]")
        elif event.name == "cross_entropy" and target.is_floating_point() and target.shape == event.input.shape:
            self._distributions(event)
        elif event.name == "kl_div":
            logs = bool(event.options.get("log_target", False))
            low, high = (float("-inf"), 1e-3) if logs else (-1e-4, float("inf"))
            self._outside(event, low, high, "log-probabilities" if logs else "probabilities")
        elif event.name == "poisson_nll_loss":
            self._outside(event, -1e-6, float("inf"), "counts")
        elif event.name in SIGNED:
            self.looked += 1
            if bool((some(target) == 0).any()):
                self._found(event, "targets of -1 and 1")
        elif event.name in DIFFERENCES:
            self._reachable(event)
        else:
            self.looked += 1  # class indices: torch itself raises over those outside, and `raised` hears of it

    def _outside(self, event: LossCall, low: float, high: float, wanted: str) -> None:
        self.looked += 1
        values = some(event.target)
        if bool(((values < low) | (values > high)).any()):
            self._found(event, wanted)

    def _distributions(self, event: LossCall) -> None:
        self.looked += 1
        rows = by_class(event.target)
        sums = rows.sum(1)
        used = rows.abs().sum(1) > 0
        off = ((sums - 1).abs() > 0.02) & used
        if bool(((rows == 0) | (rows == 1)).all()):
            self.whole += event.grad
            if event.grad and float((sums > 1).float().mean()) > MANY:
                self.many, self.where = self.many + 1, event.place
            return
        if bool((rows < -1e-3).any()) or float(off.float().mean()) > 0.01:
            self._found(event, "class indices, or class probabilities that sum to 1")

    def _reachable(self, event: LossCall) -> None:
        """Whether the last activation can produce the targets."""
        self.looked += 1
        node = origin(event.input)
        self._two_classes(event, node)
        bounds = BOUNDS.get(bare(node)) if node is not None else None
        if bounds is None:
            return
        slack = 0.05 * (bounds[1] - bounds[0])
        values = some(event.target).float()
        outside = ((values < bounds[0] - slack) | (values > bounds[1] + slack)).float().mean()
        if float(outside) > UNREACHABLE_SHARE:
            self._found(event, f"targets that a {bare(node).lower()} can reach, in [{bounds[0]:g}, {bounds[1]:g}]")

    def _two_classes(self, event: LossCall, node: Any) -> None:
        """Whether a bare layer with one output is to produce 0 for some examples and 1 for the others."""
        target, shape = event.target.detach(), event.input.shape
        if not event.grad or target.shape != shape or target.numel() != shape[0] or event.target.requires_grad:
            return
        self.numbers += 1
        values = some(target)
        both = bool(((values == 0) | (values == 1)).all()) and bool((values != values[0]).any())
        if both and made_by(node) == "affine":
            self.classes, self.where = self.classes + 1, event.place

    def _found(self, event: LossCall, wanted: str) -> None:
        values = some(event.target).float()
        values = values[torch.isfinite(values)]
        if values.numel():
            low, high = float(values.min()), float(values.max())
            text = f"{event.name} gets targets from {low:g} to {high:g}; it expects {wanted}."
            self.found = (text, low, high, event.place)

    def raised(self, event: Raised) -> None:
        loss = event.during in ("cross_entropy", "nll_loss", "multi_margin_loss")
        if self.found is None and loss and "out of bounds" in event.error:
            label = event.error.partition("Target ")[2].split(" ")[0]
            value = float(label) if label.lstrip("-").isdigit() else float("nan")
            text = f"{event.during} stopped at the label {label or '?'}: there are fewer outputs than that."
            self.found = (text, value, value, event.place)

    def read(self) -> Answer:
        if self.found is not None:
            text, low, high, place = self.found
            return Saw("outside", lowest=low, highest=high).at(place).saying(text)
        if self.many >= ENOUGH and self.many > self.whole / 2:
            says = "cross_entropy gets rows with several ones; multi-label targets need a sigmoid for each class"
            return Saw("many_ones", calls=self.many).at(self.where).saying(says)
        if self.classes >= ENOUGH and self.classes == self.numbers:
            says = "the squared or absolute difference to a class of 0 or 1 is taken of a bare linear output"
            return Saw("two_classes", calls=self.classes).at(self.where).saying(says)
        if not self.looked:
            return Unclear("no call of a loss function with a target was seen")
        return Saw("inside", calls=self.looked)
