"""Reading data files: every format, whatever they hold, and never a pickle."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from clew.data.look import answers
from clew.data.model import HELD, TRAIN, Table
from clew.data.parts import families_of, mentions, role_of, target_scores, words
from clew.data.read import READABLE, Unread, read
from clew.data.segments import distance, highest, ranks
from clew.records.clue import Saw, Unclear
from clew.records.place import Place

ROWS = [
    {"a": at * 1.5, "b": "xyz"[at % 3], "when": f"2020-01-{at + 1:02d}", "tags": ["p"] * (at % 2)} for at in range(12)
]


def kinds(table: Table) -> dict[str, str]:
    return {column.name: column.kind for column in table.columns}


def as_csv(path: Path, sign: str) -> None:
    head = [name for name in ROWS[0] if name != "tags"]
    lines = [sign.join(head), *(sign.join(str(row[name]) for name in head) for row in ROWS)]
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(("ending", "sign"), [("csv", ","), ("csv", ";"), ("tsv", "\t")])
def test_cells_become_columns_of_their_kind(ending: str, sign: str, tmp_path: Path) -> None:
    path = tmp_path / f"held.{ending}"
    as_csv(path, sign)
    table = read(str(path), path.name)
    assert kinds(table) == {"a": "number", "b": "category", "when": "time"}
    assert (table.rows, table.line, table.whole) == (12, 2, True)


def test_records_become_columns(tmp_path: Path) -> None:
    wanted = {"a": "number", "b": "category", "when": "time", "tags": "list"}
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    (tmp_path / "b.json").write_text(json.dumps(ROWS))
    (tmp_path / "c.json").write_text(json.dumps({"data": ROWS, "version": 2}))
    for name in ("a.jsonl", "b.json", "c.json"):
        assert kinds(read(str(tmp_path / name), name)) == wanted


def test_a_parquet_file_becomes_columns(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "held.parquet"
    parquet.write_table(pyarrow.table({name: [row[name] for row in ROWS] for name in ("a", "b")}), path)
    assert kinds(read(str(path), path.name)) == {"a": "number", "b": "category"}


def test_arrays_become_columns(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((20, 8, 8)), labels=np.arange(20) % 3, other=np.zeros(7))
    assert kinds(read(str(tmp_path / "a.npz"), "a.npz")) == {"images": "array", "labels": "number"}
    np.save(tmp_path / "b.npy", np.random.default_rng(0).normal(size=(20, 2)))
    assert kinds(read(str(tmp_path / "b.npy"), "b.npy")) == {"[:, 0]": "number", "[:, 1]": "number"}


def test_words_with_tags_become_columns(tmp_path: Path) -> None:
    path = tmp_path / "train.conll"
    path.write_text("anna\tB\nlives\tO\n\n" * 10)
    table = read(str(path), path.name)
    assert [column.name for column in table.columns] == ["word", "tag"]
    assert table.rows == 20


def test_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "held.npy"
    np.save(path, np.array([{"a": 1}] * 20, dtype=object), allow_pickle=True)
    with pytest.raises(Unread, match="cannot be read"):
        read(str(path), path.name)
    assert not {".pkl", ".pickle", ".pt", ".pth", ".joblib"} & set(READABLE)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(held=st.binary(max_size=400), ending=st.sampled_from(READABLE))
def test_any_bytes_are_a_table_or_unread(held: bytes, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"held{ending}"
    path.write_bytes(held)
    try:
        table = read(str(path), path.name)
    except Unread:
        return
    assert {len(column.values) for column in table.columns} == {table.rows}


CELL = st.one_of(st.floats(allow_nan=True, width=32).map(str), st.text("ab ,\"';é", max_size=5), st.just(""))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(CELL, CELL, st.integers(0, 3)), min_size=10, max_size=40))
def test_any_table_can_be_looked_at(rows: list[tuple[str, str, int]], tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps({"x": one, "text": two, "label": three}) + "\n" for one, two, three in rows))
    held = [read(str(path), name) for name in ("train.jsonl", "test.jsonl")]
    for name, answer in answers(held, []):
        assert isinstance(answer, Saw | Unclear), name


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=60))
def test_ranks_are_those_of_scipy(values: list[float]) -> None:
    held = np.array(values)
    assert np.allclose(ranks(held), (stats.rankdata(held) - 0.5) / len(held))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-9, 9), min_size=1, max_size=40), st.lists(st.floats(-9, 9), min_size=1, max_size=40))
def test_the_distance_is_that_of_kolmogorov_and_smirnov(one: list[float], other: list[float]) -> None:
    slow = max(abs(np.mean(np.array(one) <= at) - np.mean(np.array(other) <= at)) for at in one + other)
    assert np.isclose(distance(np.array(one), np.array(other)), slow)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=12, max_size=60), st.integers(2, 5))
def test_the_highest_stretch_is_that_of_a_slow_search(values: list[int], fewest: int) -> None:
    held = np.array(values, float)
    found = highest(held, fewest)
    if held.std() == 0:
        assert found is None
        return
    centred = (held - held.mean()) / held.std()
    count = len(held)
    best = max(
        centred[first:end].sum() * (count / ((end - first) * (count - end + first))) ** 0.5
        for first in range(count)
        for end in range(first + fewest, count + 1)
        if count - end + first >= min(fewest, 5)
    )
    assert found is not None
    assert np.isclose(found.z, best)


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("data/train.csv", TRAIN),
        ("trainTimes.csv", TRAIN),
        ("val_images.npy", HELD),
        ("data/test/x.npy", HELD),
        ("X_holdout.npy", HELD),
        ("contest.csv", ""),
        ("harbour.csv", ""),
    ],
)
def test_roles_are_read_off_names(path: str, role: str) -> None:
    assert role_of(path) == role


def test_the_source_tells_the_target(tmp_path: Path) -> None:
    path = tmp_path / "held.csv"
    as_csv(path, ",")
    part = families_of([read(str(path), path.name)])[0].parts[0]
    assert mentions(["labels = [names.index(row['b']) for row in rows]"], {"a", "b"})["b"] == 1
    assert mentions(["item = {'x': row['b'], 'y': float(row['a'])}"], {"a", "b"}) == {"a": 1}
    assert set(mentions(['[data]\ntarget = "a"\n'], {"a", "b"})) == {"a"}
    scores = target_scores(part, ["y = frame['a']"])
    assert max(scores, key=lambda name: scores[name]) == "a"


def test_arrays_of_as_many_rows_belong_together(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    for name, rows in (("train", 40), ("val", 40)):
        np.save(tmp_path / f"{name}_images.npy", draws.normal(size=(rows, 6, 6)))
        np.save(tmp_path / f"{name}_masks.npy", draws.integers(0, 2, (rows, 6, 6)))
    found = families_of([read(str(path), path.name) for path in sorted(tmp_path.iterdir())])
    assert len(found) == 1
    assert found[0].target == "masks"
    assert sorted(part.role for part in found[0].parts) == [HELD, TRAIN]
    assert all(len(part.columns) == 2 for part in found[0].parts)


def test_arrays_of_which_a_part_is_read_still_belong_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clew.data.read.MOST_BYTES", 30 * 4 * 36)
    np.save(tmp_path / "X_train.npy", np.random.default_rng(0).normal(size=(90, 6, 6)))
    np.save(tmp_path / "y_train.npy", np.arange(90) % 3)
    found = families_of([read(str(path), path.name) for path in sorted(tmp_path.iterdir())])
    assert [(part.rows, len(part.columns)) for family in found for part in family.parts] == [(30, 2)]
    assert {len(column.values) for column in found[0].parts[0].columns} == {30}


def test_words_of_names() -> None:
    assert words("X_train") == ["x", "train"]
    assert words("lag1") == ["lag"]
    assert words("y85") == ["y85"]


def test_a_place_names_rows_and_column() -> None:
    place = Place("data/train.csv", 404, rows="402-2278", column="churned")
    assert str(place) == "data/train.csv:404, rows 402-2278, column churned"
    assert Place.from_json(place.to_json()) == place
