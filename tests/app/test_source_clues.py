"""What lint finds becomes evidence: it counts, it gives way to what was seen, and it never costs the run's report."""

import json
import re
from pathlib import Path

import pytest
from launching import clew_run, script

from clew.app.source_clues import loaded_files, source_clues
from clew.case.choose import choose
from clew.case.clues import answered
from clew.case.verdict import judge
from clew.case.weigh import Subject, weigh
from clew.knowledge.base import load
from clew.lint import rules as rule_files
from clew.lint.registry import load as rules
from clew.records.clue import Clue

ROUTINE = Subject(setting="routine")
LOOP = """
import torch
from torch import nn


def fit(model, loader):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        {first}
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward({keep})
        opt.step()
"""


def written(folder: Path, first: str = "opt.zero_grad()", keep: str = "") -> str:
    path = folder / "train.py"
    path.write_text(LOOP.format(first=first, keep=keep))
    return str(path)


def clues_of(path: str) -> dict[str, Clue]:
    clues, trouble = source_clues(load(), [path])
    assert trouble == ""
    return {clue.test: clue for clue in clues}


def saw(test: str, outcome: str) -> Clue:
    return answered(load().tests[test], (), outcome, source="observe")


PASSED = [
    saw("event_order", "usual"),
    saw("mode_in_training", "train"),
    saw("batch_order", "shuffled"),
    saw("optimizer_coverage", "complete"),
    saw("graph_growth", "released"),
]


def test_every_cause_that_a_rule_can_name_has_its_test() -> None:
    causes = load().causes
    folder = Path(rule_files.__file__).parent
    words = {word for path in folder.glob("clw*.py") for word in re.findall(r'"([a-z]+\.[a-z_]+)"', path.read_text())}
    named = {rule.cause for rule in rules().values()} | (words & set(causes))
    tests = {test.rows[0].causes[0]: test.id for test in load().tests.values() if test.by == "lint"}
    assert set(tests) == named
    assert all(test == f"source_{cause.replace('.', '_')}" for cause, test in tests.items())


def test_a_finding_is_a_clue_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    clue = clues_of(written(tmp_path, "pass"))["source_train_missing_zero_grad"]
    assert (clue.outcome, clue.source) == ("certain", "lint")
    assert (clue.where[0].file, clue.where[0].line) == ("train.py", 11)
    assert "CLW201" in clue.says
    assert clue.reproduce == "clew lint --select CLW201 train.py"


def test_what_was_looked_for_and_not_found_is_a_clue_too(tmp_path: Path) -> None:
    clues = clues_of(written(tmp_path))
    assert clues["source_train_missing_zero_grad"].outcome == "absent"
    assert "source_env_stale_cache" not in clues  # no rule about jax had anything to look at


def test_a_fault_in_the_source_is_a_finding(tmp_path: Path) -> None:
    clue = clues_of(written(tmp_path, "pass"))["source_train_missing_zero_grad"]
    weighing = weigh(load(), [clue, *PASSED[1:]], ROUTINE)
    assert [finding.cause for finding in weighing.findings] == ["train.missing_zero_grad"]
    assert judge(load(), weighing).word == "fault"


def test_what_the_run_did_outweighs_what_the_source_seems_to_say(tmp_path: Path) -> None:
    clue = clues_of(written(tmp_path, "pass"))["source_train_missing_zero_grad"]
    weighing = weigh(load(), [clue, *PASSED], ROUTINE)
    assert not weighing.findings
    assert weighing.shares[0].cause == "none.healthy"
    assert judge(load(), weighing).word == "suspect"  # but no health above a line that lint is certain of


def test_a_sound_run_with_a_line_worth_a_look_stays_sound(tmp_path: Path) -> None:
    clues = clues_of(written(tmp_path, keep="retain_graph=True"))
    assert clues["source_train_graph_retained"].outcome == "look"
    passed = [*PASSED, saw("learning_curve", "both_low"), saw("other_rate", "no_better")]
    for seen in (passed, [*passed[:4], *passed[5:]]):
        weighing = weigh(load(), [*clues.values(), *seen], ROUTINE)
        assert judge(load(), weighing).word == "healthy"
        assert weighing.credence("train.graph_retained") < 0.2


def test_settings_that_cannot_be_read_cost_the_clues_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.clew.lint]\nselect = 3\n")
    clues, trouble = source_clues(load(), [written(tmp_path)])
    assert clues == []
    assert "select must be a list of words" in trouble


def test_a_file_that_cannot_be_parsed_is_named(tmp_path: Path) -> None:
    path = tmp_path / "old.py"
    path.write_text("import torch\nprint 'x'\n")
    _, trouble = source_clues(load(), [str(path), written(tmp_path)])
    assert "old.py" in trouble


