"""Whether a script that asks for a seed is seeded, and whether it numbers things in hash order."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from loops_training import answers

from clew.observe.watches import seeding
from clew.observe.watches._data_salted import reduced
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


WORDS = [f"word{number}" for number in range(60)]


def buckets() -> None:
    [hash(word) % 16 for word in WORDS]
    loop()


def few() -> None:
    [hash(word) % 16 for word in WORDS[:5]]
    loop()


def numbers() -> None:
    [hash(number) % 16 for number in range(60)]
    loop()


def keys() -> None:
    {hash(word): word for word in WORDS}
    loop()


def names() -> None:
    [f"part-{hash(word) % 16}" for word in WORDS]
    loop()


@pytest.mark.parametrize(
    ("run", "seed", "fixed", "outcome"),
    [
        (buckets, 3, "", "hash_numbers"),
        (buckets, 2**63, "", "unclear"),
        (buckets, 3, "0", "unclear"),
        (few, 3, "", "unclear"),
        (numbers, 3, "", "unclear"),
        (keys, 3, "", "unclear"),
        (names, 3, "", "unclear"),
    ],
)
def test_strings_that_are_numbered_by_their_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[[], None], seed: int, fixed: str, outcome: str
) -> None:
    before = hash
    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setenv("PYTHONHASHSEED", fixed)
    monkeypatch.setattr(torch, "initial_seed", lambda: seed)
    answer = answers(tmp_path, run, Seeding)["seeding"]
    assert answer["outcome"] == outcome, answer
    assert hash is before


@pytest.mark.parametrize(
    ("source", "line", "found"),
    [
        ("n = hash(word) % 8", 1, True),
        ("n = 1 + abs(hash(word)) % (size - 1)", 1, True),
        ("n = hash(word) & mask", 1, True),
        ("def f(w):\n    h = hash(w)\n    return h % 8", 2, True),
        ("def f(w):\n    h = hash(w)\n    return h", 2, False),
        ("def f(w):\n    h = hash(w)\n    return f'{h % 8}'", 2, False),
        ("n = str(hash(word) % 8)", 1, False),
        ("n = hash(word) % 8", 2, False),
        ("n = hash(", 1, False),
    ],
)
def test_a_hash_that_is_reduced_to_a_range(source: str, line: int, found: bool) -> None:
    assert reduced(source, line) == found


class Held:
    def __init__(self, tags: list[object]) -> None:
        self.tags = tags


def test_only_strings_are_in_another_order_each_time() -> None:
    assert holds_strings([{"tags": ["a", "b"]}], "tags")
    assert holds_strings([{"vocabulary": Held(["a", "b"])}], "tags")
    assert not holds_strings([{"tags": [1, 2], "vocabulary": Held([3, 4]), "torch": torch}], "tags")
