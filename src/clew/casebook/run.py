"""The whole examination: every chosen fault, in parallel, with what is known already taken from where it is kept."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from clew.casebook.judge import Trial, trial
from clew.casebook.tables import HEALTHY, Fault, faults, healthy, programs
from clew.casebook.work import Options, clew_digest
from clew.errors import ClewError

Tell = Callable[[Trial, int, int], None]


def everything(seeds: int = 1) -> list[tuple[Fault, int]]:
    """Every fault once, and every healthy program with each seed."""
    sound = [(healthy(name), seed) for name in programs() for seed in range(seeds)]
    return [*((item, 0) for item in faults()), *sound]


def examine(work: list[tuple[Fault, int]], jobs: int, options: Options, tell: Tell | None = None) -> list[Trial]:
    """Try each, cheapest programs first; the result is in that order."""
    known = programs()
    version = clew_digest()
    work = sorted(
        work, key=lambda entry: (known[entry[0].program].seconds, entry[0].program, entry[0].cause == HEALTHY)
    )
    done: list[Trial] = []

    def one(entry: tuple[Fault, int]) -> Trial:
        item, seed = entry
        try:
            result = trial(item, known[item.program], seed, options, version)
        except ClewError as error:
            result = Trial(item, seed, str(error), "", None, None)
        done.append(result)
        if tell is not None:
            tell(result, len(done), len(work))
        return result

    pool = ThreadPoolExecutor(max_workers=jobs)
    try:
        return list(pool.map(one, work))
    finally:
        # Interrupted: what has begun ends, nothing new begins.
        pool.shutdown(cancel_futures=True)
