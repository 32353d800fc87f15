"""The same command a second time: are the losses the same, bit for bit?"""

import math

from clew.archive import runs
from clew.archive.model import Run
from clew.case.clues import answered, unclear
from clew.knowledge.model import Knowledge
from clew.observe.collect import Process, processes
from clew.observe.launch import Ended, launch
from clew.records.clue import Clue, Reading, Unclear
from clew.records.trace import Series

TEST = "same_seed_repeat"


def repeat(
    knowledge: Knowledge, first: Run, command: list[str], script: str, ended: Ended, parts: list[Process], sample: str
) -> Clue:
    """Run the command again for as many steps as it made, and compare. The second run is kept like the first."""
    test = knowledge.tests[TEST]
    steps = max((part.steps for part in parts), default=0)
    if ended.status or not steps:
        why = "made no optimiser step" if not ended.status else f"ended with status {ended.status}"
        return unclear(test, f"the first run {why}, so it was not run again", "exam")
    held = runs.begin(command, ".", script, rerun_of=first.id)
    again = launch(command, held.folder, steps, sample)
    others = processes(held.folder)
    runs.finish(held, again.status, signal=again.signal, seconds=again.seconds, steps=steps, verdict="")
    answer, says = compare(parts, others)
    reproduce = f"clew run --twice {script}"
    if isinstance(answer, Unclear):
        return unclear(test, answer.why, "exam", reproduce)
    return answered(test, answer.measured, says=says, source="exam", reproduce=reproduce)


def compare(parts: list[Process], others: list[Process]) -> tuple[Reading | Unclear, str]:
    """The losses of two runs, rank by rank and line by line, and a sentence about them."""
    ours, theirs = _losses(parts), _losses(others)
    if not ours or set(ours) != set(theirs):
        return Unclear("the two runs recorded different losses, or none"), ""
    worst, count = 0.0, 0
    first: tuple[int, float, float] | None = None
    for key, line in ours.items():
        pairs = list(zip(line.steps, line.values, theirs[key].values, strict=False))
        count += len(pairs)
        for step, one, other in pairs:
            apart = _apart(one, other)
            if apart and (first is None or step < first[0]):
                first = (step, one, other)
            worst = max(worst, apart)
    if first is None:
        same = f"all {count} losses of a second run are bit-identical"
        return Reading(largest_relative_difference_of_losses=0.0, losses=count), same
    step, one, other = first
    begin = "so the model or its first batch differs" if step == 0 else f"{step} step{'s' * (step != 1)} were the same"
    says = f"the losses of two runs differ from step {step}: {one:.9g} and {other:.9g}; {begin}"
    return Reading(largest_relative_difference_of_losses=worst, first_differing_step=step, losses=count), says


def _losses(parts: list[Process]) -> dict[tuple[int, str], Series]:
    """By rank and line of backward; of processes without ranks, those that trained first."""
    found: dict[tuple[int, str], Series] = {}
    for part in parts:
        for (name, of), line in part.series.items():
            if name == "loss":
                found.setdefault((part.rank, of), line)
    return found


def _apart(one: float, other: float) -> float:
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    if not (math.isfinite(one) and math.isfinite(other)):
        return math.inf
    return abs(one - other) / max(abs(one), abs(other))
