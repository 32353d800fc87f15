"""The list of public scripts, and running one that is there."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clew.casebook.wild import Outcome, Script, checkout, chosen, command_of, run_all, run_one, scripts, table, to_json
from clew.errors import ClewError
from clew.knowledge.base import load
from conftest import Clew

ALL = scripts()
ONE = Script(
    "toy", "someone/toy", "c" * 40, "sub", ("train.py", "{data}/x"), 9, "general", (".",), (), "", said="healthy"
)
LIST = """
[repositories]
"someone/toy" = "cccccccccccccccccccccccccccccccccccccccc"

[[script]]
id = "toy-short"
repository = "someone/toy"
folder = "sub"
command = ["train.py"]
edit = [["epochs = 90", "epochs = 2"], ["data/all", "{data}/few"]]
judged = "fault: never steps"
"""


def test_the_list_is_long_and_holds_names_only() -> None:
    assert len(ALL) >= 60
    assert len({script.id for script in ALL}) == len(ALL)
    known = load().causes
    for script in ALL:
        assert len(script.commit) == 40
        assert script.said in ("healthy", "fault", "suspect", "undecided")
        assert set(script.named) <= set(known)
        assert script.needs or not any("{data}" in word for word in script.command)
        assert not any(word.startswith("/") for word in (*script.command, *script.path, script.folder))


def test_choosing_by_script_and_repository() -> None:
    assert [script.id for script in chosen(ALL, ["examples-mnist"])] == ["examples-mnist"]
    assert {script.repository for script in chosen(ALL, ["karpathy/makemore"])} == {"karpathy/makemore"}
    with pytest.raises(ClewError, match="did you mean examples-mnist"):
        chosen(ALL, ["examples-mnis"])


@pytest.mark.parametrize("place", ["someone+toy", "someone/toy", "toy"])
def test_a_repository_may_lie_under_three_names(tmp_path: Path, place: str) -> None:
    assert checkout(ONE, str(tmp_path)) is None
    (tmp_path / place).mkdir(parents=True)
    assert checkout(ONE, str(tmp_path)) == str(tmp_path / place)


def test_the_command_names_the_data_beside_the_repositories() -> None:
    words = command_of(ONE, "/books", "a.json", 0)
    assert words[-2:] == ["train.py", "/books/data/x"]
    assert "--no-exams" in words
    assert command_of(ONE, "/books", "a.json", 7)[-6:-4] == ["--budget", "7s"]


def fake(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any] | None) -> list[list[str]]:
    calls: list[list[str]] = []

    def run(command: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        calls.append(command)
        if answer is not None:
            Path(command[command.index("--json") + 1]).write_text(json.dumps(answer))
        return subprocess.CompletedProcess(command, 0, "", "Error: no data here\n")

    monkeypatch.setattr("clew.casebook.wild.subprocess.run", run)
    return calls


def said(verdict: str, steps: int = 9, status: int = 0) -> dict[str, Any]:
    causes = [{"id": "loss.wrong_sign", "credence": 0.4, "kind": "hypothesis"}]
    return {"verdict": verdict, "causes": causes, "clues": [], "run": {"steps": steps, "exit": status, "seconds": 1.0}}


def test_a_run_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy" / "sub").mkdir(parents=True)
    calls = fake(monkeypatch, said("suspect"))
    first = run_one(ONE, str(tmp_path), "v", 0)
    assert first == run_one(ONE, str(tmp_path), "v", 0) == Outcome("suspect", ("loss.wrong_sign",), 9, 1.0)
    assert len(calls) == 1
    run_one(ONE, str(tmp_path), "other", 0)
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (None, "Error: no data here"),
        (said("undecided", steps=0, status=1), "ends with status 1 before the first step: Error: no data here"),
    ],
)
def test_what_did_not_run_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any] | None, note: str
) -> None:
    (tmp_path / "toy" / "sub").mkdir(parents=True)
    fake(monkeypatch, answer)
    assert run_one(ONE, str(tmp_path), "v", 0) == Outcome("", note=note)
    assert run_one(ONE, str(tmp_path / "elsewhere"), "v", 0).note == "not fetched"


def test_the_table_counts_alarms(tmp_path: Path) -> None:
    found = [(ONE, Outcome("suspect", ("loss.wrong_sign",))), (ONE._replace(id="b"), Outcome("", note="not fetched"))]
    shown = table([(script, outcome) for script, outcome in found])
    assert "2 scripts run (), an alarm on 0 of them." in shown
    assert "1 script run now, an alarm on 1 of them." in shown
    assert json.dumps(to_json([(ONE, None)]))
    with pytest.raises(ClewError, match="is not a folder"):
        run_all([ONE], str(tmp_path / "nowhere"), 1, 0)


def listed(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(LIST)
    return path


def test_an_edit_runs_a_copy_beside_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sub = tmp_path / "toy" / "sub"
    sub.mkdir(parents=True)
    was = "epochs = 90\r\nopen('data/all')\r\n"
    (sub / "train.py").write_text(was, newline="")
    (script,) = scripts(str(listed(tmp_path)))
    calls = fake(monkeypatch, said("fault"))
    assert run_one(script, str(tmp_path), "v", 0).verdict == "fault"
    assert calls[0][-1] == "toy_short_edited.py"
    assert (sub / "toy_short_edited.py").read_bytes() == f"epochs = 2\r\nopen('{tmp_path}/data/few')\r\n".encode()
    assert (sub / "train.py").read_bytes().decode() == was


def test_an_edit_that_fits_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sub = tmp_path / "toy" / "sub"
    sub.mkdir(parents=True)
    (sub / "train.py").write_text("epochs = 90\n")
    (script,) = scripts(str(listed(tmp_path)))
    calls = fake(monkeypatch, said("fault"))
    outcome = run_one(script, str(tmp_path), "v", 0)
    assert outcome == Outcome("", note="train.py does not hold 'data/all', which `edit` replaces.")
    assert not calls


def test_a_judgement_made_by_reading_splits_the_count(tmp_path: Path) -> None:
    (bad,) = scripts(str(listed(tmp_path)))
    good = bad._replace(id="good", judged="healthy")
    late = bad._replace(id="late")
    found = [(bad, Outcome("fault")), (good, Outcome("suspect")), (late, Outcome("", note="not fetched"))]
    shown = table([*found]).splitlines()
    assert "judged fault" in shown[1]
    assert shown[-3:] == [
        "2 scripts run now, an alarm on 2 of them.",
        "Judged healthy by reading: false alarms on 1 of 1.",
        "Judged fault by reading: alarms on 1 of 1.",
    ]
    assert table([(bad, None)]).endswith("1 script, none run yet.")


def test_another_list_is_taken_before_and_after_run(clew: Clew, tmp_path: Path) -> None:
    path = str(listed(tmp_path))
    assert "toy-short" in clew("casebook", "wild", "--scripts", path).out
    assert "not fetched" in clew("casebook", "wild", "--scripts", path, "run", str(tmp_path)).out
    assert "not fetched" in clew("casebook", "wild", "run", str(tmp_path), "--scripts", path).out
    broken = tmp_path / "broken.toml"
    broken.write_text("[[script]\n")
    assert "is not TOML" in clew("casebook", "wild", "--scripts", str(broken)).err
    assert clew("casebook", "wild", "--scripts", str(tmp_path / "none.toml")).status == 2


def test_the_command_lists(clew: Clew) -> None:
    shown = clew("casebook", "wild", "--list", "--only", "karpathy/makemore")
    assert shown.status == 0
    assert "makemore-bigram" in shown.out
    assert "an alarm on 1 of them." in shown.out
    assert clew("casebook", "wild", "run", "no-such-folder").status == 2


@pytest.mark.parametrize(
    ("held", "says"),
    [
        (b"", "lists no scripts"),
        (bytes(range(128, 200)), "is not TOML"),
        (b"[[script]]\nid = 'a'\n", "lists no scripts"),
        (b"[repositories]\n[[script]]\nid = 'a'\n", "has no repository"),
        (b"[repositories]\n[[script]]\nid = 'a'\nrepository = 'x/y'\nfolder = ''\ncommand = []\n", "is not given"),
    ],
    ids=["empty", "binary", "no repositories", "half a script", "no commit"],
)
def test_a_list_that_is_none_gets_one_sentence(tmp_path: Path, held: bytes, says: str) -> None:
    (tmp_path / "mine.toml").write_bytes(held)
    with pytest.raises(ClewError, match=says):
        scripts(str(tmp_path / "mine.toml"))
