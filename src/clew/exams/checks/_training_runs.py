"""What the exams of training share: short trainings, gradients as one vector, the user's rates, weights drawn anew."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from clew.exams.batches import Batch
from clew.exams.checks._data_runs import scramble
from clew.exams.checks._training_quiet import mean_loss, quiet
from clew.exams.lab import Lab

LEARNED = 0.1
"""Weights in another order cost at least so much more where the weights hold what was learned."""
MOST_FROZEN = 0.3


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def frozen_share(model: nn.Module) -> float:
    """Of all weights, those that take no gradient: what cannot be learned then may be learned once they do."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, on in sizes if not on) / max(1, sum(size for size, _ in sizes))


def own_optimizer(lab: Lab, model: nn.Module) -> torch.optim.Optimizer | None:
    """The user's optimiser at the rate it was given: a schedule may have begun with another, or with none."""
    made = lab.subject.make_optimizer(model)
    if made is None:
        return None
    planned = planned_rates(lab)
    if len(planned) == len(made.param_groups):
        for group, rate in zip(made.param_groups, planned, strict=True):
            if rate is not None:
                group["lr"] = rate
    return made


def planned_rates(lab: Lab) -> list[float | None]:
    """For each group the rate before any schedule, None where there is no schedule."""
    return [float(group["initial_lr"]) if "initial_lr" in group else None for group in _groups(lab)]


def _groups(lab: Lab) -> list[dict[str, Any]]:
    given = lab.subject.optimizer
    if isinstance(given, torch.optim.Optimizer):
        return given.param_groups
    kept = getattr(lab.subject, "optimizers", None) or []
    return [group["settings"] for group in kept[0]["groups"]] if len(kept) == 1 else []


def main_rate(optimizer: torch.optim.Optimizer) -> float:
    """The rate of the group that holds most."""
    group = max(optimizer.param_groups, key=lambda group: sum(held.numel() for held in group["params"]))
    return float(group["lr"])


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The main rate as told, and those of other groups in proportion."""
    now = main_rate(optimizer)
    for group in optimizer.param_groups:
        value = rate * float(group["lr"]) / now if now else rate
        group["lr"] = torch.tensor(value) if isinstance(group["lr"], torch.Tensor) else value


def train(
    lab: Lab, model: nn.Module, batches: Sequence[Batch], steps: int, optimizer: torch.optim.Optimizer
) -> list[float]:
    """The loss before every step, on the batches in turn. Ends when one is not finite."""
    losses: list[float] = []
    for step in range(steps):
        lab.check(step / steps)
        losses.append(lab.one_step(model, batches[step % len(batches)], optimizer))
        if not math.isfinite(losses[-1]):
            break
    return losses


def gradient(lab: Lab, model: nn.Module, batch: Batch) -> torch.Tensor:
    """The gradient of the loss in training mode without dropout, over all parameters that train, as one vector."""
    held = trained_parameters(model)
    with lab.seeded(), quiet(model.train()):
        return vector(lab.loss(model, batch), held)


def vector(loss: torch.Tensor, parameters: Sequence[torch.Tensor], keep: bool = False) -> torch.Tensor:
    if not loss.requires_grad:
        return torch.zeros(sum(held.numel() for held in parameters), dtype=torch.double, device=loss.device)
    parts: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
        loss, list(parameters), allow_unused=True, retain_graph=keep
    )
    flat = [
        (part if part is not None else torch.zeros_like(held)).detach().flatten().double()
        for part, held in zip(parts, parameters, strict=True)
    ]
    return torch.cat(flat)


def redrawn(lab: Lab, draw: int) -> nn.Module:
    """A copy whose weight matrices hold the same entries in another order: another draw of the same scale."""
    model = lab.fresh()
    scramble(model, lab.generator(100 + draw))
    return model


def is_trained(lab: Lab, batches: list[Batch], scale: float = 0.0) -> bool:
    """Whether the weights hold what was learned: the same entries in another order then cost clearly more, as a share
    of what they cost or of `scale`, where that is larger."""
    own = mean_loss(lab, lab.fresh(), batches)
    other = sum(mean_loss(lab, redrawn(lab, draw), batches) for draw in range(2)) / 2
    return math.isfinite(own) and math.isfinite(other) and other - own > LEARNED * max(abs(other), scale)
