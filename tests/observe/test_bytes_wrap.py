"""Bytes that were added up beyond 255 on the way to a batch, and bytes that look as if they had been."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from loops_data import answer
from torch import nn
from torch.utils.data import DataLoader, Dataset

from clew.observe.watches._data_bytes import Bytes, wrapped
from clew.observe.watches.integer_casts import IntegerCasts

Image = Any
Change = Callable[[Image, Any], Image]


class Pictures(Dataset[Any]):
    def __init__(self, change: Change) -> None:
        self.images = np.random.default_rng(0).integers(0, 256, (64, 12, 12), dtype=np.uint8)
        self.drawn = np.random.default_rng(1)
        self.change = change

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        picture = np.roll(self.images[index], 1, axis=0)
        changed = self.change(picture, self.drawn)
        return torch.from_numpy(np.ascontiguousarray(changed, dtype=np.float32) / 255)


def trained(change: Change) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(2):
        for x in DataLoader(Pictures(change), 16, shuffle=True):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()


def brighter(image: Image, drawn: Any) -> Image:
    image = image[:, ::-1]
    return np.clip(image + drawn.integers(20, 90, dtype=np.uint8), 0, 255)


def brighter_by_name(image: Image, drawn: Any) -> Image:
    image = image + np.uint8(drawn.integers(20, 90))
    return np.minimum(image, 255)


def more_contrast(image: Image, _: Any) -> Image:
    strong = image * 1.5 - 20.0
    return strong.astype(np.int64).astype(np.uint8)


def brighter_with_room(image: Image, drawn: Any) -> Image:
    return np.clip(image.astype(np.int16) + drawn.integers(20, 90), 0, 255).astype(np.uint8)


def inverted(image: Image, _: Any) -> Image:
    return 255 - image


def classes_counted_down(image: Image, _: Any) -> Image:
    classes = image // 16
    return classes - np.uint8(1)  # 0 becomes 255, which the loss ignores


def unlabelled_as_255(image: Image, _: Any) -> Image:
    classes = image.astype(np.int64) // 16 - 1
    return classes.astype(np.uint8)


def turned_around_the_circle(image: Image, _: Any) -> Image:
    return ((image.astype(int) + 70) % 256).astype(np.uint8)


def turned(hue: Image, _: Any) -> Image:
    return hue + np.uint8(70)


@pytest.mark.parametrize("change", [brighter, brighter_by_name, more_contrast])
def test_bytes_without_room_are_seen(tmp_path: Any, change: Change) -> None:
    told = answer(tmp_path, IntegerCasts, lambda: trained(change))
    assert told["outcome"] == "wraps"
    assert told["where"][0]["symbol"] == change.__name__
    assert "wrapped around" in told["says"]
    assert sys.getprofile() is None


@pytest.mark.parametrize(
    "change", [brighter_with_room, inverted, classes_counted_down, unlabelled_as_255, turned_around_the_circle, turned]
)
def test_bytes_with_room_and_bytes_that_are_meant_to_turn_are_left_alone(tmp_path: Any, change: Change) -> None:
    assert answer(tmp_path, IntegerCasts, lambda: trained(change))["outcome"] == "unclear"
    assert sys.getprofile() is None


def test_a_profiler_is_left_alone() -> None:
    def mine(frame: Any, event: str, value: Any) -> None: ...

    held = Bytes()
    sys.setprofile(mine)
    try:
        held.start()
        held.stop()
        assert sys.getprofile() is mine
    finally:
        sys.setprofile(None)
    assert held.windows == 0


def test_what_was_added_is_told_with_its_sign() -> None:
    image = np.arange(256, dtype=np.uint8).reshape(16, 16)
    assert wrapped(image, image + np.uint8(40)) == (40, 40)
    assert wrapped(image, image - np.uint8(30)) == (-30, 30)
    assert wrapped(image // 2, image // 2 + np.uint8(40)) is None
    assert wrapped(image, image) is None


def test_an_error_while_comparing_is_said_and_ends_the_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Bytes()

    def fails(*_: Any) -> None:
        raise ValueError("odd array")

    monkeypatch.setattr(held, "_returned", fails)
    held._following = True
    held._profile(sys._getframe(), "return", np.zeros(3))
    assert held.broken == "ValueError: odd array"
    held.start()
    assert sys.getprofile() is None
