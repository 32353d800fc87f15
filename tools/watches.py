"""Does every watch see the same alone as beside all others, and with a step kept for exams as without one?

python tools/watches.py [--program NAME]… [--watch TEST]… [--some N]    exit 1 where an answer or a place differs

Each program of the casebook runs for a few steps, sound and with its first fault, in a forked process each time.
Without options it takes all programs that one plain process trains, and all watches: some hours. `--some N` takes N
watches alone on each program, others on the next; with and without a kept step all of them are compared anyway.
"""

import argparse
import os
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any
from zlib import crc32

import torch

from clew.casebook.tables import Fault, Program, faults, healthy, programs
from clew.casebook.work import Options, prepared, words_of, workplace
from clew.observe import registry, start
from clew.observe.watch import Watch
from clew.records import exact

STEPS = 40
TIMED = frozenset({"step_time_trend", "loader_wait_share", "memory_trend"})
Answers = dict[str, Any]


def answers(place: str, words: list[str], watches: list[type[Watch]], capture: bool) -> Answers:
    """What the watches say of a script, in a process of its own."""
    with tempfile.TemporaryDirectory() as out:
        child = os.fork()
        if not child:
            observe(place, words, watches, capture, out)
        os.waitpid(child, 0)
        found = sorted(Path(out).glob(f"answers-{child}.json"))
        held = exact.loads(found[0].read_text())["answers"] if found else []
        return {answer["test"]: answer for answer in held}


def observe(place: str, words: list[str], watches: list[type[Watch]], capture: bool, out: str) -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    os.chdir(place)
    os.environ.update(CLEW_STEPS=str(STEPS), CLEW_CAPTURE="1" if capture else "", PYTHONDONTWRITEBYTECODE="1")
    sys.path.insert(0, place)
    sys.argv = list(words)
    registry.all_watches = lambda: (watches, [])
    session = start.Session(out)
    session.imported("torch", torch)
    sys.meta_path.insert(0, start.AfterImport(start.WAITED_FOR[1:], session.imported))
    try:
        runpy.run_path(words[0], run_name="__main__")
    finally:
        session.end()
        os._exit(0)


def differences(item: Fault, program: Program, tests: list[str], some: int, options: Options) -> list[str]:
    launcher, words = words_of(program, 0)
    if launcher != "python":
        return []
    place = workplace(item, prepared(program, options), options, item.id)
    watches = registry.all_watches()[0]
    whole = answers(place, words, watches, True)
    untimed = [watch for watch in watches if watch.test not in TIMED]
    chosen = [watch for watch in untimed if not tests or watch.test in tests]
    chosen = sorted(chosen, key=lambda held: crc32(f"{item.id} {held.test}".encode()))[: some or None]
    if not whole:
        return [f"{item.id}: nothing was seen at all"]
    plain = answers(place, words, watches, False)
    told = [f"{item.id}: {held.test} without a kept step" for held in untimed if plain[held.test] != whole[held.test]]
    alone = {held.test: answers(place, words, [held], False).get(held.test) for held in chosen}
    return told + [f"{item.id}: {test} alone" for test, answer in alone.items() if answer != whole[test]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", action="append", default=[], choices=sorted(programs()))
    parser.add_argument("--watch", action="append", default=[])
    parser.add_argument("--some", type=int, default=0, metavar="N")
    given = parser.parse_args()
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in given.program or programs():
            first = next((item for item in faults() if item.program == name), None)
            for item in (healthy(name), first):
                if item is not None:
                    for line in differences(item, programs()[name], given.watch, given.some, Options(folder)):
                        print(line, flush=True)
                        found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
