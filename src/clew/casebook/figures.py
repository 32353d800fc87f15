"""What many trials show together."""

from typing import Any, NamedTuple

from clew.casebook.judge import Trial
from clew.casebook.tables import HEALTHY

BINS = 10


class Figures(NamedTuple):
    """Counts, and shares of them. `placed` are the faults that have a place; `sound` the healthy programs; `overhead`
    is the time under clew over the bare one."""

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


def figures(trials: list[Trial]) -> Figures:
    faulty = [trial for trial in trials if trial.item.cause != HEALTHY and not trial.left_out]
    sound = [trial for trial in trials if trial.item.cause == HEALTHY and not trial.left_out]
    named = [trial for trial in (*faulty, *sound) if trial.top]
    return Figures(
        len(faulty),
        sum(trial.alarmed for trial in faulty),
        sum(trial.right for trial in faulty),
        sum(1 <= trial.rank <= 3 for trial in faulty),
        sum(trial.localised is not None for trial in faulty),
        sum(trial.localised is True for trial in faulty),
        len(sound),
        sum(trial.alarmed for trial in sound),
        brier(named),
        calibration_error(named),
        overhead([*faulty, *sound]),
    )


def overhead(trials: list[Trial]) -> float:
    """How many times as long as the bare program the watched one takes, in the median; exams not counted."""
    ratios = sorted(
        trial.run_seconds / trial.bare_seconds for trial in trials if trial.run_seconds and trial.bare_seconds
    )
    return ratios[len(ratios) // 2] if ratios else 0.0


def brier(trials: list[Trial]) -> float:
    """The mean squared distance of the first cause's credence from whether it is the true one."""
    return sum((trial.credence - trial.right) ** 2 for trial in trials) / len(trials) if trials else 0.0


def calibration_error(trials: list[Trial]) -> float:
    """How far, on average, the credence of the first cause is from the share that is right at that credence."""
    bins: dict[int, list[Trial]] = {}
    for trial in trials:
        bins.setdefault(min(BINS - 1, int(trial.credence * BINS)), []).append(trial)
    gaps = (
        abs(sum(trial.credence for trial in group) - sum(trial.right for trial in group)) for group in bins.values()
    )
    return sum(gaps) / len(trials) if trials else 0.0


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


def to_json(trials: list[Trial]) -> dict[str, Any]:
    rows = []
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
        "trials": rows,
    }
