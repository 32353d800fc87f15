"""What the columns of a table of runs are: run id, group, seed, state, time, settings; the rest was measured.

Every choice is by name first and by content second, and each is said. A setting is a column whose values recur over the
seeds; a measured quantity differs in nearly every run.
"""

import re
from typing import NamedTuple

import numpy as np

from clew.errors import ClewError, did_you_mean
from clew.sweep.table import Column, Table

IDS = ("run_id", "id", "run", "run_uuid", "run.id", "trial_id", "uid")
GROUPS = ("group", "run_group", "sweep", "wandb_run_group", "sweep_id", "experiment", "experiment_name", "group_name")
SEEDS = ("seed", "random_seed", "rng_seed", "random_state", "rng", "seed_id", "trial_seed", "manual_seed")
STATES = ("state", "status", "run_state", "_state", "run_status", "exit", "exit_code", "returncode")
TIMES = ("created", "created_at", "date", "started", "start_time", "timestamp", "time", "datetime", "started_at")
STEPS = ("step", "_step", "global_step", "epoch", "iteration")
OF_THE_RUN = re.compile(
    r"(name|notes?|tags?|source|url|host(name)?|node|user|pid|path|folder|dir|output|log|command|argv|gpu_?(id|name|type)?|"
    r"device|created.*|updated.*|started.*|ended.*|finished.*|date|.*time(stamp|_s)?|duration|seconds|run_?time|"
    r"wall.*|_.*|job.*|slurm.*|exit.*|signal|state|status|cost|memory|.*_mb|.*_gb|step|global_step|best_step|commit_msg)"
)
MEASURED = set(
    "loss acc accuracy f1 auc auroc reward return returns score error err mse mae rmse ppl perplexity bleu rouge iou "
    "map precision recall r2 bpb bpc metric psnr ssim fid kl entropy norm throughput val valid validation test eval "
    "train nll elbo ece top1 top5 success".split()
)
CHOSEN_ENDS = ("coef", "weight", "weights", "scale", "lr", "size", "type", "fn", "rate", "dim", "mode", "name", "kind")
OBSERVED = "observed."
"""Leads the series of a run under observation: measured, whatever their name."""
LEADS = (OBSERVED, *"config. config/ params. param. params/ hparams. hparams/ args. hyperparameters.".split())
KNOWN = re.compile(
    r"(lr|learning_rate|batch_size|bs|optimi[sz]er|weight_decay|wd|dropout|momentum|hidden.*|width|depth|layers|"
    r"n_layers|num_.*|n_.*|beta\d?|eps|warmup.*|gamma|alpha|tau|temperature|model|arch.*|dataset|schedule.*|augment.*|"
    r"init.*|activation|heads|rank|clip.*|label_smoothing|loss_weight|loss_fn|loss_type)"
)


class Roles(NamedTuple):
    """Names of columns, "" where there is none. `settings` are the candidates for parameters, in file order."""

    id: str
    group: str
    seed: str
    state: str
    time: str
    step: str
    settings: tuple[str, ...]
    notes: tuple[str, ...]


def bare(name: str) -> str:
    """A column's name without where the tracker files it."""
    low = name.strip().lower().replace("-", "_").replace(" ", "_")
    for lead in LEADS:
        if low.startswith(lead):
            return low[len(lead) :]
    return low


def shown(name: str) -> str:
    """The name as its owner would say it: `config.lr` is lr."""
    return next((name[len(lead) :] for lead in LEADS if name.lower().startswith(lead) and len(name) > len(lead)), name)


def named(table: Table, wanted: tuple[str, ...]) -> str:
    by_name: dict[str, str] = {}
    for name in table.columns:
        by_name.setdefault(bare(name), name)
    return next((by_name[name] for name in wanted if name in by_name), "")


def known(table: Table, name: str, what: str) -> str:
    """The column that is meant, or a sentence with the nearest names."""
    if name in table.columns:
        return name
    meant = [held for held in table.columns if bare(held) == bare(name)]
    if len(meant) == 1:
        return meant[0]
    held = [one for one in table.columns if bare(name) in bare(one) or bare(one) in bare(name)][:3]
    near = f"; did you mean {' or '.join(held)}?" if held else did_you_mean(name, list(table.columns))
    short = near or f"; there are {', '.join(list(table.columns)[:12])}."
    raise ClewError(f"{table.source} has no {what} {name!r}{short}")


def find_roles(
    table: Table, metric: str, param: str = "", seed: str = "", group: str = "", results: tuple[str, ...] = ()
) -> Roles:
    """`results`: further columns that are known to be measured."""
    notes: list[str] = []
    found_seed = known(table, seed, "seed column") if seed else named(table, SEEDS)
    found_group = known(table, group, "group column") if group else named(table, GROUPS)
    run_id, state = named(table, IDS), named(table, STATES)
    time, step = named(table, TIMES), named(table, STEPS)
    taken = {metric, *results, found_seed, found_group, run_id, state, time}
    if step and not KNOWN.fullmatch(bare(step)):
        taken.add(step)
    settings = [
        name
        for name, held in table.columns.items()
        if name == param or (name not in taken and is_setting(name, held, table.rows))
    ]
    if not found_seed:
        notes.append("no column names the seed: runs of different values cannot be paired.")
    return Roles(run_id, found_group, found_seed, state, time, step, tuple(settings), tuple(notes))


def _distinct(held: Column) -> int:
    return len(np.unique(held.codes[held.codes >= 0]))


def is_setting(name: str, held: Column, rows: int) -> bool:
    """Something chosen before the run, not measured in it."""
    low = bare(name)
    if name.startswith(OBSERVED):
        return False
    config = low != name.strip().lower().replace("-", "_").replace(" ", "_")
    distinct = _distinct(held)
    if config or KNOWN.fullmatch(low):
        return True
    if OF_THE_RUN.fullmatch(low) or measured(low) or low.startswith(("summary.", "metrics.", "metrics/", "tag.")):
        return False
    return distinct <= 1 or distinct * 2 <= rows


def measured(low: str) -> bool:
    """By its name, a result: `val_loss`, `test/acc`, but not `loss_weight`."""
    words = re.split(r"[_./@ ]+", low)
    return words[-1] not in CHOSEN_ENDS and bool(MEASURED & set(words))
