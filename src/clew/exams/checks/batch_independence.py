"""Does the output for one example depend on the other examples of the batch?

In eval mode takes the gradient of one example's output with respect to the inputs of the others, which must be exactly
zero, and replaces the others to see whether the output moves by more than rounding.

Why it matters: a reshape instead of a transpose, or a layer over the wrong axis, mixes examples without any error.
Cannot tell: intended mixing (contrastive heads, graphs, minibatch discrimination). Mixing in training mode only.
Silent when: batch norm mixes examples in training mode, as it should; the loss compares examples with one another; a
recurrent layer reads one sequence whose steps lie on the first axis; training stores something of its batches in the
model, such as a codebook.
"""

from __future__ import annotations

import torch

from clew.exams.batches import Batch, is_values, mapped, tensors
from clew.exams.checks._network_rows import (
    Layout,
    apart_by,
    by_row,
    kept_by_training,
    layout,
    others_replaced,
    outputs_by_row,
    plain_kernels,
    seeded_walk,
    tolerance,
)
from clew.exams.checks.causal_independence import find_stream
from clew.exams.exam import exam
from clew.exams.lab import Lab, Seen
from clew.records.clue import Answer, Saw, Unclear

RECURRENT = ("lstm", "gru", "rnn")


@exam("batch_independence", seconds=1.0)
def examine(lab: Lab) -> Answer:
    held = layout(lab.batch)
    if isinstance(held, str):
        return Unclear(held)
    model = lab.fresh(training=False)
    if _one_vector(lab.batch, model):
        return Unclear("the model was given a single vector and not a batch of them")
    stream = find_stream(lab, model) if not held.sure else None
    if stream is not None:
        held = Layout(stream.others, 1 - stream.axis, True)
    answer = look(lab, model, held)
    if not isinstance(answer, Saw) or answer.outcome != "mixes" or held.sure:
        return answer
    # Without a target that says which axis counts the examples, the other axis may: then nothing is mixed along it.
    turned = Layout(second, 1 - held.axis, False) if (second := _other_axis(lab.batch, held)) else None
    if turned is not None and not isinstance(around := look(lab, model, turned), Unclear) and around.outcome != "mixes":
        return Unclear(
            f"values pass along axis {held.axis} of the inputs and not along axis {turned.axis}; which of the "
            "two is the batch axis is unclear"
        )
    return answer


