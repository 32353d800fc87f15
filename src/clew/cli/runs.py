"""`clew runs`: the runs there are, what changed between two, running one again, throwing old ones away."""

import os
import shutil
import sys
from argparse import ArgumentParser, Namespace
from typing import Any

from clew.app import runs
from clew.archive.again import Plan
from clew.archive.compare import Change, Difference, MetricChange
from clew.archive.model import Record
from clew.cli.output import answer, json_argument, page, show
from clew.records.masked import masked, masked_words
from clew.report.text import BOLD, DIM, GREEN, RED, YELLOW, Page, number, seconds

COLOURS = {"fault": RED, "suspect": YELLOW, "healthy": GREEN, "interrupted": YELLOW, "running": GREEN}
DIFF_LINES = 60
METRIC_ROWS = 12


def arguments(parser: ArgumentParser, only: str = "") -> None:
    """Without a verb, the list; only the verb that was asked for gets its arguments."""
    parser.add_argument("--sort", default="started", metavar="BY", help="started (default), seconds or verdict")
    words = "only runs with this verdict (fault, suspect, …) or state (running, interrupted, finished)"
    parser.add_argument("--verdict", default="", metavar="V", help=words)
    parser.add_argument("--script", default="", metavar="S", help="only runs whose script has this in its name")
    parser.add_argument("-n", type=int, default=20, metavar="N", help="how many to show (20); 0 shows all")
    parser.set_defaults(act=act_list)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for name, (gist, fill) in VERBS.items():
        verb = verbs.add_parser(name, help=gist, description=gist[0].upper() + gist[1:] + ".")
        if only not in VERBS or only == name:
            fill(verb)


def run_argument(parser: ArgumentParser, name: str = "run", metavar: str = "RUN", default: str = "") -> None:
    """With a default, the run may be left out."""
    words = 'an id, the beginning or end of one, "last", "last~1", a script (its latest run), or a path'
    optional = {"nargs": "?", "default": default} if default else {}
    argument = parser.add_argument(name, metavar=metavar, help=words, **optional)  # type: ignore[arg-type]
    argument.completer = _ids  # type: ignore[attr-defined]  # argcomplete reads this


def _ids(prefix: str, **_: Any) -> list[str]:
    from clew.archive.runs import all_ids

    return [name for name in ["last", *all_ids()] if name.startswith(prefix)]


def _diff(parser: ArgumentParser) -> None:
    run_argument(parser, "a", "A")
    run_argument(parser, "b", "B")
    json_argument(parser)
    parser.set_defaults(act=act_diff)


def _rerun(parser: ArgumentParser) -> None:
    run_argument(parser)
    words = "restore the code and print the command without running it"
    parser.add_argument("--only-prepare", action="store_true", help=words)
    parser.set_defaults(act=act_rerun)


def _gc(parser: ArgumentParser) -> None:
    words = "remove runs that ended longer ago than this: 30d, 12h, 2w"
    parser.add_argument("--older-than", default="", metavar="AGE", help=words)
    parser.add_argument("--keep", type=int, metavar="N", help="always keep the newest N runs")
    parser.add_argument("--dry-run", action="store_true", help="show what would be removed, and remove nothing")
    parser.set_defaults(act=act_gc)


VERBS = {
    "diff": ("what changed between two runs: command, code, environment, outcome", _diff),
    "rerun": ("the same command on the same code", _rerun),
    "gc": ("remove old runs and the contents that nothing refers to", _gc),
}


def act_list(options: Namespace) -> int:
    found = runs.listing(options.sort, options.verdict, options.script, options.n)
    made = page()
    if found.records:
        _table(made, found.records)
    elif found.total:
        made.say(f"None of the {found.total} runs here matches.")
    else:
        made.say("There is no run here yet; `clew run SCRIPT` makes one.")
    if found.more:
        made.say(f"{found.more} more; -n 0 shows all.", 0, "", DIM)
    for remark in found.remarks:
        made.say(remark, 0, "! ", YELLOW)
    answer(options, made)
    return 0


