"""`clew exam` and its twin in Python: what it is given, what it prints, what it writes, how it ends."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tinyhtml5
import torch
import torch.nn.functional as F
from network_subjects import classes, perceptron
from taping import taping
from torch import nn

import clew as package
from clew.app.times import seconds_of
from clew.archive import runs
from clew.archive.model import Run
from clew.errors import ClewError
from clew.exams import captured as capturing
from clew.exams.exam import all_exams
from clew.exams.subject import Subject
from clew.knowledge.base import load
from clew.records.exact import pretty
from conftest import Clew

torch.set_num_threads(1)

MODULE = """
import torch
import torch.nn.functional as F
from torch import nn

from clew import Subject


def data():
    source = torch.Generator().manual_seed(0)
    weights = torch.randn(20, 5, generator=source)
    inputs = [torch.randn(32, 20, generator=source) for _ in range(4)]
    return [(values, (values @ weights).argmax(1)) for values in inputs]


class Net(nn.Module):
    def __init__(self, mixes=False):
        super().__init__()
        self.first, self.last, self.mixes = nn.Linear(20, 32), nn.Linear(32, 5), mixes

    def forward(self, x):
        hidden = F.relu(self.first(x))
        return self.last(hidden.t().reshape(hidden.shape) if self.mixes else hidden)


def made(**options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Subject(Net(**options), F.cross_entropy, data())


class Impatient(Net):
    calls = 0

    def forward(self, x):
        Impatient.calls += 1
        if Impatient.calls > 12:
            raise KeyboardInterrupt
        return super().forward(x)


def sound():
    return made()


def mixes():
    return made(mixes=True)


def impatient():
    with torch.random.fork_rng():
        return Subject(Impatient(), F.cross_entropy, data())


def takes(path, size=3):
    return path


def fails():
    raise ValueError("the data is not there")


def ends():
    raise SystemExit(3)


def wrong():
    return Subject(Net(), F.cross_entropy, [])


def nothing():
    pass


class Holder:
    subject = made()


subject = made()
model = Net()
number = 3
"""
CHEAP = ("first_nonfinite", "gradient_by_depth", "batch_independence", "data_sanity")


@pytest.fixture
def folder(clew: Clew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module to examine; what was imported from it is forgotten afterwards."""
    del clew
    monkeypatch.setattr(sys, "path", [item for item in sys.path if item not in ("", os.getcwd())])
    (tmp_path / "given.py").write_text(MODULE)
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


# --- bad input: one sentence each

BAD = {
    "": "say what to examine: clew exam MODULE:SUBJECT, or clew exam RUN for a run that was kept.",
    "absent:subject": "there is no module 'absent' in {here} or among what is installed.",
    "absent.part:subject": "there is no module 'absent.part' in {here} or among what is installed.",
    "given:subjet": "the module given has no 'subjet'; did you mean subject?",
    "given:zzzzzz": "the module given has no 'zzzzzz'.",
    "given:model": "given:model is a model; give it a loss and batches: clew.Subject(model, loss, batches).",
    "given:number": "given:number is of type int, and neither a clew.Subject nor a function that returns one.",
    "given:Holder": "given:Holder is the class Holder, and neither a clew.Subject nor a function that returns one.",
    "given:nothing": "given:nothing is of type NoneType, and neither a clew.Subject nor a function that returns one.",
    "given:takes": "given:takes takes arguments (path); name a function that takes none.",
    "given:fails": "given:fails failed at given.py:{fails}: ValueError: the data is not there.",
    "given:ends": "given:ends failed at given.py:{ends}: SystemExit: 3.",
    "given:wrong": "given:wrong: a subject needs at least one batch: "
    "Subject(model, loss, batches=[(inputs, target), …]).",
    ":subject": "':subject' is not of the form MODULE:SUBJECT, such as debug:subject.",
    "given:": "'given:' is not of the form MODULE:SUBJECT, such as debug:subject.",
    "given.py:subject": "given.py is a file; name the module as import does: clew exam given:subject.",
    "given": "given names a file and not what to examine in it; write MODULE:SUBJECT, such as given:subject.",
    "given.py": "given.py names a file and not what to examine in it; write MODULE:SUBJECT, such as given:subject.",
    "elsewhere": "there is no run 'elsewhere'; `clew runs` shows what there is. "
    "A subject in a module is named MODULE:SUBJECT.",
}


@pytest.mark.parametrize("target", BAD)
def test_bad_targets_get_one_sentence(folder: Path, clew: Clew, target: str) -> None:
    lines = {f"{name}": MODULE[: MODULE.index(f"def {name}")].count("\n") + 2 for name in ("fails", "ends")}
    said = clew("exam", target)
    assert said.status == 2
    assert said.err == f"clew: {BAD[target].format(here=folder, **lines)}\n"
    assert said.out == ""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--budget", "soon"], "a budget is a time such as 60s, 2m or 0.5h, not 'soon'."),
        (["--budget", "0s"], "a budget is a time such as 60s, 2m or 0.5h, not '0s'."),
        (["--budget", "-3"], "a budget is a time such as 60s, 2m or 0.5h, not '-3'."),
        (["--only", "overfit_on_batch"], "there is no exam 'overfit_on_batch'; did you mean overfit_one_batch?"),
        (["--domain", "cooking"], "there is no domain 'cooking'."),
    ],
)
def test_bad_options_get_one_sentence(folder: Path, clew: Clew, words: list[str], sentence: str) -> None:
    del folder
    said = clew("exam", "given:subject", *words)
    assert said.status == 2
    assert said.out == ""
    assert said.err.startswith(f"clew: {sentence}")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("raise ValueError('no disk\\nmore')", "importing broken failed at broken.py:1: ValueError: no disk."),
        ("import sys; sys.exit(4)", "importing broken ended the program (status 4) at broken.py:1; guard the script"),
        ("import not_there_at_all", "importing broken failed at broken.py:1: ModuleNotFoundError: No module named"),
        ("def (", "importing broken failed at broken.py:1: SyntaxError: "),
    ],
)
def test_a_module_that_cannot_be_imported(folder: Path, clew: Clew, text: str, sentence: str) -> None:
    (folder / "broken.py").write_text(text + "\n")
    said = clew("exam", "broken:subject")
    assert said.status == 2
    assert said.err.startswith(f"clew: {sentence}")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "value"), [("60s", 60.0), ("2m", 120.0), ("0.5h", 1800.0), ("45", 45.0), ("1.5", 1.5)]
)
def test_budgets_as_people_type_them(text: str, value: float) -> None:
    assert seconds_of(text) == value


