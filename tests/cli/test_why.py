import json
from pathlib import Path

import pytest

from clew.knowledge import load
from clew.knowledge.search import everything
from conftest import Clew


def test_a_cause_with_its_check_and_sources(clew: Clew) -> None:
    said = clew("why", "loss.double_softmax")
    assert said.status == 0
    for words in ("wrong if", "won't help", "fix", "Based on", "credence"):
        assert words in said.out


def test_everything_can_be_shown(clew: Clew) -> None:
    for found in everything(load()):
        said = clew("why", found.id)
        assert said.status == 0, said.err
        assert found.id in said.out


def test_the_end_of_an_id_is_enough(clew: Clew) -> None:
    assert "loss.double_softmax" in clew("why", "double_softmax").out


def test_a_typo_gets_the_nearest(clew: Clew) -> None:
    said = clew("why", "loss.duoble_softmax")
    assert said.status == 2
    assert "did you mean loss.double_softmax" in said.err


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("loss stuck", "loss_stuck_from_start"),
        ("validation data in the training set", "data.leak_split"),
        ("softmax twice", "loss.double_softmax"),
        ("gradients vanish in deep network", "arch.vanishing_gradient"),
        ("policy entropy collapse", "rl.entropy_collapse"),
        ("zero_grad forgotten", "train.missing_zero_grad"),
        ("nan loss", "loss_nonfinite"),
        ("overfit one batch", "overfit_one_batch"),
        ("dead relu", "arch.dead_relu"),
    ],
)
def test_words_find_entries(clew: Clew, words: str, wanted: str) -> None:
    said = clew("why", words)
    assert said.status == 0
    assert wanted in said.out


def test_nonsense_is_refused(clew: Clew) -> None:
    said = clew("why", "qwertyuiop asdfghjkl")
    assert said.status == 2
    assert "nothing is known under" in said.err
    assert clew("why").status == 2


def test_lists(clew: Clew) -> None:
    assert "loss.double_softmax" in clew("why", "--list", "loss").out
    assert "overfit_one_batch" in clew("why", "--list", "tests").out
    overview = clew("why", "--list").out
    assert "data" in overview
    assert "claims" in overview
    said = clew("why", "--list", "tsets")
    assert said.status == 2
    assert "did you mean test" in said.err


def test_in_short_a_cause_has_its_fix_and_what_refutes_it(clew: Clew) -> None:
    for cause in load().causes:
        rows = clew("why", cause, "--brief").out.rstrip("\n").split("\n")
        assert len(rows) <= 15
        for word in ("  fix ", "  this is wrong if "):
            assert any(row.startswith(word) for row in rows), cause
    assert "Fix: take the last axis" in clew("why", "CLW106", "--brief").out


def test_a_cause_for_programs_names_its_fix(clew: Clew) -> None:
    entry = json.loads(clew("why", "loss.double_softmax", "--brief", "--json", "-").out.split("\n")[-2])["entry"]
    assert "raw logits" in entry["fix"]
    assert "mend" not in entry
    assert "BCELoss" in entry["variants"][0]["fix"]
    assert set(entry["variants"][0]) == {"when", "words", "gloss", "fix", "refute"}


def test_json(clew: Clew) -> None:
    assert clew("why", "init_loss", "--json", "x.json").status == 0
    table = json.loads(Path("x.json").read_text())
    assert table["kind"] == "test"
    assert table["entry"]["id"] == "init_loss"
