"""No file makes the look into data files take a gigabyte, or wait for what never comes."""

import json
import os
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from clew.data.read import Unread, read
from clew.reading import LONGEST
from clew.records import exact

GIGABYTE = 1 << 30
MEASURED = "import resource, sys; from clew.data.worker import main; status = main(sys.argv[1], 10.0); " + (
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss); sys.exit(status)"
)


def packed_zeros(path: Path) -> None:
    """A member that unpacks to 1.25 GiB."""
    head = np.lib.format.magic(1, 0)
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made,
        made.open("x.npy", "w", force_zip64=True) as member,
    ):
        text = repr({"descr": "<f8", "fortran_order": False, "shape": (160 << 10, 1 << 10)}).ljust(117) + "\n"
        member.write(head + len(text).to_bytes(2, "little") + text.encode())
        for _ in range(20):
            member.write(bytes(1 << 26))


def claimed(path: Path) -> None:
    """A header that claims far more rows than there are."""
    np.save(path, np.zeros((10, 4)))
    path.write_bytes(path.read_bytes().replace(b"(10, 4)", b"(10**9,", 1).replace(b"(10**9,", b"(99999,", 1))


def run_lengths(path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    column = arrow.array(["x" * 100]).take(arrow.array(np.zeros(1_000_000, np.int64)))
    table = arrow.table({"name": column, "number": np.zeros(1_000_000)})
    with parquet.ParquetWriter(path, table.schema) as made:
        for _ in range(20):
            made.write_table(table)


def one_long_word(path: Path) -> None:
    """A megabyte that the file holds once and every row has."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    column = arrow.DictionaryArray.from_arrays(arrow.array(np.zeros(20_000, np.int32)), ["x" * (1 << 20)])
    parquet.write_table(arrow.table({"name": column}), path)


def without_end(path: Path) -> None:
    path.touch()
    os.truncate(path, 4 << 30)


def many_cells(path: Path) -> None:
    path.write_text((",".join(["1.5"] * 800) + "\n") * 20_000)


def many_lists(path: Path) -> None:
    path.write_text("[" + ",".join(["[]"] * (10 << 20)) + "]")


BOMBS: dict[str, Callable[[Path], None]] = {
    "packed.npz": packed_zeros,
    "claimed.npy": claimed,
    "runs.parquet": run_lengths,
    "word.parquet": one_long_word,
    "line.csv": without_end,
    "line.txt": without_end,
    "cells.csv": many_cells,
    "lists.json": many_lists,
    "device.csv": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_look_stays_below_a_gigabyte(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    BOMBS[name](path)
    beside = tmp_path / "train.csv"
    beside.write_text("x,y\n" + "".join(f"{row / 7},{row % 2}\n" for row in range(100)))
    rows = []
    for each in (beside, path):
        held = each.stat()
        row = {"path": str(each), "written": False, "size": held.st_size, "modified": held.st_mtime}
        rows.append({**row, "by": "", "where": {}})
    (tmp_path / "files-1.json").write_text(exact.dumps(rows))
    (tmp_path / "sources-1").write_text(f"{tmp_path}/train.py\n")
    (tmp_path / "train.py").write_text("import torch\n")
    os.mkfifo(tmp_path / "config.yaml")
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *said, kilobytes = done.stdout.splitlines()
    assert int(kilobytes) * 1024 < GIGABYTE
    tables = json.loads(said[0])
    assert tables["tables"] >= 1  # the file beside it is still looked at
    assert tables["tables"] == 2 or tables["notes"][0].startswith(name)


def test_only_the_rows_that_are_looked_at_are_unpacked(tmp_path: Path) -> None:
    packed_zeros(tmp_path / "x.npz")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    table = read(str(tmp_path / "x.npz"), "x.npz")
    assert (table.rows, table.whole, table.total) == ((64 << 20) // 4096, False, 160 << 10)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 << 10


def test_a_long_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n" + "3," * LONGEST)
    with pytest.raises(Unread, match="its line 3 is longer than 1 MiB"):
        read(str(tmp_path / "x.csv"), "x.csv")
    (tmp_path / "pipe.csv").symlink_to("/dev/zero")
    with pytest.raises(Unread, match="it is no regular file"):
        read(str(tmp_path / "pipe.csv"), "pipe.csv")


def test_arrays_are_read_as_numpy_reads_them(tmp_path: Path) -> None:
    wide = np.arange(24.0).reshape(12, 2)
    tall, words = np.asfortranarray(wide * 3), np.array([f"name {row}" for row in range(12)])
    np.savez_compressed(tmp_path / "x.npz", wide=wide, tall=tall, words=words, other=np.zeros(3))
    np.save(tmp_path / "x.npy", tall)
    columns = {column.name: column for column in read(str(tmp_path / "x.npz"), "x.npz").columns}
    assert columns["wide[:, 1]"].values.tolist() == wide[:, 1].tolist()
    assert columns["tall[:, 1]"].values.tolist() == tall[:, 1].tolist()
    assert columns["words"].values.tolist() == words.tolist()
    assert read(str(tmp_path / "x.npy"), "x.npy").columns[0].values.tolist() == tall[:, 0].tolist()
