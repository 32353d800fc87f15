"""Finding the outputs of activation functions, however they were spelled, and the axis along which their units lie."""

from __future__ import annotations

from typing import Any

import torch

from clew.observe.watches._loss_graph import MOVES, bare, inputs
from clew.observe.watches._network_graph import way

POOLS = frozenset(
    "MaxPool2DWithIndices MaxPool3DWithIndices AdaptiveMaxPool2D AdaptiveMaxPool3D AvgPool2D AvgPool3D "
    "AdaptiveAvgPool2D AdaptiveAvgPool3D MkldnnMaxPool2D".split()
)
CHANNELS_SECOND = ("Convolution", "BatchNorm", "GroupNorm", "InstanceNorm", "MkldnnConvolution", "CudnnConvolution")
MAKERS = ("Addmm", "Mm", "Bmm", "Convolution", "BatchNorm", "LayerNorm", "GroupNorm", "Add", "Linear", "MkldnnLinear")


def drops(node: Any) -> bool:
    """Whether this is dropout: a product with something that nobody differentiates, or the fused form."""
    name = bare(node)
    return name == "NativeDropout" or (name == "Mul" and len(inputs(node)) == 1)


def rectifier(node: Any) -> Any:
    """The rectifier that made these values, past pooling, dropout and reshaping; None when another function did."""
    passed = list(way(node, lambda held: bare(held) in POOLS or bare(held) in MOVES or drops(held)))
    return passed[-1] if passed and is_rectifier(passed[-1]) else None


def is_rectifier(node: Any) -> bool:
    name = bare(node)
    if name == "Hardtanh":
        return float(getattr(node, "_saved_min_val", -1.0)) == 0.0  # relu6
    return name in ("Relu", "Threshold")


def made_by_layer(node: Any) -> bool:
    """Whether a rectifier's input is a weighted sum or its normalised form, and not, say, a margin."""
    fed = inputs(node)
    for held in way(fed[0] if fed else None, lambda held: bare(held) in MOVES or _shifts(held)):
        last = bare(held)
        if any(maker in last for maker in MAKERS):
            return True
    return False


def _shifts(node: Any) -> bool:
    return bare(node) == "Sub" and len(inputs(node)) == 1


def unit_axis(node: Any, dimensions: int) -> int:
    """Where the units lie in the output of this rectifier: axis 1 behind a convolution, else the last."""
    fed = inputs(node)
    for held in way(fed[0] if fed else None, lambda held: bare(held) in ("Add", "Mul", "Relu", *MOVES)):
        if any(kind in bare(held) for kind in CHANNELS_SECOND):
            return 1 if dimensions > 1 else 0
    return 1 if dimensions >= 4 else dimensions - 1


def as_made(values: torch.Tensor, node: Any, maker: Any) -> torch.Tensor | None:
    """The values in the shape in which the rectifier made them: undoes a flatten; None when axes were exchanged."""
    for held in way(node, lambda held: held is not maker):
        if held is maker:
            return values
        name = bare(held)
        if name in ("View", "UnsafeView", "ReshapeAlias"):
            before = tuple(int(size) for size in getattr(held, "_saved_self_sym_sizes", ()))
            if not before or values.numel() != torch.Size(before).numel():
                return None
            values = values.reshape(before)
        elif name in MOVES and name not in ("Clone", "ToCopy", "Alias", "Contiguous"):
            return None
    return None


def silent_units(values: torch.Tensor, axis: int, most: int = 4_000_000) -> tuple[torch.Tensor, int]:
    """Which units are zero throughout, on the CPU, and over how many rows that was seen."""
    with torch.no_grad():
        held = values.detach()
        if held.numel() > most:
            held = held[:: -(-held.numel() // most)]
        rows = held.movedim(axis, -1)
        rows = rows.reshape(-1, rows.shape[-1])
        on = (rows != 0).any(0)
        return ~on.cpu(), rows.shape[0]
