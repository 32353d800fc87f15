"""How often `clew sweep judge` is wrong, how much it sees, and how fast it is.

    python bench/sweep.py errors      false alarms in pure noise, beside the plain recipe
    python bench/sweep.py unseen      the same for shapes and noise that played no part in choosing the test
    python bench/sweep.py power       a better value, beside the plain recipe, Welch and paired t (Bonferroni)
    python bench/sweep.py coverage    95 % intervals at five seeds
    python bench/sweep.py crashes     an equal value whose worst runs crash
    python bench/sweep.py importance  random searches: false finds, cliffs, power, intervals
    python bench/sweep.py scale       a million runs

`--tables N` sets how many sweeps are simulated for each row (1000).
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clew.sweep.decide import decide, plain_recipe
from clew.sweep.distributions import NORMAL, t_two_sided
from clew.sweep.intervals import bca, bootstrap_t, t_interval
from clew.sweep.permute import within_seeds
from clew.sweep.prepare import Request
from clew.sweep.summary import summarise

Numbers = NDArray[np.float64]
SHAPES = [
    (2, 3),
    (2, 6),
    (2, 9),
    (2, 20),
    (3, 3),
    (3, 5),
    (3, 10),
    (3, 20),
    (4, 10),
    (5, 5),
    (5, 20),
    (10, 3),
    (10, 10),
]
SHAPES += [(20, 10), (40, 3), (40, 5), (40, 20)]
DRAWS = 199


def noise(random: np.random.Generator, values: int, seeds: int, kind: str) -> Numbers:
    """Mean zero for every value; `unequal` spreads from 1 to 4 over the values."""
    drawn = random.standard_normal((seeds, values))
    if kind.startswith("lognormal"):
        drawn = (np.exp(drawn) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e)
    if kind.endswith("unequal"):
        drawn = drawn * np.geomspace(1.0, 4.0, values)
    return np.asarray(drawn + random.standard_normal((seeds, 1)))


def recipe_p(table: Numbers) -> Numbers:
    _, t = plain_recipe(table)
    return np.array([t_two_sided(float(one), len(table) - 1) for one in t])


def errors(tables: int) -> None:
    names = ("clew", "clew, if noise is alike", "plain z, t")
    print(f"| values x seeds | noise | {' | '.join(names)} |\n|---|---|---|---|---|")
    for values, seeds in SHAPES:
        # The small ones are where the level is hard to keep; the large ones cost most of the time.
        count = 2 * tables if values < 5 else tables if values * seeds < 200 else tables // 2
        for kind in ("normal", "normal unequal", "lognormal", "lognormal unequal"):
            random = np.random.default_rng(values * 1000 + seeds)
            seen = np.zeros(3)
            for index in range(count):
                table = noise(random, values, seeds, kind)
                found = within_seeds(table, index, DRAWS)
                seen += [min(found.adjusted) <= 0.05, min(found.alike) <= 0.05, bool((recipe_p(table) <= 0.05).any())]
            figures = " | ".join(f"{one / count:.3f}" for one in seen)
            print(f"| {values} x {seeds} | {kind} | {figures} |", flush=True)


def unseen(tables: int) -> None:
    print("| values x seeds | noise | clew |\n|---|---|---|")
    for values, seeds in [(2, 9), (4, 7), (7, 4), (15, 8), (25, 12)]:
        for kind in ("t3", "t3 unequal", "gamma", "gamma unequal"):
            random = np.random.default_rng(99_000 + values * 100 + seeds)
            alarms = 0
            for index in range(tables):
                shape = (seeds, values)
                drawn = random.standard_t(3, shape) if kind.startswith("t3") else random.gamma(2.0, 1.0, shape) - 2.0
                if kind.endswith("unequal"):
                    drawn = drawn * np.linspace(0.5, 3.0, values)
                alarms += min(within_seeds(drawn, index, DRAWS).adjusted) <= 0.05
            print(f"| {values} x {seeds} | {kind} | {alarms / tables:.3f} |", flush=True)


def power(tables: int) -> None:
    names = ("clew", "clew, if noise is alike", "plain z, t", "Welch", "paired t")
    print(f"| values x seeds | better by | {' | '.join(names)} |\n|---|---|---|---|---|---|---|")
    for values, seeds in [(2, 8), (2, 16), (3, 5), (3, 7), (3, 10), (5, 5), (5, 10), (10, 10), (10, 20)]:
        for effect in (1.0, 2.0):
            random = np.random.default_rng(7)
            seen = np.zeros(5)
            family = values if values > 2 else 1
            for index in range(tables):
                table = noise(random, values, seeds, "normal")
                table[:, 0] += effect
                rest = table[:, 1:]
                found = within_seeds(table, index, DRAWS)
                seen[:2] += [found.adjusted[0] <= 0.05, found.alike[0] <= 0.05]
                seen[2] += recipe_p(table)[0] * family <= 0.05
                seen[3] += _welch(table[:, 0], rest.ravel()) * family <= 0.05
                lead = table[:, 0] - rest.mean(1)
                t = float(lead.mean() / (lead.std(ddof=1) / np.sqrt(seeds)))
                seen[4] += t_two_sided(t, seeds - 1) * family <= 0.05
            figures = " | ".join(f"{one / tables:.2f}" for one in seen)
            print(f"| {values} x {seeds} | {effect:g} sd | {figures} |", flush=True)


def _welch(own: Numbers, rest: Numbers) -> float:
    a, b = own.var(ddof=1) / len(own), rest.var(ddof=1) / len(rest)
    df = (a + b) ** 2 / (a**2 / (len(own) - 1) + b**2 / (len(rest) - 1))
    return t_two_sided(float((own.mean() - rest.mean()) / np.sqrt(a + b)), float(df))


def coverage(tables: int) -> None:
    print("| seeds | noise | t | bootstrap-t | BCa | percentile bootstrap |\n|---|---|---|---|---|---|")
    for n in (5, 10, 20):
        for kind in ("normal", "lognormal"):
            random = np.random.default_rng(n)
            hits = np.zeros(4)
            for index in range(tables):
                held = noise(random, 1, n, kind)[:, 0] if kind == "normal" else noise(random, 2, n, kind) @ [1.0, -1.0]
                means = held[np.random.default_rng(index).integers(0, n, (999, n))].mean(1)
                low, high = np.quantile(means, [0.025, 0.975])
                found = [t_interval(held), bootstrap_t(held, index, resamples=999), bca(held, index, resamples=999)]
                hits += [one[0] <= 0.0 <= one[1] for one in [*found, (low, high)]]
            figures = " | ".join(f"{one / tables:.3f}" if one else "not given" for one in hits)
            print(f"| {n} | {kind} difference | {figures} |", flush=True)


def crashes(tables: int) -> None:
    """The value 0 is equal to the others, but its worst 31 % of runs crash."""
    print("| values x seeds | called better by clew | by dropping crashed runs, paired t |\n|---|---|---|")
    for values, seeds in [(2, 10), (3, 10), (5, 10), (5, 20)]:
        random = np.random.default_rng(31)
        ours = dropped = 0
        for index in range(tables):
            table = random.standard_normal((seeds, values))
            crashed = np.zeros_like(table, dtype=bool)
            crashed[:, 0] = table[:, 0] < -0.4959
            table[crashed] = np.nan
            row = decide(table, crashed, index, many=True).rows[0]
            ours += bool(row.adjusted <= 0.05 and row.lean > 0)
            lead = (table[:, 0] - table[:, 1:].mean(1))[~crashed[:, 0]]
            if len(lead) > 1:
                t = float(lead.mean() / (lead.std(ddof=1) / np.sqrt(len(lead))))
                dropped += t > 0 and t_two_sided(t, len(lead) - 1) <= 0.05
        print(f"| {values} x {seeds} | {ours / tables:.3f} | {dropped / tables:.3f} |", flush=True)


def importance(tables: int) -> None:
    """Random searches in which nothing matters, and in which one parameter explains 43 % of the variance."""
    from clew.sweep.importance import Settings, cliffs, shares
    from clew.sweep.trend import ranks

    print("| settings x parameters | something matters | a cliff | found, 43 % | its interval covers |")
    print("|---|---|---|---|---|")
    for count, params in [(20, 3), (40, 5), (60, 8)]:
        random = np.random.default_rng(count)
        seen = np.zeros(4)
        for index in range(tables):
            x = random.random((count, params))
            for effect in (0.0, 3.0):
                y = effect * x[:, 0] + random.standard_normal(count)
                score = np.array([NORMAL.inv_cdf((one - 0.5) / count) for one in ranks(y)])
                names, zeros = tuple(map(str, range(params))), np.zeros(count)
                held = Settings(names, tuple(tuple(map(float, column)) for column in x.T), score, zeros + 1, zeros)
                found = shares(held, index, DRAWS)
                if effect:
                    seen[2:] += [found[0].p <= 0.05, found[0].low <= 0.75 / 1.75 <= found[0].high]
                else:
                    seen[:2] += [min(one.p for one in found) <= 0.05, bool(cliffs(held))]
        print(f"| {count} x {params} | {' | '.join(f'{one / tables:.3f}' for one in seen)} |", flush=True)


def scale(groups: int = 1000, values: int = 10, seeds: int = 100) -> None:
    import pyarrow
    import pyarrow.parquet

    random = np.random.default_rng(0)
    rows = groups * values * seeds
    order = random.permutation(rows)
    group, value, seed = order // (values * seeds), order // seeds % values, order % seeds
    metric = random.standard_normal(rows)
    metric[random.random(rows) < 0.01] = np.nan
    names = [
        pyarrow.array([f"{lead}-{one:05d}" for one in range(count)])
        for lead, count in (("group", groups), ("value", values), ("seed", seeds))
    ]
    columns = [names[at].take(pyarrow.array(held)) for at, held in enumerate((group, value, seed))]
    table = pyarrow.table({"group": columns[0], "lr": columns[1], "seed": columns[2], "acc": metric})
    started = time.process_time()
    first, second, third = (
        table[name].dictionary_encode().combine_chunks().indices.to_numpy() for name in ("group", "lr", "seed")
    )
    summary = summarise(first, second, third, table["acc"].to_numpy())
    print(f"z, t and quantiles of {rows:,} runs: {time.process_time() - started:.2f} CPU s, {summary.n.size:,} cells")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "runs.parquet")
        pyarrow.parquet.write_table(table, path)
        from clew.sweep.judge import judge
        from clew.sweep.read import read_table

        started = time.process_time()
        held = read_table(path)
        print(f"reading them from Parquet: {time.process_time() - started:.2f} CPU s")
        started = time.process_time()
        view = judge(held, Request("acc", "lr"))
        print(f"judging {len(view.groups)} groups with permutation tests: {time.process_time() - started:.1f} CPU s")
        verdicts = [param.verdict for one in view.groups for param in one.params]
        print({name: verdicts.count(name) for name in sorted(set(verdicts))})
    print(f"largest memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


PARTS = {
    "errors": errors,
    "unseen": unseen,
    "power": power,
    "coverage": coverage,
    "crashes": crashes,
    "importance": importance,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=[*PARTS, "scale"])
    parser.add_argument("--tables", type=int, default=1000)
    options = parser.parse_args()
    for name in options.what:
        print(f"\n{name}\n")
        if name == "scale":
            scale()
        else:
            PARTS[name](options.tables)


if __name__ == "__main__":
    main()
