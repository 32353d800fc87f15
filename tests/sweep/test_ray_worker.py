"""What runs on a node: output in pieces, the exit, the code brought along where the folder is not shared."""

import sys
from pathlib import Path

from clew.sweep.ray_worker import work


def said(*words: str, cwd: str = "/nowhere", files: dict[str, bytes] | None = None) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for kind, held in work(tuple(words), cwd, files or {}, {"WORD": "held"}):
        found.setdefault(kind, []).append(held)
    return found


def test_code_goes_along_where_the_folder_is_not_there() -> None:
    script = b"import os, part.more\nprint(os.environ['WORD'], part.more.x)\nraise SystemExit(3)\n"
    files = {"train.py": script, "part/more.py": b"x = 7\n", "../outside.py": b""}
    found = said(sys.executable, "train.py", files=files)
    assert b"".join(bytes(part) for part in found["out"]) == b"held 7\n"  # type: ignore[call-overload]
    assert found["exit"] == [3]
    assert found["node"][0]["shared_folder"] is False  # type: ignore[index]


def test_metrics_come_back_whole_lines_at_a_time(tmp_path: Path) -> None:
    code = "import os; open(os.environ['CLEW_SWEEP_METRICS'], 'w').write('{\"acc\": 1}' + chr(10) + '{torn')"
    found = said(sys.executable, "-c", code, cwd=str(tmp_path))
    assert found["metrics"] == [b'{"acc": 1}\n']
    assert found["exit"] == [0]


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    found = said("no-such-program", cwd=str(tmp_path))
    assert found["exit"] == [127]
    assert b"cannot start no-such-program" in found["out"][0]  # type: ignore[operator]


def test_leaving_early_ends_the_run(tmp_path: Path) -> None:
    code = "import time; print('on', flush=True); time.sleep(60)"
    pieces = work((sys.executable, "-c", code), str(tmp_path), {}, {})
    assert next(pieces)[0] == "node"
    assert next(pieces) == ("out", b"on\n")
    pieces.close()  # type: ignore[attr-defined]
