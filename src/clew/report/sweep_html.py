"""A judged sweep as one self-contained page."""

from clew.report.html import environment
from clew.report.sweep_page import COLOURS
from clew.report.sweep_plot import HEIGHT, WIDTH, sweep_plot
from clew.report.sweep_view import SweepView
from clew.report.text import GREEN, RED, YELLOW

CLASSES = {GREEN: "healthy", RED: "fault", YELLOW: "suspect"}


def sweep_html(view: SweepView) -> str:
    groups = [
        (group, [(param, sweep_plot(param, view.metric, view.goal), _class(param.verdict)) for param in group.params])
        for group in view.groups
    ]
    made = environment()
    made.filters["p"] = _p
    return made.get_template("sweep.html.j2").render(view=view, groups=groups, width=WIDTH, height=HEIGHT)


def _class(verdict: str) -> str:
    return CLASSES.get(COLOURS.get(verdict, ""), "undecided")


def _p(value: float | None) -> str:
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"
