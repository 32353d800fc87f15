"""The tables of faults: every one fits its program, is named by a known cause, and changes something."""

import ast
import os
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import clew
from clew.casebook.mutate import mutate, replaced, right_lines
from clew.casebook.spoil import SPOILERS, numbers, read, write
from clew.casebook.tables import PROGRAMS, Fault, chosen, faults, healthy, programs, row_of, sample
from clew.errors import ClewError
from clew.knowledge.base import load

ALL = faults()
SOURCE = [item for item in ALL if not item.spoil]
DATA = [item for item in ALL if item.spoil]


def test_ids_are_unique_and_programs_known() -> None:
    assert max(Counter(item.id for item in ALL).values()) == 1
    assert {item.program for item in ALL} <= set(programs())


@pytest.mark.parametrize("item", ALL, ids=lambda item: item.id)
def test_names_causes_of_the_catalogue(item: Fault) -> None:
    known = load().causes
    assert set(item.right) <= set(known)
    assert item.cause not in item.also
    assert bool(item.find) != bool(item.spoil)
    assert item.hurts != bool(item.unseen), "an effect that the figure need not show is explained"


@pytest.mark.parametrize("item", SOURCE, ids=lambda item: item.id)
def test_fits_its_program(item: Fault) -> None:
    path = Path(PROGRAMS) / item.program / item.file
    changed, lines = replaced(item, path.read_text())
    assert changed != path.read_text()
    assert lines
    if path.suffix == ".py":
        ast.parse(changed)
    elif path.suffix == ".toml":
        tomllib.loads(changed)
    for name, line in right_lines(item, str(path.parents[len(Path(item.file).parts) - 1])):
        assert name.endswith((".py", ".toml", ".yaml", ".json"))
        assert line >= 1


@pytest.mark.parametrize("item", DATA, ids=lambda item: item.id)
def test_data_fault_names_a_change_and_its_files(item: Fault) -> None:
    assert item.spoil in SPOILERS
    made = (Path(PROGRAMS) / item.program / "make_data.py").read_text()
    assert os.path.splitext(item.file)[1] in made or "features" in item.file


def test_no_fault_is_told_by_a_comment() -> None:
    """Nobody writes beside a bug that it is one."""
    assert not any("#" in item.replace and "#" not in item.find for item in SOURCE)


def test_many_leave_the_script_untouched() -> None:
    places = Counter(item.place for item in ALL)
    assert sum(places.values()) >= 250
    assert places["data"] + places["config"] + places["package"] >= 100


def test_line_of_a_change_and_of_a_gap() -> None:
    item = Fault("p.x", "p", "train.step_missing", file="train.py", find="b\nc\n", replace="b\n")
    assert replaced(item, "a\nb\nc\nd\n") == ("a\nb\nd\n", [3])
    item = item._replace(find="b\nc\n", replace="b\nx\ny\n")
    assert replaced(item, "a\nb\nc\nd\n") == ("a\nb\nx\ny\nd\n", [3, 4])


@pytest.mark.parametrize(("text", "count"), [("a\n", 0), ("b\nb\n", 2)])
def test_a_text_that_is_not_there_once_is_refused(text: str, count: int) -> None:
    item = Fault("p.x", "p", "train.step_missing", file="train.py", find="b\n", replace="c\n")
    with pytest.raises(ClewError, match=f"stands {count} times in train.py"):
        replaced(item, text)


def test_unknown_fields_and_changes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ClewError, match="unknown field 'wher'"):
        row_of("p", {"id": "x", "cause": "y", "file": "z", "wher": 1})
    with pytest.raises(ClewError, match="not in spoil"):
        mutate(Fault("p.x", "p", "data.nonfinite", spoil="nothing"), str(tmp_path))


def test_choosing() -> None:
    everything = [*ALL, *(healthy(name) for name in programs())]
    assert {item.program for item in chosen(everything, ["sinc_lbfgs"])} == {"sinc_lbfgs"}
    assert {item.place for item in chosen(everything, ["data"]) if item.family != "data"} == {"data"}
    assert len(chosen(everything, ["healthy"])) == len(programs())
    with pytest.raises(ClewError, match="did you mean"):
        chosen(everything, ["sinc_lbfg"])


def test_a_sample_is_the_same_every_time_and_spread() -> None:
    first = sample(ALL, 40)
    assert first == sample(list(reversed(ALL)), 40)
    assert len({item.cause for item in first}) == 40


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.npz", "a.txt"])
def test_files_are_read_and_written_alike(tmp_path: Path, name: str) -> None:
    import numpy as np

    folder = str(tmp_path)
    columns = (
        {"": np.array(["x", "y"], dtype=object)} if name == "a.txt" else {"k": np.array([1, 2]), "v": np.array([3, 4])}
    )
    if name in ("a.csv", "a.jsonl"):
        columns = {key: values.astype(str).astype(object) for key, values in columns.items()}
    write(folder, name, columns)
    again = read(folder, name)
    assert {key: list(values) for key, values in again.items()} == {
        key: list(values) for key, values in columns.items()
    }


def table(folder: Path) -> None:
    lines = ["a,y"] + [f"{row},{row % 3}" for row in range(30)]
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    (folder / "v.csv").write_text("\n".join(["a,y"] + [f"{row + 100},1" for row in range(5)]) + "\n")


def test_data_changes_do_what_they_say(tmp_path: Path) -> None:
    table(tmp_path)
    folder = str(tmp_path)
    SPOILERS["shift"](folder, "t.csv", "y", first=10, last=20)
    column = list(read(folder, "t.csv")["y"])
    assert column[:10] == [str(row % 3) for row in range(10)]
    assert column[11:20] == [str(row % 3) for row in range(10, 19)]
    SPOILERS["scale"](folder, "t.csv", "a", factor=10.0, first=28)
    assert list(numbers(read(folder, "t.csv")["a"]))[27:] == [27, 280, 290]
    SPOILERS["copy_rows"](folder, "v.csv", "t.csv", count=5)
    assert len(read(folder, "t.csv")["a"]) == 35
    SPOILERS["thin"](folder, "t.csv", "y", "2", keep=1)
    assert list(read(folder, "t.csv")["y"]).count("2") == 1
    SPOILERS["holes"](folder, "v.csv", "a", every=2)
    assert list(read(folder, "v.csv")["a"]) == ["nan", "101", "nan", "103", "nan"]
    SPOILERS["look_ahead"](folder, "v.csv", "y", "a", by=1)
    assert list(read(folder, "v.csv")["y"]) == ["101", "nan", "103", "nan", "nan"]


def test_the_tables_are_part_of_the_package() -> None:
    assert (Path(clew.__file__).parent / "casebook" / "faults").is_dir()
