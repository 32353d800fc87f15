"""How long it takes to weigh a large case anew: 100 causes, 100 tests, 1,000 clues, and to choose the next test.

The ratio is to one pass of bare Python arithmetic over as many numbers as the weighing must look at (clues x causes).
"""

import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from clew.case.choose import choose
from clew.case.weigh import ORDINARY, weigh
from clew.records.clue import Clue
from small import cause, knowledge, observation

FAMILIES = ["data", "loss", "train", "arch", "hp", "num", "env"]


def median(run: Callable[[], object], rounds: int = 9) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    chance = random.Random(0)
    names = [f"{FAMILIES[index % 7]}.c{index}" for index in range(100)]

    def row() -> tuple[float, ...]:
        seen = chance.uniform(0.05, 0.95)
        return seen, 1.0 - seen

    tests = [
        observation(f"t{index}", {name: row() for name in chance.sample(names, 20)}, reads=f"channel {index % 20}")
        for index in range(100)
    ]
    base = knowledge([cause(name) for name in names], tests)
    clues = [
        Clue(
            f"t{chance.randrange(100)}", chance.choice(["seen", "absent"]), reads=(f"reading {index}",), says=str(index)
        )
        for index in range(1000)
    ]
    numbers = [chance.random() for _ in range(1000 * len(names))]
    bare = median(lambda: sum(value * 1.5 for value in numbers))
    weighing = median(lambda: weigh(base, clues))
    some = clues[:50]
    choosing = median(lambda: choose(base, weigh(base, some), some, ORDINARY))
    print(f"one pass over {len(numbers):,} numbers  {1000 * bare:6.1f} ms")
    print(f"weigh 1,000 clues              {1000 * weighing:6.1f} ms  {weighing / bare:5.1f}x")
    print(f"weigh 50 clues and choose      {1000 * choosing:6.1f} ms  {choosing / bare:5.1f}x")


if __name__ == "__main__":
    main()
