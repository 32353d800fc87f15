"""Squares and differences that find no room in eight or sixteen bits while data are prepared, and sound relatives."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loops_data import answer
from torch import nn

from clew.observe import files
from clew.observe.watches._data_narrow import Narrow
from clew.observe.watches.integer_casts import IntegerCasts

Array = Any
SOUND = np.random.default_rng(0).integers(-9000, 9000, (40, 256), dtype=np.int16)
PIXELS = np.random.default_rng(1).integers(0, 256, (40, 256), dtype=np.uint8)


def squares(pcm: Array) -> Array:
    return np.log(np.maximum(np.square(pcm).mean(-1), 1.0))


def powers(pcm: Array) -> Array:
    energy = (pcm[:, ::2] ** 2).mean(-1)
    return np.sqrt(np.abs(energy))


def products(pcm: Array) -> Array:
    other = pcm[:, ::-1]
    return np.mean(pcm * other, axis=1)


def differences(pixels: Array) -> Array:
    return np.abs(pixels[:, 1:] - pixels[:, :-1]).astype(np.float32)


def steps(pixels: Array) -> Array:
    return np.diff(pixels).mean(1)


WRAP = {squares: SOUND, powers: SOUND, products: SOUND, differences: PIXELS, steps: PIXELS}


def cast_first(pcm: Array) -> Array:
    wave = pcm.astype(np.float32)
    return np.square(wave).mean(-1)


def cast_under_the_same_name(pcm: Array) -> Array:
    pcm = pcm.astype(np.float32) / 32768
    return (pcm**2).mean(-1)


def cast_and_back(pcm: Array) -> Array:
    pcm = pcm.astype(np.float32)
    loud = (pcm**2).mean(-1)
    pcm = (pcm * 0.5).astype(np.int16)
    return loud + pcm[:, 0]


def cast_in_place(pcm: Array) -> Array:
    return np.square(pcm.astype(np.float64)).mean(-1)


def on_a_condition(pcm: Array) -> Array:
    if pcm.dtype == np.int16:
        return pcm.astype(np.float32)[:, 0] ** 2
    return (pcm**2).mean(-1)


def with_room(pcm: Array) -> Array:
    return np.square(pcm, dtype=np.int64).mean(-1)


def scaled(pcm: Array) -> Array:
    return (pcm * 0.5).mean(-1)


def edges(pixels: Array) -> Array:
    return (pixels[:, 1:] - pixels[:, :-1] != 0).mean(-1)


def read_with_a_sign(pixels: Array) -> Array:
    return (pixels[:, 1:] - pixels[:, :-1]).view(np.int8).mean(-1)


def turned(angles: Array) -> Array:
    return (angles[:, 1:] - angles[:, :-1]).mean(-1)


def checked(pixels: Array) -> Array:
    """A sum that goes round on purpose."""
    total = (pixels[:, 1:] * pixels[:, :-1]) % 251
    return total.mean(-1)


def small(pcm: Array) -> Array:
    quiet = pcm // 100
    return (quiet * quiet).mean(-1)


SILENT = {
    cast_first: SOUND,
    cast_under_the_same_name: SOUND,
    cast_and_back: SOUND,
    cast_in_place: SOUND,
    on_a_condition: SOUND,
    with_room: SOUND,
    scaled: SOUND,
    small: SOUND,
    edges: PIXELS,
    read_with_a_sign: PIXELS,
    turned: PIXELS,
    checked: PIXELS,
}


def followed(function: Callable[[Array], Array], array: Array) -> Narrow:
    held = Narrow()
    held.start()
    function(array)
    held.stop()
    assert sys.getprofile() is None
    assert not held.broken
    return held


@pytest.mark.parametrize("function", WRAP, ids=lambda function: function.__name__)
def test_arithmetic_that_wraps(function: Callable[[Array], Array]) -> None:
    found = followed(function, WRAP[function]).found
    assert found is not None
    assert found.place.file is not None
    assert found.place.file.endswith("test_narrow.py")
    assert found.changed > 0.01 * found.of


@pytest.mark.parametrize("function", SILENT, ids=lambda function: function.__name__)
def test_arithmetic_with_room(function: Callable[[Array], Array]) -> None:
    assert followed(function, SILENT[function]).found is None


def test_a_profiler_is_left_alone() -> None:
    def mine(*_: Any) -> None: ...

    sys.setprofile(mine)
    try:
        held = Narrow()
        held.start()
        squares(SOUND)
        held.stop()
        assert sys.getprofile() is mine
        assert held.found is None
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(("function", "outcome"), [(squares, "wraps"), (cast_first, "unclear")])
def test_from_the_file_to_the_first_step(
    tmp_path: Path, function: Callable[[Array], Array], outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "sound.npy", SOUND)
    files.install()
    files.forget()
    monkeypatch.setattr("clew.observe.files.is_users", lambda path: "site-packages" not in path)

    def loop() -> None:
        x = torch.tensor(function(np.load(tmp_path / "sound.npy")), dtype=torch.float32)[:, None]
        model = nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
        for _ in range(3):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

    told = answer(tmp_path, IntegerCasts, loop)
    assert told["outcome"] == outcome, told
    assert sys.getprofile() is None