# --- what it shows


def test_the_list_of_all_exams(folder: Path, clew: Clew) -> None:
    del folder
    said = clew("exam", "--list")
    assert said.status == 0
    assert "overfit_one_batch" in said.out
    assert "Can the model memorise one batch?" in said.out


def test_the_plan_is_shown_and_nothing_is_made(folder: Path, clew: Clew) -> None:
    del folder
    said = clew("exam", "given:sound", "--list")
    assert said.status == 0
    assert "One training step takes" in said.out
    assert "needs validation, which the subject does not have" in " ".join(said.out.split())
    assert "HEALTHY" not in said.out
    assert said.err == ""


def test_a_fault_ends_with_1_and_the_files_say_the_same(folder: Path, clew: Clew) -> None:
    said = clew("exam", "given:mixes", "--only", *CHEAP, "--json", "out.json", "--html", "out.html")
    assert said.status == 1
    assert said.out.index("Planned") < said.out.index("FAULT  given:mixes: 4 exams in")
    assert "module last: examples of one batch influence each other" in said.out
    assert [line.split()[0] for line in said.err.splitlines() if line[2:3] != " "] == list(CHEAP)
    table = json.loads((folder / "out.json").read_text())
    assert (table["schema"], table["command"], table["verdict"]) == ("clew/1", "exam", "fault")
    assert table["causes"][0]["id"] == "arch.batch_mixing"
    assert table["causes"][0]["kind"] == "finding"
    assert {clue["source"] for clue in table["clues"]} == {"exam", "lint"}
    made = [clue for clue in table["clues"] if clue["source"] == "exam"]
    assert made[2]["reproduce"] == "clew exam given:mixes --only batch_independence"
    assert set(table["run"]) == {"id", "script", "argv", "steps", "seconds", "exit"}
    assert [row["exam"] for row in table["exams"]["made"]] == list(CHEAP)
    assert table["exams"]["interrupted"] is False
    page = (folder / "out.html").read_text()
    tinyhtml5.parse(page)
    assert "arch.batch_mixing" in page


