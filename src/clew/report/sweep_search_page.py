"""What a random search showed, as plain values and as text: which parameters mattered, where to look next, cliffs."""

from typing import NamedTuple

from clew.report.sweep_view import Cell
from clew.report.text import BOLD, DIM, GREEN, YELLOW, Page, number


class ImportanceRow(NamedTuple):
    """`share` of the variance that the other parameters leave; `p` is adjusted for the number of parameters."""

    name: str
    share: float
    ci: tuple[float, float]
    p: float
    mattered: bool
    best: Cell | None


class RangeRow(NamedTuple):
    """Where the best settings lie. `low` and `high` for numbers, `words` with counts (among the best, tried) else.

    `kept` is the share of the range tried; `by_chance` how often that many settings lie so close together anyway.
    """

    name: str
    low: float | None
    high: float | None
    words: tuple[tuple[str, int, int], ...]
    kept: float
    carried: int
    of: int
    by_chance: float | None
    edge: str
    says: str


class CliffRow(NamedTuple):
    name: str
    value: float
    side: str
    next_value: float
    bad: int
    of: int
    crashed: int
    p: float
    says: str


class SearchView(NamedTuple):
    group: str
    settings: int
    runs: int
    crashed: int
    importance: tuple[ImportanceRow, ...]
    ranges: tuple[RangeRow, ...]
    cliffs: tuple[CliffRow, ...]
    says: str
    notes: tuple[str, ...]


class SearchesView(NamedTuple):
    metric: str
    goal: str
    goal_why: str
    source: str
    groups: tuple[SearchView, ...]
    notes: tuple[str, ...]


def search_page(view: SearchesView, page: Page) -> Page:
    better = "larger is better" if view.goal == "max" else "smaller is better"
    page.say(f"{view.metric} in {view.source}: {better} ({view.goal_why}).", 0, "", BOLD)
    for note in view.notes:
        page.say(note, 0, "Note: ", DIM)
    for group in view.groups:
        _group(group, page)
    page.line()
    page.say(
        "share: of the variance (in normal scores, a crashed run lowest) that the other parameters leave, with its "
        "95 % interval. p adj: scores dealt out anew, adjusted for the number of parameters; it decides. Parameters "
        "that act only together are not seen.",
        0,
        "",
        DIM,
    )
    return page


def _group(group: SearchView, page: Page) -> None:
    crashed = f", {group.crashed} crashed" if group.crashed else ""
    page.head(f"{group.group}: {group.settings} settings, {group.runs} runs{crashed}")
    page.say(group.says, 2, "", GREEN if any(row.mattered for row in group.importance) else YELLOW)
    for note in group.notes:
        page.say(note, 2, "Note: ", DIM)
    width = min(24, max([9, *(len(row.name) for row in group.importance)]))
    page.line(f"    {'parameter':<{width}} {'share':>6} {'95 %':>14} {'p adj':>7}  best setting has", DIM)
    for row in sorted(group.importance, key=lambda one: -one.share):
        ci = f"{row.ci[0]:.2f} to {row.ci[1]:.2f}"
        p = "<.001" if row.p < 0.001 else f"{row.p:.3f}"
        best = number(row.best) if row.best is not None else "-"
        mark = "*" if row.mattered else " "
        page.line(f"  {mark} {row.name[:width]:<{width}} {row.share:>6.2f} {ci:>14} {p:>7}  {best}")
    for held in group.ranges:
        page.say(held.says, 4, "next: ")
    for cliff in group.cliffs:
        page.say(cliff.says, 4, "- ", YELLOW)
