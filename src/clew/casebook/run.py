"""The whole examination: every chosen fault, in parallel, with what is known already taken from where it is kept."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from clew.casebook.judge import Record, Trial, record, trial_of
from clew.casebook.tables import HEALTHY, Fault, faults, healthy, programs
from clew.casebook.work import NotRun, Options, clew_digest
from clew.errors import ClewError
from clew.knowledge.base import load

NOT_RUN = "not run yet"
Tell = Callable[[Trial, int, int], None]


def everything(seeds: int = 1) -> list[tuple[Fault, int]]:
    """Every fault once, and every healthy program with each seed."""
    sound = [(healthy(name), seed) for name in programs() for seed in range(seeds)]
    return [*((item, 0) for item in faults()), *sound]


def examine(work: list[tuple[Fault, int]], jobs: int, options: Options, tell: Tell | None = None) -> list[Record]:
    """Try each, cheapest programs first; the result is in that order."""
    known = programs()
    knowledge = load()
    version = clew_digest()
    work = sorted(
        work, key=lambda entry: (known[entry[0].program].seconds, entry[0].program, entry[0].cause == HEALTHY)
    )
    done: list[Record] = []

    def one(entry: tuple[Fault, int]) -> Record:
        item, seed = entry
        try:
            result = record(item, known[item.program], seed, options, version)
        except NotRun:
            result = Record(Trial(item, seed, NOT_RUN, "", None, None))
        except ClewError as error:
            result = Record(Trial(item, seed, str(error), "", None, None))
        done.append(result)
        if tell is not None:
            tell(trial_of(result, knowledge), len(done), len(work))
        return result

    pool = ThreadPoolExecutor(max_workers=jobs)
    try:
        return list(pool.map(one, work))
    finally:
        # Interrupted: what has begun ends, nothing new begins.
        pool.shutdown(cancel_futures=True)
