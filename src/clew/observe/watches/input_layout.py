"""Do the axes of the inputs lie as they are named, or were they renamed without moving the values?

Takes the first pictures and series that enter a model. Neighbours along their axes should be alike. Where they are not,
and the same values read in the other order of axes (channels last, or time and features exchanged) are smooth, the
order was changed by a reshape where a transposition was needed.

Why it matters: every number is still there, and none is where the model looks for it: a convolution sees stripes of
three colours, a recurrent network other features at every step.
Cannot tell: inputs that are not smooth along any axis, and pictures of one channel.
Silent when: values as given are smoother than when read in the other order, or neither is smooth.
"""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING

import torch

from clew.observe.hooks import tensors_in
from clew.observe.watch import Answer, Forward, Saw, Watch
from clew.observe.watches._rl_lines import tree_of, users_files
from clew.records.clue import Unclear
from clew.records.place import RESHAPED, Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clew.observe.recorder import Recorder

LOOKS = 6
ROWS = 32
FEWEST = 48
SMALLEST = 6
LARGEST = 2_000_000
SMOOTH = {3: 0.5, 4: 0.9}
SMOOTHER = {3: 0.5, 4: 0.85}
"""How rough the values in the other order may be, alone and against those in the order given, for series and pictures.
Noise has 1, and pictures that lie as named are rougher in any other order."""
RESHAPES = ("reshape", "view", "resize", "resize_", "unflatten")
NEAREST = 3


class InputLayout(Watch):
    test = "input_layout"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.looks = LOOKS
        self.rows = 0
        self.given: list[float] = []
        self.other: list[float] = []
        self.shape: tuple[int, ...] = ()
        self.place: Place | None = None

    def forward(self, event: Forward) -> None:
        if not self.looks or event.evaluation or not event.grad:
            return
        held = next((each for each in tensors_in(event.inputs, torch) if _fits(each)), None)
        if held is None or (self.shape and tuple(held.shape[1:]) != self.shape):
            return
        self.looks -= 1
        with torch.no_grad():
            values = held.detach()[:ROWS].to("cpu", torch.float32)
            given, other = (pictures if values.dim() == 4 else series)(values)
        if math.isfinite(given) and math.isfinite(other):
            self.rows += len(values)
            self.shape, self.place = tuple(held.shape[1:]), event.place
            self.given.append(given)
            self.other.append(other)

    def read(self) -> Answer:
        if self.rows < FEWEST:
            return Unclear("too few images or multichannel series entered a model")
        given, other = (sum(values) / len(values) for values in (self.given, self.other))
        kind, ratio = (
            len(self.shape) + 1,
            max(two / max(one, 1e-9) for one, two in zip(self.given, self.other, strict=True)),
        )
        if max(self.other) < SMOOTH[kind] and ratio < SMOOTHER[kind]:
            what = "pictures" if kind == 4 else "series"
            says = (
                f"neighbours in the {what} are more alike when the axes are read in the other order "
                f"(roughness {other:.2g} against {given:.2g}): a reshape stands where a transpose is needed"
            )
            return (
                Saw("renamed", given=given, other=other).at(*_reshapes(self.shape, self.place), self.place).saying(says)
            )
        return Saw("as_named", given=given, other=other)


def _fits(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.grad_fn is not None or tensor.layout != torch.strided or tensor.is_meta:
        return False
    if (
        tensor.dim() not in (3, 4)
        or len(tensor) < 2
        or tensor.numel() // len(tensor) * min(len(tensor), ROWS) > LARGEST
    ):
        return False
    first, *rest = tensor.shape[1:]
    if tensor.dim() == 4:
        return 2 <= first <= 4 and min(rest) >= SMALLEST
    return first != rest[0] and min(first, rest[0]) >= 2 and max(first, rest[0]) >= SMALLEST


def pictures(values: torch.Tensor) -> tuple[float, float]:
    """How rough pictures are with their channels first, and read as if these were last."""
    count, channels, height, width = values.shape
    other = values.reshape(count, height, width, channels).permute(0, 3, 1, 2)
    given = (roughness(values.transpose(0, 1), axis) for axis in (2, 3))
    return max(given), max(roughness(other.transpose(0, 1), axis) for axis in (2, 3))


def series(values: torch.Tensor) -> tuple[float, float]:
    """How rough series are along the better of their two axes, and read with these exchanged."""
    count, first, second = values.shape
    return _better(values), _better(values.reshape(count, second, first))


def _better(values: torch.Tensor) -> float:
    return min(roughness(values.permute(2, 0, 1), 2), roughness(values.permute(1, 0, 2), 2))


def roughness(channels: torch.Tensor, axis: int) -> float:
    """The mean square of differences between neighbours over that between any two values, channel by channel."""
    if channels.shape[axis] < SMALLEST:
        return 1.0
    flat = channels.reshape(len(channels), -1)
    spread = flat.var(1)
    steps = channels.diff(dim=axis).reshape(len(channels), -1).square().mean(1)
    held = spread > 1e-12
    return float((steps[held] / (2 * spread[held])).mean()) if bool(held.any()) else math.nan


def _reshapes(shape: tuple[int, ...], near: Place | None) -> tuple[Place, ...]:
    """Lines of the user's that ask for this shape, those that name most of its sizes first."""
    own = [near.file] if near is not None and near.file else []
    files = enumerate(dict.fromkeys([*own, *users_files()]))
    found = [(-score, order, file, line) for order, file in files for line, score in _asking(file, shape)]
    return tuple(Place(file, line, role=RESHAPED) for _, _, file, line in sorted(found)[:NEAREST])


def _asking(file: str, shape: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    tree = tree_of(Place(file, 1))
    for node in ast.walk(tree) if tree is not None else ():
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in RESHAPES):
            continue
        asked: list[ast.expr] = []
        for argument in node.args:
            asked += argument.elts if isinstance(argument, ast.Tuple | ast.List) else [argument]
        sizes = [held.value for held in asked if isinstance(held, ast.Constant) and isinstance(held.value, int)]
        if len(asked) >= len(shape) and all(size in shape for size in sizes):
            yield node.lineno, len(sizes)
