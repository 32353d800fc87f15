"""Lines that were torn, damaged or overlong cost themselves and nothing else."""

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clew.archive import files, metrics, output
from clew.archive.model import OUTPUT, Run
from clew.errors import ClewError
from clew.records import exact

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
values = values.filter(lambda value: exact.TAG not in str(value))
quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)


def read(path: Path, start: bytes = b"") -> tuple[list[object], files.Damage]:
    damage = files.Damage()
    return list(files.lines(str(path), damage, start)), damage


@quick
@given(held=st.lists(values, max_size=8))
def test_every_value_comes_back(tmp_path: Path, held: list[object]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(exact.dumps(value) + "\n" for value in held))
    found, damage = read(path)
    assert exact.dumps(found) == exact.dumps(held)
    assert not damage.remarks("x.jsonl")


@quick
@given(held=st.lists(values, min_size=1, max_size=6), cut=st.integers(min_value=1), block=st.integers(1, 40))
def test_a_file_cut_anywhere_keeps_all_whole_lines(tmp_path: Path, held: list[object], cut: int, block: int) -> None:
    path = tmp_path / "x.jsonl"
    raw = [exact.dumps(value).encode() + b"\n" for value in held]
    whole = b"".join(raw)
    kept = whole[: cut % len(whole) + 1]
    path.write_bytes(kept)
    before, files.BLOCK = files.BLOCK, block
    try:
        found, damage = read(path)
    finally:
        files.BLOCK = before
    count = kept.count(b"\n")
    assert exact.dumps(found) == exact.dumps(held[:count])
    assert damage.torn == len(kept) - len(b"".join(raw[:count]))
    assert not damage.lines
    assert path.read_bytes() == kept, "reading changes nothing"


@quick
@given(junk=st.binary(max_size=300))
def test_any_bytes_can_be_read(tmp_path: Path, junk: bytes) -> None:
    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    (folder / OUTPUT).write_bytes(junk)
    (folder / "trace-1.jsonl").write_bytes(junk)
    damage = files.Damage()
    run = Run("run", str(folder))
    said = list(output.read(run, damage))
    assert len(said) <= junk.count(b"\n")
    metrics.read(run)
    (folder / "run.json").write_bytes(junk)
    with pytest.raises(ClewError):
        files.read_table(str(folder / "run.json"))


numbers = st.tuples(
    st.text(max_size=6), st.text(max_size=6), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=True)
)
damaged = st.sampled_from(
    [b"", b"[", b"]", b"[1", b"2]", b"3,4", b'{"kind":"event"}', b'["a","",0]', b"NaN", b"\xff", b"[[[["]
)


@quick
@given(held=st.lists(numbers | damaged, max_size=12))
def test_numbers_survive_the_damage_around_them(
    tmp_path: Path, held: list[tuple[str, str, int, float] | bytes]
) -> None:
    path = tmp_path / "trace-1.jsonl"
    path.write_bytes(
        b"".join((row if isinstance(row, bytes) else exact.dumps(list(row)).encode()) + b"\n" for row in held)
    )
    wanted = [list(row) for row in held if not isinstance(row, bytes)]
    assert exact.dumps(metrics.read_numbers(str(path))) == exact.dumps(wanted)


def test_a_line_behind_a_torn_one_is_found_again(tmp_path: Path) -> None:
    """One process died in the middle of a write; another appended to the same file."""
    lines = [exact.dumps({"s": "out", "t": index, "text": f'{{"s":"{index}'}).encode() for index in range(3)]
    path = tmp_path / OUTPUT
    path.write_bytes(lines[0] + b"\n" + lines[1][:17] + lines[2] + b"\n")
    found, damage = read(path, output.START)
    assert [value["t"] for value in found if isinstance(value, dict)] == [0, 2]
    assert damage.remarks(str(path)) == ["1 line of output.jsonl is damaged and is left out"]


def test_a_line_without_end_is_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK", 100)
    monkeypatch.setattr(files, "LONGEST", 1000)
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"1\n" + b"x" * 5000 + b"\n2\n3\n" + b"y" * 3000)
    found, damage = read(path)
    assert found == [1, 2, 3]
    assert damage.lines == 1
    assert damage.torn


def test_numbers_that_are_not_finite_are_exact(tmp_path: Path) -> None:
    path = tmp_path / "trace-1.jsonl"
    given_ = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308]
    path.write_text("".join(exact.dumps(["loss", "", step, value]) + "\n" for step, value in enumerate(given_)))
    assert [exact.dumps(value) for *_, value in metrics.read_numbers(str(path))] == [exact.dumps(v) for v in given_]


def test_a_folder_in_place_of_a_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ClewError, match="Is a directory"):
        read(tmp_path)
    assert read(tmp_path / "missing")[0] == []
