"""A sweep as a small TOML file, and what it will cost and can show.

    question = "Does the learning rate matter?"
    hypothesis = "0.01 beats the default"
    name = "lr"
    command = "python train.py --lr {lr} --seed {seed}"
    metric = "acc"
    goal = "max"
    seeds = [0, 1, 2, 3, 4, 5]
    seconds = 90

    [params]
    lr = [0.001, 0.01, 0.1]

Several parameters are crossed, each value of one with each of the others; `design = "together"` takes the first of
each, the second of each, and so on. A table `{ low = 1e-5, high = 0.1, count = 20, log = true }` is drawn at random.
"""

import math
import shlex
from itertools import product
from typing import Any, NamedTuple

from clew.errors import ClewError, did_you_mean
from clew.records.exact import digest
from clew.records.masked import masked
from clew.report.sweep_view import Cell
from clew.sweep.distributions import paired_power, seeds_needed, smallest_effect

KEYS = (
    "question",
    "hypothesis",
    "name",
    "command",
    "metric",
    "goal",
    "seeds",
    "seconds",
    "params",
    "design",
    "draw_seed",
)
MOST_RUNS = 100_000


class Plan(NamedTuple):
    """`points` are the settings to try; every one is run with every seed."""

    name: str
    question: str
    hypothesis: str
    command: str
    metric: str
    goal: str
    seeds: tuple[int, ...]
    seconds: float | None
    params: tuple[str, ...]
    points: tuple[tuple[Cell, ...], ...]
    design: str

    @property
    def runs(self) -> int:
        return len(self.points) * len(self.seeds)

    @property
    def base(self) -> str:
        """What must be equal for two groups to be comparable: the command and the metric."""
        return digest([self.command, self.metric, self.goal, list(self.params)])


class Job(NamedTuple):
    """One run to make."""

    point: tuple[tuple[str, Cell], ...]
    seed: int
    command: tuple[str, ...]

    @property
    def label(self) -> str:
        return " ".join([*(f"{name}={masked(name, value)}" for name, value in self.point), f"seed={self.seed}"])


def read_plan(path: str) -> Plan:
    return plan_of(read_toml(path), path)


def read_toml(path: str) -> dict[str, Any]:
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ClewError(f"cannot read {path}: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ClewError(f"{path} is no TOML: {error}.") from error


def plan_of(table: dict[str, Any], path: str) -> Plan:
    for key in table:
        if key not in KEYS:
            raise ClewError(f"{path}: unknown key {key!r}{did_you_mean(key, KEYS) or '.'}")
    for key in ("command", "metric", "params", "seeds"):
        if key not in table:
            raise ClewError(f"{path} does not say {key!r}.")
    params = table["params"]
    if not isinstance(params, dict) or not params:
        raise ClewError(f"{path}: [params] must name at least one parameter and its values.")
    seeds = table["seeds"]
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise ClewError(f"{path}: seeds must be a list of whole numbers.")
    if len(set(seeds)) < len(seeds):
        raise ClewError(f"{path}: seed {next(s for s in seeds if seeds.count(s) > 1)} is given twice.")
    goal = table.get("goal", "max")
    if goal not in ("max", "min"):
        raise ClewError(f"{path}: goal is max or min, not {goal!r}.")
    seconds = table.get("seconds")
    if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):
        raise ClewError(f"{path}: seconds is the time of one run, not {seconds!r}.")
    command, design = str(table["command"]), str(table.get("design", "grid"))
    _check_command(command, list(params), path)
    points = _points(params, design, int(table.get("draw_seed", 0)), path)
    if len(points) * len(seeds) > MOST_RUNS:
        raise ClewError(f"{path} asks for {len(points) * len(seeds)} runs; at most {MOST_RUNS} are possible.")
    name = str(table.get("name") or "-".join(params))
    return Plan(
        name,
        str(table.get("question", "")),
        str(table.get("hypothesis", "")),
        command,
        str(table["metric"]),
        goal,
        tuple(seeds),
        None if seconds is None else float(seconds),
        tuple(params),
        points,
        design,
    )


def _check_command(command: str, params: list[str], path: str) -> None:
    from string import Formatter

    try:
        fields = {name for _, name, _, _ in Formatter().parse(command) if name is not None}
        shlex.split(command)
    except ValueError as error:
        raise ClewError(f"{path}: the command cannot be read: {error}.") from error
    missing = [name for name in [*params, "seed"] if name not in fields]
    if missing:
        raise ClewError(f"{path}: the command does not use {{{missing[0]}}}, so it would change nothing.")
    unknown = sorted(fields - {*params, "seed"})
    if unknown:
        raise ClewError(f"{path}: the command uses {{{unknown[0]}}}, which is neither a parameter nor the seed.")


