"""What `clew lint` costs, as a ratio to plain `ast.parse` over the same files.

    python bench/lint.py [FOLDER …]

Both are measured as CPU time of a process of their own, start-up included; `clew lint` runs in one process, without its
cache, then with it. Without a folder the source of the installed packages torch and transformers is used, where there.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

PARSE = """
import ast, gc, sys, warnings
warnings.simplefilter("ignore")
gc.disable()
for path in sys.stdin.read().split("\\0"):
    with open(path, "rb") as file:
        data = file.read()
    try:
        ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
"""
CLEW = str(Path(sys.executable).parent / "clew")
ENOUGH = 5.0
STARTED = 0.2


def files(folder: Path) -> list[Path]:
    skipped = {"__pycache__", "site-packages", "build", "dist", ".venv"}
    return sorted(
        path for path in folder.rglob("*.py") if not skipped & set(path.relative_to(folder).parts) and path.is_file()
    )


def cpu(command: list[str], given: str = "", **environment: str) -> tuple[float, str]:
    """CPU seconds of a command and its children, and what it printed."""
    held = {**os.environ, **environment}
    held.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, input=given, env=held, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr}")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true", help="exit 1 when a limit is passed")
    options = parser.parse_args()
    folders = options.folders or [
        Path(found.submodule_search_locations[0])
        for found in map(find_spec, ("torch", "transformers"))
        if found and found.submodule_search_locations
    ]
    worst = 0.0
    with tempfile.TemporaryDirectory() as cache:
        quick = Path(cache) / "one.py"
        quick.write_text("import torch\n")
        lint = [CLEW, "lint", "--jobs", "1", "--format", "json"]
        cpu([*lint, str(quick)], XDG_CACHE_HOME=cache)
        start = min(cpu([*lint, "--no-cache", str(quick)], XDG_CACHE_HOME=cache)[0] for _ in range(5))
        print(f"start-up with all rules: {start:.2f} CPU s")
        heads = (
            ("files", 7),
            ("lines", 10),
            ("parse s", 9),
            ("lint s", 8),
            ("ratio", 7),
            ("again s", 9),
            ("findings", 10),
        )
        print("folder".ljust(28) + "".join(name.rjust(width) for name, width in heads))
        for folder in folders:
            found = files(folder)
            lines = sum(path.read_bytes().count(b"\n") for path in found)
            parse, _ = cpu([sys.executable, "-c", PARSE], "\0".join(map(str, found)))
            cold, said = cpu([*lint, str(folder)], XDG_CACHE_HOME=cache)
            warm, _ = cpu([*lint, str(folder)], XDG_CACHE_HOME=cache)
            worst = max(worst, cold / parse)
            row = [f"{len(found)}", f"{lines}", f"{parse:.2f}", f"{cold:.2f}", f"{cold / parse:.2f}", f"{warm:.2f}"]
            row.append(str(len(json.loads(said))))
            cells = "".join(cell.rjust(width) for cell, (_, width) in zip(row, heads, strict=True))
            print(folder.name[-27:].ljust(28) + cells)
    return 1 if options.check and (worst > ENOUGH or start > STARTED) else 0


if __name__ == "__main__":
    raise SystemExit(main())
