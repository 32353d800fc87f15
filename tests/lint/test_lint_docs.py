"""The page about the linter says what the rules' own files say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_list_of_rules_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools" / "lint_docs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
