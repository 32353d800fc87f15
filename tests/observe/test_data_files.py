"""Which data files are opened, and whether a cache is older than the code that makes it."""

import importlib
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from loops_data import answer
from pyarrow import feather, parquet

from clew.observe import files, provenance
from clew.observe.watches._data_caches import makes
from clew.observe.watches.cache_age import CacheAge

GUARDED = """
import os
import numpy as np

CACHE = os.path.join(os.path.dirname(__file__), "features.npy")


def features(scale=2.0):
    if os.path.exists(CACHE):
        return np.load(CACHE)
    made = scale * np.arange(10.0)
    np.save(CACHE, made)
    return made
"""
PASSED_ON = """
import pickle
from pathlib import Path


def prepared(path):
    if path.is_file():
        with open(path, "rb") as file:
            return pickle.load(file)
    with open(path, "wb") as file:
        pickle.dump([1, 2, 3], file)
    return [1, 2, 3]


def features():
    return prepared(Path(__file__).parent / "tokens.pkl")
"""
IN_AN_F_STRING = """
import os
import torch


def features(part="train"):
    path = f"{os.path.dirname(__file__)}/{part}_cache.pt"
    if not os.path.exists(path):
        torch.save(torch.ones(3), path)
    return torch.load(path)
"""
ALWAYS_WRITTEN = GUARDED.replace("if os.path.exists(CACHE):", "if False:")
ONLY_READ = GUARDED.replace("    np.save(CACHE, made)\n", "")
WEIGHTS = IN_AN_F_STRING.replace("_cache.pt", "_model.pt")


@pytest.fixture(autouse=True)
def noted() -> None:
    files.install()
    files.forget()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Imports a source as a module of the user's own, some seconds after its cache was made."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def load(source: str, cache: str, made: Callable[[Path], Any], later: float) -> Any:
        path = tmp_path / "prepare_it.py"
        path.write_text(source)
        made(tmp_path / cache)
        then = os.stat(path).st_mtime
        os.utime(tmp_path / cache, (then - later, then - later))
        importlib.invalidate_caches()
        return importlib.import_module("prepare_it")

    yield load
    sys.modules.pop("prepare_it", None)


def saved(path: Path) -> None:
    np.save(path, np.arange(10.0))


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps([1, 2]))


def tensor(path: Path) -> None:
    torch.save(torch.ones(2), path)


@pytest.mark.parametrize(
    ("source", "cache", "made", "later", "outcome"),
    [
        (GUARDED, "features.npy", saved, 3600.0, "stale"),
        (PASSED_ON, "tokens.pkl", pickled, 3600.0, "stale"),
        (IN_AN_F_STRING, "train_cache.pt", tensor, 3600.0, "stale"),
        (GUARDED, "features.npy", saved, -3600.0, "reused"),
        (GUARDED, "features.npy", saved, 0.5, "reused"),
        (ONLY_READ, "features.npy", saved, 3600.0, "fresh"),
        (WEIGHTS, "train_model.pt", tensor, 3600.0, "fresh"),
        (ALWAYS_WRITTEN, "features.npy", saved, 3600.0, "unclear"),
    ],
)
def test_cache_age(tmp_path: Path, module: Any, source: str, cache: str, made: Any, later: float, outcome: str) -> None:
    prepared = module(source, cache, made, later)
    assert answer(tmp_path, CacheAge, prepared.features)["outcome"] == outcome


def test_the_stale_cache_is_pointed_at(tmp_path: Path, module: Any) -> None:
    prepared = module(GUARDED, "features.npy", saved, 7200.0)
    told = answer(tmp_path, CacheAge, prepared.features)
    assert [(os.path.basename(place["file"]), place.get("line")) for place in told["where"]] == [
        ("prepare_it.py", 12),
        ("features.npy", None),
        ("prepare_it.py", 10),
    ]
    assert told["measured"]["hours_older"] == pytest.approx(2.0, abs=0.01)


def test_a_cache_that_the_script_makes_itself_is_reused(
    tmp_path: Path, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = module(GUARDED, "features.npy", saved, 3600.0)
    monkeypatch.setitem(sys.modules, "__main__", prepared)
    told = answer(tmp_path, CacheAge, prepared.features)
    assert told["outcome"] == "reused"
    assert "as an earlier run left it" in told["says"]


def test_no_file_no_answer(tmp_path: Path) -> None:
    assert answer(tmp_path, CacheAge, lambda: None)["outcome"] == "unclear"


@pytest.mark.parametrize("source", ["", "x = (", "np.save('features.npy', x)", "os.path.exists('features.npy')"])
def test_sources_that_make_no_cache(source: str) -> None:
    assert makes(source, "features.npy") == 0


def test_files_are_noted_however_they_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "a.npy")
    tensor(tmp_path / "b.pt")
    (tmp_path / "c.json").write_text("{}")
    (tmp_path / "d.py").write_text("rate = 1")
    (tmp_path / "imported_alone.py").write_text("pass")
    (tmp_path / "f.lock").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    files.forget()
    np.load(tmp_path / "a.npy")
    torch.load(tmp_path / "b.pt")
    with open(tmp_path / "c.json") as file:
        json.load(file)
    exec((tmp_path / "d.py").read_text())
    importlib.import_module("imported_alone")
    (tmp_path / "f.lock").read_text()
    (tmp_path / "e.csv").write_text("x")
    found = {os.path.basename(held.path): held for held in files.opened()}
    assert list(found) == ["a.npy", "b.pt", "c.json", "d.py", "e.csv"]
    assert [held.written for held in found.values()] == [False, False, False, False, True]
    assert found["a.npy"].size == (tmp_path / "a.npy").stat().st_size
    assert found["e.csv"].modified == 0
    assert all(held.place is not None and held.place.file is not None for held in found.values())


def test_files_that_native_code_opens_are_noted_too(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": [0, 1]})
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_feather(tmp_path / "b.feather")
    for name, module in (("pandas", pd), ("pyarrow.parquet", parquet), ("pyarrow.feather", feather)):
        provenance.install(name, module)
    readers: list[Callable[[], Any]] = [
        lambda: (pd.read_parquet(tmp_path / "a.parquet"), pd.read_feather(path=str(tmp_path / "b.feather"))),
        lambda: (parquet.read_table(str(tmp_path / "a.parquet")), feather.read_table(str(tmp_path / "b.feather"))),
    ]
    for read in readers:
        files.forget()
        first, second = read()
        assert len(first) == len(second) == 2
        assert [os.path.basename(held.path) for held in files.opened()] == ["a.parquet", "b.feather"]
        assert not any(held.written for held in files.opened())
        assert {held.by for held in files.opened()} <= {"pandas", "pyarrow"}


def test_a_file_that_is_not_there_fails_as_ever(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open(tmp_path / "none.csv").close()


def test_a_folder_of_images_leaves_room(tmp_path: Path) -> None:
    for number in range(150):
        (tmp_path / f"{number}.png").write_bytes(b"")
    saved(tmp_path / "a.npy")
    names = [os.path.splitext(held.path)[1] for held in files.opened()]
    assert names.count(".png") == 100
    assert names.count(".npy") == 1
