"""How long clew takes to start, as a ratio to `python -c pass`.

All commands are run in turn, round after round, so that whatever else the machine does touches them alike; the median
of each is compared with the median of the bare interpreter. The first start after the knowledge files changed, which
compiles them, is measured apart.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLEW = [str(Path(sys.executable).parent / "clew")]
BARE = [sys.executable, "-c", "pass"]
COMMANDS = {
    "python -c pass": BARE,
    "clew --help": [*CLEW, "--help"],
    "clew why loss.double_softmax": [*CLEW, "why", "loss.double_softmax"],
    "clew why loss stuck": [*CLEW, "why", "loss", "stuck"],
    "clew case show": [*CLEW, "case", "show"],
    "clew case next": [*CLEW, "case", "next"],
    "clew case log": [*CLEW, "case", "log"],
}


def once(command: list[str], folder: str, cache: str) -> float:
    environment = {**os.environ, "XDG_CACHE_HOME": cache, "NO_COLOR": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages have their bytecode
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    taken = time.perf_counter() - start
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr.decode()}")
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=25)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        cold = once(COMMANDS["clew why loss.double_softmax"], folder, cache)
        for words in (
            ["new", "val accuracy stuck at 10 %", "--domain", "vision"],
            ["clue", "metric_at_chance", "at_chance"],
        ):
            once([*CLEW, "case", *words], folder, cache)
        times: dict[str, list[float]] = {name: [] for name in COMMANDS}
        for _ in range(rounds):
            for name, command in COMMANDS.items():
                times[name].append(once(command, folder, cache))
    bare = statistics.median(times["python -c pass"])
    print(f"{'command':<32}{'median':>10}{'ratio':>8}")
    for name, taken in times.items():
        print(f"{name:<32}{1000 * statistics.median(taken):>7.1f} ms{statistics.median(taken) / bare:>7.1f}x")
    print(f"{'first start, compiling':<32}{1000 * cold:>7.1f} ms{cold / bare:>7.1f}x")


if __name__ == "__main__":
    main()