def look(lab: Lab, model: torch.nn.Module, held: Layout) -> Saw | Unclear:
    output, seen = seeded_walk(lab, model, lab.batch)
    known = outputs_by_row(output, held)
    if not known:
        return Unclear("the model's output holds no value per example")
    if any(_compares(value, held.examples) for value in tensors(output)):
        return Unclear("the output has a value for every pair of examples: it compares them by design")
    changed, seen_again = False, seen
    for row in dict.fromkeys((0, held.examples // 2, held.examples - 1)):
        lab.check()
        other = others_replaced(lab.batch, row, held)
        again, seen_again = seeded_walk(lab, model, other)
        changed = changed or any(
            apart_by(first.double(), second.double()) > 0
            for first, second in zip(tensors(lab.batch.inputs), tensors(other.inputs), strict=True)
        )
        gaps = [
            (apart_by(first[row], second[row]), tolerance(first[row]))
            for first, second in zip(known, outputs_by_row(again, held), strict=True)
        ]
        gap = max(gap for gap, _ in gaps)
        if any(gap > allowed for gap, allowed in gaps):
            if kept := kept_by_training(lab, model, lab.batch, other):
                return Unclear(f"the captured step writes into {kept}, and through it examples reach one another")
            return _mixes(lab, row, gap, _first_mixed(seen, seen_again, row, held))
        leak = _gradient_elsewhere(lab, model, row, held)
        if leak:
            return _mixes(lab, row, leak, None)
    if not changed:
        return Unclear("all examples of the batch are equal, so replacing some changes nothing")
    if all(apart_by(value[row], value[0]) <= tolerance(value[0]) for value in known for row in range(1, len(value))):
        # What does not depend on its own example says nothing of others; on the way they may be mixed all the same.
        at = _first_mixed(seen, seen_again, held.examples - 1, held)
        if at is not None:
            return _mixes(lab, held.examples - 1, 0.0, at)
        return Unclear("the output is the same for every example, so it cannot show an influence")
    return Saw("independent", examples=held.examples)


def _compares(output: torch.Tensor, examples: int) -> bool:
    """A square table with as many rows and columns as there are examples, or views of them."""
    return output.dim() == 2 and output.shape[0] == output.shape[1] >= 4 and output.shape[0] % examples == 0


def _mixes(lab: Lab, row: int, size: float, at: Seen | None) -> Saw | Unclear:
    if at is not None and at.kind.lower().replace("_", "").startswith("batchnorm"):
        return Unclear(f"{at.name or at.kind} normalises over the batch in eval mode too, which mixes the examples")
    if at is not None and at.kind.lower().startswith(RECURRENT) and _one_sequence(lab.batch):
        return Unclear("a recurrent layer passes along the first axis and the second has length one: a single sequence")
    behind = f", first seen behind {at.name or at.kind} ({at.kind})" if at is not None else ""
    told = Saw("mixes", example=row, effect=size, stage=(at.name or at.kind) if at is not None else None)
    told.at((at.place or lab.place(at.name)) if at is not None else None)
    if not size and at is not None:
        return told.saying(
            f"The output is the same for every example; on the way, behind {at.name or at.kind} ({at.kind}), an "
            "example's values depend on the others."
        )
    return told.saying(f"Example {row}'s output depends on other examples in eval mode, by {size:.3g}{behind}.")


def _one_vector(batch: Batch, model: torch.nn.Module) -> bool:
    """Whether all inputs are one example's features, as many as a linear layer takes in, or answers to one example."""
    held = [tensor for tensor in tensors(batch.inputs) if tensor.dim()]
    matrices = [weight.shape for weight in model.parameters() if weight.dim() == 2]
    widths, taken = {width for shape in matrices for width in shape}, {shape[1] for shape in matrices}
    vectors = bool(held) and all(tensor.dim() == 1 and tensor.shape[0] in widths for tensor in held)
    return vectors and any(tensor.shape[0] in taken for tensor in held)


def _one_sequence(batch: Batch) -> bool:
    """Whether the first axis may be time and the second, of length one, the examples."""
    held = [tensor for tensor in tensors(batch.inputs) if tensor.dim() > 1]
    return bool(held) and all(tensor.shape[1] == 1 for tensor in held)


def _gradient_elsewhere(lab: Lab, model: torch.nn.Module, row: int, held: Layout) -> float:
    """The largest gradient of one example's output on another example's input; 0 where none can be taken."""
    inputs = mapped(lab.batch.inputs, _leaf)
    leaves = [value for value in tensors(inputs) if value.requires_grad]
    if not leaves:
        return 0.0
    with plain_kernels(), lab.seeded():
        known = [value for value in outputs_by_row(lab.output(model, Batch(inputs)), held) if value.requires_grad]
        if not known:
            return 0.0
        weights = [torch.rand(value[row].shape, generator=lab.generator()).to(value) + 0.5 for value in known]
        total = torch.stack(
            [(value[row] * weight).sum().double() for value, weight in zip(known, weights, strict=True)]
        )
        found = torch.autograd.grad(total.sum(), leaves, allow_unused=True)
    largest = 0.0
    for gradient in found:
        split = by_row(gradient, held) if gradient is not None else None  # type: ignore[redundant-expr]  # not every input is used
        if split is not None:
            elsewhere = torch.cat([split[:row].flatten(), split[row + 1 :].flatten()])
            largest = max(largest, float(torch.nan_to_num(elsewhere).abs().max()) if elsewhere.numel() else 0.0)
    return largest


def _leaf(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(True) if is_values(tensor) else tensor


def _first_mixed(seen: list[Seen], again: list[Seen], row: int, held: Layout) -> Seen | None:
    """The first value on the way whose share of this example changed with the others."""
    if len(seen) != len(again):
        return None
    for first, second in zip(seen, again, strict=True):
        if not is_values(first.value) or first.value.shape != second.value.shape:
            continue
        one, other = by_row(first.value, held), by_row(second.value, held)
        if one is not None and other is not None and apart_by(one[row], other[row]) > tolerance(one[row]):
            return first
    return None


def _other_axis(batch: Batch, held: Layout) -> int:
    sizes = {tensor.shape[1 - held.axis] for tensor in tensors(batch.inputs) if tensor.dim() > 1}
    return sizes.pop() if len(sizes) == 1 and min(sizes) > 1 else 0
