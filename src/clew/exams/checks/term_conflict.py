"""Do two terms of the loss pull the same parameters in opposite directions?

Takes the gradient of each term alone and the cosine between each two over the parameters that both reach, as a mean
over some batches. Terms are found on the tape of a captured step; a given loss may return several values or a dict.

Why it matters: terms that cancel hold the weights where they are, although each of them has a gradient.
Cannot tell: which of the two is wrong; terms that a captured step does not simply add.
Silent when: the gradients are orthogonal or agree. Where they are opposed at these weights and not at others of the
same scale, as at the end of a good compromise, it is unclear.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any, NamedTuple

import torch
from torch import nn

from clew.exams.batches import Batch
from clew.exams.checks._training_loss import fields
from clew.exams.checks._training_quiet import quiet
from clew.exams.checks._training_runs import redrawn, trained_parameters, vector
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear
from clew.records.place import Place

BATCHES = 4
OPPOSED = -0.5
TOTALS = frozenset(("loss", "total", "total_loss", "loss_total", "sum"))


class Pair(NamedTuple):
    first: str
    second: str
    cosine: float
    sizes: float
    """The length of the first gradient over that of the second."""


@exam("term_conflict", seconds=0.5, steps=2 * BATCHES)
def examine(lab: Lab) -> Answer:
    batches = lab.batches[:BATCHES]
    pairs = conflicts(lab, lab.fresh(), batches)
    if isinstance(pairs, str):
        return Unclear(pairs)
    worst = min(pairs, key=lambda pair: pair.cosine)
    if worst.cosine < OPPOSED:
        elsewhere = conflicts(lab, redrawn(lab, 1), batches)
        names = worst.first, worst.second
        same = [] if isinstance(elsewhere, str) else [held for held in elsewhere if held[:2] == names]
        if not same or same[0].cosine >= OPPOSED:
            return Unclear(
                f"the gradients of {worst.first} and {worst.second} have a cosine of {worst.cosine:.2f} here "
                "but not at other weights, as for terms in balance"
            )
    found = Reading(
        cosine=worst.cosine,
        first=worst.first,
        second=worst.second,
        first_over_second_gradient=worst.sizes,
        pairs=len(pairs),
    )
    place = lab.place()
    return found.at(place) if place is not None and worst.cosine < OPPOSED else found


def conflicts(lab: Lab, model: nn.Module, batches: list[Batch]) -> list[Pair] | str:
    """Every two terms with their mean cosine, or a sentence why there are none."""
    held = trained_parameters(model)
    if not held:
        return "no parameter of the model takes a gradient"
    sums: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for number, batch in enumerate(batches):
        lab.check(number / len(batches))
        with lab.seeded(number), quiet(model.train()):
            terms = {name: term for name, term in terms_of(lab, model, batch).items() if term.requires_grad}
            if len(terms) < 2:
                return "the loss is not a sum of separable terms"
            slopes = {name: vector(_scalar(term), held, keep=True) for name, term in terms.items()}
        for first, second in combinations(slopes, 2):
            angle = cosine(slopes[first], slopes[second])
            if angle is not None:
                sums.setdefault((first, second), []).append(angle)
    if not sums:
        return "no parameter takes a gradient from two terms"
    return [
        Pair(first, second, sum(value for value, _ in held) / len(held), sum(size for _, size in held) / len(held))
        for (first, second), held in sums.items()
    ]


def cosine(one: torch.Tensor, other: torch.Tensor) -> tuple[float, float] | None:
    """Over the entries that both reach, and the ratio of lengths there; None when there are none."""
    shared = (one != 0) & (other != 0)
    first, second = one[shared], other[shared]
    lengths = float(first.norm()), float(second.norm())
    if not min(lengths) > 0 or not all(map(math.isfinite, lengths)):
        return None
    return float(first @ second) / (lengths[0] * lengths[1]), lengths[0] / lengths[1]


def terms_of(lab: Lab, model: nn.Module, batch: Batch) -> dict[str, torch.Tensor]:
    offered = getattr(lab.subject, "terms", None)
    if offered is not None:
        found: dict[str, torch.Tensor] = offered(model, batch)
        return found
    output = lab.output(model, batch)
    if lab.subject.loss is None:
        held = fields(output)
        named = {name: value for name, value in held.items() if "loss" in str(name)} if hasattr(held, "items") else {}
    else:
        code = getattr(lab.subject.loss, "__code__", None)
        place = f" at {Place(code.co_filename, code.co_firstlineno)}" if code else ""
        named = _named(lab.subject.loss(output, batch.target), place)
    single = {
        str(name): value
        for name, value in named.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    }
    return _without_total(single)


def _named(value: Any, place: str) -> dict[Any, Any]:
    if hasattr(value, "items"):
        return dict(value.items())
    if isinstance(value, list | tuple):
        numbered = {f"item {at} of the loss{place}": held for at, held in enumerate(value)}
        return dict(value._asdict()) if hasattr(value, "_asdict") else numbered
    return {}


def _without_total(terms: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Without what is the sum of the others, by its name or by its value."""
    if len(terms) < 3:
        return {name: term for name, term in terms.items() if name not in TOTALS}
    values = {name: float(_scalar(term).detach()) for name, term in terms.items()}
    whole = sum(values.values())
    return {
        name: term
        for name, term in terms.items()
        if name not in TOTALS and abs(2 * values[name] - whole) > 1e-5 * abs(values[name])
    }


def _scalar(term: torch.Tensor) -> torch.Tensor:
    return term if term.dim() == 0 else term.mean()
