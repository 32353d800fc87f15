"""Whose line it is: the user's own, innermost, named as seen from where the run began."""

import os
from pathlib import Path
from typing import Any

import pytest

from clew.observe import places
from clew.observe.places import MOST, is_users, users_place

HERE = str(Path(__file__).name)


def called(text: str, file: str) -> Any:
    """What a script of its own sees as its place."""
    names: dict[str, Any] = {"users_place": users_place}
    exec(compile(text, file, "exec"), names)
    return names["seen"]


def test_each_line_is_its_own_place() -> None:
    first = users_place()
    second, third = users_place(), users_place()
    assert first is not None
    assert second is not None
    assert second.line == (first.line or 0) + 1
    assert third is second, "one line is one place, whichever call on it asks"
    assert first.symbol == "test_each_line_is_its_own_place"
    assert str(first.file).endswith(HERE)


def test_lines_of_libraries_are_passed_over() -> None:
    assert not is_users(os.__file__)
    assert not is_users("/opt/other/lib/python3.12/site-packages/torch/nn/modules/module.py")
    assert not is_users("/usr/lib/python3/dist-packages/numpy/core.py")
    assert is_users("/home/somebody/site-packages-of-mine/train.py")
    assert not is_users(pytest.__file__)
    assert not is_users("<string>")
    assert not is_users(places.__file__)
    seen = sorted([1], key=lambda _: str(users_place()))
    assert seen == [1]


def test_code_that_is_made_anew_is_not_taken_for_what_it_replaced(tmp_path: Path) -> None:
    for number in range(MOST + 200):
        file = str(tmp_path / f"script{number}.py")
        place = called("\n" * (number % 7) + "seen = users_place()", file)
        assert (place.file, place.line) == (file, number % 7 + 1)
    assert len(places._at) <= MOST
    assert len(places._places) <= MOST


def test_a_script_that_goes_elsewhere_is_named_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = os.path.join(os.getcwd(), "below", "train.py")
    monkeypatch.chdir(tmp_path)
    assert called("seen = users_place()", below).file == os.path.join("below", "train.py")
    assert called("seen = users_place()", str(tmp_path / "train.py")).file == str(tmp_path / "train.py")
    assert called("seen = users_place()", "relative.py").file == "relative.py"


def test_a_folder_that_packages_were_installed_into_is_not_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "extra" / "forecasts-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "own").mkdir()
    for name in ("extra", "own"):
        monkeypatch.syspath_prepend(str(tmp_path / name))
    assert not is_users(str(tmp_path / "extra" / "forecasts" / "model.py"))
    assert is_users(str(tmp_path / "own" / "model.py"))
    assert is_users(str(tmp_path / "extra-of-mine" / "model.py"))
