"""Files that anybody may have written: no command waits for a pipe, reads a device, or cuts a long line unsaid."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clew import reading


def clew(folder: Path, *words: str) -> tuple[int, str]:
    environment = {**os.environ, "CLEW_HOME": str(folder / ".clew")}
    done = subprocess.run(
        [sys.executable, "-m", "clew", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def pipe(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)


def device(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("/dev/zero")


def mlflow(folder: Path) -> None:
    run = folder / "mlruns" / "1" / "abc"
    (run / "metrics").mkdir(parents=True)
    (run / "meta.yaml").write_text("run_id: abc\nstatus: 3\n")
    (run / "metrics" / "loss").write_text("1 0.5 0\n2 0.4 1\n")


@pytest.mark.parametrize("odd", [pipe, device])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x.csv", ["sweep", "judge", "x.csv", "--metric", "loss"]),
        ("x.jsonl", ["sweep", "judge", "x.jsonl", "--metric", "loss"]),
        ("x.jsonl", ["sweep", "collect", "x.jsonl", "--into", "runs.parquet"]),
        ("mlruns/1/abc/params/lr", ["sweep", "collect", "mlruns", "--into", "runs.parquet"]),
        ("train.py", ["lint", "train.py"]),
        ("map.argdown", ["evidence", "check", "map.argdown"]),
    ],
)
def test_only_regular_files_are_read(tmp_path: Path, name: str, words: list[str], odd: object) -> None:
    if name.startswith("mlruns"):
        mlflow(tmp_path)
    assert callable(odd)
    odd(tmp_path / name)
    _, said = clew(tmp_path, *words)
    assert "regular file" in said or "holds no runs" in said


@pytest.mark.parametrize("odd", [pipe, device])
def test_a_log_is_no_device_and_waits_for_no_writer(tmp_path: Path, odd: object) -> None:
    assert callable(odd)
    odd(tmp_path / "train.log")
    status, said = clew(tmp_path, "log", "train.log")
    assert status == 2
    assert "is empty" in said or "is a device" in said


def test_lines_are_whole_or_none(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n" + b"2" * 10 + b"\n" + b"3" * 11 + b"\nfour")
    with reading.opened(str(path)) as file:
        assert list(reading.lines(file, 11)) == [b"one\n", b"2" * 10 + b"\n", None, b"four"]
    with pytest.raises(OSError, match="it is larger than"):
        reading.whole(str(path), 16)


def test_a_header_of_any_width_is_read_whole(tmp_path: Path) -> None:
    names = ["lr", "seed", "loss", *(f"column_{number}" for number in range(12_000))]
    table: list[list[object]] = [[*names]]
    table += [[lr, seed, lr + seed, *[1] * 12_000] for lr in (1, 2) for seed in range(3)]
    text = "".join(",".join(str(cell) for cell in row) + "\n" for row in table)
    (tmp_path / "wide.csv").write_text(text)
    status, said = clew(tmp_path, "sweep", "judge", "wide.csv", "--metric", "loss", "--goal", "min")
    assert (status in (0, 1), "two columns" in said) == (True, False)
    (tmp_path / "log.csv").write_text(text.replace("lr,", "step,", 1))
    _, said = clew(tmp_path, "log", "log.csv")
    assert "CSV" in said
    assert "loss" in said


def test_a_line_without_end_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"a," * (5 << 20))
    _, said = clew(tmp_path, "sweep", "judge", "x.csv", "--metric", "loss")
    assert "the first line of x.csv is longer than 8 MiB" in said
    (tmp_path / "x.log").write_text(
        "step 1 loss 0.5\nstep 2 loss 0.4\n" + "word " * 800_000 + "loss 0.1\nstep 3 loss 0.3\n"
    )
    _, said = clew(tmp_path, "log", "x.log")
    assert "Of 1 long line the first 16 KiB were read" in said
    assert "cut short" not in said, "one note for one line"


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_bad_number_costs_itself(tmp_path: Path, digits: int) -> None:
    rows = [{"lr": lr, "seed": seed, "loss": lr + seed / 10} for lr in (1, 2) for seed in range(4)]
    lines = [json.dumps(row) for row in rows]
    lines[0] = lines[0][:-1] + f', "big": -{"9" * digits}}}'
    lines.append(f'{{"lr": 1, "seed": 9, "loss": {"9" * digits}}}')
    (tmp_path / "runs.jsonl").write_text("\n".join(lines) + "\n")
    status, said = clew(tmp_path, "sweep", "judge", "runs.jsonl", "--metric", "loss", "--goal", "min")
    assert status in (0, 1)
    assert "seeds" in said
    status, said = clew(tmp_path, "sweep", "collect", "runs.jsonl", "--into", "runs.parquet")
    assert status == 0
    assert f"{len(lines)} runs new" in said
