"""Does one loss term keep another from being learned, or fall without bound?

Takes the weights as they were late in the run and asks of each term whether it has left every scale downwards, and
whether it depends on which inputs belong to which targets. Where one does not, it is trained twice from the same start:
with all terms, and alone.

Why it matters: a term that outweighs the others is served first. What it asks for may be an answer that is the same for
every input, such as a code without content or weights near zero, and then nothing is left for the rest. A term that is
subtracted and has no upper bound is raised for ever.
Cannot tell: terms that a captured step does not simply add; whether the weights are intended.
Silent when: the term learns in spite of the others, or learns nothing alone either; terms that compare nothing with
a target, such as penalties on weights. Where a term may be negative, as a policy's is, it is unclear.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from clew.exams.batches import Batch, mapped, rows
from clew.exams.checks._training_quiet import quiet
from clew.exams.checks._training_runs import own_optimizer
from clew.exams.checks.term_conflict import _scalar, terms_of
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear

STEPS = 150
BATCHES = 6
FEWEST = 8  # examples of a batch
MOST_TERMS = 2  # that are trained for
LEARNED = 0.8
UNLEARNED = 0.97
"""The value of a term over its value for the inputs of other examples: below the one it has learned, above the other
it has not."""
HARDLY, FAR = 0.95, 0.3
"""What is left of a term that has hardly been learned, and of one that falls far when it is trained alone."""
APART = 1.1
WITHOUT_END = 1000.0  # times what all terms were at first
SAME = 1e-5


class Held(NamedTuple):
    """A term on the inputs as they are, and on those of other examples."""

    own: float
    others: float

    @property
    def ratio(self) -> float:
        return self.own / self.others if self.others > 0 else math.nan


@exam("term_balance", needs=("loss", "target"), seconds=3.0, steps=2 * STEPS)
def examine(lab: Lab) -> Answer:
    batches = [batch for batch in lab.batches if rows(batch) >= FEWEST][:BATCHES]
    if not batches:
        return Unclear(f"a batch with {FEWEST} examples is needed")
    late = values(lab, lab.late(), batches)
    if len(late) < 2:
        return Unclear("the loss is not a sum of separable terms")
    early = values(lab, lab.fresh(), batches)
    scale = sum(abs(held.own) for held in early.values())
    lowest = min(late, key=lambda name: late[name].own)
    if late[lowest].own < -WITHOUT_END * scale < 0:
        found = Saw("without_end", late=late[lowest].own, at_first=early[lowest].own, terms=len(late)).saying(
            f"{lowest} goes from {early[lowest].own:.3g} to {late[lowest].own:.3g}: it has no lower bound, "
            "and the other terms do not constrain it"
        )
        return _placed(lab, found)
    if min(held.own for held in (*early.values(), *late.values())) < 0:
        return Unclear("a term goes below zero: on repeated batches it may diverge")
    bound = [name for name, held in early.items() if _differs(held) or _differs(late[name])]
    if not bound:
        return Unclear("no term depends on the pairing of inputs and targets")
    waiting = [name for name in bound if late[name].ratio > HARDLY][:MOST_TERMS]
    for name in waiting:
        together = values(lab, trained(lab, batches, ""), batches)[name]
        alone = values(lab, trained(lab, batches, name), batches)[name]
        stays = together.own > HARDLY * early[name].own and alone.own < FAR * together.own
        kept = (together.ratio > UNLEARNED or stays) and together.own <= APART * early[name].own
        if not kept or not alone.ratio < LEARNED or not together.own > APART * alone.own:
            continue
        others = [other for other in late if other != name]
        found = Saw("starved", together=together.own, alone=alone.own, late=late[name].own, terms=len(late)).saying(
            f"{name} falls to {alone.own:.3g} in {STEPS} steps when it is trained alone, and with "
            f"{' and '.join(others)} it stays at {together.own:.3g}, no better than with the inputs of other examples"
        )
        return _placed(lab, found)
    return Saw("fed", terms=len(late), examined=len(bound))


def _placed(lab: Lab, found: Saw) -> Saw:
    place = lab.place()
    return found.at(place) if place is not None else found


def values(lab: Lab, model: nn.Module, batches: Sequence[Batch]) -> dict[str, Held]:
    """Every term as a mean over the batches."""
    found: dict[str, list[tuple[float, float]]] = {}
    for number, batch in enumerate(batches):
        rolled = Batch(mapped(batch.inputs, partial(_turned, rows(batch))), batch.target)
        with lab.seeded(number), quiet(model.train()):
            own = terms_of(lab, model, batch)
            others = terms_of(lab, model, rolled)
        for name in own.keys() & others.keys():
            pair = float(_scalar(own[name]).detach()), float(_scalar(others[name]).detach())
            found.setdefault(name, []).append(pair)
    return {
        name: Held(sum(own for own, _ in pairs) / len(pairs), sum(other for _, other in pairs) / len(pairs))
        for name, pairs in found.items()
    }


def _turned(examples: int, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.roll(examples // 2, 0) if tensor.dim() and tensor.shape[0] == examples else tensor


def _differs(held: Held) -> bool:
    return abs(held.own - held.others) > SAME * max(abs(held.own), abs(held.others))


def trained(lab: Lab, batches: Sequence[Batch], name: str) -> nn.Module:
    """A copy after some steps on one term, or on all of them. Alone a term pulls as strongly as all of them did: under
    plain SGD its small weight would keep it from learning alone as well."""
    model = lab.fresh()
    weight = _weight(lab, model, batches[0], name) if name else 1.0
    optimizer = own_optimizer(lab, model) or lab.optimizer(model)
    for step in range(STEPS):
        lab.check(step / STEPS)
        batch = batches[step % len(batches)]

        def closure(batch: Batch = batch) -> torch.Tensor:
            optimizer.zero_grad()
            held = terms_of(lab, model, batch)
            chosen = [held[name]] if name else list(held.values())
            loss = weight * torch.stack([_scalar(term) for term in chosen]).sum()
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
            return loss

        with lab.seeded(step):
            if isinstance(optimizer, torch.optim.LBFGS):
                optimizer.step(closure)  # type: ignore[no-untyped-call]
            else:
                closure()
                optimizer.step()
    return model


def _weight(lab: Lab, model: nn.Module, batch: Batch, name: str) -> float:
    """What a term has to be multiplied with to have the gradient of the whole."""
    with lab.seeded(0):
        held = terms_of(lab, model, batch)
        own, whole = _scalar(held[name]), torch.stack([_scalar(term) for term in held.values()]).sum()
        sizes = [_size(loss, model) for loss in (own, whole)]
    model.zero_grad()
    return max(1.0, sizes[1] / sizes[0]) if sizes[0] > 0 and math.isfinite(sizes[1] / sizes[0]) else 1.0


def _size(loss: torch.Tensor, model: nn.Module) -> float:
    """The norm of the gradient."""
    leaves = [leaf for leaf in model.parameters() if leaf.requires_grad]
    if not loss.requires_grad or not leaves:
        return 0.0
    found: tuple[torch.Tensor | None, ...] = torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True)
    return math.sqrt(sum(float(gradient.square().sum()) for gradient in found if gradient is not None))
