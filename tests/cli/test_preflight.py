from pathlib import Path

from conftest import Clew


def test_it_proposes_the_likely_failures_of_the_domain(clew: Clew) -> None:
    said = clew("preflight", "--domain", "rl")
    assert said.status == 0
    assert "rl." in said.out
    assert "check with" in said.out
    assert "--surprise" in said.out
    assert list(Path().iterdir()) == [], "nothing is recorded until there is an answer"


def test_the_report_compares_fears_with_what_happened(clew: Clew) -> None:
    Path("train.py").write_text("x = 1\n")
    said = clew(
        *("preflight", "train.py", "--domain", "vision", "--surprise", "somewhat"),
        *("--worry", "loss.double_softmax", "--worry", "data.leak_split: compare the file names"),
        *("--worry", "the disk fills up: df -h"),
    )
    assert said.status == 0, said.err
    assert "df -h" in said.out
    clew("case", "clue", "loss_input_kind", "probabilities_into_logit_loss")
    out = clew("case", "show").out
    assert "Foreseen?" in out
    assert "loss.double_softmax happened and was on the list" in out
    assert "data.leak_split was on the list" in out
    clew("case", "close", "--cause", "train.missing_zero_grad", "--evidence", "mended", "--yes")
    out = " ".join(clew("case", "show").out.split())
    assert "train.missing_zero_grad happened and was not on the list" in out


def test_bad_answers(clew: Clew) -> None:
    assert "name what could go wrong" in clew("preflight", "--surprise", "not").err
    assert "is no known cause" in clew("preflight", "--surprise", "not", "--worry", "data.leek_split").err
    assert "did you mean data.leak_split" in clew("preflight", "--surprise", "not", "--worry", "data.leek_split").err
    assert "cannot read" in clew("preflight", "gone.py", "--surprise", "very").err
    assert clew("preflight", "--domain", "quantum").status == 2
    assert not Path(".clew/cases").exists() or not list(Path(".clew/cases").iterdir())


def test_no_surprise_needs_no_worry(clew: Clew) -> None:
    assert clew("preflight", "--surprise", "very").status == 0