def _table(made: Page, records: tuple[Record, ...]) -> None:
    words = [_state(record) for record in records]
    width = max(len(plain(record.run.id)) for record in records)
    wide = max(len("VERDICT"), *(len(" ".join(row)) for row in words))
    title = f"{'RUN':<{width}}  {'VERDICT':<{wide}}  {'STEPS':>7}  {'TIME':>6}"
    room = made.columns - len(title) - 2
    made.line(title + ("  ARGUMENTS" if room >= 9 else ""), DIM)
    for record, row in zip(records, words, strict=True):
        painted = " ".join(made.paint(word, *((COLOURS[word],) if word in COLOURS else ())) for word in row)
        steps = f"{record.end.steps}" if record.end and record.end.steps else "-"
        line = f"{plain(record.run.id):<{width}}  {painted}{' ' * (wide - len(' '.join(row)))}"
        line += f"  {steps:>7}  {seconds(runs.seconds(record)):>6}"
        given = plain(" ".join(_after_script(record)))
        if room >= 9 and given:
            line += "  " + (given if len(given) <= room else given[: room - 1] + "…")
        made.line(line)


def _state(record: Record) -> list[str]:
    """The verdict, and how it ended unless that was well."""
    end = record.end
    ended = record.state if end is None else "" if end.exit == 0 and not end.signal else end.says
    return [word for word in (record.verdict, ended) if word] or ["-"]


def _after_script(record: Record) -> list[str]:
    """The arguments of the script; of a launcher, everything."""
    words = list(record.command)
    return masked_words(words[words.index(record.script) + 1 :] if record.script in words else words)


def plain(text: str) -> str:
    """Text in which nothing moves the cursor; unlike prose, it keeps its spaces."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text.expandtabs(4))


def act_diff(options: Namespace) -> int:
    found = runs.difference(options.a, options.b)
    answer(options, difference_page(found, page()), lambda: runs.difference_json(found))
    return 0 if found.same_input and found.same_outcome else 1


def difference_page(found: Difference, made: Page) -> Page:
    made.say(f"{found.a.run.id} → {found.b.run.id}", 0, "", BOLD)
    parts = (
        ("Command", found.command),
        ("Labels", found.labels),
        ("Variables", found.environment),
        ("Packages", found.packages),
        ("Machine", found.machine),
        ("Git", found.git),
    )
    if found.code:
        made.head(f"Code ({found.code_same} file{'s' * (found.code_same != 1)} the same)")
        for item in found.code:
            made.say(f"{item.path}: {item.kind}{f' ({item.note})' if item.note else ''}", 2)
            _diff_lines(made, item.diff)
    for title, changes in parts:
        if changes:
            made.head(title)
            _changes(made, changes)
    same = [title.lower() for title, changes in (("Code", found.code), *parts) if not changes and title != "Labels"]
    if same:
        made.line()
        made.say(f"The same in both, as far as recorded: {', '.join(same)}.", 0, "", DIM)
    made.head("Outcome")
    _changes(made, found.outcome)
    _metrics(made, found.metrics, found.metrics_same)
    if found.same_input and not found.same_outcome:
        made.line()
        made.say("No recorded difference explains it: look at seeds, data and nondeterminism.")
    for remark in found.remarks:
        made.say(remark, 0, "Note: ", DIM)
    return made


def _changes(made: Page, changes: tuple[Change, ...]) -> None:
    if not changes:
        made.say("the same", 2, "", DIM)
    for change in changes:
        before, after = (_missing(value) for value in (change.before, change.after))
        made.say(f"{before} → {after}", 2, f"{plain(change.name)}: ")


def _missing(value: str | None) -> str:
    return "(not there)" if value is None else value or "(empty)"


def _diff_lines(made: Page, text: str) -> None:
    lines = text.splitlines()[2:]
    for line in lines[:DIFF_LINES]:
        colour = {"+": GREEN, "-": RED, "@": DIM}.get(line[:1])
        made.line(f"    {plain(line)}", *((colour,) if colour else ()))
    if len(lines) > DIFF_LINES:
        made.say(f"{len(lines) - DIFF_LINES} more lines; --json has them all", 4, "… ", DIM)


def _metrics(made: Page, changes: tuple[MetricChange, ...], same: int) -> None:
    """The run's own metrics one by one; those of its parts only counted, there may be thousands."""
    own = [change for change in changes if not change.of]
    parts = len(changes) - len(own)
    if changes:
        made.head("Metrics, last value")
    for change in own[:METRIC_ROWS]:
        before, after = _last(change.before, change.step_before), _last(change.after, change.step_after)
        made.say(f"{before} → {after}", 2, f"{plain(change.name)}: ")
    rest = [f"{len(own) - METRIC_ROWS} more of the run" if len(own) > METRIC_ROWS else ""]
    rest += [f"{parts} of modules and parameters" if parts else ""]
    if said := " and ".join(part for part in rest if part):
        made.say(f"and {said} differ; --json has them all.", 2, "", DIM)
    if same:
        made.say(f"{same} end in the same value.", 2, "", DIM)


