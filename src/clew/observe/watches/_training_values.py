"""Reading parameters and gradients without changing or keeping them: samples, norms, exact fingerprints.

Everything here waits for the device when a number is taken, so watches call it on sampled steps only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch

SAMPLE = 16384
"""Values read of one tensor; larger ones are looked at by striding."""

FEW = 4096
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def values(tensor: torch.Tensor) -> torch.Tensor | None:
    """The stored values as one dense real tensor that shares their memory where it can; None when none can be read."""
    held = tensor.detach()
    held = getattr(held, "_local_tensor", held)  # a distributed tensor: what this rank holds of it
    if held.layout is torch.sparse_coo:
        held = held._values()
    elif held.layout is not torch.strided:
        return None
    if held.is_meta or held.is_quantized or held.numel() == 0:
        return None
    if held.is_complex():
        held = torch.view_as_real(held.resolve_conj())
    return held.resolve_neg()


def sample(tensor: torch.Tensor, most: int = SAMPLE) -> torch.Tensor | None:
    """At most about `most` values, evenly spread over the tensor."""
    held = values(tensor)
    if held is None:
        return None
    flat = held.reshape(-1)
    return flat[:: max(1, -(-flat.numel() // most))]


def real(tensor: torch.Tensor, most: int = SAMPLE) -> torch.Tensor | None:
    """A sample in at least single precision, so that its norm cannot overflow or round away."""
    held = sample(tensor, most)
    if held is None:
        return None
    return held if held.dtype == torch.float64 else held.to(torch.float32)


def nonzero(tensor: torch.Tensor | None) -> bool:
    """Whether a gradient holds anything but zeros; NaN counts as something."""
    held = None if tensor is None else values(tensor)
    return held is not None and bool((held != 0).any())


def any_gradient(parameters: Iterable[torch.Tensor]) -> bool:
    return any(nonzero(parameter.grad) for parameter in parameters)


def total_norm(parameters: Iterable[torch.Tensor]) -> float:
    """The norm of all gradients together."""
    return norm_of(parameter.grad for parameter in parameters)


def norm_of(tensors: Iterable[torch.Tensor | None]) -> float:
    """The norm of all that these tensors hold together."""
    squares = []
    for tensor in tensors:
        held = None if tensor is None else values(tensor)
        if held is not None:
            squares.append(torch.linalg.vector_norm(held, dtype=_wide(held)).double().cpu())
    return float(torch.linalg.vector_norm(torch.stack(squares))) if squares else 0.0


def _wide(tensor: torch.Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def fingerprint(tensor: torch.Tensor) -> int:
    """A number that changes whenever a bit of the tensor does, but for sums that cancel; 0 when there is nothing."""
    held = values(tensor)
    if held is None:
        return 0
    bits = held if held.dtype == torch.bool else held.view(_BITS[held.element_size()])
    total = int(bits.sum(dtype=torch.int64))
    if bits.numel() <= FEW and bits.dtype != torch.bool:
        # A softmax moves two biases by the same amount up and down, and a plain sum would not notice.
        whole = bits.to(torch.int64)
        total += int((whole * whole).sum())  # modulo 2**64
    return total


def version(tensor: torch.Tensor | None) -> tuple[int, int]:
    """Which tensor it is and how often it was written to: costs nothing and does not wait for the device."""
    if tensor is None:
        return (0, 0)
    return (id(tensor), 0 if tensor.is_inference() else tensor._version)


def held_by(optimizer: Any) -> Iterator[torch.Tensor]:
    """The parameters of an optimiser, in order."""
    for group in optimizer.param_groups:
        yield from group["params"]


def rate(group: dict[str, Any]) -> float:
    return float(group.get("lr", math.nan))


def loss_scale(optimizer: Any) -> float:
    """The factor that gradients still carry at step: fused optimisers under a GradScaler divide by it themselves."""
    held = getattr(optimizer, "grad_scale", None)
    return float(held) if isinstance(held, torch.Tensor) else 1.0


def skips(optimizer: Any) -> bool:
    """Whether a fused optimiser will do nothing, because its GradScaler found a gradient that is not finite."""
    held = getattr(optimizer, "found_inf", None)
    return isinstance(held, torch.Tensor) and bool(held)


def matrices(optimizer: Any) -> list[torch.Tensor]:
    """The weight matrices that may move; all that may move if none is a matrix; everything if nothing may move."""
    every = list(held_by(optimizer))
    trainable = [parameter for parameter in every if parameter.requires_grad] or every
    return [parameter for parameter in trainable if parameter.dim() > 1] or trainable


def median(numbers: Iterable[float]) -> float:
    """The middle value. Infinities count, NaN makes it NaN."""
    held = sorted(numbers)
    if not held or any(math.isnan(number) for number in held):
        return math.nan
    middle = len(held) // 2
    if len(held) % 2 or held[middle - 1] == held[middle]:
        return held[middle]
    return (held[middle - 1] + held[middle]) / 2
