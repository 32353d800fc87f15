"""Which share of the units in a layer is zero for every example?

Looks at the outputs of ReLUs on a few batches in training mode, wherever they stand in the graph and however they
were written. A unit is silent when it is zero for all examples.

Why it matters: such a unit passes no gradient back, so its own weights cannot bring it back.
Cannot tell: what killed the units; units silent on these examples may respond to others.
Silent when: zeros do not come from a ReLU behind a layer, as in masks, one-hot codes and dropout.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from clew.exams.checks._network_graph import (
    MOVES,
    all_trained,
    bare,
    fed_by,
    graph,
    is_affine,
    nearest,
    place_of,
    roots,
    saved,
    walked,
)
from clew.exams.checks._network_rows import layout
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear
from clew.records.place import Place

BATCHES = 8
ROWS = 32
UNITS = 4
DEAD = 0.88
SPREADS = ("BatchNorm", "GroupNorm", "InstanceNorm", "LayerNorm", "Add")


class Rectifier(NamedTuple):
    silent: torch.Tensor
    name: str
    place: Place | None


@exam("activation_zero_share", seconds=1.0)
def examine(lab: Lab) -> Answer:
    model = all_trained(lab.late())
    layers: list[Rectifier] = []
    examples = 0
    for number, batch in enumerate(lab.batches[:BATCHES]):
        lab.check(number / BATCHES)
        found = rectifiers(lab, model, batch)
        held = layout(batch)
        examples += held.examples if not isinstance(held, str) else 1
        if not layers:
            layers = found
        elif [layer.silent.numel() for layer in layers] == [layer.silent.numel() for layer in found]:
            layers = [was._replace(silent=was.silent & now.silent) for was, now in zip(layers, found, strict=True)]
    if not layers:
        return Unclear("no ReLU behind a layer was seen")
    shares = [float(layer.silent.float().mean()) for layer in layers]
    worst = max(range(len(shares)), key=lambda at: shares[at])
    share, layer = shares[worst], layers[worst]
    if examples < ROWS and DEAD <= share < 1:
        return Unclear(f"{share:.0%} of {layer.name} are silent on {examples} examples, too few to call them dead")
    reading = Reading(largest_share_of_silent_units=share, layer=layer.name, layers=len(layers), examples=examples)
    return reading.at(layer.place) if share >= DEAD and layer.place is not None else reading


def rectifiers(lab: Lab, model: torch.nn.Module, batch: Any) -> list[Rectifier]:
    """Every rectifier behind a layer, in order, and which of its units are zero throughout."""
    output, seen = walked(lab, model, batch)
    found = []
    for node in reversed(graph(roots(output))):
        if bare(node) not in ("Relu", "Threshold", "Hardtanh", "ClampMin"):
            continue
        values = given_out(node)
        maker = behind(node)
        if values is None or maker is None or values.dim() < 2:
            continue
        axis = unit_axis(maker, values.dim())
        if values.shape[axis] < UNITS:
            continue
        by_unit = values.movedim(axis, -1).reshape(-1, values.shape[axis])
        near = nearest(node, seen)
        name = (near.name or near.kind) if near is not None else bare(node).lower()
        found.append(Rectifier(~(by_unit != 0).any(0), name, place_of(node, seen, lab)))
    return found


def given_out(node: Any) -> torch.Tensor | None:
    """What a rectifier gave out: 0 wherever it was off."""
    name = bare(node)
    if name == "Relu":
        return saved(node)
    held = saved(node, "self")
    if held is None:
        return None
    if name == "Hardtanh":  # relu6 is written as a hardtanh from 0
        return held.clamp(min=0) if float(getattr(node, "_saved_min_val", -1.0)) == 0.0 else None
    if name == "ClampMin":
        return held.clamp(min=0) if float(getattr(node, "_saved_min", -1.0) or 0.0) == 0.0 else None
    return held.clamp(min=0) if float(getattr(node, "_saved_threshold", -1.0)) == 0.0 else None


def behind(node: Any) -> Any:
    """The layer whose sums a rectifier gets, past normalisation, sums and reshaping; None when it is none."""
    for _ in range(32):
        fed = fed_by(node)
        if not fed:
            return None
        node = fed[0]
        if is_affine(node):
            return node
        if bare(node) not in MOVES and not any(kind in bare(node) for kind in SPREADS):
            return None
    return None


def unit_axis(maker: Any, dimensions: int) -> int:
    """Axis 1 behind a convolution, else the last."""
    return 1 if "Convolution" in bare(maker) else dimensions - 1