def _last(value: float | None, step: int | None) -> str:
    return "(not there)" if value is None else f"{number(value)} at step {step}"


def act_rerun(options: Namespace) -> int:
    plan = runs.again(options.run)
    show(_plan_page(plan, page()))
    if options.only_prepare:
        return 0
    sys.stdout.flush()
    try:
        return _run(plan)
    finally:
        shutil.rmtree(plan.folder, ignore_errors=True)


def _plan_page(plan: Plan, made: Page) -> Page:
    import shlex

    count = len(plan.files)
    files = f"{count} source files as they were" if count != 1 else "1 source file as it was"
    made.say(f"Running {plan.run.id} again, on {files}:", 0, "", BOLD)
    made.line(f"  cd {plain(shlex.quote(plan.folder))}")
    setting = " ".join(f"{name}={shlex.quote(masked(name, value))}" for name, value in plan.environment)
    unset = "".join(f"-u {name} " for name in plan.unset)
    made.line(f"  env {unset}{plain(setting)} {plain(shlex.join(masked_words(plan.command)))}")
    for remark in plan.remarks:
        made.say(remark, 0, "Note: ", YELLOW)
    return made


def _run(plan: Plan) -> int:
    """Under observation as the first time, where this clew can observe."""
    import subprocess
    from importlib.util import find_spec

    command = list(plan.command)
    if find_spec("clew.cli.run") is not None:
        command = [sys.executable, "-m", "clew", "run", "--", *command]
    environment = {name: value for name, value in os.environ.items() if name not in plan.unset}
    environment |= {**dict(plan.environment), "CLEW_RERUN_OF": plan.run.id}
    try:
        status = subprocess.run(command, cwd=plan.folder, env=environment, check=False).returncode
    except OSError as error:
        from clew.errors import ClewError

        raise ClewError(f"cannot run {command[0]}: {error.strerror}.") from error
    return status if status >= 0 else 128 - status


def act_gc(options: Namespace) -> int:
    done = runs.clear(options.keep, options.older_than, options.dry_run)
    made = page()
    would = "Would remove" if done.dry_run else "Removed"
    count = len(done.runs)
    objects = f"{done.objects} source file{'s' * (done.objects != 1)} that no run refers to"
    made.say(f"{would} {count} run{'s' * (count != 1)} and {objects}: {size(done.freed)}.")
    for name in done.runs:
        made.say(name, 2)
    if done.leftovers:
        made.say(f"Among it {done.leftovers} half-made folders that a killed process left behind.", 0, "", DIM)
    if options.keep is None and not options.older_than:
        made.say("No run goes without --older-than or --keep.", 0, "", DIM)
    if done.running:
        made.say(f"{len(done.running)} running: left alone.", 0, "", DIM)
    for remark in done.remarks:
        made.say(remark, 0, "! ", YELLOW)
    answer(options, made)
    return 0


def size(count: int) -> str:
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
