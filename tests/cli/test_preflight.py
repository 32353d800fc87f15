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
    assert "imports: not_a_module_anywhere is not installed (train.py:3)" in text
    assert "apex_of_nowhere" not in text
    assert "train.py:17 CLW101" in text
    assert "train.py:18" in text
    assert "modle" in text
    assert "data: train.csv (2 rows)" in text
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
    again = "--case preflight-of-train-py --surprise very|somewhat|not"
    assert again in " ".join(said.out.split())
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
