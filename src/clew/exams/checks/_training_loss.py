"""Which loss is this? Told by its value: the formula that gives the same number on the model's output and on others.

What follows from it is how much guessing costs, and how low the loss can get.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from clew.exams.batches import Batch, mapped, rows, tensors
from clew.exams.checks._training_forms import Form, class_axis, forms, one_hot, targets
from clew.exams.checks._training_quiet import quiet
from clew.exams.lab import Lab

FAR_OFF_CENTRE = 10.0
"""Squared errors of a zero output count as guessing up to so many variances of the target."""
MOST_SMOOTHING = 0.5
UNEXPLAINED = 0.3
"""The share of a loss that may be something else, a penalty perhaps."""
UNEVEN = 0.3
"""Smoothing spreads the weights of the classes, which then do not sum to one; not by more than this."""


class Known(NamedTuple):
    """What is known of a loss. `low` and `high` are what guessing should cost: with the shares of the classes or the
    mean of the targets known, and without. `guess` is the former, and `least` the lowest there is, in the units that
    this loss has. `factor` is 1 for a mean, more for a sum, and negative for a flipped sign."""

    name: str
    kind: str
    low: float
    high: float
    guess: float
    least: float
    factor: float
    output: int
    """Which of the float tensors of the output is compared."""
    smoothing: float = 0.0

    def over_chance(self, value: float) -> float:
        """The value over what guessing costs; 1 for all between the two kinds of guess."""
        chance = min(max(value, self.low), self.high)
        return value / chance if chance > 0 else math.nan


class Answered(NamedTuple):
    """One batch, answered by the model."""

    batch: Batch
    output: Any
    value: float

    def scored(self, lab: Lab, changed: Any) -> float:
        with torch.no_grad():
            return float(lab.subject.value(changed, self.batch.target))


def answer(lab: Lab, model: nn.Module, batch: Batch) -> Answered:
    """The output and the loss in training mode without dropout."""
    with lab.seeded(), quiet(model.train()):
        output = lab.output(model, batch)
        value = float(lab.subject.value(output, batch.target).detach())
    return Answered(batch, mapped(fields(output), lambda tensor: tensor.detach()), value)


def fields(output: Any) -> Any:
    """Outputs that are objects with fields are looked at through them."""
    if isinstance(output, torch.Tensor | list | tuple) or hasattr(output, "items"):
        return output
    return vars(output) if hasattr(output, "__dict__") else output


def floats(output: Any) -> list[torch.Tensor]:
    """The tensors that may be predictions."""
    return [held for held in tensors(output) if held.is_floating_point() and held.dim()]


def exchanged(output: Any, number: int, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The output with one of its float tensors changed."""
    wanted = iter(range(len(list(tensors(output)))))

    def put(tensor: torch.Tensor) -> torch.Tensor:
        if not (tensor.is_floating_point() and tensor.dim()):
            return tensor
        return change(tensor) if next(wanted) == number else tensor

    return mapped(output, put)


def recognise(lab: Lab, model: nn.Module, batches: Sequence[Batch]) -> Known | str:
    """The loss, or a sentence why it is not known."""
    seen = [answer(lab, model, batch) for batch in batches]
    first = seen[0]
    if not math.isfinite(first.value):
        return f"the loss is {first.value}"
    outputs = list(enumerate(floats(first.output)))
    pairs = [(number, output, target) for number, output in outputs for target in targets(first.batch, output)]
    for number, output, target in pairs:
        for form in forms(output, target):
            known = _matches(lab, seen, number, form)
            if known is not None:
                return known
    for number, _, target in pairs:
        try:
            known = None if target.is_floating_point() else _weighted(lab, seen, number, target)
        except (RuntimeError, ValueError, IndexError, TypeError):
            continue  # the loss does not bear such an output: it is another one
        if known is not None:
            return known
    return "the loss is not one whose chance level is known"


# --- which one it is


def _matches(lab: Lab, seen: Sequence[Answered], number: int, form: Form) -> Known | None:
    first = seen[0]
    own = floats(first.output)[number]
    try:
        with torch.no_grad():
            mean, count = _mean(form, own)
            if not count or not math.isfinite(mean):
                return None
            others = _others(lab, first, number)
            for factor in _factors(count, rows(first.batch)):
                if all(_alike(value, factor * _mean(form, held)[0], own) for held, value in others):
                    return _known(seen, number, form, factor)
            smoothing = _smoothing(form, others)
            if smoothing is not None:
                return _known(seen, number, form, 1.0, smoothing)
            return None
    except (RuntimeError, ValueError, IndexError, TypeError):
        return None  # the loss or the formula does not bear an output of this kind: it is another one


