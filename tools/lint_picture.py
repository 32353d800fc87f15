"""Draws docs/lint.svg: what `clew lint` really prints for three of the programs that it is tested on."""

import html
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from picture import COLUMN, MARGIN, ROW

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "lint"))

import lint_cases  # noqa: E402 - it stands beside the tests

SHOWN = ("softmax_other_file", "head_replaced_after_optimizer", "loss_kept_as_tensor")
STYLE = (
    "<style>text{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d7dee3;white-space:pre}"
    ".h{fill:#fff;font-weight:700}.p{fill:#7fd69b}.f{fill:#ff8a80}.d{fill:#8b98a1}</style>"
)


def output() -> str:
    held = {program.name: program for program in lint_cases.programs()}
    with tempfile.TemporaryDirectory() as folder:
        for name in SHOWN:
            for file, text in held[name].faulty.items():
                path = Path(folder, name, file)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        words = [sys.executable, "-m", "clew", "lint", "--no-cache", "."]
        settings = {**os.environ, "COLUMNS": "96", "NO_COLOR": "1"}
        done = subprocess.run(words, cwd=folder, env=settings, check=False, capture_output=True, text=True)
    return done.stdout


def kind(row: str) -> str:
    if re.match(r"^\S+:\d+:\d+  CLW", row):
        return "h"
    if re.match(r"^\s+\|\s+\^+$", row):
        return "f"
    return "d" if row.startswith("    ") and re.match(r"\s+(why:|fix:|     |\S+\.py:\d+:)", row) else ""


def picture(text: str) -> str:
    rows = ["$ clew lint .", *text.rstrip().splitlines()]
    wide = MARGIN * 2 + COLUMN * max(len(row) for row in rows)
    high = MARGIN * 2 + ROW * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high}" width="{wide:.0f}" height="{high}">',
        STYLE,
        f'<rect width="{wide:.0f}" height="{high}" rx="8" fill="#14191d"/>',
    ]
    for index, row in enumerate(rows):
        name = "p" if index == 0 else kind(row)
        y = MARGIN + ROW * (index + 0.8)
        parts.append(f'<text x="{MARGIN}" y="{y:.0f}" class="{name}" xml:space="preserve">{html.escape(row)}</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    (ROOT / "docs" / "lint.svg").write_text(picture(output()))
