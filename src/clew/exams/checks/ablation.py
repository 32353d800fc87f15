"""Is there a component whose removal fixes training?

Trains a copy for some steps with the user's optimiser as it is. Where the loss does not fall, trains another without
dropout, augmentation, weight decay, schedule and clipping. Where that learns, restores the parts one at a time and
names those that stop it. Of a captured step, clipping and the course of the rate are those of the run, the whole course
pressed into the steps of the exam; augmentation is what the script or its model put on the inputs with torch's random
numbers.

Why it matters: a part that can be left out is the cheapest suspect, and a bare loop that fails alone clears them all.
Cannot tell: a faulty part from a sound one that is too strong; augmentation in the loader, or by Python's own random
numbers, since the rows before it were not observed. A given subject says what it does around a step (`schedule`,
`horizon`, `clip`, `plain_batches`).
Silent when: the loss falls already, or does not fall without any of them either; a rising rate is a slow start and not
a part. Unclear where there is nothing to leave out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from clew.exams.batches import Batch
from clew.exams.captured import CapturedSubject
from clew.exams.checks._training_quiet import has_dropout, mean_loss, quiet
from clew.exams.checks._training_runs import own_optimizer
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.exams.replay import TapedModel
from clew.exams.subject import Clipping
from clew.records.clue import Answer, Saw, Unclear, Value
from clew.records.place import Place

STEPS = 80
BATCHES = 8
FALLS, CLEARLY, MENDS = 0.1, 0.3, 3.0
MOVES = 0.01
"""By how much the factor of the rate must differ from one to be a part."""
AUGMENTS = re.compile(r"^random|augment|noise|jitter|mixup|cutmix|cutout|erasing", re.IGNORECASE)


@exam("ablation", needs=("loss",), seconds=3.0, steps=2 * STEPS)
def examine(lab: Lab) -> Answer:
    parts = present(lab)
    beyond = lab.subject.beyond()
    if not parts and beyond:
        return Unclear(f"there is nothing to leave out except {beyond}")
    if not parts:
        return Unclear("the step has no dropout, weight decay, schedule or clipping to leave out")
    beyond = f" Kept throughout: {beyond}." if beyond else ""
    start = _measured(lab, lab.fresh())
    if not math.isfinite(start) or start == 0:
        return Unclear(f"the loss starts at {start:.3g}")
    whole = _fall(lab, start, frozenset(parts))
    if whole > FALLS:
        return Saw("nothing_helps", fall=whole, parts=", ".join(parts)).saying(
            f"The loss falls by {whole:.0%} in {STEPS} steps with {' and '.join(parts)} in place.{beyond}"
        )
    bare = _fall(lab, start, frozenset())
    figures: dict[str, Value] = {"fall": whole, "fall_of_the_bare_step": bare, "parts": ", ".join(parts)}
    if bare < max(CLEARLY, MENDS * whole):
        return Saw("nothing_helps", **figures).saying(
            f"The loss falls by {_share(whole)} in {STEPS} steps, and by {_share(bare)} without {' and '.join(parts)}."
            + beyond
        )
    alone = {part: whole if len(parts) == 1 else _fall(lab, start, frozenset((part,))) for part in parts}
    stopping = [part for part in parts if alone[part] < bare / 2]
    named = " and ".join(stopping) if stopping else f"{' and '.join(parts)} together"
    each = ", ".join(f"{part} {_share(alone[part])}" for part in parts)
    figures |= {f"fall_with_{part.replace(' ', '_')}": alone[part] for part in parts}
    return (
        Saw("something_removed_mends", removed=named, **figures)
        .at(*_places(lab, stopping))
        .saying(
            f"With {named} the loss falls by {_share(whole)} in {STEPS} steps, without by {_share(bare)}."
            + (f" With one part alone: {each}." if len(parts) > 1 else "")
            + beyond
        )
    )


def _share(fall: float) -> str:
    return f"{fall:.0%}" if math.isfinite(fall) else "a non-finite number"


def present(lab: Lab) -> list[str]:
    """The parts that there are to leave out."""
    model = lab.fresh()
    optimizer = own_optimizer(lab, model)
    groups = optimizer.param_groups if optimizer is not None else []
    found = {
        "dropout": has_dropout(lab, model, lab.batch),
        "augmentation": bool(_augmenting(model) or model._forward_pre_hooks or lab.subject.plain_batches)
        or (isinstance(model, TapedModel) and bool(model.player.disturbed)),
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


def _limit(lab: Lab) -> Clipping | None:
    """How the script clips the gradient, where the subject knows."""
    clip = lab.subject.clip
    if clip is None or isinstance(clip, Clipping):
        return clip
    return Clipping(float(clip)) if math.isfinite(clip) else None


def _schedule(lab: Lab) -> Callable[[int], float] | None:
    """From the number of a step of the exam to the factor of the rate, where the subject knows: the course of the whole
    run, pressed together when that was longer. Nothing where the rate stays in all of these steps."""
    given = lab.subject.schedule
    if given is None:
        return None
    stride = max(lab.subject.horizon / STEPS, 1.0)

    def factor(step: int) -> float:
        return given(int(step * stride))

    return factor if any(abs(factor(step) - 1) > MOVES for step in range(STEPS)) else None


def _places(lab: Lab, parts: list[str]) -> list[Place | None]:
    """Where the script does these things, the loss where that is not known."""
    around = lab.subject.procedure if isinstance(lab.subject, CapturedSubject) else None
    held = [around.place(part) for part in parts] if around is not None else []
    return [place for place in held if place is not None] or [lab.place()]


def _fall(lab: Lab, start: float, parts: frozenset[str]) -> float:
    """By what share of itself the loss falls, with these parts in place only."""
    model = lab.fresh()
    if "augmentation" not in parts:
        _undisturb(model)
    optimizer = _optimizer(lab, model, parts)
    clip = _limit(lab) if "clipping" in parts else None
    batches = _plain(lab) if "augmentation" not in parts else lab.batches[: len(_plain(lab))]
    with lab.seeded(), ExitStack() as stack:
        if "dropout" not in parts:
            stack.enter_context(quiet(model))
        if clip is not None:
            stack.enter_context(_clipped(optimizer, model, clip))
        rates = [float(group["lr"]) for group in optimizer.param_groups]
        schedule = _schedule(lab) if "schedule" in parts else None
        for step in range(STEPS):
            lab.check(step / STEPS / 2)
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * schedule(step) if schedule is not None else group["lr"]
            loss = lab.one_step(model, batches[step % len(batches)], optimizer)
            if not math.isfinite(loss):
                return -math.inf
    end = _measured(lab, model)
    return (start - end) / abs(start) if math.isfinite(end) else -math.inf


def _undisturb(model: nn.Module) -> None:
    model._forward_pre_hooks.clear()
    if isinstance(model, TapedModel):
        model.undisturbed = True
    for name in _augmenting(model):
        above, _, last = name.rpartition(".")
        setattr(model.get_submodule(above), last, nn.Identity())


def _plain(lab: Lab) -> list[Batch]:
    return (lab.subject.plain_batches or lab.batches)[:BATCHES]


def _measured(lab: Lab, model: nn.Module) -> float:
    """Measured alike whatever was left out: without dropout and without what is put on the inputs by chance."""
    hooks = dict(model._forward_pre_hooks)
    model._forward_pre_hooks.clear()
    before = model.undisturbed if isinstance(model, TapedModel) else False
    if isinstance(model, TapedModel):
        model.undisturbed = True
    try:
        return mean_loss(lab, model, _plain(lab))
    finally:
        model._forward_pre_hooks.update(hooks)
        if isinstance(model, TapedModel):
            model.undisturbed = before


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
def _clipped(optimizer: torch.optim.Optimizer, model: nn.Module, clip: Clipping) -> Iterator[None]:
    held = [
        parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and (not clip.names or name in clip.names)
    ]
    handle = optimizer.register_step_pre_hook(lambda *_: _clip(held, clip))
    try:
        yield
    finally:
        handle.remove()


def _clip(parameters: list[nn.Parameter], clip: Clipping) -> None:
    if clip.kind == "value":
        nn.utils.clip_grad_value_(parameters, clip.limit)
    else:
        nn.utils.clip_grad_norm_(parameters, clip.limit, clip.norm_type)
