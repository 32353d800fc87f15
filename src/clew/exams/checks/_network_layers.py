"""Weight matrices in the order in which the model uses them, with what is a table of embeddings left out."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn

from clew.exams.batches import Batch, is_values, tensors
from clew.exams.lab import Lab


class Matrix(NamedTuple):
    name: str
    parameter: nn.Parameter


def matrices(lab: Lab, model: nn.Module, batch: Batch) -> list[Matrix]:
    """Trained weights of two axes and more in order of use. Parts that were not used in this pass are left out, and so
    are single tokens and tables of positions. A model without parts gives them in the order of its parameters."""
    used_by = lab.subject.uses()
    if used_by is not None:
        named = dict(model.named_parameters())
        return [
            Matrix(name, named[name])
            for name, function in used_by
            if function in PRODUCTS and name in named and named[name].requires_grad and named[name].dim() > 1
        ]
    order: dict[str, int] = {}
    handles = [part.register_forward_pre_hook(_noting(order, name)) for name, part in model.named_modules() if name]
    try:
        with lab.seeded():
            lab.output(model, batch)
    finally:
        for handle in handles:
            handle.remove()
    parts = dict(model.named_modules())
    found: list[tuple[int, int, Matrix]] = []
    for at, (name, parameter) in enumerate(model.named_parameters()):
        owner = name.rpartition(".")[0]
        if not parameter.requires_grad or parameter.dim() < 2 or isinstance(parts.get(owner), TABLES):
            continue
        if len(parts) == 1:
            found.append((0, at, Matrix(name, parameter)))
        elif (used := _used(owner, order, parts)) is not None and is_weight(parts.get(owner), name):
            found.append((used, at, Matrix(name, parameter)))
    return [matrix for _, _, matrix in sorted(found, key=lambda item: item[:2])]


PRODUCTS = frozenset(
    "linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d matmul mm bmm addmm "
    "baddbmm __matmul__ __rmatmul__ einsum lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell "
    "multi_head_attention_forward".split()
)
TABLES = (nn.Embedding, nn.EmbeddingBag)
LAYERS = (
    nn.Linear, nn.Bilinear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d,
    nn.ConvTranspose3d, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention,
)  # fmt: skip


def is_weight(owner: nn.Module | None, name: str) -> bool:
    """Whether it is a layer's weight, and not a class token or positions held beside the layers."""
    return (
        "weight" in name.rpartition(".")[2] or owner is None or not any(isinstance(m, LAYERS) for m in owner.modules())
    )


def _noting(order: dict[str, int], name: str) -> Any:
    def note(*_: Any) -> None:
        order.setdefault(name, len(order))

    return note


def _used(owner: str, order: dict[str, int], parts: dict[str, nn.Module]) -> int | None:
    """When the part was called. Attention uses the weights of its output layer without calling it."""
    if owner in order or not owner:
        return order.get(owner, -1)
    above = owner.rpartition(".")[0]
    if above in order and type(parts[above]).__module__.startswith("torch."):
        return order[above]
    return None


def is_table(parameter: torch.Tensor, gradient: torch.Tensor | None, batch: Batch) -> bool:
    """Whether this looks like a table of embeddings: some of its rows, and not all, got a gradient from numbers."""
    if gradient is None or parameter.dim() != 2 or all(is_values(value) for value in tensors(batch.inputs)):
        return False
    silent = (gradient == 0).all(1)
    return bool(silent.any()) and not bool(silent.all())


def gradients(lab: Lab, model: nn.Module, batches: list[Batch]) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss of the first of these batches, and the gradient of every parameter, summed over them; a parameter that
    no loss reaches is not there."""
    for parameter in model.parameters():
        parameter.grad = None
    first = float("nan")
    for number, batch in enumerate(batches):
        with lab.seeded(number):
            loss = lab.loss(model, batch)
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
        first = float(loss.detach()) if number == 0 else first
    return first, {name: held.grad for name, held in model.named_parameters() if held.grad is not None}


def train(
    lab: Lab, model: nn.Module, batches: list[Batch], steps: int, optimizer: torch.optim.Optimizer | None = None
) -> int:
    """Train the copy, and say how many steps it took. Without a last look at the loss: that is one without gradients,
    which models that differentiate on their way cannot bear."""
    return len(lab.fit(model, batches, steps, optimizer=optimizer, until=lambda losses: len(losses) >= steps))


def rms(tensor: torch.Tensor) -> float:
    return float(tensor.detach().double().square().mean().sqrt()) if tensor.numel() else 0.0
