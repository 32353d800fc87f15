"""The result of the casebook, for the terminal and as a page."""

from collections.abc import Mapping

from clew.casebook.figures import Figures, alike, counting, curve, figures, groups, matrix, missed
from clew.casebook.fit import Choice
from clew.casebook.judge import Trial
from clew.casebook.run import NOT_RUN
from clew.casebook.tables import HEALTHY

HEAD = ["", "faults", "detected", "first", "in three", "place", "steps"]


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def table_rows(trials: list[Trial]) -> list[list[str]]:
    rows = [HEAD]
    everything = {"all": [trial for trial in trials if trial.item.cause != HEALTHY]}
    for name, group in {**everything, **groups(trials)}.items():
        rows.append(row_of(name, figures(group)))
    return rows


def row_of(name: str, seen: Figures) -> list[str]:
    return [
        name,
        str(seen.mutants),
        share(seen.detected, seen.mutants),
        share(seen.first, seen.mutants),
        share(seen.third, seen.mutants),
        share(seen.localised, seen.placed),
        str(seen.steps) if seen.spoken else "-",
    ]


def way_rows(ways: Mapping[str, list[Trial]]) -> list[list[str]]:
    """One row for each way of looking, with what it costs in false alarms."""
    rows = [[*HEAD, "false alarms", "Brier", "calibration error"]]
    for name, trials in ways.items():
        seen = figures(trials)
        alarms = f"{seen.alarms} of {seen.sound}" if seen.sound else "-"
        rows.append([*row_of(name, seen), alarms, f"{seen.brier:.3f}", f"{seen.calibration_error:.3f}"])
    return rows


