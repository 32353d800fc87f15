"""Which plots a report on a run shows, and which recorded series go into each.

Of a panel whose series were not recorded the reason is left: "nothing to see" is not "not looked at".
"""

from collections.abc import Iterable
from typing import NamedTuple

from clew.records.clue import UNCLEAR
from clew.records.trace import Series
from clew.report.axes import short
from clew.report.plots import Named, Plot, Zone, plot
from clew.report.thin import span_of
from clew.report.view import CaseView

LOSSES = ("loss", "train_loss", "val_loss", "valid_loss", "validation_loss", "eval_loss", "test_loss")
CONSTANT = "constant loss"
MOST_OTHERS = 6
SHARES = ("share", "fraction", "saturation")

Recorded = dict[tuple[str, str], Series]


class Panel(NamedTuple):
    """`whole` names the series of the run as a whole; `tests` are those whose reason explains an empty panel; `range`
    is a healthy range of the knowledge base."""

    title: str
    names: tuple[str, ...]
    unit: str = ""
    scale: str = "auto"
    whole: str = ""
    range: str = ""
    tests: tuple[str, ...] = ()
    empty: str = ""


LOSS = Panel(
    "Loss",
    LOSSES,
    "loss",
    tests=("loss_stuck_from_start",),
    empty="No loss was recorded: no call of backward was seen.",
)
GRADIENTS = Panel(
    "Gradient norm by layer",
    ("grad_norm",),
    "L2 norm",
    "log",
    "all parameters",
    tests=("gradient_by_depth",),
    empty="No gradient norms were recorded.",
)
TOTALS = Panel("Gradient norm by optimiser", ("gradient_norm",), "L2 norm", "log")
UPDATES = Panel(
    "Update over parameter by layer",
    ("update_ratio",),
    "ratio of norms, per step",
    "log",
    "all parameters",
    "update_to_weight_ratio",
    ("update_ratio",),
    "No update ratios were recorded.",
)
ACTIVATIONS = Panel(
    "Activation health",
    (),
    tests=("activation_zero_share", "activation_saturation"),
    empty="No activation statistics were recorded.",
)
TIMES = Panel("Step time", (), "s", whole="whole step", tests=("step_time",), empty="No step times were recorded.")


def panels(seen: CaseView, series: Recorded) -> tuple[list[Plot], list[str], list[str]]:
    """The plots in their order, the names of what was recorded and is not drawn, and why a plot is missing."""
    names = list(dict.fromkeys(name for name, _ in series))
    active = [name for name in names if name.startswith("activation")]
    times = [name for name in names if name.endswith("_time") or name.startswith("time_")]
    activations = [_activation(name) for name in active] or [ACTIVATIONS]
    totals = [TOTALS] if "gradient_norm" in names else []
    wanted = [LOSS, GRADIENTS, *totals, UPDATES, *activations, TIMES._replace(names=tuple(times))]
    taken = {CONSTANT, *(name for panel in wanted for name in panel.names)}
    others = [name for name in names if name not in taken]
    wanted += [Panel(_words(name), (name,), whole="whole run") for name in others[:MOST_OTHERS]]
    span = span_of(list(series.values()))
    flags = _flags(seen)
    made = [_drawn(panel, seen, series, span, flags) for panel in wanted]
    return (
        [plot for plot in made if plot.frame],
        others[MOST_OTHERS:],
        [plot.missing for plot in made if not plot.frame],
    )


def _activation(name: str) -> Panel:
    title = f"Activation health: {name.removeprefix('activation').replace('_', ' ').strip() or 'level'}"
    if name.endswith(SHARES):
        return Panel(title, (name,), "share", "share", "whole model")
    if name.endswith("std"):
        return Panel(title, (name,), "standard deviation", "log", "whole model", "activation_deviation")
    return Panel(title, (name,), "", "auto", "whole model")


def _words(name: str) -> str:
    text = name.replace("_", " ")
    return text[:1].upper() + text[1:]


def _drawn(
    panel: Panel,
    seen: CaseView,
    series: Recorded,
    span: tuple[int, int],
    flags: list[tuple[int, str]],
) -> Plot:
    named = _named(panel, series)
    units = dict.fromkeys(item.unit for _, item in named if item.unit)
    return plot(
        panel.title,
        named,
        unit=" or ".join(units) or panel.unit,
        scale=panel.scale,
        zone=_zone(panel, seen),
        span=span,
        flags=flags,
        missing=" ".join([panel.empty, *_reasons(seen, panel.tests)]),
    )


def _named(panel: Panel, series: Recorded) -> list[Named]:
    """In the order in which they were recorded, which is that of the layers."""
    several = len({name for name, _ in series if name in panel.names}) > 1
    named = []
    for (name, of), item in series.items():
        if name in panel.names:
            named.append((_label(panel, name, of, several), item))
    if panel is LOSS and len(named) > 1:
        named = [("loss at the first backward" if label == "loss" else label, item) for label, item in named]
    if panel is LOSS and named and (held := series.get((CONSTANT, ""))):
        first, last = span_of([item for _, item in named])
        named.append(("best constant answer", held._replace(steps=(first, last), values=(held.values[-1],) * 2)))
    return named


def _label(panel: Panel, name: str, of: str, several: bool) -> str:
    if panel is LOSS and of:
        return f"{name} at {of}"
    if of and panel is TOTALS:
        return f"optimiser {of}"
    if of:
        return f"{name} {of}" if several else of
    return name if several or not panel.whole else panel.whole


def _zone(panel: Panel, seen: CaseView) -> Zone | None:
    held = seen.knowledge.ranges.get(panel.range)
    if held is None or held.low is None or held.high is None:
        return None
    return Zone(held.low, held.high, "healthy: {} to {}".format(*short(held.low, held.high)))


def _reasons(seen: CaseView, tests: Iterable[str]) -> list[str]:
    """The reasons that instruments gave, where they did."""
    found = {held.clue.test: held.clue.why for held in seen.counted if held.clue.outcome == UNCLEAR}
    return [f"{test}: {found[test]}." for test in tests if found.get(test)]


def _flags(seen: CaseView) -> list[tuple[int, str]]:
    """The steps at which findings were seen; the start of the run needs no flag."""
    found: dict[int, str] = {}
    for finding in seen.weighing.findings:
        for place in finding.where:
            if place.step:
                found.setdefault(place.step, finding.cause)
    return sorted(found.items())
