"""Do large errors get a gradient?

Replaces the output by one of known error: the target plus or minus growing multiples of its standard deviation, or for
classes growing confidence in a wrong class. Then asks the loss for the gradient of each example.

Why it matters: a clamp on the loss, or on what goes into it, cuts off the gradient where it is reached. The examples
with the largest error then teach the model nothing.
Cannot tell: losses that ignore outliers on purpose; gradients that are small but not zero.
Silent when: errors of the size that an untrained model makes get a gradient, as with every usual loss. Unclear where
the output has neither the form of the target nor scores for classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from clew.exams.checks._training_forms import one_hot, targets
from clew.exams.checks._training_loss import Answered, answer, exchanged, floats
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear

ERRORS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
SCORES = (0.0, 1.0, 3.0, 6.0, 10.0)
LARGE = {"values": 1.0, "classes": 6.0}
"""From here on an error is as large as an untrained model makes them, and larger."""
NONE, SOME = 0.9, 0.1


@exam("error_gradient", needs=("loss", "target"), seconds=0.3, steps=2)
def examine(lab: Lab) -> Answer:
    seen = answer(lab, lab.fresh(), lab.batch)
    found: dict[str, tuple[float, float]] | None = None
    for number, output in enumerate(floats(seen.output)):
        for target in targets(seen.batch, output):
            for kind, made in (("values", _values(output, target)), ("classes", _classes(output, target))):
                shares = _shares(lab, seen, number, made)
                if not shares or min(shares.values()) > SOME:
                    continue  # the loss does not take such an output, or has nothing to do with it
                lost = [size for size, share in shares.items() if share >= NONE and size >= LARGE[kind]]
                if lost and all(share >= NONE for size, share in shares.items() if size >= lost[0]):
                    return _dead(lab, kind, min(size for size, share in shares.items() if share >= NONE), shares)
                found = {kind: (min(shares.values()), max(shares.values()))}
    if found is None:
        return Unclear("no output has a form in which an error of known size can be inserted")
    return Saw("reaches_all", share_without_gradient=next(iter(found.values()))[1])


def _dead(lab: Lab, kind: str, size: float, shares: dict[float, float]) -> Answer:
    unit = "deviations of the target" if kind == "values" else "of confidence in another class"
    says = (
        f"From errors of {size:g} {unit} on, the loss gives {min(1.0, shares[size]):.0%} of the examples no gradient."
    )
    return Saw("none_for_large", from_error=size, share=shares[size]).at(lab.place()).saying(says)


def _values(output: torch.Tensor, target: torch.Tensor) -> Iterator[tuple[float, torch.Tensor]]:
    if not target.is_floating_point() or target.numel() != output.numel() or target.numel() < 2:
        return
    right = target.detach().reshape(output.shape).to(output.dtype)
    spread = float(right.std())
    if not spread > 0:
        return
    signs = torch.ones(right.numel(), dtype=right.dtype, device=right.device)
    signs[1::2] = -1
    for size in ERRORS:
        yield size, right + size * spread * signs.reshape(right.shape)


def _classes(output: torch.Tensor, target: torch.Tensor) -> Iterator[tuple[float, torch.Tensor]]:
    """Scores for the class of another example. Probabilities and their logarithms are left alone."""
    if target.is_floating_point() or target.shape[0] < 2 or float(output.min()) >= 0 or float(output.max()) <= 0:
        return
    own, other = one_hot(target, output), one_hot(target.roll(1, 0), output)
    if own is None or other is None or torch.equal(own, other):
        return
    for size in SCORES:
        yield size, (size * (other - own)).to(output.dtype)


def _shares(lab: Lab, seen: Answered, number: int, made: Iterator[tuple[float, torch.Tensor]]) -> dict[float, float]:
    """For each size of error, the share of examples whose output gets no gradient at all."""
    shares = {}
    for size, output in made:
        given = output.detach().clone().requires_grad_(True)
        try:
            with lab.seeded():
                loss = lab.subject.value(exchanged(seen.output, number, _put(given)), seen.batch.target)
                slope: torch.Tensor | None = torch.autograd.grad(loss, given, allow_unused=True)[0]
        except (RuntimeError, ValueError, IndexError, TypeError):
            return {}
        if slope is None or not bool(torch.isfinite(slope).all()):
            return {}
        shares[size] = float((slope.reshape(len(slope), -1) == 0).all(1).double().mean())
    return shares


def _put(given: torch.Tensor) -> Any:
    return lambda _: given
