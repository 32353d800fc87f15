"""Do shapes, types, ranges and labels of the batches look sound?

Looks at all available batches: values that are not finite, examples that are all equal, labels that are all masked, all
equal or outside the range of the output, features that are constant or doubled.

Why it matters: most silent faults sit in the data, and these readings cost nothing.
Cannot tell: labels in range that are wrong; whether a constant feature is intended (borders of images, padding);
whether batches that come again are a new epoch or a stale loader.
Silent when: constant or doubled features are fewer than nine in ten or the inputs are mostly zeros, as counts of words
are, and when an output has more classes than the labels use.
Sources: look-at-the-data, labels-match-inputs
"""

from __future__ import annotations

import torch

from clew.exams.batches import rows, tensors
from clew.exams.captured import CapturedSubject
from clew.exams.checks._data_tables import Labels, inputs_of, labels_of, output_width, shown_inputs, target_of
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear, Value

FEWEST = 4
ALIKE = 1e-6
SPARSE = 0.8
USELESS = 0.9
MOST_FEATURES = 512
CLASS_LOSSES = ("CrossEntropyLoss", "NLLLoss", "cross_entropy", "nll_loss")
BINARY_LOSSES = ("BCELoss", "BCEWithLogitsLoss", "binary_cross_entropy", "binary_cross_entropy_with_logits")


@exam("data_sanity", seconds=0.5)
def examine(lab: Lab) -> Answer:
    count = sum(rows(batch) for batch in lab.batches)
    if not count:
        return Unclear("the inputs disagree on the number of examples")
    figures = _figures(lab)
    for found in (_nonfinite(lab), _labels(lab), _inputs(lab)):
        if found is not None:
            outcome, says = found
            return Saw(outcome, **figures).at(lab.place()).saying(says)
    return Saw("sound", **figures).saying(f"{count} examples in {len(lab.batches)} batches look sound.")


def _figures(lab: Lab) -> dict[str, Value]:
    """What a person would print first."""
    figures: dict[str, Value] = {"examples": sum(rows(batch) for batch in lab.batches), "batches": len(lab.batches)}
    for part in shown_inputs(lab.batch)[:3]:
        held = part.tensor
        figures[f"{part.name} shape"] = str(tuple(held.shape))
        figures[f"{part.name} type"] = str(held.dtype).removeprefix("torch.")
        if held.numel() and not held.is_complex():
            figures[f"{part.name} least"] = float(held.min())
            figures[f"{part.name} most"] = float(held.max())
        if held.is_floating_point() and held.numel() > 1:
            figures[f"{part.name} mean"] = float(held.double().mean())
            figures[f"{part.name} deviation"] = float(held.double().std())
    target = target_of(lab.batch)
    if target is not None and target.numel() and not target.is_complex():
        figures["target shape"] = str(tuple(target.shape))
        figures["target type"] = str(target.dtype).removeprefix("torch.")
        figures["target least"], figures["target most"] = float(target.min()), float(target.max())
    return figures


def _nonfinite(lab: Lab) -> tuple[str, str] | None:
    for number, batch in enumerate(lab.batches):
        for what, tree in (("inputs", batch.inputs), ("targets", batch.target)):
            bad = sum(int((~torch.isfinite(held)).sum()) for held in tensors(tree) if held.is_floating_point())
            if bad:
                return "nonfinite", f"{bad} values in the {what} of batch {number} are NaN or infinite."
    return None


def _labels(lab: Lab) -> tuple[str, str] | None:
    target = target_of(lab.batch)
    if target is None:
        return None
    if not target.is_floating_point() and _takes(lab, CLASS_LOSSES):
        ignored = getattr(lab.subject.loss, "ignore_index", -100)
        held = [part for batch in lab.batches for part in [target_of(batch)] if part is not None]
        if all(bool((part == ignored).all()) for part in held):
            return "labels_masked", f"All targets of {len(held)} batches are {ignored}, which the loss ignores."
        counted = torch.cat([part[part != ignored].flatten() for part in held])
        width = _classes(lab, target)
        if width and (int(counted.max()) >= width or int(counted.min()) < 0):
            return (
                "labels_outside",
                f"Labels run from {int(counted.min())} to {int(counted.max())}, and the output has {width} classes.",
            )
    if target.is_floating_point() and _takes(lab, BINARY_LOSSES):
        low, high = float(target.min()), float(target.max())
        if low < 0 or high > 1:
            return "labels_outside", f"Targets run from {low:.3g} to {high:.3g}, and the loss expects 0 to 1."
    labels = labels_of(lab, lab.distinct)
    if labels is None:
        return None
    # A captured step may have made its targets itself: zeros are the place of the positive in a contrastive loss.
    slot = isinstance(lab.subject, CapturedSubject) and not labels.y.is_floating_point() and not bool(labels.y.any())
    return None if slot else _one_label(labels)


def _one_label(labels: Labels) -> tuple[str, str] | None:
    if len(labels.y) >= 8 * FEWEST and not labels.dense and bool((labels.y == labels.y[0]).all()):
        return "one_label", f"All {len(labels.y)} examples have the same target."
    return None


def _takes(lab: Lab, names: tuple[str, ...]) -> bool:
    loss = lab.subject.loss
    return type(loss).__name__ in names or getattr(loss, "__name__", "") in names


def _classes(lab: Lab, target: torch.Tensor) -> int:
    """The classes that the output has room for; 0 when that is not plain."""
    per_example = max(1, target[0].numel())
    width = output_width(lab)
    return width // per_example if width and width % per_example == 0 else 0


def _inputs(lab: Lab) -> tuple[str, str] | None:
    inputs = inputs_of(lab.distinct)
    if inputs.examples < FEWEST:
        return None
    tables = [held for held in (inputs.values, inputs.tokens) if held is not None]
    if all(_constant(held) for held in tables) and any(held.shape[1] > 1 for held in tables):
        return "inputs_alike", f"All {inputs.examples} examples have the same inputs."
    if (
        inputs.values is not None
        and inputs.values.shape[1] >= 8
        and inputs.examples >= 32
        and _share_of_zeros(inputs.values) < SPARSE
    ):
        constant, doubled = useless(inputs.values)
        if constant + doubled >= USELESS:
            return (
                "features_empty",
                f"{100 * constant:.0f} % of the input features are constant, {100 * doubled:.0f} % duplicates "
                "of others.",
            )
    return None


def _share_of_zeros(values: torch.Tensor) -> float:
    return float((values == 0).double().mean())


def _constant(held: torch.Tensor) -> bool:
    if not held.is_floating_point():
        return bool((held == held[:1]).all())
    size = float(held.double().square().mean().sqrt())
    return float((held - held[:1]).abs().max()) <= ALIKE * size if size > 0 else True


def useless(values: torch.Tensor) -> tuple[float, float]:
    """The shares of features that never vary, and that equal an earlier one up to scale and shift."""
    stride = max(1, -(-values.shape[1] // MOST_FEATURES))
    held = values[:512, ::stride].double()
    spread = held.std(0)
    varied = spread > ALIKE * held.square().mean(0).sqrt().clamp_min(1e-30)
    constant = 1 - float(varied.double().mean())
    held = (held[:, varied] - held[:, varied].mean(0)) / spread[varied]
    if held.shape[1] < 2:
        return constant, 0.0
    alike = (held.T @ held / (len(held) - 1)).abs().triu(1) > 1 - 1e-6
    return constant, float(alike.any(0).double().sum()) / len(spread)
