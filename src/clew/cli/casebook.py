"""`clew casebook`: known faults in known-good programs, and what clew says about them."""

import os
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from clew.cli.output import save
from clew.errors import ClewError

if TYPE_CHECKING:
    from clew.casebook.judge import Trial


def arguments(parser: ArgumentParser, _: str = "") -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", required=True)
    run = verbs.add_parser("run", help="run faults and healthy programs, and count what clew finds")
    words = "only these: a fault, a program, a cause, a family, or script, package, config, data, healthy"
    run.add_argument("--only", nargs="+", default=[], metavar="NAME", help=words)
    run.add_argument("--healthy", action="store_true", help="only the healthy programs")
    run.add_argument("--seeds", type=int, default=1, metavar="N", help="how many seeds for each healthy program")
    run.add_argument("--sample", type=int, default=0, metavar="N", help="N of them, the same every time")
    run.add_argument("--jobs", type=int, default=2, metavar="N", help="how many at a time (default 2)")
    run.add_argument("--no-exams", action="store_true", help="only watch: make no experiments")
    run.add_argument("--budget", type=int, default=20, metavar="S", help="seconds for exams after each run (20)")
    run.add_argument("--any-version", action="store_true", help="results of other versions of clew will do")
    run.add_argument("--out", default="", metavar="DIR", help="where programs and results are kept (.clew/casebook)")
    run.add_argument("--json", metavar="FILE", help="write the machine-readable result")
    run.set_defaults(act=act_run)
    shown = verbs.add_parser("list", help="list the faults")
    shown.add_argument("--only", nargs="+", default=[], metavar="NAME", help=words)
    shown.set_defaults(act=act_list)


def act_run(options: Namespace) -> int:
    from clew.casebook import figures, pages, run, tables, work
    from clew.home import home
    from clew.records.exact import pretty

    for name, least in (("jobs", 1), ("seeds", 1), ("sample", 0), ("budget", 1)):
        if getattr(options, name) < least:
            raise ClewError(f"--{name} takes a number from {least} on, not {getattr(options, name)}.")
    everything = run.everything(options.seeds)
    only = ["healthy", *options.only] if options.healthy and not options.only else options.only
    names = tables.chosen(list(dict.fromkeys(item for item, _ in everything)), only)
    if options.healthy:
        names = [item for item in names if item.cause == tables.HEALTHY]
    if options.sample:
        names = tables.sample(names, options.sample)
    if not names:
        raise ClewError("nothing of the casebook fits what was asked for.")
    folder = os.path.abspath(options.out or os.path.join(home(), "casebook"))
    how = work.Options(folder, not options.no_exams, options.budget, options.any_version)
    chosen = [entry for entry in everything if entry[0] in {*names}]
    trials = run.examine(chosen, options.jobs, how, tell)
    save(os.path.join(folder, "report.md"), pages.markdown(trials, work.clew_digest()))
    if options.json:
        save(options.json, pretty(figures.to_json(trials)))
    print(pages.text(trials))
    print(f"\nThe page: {os.path.relpath(os.path.join(folder, 'report.md'))}")
    return 0


def tell(trial: "Trial", number: int, total: int) -> None:
    from clew.casebook.figures import missed
    from clew.casebook.pages import account

    wrong = trial.left_out or (account(trial) if missed(trial) else "right")
    print(f"[{number}/{total}] {trial.item.id}: {wrong}", file=sys.stderr, flush=True)


def act_list(options: Namespace) -> int:
    from clew.casebook import tables

    for item in tables.chosen(tables.faults(), options.only):
        print(f"{item.id:<52}{item.cause:<32}{item.place:<9}{item.file}")
    return 0