def test_a_sound_subject_ends_with_0(folder: Path, clew: Clew) -> None:
    del folder
    for target in ("given:sound", "given:Holder.subject", "given:subject"):
        said = clew("exam", target, "--quiet", "--only", *CHEAP)
        assert said.status == 0
        assert f"NOTHING FOUND  {target}: 4 exams in" in said.out
        assert said.err == ""
        assert "Planned" not in said.out


def test_an_interrupt_keeps_what_was_learned(folder: Path, clew: Clew) -> None:
    said = clew("exam", "given:impatient", "--only", "label_counts", "overfit_one_batch", "--json", "out.json")
    assert said.status == 130
    assert "Interrupted." in said.out
    table = json.loads((folder / "out.json").read_text())
    assert table["exams"]["interrupted"] is True
    assert [row["exam"] for row in table["exams"]["made"]] == ["label_counts"]
    assert table["exams"]["skipped"] == [{"exam": "overfit_one_batch", "why": "interrupted before it ran"}]


def test_asking_for_help_loads_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from clew.cli import main\ntry: main(['exam', '--help'])\nexcept SystemExit: pass\n"
        "print('LOADED', *(name for name in ('torch', 'numpy', 'jinja2', 'inspect') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split() == ["LOADED"]


def test_without_torch_there_is_one_sentence(folder: Path, clew: Clew, monkeypatch: pytest.MonkeyPatch) -> None:
    del folder
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    said = clew("exam", "given:subject")
    assert said.status == 2
    assert said.err == "clew: exams need PyTorch, which is not installed here; pip install 'clew[torch]'.\n"


# --- a run that was kept


def train() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 10))
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for inputs, target in classes():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), target)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


@pytest.fixture
def run(folder: Path) -> Run:
    del folder
    held = runs.begin(["python", "train.py"], ".", "train.py")
    with taping(Path(held.folder)):
        train()
    return held


def test_a_kept_step_is_examined_with_what_watching_showed(run: Run, clew: Clew) -> None:
    seen = {"test": "loss_input_kind", "outcome": "logits", "source": "observe", "reads": ["loss"]}
    known = {"test": "data_sanity", "outcome": "sound", "source": "observe", "reads": ["data"]}
    old = {"test": "a_test_of_old", "outcome": "x", "source": "observe"}
    Path(run.path("report.json")).write_text(pretty({"schema": "clew/1", "clues": [seen, known, old]}))
    plan = clew("exam", "last", "--list").out
    assert "data_sanity: already answered." in " ".join(plan.split())
    said = clew("exam", run.id, "--only", *CHEAP[:3], "--json", "out.json")
    assert said.status == 0, said.out
    table = json.loads(Path("out.json").read_text())
    assert {clue["test"]: clue["source"] for clue in table["clues"]} == {
        "first_nonfinite": "exam",
        "gradient_by_depth": "exam",
        "batch_independence": "exam",
        "loss_input_kind": "observe",
        "data_sanity": "observe",
    }
    assert table["run"]["id"] == run.id
    assert table["clues"][0]["reproduce"] == f"clew exam {run.id} --only first_nonfinite"


def test_a_replay_that_is_not_true_is_said(run: Run, clew: Clew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing.CapturedSubject, "untrue", lambda _: "replaying gives 2, the run had 3")
    said = clew("exam", run.id, "--only", "data_sanity", "gradient_by_depth")
    assert "! Replaying gives 2, the run had 3." in said.out
    assert "gradient_by_depth: calls the model, which cannot be replayed." in " ".join(said.out.split())
    assert "data_sanity" in said.err


def test_a_run_without_a_kept_step(folder: Path, clew: Clew) -> None:
    del folder
    held = runs.begin(["python", "train.py"], ".", "train.py")
    runs.finish(held, 0)
    said = clew("exam", "last")
    assert said.status == 2
    assert said.err.startswith("clew: no training step was kept of the run in")
    assert held.id in said.err


