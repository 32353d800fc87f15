"""What other linters say about the faults that `clew lint` is tested on.

    python -m venv linters && linters/bin/pip install torchfix ruff pylint
    python bench/other_linters.py linters/bin

Each program is looked at in its faulty and in its healthy version. A linter speaks of the fault when it has a message
for the faulty version that it does not have for the healthy one; `--show` prints these messages, to be judged, and
`--only ruff` asks one of them. Messages that only follow from how the fault was put in (an import or a variable that is
no longer used, a blank line, the length of a function) are listed in BESIDE and do not count.
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


Said = dict[str, set[tuple[str, str]]]


def said(words: list[str], folder: str) -> Said:
    """The messages about each program below a folder, as code and text without numbers."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    found: Said = {}
    for line in done.stdout.splitlines():
        match = re.match(r"^(?:\./)?([^/:]+)/[^:]+\.py:\d+:(?:\d+:)?\s*\[?([A-Z]+\d+)\]?[:(]?\s*(.*)", line)
        if match:
            found.setdefault(match[1], set()).add((match[2], re.sub(r"\d+", "", match[3])))
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


def clew(folder: str) -> Said:
    words = [sys.executable, "-m", "clew", "lint", "--no-cache", "--format", "json", "."]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    found: Said = {}
    for row in json.loads(done.stdout):
        found.setdefault(row["path"].split(os.sep)[0], set()).add((row["rule"], row["message"]))
    return found


def laid_out(programs: list[dict[str, str]], folder: str) -> None:
    """Each program in a folder of its own, p0, p1 …"""
    for number, files in enumerate(programs):
        for name, text in files.items():
            path = Path(folder, f"p{number}", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def main() -> None:
    show = "--show" in sys.argv
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    commands = {name: words for name, words in linters(sys.argv[1]).items() if only in ("", name)}
    for kind, items in programs().items():
        print(f"{kind}, {len(items)} faults:")
        with tempfile.TemporaryDirectory() as faulty, tempfile.TemporaryDirectory() as healthy:
            laid_out([pair[0] for pair in items], faulty)
            laid_out([pair[1] for pair in items], healthy)
            for name in (*commands, "clew"):
                sides = [clew(at) if name == "clew" else said(commands[name], at) for at in (faulty, healthy)]
                new = {
                    program: {one for one in held - sides[1].get(program, set()) if counts(name, one[0])}
                    for program, held in sides[0].items()
                }
                spoken = [program for program, held in new.items() if held]
                noise = sum(len(held) for held in sides[1].values())
                print(
                    f"  {name:<12}{len(spoken):>4} spoken of, {noise} messages about the healthy versions", flush=True
                )
                for program in spoken if show and name != "clew" else ():
                    print(f"    {program}: {sorted(new[program])}")


def counts(name: str, code: str) -> bool:
    return name == "clew" or not BESIDE.match(code)


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    main()
