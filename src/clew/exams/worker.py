"""Makes the exams of a run in a process of its own: python -m clew.exams.worker FOLDER UNTIL DOMAIN.

Whatever an experiment does to its process (memory, threads, a crash in native code) stays there. It reads the clues of
the run from FOLDER/observed.json and says on standard output, one JSON value per line, what is planned, how far it is,
and what it found.
"""

import sys
import time
from typing import Any

from clew.archive.model import OBSERVED
from clew.errors import ClewError
from clew.exams.captured import captured
from clew.exams.plan import Examined, Options, Plan, Progress, examine, make_plan
from clew.knowledge.base import load
from clew.records import exact
from clew.records.clue import Clue


def main(folder: str, until: float, domain: str) -> int:
    """`until` by the monotonic clock, so that the time to start counts."""
    knowledge = load()
    with open(f"{folder}/{OBSERVED}", encoding="ascii") as file:
        clues = [Clue.from_json(table) for table in exact.loads(file.read())]
    try:
        subject = captured(folder)
    except ClewError as error:
        say({"notes": [str(error)]})
        return 0
    options = Options(domain=domain, keep=f"{folder}/exams", reproduce=f"clew exam {folder.rpartition('/')[2]} --only ")
    budget = max(0.0, until - time.monotonic())
    plan = make_plan(subject, knowledge, clues, budget, options)
    budget = max(0.0, until - time.monotonic())
    say({"plan": [[item.exam.name, item.seconds] for item in plan.first], "seconds": plan.seconds})
    done = examine(subject, knowledge, clues, budget, tell, options, plan)
    say({"ended": done.ended, "seconds": done.seconds, "made": len(done.sats), "notes": notes(plan, subject.parts())})
    say({"skipped": skipped(done), "left_out": done.left_out(subject)})
    return 0


def tell(progress: Progress) -> None:
    name = progress.planned.exam.name
    if progress.clue is None:
        say({"at": name, "share": progress.share})
    else:
        say({"made": name, "clue": progress.clue.to_json(), "took": progress.took})


def notes(plan: Plan, parts: list[str]) -> list[str]:
    return ([plan.untrue] if plan.untrue else []) + parts


def skipped(done: Examined) -> list[list[str]]:
    return [[item.exam.name, item.why] for item in done.skipped]


def say(table: dict[str, Any]) -> None:
    sys.stdout.write(exact.dumps(table) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), sys.argv[3]))
