"""What many trials show together."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from clew.casebook.judge import Trial
from clew.casebook.tables import HEALTHY

BINS = 10


class Figures(NamedTuple):
    """Counts, and shares of them. `placed` are the faults that have a place; `sound` the healthy programs; `overhead`
    is the time under clew over the bare one; `spoken` counts the faults for which some clue spoke during the run, and
    `steps` is the median number of steps until the first one did. Credences hold that half of all runs are healthy, so
    healthy and faulty runs weigh alike in the Brier score and the calibration error, however many there are of each;
    `…_as_mixed` count every run once."""

    mutants: int
    detected: int
    first: int
    third: int
    placed: int
    localised: int
    sound: int
    alarms: int
    brier: float
    calibration_error: float
    overhead: float
    spoken: int = 0
    steps: int = 0
    brier_as_mixed: float = 0.0
    calibration_as_mixed: float = 0.0


class Bin(NamedTuple):
    """The trials whose first cause has a credence in one tenth: how many, their mean credence, the share right, and
    how much they weigh together."""

    low: float
    runs: int
    credence: float
    right: float
    weight: float


def figures(trials: list[Trial]) -> Figures:
    faulty = [trial for trial in trials if trial.item.cause != HEALTHY and not trial.left_out]
    sound = [trial for trial in trials if trial.item.cause == HEALTHY and not trial.left_out]
    named = counting(trials)
    return Figures(
        len(faulty),
        sum(trial.alarmed for trial in faulty),
        sum(trial.right for trial in faulty),
        sum(1 <= trial.rank <= 3 for trial in faulty),
        sum(trial.localised is not None for trial in faulty),
        sum(trial.localised is True for trial in faulty),
        len(sound),
        sum(trial.alarmed for trial in sound),
        brier(named, alike(named)),
        calibration_error(named, alike(named)),
        overhead([*faulty, *sound]),
        sum(trial.first_step is not None for trial in faulty),
        median([trial.first_step for trial in faulty if trial.first_step is not None]),
        brier(named),
        calibration_error(named),
    )


def median(values: list[int]) -> int:
    return sorted(values)[len(values) // 2] if values else 0


def overhead(trials: list[Trial]) -> float:
    """How many times as long as the bare program the watched one takes, in the median; exams not counted."""
    ratios = sorted(
        trial.run_seconds / trial.bare_seconds for trial in trials if trial.run_seconds and trial.bare_seconds
    )
    return ratios[len(ratios) // 2] if ratios else 0.0


def alike(trials: list[Trial]) -> list[float]:
    """Weights that make healthy and faulty trials count alike as groups; all 1 where one of them is missing."""
    sound = sum(trial.item.cause == HEALTHY for trial in trials)
    if not 0 < sound < len(trials):
        return [1.0] * len(trials)
    half = len(trials) / 2
    return [half / sound if trial.item.cause == HEALTHY else half / (len(trials) - sound) for trial in trials]


def brier(trials: list[Trial], weights: list[float] | None = None) -> float:
    """The mean squared distance of the first cause's credence from whether it is the true one."""
    weights = weights or [1.0] * len(trials)
    total = sum(weight * (trial.credence - trial.right) ** 2 for trial, weight in zip(trials, weights, strict=True))
    return total / sum(weights) if trials else 0.0


def calibration_error(trials: list[Trial], weights: list[float] | None = None) -> float:
    """How far, on average, the credence of the first cause is from the share that is right at that credence."""
    held = curve(trials, weights)
    return (
        sum(bin.weight * abs(bin.credence - bin.right) for bin in held) / sum(bin.weight for bin in held)
        if held
        else 0.0
    )


def curve(trials: list[Trial], weights: list[float] | None = None) -> list[Bin]:
    """Credence of the first cause against the share that is right, by tenths."""
    bins: dict[int, list[tuple[Trial, float]]] = {}
    for trial, weight in zip(trials, weights or [1.0] * len(trials), strict=True):
        bins.setdefault(min(BINS - 1, int(trial.credence * BINS)), []).append((trial, weight))
    found = []
    for key, group in sorted(bins.items()):
        total = sum(weight for _, weight in group)
        credence = sum(weight * trial.credence for trial, weight in group) / total
        right = sum(weight * trial.right for trial, weight in group) / total
        found.append(Bin(key / BINS, len(group), credence, right, total))
    return found


def counting(trials: list[Trial]) -> list[Trial]:
    """Those that count, and in which something was named."""
    return [trial for trial in trials if trial.top and not trial.left_out]


def groups(trials: list[Trial]) -> dict[str, list[Trial]]:
    """The faulty ones that count, by family and by where the fault sits."""
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.item.cause != HEALTHY and not trial.left_out:
            found.setdefault(trial.item.family, []).append(trial)
    for place in ("script", "package", "config", "data"):
        inside = [trial for group in list(found.values()) for trial in group if trial.item.place == place]
        if inside:
            found[f"in {place}"] = list(dict.fromkeys(inside))
    return found


def missed(trial: Trial) -> str:
    """In which way a trial went wrong; empty when it did not."""
    if trial.left_out:
        return ""
    if trial.error:
        return "clew gave no answer"
    if trial.item.cause == HEALTHY:
        return "false alarm" if trial.alarmed else ""
    if not trial.alarmed:
        return "not detected"
    if not 1 <= trial.rank <= 3:
        return "another cause"
    if not trial.right:
        return f"only rank {trial.rank}"
    return "right cause, wrong place" if trial.localised is False else ""


def matrix(trials: list[Trial]) -> list[list[str]]:
    """Families that are true, in rows, against families that were named first, in columns; empty where none was."""
    counts: dict[tuple[str, str], int] = {}
    for trial in trials:
        if not trial.left_out and not trial.error:
            named = trial.item.family if trial.right else trial.top.split(".")[0]
            counts[trial.item.family, named] = counts.get((trial.item.family, named), 0) + 1
    names = sorted({name for pair in counts for name in pair})
    rows = [[true, *(str(counts.get((true, named), "")) for named in names)] for true in names]
    return [["true, named", *names], *(row for row in rows if any(row[1:]))]


def to_json(trials: list[Trial], ways: Mapping[str, list[Trial]] | None = None) -> dict[str, Any]:
    rows = []
    named = counting(trials)
    for trial in trials:
        row = trial._asdict()
        item = row.pop("item")
        row |= {"id": item.id, "program": item.program, "cause": item.cause, "place": item.place}
        rows.append(row | {"missed": missed(trial)})
    return {
        "schema": "clew/1",
        "command": "casebook run",
        "figures": figures(trials)._asdict(),
        "by": {name: figures(group)._asdict() for name, group in groups(trials).items()},
        "ways": {name: figures(group)._asdict() for name, group in (ways or {}).items()},
        "calibration": [held._asdict() for held in curve(named, alike(named))],
        "trials": rows,
    }
