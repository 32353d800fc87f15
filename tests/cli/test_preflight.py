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
    assert "there is no script gone.py" in clew("preflight", "gone.py", "--surprise", "very").err
    assert clew("preflight", "--domain", "quantum").status == 2
    assert not Path(".clew/cases").exists() or not list(Path(".clew/cases").iterdir())


def test_no_surprise_needs_no_worry(clew: Clew) -> None:
    assert clew("preflight", "--surprise", "very").status == 0


SCRIPT = """
import argparse
import torch, helper, not_a_module_anywhere
try:
    import apex_of_nowhere
except ImportError:
    pass
from torch import nn
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--data", required=True)
parser.add_argument("--out", default="result.csv")
rows = open("train.csv").read() + open("gone.csv").read()
open("written.csv", "w").write(rows)
torch.save(rows, "model.pt")
model = nn.Sequential(nn.Linear(8, 2), nn.Softmax(dim=1))
loss = nn.functional.cross_entropy(model(torch.rand(4, 8)), torch.zeros(4).long())
print(modle)
"""


def test_the_script_is_read_and_not_run(clew: Clew) -> None:
    Path("train.py").write_text(SCRIPT)
    Path("helper.py").write_text("weights = 'start.npy'\n")
    Path("train.csv").write_text("a,b\n1,2\n3,4\n")
    said = clew("preflight", "train.py")
    text = " ".join(said.out.split())
    assert said.status == 1, "a module is missing and lint is certain"
    assert "arguments: --lr 0.001, --data (required), --out 'result.csv'" in text
    assert text.startswith("train.py stops the run: train.py:3: not_a_module_anywhere is not installed")
    assert text.index("modle") < text.index("train.py:17 CLW101") < text.index("arguments:") < text.index("check with")
    assert "apex_of_nowhere" not in text
    assert "train.py:17 CLW101" in text
    assert "train.py:18" in text
    assert "modle" in text
    assert "data files: train.csv (2 rows)" in text
    assert "gone.csv is not there (train.py:13)" in text
    assert "start.npy is not there (helper.py:1)" in text
    assert not any(name in text for name in ("written.csv", "model.pt", "result.csv is"))
    assert not Path(".clew").exists()


def test_what_is_no_script_is_refused(clew: Clew) -> None:
    Path("train.py").write_text("def (:\n")
    said = clew("preflight", "train.py")
    assert said.status == 2
    assert "train.py:1 cannot be read as Python" in said.err
    assert "did you mean train.py" in clew("preflight", "trian.py").err


def test_the_pre_mortem_goes_on_until_a_failure_would_surprise(clew: Clew) -> None:
    Path("train.py").write_text("x = 1\n")
    first = clew("preflight", "train.py")
    assert first.status == 0
    assert "How surprised would you be if this run failed?" in first.out
    said = clew("preflight", "train.py", "--surprise", "not", "--worry", "1")
    assert "likeliest reason that is not listed" in said.out
    assert "--case preflight-of-train-py --surprise very\n" in said.out
    assert "|" not in said.out
    said = clew("preflight", "--case", "current", "--surprise", "somewhat", "--worry", "the disk fills up: df -h")
    assert said.status == 0, said.err
    assert "df -h" in said.out
    said = clew("preflight", "--case", "current", "--surprise", "very")
    assert "df -h" in said.out
    assert "Then: clew run --case preflight-of-train-py train.py" in " ".join(said.out.split())
    listed = clew("preflight", "--case", "current").out
    top = next(line.split()[1] for line in first.out.splitlines() if line.startswith("  1  "))
    assert f"1  {top}" not in listed


def test_a_check_without_an_instrument_has_no_seconds(clew: Clew) -> None:
    Path("train.py").write_text("import torch\n")
    text = " ".join(clew("preflight", "train.py", "--domain", "rl").out.split())
    assert "check with transition_alignment, by hand: Run an environment" in text
    assert "check with observation_scale, 1 s: Print mean" in text


def test_risks_are_those_that_fit_the_script(clew: Clew) -> None:
    Path("train.py").write_text("import torch\nw = torch.ones(2, requires_grad=True)\nw.pow(2).mean().backward()\n")
    text = clew("preflight", "train.py").out
    assert "data.not_normalized" in text
    assert not any(name in text for name in ("double_softmax", "labels_", "class_imbalance", "leak_split"))
    Path("agent.py").write_text("import gymnasium\nenv = gymnasium.make('CartPole-v1')\n")
    assert "in the domain 'rl'" in clew("preflight", "agent.py").out


def test_in_short_each_problem_has_a_line_and_crashes_come_first(clew: Clew) -> None:
    Path("train.py").write_text(SCRIPT)
    rows = clew("preflight", "train.py", "--brief").out.rstrip("\n").split("\n")
    assert len(rows) <= 15
    assert rows[0] == "stops the run: train.py:3: helper is not installed"
    kinds = ["stops" if row.startswith("stops") else "risk" if row.startswith("risk") else "found" for row in rows]
    assert kinds == sorted(kinds, key=["stops", "found", "risk"].index)
    assert any("train.py:17:8 CLW101" in row and "fix: return the raw scores" in row for row in rows)
