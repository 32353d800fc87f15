"""Where targets are left out of the loss."""

from __future__ import annotations

import pytest

from clew.app.left_out_lines import left_out
from clew.app.slices import Project


def lines(source: str, *others: str) -> list[int]:
    texts = {"a.py": source.splitlines(), **{f"b{n}.py": text.splitlines() for n, text in enumerate(others)}}
    return [line for path, line in left_out(Project(texts)) if path.endswith("a.py")]


@pytest.mark.parametrize(
    "line",
    [
        "labels = [IGNORE] * start + ids[start:]",
        "labels[:start] = -100",
        "labels = torch.where(mask, ids, IGNORE)",
        "labels = [i if keep else IGNORE for i, keep in pairs]",
        "labels = labels.masked_fill(labels == 0, -100)",
        "labels = labels.masked_fill_(~chosen, value=self.IGNORE)",
    ],
)
def test_lines_that_choose_what_is_left_out(line: str) -> None:
    assert lines(f"IGNORE = -100\ndef get(ids):\n    {line}\n") == [3]


def test_the_number_of_the_loss_is_known_by_its_name() -> None:
    loss = "loss = cross_entropy(x, y, ignore_index=SKIPPED)\n"
    assert lines("from b0 import SKIPPED\ny[:n] = SKIPPED\n", loss) == [2]
    assert lines("y[:n] = -1\n", "loss = cross_entropy(x, y, ignore_index=-1)\n") == [1]


def test_what_fills_comes_after_what_chooses() -> None:
    assert lines("y = torch.full((2, 3), -100)\ny[:1] = row\nz[mask] = -100\n") == [3, 1]


@pytest.mark.parametrize(
    "line",
    [
        "count = (labels != IGNORE).sum()",
        "loss = cross_entropy(x, y, ignore_index=IGNORE)",
        "labels[:start] = 0",
        "scores = [0] * n",
        "x = y if y > -100 else z",
    ],
)
def test_lines_that_leave_nothing_out(line: str) -> None:
    assert lines(f"IGNORE = -100\n{line}\n") == []


def test_padding_with_class_nought_is_not_searched_for() -> None:
    assert lines("x[:n] = 0\n", "loss = cross_entropy(x, y, ignore_index=0)\n") == []
