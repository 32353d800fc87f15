"""Examples as tables: what the exams of the data read from batches of any shape.

Inputs become rows of values and rows of tokens, targets become class numbers or values. Tensors stay on their device,
and nothing is written to.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from clew.exams.batches import Batch, mapped, rows, tensors

if TYPE_CHECKING:
    from clew.exams.lab import Lab

LABEL_NAMES = frozenset("labels label targets target y".split())
BESIDE = ("mask", "token_type", "position", "length")
"""Parts of the names of inputs that say which values count, and are none themselves."""
MASKED = -1
MOST_COLUMNS = 64
FEW_VALUES = 2
FEW_ROWS = 8


class Named(NamedTuple):
    """One tensor of the inputs, with the name a person would give it."""

    name: str
    tensor: torch.Tensor


MOST_NAMES, OFTEN = 4, 20
MOST_BATCHES, MOST_OF_A_BATCH = 64, 256


class Labels(NamedTuple):
    """`y` is (examples, positions) of class numbers, -1 where masked, or (examples, columns) of floats.
    `dense`: every position of an example has a label of its own."""

    kind: str
    y: torch.Tensor
    classes: int = 0
    dense: bool = False


class Inputs(NamedTuple):
    """`values` is (examples, features), `tokens` (examples, positions); None where the inputs have none."""

    values: torch.Tensor | None
    tokens: torch.Tensor | None
    spans: tuple[tuple[str, tuple[int, ...]], ...]
    """Name and shape of each float tensor that `values` is made of, in order."""

    @property
    def examples(self) -> int:
        return len(self.values) if self.values is not None else len(self.tokens) if self.tokens is not None else 0

    @property
    def shape(self) -> tuple[int, ...]:
        """That of one example, where there is a single float tensor."""
        return self.spans[0][1] if len(self.spans) == 1 else ()

    def feature(self, index: int) -> str:
        """`input[0, 5, 7]`: the name of one column of `values`."""
        for name, shape in self.spans:
            size = math.prod(shape)
            if index < size:
                place = [int(number) for number in torch.unravel_index(torch.tensor(index), shape)] if shape else ""
                return f"{name}{place}"
            index -= size
        return "input"


def named(tree: Any, name: str = "") -> Iterator[Named]:
    """The tensors of the inputs with their names: keys of dicts, numbers of arguments."""
    if isinstance(tree, torch.Tensor):
        yield Named(name or "input", tree)
    elif isinstance(tree, dict) or hasattr(tree, "items"):
        for key, value in tree.items():
            yield from named(value, f"{name}.{key}" if name else str(key))
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from named(value, f"{name}[{index}]" if name else f"input {index}")


def is_label(name: str) -> bool:
    return name.rpartition(".")[2].lower() in LABEL_NAMES


def target_of(batch: Batch) -> torch.Tensor | None:
    """The tensor that the loss compares with: the target, or what the inputs call labels. Ones or zeros throughout, as
    a discriminator or a residual is compared with, are the role of a term and no labels; nor is the one picture that
    is drawn over and over, nor a mask that says which positions are asked for. Where the rows of a batch are put in an
    order or in pairs, what is asked of one depends on the others, and there are no labels that go by example."""
    count = rows(batch)
    held = list(tensors(batch.target))
    if any(arranges(tensor, count) for tensor in held):
        return None
    if not held:
        held = [part.tensor for part in named(batch.inputs) if is_label(part.name)]
    fitting = [tensor for tensor in held if tensor.dim() and tensor.shape[0] == count and not _chooses(tensor, held)]
    return fitting[0] if fitting and not _role(fitting[0]) else None


def arranges(target: torch.Tensor, count: int) -> bool:
    """Whether a tensor says how the rows of a batch stand to each other: it is an order of them, such as that of their
    times in a partial likelihood, or has a mark for each two of them."""
    if count < FEW_ROWS or target.is_floating_point() or target.is_complex():
        return False
    if target.shape == (count,) and target.dtype != torch.bool:
        return bool((target.sort().values == torch.arange(count, device=target.device)).all())
    if target.shape == (count, count) and target.dtype == torch.bool:
        diagonal = target.diagonal()
        return bool((diagonal == diagonal[0]).all())
    return False


def _chooses(mask: torch.Tensor, held: Sequence[torch.Tensor]) -> bool:
    """Whether a mask picks the positions that another target holds the values of."""
    if mask.dtype != torch.bool:
        return False
    picked = int(mask.sum())
    return any(
        other is not mask and other.dtype != torch.bool and len(other) == picked for other in held if other.dim()
    )


def _role(target: torch.Tensor) -> bool:
    if not target.is_floating_point() or target.numel() < 2:
        return False
    first = float(target.flatten()[0])
    if first in (0.0, 1.0) and bool((target == first).all()):
        return True
    picture = target.shape[0] > 1 and target[0].numel() > 1 and not bool(((target == 0) | (target == 1)).all())
    return picture and bool((target == target[:1]).all())


def shown_inputs(batch: Batch) -> list[Named]:
    """The input tensors that go by example and carry something: neither labels nor masks."""
    count = rows(batch)
    return [
        part
        for part in named(batch.inputs)
        if part.tensor.dim()
        and part.tensor.shape[0] == count
        and part.tensor.dtype != torch.bool
        and not (is_label(part.name) and not any(True for _ in tensors(batch.target)))
        and not any(word in part.name.lower() for word in BESIDE)
    ]


def stacked(parts: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """One tensor of all rows; longer examples are cut to the shortest. None when they are of different kinds."""
    if not parts or len({part.dim() for part in parts}) > 1:
        return None
    shape = [min(part.shape[axis] for part in parts) for axis in range(1, parts[0].dim())]
    cut = [part[(slice(None), *(slice(size) for size in shape))] for part in parts]
    return torch.cat(cut)


def labels_of(lab: Lab, batches: Sequence[Batch]) -> Labels | None:
    """The targets of the batches as labels; None when there are none that go by example."""
    parts = [target_of(batch) for batch in batches]
    held = stacked([part.detach() for part in parts if part is not None])
    if held is None or len(parts) != sum(part is not None for part in parts) or held.numel() == 0:
        return None
    flat = held.reshape(len(held), -1)
    if flat.dtype == torch.bool or not (flat.is_floating_point() or flat.is_complex()):
        return _whole_labels(lab, flat.long())
    if flat.is_complex():
        flat = torch.view_as_real(flat).flatten(1)
    flat = flat.float()
    if flat.shape[1] == 1 and bool(((flat == 0) | (flat == 1)).all()):
        return Labels("classes", flat.long(), 2)
    shares = flat.shape[1] > 1 and held.dim() == 2 and bool((flat >= 0).all())
    if shares and bool(((flat.sum(1) - 1).abs() < 1e-3).all()):
        return Labels("classes", flat.argmax(1, keepdim=True), flat.shape[1])
    stride = max(1, -(-flat.shape[1] // MOST_COLUMNS))
    return Labels("values", flat[:, ::stride])


def _whole_labels(lab: Lab, flat: torch.Tensor) -> Labels:
    """Class numbers, unless the model gives one number per example and there are more than two of them."""
    y = torch.where(flat < 0, MASKED, flat)
    classes = int(y.max()) + 1
    if flat.shape[1] == 1 and len(torch.unique(flat)) > FEW_VALUES and output_width(lab) == 1:
        return Labels("values", flat.float())
    return Labels("classes", y, max(classes, 1), dense=flat.shape[1] > 1)


def output_width(lab: Lab) -> int:
    """How many numbers the model gives for one example; 0 when its output has no batch axis."""
    # Not a fresh copy of the lab's: the width is right also where the values of a replayed step are not.
    model = lab.subject.copy().eval()
    count = rows(lab.batch)
    with torch.no_grad(), lab.seeded():
        outputs = [out for out in tensors(_apart(lab.output(model, lab.batch))) if out.dim() and out.shape[0] == count]
    return outputs[0][0].numel() if outputs else 0


def _apart(output: Any) -> Any:
    """Outputs that are objects with fields (and no mapping) are looked at through their fields."""
    if isinstance(output, torch.Tensor | list | tuple) or hasattr(output, "items"):
        return output
    return vars(output) if hasattr(output, "__dict__") else output


def prediction(output: Any, count: int) -> list[torch.Tensor]:
    """The tensors of an output that go by example: what is predicted, without the loss a model may return with it."""
    return [
        part.tensor.detach()
        for part in named(_apart(output))
        if part.tensor.dim() and part.tensor.shape[0] == count and part.name.rpartition(".")[2] != "loss"
    ]


def inputs_of(batches: Sequence[Batch], but: Collection[int] = ()) -> Inputs:
    """The inputs of the batches as a table, but for those with these numbers."""
    first = shown_inputs(batches[0])
    values: list[torch.Tensor] = []
    tokens: list[torch.Tensor] = []
    spans: list[tuple[str, tuple[int, ...]]] = []
    for index, part in enumerate(first):
        if index in but:
            continue
        held = []
        for batch in batches:
            shown = shown_inputs(batch)
            if index < len(shown):
                held.append(shown[index].tensor.detach())
        whole = stacked(held)
        if whole is None or len(held) != len(batches):
            continue
        if whole.is_complex():
            whole = torch.view_as_real(whole)
        if whole.is_floating_point() or (whole.dtype == torch.uint8 and whole.dim() > 2):
            finite = torch.nan_to_num(whole.float(), nan=0.0, posinf=0.0, neginf=0.0)
            values.append(finite.reshape(len(finite), -1))
            spans.append((part.name, tuple(whole.shape[1:])))
        else:
            tokens.append(whole.reshape(len(whole), -1).long())
    return Inputs(
        torch.cat(values, 1) if values else None,
        torch.cat(tokens, 1) if tokens else None,
        tuple(spans),
    )


def by_batch(lab: Lab, batches: Sequence[Batch]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Inputs and labels of each batch by itself, as numbers on this machine."""
    found = []
    for batch in batches[:MOST_BATCHES]:
        labels, inputs = labels_of(lab, [batch]), inputs_of([batch])
        if labels is None or labels.dense or inputs.values is None or len(labels.y) != inputs.examples:
            return []
        wanted = labels.y if labels.kind == "values" else torch.nn.functional.one_hot(labels.y[:, 0].clamp_min(0))
        found.append((inputs.values[:MOST_OF_A_BATCH].cpu(), wanted[:MOST_OF_A_BATCH].cpu().float()))
    return found


