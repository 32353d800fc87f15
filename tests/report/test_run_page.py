"""What `clew run` prints: the place and the fault first, little else."""

from pathlib import Path

import pytest

from clew.case.clues import SENTENCES, answered
from clew.case.weigh import on_scale
from clew.knowledge import load
from clew.records.case import Case, HeldClue
from clew.records.clue import Clue
from clew.records.place import Place
from clew.report.run_page import DataFile, RunFacts, place_words, run_page
from clew.report.text import Page
from clew.report.view import LEAST_PULL, CaseView, telling, view

KNOWLEDGE = load()
FILES = tuple(DataFile(f"part{n}.csv", False, 9, "pandas", "8 rows", "train.py:2") for n in range(5))
FACTS = RunFacts("train.py", 40, 8.1, 0, 1, ".clew/runs/x", files=(*FILES, DataFile("o.pt", True, 0, "", "", "")))


def clue(test: str, outcome: str, *where: Place, says: str = "", why: str = "", **measured: float) -> Clue:
    held = KNOWLEDGE.tests[test]
    says = says or (known.means if (known := held.outcome(outcome)) else "")
    return Clue(
        test, outcome, tuple(sorted(measured.items())), where, reads=(held.reads,), source=held.by, says=says, why=why
    )


def seen_by(*clues: Clue) -> CaseView:
    held = tuple(HeldClue(index + 1, item, "", "") for index, item in enumerate(clues))
    case = Case("x", "", "clew run", "general", "routine", "train.py", "", "", (), held, (), (), (), None)
    return view(KNOWLEDGE, case, by_hand=False)


def page(*clues: Clue, everything: bool = False, facts: RunFacts = FACTS) -> str:
    return str(run_page(seen_by(*clues), facts, Page(80), everything))


PASSED = (clue("event_order", "usual"), clue("gradient_by_depth", "even"), clue("loss_sign", "unclear", why="no loss"))
NONFINITE = clue("nonfinite_data", "seen", Place("train.py", 2, symbol="Net.<lambda>"), rows_affected=1, batch=11)
EXPLODES = clue("gradient_explodes", "explodes", Place(step=5), largest_over_early_median=1e9)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import torch\nfor batch in " + "x" * 100 + ":\n    pass\n")


def test_a_page_that_was_not_written_is_not_named() -> None:
    assert "HTML report" not in page(*PASSED, facts=FACTS._replace(page=False))


def test_a_sound_run_needs_four_lines() -> None:
    lines = page(*PASSED, clue("learning_curve", "both_low")).splitlines()
    assert lines[1:] == [
        "HEALTHY  train.py: 40 steps in 8 s",
        "",
        "3 checks passed, 1 did not apply: clew show x --all",
        "HTML report: .clew/runs/x/report.html (clew open)",
    ]


def test_doubtful_health_is_no_health_and_shows_why_first() -> None:
    fine = (*PASSED, clue("learning_curve", "both_low"), clue("split_overlap", "disjoint"))
    likely = clue("source_data_leak_split", "likely", Place("train.py", 2), says="In the source: fitted on all")
    text = page(*fine, clue("fit_before_split", "absent"), clue("train_val_gap", "val_better"), likely)
    assert text.splitlines()[1].startswith("NOTHING FOUND  train.py")
    assert text[text.index("\nSeen\n") :].startswith("\nSeen\n  - train.py:2: In the source: fitted on all")
    few = page(*PASSED, clue("update_ratio", "healthy"))
    assert few.splitlines()[1].startswith("NOTHING FOUND"), "three ordinary checks show too little"


def test_a_line_of_the_source_is_no_consequence_of_a_finding() -> None:
    certain = clue("source_data_leak_split", "certain", Place("train.py", 3), says="In the source: fitted on X_val")
    refuted = (clue("split_overlap", "disjoint"), clue("fit_before_split", "absent"))
    text = page(*PASSED, *refuted, NONFINITE, EXPLODES, certain)
    assert text.splitlines()[1].startswith("FAULT")
    assert "  - train.py:3: In the source: fitted on X_val" in text
    assert "(gradient_explodes)." in text.partition("possibly consequences: ")[2]
    alone = page(*PASSED, *refuted, certain).splitlines()
    assert alone[1].startswith("SUSPECT")
    assert alone[5].startswith("  - train.py:3")


