"""Whether a script that asks for a seed is seeded, and whether it numbers things in hash order."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from loops_training import answers

from clew.observe.watches import seeding
from clew.observe.watches.seeding import Seeding, holds_strings, in_hash_order


def loop() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()


@pytest.mark.parametrize(
    ("words", "source", "seed", "outcome"),
    [
        (["train.py"], "model = 1\n", 2**63, "unclear"),
        (["train.py", "--seed", "0"], "model = 1\n", 2**63, "left_out"),
        (["train.py"], "if seed:\n    torch.manual_seed(seed)\n", 2**63, "unclear"),
        (["train.py"], "# torch.manual_seed(seed)\n", 2**63, "unclear"),
        (["train.py", "training.seed=3"], "model = 1\n", 3, "seeded"),
    ],
)
def test_a_seed_that_is_asked_for_must_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], source: str, seed: int, outcome: str
) -> None:
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(seeding, "sources", lambda: iter([("train.py", source)]))
    monkeypatch.setattr(torch, "initial_seed", lambda: seed)
    answer = answers(tmp_path, loop, Seeding)["seeding"]
    assert answer["outcome"] == outcome, answer


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("tags = list({t for r in rows for t in r})\nnumbers = {t: i for i, t in enumerate(tags)}", ["tags"]),
        ("self.tags = list(set(words))\nx = [float(t in row) for t in self.tags]", ["tags"]),
        ("tags = tuple(set(words))\nn = tags.index(word)", ["tags"]),
        ("tags = sorted(set(words))\nn = tags.index(word)", []),
        ("tags = list(set(words))\ntags.sort()\nn = tags.index(word)", []),
        ("tags = list(set(words))\nprint(len(tags))", []),
        ("tags = list(words)\nn = tags.index(word)", []),
        ("tags = list({", []),
    ],
)
def test_lists_made_of_sets_that_are_numbered(source: str, names: list[str]) -> None:
    assert [name for name, _ in in_hash_order(source)] == names


class Held:
    def __init__(self, tags: list[object]) -> None:
        self.tags = tags


def test_only_strings_are_in_another_order_each_time() -> None:
    assert holds_strings([{"tags": ["a", "b"]}], "tags")
    assert holds_strings([{"vocabulary": Held(["a", "b"])}], "tags")
    assert not holds_strings([{"tags": [1, 2], "vocabulary": Held([3, 4]), "torch": torch}], "tags")
