"""What other linters say about the faults that `clew lint` is tested on.

    python -m venv linters && linters/bin/pip install torchfix ruff pylint
    python bench/other_linters.py linters/bin

Each program is looked at in its faulty and in its healthy version. A linter speaks of the fault when it has a message
for the faulty version that it does not have for the healthy one; `--show` prints these messages, to be judged, and
`--only ruff` asks one of them. Those
that only follow from how the fault was put in (an import or a variable that is no longer used, a blank line, the length
of a function) are listed in BESIDE and do not count.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "lint"))

import lint_cases  # noqa: E402 - it stands beside the tests
import test_blind  # noqa: E402

CLASSICS = (
    "softmax_in_forward missing_zero_grad no_eval layers_in_a_list loss_kept_as_tensor regression_broadcast "
    "policy_sign fit_transform_on_test scheduler_per_batch rewrapped_loss head_replaced_after_optimizer swallowed"
).split()
BESIDE = re.compile(
    r"^(F401|F841|W061[1-3]|I001|E30\d|W29\d|W39\d|D\d|ANN|ARG|PLR|R09|R17|R0[0-9]|C0|COM|Q0|T20|ERA|RET|E501|INP|TD|FIX|"
    r"SIM|PERF|FBT|EM|TRY003|N80|NPY|PTH|UP|RUF|CPY|DOC|S311|S101|E1101|E0401|W0621|W0622|C4|PD|E26|E11|W19|TC|PYI)"
)
Program = tuple[dict[str, str], dict[str, str]]


def programs() -> dict[str, list[Program]]:
    held = {program.name: program for program in lint_cases.programs()}
    blind = test_blind.cases()
    return {
        "twelve classics": [(held[name].faulty, held[name].healthy) for name in CLASSICS],
        "programs of another author": [(case.faulty, case.healthy) for case in blind if case.name.startswith("h")],
    }


def said(words: list[str], folder: str) -> set[tuple[str, str]]:
    """The messages about a folder, as code and text without lines."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    found = set()
    for line in done.stdout.splitlines():
        match = re.match(r"^[^:]+\.py:\d+:(?:\d+:)?\s*\[?([A-Z]+\d+)\]?[:(]?\s*(.*)", line)
        if match:
            found.add((match[1], re.sub(r"\d+", "", match[2])))
    return found


def linters(folder: str) -> dict[str, list[str]]:
    at = Path(folder).resolve()
    return {
        "TorchFix": [str(at / "torchfix"), "--select", "ALL", "."],
        "ruff": [str(at / "ruff"), "check", "--select", "ALL", "--isolated", "--no-cache",
                            "--output-format", "concise", "."],
        "pylint": [str(at / "pylint"), "--disable", "import-error", "--recursive", "y", "--score", "n",
                   "--msg-template", "{path}:{line}:{column}: {msg_id} {msg}", "."],
    }  # fmt: skip


def clew(folder: str) -> set[tuple[str, str]]:
    words = [sys.executable, "-m", "clew", "lint", "--no-cache", "--format", "json", "."]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    return {(row["rule"], row["message"]) for row in json.loads(done.stdout)}


def laid_out(files: dict[str, str], folder: str) -> None:
    for name, text in files.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main() -> None:
    folder, show = sys.argv[1], "--show" in sys.argv
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    commands = {name: words for name, words in linters(folder).items() if only in ("", name)}
    for kind, items in programs().items():
        counts = dict.fromkeys([*commands, "clew"], 0)
        noise = dict.fromkeys([*commands, "clew"], 0)
        for number, pair in enumerate(items):
            for name in counts:
                sides = []
                for files in pair:
                    with tempfile.TemporaryDirectory() as place:
                        laid_out(files, place)
                        sides.append(clew(place) if name == "clew" else said(commands[name], place))
                new = {pair for pair in sides[0] - sides[1] if name == "clew" or not BESIDE.match(pair[0])}
                counts[name] += bool(new)
                noise[name] += len(sides[1])
                if show and new and name != "clew":
                    print(f"  {kind} {number} {name}: {sorted(new)}")
        print(f"{kind}, {len(items)} faults:")
        for name, count in counts.items():
            print(f"  {name:<16}{count:>4} spoken of, {noise[name]} messages about the healthy versions", flush=True)


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    main()