def _mean(form: Form, held: torch.Tensor) -> tuple[float, int]:
    each = form.each(held)
    return (float(each.double().mean()), each.numel()) if each.numel() else (math.nan, 0)


def _alike(value: float, other: float, like: torch.Tensor) -> bool:
    tolerance = max(1e-4, 4 * _eps(like))
    return abs(value - other) <= tolerance * max(abs(value), abs(other), 1e-6)


def _eps(like: torch.Tensor) -> float:
    return float(torch.finfo(like.dtype).eps)


def _factors(count: int, examples: int) -> list[float]:
    """A mean, a sum, a sum per example, a half as physicists write it; each with either sign."""
    sizes = [1.0, float(count), count / examples if examples else 1.0, 0.5]
    return list(dict.fromkeys([*sizes, *(-size for size in sizes)]))


def _others(lab: Lab, first: Answered, number: int) -> list[tuple[torch.Tensor, float]]:
    """Outputs and their losses: the model's own and, where the loss can be asked, one drawn at random."""
    own = floats(first.output)[number]
    found = [(own, first.value)]
    if lab.subject.loss is None:
        return found
    draw = torch.randn(own.shape, generator=lab.generator(31)).to(own.device, own.dtype)
    if bool(((own >= 0) & (own <= 1)).all()):
        draw = draw.sigmoid()
    with lab.seeded():
        return [*found, (draw, first.scored(lab, exchanged(first.output, number, lambda _: draw)))]


def _smoothing(form: Form, others: list[tuple[torch.Tensor, float]]) -> float | None:
    """The share of label smoothing, when all values ask for the same."""
    if form.even is None or len(others) < 2:
        return None
    shares = []
    for held, value in others:
        plain, even = float(form.each(held).double().mean()), float(form.even(held).double().mean())
        if abs(even - plain) < 1e-4 * abs(even):
            return None
        shares.append((value - plain) / (even - plain))
    alike = max(shares) - min(shares) < 0.01 * max(shares)
    return shares[-1] if alike and 1e-3 < shares[-1] <= MOST_SMOOTHING else None


def _weighted(lab: Lab, seen: Sequence[Answered], number: int, target: torch.Tensor) -> Known | None:
    """A cross-entropy with weights of classes, left-out padding, smoothing, or all of them.

    Its gradient is A p - a: p what the output says, a the weight of every class in every row, A their sum in a row.
    Both are read off at an even output and at one drawn at random, and must hold at another."""
    own = floats(seen[0].output)[number]
    true = one_hot(target, own)
    if true is None or lab.subject.loss is None or own.numel() == 0:
        return None
    axis = class_axis(target, own)
    classes = own.shape[axis]
    draws = [torch.randn(own.shape, generator=lab.generator(32 + at)).to(own.device, own.dtype) for at in range(2)]
    first = _slope(lab, seen[0], number, torch.zeros_like(own))
    slopes = [_slope(lab, seen[0], number, draw) for draw in draws]
    if first is None or any(slope is None for slope in slopes):
        return None
    moves = [draw.double().softmax(axis) - 1 / classes for draw in draws]
    changes = [slope - first for slope in slopes if slope is not None]
    sums = (changes[0] * moves[0]).sum(axis, keepdim=True) / moves[0].square().sum(axis, keepdim=True)
    size = float(changes[1].abs().max())
    if not size or float((changes[1] - sums * moves[1]).abs().max()) > max(1e-3, 16 * _eps(own)) * size:
        return None
    weights = (sums / classes - first).clamp_min(0)
    explained = -float((weights * own.double().log_softmax(axis)).sum())
    if abs(seen[0].value - explained) > UNEXPLAINED * abs(seen[0].value):
        return None  # other terms make up much of it, and slopes do not show them
    total = float(sums.sum())
    form = next(form for form in forms(own, target) if form.kind == "classes")
    factors = _factors(form.each(own).numel(), rows(seen[0].batch))
    factor = next((held for held in factors if abs(total - held) <= UNEVEN * abs(held)), None)
    if factor is None:
        return None
    least = float(torch.special.entr(weights / sums.clamp_min(1e-30)).mul(sums).sum())
    known, more = _known(seen, number, form, factor), total / factor
    return known._replace(
        name="weighted cross-entropy",
        low=known.low * more,
        high=known.high * more,
        guess=known.guess * more,
        least=max(least, 0.0) if factor > 0 else least,
    )