def columns(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def rest(seen: Figures) -> str:
    said = f"Brier score {seen.brier:.3f}, calibration error {seen.calibration_error:.3f}"
    if seen.sound and seen.mutants:
        said += (
            f" with healthy and faulty runs weighing alike ({seen.brier_as_mixed:.3f} and "
            f"{seen.calibration_as_mixed:.3f} with every run counting once)"
        )
    if seen.sound:
        said = f"false alarms on {seen.alarms} of {seen.sound} healthy runs; {said}"
    if seen.spoken:
        said += (
            f"; a clue speaks for the true cause after {seen.steps} steps in the median, in {seen.spoken} of the runs"
        )
    if seen.overhead:
        said += f"; watched runs take {seen.overhead:.2f} times as long"
    return said[0].upper() + said[1:] + "."


def chosen_by(choice: Choice) -> str:
    """How the two numbers of the table were chosen."""
    strengths = ", ".join(f"{key:g}: {-score:.3f}" for key, score in choice.strengths.items())
    tempers = ", ".join(f"{key:g}: {-score:.3f}" for key, score in choice.tempers.items())
    return (
        f"An expert's guess counts as {choice.strength:g} programs (mean Brier score {strengths}).\n"
        f"Credences are raised to the power {choice.temper:g} (mean Brier score {tempers})."
    )


def text(trials: list[Trial], ways: Mapping[str, list[Trial]] | None = None) -> str:
    lines = columns(table_rows(trials))
    lines += ["", rest(figures(trials))]
    if ways:
        lines += ["", *columns(way_rows(ways))]
    wrong = [trial for trial in trials if missed(trial)]
    if wrong:
        lines += ["", f"{len(wrong)} missed:"]
        lines += (f"  {trial.item.id}: {account(trial)}" for trial in sorted(wrong, key=missed))
    out = [trial for trial in trials if trial.left_out]
    if out:
        lines += ["", f"{len(out)} left out:"]
        unrun = sum(trial.left_out == NOT_RUN for trial in out)
        lines += [f"  {unrun} {NOT_RUN}"] if unrun else []
        lines += (f"  {trial.item.id}: {trial.left_out}{shown(trial)}" for trial in out if trial.left_out != NOT_RUN)
    return "\n".join(lines)


def account(trial: Trial) -> str:
    """What went wrong with a trial, in one line."""
    said = f"{missed(trial)}; {trial.verdict or 'no verdict'}"
    if trial.top:
        said += f", {trial.top} {trial.credence:.2f}"
    if trial.rank > 1:
        said += f", the true one at {trial.rank}"
    if trial.where:
        said += f", at {', '.join(trial.where)}"
    said += f"{shown(trial)}{f' ({trial.error[-120:]})' if trial.error else ''}"
    return f"{said}; {trial.reason}" if trial.reason else said


def shown(trial: Trial) -> str:
    if trial.figure is None:
        return ""
    return f" [{trial.figure:.4g}" + (f", sound {trial.sound:.4g}]" if trial.sound is not None else "]")


def markdown(trials: list[Trial], version: str, ways: Mapping[str, list[Trial]] | None = None) -> str:
    """The page: figures, calibration, confusions, misses, what was left out."""
    lines = ["# The casebook", "", f"Source of clew: `{version}`.", ""]
    lines += _table(table_rows(trials))
    lines += ["", rest(figures(trials))]
    if ways:
        lines += ["", "## Ways of looking", ""]
        lines += _table(way_rows(ways))
    lines += ["", "## Calibration", "", "Credence of the cause named first, and how often it is the true one.", ""]
    lines += _table(curve_rows(trials))
    lines += ["", "## Families", "", "The true family in rows, the family named first in columns.", ""]
    lines += _table(matrix(trials))
    lines += ["", "## Confusions", "", "True cause, and what was named first instead.", ""]
    lines += _table(confusions(trials))
    lines += ["", "## Missed", ""]
    lines += _table(
        [
            ["fault", "true cause", "sits in", "what happened"],
            *(
                [trial.item.id, trial.item.cause, trial.item.place, account(trial)]
                for trial in sorted(trials, key=missed)
                if missed(trial)
            ),
        ]
    )
    lines += ["", "## Left out", ""]
    lines += _table([["fault", "why"], *([trial.item.id, trial.left_out] for trial in trials if trial.left_out)])
    lines += ["", "## All", ""]
    lines += _table(
        [
            ["fault", "cause", "seed", "verdict", "first", "credence", "rank", "place", "clue after", "seconds"],
            *(
                [
                    trial.item.id,
                    trial.item.cause,
                    str(trial.seed),
                    trial.verdict,
                    trial.top,
                    f"{trial.credence:.2f}",
                    str(trial.rank),
                    {True: "right", False: "wrong", None: ""}[trial.localised],
                    "" if trial.first_step is None else str(trial.first_step),
                    f"{trial.seconds:.0f}",
                ]
                for trial in trials
                if not trial.left_out
            ),
        ]
    )
    return "\n".join(lines) + "\n"


def curve_rows(trials: list[Trial]) -> list[list[str]]:
    rows = [["credence", "runs", "mean credence", "right", ""]]
    named = counting(trials)
    for held in curve(named, alike(named)):
        bar = "#" * round(20 * held.right) + "." * (20 - round(20 * held.right))
        between = f"{held.low:.1f} to {held.low + 0.1:.1f}"
        rows.append([between, str(held.runs), f"{held.credence:.2f}", f"{held.right:.2f}", f"`{bar}`"])
    return rows


def confusions(trials: list[Trial]) -> list[list[str]]:
    counts: dict[tuple[str, str], int] = {}
    for trial in trials:
        if not trial.left_out:
            named = trial.item.cause if trial.right else trial.top or "nothing"
            counts[trial.item.cause, named] = counts.get((trial.item.cause, named), 0) + 1
    rows = [["true", "right", "named instead"]]
    for cause in sorted({true for true, _ in counts}):
        others = sorted(((count, named) for (true, named), count in counts.items() if true == cause != named))
        wrong = ", ".join(f"{named} ({count})" for count, named in reversed(others))
        total = sum(count for (true, _), count in counts.items() if true == cause)
        rows.append([cause, f"{counts.get((cause, cause), 0)} of {total}", wrong])
    return rows


def _table(rows: list[list[str]]) -> list[str]:
    head, *body = ([cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows)
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body)]
