"""`clew lint` as people and programs use it."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lint_cases import programs

from clew.lint.registry import load
from conftest import Clew

FAULTY = {program.name: program.faulty for program in programs()}
ZERO = """import torch

def fit(model, loader, optimizer):
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward(){comment}
        optimizer.step()
"""
EVAL = "import torch\n\n\ndef predict(model, x):\n    model.eval\n    return model(x)\n"


@pytest.fixture
def lint(clew: Clew, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Clew:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda *words: clew("lint", *words)


def put(**files: str) -> None:
    for name, text in files.items():
        Path(f"{name}.py").write_text(text)


def rules(said: str) -> list[str]:
    return [row["rule"] for row in json.loads(said)]


def test_nothing_found_ends_with_zero(lint: Clew) -> None:
    put(fine="import torch\n")
    said = lint("fine.py")
    assert said.status == 0
    assert said.out.strip() == "Nothing found in 1 file."


def test_a_plain_tensor_that_another_file_differentiates_by_is_meant_so(lint: Clew) -> None:
    model = (
        "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.context = torch.zeros(4, requires_grad=True)\n"
    )
    put(net=model, train="from net import Net\n\nmodel = Net()\n")
    assert "CLW402" in lint(".").out
    put(train="import torch\nfrom net import Net\n\nmodel = Net()\ng = torch.autograd.grad(loss, model.context)\n")
    assert "CLW402" not in lint(".").out


def test_text_shows_the_place_the_line_and_why(lint: Clew) -> None:
    put(train=ZERO.format(comment=""))
    said = lint("train.py")
    assert said.status == 1
    lines = said.out.split("\n")
    assert lines[0] == "train.py:6:9  CLW201 missing-zero-grad  certain"
    assert lines[1] == "  6 |         loss.backward()"
    assert lines[2] == "    |         ^^^^^^^^^^^^^^^"
    assert "why: " in said.out
    assert said.out.strip().split("\n")[-1].startswith("1 finding in 1 file: 1 certain.")


def test_json_is_as_the_contract_has_it(lint: Clew) -> None:
    put(train=EVAL)
    said = lint("train.py", "--format", "json")
    (row,) = json.loads(said.out)
    wanted = "rule name cause path line column end_line end_column message confidence fix".split()
    assert set(wanted) <= set(row)
    assert row["rule"] == "CLW215"
    assert (row["line"], row["column"], row["end_line"], row["end_column"]) == (5, 5, 5, 15)
    assert row["cause"] == "train.train_mode_in_eval"
    assert row["fix"] == {
        "message": "call it",
        "safe": True,
        "edits": [{"line": 5, "column": 15, "end_line": 5, "end_column": 15, "text": "()"}],
    }


def test_an_empty_result_is_valid_json(lint: Clew) -> None:
    put(fine="import torch\n")
    assert json.loads(lint("fine.py", "--format", "json").out) == []


def test_sarif_and_github(lint: Clew) -> None:
    put(train=EVAL)
    table = json.loads(lint("train.py", "--format", "sarif").out)
    run = table["runs"][0]
    assert table["version"] == "2.1.0"
    assert run["results"][0]["ruleId"] == run["tool"]["driver"]["rules"][0]["id"] == "CLW215"
    assert run["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] == 5
    assert run["results"][0]["fixes"]
    said = lint("train.py", "--format", "github").out
    assert said.startswith("::error file=train.py,line=5,endLine=5,col=5,endColumn=15,title=CLW215 method-not-called::")


def test_fix_changes_the_file_and_diff_does_not(lint: Clew) -> None:
    put(train=EVAL)
    said = lint("train.py", "--diff")
    assert said.status == 1
    assert "-    model.eval\n+    model.eval()" in said.out
    assert Path("train.py").read_text() == EVAL
    said = lint("train.py", "--fix")
    assert said.status == 0
    assert "1 fixed." in said.out
    assert Path("train.py").read_text() == EVAL.replace("model.eval\n", "model.eval()\n")
    assert lint("train.py", "--diff").status == 0


def test_unsafe_fixes_must_be_asked_for(lint: Clew) -> None:
    text = "import torch.nn as nn\n\nact = nn.Softmax()\n"
    put(train=text)
    assert lint("train.py", "--fix").status == 1
    assert Path("train.py").read_text() == text
    assert lint("train.py", "--fix", "--unsafe-fixes").status == 0
    assert Path("train.py").read_text() == text.replace("Softmax()", "Softmax(dim=-1)")
    assert lint("train.py", "--unsafe-fixes").status == 2


@pytest.mark.parametrize("name", sorted(FAULTY))
def test_fixes_leave_a_program_that_parses_and_lose_no_finding_silently(lint: Clew, name: str) -> None:
    for file, text in FAULTY[name].items():
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(text)
    before = rules(lint(".", "--format", "json", "--no-cache").out)
    after = rules(lint(".", "--format", "json", "--fix", "--unsafe-fixes").out)
    assert len(after) <= len(before)
    for file in FAULTY[name]:
        compile(Path(file).read_text(), file, "exec")
    assert lint(".", "--diff", "--unsafe-fixes").out == ""


@pytest.mark.parametrize(
    "comment",
    [
        "  # clew: ignore[CLW201] gradients are summed on purpose",
        "  # clew: ignore",
        "  # clew: ignore[missing-zero-grad]",
        "  # noqa",
        "  # noqa: CLW201",
    ],
)
def test_comments_switch_rules_off(lint: Clew, comment: str) -> None:
    put(train=ZERO.format(comment=comment))
    assert lint("train.py").status == 0


def test_a_comment_above_and_for_the_whole_file(lint: Clew) -> None:
    put(
        above=ZERO.format(comment="").replace("        loss.back", "        # clew: ignore[CLW201]\n        loss.back"),
        whole="# clew: ignore-file[CLW201]\n" + ZERO.format(comment=""),
    )
    assert lint("above.py", "whole.py").status == 0


def test_comments_that_do_nothing_are_reported(lint: Clew) -> None:
    put(train="import torch\n\nx = torch.ones(3)  # clew: ignore[CLW101]\ntext = '# clew: ignore'\n")
    said = lint("train.py", "--format", "json")
    (row,) = json.loads(said.out)
    assert (row["rule"], row["name"], row["line"]) == ("CLW001", "unused-suppression", 3)
    assert lint("train.py", "--ignore", "CLW001").status == 0


def test_another_code_switches_nothing_off(lint: Clew) -> None:
    put(train=ZERO.format(comment="  # clew: ignore[CLW101]"))
    assert rules(lint("train.py", "--format", "json").out) == ["CLW001", "CLW201"] or rules(
        lint("train.py", "--format", "json").out
    ) == ["CLW201", "CLW001"]


def test_select_ignore_confidence_exclude(lint: Clew) -> None:
    put(a=ZERO.format(comment=""), b=EVAL)
    assert rules(lint(".", "--format", "json", "--select", "CLW215").out) == ["CLW215"]
    assert rules(lint(".", "--format", "json", "--ignore", "CLW20,method-not-called").out) == []
    assert rules(lint(".", "--format", "json", "--exclude", "a.py").out) == ["CLW215"]
    put(c="import torch.nn as nn\nact = nn.Softmax()\n")
    assert rules(lint("c.py", "--format", "json", "--confidence", "likely").out) == []


def test_settings_of_the_project(lint: Clew) -> None:
    Path("sub").mkdir()
    Path("sub/a.py").write_text(ZERO.format(comment=""))
    put(b=EVAL)
    Path("pyproject.toml").write_text('[tool.clew.lint.per-file-ignores]\n"sub/*.py" = ["CLW201"]\n')
    assert rules(lint(".", "--format", "json").out) == ["CLW215"]
    Path("pyproject.toml").write_text('[tool.clew.lint]\nignore = ["CLW2"]\n')
    assert lint(".").status == 0
    Path("pyproject.toml").write_text('[tool.clew.lint]\nexclude = ["sub"]\n')
    assert rules(lint(".", "--format", "json").out) == ["CLW215"]
    Path("pyproject.toml").write_text('[tool.clew.lint]\nignored = ["CLW2"]\n')
    said = lint(".")
    assert said.status == 2
    assert "has no setting 'ignored'; did you mean ignore" in said.err


def test_a_baseline_forgives_what_was_there(lint: Clew) -> None:
    put(train=ZERO.format(comment=""))
    assert lint("train.py", "--write-baseline", "known.json").status == 0
    assert lint("train.py", "--baseline", "known.json").status == 0
    put(train="import os\n" + ZERO.format(comment="") + "\n\ndef predict(model):\n    model.eval\n")
    assert rules(lint("train.py", "--baseline", "known.json", "--format", "json").out) == ["CLW215"]
    assert lint("train.py", "--baseline", "missing.json").status == 2
    assert lint("train.py", "--baseline", "train.py").status == 2


def test_standard_input(lint: Clew, monkeypatch: pytest.MonkeyPatch) -> None:
    given = io.TextIOWrapper(io.BytesIO(EVAL.encode()))
    monkeypatch.setattr("sys.stdin", given)
    said = lint("-", "--format", "json", "--stdin-filename", "shown.py")
    assert [row["path"] for row in json.loads(said.out)] == ["shown.py"]


def notebook(*cells: str) -> str:
    held = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    held.insert(1, {"cell_type": "markdown", "source": ["model.eval"]})
    return json.dumps({"cells": held, "nbformat": 4})


def test_notebooks(lint: Clew) -> None:
    text = notebook("import torch\n%matplotlib inline\n!pip install x", "model = torch.nn.Linear(2, 2)\nmodel.eval\n")
    Path("a.ipynb").write_text(text)
    said = lint("a.ipynb", "--format", "json")
    (row,) = json.loads(said.out)
    assert (row["cell"], row["line"]) == (3, 2)
    assert "a.ipynb:cell 3:2:1" in lint("a.ipynb").out
    assert "model.eval" in lint("a.ipynb").out
    lint("a.ipynb", "--fix")
    assert Path("a.ipynb").read_text() == text
    Path("b.ipynb").write_text(text.replace("model.eval\\n", "model.eval  # clew: ignore\\n"))
    assert lint("b.ipynb").status == 0


def test_a_message_counts_lines_as_the_notebook_does(lint: Clew) -> None:
    split = "from sklearn.model_selection import train_test_split\n"
    smote = "X_all, y_all = SMOTE().fit_resample(X, y)\nX_train, X_test = train_test_split(X_all)\n"
    Path("a.ipynb").write_text(notebook(f"{split}from imblearn.over_sampling import SMOTE\n", smote))
    (row,) = json.loads(lint("a.ipynb", "--format", "json").out)
    assert "line 2 of cell 3" in row["message"]


def test_the_cache_is_used_and_notices_changes(lint: Clew, monkeypatch: pytest.MonkeyPatch) -> None:
    for file, text in FAULTY["softmax_other_file"].items():
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(text)
    first = lint(".", "--format", "json").out
    assert rules(first) == ["CLW101"]
    with monkeypatch.context() as patched:
        patched.setattr("clew.lint.run.look", no_look)
        assert lint(".", "--format", "json").out == first
    model = Path("models/resnet.py")
    model.write_text(model.read_text().replace("nn.LogSoftmax(dim=-1),", ""))
    # Another file is looked at in between, and what was found is kept again: the first answer must not come back.
    put(other="import torch\n")
    lint("other.py")
    assert rules(lint(".", "--format", "json").out) == []


@pytest.mark.parametrize("part", ["read", "files", "made_by", ""])
def test_a_cache_that_lacks_something_is_no_error(lint: Clew, tmp_path: Path, part: str) -> None:
    put(a=EVAL)
    first = lint(".", "--format", "json").out
    (kept,) = (tmp_path / "cache").rglob("*.json")
    table = json.loads(kept.read_text())
    kept.write_text(json.dumps({name: held for name, held in table.items() if name != part} if part else [1]))
    assert lint(".", "--format", "json").out == first


def no_look(*_: Any) -> Any:
    raise AssertionError("the file was looked at again")


def test_several_processes_find_the_same(lint: Clew, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        put(**{f"m{number}": ZERO.format(comment="") if number % 3 == 0 else EVAL})
    alone = lint(".", "--format", "json", "--no-cache", "--jobs", "1").out
    monkeypatch.setattr("clew.lint.run.FEW", 2)
    assert lint(".", "--format", "json", "--no-cache", "--jobs", "2").out == alone
    assert len(rules(alone)) == 12


def test_statistics_rules_and_explain(lint: Clew) -> None:
    put(a=EVAL, b=EVAL)
    assert lint(".", "--statistics").out.split("\n")[0] == "     2  CLW215  method-not-called"
    assert len(lint("--rules").out.strip().split("\n")) == len(load())
    said = lint("--explain", "double-softmax")
    assert said.status == 0
    assert "Silent when" in said.out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["nowhere.py"], "there is no file or folder nowhere.py"),
        ([".", "--select", "CLW9"], "there is no rule 'CLW9'"),
        ([".", "--format", "xml"], "there is no format 'xml'"),
        ([".", "--confidence", "sure"], "a confidence is certain, likely, look, not 'sure'"),
        ([".", "--jobs", "-1"], "--jobs takes a number of processes"),
        (["--explain", "CLW000"], "there is no rule 'CLW000'"),
    ],
)
def test_bad_input_gets_one_sentence(lint: Clew, words: list[str], part: str) -> None:
    said = lint(*words)
    assert said.status == 2
    assert part in said.err
    assert said.err.count("\n") == 1


def test_starting_imports_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(EVAL)
    code = "import sys; from clew.cli import main; main(['lint', 'a.py']); print(*sys.modules, file=sys.stderr)"
    held = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=held, capture_output=True, text=True, check=True)
    heavy = {"torch", "numpy", "pandas", "jinja2", "dataclasses", "inspect", "asyncio", "multiprocessing", "email"}
    assert not heavy & set(done.stderr.split())


def test_in_short_each_finding_has_a_line_with_its_fix_and_certain_ones_come_first(lint: Clew) -> None:
    look = "import torch\nfrom torch import nn\n\nhead = nn.Linear(4, 2)\np = torch.softmax(head(x), dim=0)\n"
    put(a=look, z=EVAL, **{f"many{n:02}": EVAL for n in range(20)})
    rows = lint(".", "--brief").out.rstrip("\n").split("\n")
    assert len(rows) == 15
    assert rows[0] == "many00.py:5:5 CLW215 method-not-called (certain); fix: add the parentheses."
    assert "CLW106" not in "".join(rows[:14])
    assert rows[-1].startswith("8 more without --brief. 22 findings in 22 files: 21 certain, 1 look.")
    assert "CLW106" in lint("a.py", "z.py", "--brief").out.split("\n")[1]