def test_the_place_comes_first_then_the_line_then_what_was_seen() -> None:
    text = page(*PASSED, NONFINITE, EXPLODES)
    lines = text.splitlines()
    assert lines[1].startswith("FAULT  train.py")
    assert lines[3] == "train.py:2: NaN or Inf in inputs or targets"
    assert lines[4].startswith("  2 | for batch in xxx")
    assert lines[4].endswith(" …")
    assert len(lines[4]) <= 80
    assert lines[5].strip() == "~" * (len(lines[4]) - len("  2 | "))
    assert "  measured: batch 11, rows affected 1" in lines
    assert "  read: part0.csv (pandas, 8 rows), part1.csv (pandas, 8 rows), part2.csv" in text
    assert "and 2 more." in text
    assert "o.pt" not in text
    assert "(gradient_explodes)." in text.partition("Also seen, possibly consequences: ")[2]
    assert "Possible causes" not in text


def test_a_figure_that_the_sentence_says_is_not_repeated() -> None:
    told = clue("nonfinite_data", "seen", says="batch 11 holds NaN in 1 of 20 rows", batch=11, rows_affected=1, epoch=2)
    assert "  measured: epoch 2" in page(*PASSED, told).splitlines()


def test_without_a_finding_the_signs_come_before_the_guesses() -> None:
    text = page(*PASSED, EXPLODES, clue("loss_nonfinite", "seen", nonfinite_share=0.5))
    order = [text.index(part) for part in ("SUSPECT", "\nSeen\n", "\nPossible causes\n", "best value first")]
    assert order == sorted(order)
    assert "(gradient_explodes, largest over early median" in " ".join(text.split())
    assert "  - step 5: " in text


def test_a_passed_check_is_not_named_against_health() -> None:
    seen = seen_by(clue("simple_baseline", "neither"), clue("update_ratio", "huge"), *PASSED)
    assert any(pull.bits < -LEAST_PULL and pull.clue == 0 for pull in seen.weighing.pulls("none.healthy"))
    named = [pull.clue for pull in telling(seen, "none.healthy") if pull.bits < 0]
    assert named == [1], "what was seen still is"


def test_everything() -> None:
    text = page(*PASSED, NONFINITE, EXPLODES, everything=True)
    order = [
        text.index(part)
        for part in ("\nSeen\n", "\nPassed (2)\n", "\nDid not apply, or lacked data or time (1)\n", "\nRead: part0.csv")
    ]
    assert order == sorted(order)
    assert "loss_sign: no loss" in text
    assert "--all" not in text


def test_what_clew_could_not_do_is_said() -> None:
    broken = clue("loss_shapes", "unclear", why="its instrument failed: ValueError: no")
    text = page(*PASSED, broken, facts=FACTS._replace(troubles=("could not follow step",), status=3, processes=2))
    assert "  ! loss_shapes: its instrument failed: ValueError: no" in text
    assert "  ! could not follow step" in text
    assert ", 2 processes, exit 3" in text


def test_names_that_python_makes_up_are_left_out() -> None:
    assert place_words(Place("a.py", 3, symbol="f.<locals>.<genexpr>")) == "a.py:3"
    assert place_words(Place("a.py", 3, symbol="Net.forward")) == "a.py:3 in Net.forward"


def test_the_figure_that_decides_stands_in_the_sentence() -> None:
    tests = KNOWLEDGE.tests
    for (name, outcome), words in SENTENCES.items():
        test = tests[name]
        assert test.outcome(outcome) is not None
        assert test.scale is not None
        value = next(
            held for held in (-0.7, 0.01, 0.12, 0.4, 0.95, 2.0, 4.0, 200.0) if on_scale(test.scale, held) == outcome
        )
        says = answered(test, ((test.scale.of, value),), outcome, source="log").says
        assert words.partition("{")[0] in says
        assert "{" not in says
    slow = answered(tests["loss_stuck_from_start"], (("largest_relative_change", 0.128),), source="log")
    text = " ".join(page(*PASSED, slow).split())
    assert "- the training loss moves by only 13 % of its first value (loss_stuck_from_start)." in text
