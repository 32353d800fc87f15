"""What a judged sweep says, as plain values that every surface shows alike."""

from typing import NamedTuple

Interval = tuple[float, float]
Cell = str | float | int | bool


class ValueRow(NamedTuple):
    """One value of the parameter. Better is larger in `z`, `t`, `difference` and `lead`, whatever the goal.

    `z` and `t` are the plain recipe; `p` and `p_adjusted` the permutation test that decides. `difference` is the mean
    lead over the other values of the same seed, in units of the metric and with its sign; `ci` its t interval.
    """

    value: Cell
    n_seeds: int
    crashed: int
    mean: float | None
    q10: float | None
    q90: float | None
    iqm: float | None
    z: float | None
    t: float | None
    difference: float | None
    ci: Interval | None
    ci_bootstrap_t: Interval | None
    ci_bca: Interval | None
    improvement: float | None
    improvement_ci: Interval | None
    p: float | None
    p_adjusted: float | None
    diverged: bool = False


class TrendRow(NamedTuple):
    r: float
    spearman: float
    slope: float
    t: float
    p: float
    log: bool
    shape: str
    peak: float | None


class Warning(NamedTuple):
    """`id` for programs, `says` with its numbers for people."""

    id: str
    says: str


class ParamView(NamedTuple):
    """One parameter of one group. `results` are seeds x values in the order of `values`, None where there is none."""

    name: str
    also_varies: tuple[str, ...]
    values: tuple[ValueRow, ...]
    trend: TrendRow | None
    verdict: str
    verdicts: tuple[str, ...]
    best: Cell | None
    says: str
    warnings: tuple[Warning, ...]
    test: str
    omnibus: float | None
    paired: bool
    seeds: tuple[str, ...]
    results: tuple[tuple[float | None, ...], ...]


class GroupView(NamedTuple):
    group: str
    n_runs: int
    n_seeds: int
    crashed: int
    params: tuple[ParamView, ...]
    warnings: tuple[Warning, ...] = ()


class SweepView(NamedTuple):
    """`source` says what was read, and how old it is when it is a cache."""

    metric: str
    goal: str
    goal_why: str
    groups: tuple[GroupView, ...]
    source: str
    notes: tuple[str, ...]
