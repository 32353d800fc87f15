"""`clew casebook`: known faults in known-good programs, and what clew says about them."""

import os
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from clew.cli.output import answer, json_argument, laid_out, save
from clew.errors import ClewError
from clew.records.place import near

if TYPE_CHECKING:
    from clew.casebook.judge import Record, Trial

ONLY = "only these: a fault, a program, a cause, a family, or script, package, config, data, healthy"
SCRIPTS = "another list of scripts, in the form of wild.toml"
OUT = "where programs and results are kept (.clew/casebook)"


def arguments(parser: ArgumentParser, _: str = "") -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", required=True)
    run = verbs.add_parser("run", help="run faults and healthy programs, and count what clew finds")
    _which(run)
    run.add_argument("--sample", type=int, default=0, metavar="N", help="N of them, the same every time")
    run.add_argument("--jobs", type=int, default=2, metavar="N", help="how many at a time (default 2)")
    run.add_argument("--no-exams", action="store_true", help="only watch: make no experiments")
    run.add_argument("--budget", type=int, default=20, metavar="S", help="seconds for exams after each run (20)")
    run.add_argument("--any-version", action="store_true", help="results of other versions of clew will do")
    run.set_defaults(act=act_run)
    figures = verbs.add_parser("figures", help="count again from what is kept, without running anything")
    _which(figures)
    tables = figures.add_mutually_exclusive_group()
    words = "judge each program with a table that was measured without it"
    tables.add_argument("--leave-one-out", action="store_true", help=words)
    tables.add_argument("--guessed", action="store_true", help="judge with the expert's guesses alone")
    figures.add_argument("--no-exams", action="store_true", help="take runs that were only watched")
    figures.set_defaults(act=act_figures)
    fit = verbs.add_parser("fit", help="measure the likelihoods from what is kept")
    fit.add_argument("--out", default="", metavar="DIR", help=OUT)
    fit.add_argument("--to", default="", metavar="FILE", help="where the table goes (the knowledge base of clew)")
    fit.set_defaults(act=act_fit)
    ablate = verbs.add_parser("ablate", help="what each instrument and each test contributes")
    _which(ablate)
    ablate.add_argument("--jobs", type=int, default=2, metavar="N", help="how many at a time (default 2)")
    ablate.set_defaults(act=act_ablate)
    limits = verbs.add_parser("limits", help="which limits of tests would tell more elsewhere")
    _which(limits)
    limits.set_defaults(act=act_limits)
    wild = verbs.add_parser("wild", help="public training scripts, and what clew says about them")
    wild.add_argument("--list", action="store_true", help="list them, with what clew said (the default)")
    wild.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these scripts or repositories")
    json_argument(wild)
    wild.add_argument("--scripts", default="", metavar="FILE", help=SCRIPTS)
    wild.set_defaults(act=act_wild, folder="", jobs=1)
    tried = wild.add_subparsers(metavar="run").add_parser("run", help="run those whose repository is in a folder")
    tried.add_argument("folder", metavar="DIR", help="holds the repositories, as OWNER+NAME, OWNER/NAME or NAME")
    tried.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these scripts or repositories")
    tried.add_argument("--jobs", type=int, default=2, metavar="N", help="how many at a time (default 2)")
    tried.add_argument("--no-exams", action="store_true", help="only watch: make no experiments")
    tried.add_argument("--budget", type=int, default=20, metavar="S", help="seconds for exams after each run (20)")
    json_argument(tried)
    # Given before or after `run`: the inner parser's own default would hide the outer one's value.
    tried.add_argument("--scripts", default=SUPPRESS, metavar="FILE", help=SCRIPTS)
    shown = verbs.add_parser("list", help="list the faults")
    shown.add_argument("--only", nargs="+", default=[], metavar="NAME", help=ONLY)
    shown.set_defaults(act=act_list)


def _which(verb: ArgumentParser) -> None:
    verb.add_argument("--only", nargs="+", default=[], metavar="NAME", help=ONLY)
    verb.add_argument("--healthy", action="store_true", help="only the healthy programs")
    verb.add_argument("--seeds", type=int, default=1, metavar="N", help="how many seeds for each healthy program")
    verb.add_argument("--out", default="", metavar="DIR", help=OUT)
    json_argument(verb)


def folder_of(options: Namespace) -> str:
    from clew.home import home

    return os.path.abspath(options.out or os.path.join(home(), "casebook"))


def act_run(options: Namespace) -> int:
    from clew.casebook import ablate, fit, run, work
    from clew.knowledge.base import load

    for name, least in (("jobs", 1), ("seeds", 1), ("sample", 0), ("budget", 1)):
        if getattr(options, name) < least:
            raise ClewError(f"--{name} takes a number from {least} on, not {getattr(options, name)}.")
    how = work.Options(folder_of(options), not options.no_exams, options.budget, options.any_version)
    records = run.examine(chosen(options), options.jobs, how, tell)
    knowledge = load()
    show(options, fit.judge_all(records, lambda _: knowledge), ablate.ways(records, lambda _: knowledge))
    return 0


def chosen(options: Namespace) -> list[Any]:
    """What was asked for, each with its seed."""
    from clew.casebook import run, tables

    everything = run.everything(options.seeds)
    only = ["healthy", *options.only] if options.healthy and not options.only else options.only
    names = tables.chosen(list(dict.fromkeys(item for item, _ in everything)), only)
    if options.healthy:
        names = [item for item in names if item.cause == tables.HEALTHY]
    if getattr(options, "sample", 0):
        names = tables.sample(names, options.sample)
    if not names:
        raise ClewError("nothing of the casebook fits what was asked for.")
    return [entry for entry in everything if entry[0] in {*names}]


