"""What a loss function was asked, and what the best constant answer to it would cost.

The figure is comparable with the loss curve only where the loss is the mean over the examples, which the caller has to
see to. Class weights, label smoothing and soft targets make another optimum, and are left out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from clew.observe.watch import LossCall

CLASSES = ("cross_entropy", "nll_loss")
BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
READ = 100_000  # values of one call
COLUMNS = 1024  # outputs that are followed one by one; more are taken together
ENOUGH = 20  # labels or rows before a figure is given,
PER_CLASS = 5  # and labels per class seen: fewer make the classes look surer than they are
HOPS = 6
PASSED = ("Mul", "Div", "Mean", "Sum", "View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze", "ToCopy", "Clone")


class Targets:
    """Sums over the targets of a loss function on sampled steps."""

    def __init__(self, kind: str, classes: int) -> None:
        self.kind = kind  # "labels" | "shares" | "values" | "" when the best constant answer is not known
        self.classes = classes
        self.count = 0
        self.labels: dict[int, int] = {}
        self.shift: torch.Tensor | None = None  # near the mean, so that squares stay small
        self.sums: torch.Tensor | None = None
        self.squares: torch.Tensor | None = None

    def take_labels(self, labels: torch.Tensor) -> None:
        values, counts = torch.unique(labels, return_counts=True)
        self.labels = dict(zip(values.tolist(), counts.tolist(), strict=True))
        self.count = sum(self.labels.values())

    def take_rows(self, target: torch.Tensor) -> None:
        rows = target.reshape(len(target), -1) if target.dim() else target.reshape(1, 1)
        if rows.shape[1] > COLUMNS:
            rows = rows.reshape(-1, 1)
        rows = rows[:: -(-rows.numel() // READ)].double().cpu()
        self.count = len(rows)
        self.shift = rows.mean(0)
        self.sums = torch.zeros_like(self.shift)
        self.squares = (rows - self.shift).square().sum(0)

    def add(self, other: Targets) -> None:
        if other.kind != self.kind:
            self.kind = ""
        if not self.kind:
            return
        if self.kind == "labels":
            for label, count in other.labels.items():
                self.labels[label] = self.labels.get(label, 0) + count
        elif self.shift is None or other.shift is None or self.shift.shape != other.shift.shape:
            self.kind = ""
            return
        else:
            assert self.sums is not None
            assert self.squares is not None
            assert other.squares is not None
            away = other.shift - self.shift  # `other` holds one call, whose mean is its shift
            self.sums += other.count * away
            self.squares += other.squares + other.count * away.square()
        self.count += other.count

    def constant_loss(self) -> float | None:
        """The loss of the best constant answer; None when too little was seen or one answer is always right."""
        if self.kind == "labels":
            enough = len(self.labels) > 1 and self.count >= max(ENOUGH, PER_CLASS * len(self.labels))
            return entropy([count / self.count for count in self.labels.values()]) if enough else None
        if not self.kind or self.count < ENOUGH or self.shift is None or self.sums is None or self.squares is None:
            return None
        off = self.sums / self.count
        if self.kind == "values":
            figure = float((self.squares / self.count - off.square()).mean())
        else:
            shares = (self.shift + off).tolist()
            figure = math.fsum(entropy([share, 1 - share]) for share in shares) / len(shares)
        return figure if figure > 0 and math.isfinite(figure) else None


class MadeOf(NamedTuple):
    """One call of a loss function, without its tensors."""

    name: str
    mean: torch.Tensor | None  # over the examples, whatever the reduction; without a graph
    targets: Targets | None


def entropy(shares: list[float]) -> float:
    return -math.fsum(share * math.log(share) for share in shares if share > 0)


def reduction(event: LossCall) -> str:
    if event.options.get("reduce") is False:
        return "none"
    if event.options.get("size_average") is False:
        return "sum"
    return str(event.options.get("reduction", "mean"))


def mean_value(event: LossCall) -> torch.Tensor | None:
    """The loss per example of a call, also of one that was told to sum, or to leave that to the script."""
    how, result = reduction(event), event.result.detach()
    if how == "mean":
        return result.clone() if result.numel() == 1 else None
    if how not in ("sum", "none") or not _readable(event.target):
        return None
    target: torch.Tensor = event.target
    if event.name not in CLASSES:
        return result.sum() / target.numel()
    if event.options.get("weight") is not None or target.is_floating_point():
        return None
    return result.sum() / (target != _ignored(event)).sum()


def targets_of(event: LossCall) -> Targets | None:
    """The number of classes, and what is needed for the best constant answer where there is one."""
    target, options = event.target, event.options
    if not _readable(target) or not isinstance(event.input, torch.Tensor):
        return None
    plain = options.get("weight") is None and options.get("pos_weight") is None and not options.get("label_smoothing")
    if event.name in CLASSES:
        hard = not target.is_floating_point() and target.dtype != torch.bool
        size = event.input.shape[1] if event.input.dim() > 1 else event.input.shape[-1]
        found = Targets("labels" if plain and hard else "", int(size))
        if found.kind:
            labels = target.detach().reshape(-1)
            labels = labels[:: -(-labels.numel() // READ)]
            found.take_labels(labels[labels != _ignored(event)])
        return found
    if target.requires_grad or target.shape != event.input.shape:
        return Targets("", 2) if event.name in BINARY else None
    if event.name in BINARY:
        found = Targets("shares" if plain else "", 2)
    elif event.name == "mse_loss" and plain:
        found = Targets("values", 0)
    else:
        return None
    if found.kind:
        found.take_rows(target.detach())
    return found


def made_of(node: Any, calls: dict[int, MadeOf]) -> MadeOf | None:
    """The one call of a loss function that a loss is, up to a constant factor and its shape. None for sums of terms.

    Nodes are known by their number in the order of execution: to hold one would keep its graph alive."""
    for _ in range(HOPS):
        if node is None:
            return None
        found = calls.get(node._sequence_nr())
        if found is not None:
            return found
        before = [held for held, _ in node.next_functions if held is not None]
        if len(before) != 1 or not node.name().startswith(PASSED):
            return None
        node = before[0]
    return None


def _ignored(event: LossCall) -> int:
    value = event.options.get("ignore_index", -100)
    return int(value) if value is not None else -100


def _readable(target: Any) -> bool:
    return (
        isinstance(target, torch.Tensor)
        and not target.is_meta
        and not target.is_complex()
        and target.layout == torch.strided
        and target.numel() > 0
    )
