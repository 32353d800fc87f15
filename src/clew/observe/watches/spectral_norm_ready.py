"""Was the largest singular value estimated before a spectrally normalised layer is used?

Spectral normalisation divides a weight by an estimate that only passes in training mode improve. The older form
(torch.nn.utils.spectral_norm) starts from random vectors, so a layer that is used in eval mode first divides by a
number that has little to do with its weight; the newer form estimates once, when it is put on, and is as wrong when the
weight is set afterwards.

Why it matters: the layer is then too large by any factor, and whatever is trained through it meets another network than
the one that was designed.
Cannot tell: how the layer came to be in eval mode. The true value is itself iterated for, from below, so a layer that
is only a little too large can go by.
Silent when: a pass in training mode came before, the vectors were loaded with the weights, the estimate is right all
the same, or the only such pass is one before the first step (a sanity check).
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm

from clew.observe.watch import Answer, Judged, ModuleCall, Saw, Watch
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

OFF = 1.25
"""How many times too large the normalised weight must be."""
ROUNDS = 30
LOOKS = 4
MOST = 256


class Layer:
    """What one layer was asked so far."""

    def __init__(self, module: torch.nn.Module, name: str) -> None:
        self.module = weakref.ref(module)
        self.name = name
        self.trained = False  # a pass in training mode has improved its estimate
        self.factor = 0.0
        self.looks = self.passes = 0
        self.place: Place | None = None


class SpectralNormReady(Watch):
    test = "spectral_norm_ready"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.layers: dict[int, Layer] = {}
        self.fresh: list[Layer] = []

    def module(self, event: ModuleCall) -> None:
        norm = _normaliser(event.module)
        if norm is None:
            return
        held = self.layers.get(id(event.module))
        if held is None or held.module() is not event.module:
            if len(self.layers) >= MOST:
                return
            held = self.layers[id(event.module)] = Layer(event.module, event.name)
        if event.module.training:
            held.trained = True
        elif not held.trained and held.looks < LOOKS:
            held.looks += 1
            with torch.no_grad():
                held.factor = _factor(event.module, norm)
            if held.factor > OFF:
                held.place = self.recorder.place()
                held.passes += event.step > 0
                self.fresh = [*self.fresh[-MOST:], held]

    def judged(self, event: Judged) -> None:
        """A pass that is trained on is no sanity check, also before the first step."""
        if event.backward:
            for held in self.fresh:
                held.passes += 1
        self.fresh = []

    def read(self) -> Answer:
        if not self.layers:
            return Unclear("no layer with spectral normalisation was called")
        wrong = [held for held in self.layers.values() if held.passes and not held.trained]
        if not wrong:
            return Saw("estimated", layers=len(self.layers))
        worst = max(wrong, key=lambda held: held.factor)
        return (
            Saw("never", layers=len(wrong), of=len(self.layers), largest_factor=worst.factor)
            .at(worst.place, Place(module=worst.name) if worst.name else None)
            .saying(
                f"{len(wrong)} layers with spectral normalisation were only used in eval mode, which never "
                f"updates the estimate: {worst.name or 'a layer'} is {worst.factor:.3g} times too large."
            )
        )


def _normaliser(module: torch.nn.Module) -> Any:
    """The spectral normalisation on a layer, old style or new; None where there is none."""
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, SpectralNorm):
            return hook
    for held in getattr(module, "parametrizations", {}).values():
        for part in held:
            if isinstance(part, _SpectralNorm):
                return part
    return None


def _factor(module: Any, norm: Any) -> float:
    """The largest singular value of the weight as the layer uses it: 1 when the estimate is right."""
    if isinstance(norm, SpectralNorm):
        matrix = norm.reshape_weight_to_matrix(getattr(module, norm.name + "_orig").detach())
        left, right = (getattr(module, f"{norm.name}_{end}") for end in ("u", "v"))
    else:
        owner = next(held for held in module.parametrizations.values() if any(part is norm for part in held))
        if owner.original.dim() < 2:
            return 1.0  # a vector is divided by its own length
        matrix = norm._reshape_weight_to_matrix(owner.original.detach())
        left, right = norm._u, norm._v
    if matrix.is_meta or not matrix.numel():
        return 1.0
    matrix = matrix.float()
    estimate = float(torch.dot(left.float(), torch.mv(matrix, right.float())).abs())
    return _largest(matrix) / max(estimate, 1e-12)


def _largest(matrix: torch.Tensor) -> float:
    """The largest singular value from below, by power iteration from the longest row: no random number is drawn."""
    vector = matrix[int(torch.linalg.vector_norm(matrix, dim=1).argmax())]
    for _ in range(ROUNDS):
        vector = torch.mv(matrix.T, torch.mv(matrix, vector / torch.linalg.vector_norm(vector).clamp(min=1e-30)))
    size = torch.linalg.vector_norm(vector).clamp(min=1e-30)
    return float(torch.linalg.vector_norm(torch.mv(matrix, vector / size)))
