"""The result of the casebook, for the terminal and as a page."""

from clew.casebook.figures import Figures, figures, groups, missed
from clew.casebook.judge import Trial
from clew.casebook.tables import HEALTHY


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def table_rows(trials: list[Trial]) -> list[list[str]]:
    rows = [["", "faults", "detected", "first", "in three", "place"]]
    everything = {"all": [trial for trial in trials if trial.item.cause != HEALTHY]}
    for name, group in {**everything, **groups(trials)}.items():
        seen = figures(group)
        rows.append(
            [
                name,
                str(seen.mutants),
                share(seen.detected, seen.mutants),
                share(seen.first, seen.mutants),
                share(seen.third, seen.mutants),
                share(seen.localised, seen.placed),
            ]
        )
    return rows


def rest(seen: Figures) -> str:
    said = f"Brier score {seen.brier:.3f}, calibration error {seen.calibration_error:.3f}"
    if seen.sound:
        said = f"false alarms on {seen.alarms} of {seen.sound} healthy runs; {said}"
    if seen.overhead:
        said += f"; watched runs take {seen.overhead:.2f} times as long"
    return said[0].upper() + said[1:] + "."


def text(trials: list[Trial]) -> str:
    rows = table_rows(trials)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
    lines += ["", rest(figures(trials))]
    wrong = [trial for trial in trials if missed(trial)]
    if wrong:
        lines += ["", f"{len(wrong)} missed:"]
        lines += (f"  {trial.item.id}: {account(trial)}" for trial in sorted(wrong, key=missed))
    out = [trial for trial in trials if trial.left_out]
    if out:
        lines += ["", f"{len(out)} left out:"]
        lines += (f"  {trial.item.id}: {trial.left_out}{shown(trial)}" for trial in out)
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
    return f"{said}{shown(trial)}{f' ({trial.error[-120:]})' if trial.error else ''}"


def shown(trial: Trial) -> str:
    if trial.figure is None:
        return ""
    return f" [{trial.figure:.4g}" + (f", sound {trial.sound:.4g}]" if trial.sound is not None else "]")


def markdown(trials: list[Trial], version: str) -> str:
    """The page: figures, confusions, misses, what was left out."""
    rows = table_rows(trials)
    lines = ["# The casebook", "", f"Source of clew: `{version}`.", ""]
    lines += _table(rows)
    lines += ["", rest(figures(trials)), "", "## Confusions", "", "True cause, and what was named first instead.", ""]
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
            ["fault", "cause", "verdict", "first", "credence", "rank", "place", "seconds"],
            *(
                [
                    trial.item.id,
                    trial.item.cause,
                    trial.verdict,
                    trial.top,
                    f"{trial.credence:.2f}",
                    str(trial.rank),
                    {True: "right", False: "wrong", None: ""}[trial.localised],
                    f"{trial.seconds:.0f}",
                ]
                for trial in trials
                if not trial.left_out
            ),
        ]
    )
    return "\n".join(lines) + "\n"


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