def kept(options: Namespace) -> "list[Record]":
    """The records of what was asked for, as far as they were run."""
    from clew.casebook import run, work

    how = work.Options(folder_of(options), not getattr(options, "no_exams", False), any_version=True, only_kept=True)
    wanted = chosen(options)
    # Asked first: looking for what is kept puts the programs into the folder.
    records = run.examine(wanted, 1, how) if os.path.isdir(how.folder) else []
    if not any(record.picture for record in records):
        raise ClewError(f"nothing is kept in {how.folder}; run some of it first: clew casebook run --out DIR")
    return records


def show(options: Namespace, trials: "list[Trial]", ways: "dict[str, list[Trial]]") -> None:
    from clew.casebook import figures, pages, work

    page = os.path.join(folder_of(options), "report.md")
    save(page, pages.markdown(trials, work.clew_digest(), ways))
    text = f"{pages.text(trials, ways)}\n\nThe page: {near(page)}"
    answer(options, laid_out(text), lambda: figures.to_json(trials, ways))


def tell(trial: "Trial", number: int, total: int) -> None:
    from clew.casebook.figures import missed
    from clew.casebook.pages import account

    wrong = trial.left_out or (account(trial) if missed(trial) else "right")
    print(f"[{number}/{total}] {trial.item.id}: {wrong}", file=sys.stderr, flush=True)


def act_figures(options: Namespace) -> int:
    from clew.casebook import ablate, fit, pages
    from clew.knowledge.base import FOLDER, load
    from clew.knowledge.schema import compile_folder

    records = kept(options)
    if not options.leave_one_out:
        knowledge = compile_folder(FOLDER, guessed=True) if options.guessed else load()
        show(options, fit.judge_all(records, lambda _: knowledge), ablate.ways(records, lambda _: knowledge))
        return 0
    guesses = compile_folder(FOLDER, guessed=True)
    by_program, _, choice = fit.tables(records, guesses)
    before = fit.judge_all(records, lambda _: guesses)
    after = fit.judge_all(records, lambda name: by_program.get(name, guesses))
    ways = {"guessed, all of them": before, **ablate.ways(records, lambda name: by_program.get(name, guesses))}
    show(options, after, ways)
    print(pages.chosen_by(choice))
    return 0


def act_fit(options: Namespace) -> int:
    from clew.casebook import fit, pages
    from clew.knowledge.base import FOLDER
    from clew.knowledge.measured import NAME, written
    from clew.knowledge.schema import compile_folder

    options.only, options.healthy, options.seeds = [], False, 3
    records = kept(options)
    _, table, choice = fit.tables(records, compile_folder(FOLDER, guessed=True))
    path = options.to or os.path.join(FOLDER, NAME)
    save(path, written(table))
    print(f"{table.runs} runs of {table.programs} programs, {len(table.tests)} tests: {near(path)}")
    print(pages.chosen_by(choice))
    return 0


def act_ablate(options: Namespace) -> int:
    from clew.casebook import ablate, fit, pages
    from clew.knowledge.base import FOLDER
    from clew.knowledge.schema import compile_folder

    if options.jobs < 1:
        raise ClewError(f"--jobs takes a number from 1 on, not {options.jobs}.")
    records = kept(options)
    guesses = compile_folder(FOLDER, guessed=True)
    by_program, _, _ = fit.tables(records, guesses)
    parts = ablate.ablate(records, lambda name: by_program.get(name, guesses), options.jobs, _count)
    met, unmet = (", ".join(names) or "none" for names in ablate.idle(parts))
    lines = [
        *pages.columns(ablate.rows(parts)),
        "",
        f"Nothing ever hung on these, which met causes that they name: {met}.",
        f"Nothing hung on these either, which met no such cause: {unmet}.",
    ]
    rows = [part._asdict() for part in parts]
    table = {"schema": "clew/1", "command": "casebook ablate", "parts": rows}
    answer(options, laid_out("\n".join(lines)), lambda: table)
    return 0


def act_limits(options: Namespace) -> int:
    from clew.casebook import limits, pages
    from clew.knowledge.base import load

    found = limits.limits(kept(options), load())
    text = "\n".join(pages.columns(limits.rows(found))) if found else "No limit would tell much more elsewhere."
    table = {"schema": "clew/1", "command": "casebook limits", "limits": [limit._asdict() for limit in found]}
    answer(options, laid_out(text), lambda: table)
    return 0


def _count(number: int, total: int) -> None:
    if number % 20 == 0 or number == total:
        print(f"[{number}/{total}]", file=sys.stderr, flush=True)


def act_wild(options: Namespace) -> int:
    from clew.casebook import wild

    scripts = wild.chosen(wild.scripts(options.scripts or wild.TABLE), options.only)
    found: wild.Found = [(script, None) for script in scripts]
    if options.folder and not options.list:
        for name in ("jobs", "budget"):
            if getattr(options, name) < 1:
                raise ClewError(f"--{name} takes a number from 1 on, not {getattr(options, name)}.")
        budget = 0 if options.no_exams else options.budget
        found = wild.run_all(scripts, options.folder, options.jobs, budget, wild.say)
    answer(options, laid_out(wild.table(found)), lambda: wild.to_json(found))
    return 0


def act_list(options: Namespace) -> int:
    from clew.casebook import tables

    faults = tables.chosen(tables.faults(), options.only)
    answer(
        options,
        laid_out("\n".join(f"{item.id:<52}{item.cause:<32}{item.place:<9}{item.file}" for item in faults)),
    )
    return 0
