"""A judged sweep as text for a terminal: the verdict first, then the table it rests on."""

import math

from clew.report.sweep_view import GroupView, ParamView, SweepView, ValueRow
from clew.report.text import BLUE, BOLD, DIM, GREEN, RED, YELLOW, Page, number

COLOURS = {
    "reliable_better": GREEN,
    "dose_response": GREEN,
    "no_effect": BLUE,
    "too_few_seeds": YELLOW,
    "multiple_comparisons": YELLOW,
    "lucky_seed": YELLOW,
    "confounded": RED,
    "crashed_runs": RED,
}
MOST_ROWS = 40
MOST_GROUPS = 30


def sweep_page(view: SweepView, page: Page) -> Page:
    better = "larger is better" if view.goal == "max" else "smaller is better"
    page.say(f"{view.metric} in {view.source}: {better} ({view.goal_why}).", 0, "", BOLD)
    for note in view.notes:
        page.say(note, 0, "Note: ", DIM)
    for group in view.groups[:MOST_GROUPS]:
        _group(group, page)
    if len(view.groups) > MOST_GROUPS:
        page.line()
        page.say(f"{len(view.groups) - MOST_GROUPS} more groups are in the file that --json writes.", 0, "", DIM)
    page.line()
    page.say(
        "diff: mean lead over the other values of the same seed, above zero better, with its 95 % t interval. p adj: "
        "rearranged within seeds, adjusted for looking at all values; it decides. z and t: the plain recipe, which "
        "finds something in 25 to 40 % of sweeps of pure noise.",
        0,
        "",
        DIM,
    )
    return page


def _group(group: GroupView, page: Page) -> None:
    crashed = f", {group.crashed} crashed" if group.crashed else ""
    page.head(f"{group.group}: {group.n_runs} runs, {group.n_seeds} seeds{crashed}")
    if not group.params:
        page.say("Nothing varies in this group.", 2, "", DIM)
    for item in group.warnings:
        page.say(item.says, 2, "- ", DIM)
    for param in group.params:
        page.line()
        _param(param, page)


def _param(param: ParamView, page: Page) -> None:
    word = param.verdict.replace("_", " ").upper()
    page.say(param.says, 2, "")
    first = len(page.lines) - 1
    while first and page.lines[first - 1].startswith("  ") and page.lines[first - 1].strip():
        first -= 1
    page.lines.insert(first, "  " + page.paint(f"{param.name}: {word}", COLOURS.get(param.verdict, BLUE), BOLD))
    more = [name.replace("_", " ") for name in param.verdicts[1:]]
    if more:
        page.say(", ".join(more), 2, "also: ", DIM)
    width = max([len(param.name), *(len(number(row.value)) for row in param.values)])
    width = min(width, 24)
    heads = f"{'mean':>9} {'q10':>9} {'q90':>9} {'diff':>9} {'95 %':>20} {'z':>6} {'t':>6} {'p adj':>7}"
    page.line(f"    {param.name[:width]:<{width}} {'seeds':>5} {heads}", DIM)
    for row in param.values[:MOST_ROWS]:
        page.line(f"  {_mark(param, row)} {number(row.value)[:width]:<{width}} {_figures(row)}")
    if len(param.values) > MOST_ROWS:
        page.say(f"{len(param.values) - MOST_ROWS} more values", 4, "", DIM)
    if param.trend:
        held = param.trend
        by = f"log {param.name}" if held.log else param.name
        page.say(
            f"r {held.r:+.2f}, Spearman {held.spearman:+.2f} (means over seeds); per-seed slopes in {by}: "
            + (f"t {number(held.t)}, " if math.isfinite(held.t) else "")
            + f"p {'< 0.001' if held.p < 0.001 else f'{held.p:.3f}'}; {held.shape}"
            + (f" at {number(held.peak)}" if held.peak is not None else ""),
            4,
            "trend: ",
        )
    if param.omnibus is not None:
        page.say(f"any difference: p {param.omnibus:.4f}; {param.test}", 4, "test: ", DIM)
    for item in param.warnings:
        page.say(item.says, 4, "- ", YELLOW)


def _mark(param: ParamView, row: ValueRow) -> str:
    if param.best is not None and row.value == param.best:
        return "*"
    return "x" if row.diverged else " "


def _figures(row: ValueRow) -> str:
    ci = f"{_short(row.ci[0])} to {_short(row.ci[1])}" if row.ci else "-"
    crashed = f"  {row.crashed} crashed" if row.crashed else ""
    apart = "  set apart" if row.diverged else ""
    z = f"{row.z:+.2f}" if row.z is not None else "-"
    t = f"{row.t:+.1f}" if row.t is not None else "-"
    p = ("<.001" if row.p_adjusted < 0.001 else f"{row.p_adjusted:.3f}") if row.p_adjusted is not None else "-"
    figures = " ".join(f"{_short(value):>9}" for value in (row.mean, row.q10, row.q90, row.difference))
    return f"{row.n_seeds:>5} {figures} {ci:>20} {z:>6} {t:>6} {p:>7}{crashed}{apart}"


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
