"""What clew says of judged programs that nobody has run before: a faulty and a sound one in each folder.

    python tools/first_sight.py FOLDER --out ANSWERS [--jobs 2]

Each row of FOLDER/judged.json has `name`, `causes` (acceptable ids, best first), and `file` and `line` of what must
change to remove the fault, relative to FOLDER/NAME. Every program runs once under `clew run` as a user would type it;
answers that are there already are read again. Five figures come out: noticed, right cause first, headline within two
lines, healthy above evidence, and sound programs alarmed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

NEAR = 2
ALARMS = ("fault", "suspect")


def answer(folder: Path, kept: Path) -> dict[str, Any]:
    """The report of one program as JSON, and its text beside it."""
    if not kept.exists():
        command = [sys.executable, "-m", "clew", "run", "--json", str(kept.resolve()), "train.py"]
        with tempfile.TemporaryDirectory() as home:
            environment = {**os.environ, "CLEW_HOME": home, "OMP_NUM_THREADS": "1"}
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, errors="replace", check=False
            )
        kept.with_suffix(".txt").write_text(done.stdout + done.stderr)
        if not kept.exists():
            return {"verdict": f"no report, status {done.returncode}", "causes": [], "clues": []}
    found: dict[str, Any] = json.loads(kept.read_text())
    return found


def near(place: dict[str, Any], row: dict[str, Any]) -> bool:
    same = os.path.basename(str(place.get("file"))) == os.path.basename(row["file"])
    return same and abs(int(place.get("line") or -9) - int(row["line"])) <= NEAR


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="where the answers are kept")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    rows = json.loads((options.folder / "judged.json").read_text())
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = [(row["name"], kind) for row in rows for kind in ("faulty", "sound")]
    with ThreadPoolExecutor(options.jobs) as pool:
        answers = pool.map(
            lambda one: answer(options.folder / one[0] / one[1], options.out / f"{one[0]}-{one[1]}.json"), wanted
        )
        held = dict(zip(wanted, answers, strict=True))
    noticed, first, placed, above, alarmed = [], [], [], [], []
    for row in rows:
        name = row["name"]
        faulty, sound = held[name, "faulty"], held[name, "sound"]
        lead = next((cause for cause in faulty["causes"] if not cause["id"].startswith("none.")), None)
        alarm = faulty["verdict"] in ALARMS
        noticed += [name] * alarm
        first += [name] * (alarm and lead is not None and lead["id"] in row["causes"])
        placed += [name] * (alarm and lead is not None and bool(lead["where"]) and near(lead["where"][0], row))
        evidence = [clue for clue in faulty["clues"] if clue["source"] == "lint" and clue["outcome"] != "absent"]
        above += [name] * (faulty["verdict"] == "healthy" and bool(evidence or (lead and lead["kind"] == "finding")))
        alarmed += [name] * (sound["verdict"] in ALARMS)
        said = f"{lead['id']} {lead['credence']:.2f} at {_at(lead)}" if lead else "nothing"
        print(f"{name:12} {faulty['verdict']:10} {said:60} judged {row['causes'][0]} at {row['file']}:{row['line']}")
        print(f"{'':12} {sound['verdict']:10} twin")
    for title, names in (
        ("noticed", noticed),
        ("right cause first", first),
        ("headline within two lines", placed),
        ("healthy above evidence", above),
        ("sound programs alarmed", alarmed),
    ):
        print(f"{title}: {len(names)} of {len(rows)}: {' '.join(names)}")
    return 0


def _at(cause: dict[str, Any]) -> str:
    return f"{os.path.basename(cause['where'][0]['file'])}:{cause['where'][0]['line']}" if cause["where"] else "no line"


if __name__ == "__main__":
    sys.exit(main())
