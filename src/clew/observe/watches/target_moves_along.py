"""When an image is mirrored or turned, is its mask too?

Images and masks of the same height and width are followed over the epochs. Examples are known again by the part that
came back unchanged. The other part is then compared with what it was, as it lay and in the seven other ways in which a
square can lie.

Why it matters: a mask that stays where it was while its image is mirrored teaches the network to look in the wrong
place, and the loss comes down nevertheless, since half of the images are not mirrored.
Cannot tell: crops, shifts and turns by other angles, which bring neither part back; boxes and points; targets that are
pictures themselves, since two views of one example are meant to differ.
Silent when: both parts move alike, nothing comes back, and where the part that stayed looks the same mirrored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from clew.observe.hooks import tensors_in
from clew.observe.watch import Answer, Batch, Forward, LossCall, Saw, Watch
from clew.observe.watches._data_given import parts
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clew.observe.recorder import Recorder
    from clew.records.place import Place

KNOWN, COMPARED = 512, 2048
PIXELS = 512 * 512
LEAST_SIDE, SIDE = 8, 24
ENOUGH, SHARE = 6, 0.1
ALIKE, CLEARLY = 0.8, 0.15
CLASSES = 64  # values in a mask: more would be a picture, such as another view of the same example
EVEN = 0.98  # of correlation with its own mirror image: such a part looks the same wherever it goes


class TargetMovesAlong(Watch):
    test = "target_moves_along"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.known: tuple[dict[int, Small], dict[int, Small]] = ({}, {})
        self.back = 0
        self.moved: list[int] = [0, 0]  # the image alone, the target alone
        self.compared = 0
        self.place: Place | None = None
        self.loaded = False
        self._inputs: torch.Tensor | None = None

    def batch(self, event: Batch) -> None:
        if self.compared >= COMPARED:
            return
        tensors = event.tensors or list(tensors_in(event.value, torch))
        inputs, targets = parts(event.value, tensors)
        if inputs and len(targets) == 1 and _fit(inputs[0], targets[0]):
            self.loaded = True
            self._follow(inputs[0], targets[0], event.place)

    def forward(self, event: Forward) -> None:
        self._inputs = None
        if not self.loaded and self.compared < COMPARED:
            self._inputs = next((held for held in tensors_in(event.inputs, torch) if held.dim() == 4), None)

    def loss(self, event: LossCall) -> None:
        inputs, self._inputs = self._inputs, None
        if inputs is not None and isinstance(event.target, torch.Tensor) and _fit(inputs, event.target):
            self._follow(inputs, event.target, event.place)

    def _follow(self, images: torch.Tensor, targets: torch.Tensor, place: Place | None) -> None:
        both = [_array(images), _array(targets)]
        for pair in zip(*both, strict=True):
            self.compared += 1
            digests = [hash(part.tobytes()) for part in pair]
            small = [_small(part) for part in pair]
            for moving, fixed in ((0, 1), (1, 0)):
                before = self.known[moving].get(digests[fixed])
                if before is None:
                    if len(self.known[moving]) < KNOWN and not _even(small[fixed]):
                        self.known[moving][digests[fixed]] = small[moving]
                    continue
                self.back += 1
                if _lies_otherwise(before, small[moving]):
                    self.moved[moving] += 1
                    self.place = place
            if self.compared >= COMPARED:
                break

    def read(self) -> Answer:
        if not self.compared:
            return Unclear("no images with targets of the same size were seen")
        if self.back < ENOUGH:
            return Unclear("no example was seen again with one of its parts unchanged")
        which = 0 if self.moved[0] >= self.moved[1] else 1
        if self.moved[which] >= max(ENOUGH, SHARE * self.back):
            words = ("the image", "the target") if which == 0 else ("the target", "the image")
            says = (
                f"{self.moved[which]} examples came back with {words[0]} mirrored or rotated and {words[1]} unchanged"
            )
            found = Saw("left_behind", examples=self.moved[which], came_back=self.back)
            return found.at(self.place).saying(says)
        return Saw("together", came_back=self.back)


Small = Any  # NDArray[np.float32] of SIDE by SIDE at most


def _fit(images: torch.Tensor, targets: torch.Tensor) -> bool:
    """A class for every pixel."""
    if images.dim() != 4 or targets.dim() not in (3, 4) or len(images) != len(targets):
        return False
    size = images.shape[-2:]
    plain = images.device.type == targets.device.type == "cpu" and images.is_floating_point()
    if not plain or targets.shape[-2:] != size or min(size) < LEAST_SIDE or size[0] * size[1] > PIXELS:
        return False
    return not targets.requires_grad and len(torch.unique(targets[0].detach())) <= CLASSES


def _array(tensor: torch.Tensor) -> NDArray[np.float32]:
    return np.asarray(tensor.detach().float().contiguous().numpy())


def _small(part: NDArray[np.float32]) -> NDArray[np.float32]:
    """Standard values on a coarse grid; a picture of any number of channels becomes one."""
    grey = part.reshape(-1, *part.shape[-2:]).mean(0)
    high, wide = (max(1, side // SIDE) for side in grey.shape)
    rows, columns = grey.shape[0] // high, grey.shape[1] // wide
    grid = grey[: rows * high, : columns * wide].reshape(rows, high, columns, wide).mean((1, 3))
    spread = float(grid.std())
    return np.asarray((grid - grid.mean()) / spread if spread > 1e-6 else np.zeros_like(grid), dtype=np.float32)


def _ways(part: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """The other ways in which a picture can lie that keep its size."""
    found = [part[::-1], part[:, ::-1], part[::-1, ::-1]]
    if part.shape[0] == part.shape[1]:
        turned = part.T
        found += [turned, turned[::-1], turned[:, ::-1], turned[::-1, ::-1]]
    return found


def _even(part: NDArray[np.float32]) -> bool:
    """Whether a picture is empty, or looks the same in some other way."""
    return not part.any() or max(float((part * other).mean()) for other in _ways(part)) > EVEN


def _lies_otherwise(before: NDArray[np.float32], now: NDArray[np.float32]) -> bool:
    if before.shape != now.shape:
        return False
    best = max(float((other * now).mean()) for other in _ways(before))
    return best > ALIKE and best > float((before * now).mean()) + CLEARLY
