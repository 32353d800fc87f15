"""Faults in data files are named with their file, rows and column; sound files leave every check quiet."""

import json
from pathlib import Path

import numpy as np
import pytest

from clew.data.look import answers, tables
from clew.data.parts import families_of
from clew.data.worker import is_table
from clew.knowledge import load
from clew.records.clue import Saw
from spoiled_tables import FAULTS, SOUND

NEAR = 12
"""Rows by which an edge may be off: single rows by chance fit a wrong label too."""
ALLOWED = {"rare"}
"""A rare class is a property of many sound sets; it weighs little by itself."""


def seen(folder: Path) -> dict[str, Saw]:
    files = [(str(path), path.name) for path in sorted(folder.iterdir())]
    found, notes = tables(item for item in files if is_table(item[0]))
    assert not notes
    return {name: answer for name, answer in answers(found, [], files=files) if isinstance(answer, Saw)}


def kind(name: str, answer: Saw) -> str:
    outcome = load().tests[name].outcome(answer.outcome)
    assert outcome is not None, f"{name} says {answer.outcome}, which the knowledge base does not know"
    return outcome.kind


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_with_its_place_and_nothing_else_is(name: str, tmp_path: Path) -> None:
    true = FAULTS[name](tmp_path)
    found = seen(tmp_path)
    assert found[true.test].outcome == true.outcome
    place = found[true.test].where[0]
    assert place.file == true.file
    if true.column:
        assert place.column == true.column
    if true.rows is not None:
        assert place.rows is not None
        first, last = map(int, place.rows.split("-"))
        assert abs(first - true.rows[0]) <= NEAR
        assert abs(last - true.rows[1]) <= NEAR
    assert true.file in found[true.test].says
    others = {test: held.outcome for test, held in found.items() if kind(test, held) == "seen" and test != true.test}
    if true.test == "file_cache_fits":
        others.pop("file_labels_fit", None)  # features out of step with their source are so with the labels too
    assert set(others.values()) <= ALLOWED


@pytest.mark.parametrize("name", SOUND)
def test_sound_files_are_quiet(name: str, tmp_path: Path) -> None:
    SOUND[name](tmp_path)
    found = seen(tmp_path)
    assert found, "nothing was looked at"
    odd = {
        test: held.says for test, held in found.items() if kind(test, held) == "seen" and held.outcome not in ALLOWED
    }
    assert odd == {}


def test_what_an_agent_went_through_has_no_labels(tmp_path: Path) -> None:
    """Flags of an episode's end stand last in a log, as labels often do."""
    drawn = np.random.default_rng(0)
    state, ends = drawn.normal(size=(600, 3)), np.arange(600) % 30 == 29
    lived = {"observations": state, "actions": drawn.integers(0, 2, 600), "rewards": state[:, 0], "timeouts": ends}
    np.savez(tmp_path / "log.npz", **lived)
    found, _ = tables([(str(tmp_path / "log.npz"), "log.npz")])
    assert [family.target for family in families_of(found)] == [""]
    np.savez(tmp_path / "table.npz", a=state[:, 0], b=state[:, 1], timeouts=ends)
    found, _ = tables([(str(tmp_path / "table.npz"), "table.npz")])
    assert [family.target for family in families_of(found)] == ["timeouts"]


def test_shards_in_the_order_of_their_class_are_coded_alike(tmp_path: Path) -> None:
    for number, classes in enumerate(((0, 1, 2), (2, 3, 4))):
        rows = [f"{float(kind) + 0.01 * at},{kind}" for kind in classes for at in range(40)]
        (tmp_path / f"train-{number}.csv").write_text("\n".join(["width,label", *rows]) + "\n")
    answer = seen(tmp_path).get("file_label_coding")
    assert answer is None or answer.outcome == "same"


def test_how_far_a_counter_comes_is_no_unit(tmp_path: Path) -> None:
    """Users in order, with more rows each in one file: the same rows reach other numbers."""
    source = np.random.default_rng(0)
    for name, each in (("train", 30), ("valid", 8)):
        users = np.repeat(np.arange(60), each)
        rows = np.column_stack([users, source.integers(0, 500, len(users)), source.integers(1, 6, len(users))])
        np.savetxt(tmp_path / f"{name}.csv", rows[:480], delimiter=",", fmt="%d")
    assert "file_units" not in {name for name, answer in seen(tmp_path).items() if kind(name, answer) == "seen"}


def lists(folder: Path, held: dict[str, object]) -> dict[str, Saw]:
    (folder / "splits.json").write_text(json.dumps(held))
    files = [(str(folder / "splits.json"), "splits.json")]
    return {name: answer for name, answer in answers([], [], files=files) if isinstance(answer, Saw)}


def test_names_listed_for_training_and_held_out_are_named(tmp_path: Path) -> None:
    names = [f"R{number:04}" for number in range(300)]
    found = lists(tmp_path, {"made": "2024", "train": names[:230], "val": names[200:]})["file_rows_shared"]
    assert (found.outcome, found.where[0].file, dict(found.measured)["rows"]) == ("copied", "splits.json", 30)
    assert "30 of 100 entries" in found.says


@pytest.mark.parametrize(
    "held",
    [
        {"train": list(range(200)), "val": list(range(200, 300))},
        {
            "train_0": list(range(100)),
            "val_0": list(range(100, 150)),
            "train_1": list(range(50, 150)),
            "val_1": [*range(50)],
        },
        {"train_classes": [f"c{n}" for n in range(60)], "val_classes": [f"c{n}" for n in range(40)]},
        {"train": [n / 7 for n in range(100)], "val": [n / 7 for n in range(50)]},
        {"train_steps": list(range(0, 1000, 10)), "val_steps": list(range(0, 1000, 50))},
        {"trainval": list(range(300)), "val": list(range(200, 300))},
    ],
    ids=["apart", "folds", "classes", "curves", "steps", "both together"],
)
def test_lists_that_share_nothing_or_by_nature_are_apart(tmp_path: Path, held: dict[str, object]) -> None:
    answer = lists(tmp_path, held).get("file_rows_shared")
    assert answer is None or answer.outcome == "apart"


def test_more_classes_are_no_unit(tmp_path: Path) -> None:
    source = np.random.default_rng(0)
    for name, classes in (("ten", 10), ("hundred", 100)):
        np.savez(tmp_path / f"{name}.npz", x=source.normal(size=(900, 6)), y=source.integers(0, classes, 900))
    assert "file_units" not in {name for name, answer in seen(tmp_path).items() if kind(name, answer) == "seen"}


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("splits.json", b'{"train": [1, 2'),
        ("splits.json", b"\xff\xfe\x00"),
        ("splits.json", b""),
        ("splits.json", b"[" * 100_000),
        ("splits.npz", b"PK\x03\x04 and nothing else"),
    ],
    ids=["torn", "no text", "empty", "deep", "damaged"],
)
def test_a_damaged_list_is_no_list(tmp_path: Path, name: str, held: bytes) -> None:
    (tmp_path / name).write_bytes(held)
    files = [(str(tmp_path / name), name)]
    assert "file_rows_shared" not in {test for test, answer in answers([], [], files=files) if isinstance(answer, Saw)}
