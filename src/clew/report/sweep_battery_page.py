"""A battery of tasks against its baseline, as plain values and as text."""

from typing import NamedTuple

from clew.report.text import BLUE, BOLD, DIM, GREEN, RED, YELLOW, Page

COLOURS = {
    "regressed": RED,
    "crashed_runs": RED,
    "improved": GREEN,
    "no_change": BLUE,
    "too_few_seeds": YELLOW,
    "no_baseline": YELLOW,
}
ORDER = ("crashed_runs", "regressed", "no_baseline", "too_few_seeds", "improved", "no_change")


class TaskRow(NamedTuple):
    """One task. `difference` is now less the baseline over the seeds both have, above zero better, with its t interval.

    `p_adjusted` allows for the number of tasks; `results` and `before` are by seed, None where a run crashed.
    """

    task: str
    verdict: str
    says: str
    n_seeds: int
    crashed: int
    crashed_before: int
    mean: float | None
    mean_before: float | None
    difference: float | None
    ci: tuple[float, float] | None
    p: float | None
    p_adjusted: float | None
    results: dict[str, float | None]
    before: dict[str, float | None]


class BatteryView(NamedTuple):
    name: str
    metric: str
    goal: str
    group: str
    baseline: str
    made: str
    same_code: bool | None
    tasks: tuple[TaskRow, ...]
    verdict: str
    says: str
    test: str
    notes: tuple[str, ...]


def battery_page(view: BatteryView, page: Page) -> Page:
    better = "larger is better" if view.goal == "max" else "smaller is better"
    page.say(f"{view.name}: {view.metric} over {len(view.tasks)} tasks, {better}.", 0, "", BOLD)
    page.say(f"{view.group} against {view.baseline}{f', made {view.made}' if view.made else ''}", 0, "", DIM)
    for note in view.notes:
        page.say(note, 0, "Note: ", DIM)
    page.line()
    word = view.verdict.replace("_", " ").upper()
    page.line("  " + page.paint(word, COLOURS.get(view.verdict, BLUE), BOLD))
    page.say(view.says, 2)
    width = min(24, max([4, *(len(row.task) for row in view.tasks)]))
    heads = f"{'seeds':>5} {'before':>9} {'now':>9} {'diff':>9} {'95 %':>20} {'p adj':>7}"
    page.line(f"    {'task':<{width}} {heads}  verdict", DIM)
    for row in view.tasks:
        ci = f"{row.ci[0]:.4g} to {row.ci[1]:.4g}" if row.ci else "-"
        p = "-" if row.p_adjusted is None else "<.001" if row.p_adjusted < 0.001 else f"{row.p_adjusted:.3f}"
        figures = " ".join(f"{_short(one):>9}" for one in (row.mean_before, row.mean, row.difference))
        crashed = f", {row.crashed} crashed" if row.crashed else ""
        verdict = page.paint(row.verdict.replace("_", " "), COLOURS.get(row.verdict, BLUE))
        page.line(f"    {row.task[:width]:<{width}} {row.n_seeds:>5} {figures} {ci:>20} {p:>7}  {verdict}{crashed}")
    for row in view.tasks:
        if row.says:
            page.say(row.says, 4, f"{row.task}: ", DIM if row.verdict == "no_change" else "")
    if view.test:
        page.say(view.test, 2, "test: ", DIM)
    return page


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
