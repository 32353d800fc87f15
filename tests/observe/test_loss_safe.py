"""The watches around the loss change nothing, hold nothing, and bear whatever tensors there are."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from loops_loss import Tokens, classes, fit, gan, mlp, padded, plain
from torch import Tensor, nn

from clew.observe.hooks import watching
from clew.observe.watch import Watch
from clew.observe.watches.label_counts import LabelCounts
from clew.observe.watches.label_range import LabelRange
from clew.observe.watches.labels_masked import LabelsMasked
from clew.observe.watches.loss_input_kind import LossInputKind
from clew.observe.watches.loss_reaches_parameters import LossReachesParameters
from clew.observe.watches.loss_reduction import LossReduction
from clew.observe.watches.loss_shapes import LossShapes
from clew.observe.watches.loss_sign import LossSign
from clew.observe.watches.loss_term_sizes import LossTermSizes
from clew.observe.watches.outputs_constant import OutputsConstant
from clew.observe.watches.padding_counted import PaddingCounted
from clew.observe.watches.softmax_axis import SoftmaxAxis
from clew.observe.watches.unused_parameters import UnusedParameters
from clew.tape.tokens import padding

ALL: list[type[Watch]] = [
    LabelCounts,
    LabelRange,
    LabelsMasked,
    LossInputKind,
    LossReachesParameters,
    LossReduction,
    LossShapes,
    LossSign,
    LossTermSizes,
    OutputsConstant,
    PaddingCounted,
    SoftmaxAxis,
    UnusedParameters,
]


def several_terms(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    scores = F.dropout(model(x), 0.1)
    made: Tensor = plain(model, x, y) / 2 - 0.1 * F.mse_loss(scores, torch.randn(32, 4)) + (scores**2).mean()
    return made


def test_nothing_is_changed(tmp_path: Any) -> None:
    torch.manual_seed(3)
    bare = fit(several_terms, steps=25)
    after = torch.get_rng_state()
    torch.manual_seed(3)
    with watching(tmp_path, ALL, "every") as recorder:
        watched = fit(several_terms, steps=25)
        recorder.answers()
    assert torch.equal(after, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(bare.parameters(), watched.parameters(), strict=True))


def test_nothing_is_held(tmp_path: Any) -> None:
    held: list[weakref.ref[Tensor]] = []

    def step(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        scores = model(x.clone())
        loss = F.cross_entropy(scores.softmax(1), y.clone())
        held.extend((weakref.ref(scores), weakref.ref(loss)))
        return loss

    with watching(tmp_path, ALL, "every") as recorder:
        fit(step, steps=8)
        gc.collect()
        recorder.answers()
        assert not [ref for ref in held if ref() is not None]


def offloaded(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    with torch.autograd.graph.save_on_cpu():
        return 0.5 * plain(model, x, y)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, value: Tensor) -> Tensor:
        return 2 * value

    @staticmethod
    def backward(_ctx: Any, *slopes: Tensor) -> Tensor:
        return 2 * slopes[0]


def on_meta() -> None:
    model = mlp().to("meta")
    for _ in range(3):
        loss = plain(model, torch.empty(8, 6, device="meta"), torch.empty(8, dtype=torch.long, device="meta"))
        loss.backward()  # type: ignore[no-untyped-call]


def sparse() -> None:
    embed, head = nn.Embedding(20, 8, sparse=True), nn.Linear(8, 4)
    optimizers = [torch.optim.SparseAdam(embed.parameters()), torch.optim.SGD(head.parameters(), lr=0.1)]
    _, y = classes()
    for _ in range(4):
        loss = F.cross_entropy(head(embed(torch.randint(0, 20, (32, 5))).mean(1)), y)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()


def no_examples() -> tuple[Tensor, Tensor]:
    return torch.randn(0, 6), torch.randn(0, 4)


def two_roots() -> None:
    model, (x, y) = mlp(), classes()
    torch.autograd.backward([plain(model, x, y), model(x).pow(2).mean()])
    F.cross_entropy(model(x), y, reduction="none").backward(torch.ones(32))  # type: ignore[no-untyped-call]


ODD: dict[str, Callable[[], Any]] = {
    "bfloat16": lambda: fit(lambda m, x, y: plain(m.bfloat16(), x.bfloat16(), y)),
    "float64": lambda: fit(lambda m, x, y: plain(m.double(), x.double(), y)),
    "complex": lambda: fit(lambda m, x, _y: F.mse_loss(torch.fft.fft(m(x)).abs(), torch.rand(32, 4))),
    "empty": lambda: fit(lambda m, x, y: F.mse_loss(m(x), y), data=no_examples),
    "not contiguous": lambda: fit(lambda m, x, y: F.cross_entropy(m(x).view(4, 8, 4).transpose(0, 1).mT, y.view(8, 4))),
    "infinite": lambda: fit(lambda m, x, y: F.cross_entropy(m(x) / 0, y)),
    "own function": lambda: fit(lambda m, x, y: Doubled.apply(plain(m, x, y))),  # type: ignore[no-untyped-call]
    "offloaded": lambda: fit(offloaded),
    "meta": on_meta,
    "sparse": sparse,
    "two roots": two_roots,
    "gan": lambda: gan(lambda scores: -scores.mean()),
    "tokens": lambda: Tokens()(padded()),
}


@pytest.mark.parametrize("train", ODD.values(), ids=ODD)
def test_odd_tensors_break_no_watch(tmp_path: Any, train: Callable[[], Any]) -> None:
    with watching(tmp_path, ALL, "every") as recorder:
        train()
        told = recorder.answers()
    assert not recorder.broken
    assert not [held for held in told if "instrument failed" in held.get("unclear", "")]


@given(st.lists(st.lists(st.integers(0, 4), min_size=4, max_size=4), min_size=1, max_size=6))
def test_padding_is_a_closing_run_of_one_id(rows: list[list[int]]) -> None:
    found = padding(torch.tensor(rows))
    if found is not None:
        (pad,) = {row[-1] for row, length in zip(rows, found, strict=True) if length >= 2}
        for row, length in zip(rows, found, strict=True):
            real, closing = row[: len(row) - length], row[len(row) - length :]
            assert set(closing) <= {pad}
            assert pad not in real[1:]