def _points(params: dict[str, Any], design: str, draw_seed: int, path: str) -> tuple[tuple[Cell, ...], ...]:
    drawn = {name: spec for name, spec in params.items() if isinstance(spec, dict)}
    if drawn:
        if len(drawn) < len(params):
            raise ClewError(f"{path}: draw either all parameters at random or none.")
        return _draw(drawn, draw_seed, path)
    for name, values in params.items():
        if not isinstance(values, list) or not values or not all(isinstance(v, str | int | float) for v in values):
            raise ClewError(f"{path}: {name} must be a list of values, or a range with low, high and count.")
        if len(set(map(str, values))) < len(values):
            raise ClewError(f"{path}: {name} lists a value twice.")
    if design == "grid":
        return tuple(product(*params.values()))
    if design != "together":
        raise ClewError(f"{path}: design is grid or together, not {design!r}.")
    if len({len(values) for values in params.values()}) > 1:
        raise ClewError(f'{path}: design "together" needs equally many values of each parameter.')
    return tuple(zip(*params.values(), strict=True))


def _draw(drawn: dict[str, dict[str, Any]], seed: int, path: str) -> tuple[tuple[Cell, ...], ...]:
    import random

    made = random.Random(seed)
    counts = {int(spec.get("count", 0)) for spec in drawn.values()}
    count = max(counts)
    if count < 1:
        raise ClewError(f"{path}: a random search needs a count.")
    points = []
    for _ in range(count):
        point: list[Cell] = []
        for name, spec in drawn.items():
            try:
                low, high, log = float(spec["low"]), float(spec["high"]), bool(spec.get("log", False))
            except (KeyError, TypeError, OverflowError, ValueError):
                raise ClewError(f"{path}: {name} needs low and high.") from None
            if not low < high or (log and low <= 0):
                raise ClewError(f"{path}: {name} has an empty range between {low} and {high}.")
            value = math.exp(made.uniform(math.log(low), math.log(high))) if log else made.uniform(low, high)
            point.append(round(value) if spec.get("whole") else float(f"{value:.6g}"))
        points.append(tuple(point))
    return tuple(points)


def queue(plan: Plan) -> tuple[Job, ...]:
    """All values of the first seed, then all of the second: whenever it is stopped, whole seeds can be compared.

    The order of the values turns from seed to seed, so that none is always run first, on a cold machine.
    """
    jobs = []
    for turn, seed in enumerate(plan.seeds):
        count = len(plan.points)
        for index in range(count):
            point = tuple(zip(plan.params, plan.points[(index + turn) % count], strict=True))
            words = plan.command.format(**{name: shlex.quote(str(value)) for name, value in point}, seed=seed)
            jobs.append(Job(point, seed, tuple(shlex.split(words))))
    return tuple(jobs)


def confounding(plan: Plan) -> list[str]:
    """What the design cannot tell apart."""
    said = []
    if len(plan.params) > 1 and plan.design == "together":
        names = " and ".join(plan.params)
        said.append(
            f"{names} change together: no difference can be attributed to one of them. Vary one, or cross them."
        )
    elif len(plan.params) > 1 and len(plan.points) > 1:
        whole = math.prod(len({point[at] for point in plan.points}) for at in range(len(plan.params)))
        if whole == len(plan.points):
            said.append(
                f"{' and '.join(plan.params)} are crossed: each is judged averaged over the others, "
                f"at {len(plan.points)} times the runs of one value."
            )
        else:
            said.append("drawn at random: no two runs of a seed share all other settings, so values are not paired.")
    return said


class Power(NamedTuple):
    """In standard deviations of the paired difference, and in units of the metric when a pilot gave its spread."""

    seeds: int
    effect: float
    effect_in_metric: float | None
    wanted: float | None
    needed: int | None
    power: float | None


def power(plan: Plan, spread: float | None = None, effect: float | None = None) -> Power:
    """`spread`: standard deviation of the differences between two values in a seed. `effect`: what one hopes to see."""
    n = len(plan.seeds)
    least = smallest_effect(n)
    wanted = None if effect is None else effect / spread if spread else effect
    return Power(
        n,
        least,
        least * spread if spread else None,
        effect,
        None if wanted is None else seeds_needed(wanted),
        None if wanted is None else paired_power(wanted, n),
    )