def named_seldom(inputs: Inputs) -> str:
    """Why examples that are only names, such as a user and a film, say too little: of most names there are few."""
    if inputs.values is not None or inputs.tokens is None or not 0 < inputs.tokens.shape[1] <= MOST_NAMES:
        return ""
    usual = []
    for column in inputs.tokens.T:
        _, own, counts = torch.unique(column, return_inverse=True, return_counts=True)
        usual.append(int(counts[own].float().median()))
    if max(usual) >= OFTEN:
        return ""
    return f"the inputs are ids, most of which occur at most {max(usual)} times in {inputs.examples} examples"


def by_example(tensor: torch.Tensor) -> torch.Tensor:
    """(examples, values of one), also where one has a single value and no axis for it."""
    return tensor.reshape(len(tensor), -1)


def some_rows(count: int, most: int, generator: torch.Generator) -> torch.Tensor:
    """At most so many row numbers, drawn without order."""
    return torch.randperm(count, generator=generator)[:most]


def pooled(batches: Sequence[Batch]) -> Batch | None:
    """All examples as one batch; None when batches do not stack or do not go by example."""
    counts = [rows(batch) for batch in batches]
    if not all(counts):
        return None
    if len(batches) == 1:
        return batches[0]
    inputs = _merged([batch.inputs for batch in batches], counts)
    target = _merged([batch.target for batch in batches], counts)
    return Batch(inputs[0], target[0]) if inputs is not None and target is not None else None


def _merged(trees: Sequence[Any], counts: Sequence[int]) -> tuple[Any] | None:
    """The trees as one, example after example; what does not go by example is that of the first."""
    lists = [list(tensors(tree)) for tree in trees]
    if len({len(held) for held in lists}) > 1:
        return None
    merged = []
    for column in zip(*lists, strict=True):
        by_row = all(part.dim() and part.shape[0] == count for part, count in zip(column, counts, strict=True))
        whole = stacked(column) if by_row else column[0]
        if whole is None:
            return None
        merged.append(whole)
    source = iter(merged)
    return (mapped(trees[0], lambda _: next(source)),)
