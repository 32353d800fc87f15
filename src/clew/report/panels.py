"""Which plots a report on a run shows, and which recorded series go into each."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from clew.records.trace import ASKED, RIGHT, Series
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
    """`whole` names the series of the run as a whole; `range` is a healthy range of the knowledge base."""

    title: str
    names: tuple[str, ...]
    unit: str = ""
    scale: str = "auto"
    whole: str = ""
    range: str = ""


LOSS = Panel("Loss", LOSSES, "loss")
GRADIENTS = Panel("Gradient norm by layer", ("grad_norm",), "L2 norm", "log", "all parameters")
TOTALS = Panel("Gradient norm by optimiser", ("gradient_norm",), "L2 norm", "log")
UPDATES = Panel(
    "Update over parameter by layer",
    ("update_ratio",),
    "ratio of norms, per step",
    "log",
    "all parameters",
    "update_to_weight_ratio",
)
TIMES = Panel("Step time", (), "s", whole="whole step")
MEMORY = "memory_resident"
STEADY = 0.05
"""Memory that stays within this share of its peak is no news."""


def panels(seen: CaseView, series: Recorded) -> tuple[list[Plot], list[str]]:
    """The plots in their order, and the names of what was recorded and is not drawn."""
    series = {key: _in_mib(item) if key[0] == MEMORY else item for key, item in series.items()}
    names = list(dict.fromkeys(name for name, _ in series))
    active = [name for name in names if name.startswith("activation")]
    times = [name for name in names if name.endswith("_time") or name.startswith("time_")]
    activations = [_activation(name) for name in active]
    totals = [TOTALS] if "gradient_norm" in names else []
    wanted = [LOSS, GRADIENTS, *totals, UPDATES, *activations, TIMES._replace(names=tuple(times))]
    taken = {CONSTANT, *(name for panel in wanted for name in panel.names)}
    others = [name for name in names if name not in taken]
    dull = [name for name in others if _dull(name, series)]
    others = [name for name in others if name not in dull]
    wanted += [Panel(_words(name), (name,), whole="whole run") for name in others[:MOST_OTHERS]]
    span = span_of(list(series.values()))
    flags = _flags(seen)
    made = [_drawn(panel, seen, series, span, flags) for panel in wanted]
    return [plot for plot in made if plot.frame], [*others[MOST_OTHERS:], *dull]


def _in_mib(item: Series) -> Series:
    return item._replace(values=tuple(value / 2**20 for value in item.values), unit="MiB")


def _points(item: Series) -> Iterator[tuple[int, float]]:
    return zip(item.steps, item.values, strict=True)


def _dull(name: str, series: Recorded) -> bool:
    """Whether a plot would show nothing: counts by call, memory that stays, norms that stand in the plot above."""
    held = [item for (of, _), item in series.items() if of == name]
    if name == MEMORY:
        return all(min(item.values) >= (1 - STEADY) * max(item.values) for item in held if item.values)
    if name == "norm_before_clipping":
        above = [pair for (of, _), item in series.items() if of == "gradient_norm" for pair in _points(item)]
        both = [(value, total) for item in held for step, value in _points(item) for at, total in above if at == step]
        return bool(both) and all(math.isclose(value, total, rel_tol=1e-3) for value, total in both)
    return name in (RIGHT, ASKED)


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


def _flags(seen: CaseView) -> list[tuple[int, str]]:
    """The steps at which findings were seen; the start of the run needs no flag."""
    found: dict[int, str] = {}
    for finding in seen.weighing.findings:
        for place in finding.where:
            if place.step:
                found.setdefault(place.step, finding.cause)
    return sorted(found.items())
