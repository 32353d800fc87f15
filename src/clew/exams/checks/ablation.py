"""Is there a part whose removal mends training?

Trains a copy for some steps with the user's optimiser as it is. Where the loss does not fall, trains another without
dropout, augmentation in the model, weight decay, schedule and clipping. Where that learns, puts the parts back one at a
time and names those that stop it.

Why it matters: a part that can be left out is the cheapest suspect, and a core that fails alone clears them all.
Cannot tell: a faulty part from a sound one that is too strong; parts that the step at hand does not hold, such as
augmentation in the loader. Schedule and clipping are tried where the subject knows them (`schedule`, `clip`).
Silent when: the loss falls as things are, or does not fall without any of them either. Unclear where there is nothing
to leave out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from clew.exams.batches import Batch
from clew.exams.checks._training_quiet import has_dropout, mean_loss, quiet
from clew.exams.checks._training_runs import own_optimizer, trained_parameters
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear, Value

STEPS = 80
BATCHES = 8
FALLS, CLEARLY, MENDS = 0.1, 0.3, 3.0
AUGMENTS = re.compile(r"^random|augment|noise|jitter|mixup|cutmix|cutout|erasing", re.IGNORECASE)


@exam("ablation", needs=("loss",), seconds=3.0, steps=2 * STEPS)
def examine(lab: Lab) -> Answer:
    parts = present(lab)
    if not parts:
        return Unclear("the step holds nothing that could be left out: no dropout, decay, schedule or clipping")
    start = mean_loss(lab, lab.fresh(), lab.batches[:BATCHES])
    if not math.isfinite(start) or start == 0:
        return Unclear(f"the loss starts at {start:.3g}")
    whole = _fall(lab, start, frozenset(parts))
    if whole > FALLS:
        return Saw("nothing_helps", fall=whole, parts=", ".join(parts)).saying(
            f"The loss falls by {whole:.0%} in {STEPS} steps with all parts in place."
        )
    bare = _fall(lab, start, frozenset())
    figures: dict[str, Value] = {"fall": whole, "fall_of_the_bare_step": bare, "parts": ", ".join(parts)}
    if bare < max(CLEARLY, MENDS * whole):
        return Saw("nothing_helps", **figures).saying(
            f"The loss falls by {_share(whole)} in {STEPS} steps, and by {_share(bare)} without {' and '.join(parts)}."
        )
    stopping = (
        parts if len(parts) == 1 else [part for part in parts if _fall(lab, start, frozenset((part,))) < bare / 2]
    )
    named = " and ".join(stopping) if stopping else f"{' and '.join(parts)} together"
    return (
        Saw("something_removed_mends", removed=named, **figures)
        .at(lab.place())
        .saying(f"With {named} the loss falls by {_share(whole)} in {STEPS} steps, without by {_share(bare)}.")
    )


def _share(fall: float) -> str:
    return f"{fall:.0%}" if math.isfinite(fall) else "nothing that is finite"


def present(lab: Lab) -> list[str]:
    """The parts that there are to leave out."""
    model = lab.fresh()
    optimizer = own_optimizer(lab, model)
    groups = optimizer.param_groups if optimizer is not None else []
    found = {
        "dropout": has_dropout(lab, model, lab.batch),
        "augmentation": bool(_augmenting(model)) or bool(model._forward_pre_hooks),
        "weight decay": any(float(group.get("weight_decay", 0)) > 0 for group in groups),
        "schedule": optimizer is not None and _schedule(lab) is not None,
        "clipping": _limit(lab) is not None,
    }
    return [name for name, there in found.items() if there]


def _augmenting(model: nn.Module) -> list[str]:
    return [
        name
        for name, part in model.named_modules()
        if name and AUGMENTS.search(type(part).__name__) and not any(True for _ in part.parameters())
    ]


def _limit(lab: Lab) -> float | None:
    """The largest norm of the gradient that the script lets pass, where the subject knows."""
    limit = getattr(lab.subject, "clip", None)
    return float(limit) if isinstance(limit, int | float) and not isinstance(limit, bool) else None


def _schedule(lab: Lab) -> Callable[[int], float] | None:
    """From the number of a step to the factor of the rate, where the subject knows. The rate of the captured step alone
    tells a slow start from a schedule that ends too soon as little as a photograph would."""
    schedule: Callable[[int], float] | None = getattr(lab.subject, "schedule", None)
    return schedule if callable(schedule) else None


def _fall(lab: Lab, start: float, parts: frozenset[str]) -> float:
    """By what share of itself the loss falls, with these parts in place only."""
    model = lab.fresh()
    if "augmentation" not in parts:
        model._forward_pre_hooks.clear()
        for name in _augmenting(model):
            above, _, last = name.rpartition(".")
            setattr(model.get_submodule(above), last, nn.Identity())
    optimizer = _optimizer(lab, model, parts)
    limit = _limit(lab) if "clipping" in parts else None
    batches = lab.batches[:BATCHES]
    with lab.seeded(), ExitStack() as stack:
        if "dropout" not in parts:
            stack.enter_context(quiet(model))
        if limit is not None:
            stack.enter_context(_clipped(optimizer, trained_parameters(model), limit))
        rates = [float(group["lr"]) for group in optimizer.param_groups]
        schedule = _schedule(lab) if "schedule" in parts else None
        for step in range(STEPS):
            lab.check(step / STEPS / 2)
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * schedule(step) if schedule is not None else group["lr"]
            loss = lab.one_step(model, batches[step % len(batches)], optimizer)
            if not math.isfinite(loss):
                return -math.inf
    end = _end(lab, model, batches)
    return (start - end) / abs(start) if math.isfinite(end) else -math.inf


def _end(lab: Lab, model: nn.Module, batches: list[Batch]) -> float:
    """Measured alike whatever was left out: without dropout and without what hooks do to the inputs."""
    hooks = dict(model._forward_pre_hooks)
    model._forward_pre_hooks.clear()
    try:
        return mean_loss(lab, model, batches)
    finally:
        model._forward_pre_hooks.update(hooks)


def _optimizer(lab: Lab, model: nn.Module, parts: frozenset[str]) -> torch.optim.Optimizer:
    made = own_optimizer(lab, model)
    if made is None:
        return lab.optimizer(model)
    if "weight decay" not in parts:
        for group in made.param_groups:
            if "weight_decay" in group:
                group["weight_decay"] = 0.0
    return made


@contextmanager
def _clipped(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], limit: float) -> Iterator[None]:
    handle = optimizer.register_step_pre_hook(lambda *_: _clip(parameters, limit))
    try:
        yield
    finally:
        handle.remove()


def _clip(parameters: list[nn.Parameter], limit: float) -> None:
    nn.utils.clip_grad_norm_(parameters, limit)
