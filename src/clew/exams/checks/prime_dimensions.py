"""Does the model still run when the batch has a prime number of examples?

Runs model and loss in eval mode with a prime number of examples that no other dimension has, and, where there are
positions, with a prime number of these. The outputs must have as many rows as there are examples.

Why it matters: a reshape or an axis that fits only because two sizes happen to agree, or divide each other, then fails.
Cannot tell: a size that is fixed for a good reason, such as a state kept for one batch size. A captured step, in which
sizes were recorded, fails for that reason and is unclear.
Silent when: only the number of positions is fixed, as it is behind a flattened layer.
"""

from __future__ import annotations

import torch

from clew.exams.batches import Batch, mapped, tensors
from clew.exams.checks._network_graph import is_users
from clew.exams.checks._network_rows import Layout, is_given, layout, picked
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear
from clew.records.place import Place

PRIMES = (7, 11, 13, 5, 17, 19, 23)


@exam("prime_dimensions", seconds=1.0)
def examine(lab: Lab) -> Answer:
    held = layout(lab.batch)
    if isinstance(held, str):
        return Unclear(held)
    if held.axis == 1 and not held.sure:
        return Unclear("the batch axis is unknown")
    model = lab.fresh(training=False)
    before = _shapes(lab, model, lab.batch)  # what fails already is no matter of sizes
    sizes = {size for tensor in tensors(lab.batch.inputs) for size in tensor.shape}
    count = next(prime for prime in PRIMES if prime not in sizes or prime == PRIMES[-1])
    index = torch.arange(count) % held.examples
    try:
        after = _shapes(lab, model, picked(lab.batch, index, held))
    except Exception as error:  # noqa: BLE001  # any failure of the user's code is what is looked for
        said = f"{type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}"
        if not is_given(lab):
            return Unclear(f"the captured step cannot be repeated with {count} examples ({said})")
        told = Saw("breaks", examples=count, before=held.examples, error=said).at(_where(error))
        return told.saying(f"With {count} examples instead of {held.examples} it fails: {said}.")
    odd = next((pair for pair in zip(before, after, strict=False) if _unexpected(*pair, held, count)), None)
    if len(before) != len(after) or odd is not None:
        was, now = odd or ((len(before),), (len(after),))
        told = Saw("breaks", examples=count, before=held.examples, output=str(now))
        return told.saying(f"With {count} examples instead of {held.examples} the output has shape {now}, not {was}.")
    length = _prime_length(lab, model, held)
    return Saw("runs", examples=count, positions=length)


def _shapes(lab: Lab, model: torch.nn.Module, batch: Batch) -> list[tuple[int, ...]]:
    with lab.seeded():
        output = lab.output(model, batch)
        if lab.subject.loss is not None or not is_given(lab):
            lab.subject.value(output, batch.target)
        return [tuple(tensor.shape) for tensor in tensors(output)]


def _unexpected(before: tuple[int, ...], after: tuple[int, ...], held: Layout, count: int) -> bool:
    """Whether an output that had a row per example has another number of rows now, or other sizes elsewhere."""
    if before == after and held.examples in before[:2] and held.examples != count:
        return True
    if len(before) != len(after):
        return True
    return any(
        now != was and now * held.examples != was * count for was, now in zip(before, after, strict=True) if was > 0
    )


def _prime_length(lab: Lab, model: torch.nn.Module, held: Layout) -> int | None:
    """The prime number of positions that it ran with; None when there are none, or the model has a fixed number."""
    if held.axis != 0:
        return None
    shapes = {tensor.shape[1] for tensor in tensors(lab.batch.inputs) if tensor.dim() in (2, 3)}
    if len(shapes) != 1 or (size := shapes.pop()) < 4:
        return None
    length = next((prime for prime in (13, 11, 7, 5, 3) if prime < size and prime != held.examples), None)
    if length is None:
        return None

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[:, :length] if tensor.dim() > 1 and tensor.shape[1] == size else tensor

    try:
        _shapes(lab, model, Batch(mapped(lab.batch.inputs, cut), mapped(lab.batch.target, cut)))
    except Exception:  # noqa: BLE001  # a fixed length is no fault
        return None
    return length


def _where(error: Exception) -> Place | None:
    """The user's line that failed."""
    at, found = error.__traceback__, None
    while at is not None:
        code = at.tb_frame.f_code
        if is_users(code.co_filename):
            found = Place(file=code.co_filename, line=at.tb_lineno, symbol=code.co_name)
        at = at.tb_next
    return found
