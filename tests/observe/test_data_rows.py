"""Digests of rows: equal rows agree in every form, different rows do not."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from clew.observe.rows import COLUMNS, ROWS, Sampled, array_of, of_array, sampled

TABLES = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 12), st.integers(1, 6)),
    elements=st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.0, -0.0, 1.0, 255.0]),
)


def digests(table: Any) -> list[int]:
    found = sampled(table)
    assert found is not None
    return [int(digest) for digest in found.digests.tolist()]


@given(TABLES)
def test_every_form_of_a_table_agrees(table: Any) -> None:
    pandas = pytest.importorskip("pandas")
    sparse = pytest.importorskip("scipy.sparse")
    known = digests(table)
    assert digests(table.astype(np.float32)) == known
    assert digests(pandas.DataFrame(table)) == known
    assert digests(sparse.csr_matrix(table)) == known
    assert digests(torch.from_numpy(table)) == known
    assert digests(torch.from_numpy(table).float().reshape(len(table), -1, 1)) == known
    assert digests(table.tolist()) == known


@given(TABLES)
def test_rows_agree_only_when_they_are_equal(table: Any) -> None:
    rounded = table.astype(np.float32) + np.float32(0)
    known = digests(table)
    for i in range(len(table)):
        for j in range(i):
            assert (known[i] == known[j]) == bool((rounded[i] == rounded[j]).all())


@given(hnp.arrays(np.int64, st.tuples(st.integers(2, 8), st.integers(1, 4)), elements=st.integers(-(2**40), 2**40)))
def test_whole_numbers_are_told_apart(table: Any) -> None:
    known = digests(table)
    for i in range(len(table)):
        for j in range(i):
            assert (known[i] == known[j]) == bool((table[i] == table[j]).all())


def test_order_of_columns_matters() -> None:
    assert digests(np.array([[1.0, 2.0]])) != digests(np.array([[2.0, 1.0]]))


def test_small_whole_numbers_do_not_collide() -> None:
    grid = np.stack(np.meshgrid(*[np.arange(16.0)] * 4), -1).reshape(-1, 4)
    assert len(np.unique(of_array(grid))) == len(grid)


@pytest.mark.parametrize(
    "kind", [torch.float16, torch.bfloat16, torch.float64, torch.uint8, torch.bool, torch.complex64]
)
def test_kinds_of_tensors(kind: torch.dtype) -> None:
    rows = torch.tensor([[0, 1, 1], [1, 0, 1], [0, 1, 1]]).to(kind)
    first, second, third = digests(rows)
    assert first == third != second


@pytest.mark.parametrize(
    "tensor",
    [
        torch.empty(0, 3),
        torch.tensor(3.0),
        torch.eye(3).to_sparse(),
        torch.zeros(2, 3, device="meta"),
    ],
)
def test_what_cannot_be_read(tensor: torch.Tensor) -> None:
    assert array_of(tensor) is None


def test_views_and_gradients_are_read_as_they_are() -> None:
    x = torch.arange(24.0).reshape(4, 6).requires_grad_()
    assert digests(x.t().t()) == digests(x.detach().clone())
    assert digests(x[:, ::2]) == digests(x.detach()[:, ::2].contiguous())
    assert x.grad_fn is None
    assert x.requires_grad


def test_texts_have_digests_too() -> None:
    first, second, third = digests(["one text", "another", "one text"])
    assert first == third != second


def test_long_and_wide_tables_are_thinned_out() -> None:
    long = sampled(np.zeros((3 * ROWS + 1, 2)))
    assert long is not None
    assert len(long.digests) <= ROWS
    assert long.stride == 4
    wide = np.zeros((2, 2 * COLUMNS))
    wide[0, 10] = 1
    assert digests(wide)[0] != digests(wide)[1]


def test_shares_allow_for_rows_that_were_left_out() -> None:
    rows = np.arange(1000, dtype=np.int64)
    whole = Sampled(rows[::4], 4, 1000)
    assert whole.share_of(rows) == pytest.approx(1.0)
    assert whole.share_of(rows[:500]) == pytest.approx(1.0)
    assert whole.share_of(np.concatenate([rows[:100], rows[:100] + 5000])) == pytest.approx(0.5)
    assert whole.share_of(rows[:0]) == 0