def test_a_capture_that_is_damaged(run: Run, clew: Clew) -> None:
    for path in Path(run.folder).glob("capture-*/*"):
        path.write_bytes(path.read_bytes()[:20])
    said = clew("exam", run.id)
    assert said.status == 2
    assert said.err.count("\n") == 1


# --- in Python


def subject() -> Subject:
    return Subject(perceptron(), nn.CrossEntropyLoss(), classes(), name="<net>")


def test_the_result_reads_as_a_report_and_shows_in_a_notebook() -> None:
    result = package.examine(subject(), budget="30s", only=list(CHEAP))
    assert result.verdict == "undecided"
    assert [clue.test for clue in result.clues] == [
        "first_nonfinite",
        "gradient_by_depth",
        "batch_independence",
        "data_sanity",
    ]
    assert result.causes[0].id == "none.healthy"
    assert result.causes[0].kind == "hypothesis"
    assert not result.interrupted
    assert "NOTHING FOUND  <net>: 4 exams in" in str(result)
    assert repr(result) == str(result)
    shown: Any = result._repr_html_()
    tinyhtml5.parse(shown)
    assert "&lt;net&gt;" in shown
    assert "<style" not in shown
    assert result.to_json()["command"] == "exam"


def test_a_finding_shows_in_a_notebook() -> None:
    held = Subject(perceptron(), lambda output, target: F.cross_entropy(output.detach(), target), classes())
    result = package.examine(held, only=["loss_reaches_parameters"])
    assert result.verdict == "fault"
    assert (result.causes[0].id, result.causes[0].kind) == ("loss.disconnected", "finding")
    assert "loss.disconnected" in result._repr_html_()
    assert result.skipped == {}


def test_one_exam_alone() -> None:
    clue = package.exam("batch_independence", subject())
    assert (clue.test, clue.outcome, clue.source) == ("batch_independence", "independent", "exam")
    with pytest.raises(ClewError, match="did you mean batch_independence"):
        package.exam("batch_independance", subject())


def test_only_subjects_are_examined() -> None:
    with pytest.raises(ClewError, match="something of type Linear was given"):
        package.examine(nn.Linear(2, 2))
    with pytest.raises(ClewError, match="a budget is a time"):
        package.examine(subject(), budget=0)


def test_what_the_package_offers() -> None:
    assert package.Subject is Subject
    assert {"Subject", "exam", "examine"} <= set(dir(package))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing


def test_exams_and_their_tests_have_one_name() -> None:
    assert [exam.name for exam in all_exams().values() if exam.name != exam.test] == []
    assert set(all_exams()) <= set(load().tests)


def test_only_prints_what_was_asked_for(folder: Path, clew: Clew) -> None:
    del folder
    said = clew("exam", "given:sound", "--only", "gradient_by_depth", "data_sanity", "first_nonfinite")
    report = said.out[said.out.index("─" * 20) :]
    assert report.count("gradient_by_depth: ") == report.count("data_sanity: ") == 1
    assert "source_" not in report
    assert len(report.splitlines()) < 25


def test_closing_with_a_run_makes_the_decisive_exam_again(run: Run, clew: Clew) -> None:
    table = {"schema": "clew/1", "clues": [], "run": {"files": []}}
    Path(run.path("report.json")).write_text(pretty(table))
    clew("case", "new", "it does not learn")
    clew("case", "clue", "first_nonfinite", "in_log")
    close = ("case", "close", "--cause", "num.log_of_zero", "--run", "last")
    said = clew(*close)
    assert said.status == 0, said.err
    assert f"first_nonfinite: in_log → none in run {run.id}" in " ".join(said.out.split())
    clew("case", "reopen", "--reason", "it is back")
    clew("case", "clue", "gradient_by_depth", "even")
    said = clew("case", "close", "--cause", "unknown", "--clue", "5", "--run", "last")
    assert said.status == 2
    assert "still reproduces: gradient_by_depth is even" in said.err


def test_exams_give_their_clues_to_a_case(run: Run, clew: Clew) -> None:
    clew("case", "new", "it does not learn")
    said = clew("exam", run.id, "--only", "first_nonfinite", "--case", "current")
    assert "1 clue added to case it-does-not-learn" in " ".join(said.out.split())
    assert clew("exam", run.id, "--only", "first_nonfinite", "--case", "gone").status == 2