def test_one_look_through_the_source_stands_for_all_questions_to_it() -> None:
    weighing = weigh(load(), [], Subject())
    chosen = choose(load(), weighing, [], Subject(), most=400)
    assert sum(load().tests[choice.test].by == "lint" for choice in chosen) == 1


def test_modules_of_the_working_folder_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_for_this_test.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("made_for_this_test")
    assert loaded_files() == [str(tmp_path / "made_for_this_test.py")]


LIBRARY = """import torch
from torch import nn
from torch.nn import functional as F


class Used(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def loss(self, x, y):
        return F.cross_entropy(self.layer(x), y)


class Other(Used):
    def loss(self, x, y):
        return F.cross_entropy(torch.softmax(self.layer(x), 1), y)
"""
SCRIPT = """import torch
import library

torch.manual_seed(0)
model = library.{kind}()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    x = torch.randn(32, 4)
    optimizer.zero_grad()
    model.loss(x, x[:, :3].argmax(1)).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("kind", "outcome"), [("Used", "absent"), ("Other", "certain")])
def test_what_no_training_step_runs_is_not_the_fault_of_a_run(tmp_path: Path, kind: str, outcome: str) -> None:
    script(tmp_path, LIBRARY, "library.py")
    script(tmp_path, SCRIPT.format(kind=kind))
    clew_run(tmp_path, "--no-exams", "--json", "out.json", "train.py")
    clues = json.loads((tmp_path / "out.json").read_text())["clues"]
    assert [clue["outcome"] for clue in clues if clue["test"] == "source_loss_double_softmax"] == [outcome]


SCALED = """import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch import nn

torch.manual_seed(0)
X = np.random.default_rng(0).normal(size=(300, 4)) * 3 + 1
y = torch.tensor((X[:, 0] > 1).astype(np.int64))
X_train, X_val = X[:240], X[240:]
scaler = StandardScaler()


def prepared(X_train, X_val):
    return scaler.fit_transform(X_train), scaler.{how}(X_val)


def spare(X_val):
    return scaler.fit_transform(X_val)


X_train, X_val = prepared(X_train, X_val)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
data = torch.utils.data.TensorDataset(torch.tensor(X_train, dtype=torch.float32), y[:240])
for epoch in range(8):
    for batch, labels in torch.utils.data.DataLoader(data, batch_size=24, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), labels)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = model(torch.tensor(X_val, dtype=torch.float32)).argmax(1) == y[240:]
    print(f"epoch {{epoch}} loss {{loss.item():.3f}} val_acc {{right.float().mean():.3f}}")
"""


@pytest.mark.parametrize(("how", "outcome"), [("transform", "absent"), ("fit_transform", "certain")])
def test_no_health_above_a_line_that_lint_is_certain_of(tmp_path: Path, how: str, outcome: str) -> None:
    script(tmp_path, SCALED.format(how=how))
    said = clew_run(tmp_path, "--no-exams", "--json", "out.json", "train.py")
    table = json.loads((tmp_path / "out.json").read_text())
    assert [c["outcome"] for c in table["clues"] if c["test"] == "source_data_leak_split"] == [outcome]
    report = said.out[said.out.index("train.py: 80 steps") :]
    if outcome == "absent":
        assert "CLW501" not in report, "what nothing calls is not executed"
    else:
        assert table["verdict"] in ("fault", "suspect")
        assert "train.py:14" in report.split("\n\n")[1], "it comes first on the page"
        assert "CLW501" in report.split("\n\n")[1]


JUDGED = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(0)
x = torch.randn(400, 6)
train, val = random_split(TensorDataset(x, (x[:, 0] + x[:, 1] > 0).long()), [320, 80])
train_loader = DataLoader(train, batch_size=32, shuffle=True)
eval_loader = DataLoader(train, batch_size=80)
model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(8):
    for batch, labels in train_loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), labels)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        right = sum((model(batch).argmax(1) == labels).sum().item() for batch, labels in eval_loader)
    print(f"epoch {epoch} loss {loss.item():.3f} val_acc {right / 320:.3f}")
"""


@pytest.mark.parametrize("end", ["", "raise ValueError('no file')\n"])
def test_no_health_above_a_line_that_lint_calls_likely(tmp_path: Path, end: str) -> None:
    script(tmp_path, JUDGED + end)
    said = clew_run(tmp_path, "--no-exams", "--html", "out.html", "train.py").out
    report = said[said.index("NOTHING FOUND  train.py: 80 steps") :]
    assert "train.py:9: In the source: eval_loader reads train" in " ".join(report.split())
    assert ("unusual for a sound run" in report) == (not end)
    assert ("ValueError ended the script" in report) == bool(end)
    page = (tmp_path / "out.html").read_text()
    assert page.index("NOTHING FOUND") < page.index("CLW305") < page.index("<h2>Possible causes")
