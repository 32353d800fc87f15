"""The parts of `clew run` besides running: curves from the trace, data files, a second run compared with the first."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.app.curves import curve_clues, losses
from clew.app.files import contents, data_files, to_json
from clew.app.repeat import compare
from clew.archive.model import Run
from clew.knowledge import load
from clew.observe.collect import Process
from clew.records import exact
from clew.records.clue import Clue, Reading, Unclear
from clew.records.trace import Series

KNOWLEDGE = load()
FALLING = [0.2 + 2.1 * math.exp(-step / 40) + 0.01 * math.sin(12.9 * step * step) for step in range(200)]


def part(*series: Series, answers: tuple[dict[str, Any], ...] = (), rank: int = 0) -> Process:
    return Process(1, rank, 1, 200, 1.0, 1, True, answers, {(item.name, item.of): item for item in series})


def line(name: str, values: list[float], of: str = "", steps: tuple[int, ...] = ()) -> Series:
    return Series(name, steps or tuple(range(len(values))), tuple(values), of)


def clues(tmp_path: Path, held: Process, printed: str = "") -> dict[str, Clue]:
    said = "".join(exact.dumps({"s": "out", "t": 0.0, "text": text + "\n"}) + "\n" for text in printed.splitlines())
    (tmp_path / "output.jsonl").write_text(said)
    return {clue.test: clue for clue in curve_clues(KNOWLEDGE, held, Run("x", str(tmp_path)))}


# --- curves


def test_chance_comes_from_the_number_of_classes(tmp_path: Path) -> None:
    loss, classes = line("loss", [math.log(10) + value for value in FALLING]), line("classes", [10.0])
    assert clues(tmp_path, part(loss, classes))["init_loss"].outcome == "above"
    assert clues(tmp_path, part(loss, line("classes", [10.0, 4.0])))["init_loss"].outcome == "unclear"
    assert clues(tmp_path, part(loss))["init_loss"].outcome == "unclear"


def test_the_function_says_whether_a_loss_may_be_negative(tmp_path: Path) -> None:
    loss = line("loss", [value - 1.0 for value in FALLING])
    assert clues(tmp_path, part(loss))["loss_goes_negative"].outcome == "unclear"
    named = line("loss function cross_entropy", [1.0])
    assert clues(tmp_path, part(loss, named))["loss_goes_negative"].outcome == "seen"
    other = line("loss function mse_loss", [1.0])
    assert clues(tmp_path, part(loss, named, other))["loss_goes_negative"].outcome == "unclear"


def test_the_end_is_compared_with_a_constant_answer(tmp_path: Path) -> None:
    flat = line("loss", [1.0 + 0.01 * math.sin(12.9 * step * step) for step in range(200)])
    measured = dict(clues(tmp_path, part(flat, line("constant loss", [1.2, 1.0])))["loss_stuck_from_start"].measured)
    assert measured["end_over_constant_answer"] == pytest.approx(1.0, abs=0.02)


def test_epochs_come_from_the_loader(tmp_path: Path) -> None:
    jumps = [value + 0.5 * (step % 50 < 15) for step, value in enumerate(FALLING)]
    held = part(line("loss", jumps), line("epoch", [0.0, 1.0, 2.0, 3.0], steps=(0, 50, 100, 150)))
    assert clues(tmp_path, held)["loss_epoch_sawtooth"].outcome == "seen"
    assert clues(tmp_path, part(line("loss", jumps)))["loss_epoch_sawtooth"].outcome == "unclear"


def test_printed_epochs_lie_at_the_end_of_the_passes(tmp_path: Path) -> None:
    ends = [FALLING[50 * epoch - 1] for epoch in range(1, 5)]
    printed = "\n".join(f"epoch {epoch} val_loss {value:.4f}" for epoch, value in enumerate(ends, 1))
    held = part(line("loss", FALLING), line("epoch", [0.0, 1.0, 2.0, 3.0], steps=(0, 50, 100, 150)))
    assert clues(tmp_path, held, printed)["train_val_gap"].outcome == "alike"


def test_accuracy_is_measured_against_the_most_frequent_class(tmp_path: Path) -> None:
    printed = "\n".join(f"epoch {epoch} val_acc 0.9{epoch % 2}1" for epoch in range(1, 9))
    counted = {"test": "label_counts", "measured": {"largest_class_share": 0.9}, "where": []}
    loss, classes = line("loss", FALLING), line("classes", [10.0])
    assert clues(tmp_path, part(loss, classes, answers=(counted,)), printed)["metric_at_chance"].outcome == "at_chance"
    assert clues(tmp_path, part(loss, classes), printed)["metric_at_chance"].outcome == "above"
    ranked = printed.replace("val_acc", "val_auc")
    assert clues(tmp_path, part(loss, classes, answers=(counted,)), ranked)["metric_at_chance"].outcome == "above"


def test_losses_trained_in_turn_stand_for_nothing_alone(tmp_path: Path) -> None:
    rises = line("loss", [1.0 + 0.01 * step for step in range(200)])
    other = line("loss", FALLING, of="train.py:57")
    assert clues(tmp_path, part(rises))["loss_rises"].outcome == "steadily"
    told = clues(tmp_path, part(rises, other))
    assert told["loss_rises"].outcome == "unclear"
    assert "train.py:57" in told["loss_rises"].why
    assert told["loss_nonfinite"].outcome == "absent"
    broken = line("loss", [*FALLING[:100], *[math.nan] * 100], of="train.py:57")
    assert clues(tmp_path, part(rises, broken))["loss_nonfinite"].outcome == "seen"
    rare = line("loss", FALLING[:5], of="train.py:57")
    assert list(losses(part(rises, rare))) == ["loss"]
    assert losses(part()) == {}


# --- data files


def test_files_are_listed_with_what_is_in_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "data" / "train.csv"
    table.parent.mkdir()
    table.write_text("a,b\n" + "1,2\n" * 12000)
    state = table.stat()

    def row(path: Path, written: bool, size: int, modified: float) -> dict[str, Any]:
        where = {"file": "train.py", "line": 3}
        return {
            "path": str(path),
            "written": written,
            "size": size,
            "modified": modified,
            "by": "pandas",
            "where": where,
        }

    rows = [
        row(tmp_path / "out.csv", True, 0, 0.0),
        row(table, False, state.st_size, state.st_mtime),
        row(tmp_path / "gone.csv", False, 5, 1.0),
    ]
    (tmp_path / "files-1.json").write_text(exact.dumps(rows))
    (tmp_path / "files-2.json").write_text(exact.dumps(rows[1:2]))
    (tmp_path / "files-3.json").write_text("[")
    found = data_files(Run("x", str(tmp_path)))
    assert [str(item) for item in found] == [
        "data/train.csv (pandas, 12,000 rows)",
        "gone.csv (pandas)",
        "out.csv (pandas)",
    ]
    assert to_json(found)[0] == {
        "path": "data/train.csv",
        "written": False,
        "size": state.st_size,
        "by": "pandas",
        "rows": "12,000 rows",
        "where": "train.py:3",
    }


def test_what_is_in_a_file(tmp_path: Path) -> None:
    for name, text, said in (
        ("a.csv", "1,2\n3,4e5", "2 rows"),
        ("b.tsv", "x\ty\n1\t2\n", "1 rows"),
        ("c.jsonl", "{}\n{}\n", "2 lines"),
        ("d.csv", "", "0 rows"),
        ("e.bin", "xx", ""),
        ("f.npy", "no array", ""),
    ):
        (tmp_path / name).write_text(text)
        assert contents(str(tmp_path / name), len(text)) == said
    np.save(tmp_path / "g.npy", np.zeros((3000, 4)))
    assert contents(str(tmp_path / "g.npy"), 1) == "3,000 x 4"
    assert contents(str(tmp_path / "absent.csv"), 1) == ""
    assert contents(str(tmp_path / "a.csv"), 1 << 40) == ""


@given(st.binary(max_size=200))
def test_any_bytes_may_stand_in_a_file(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("odd")
    for name, head in (("a.npy", b"\x93NUMPY"), ("b.csv", b""), ("c.jsonl", b"")):
        (folder / name).write_bytes(head + data)
        assert isinstance(contents(str(folder / name), len(data)), str)


# --- twice


def test_the_same_losses() -> None:
    held = part(line("loss", [*FALLING, math.nan]))
    answer, says = compare([held], [held])
    assert isinstance(answer, Reading)
    assert dict(answer.measured)["largest_relative_difference_of_losses"] == 0.0
    assert "bit-identical" in says


def test_where_two_runs_part() -> None:
    late = [*FALLING[:7], FALLING[7] * (1 + 1e-7), *(value * 1.01 for value in FALLING[8:])]
    answer, says = compare([part(line("loss", FALLING))], [part(line("loss", late))])
    assert isinstance(answer, Reading)
    measured = dict(answer.measured)
    assert measured["first_differing_step"] == 7
    assert measured["largest_relative_difference_of_losses"] == pytest.approx(0.01, rel=0.02)
    assert "differ from step 7" in says
    broken, _ = compare([part(line("loss", [1.0, math.nan]))], [part(line("loss", [1.0, 2.0]))])
    assert isinstance(broken, Reading)
    assert dict(broken.measured)["largest_relative_difference_of_losses"] == math.inf


def test_ranks_are_compared_with_their_own() -> None:
    one, other = part(line("loss", [1.0, 2.0]), rank=0), part(line("loss", [3.0, 4.0]), rank=1)
    answer, _ = compare([one, other], [other, one])
    assert isinstance(answer, Reading)
    assert dict(answer.measured)["largest_relative_difference_of_losses"] == 0.0
    assert isinstance(compare([one, other], [one])[0], Unclear)
    assert isinstance(compare([part()], [part()])[0], Unclear)
