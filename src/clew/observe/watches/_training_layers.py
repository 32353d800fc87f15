"""Layers that behave differently in training and in eval mode, and whether they do so here."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

DROPS: tuple[type[nn.Module], ...] = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
NORMALISES: tuple[type[nn.Module], ...] = (nn.modules.batchnorm._BatchNorm,)  # SyncBatchNorm among them


def depends_on_mode(layer: nn.Module) -> bool:
    """Whether its output depends on the mode: dropout that drops, or normalisation with running statistics."""
    if isinstance(layer, DROPS):
        return float(getattr(layer, "p", 0.0)) > 0
    if isinstance(layer, (*NORMALISES, nn.modules.instancenorm._InstanceNorm)):
        return getattr(layer, "running_mean", None) is not None
    if isinstance(layer, nn.RNNBase):
        return layer.dropout > 0 and layer.num_layers > 1
    if isinstance(layer, nn.MultiheadAttention):
        return bool(layer.dropout > 0)
    # Stochastic depth and its like have no common base; their names and their rate do.
    named = type(layer).__name__.lower()
    if "drop" in named and not list(layer.children()):
        held = getattr(layer, "drop_prob", getattr(layer, "p", None))
        return isinstance(held, float) and held > 0
    return False


def mode_layers(model: nn.Module, trained: set[int] | None = None) -> Iterator[tuple[str, nn.Module]]:
    """The layers whose mode matters; given the ids of the parameters that train, only those in parts that do."""
    for name, layer in model.named_modules():
        if depends_on_mode(layer) and not (trained is not None and _frozen(model, name, layer, trained)):
            yield name, layer


def _frozen(model: nn.Module, name: str, layer: nn.Module, trained: set[int]) -> bool:
    """Whether the nearest part around a layer that has parameters has none that train."""
    while True:
        held = list(layer.parameters())
        if held:
            return not any(id(parameter) in trained for parameter in held)
        if not name:
            return False
        name = name.rpartition(".")[0]
        layer = model.get_submodule(name)


def tensors(value: object) -> Iterator[torch.Tensor]:
    """The tensors of a module's output, two levels deep."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _flat(item)
    else:
        yield from _flat(value)


def _flat(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            if isinstance(item, torch.Tensor):
                yield item
            elif isinstance(item, list | tuple):
                yield from (inner for inner in item if isinstance(inner, torch.Tensor))
