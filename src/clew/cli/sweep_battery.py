"""`clew sweep battery`: the same training code over several tasks, held against a baseline."""

from argparse import ArgumentParser, Namespace

from clew.cli import sweep_run
from clew.cli.output import answer, json_argument, page


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.toml", help="the battery: command, metric, seeds, tasks")
    parser.add_argument("--baseline", default="", metavar="FILE", help="the stored results (NAME.baseline.json)")
    parser.add_argument("--keep", action="store_true", help="store these results as the baseline, where there is none")
    parser.add_argument("--replace", action="store_true", help="with --keep: also where there is one")
    words = "make no run: compare the runs of the latest group, or of --group"
    parser.add_argument("--no-run", action="store_true", help=words)
    sweep_run.engine(parser)
    json_argument(parser)
    parser.set_defaults(act=battery)


def battery(options: Namespace) -> int:
    from clew.app import sweep_more
    from clew.report.sweep_battery_page import battery_page

    made = sweep_more.battery_plan(options.file, options.baseline)
    sweep_more.may_keep(made, options.keep, options.replace)
    chosen = sweep_run.how(options)
    group = chosen.group
    if not options.no_run:
        ready = sweep_more.battery_ready(made, chosen)
        group = ready.group
        sweep_run.make(ready, chosen)
    view = sweep_more.battery(made, group)
    if options.keep:
        view = sweep_more.keep(made, view)
    answer(options, battery_page(view, page()), lambda: sweep_more.battery_json(view))
    return 1 if view.verdict in ("regressed", "crashed_runs") else 0
