"""Draws docs/run.svg: what `clew run` really prints for the example, as a picture for the README."""

import html
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROW, COLUMN, MARGIN = 17, 7.8, 18


def output() -> str:
    clew = str(Path(sys.executable).parent / "clew")
    with tempfile.TemporaryDirectory() as folder:
        held = {**os.environ, "COLUMNS": "88", "NO_COLOR": "1", "CLEW_HOME": f"{folder}/.clew", "OMP_NUM_THREADS": "1"}
        command = [clew, "run", "spirals.py"]
        done = subprocess.run(command, cwd=ROOT / "examples", env=held, check=True, capture_output=True, text=True)
    return done.stdout.partition("\nHTML report")[0]


def picture(text: str) -> str:
    rows = ["$ clew run spirals.py", *text.rstrip().splitlines()]
    wide = MARGIN * 2 + COLUMN * max(len(row) for row in rows)
    high = MARGIN * 2 + ROW * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high}" width="{wide:.0f}" height="{high}">',
        "<style>text{font:13px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d7dee3;white-space:pre}"
        ".h{fill:#fff;font-weight:700}.p{fill:#7fd69b}.f{fill:#ff8a80;font-weight:700}</style>",
        f'<rect width="{wide:.0f}" height="{high}" rx="8" fill="#14191d"/>',
    ]
    for index, row in enumerate(rows):
        y = MARGIN + ROW * (index + 0.8)
        kind = _kind(rows, index)
        parts.append(f'<text x="{MARGIN}" y="{y:.0f}" class="{kind}" xml:space="preserve">{html.escape(row)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _kind(rows: list[str], index: int) -> str:
    """As at a terminal: the command, the verdict, and the headline of a finding, which may run on, stand out."""
    row = rows[index]
    if index == 0:
        return "p"
    if row.startswith("FAULT") or set(row.strip()) == {"~"}:
        return "f"
    head = "spirals.py:"
    return "h" if row.startswith(head) or (row[:1].strip() and rows[index - 1].startswith(head)) else ""


if __name__ == "__main__":
    (ROOT / "docs" / "run.svg").write_text(picture(output()))