def _slope(lab: Lab, answered: Answered, number: int, at: torch.Tensor) -> torch.Tensor | None:
    """The gradient of the loss with respect to the output, there."""
    held = at.clone().requires_grad_()
    with torch.enable_grad(), lab.seeded():
        loss = lab.subject.value(exchanged(answered.output, number, lambda _: held), answered.batch.target)
        (slope,) = torch.autograd.grad(loss, [held], allow_unused=True) if loss.requires_grad else (None,)
    return slope.double() if slope is not None else None


# --- what follows from it


def _known(seen: Sequence[Answered], number: int, form: Form, factor: float, smoothing: float = 0.0) -> Known:
    found = [held for answered in seen for held in [_guesses(answered, number, form)] if held is not None]
    low, high, floor = (sum(column) / len(found) for column in zip(*found, strict=True))
    if form.kind == "classes":
        low = _entropy_of_labels(seen, number, form) or high
        floor = _least_smoothed(form.classes, smoothing)
    # A sum over the parts of one example is a custom, a sum over examples is not.
    own = floats(seen[0].output)[number]
    usual = abs(factor) if _per_example(form, own, factor, rows(seen[0].batch)) else 1.0
    return Known(
        form.name, form.kind, low * usual, high * usual, low * factor, floor * factor, factor, number, smoothing
    )


def _per_example(form: Form, own: torch.Tensor, factor: float, examples: int) -> bool:
    if abs(factor) < 1:
        return True
    count = form.each(own).numel()
    return form.kind in ("binary", "values") and examples > 1 and abs(factor) < count


def _guesses(answered: Answered, number: int, form: Form) -> tuple[float, float, float] | None:
    """What guessing costs on this batch, knowing and not knowing the shares, and the least."""
    held = floats(answered.output)
    if number >= len(held):
        return None
    own = held[number]
    form = _again(form, answered, own) or form
    if form.kind == "classes":
        return math.log(form.classes), math.log(form.classes), 0.0
    target = next((to for to in targets(answered.batch, own) if any(f.name == form.name for f in forms(own, to))), None)
    if target is None:
        return None
    wanted = target.double()
    if form.kind == "shares":
        return _entropy(wanted.mean(0)), math.log(form.classes), _entropy_rows(wanted)
    if form.kind == "binary":
        return float(_yes_no(wanted.mean(0)).mean()), math.log(2), float(_yes_no(wanted).mean())
    centre = wanted.mean(0) if form.name == "squared error" else wanted.median(0).values
    known = _mean(
        form, centre.expand_as(wanted).reshape(own.shape).to(own.dtype) if wanted.numel() == own.numel() else own
    )
    blind = _mean(form, torch.zeros_like(own))
    low, high = sorted((known[0], blind[0]))
    return low, min(high, FAR_OFF_CENTRE * low) if low > 0 else high, 0.0


def _again(form: Form, answered: Answered, own: torch.Tensor) -> Form | None:
    """The same formula for another batch."""
    for target in targets(answered.batch, own):
        for other in forms(own, target):
            if other.name == form.name:
                return other
    return None


def _entropy_of_labels(seen: Sequence[Answered], number: int, form: Form) -> float:
    """The entropy of the shares that the classes have in these batches."""
    counts = torch.zeros(form.classes, dtype=torch.double)
    for answered in seen:
        held = floats(answered.output)
        if number < len(held):
            for target in targets(answered.batch, held[number]):
                if not target.is_floating_point():
                    numbers = target.reshape(-1).long().cpu()
                    kept = numbers[(numbers >= 0) & (numbers < form.classes)]
                    counts += kept.bincount(minlength=form.classes).double()
                    break
    return _entropy(counts / counts.sum()) if counts.sum() else 0.0


def _entropy(shares: torch.Tensor) -> float:
    return float(torch.special.entr(shares).sum())


def _entropy_rows(shares: torch.Tensor) -> float:
    return float(torch.special.entr(shares).sum(-1).mean())


def _yes_no(share: torch.Tensor) -> torch.Tensor:
    held: torch.Tensor = torch.special.entr(share) + torch.special.entr(1 - share)
    return held


def _least_smoothed(classes: int, smoothing: float) -> float:
    """Cross-entropy with smoothed labels cannot get below the entropy of those labels."""
    if not smoothing or not classes:
        return 0.0
    rest = smoothing / classes
    top = 1 - smoothing + rest
    return -(top * math.log(top) + (classes - 1) * rest * math.log(rest))
