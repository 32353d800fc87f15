"""`clew show`: one run, with the script's output, its metrics, its code and its report."""

import math
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import Any

from clew.app import runs
from clew.archive.files import Damage
from clew.archive.model import OUTPUT
from clew.case.verdict import shown
from clew.cli.output import answer, json_argument, laid_out, page
from clew.cli.runs import COLOURS, plain, run_argument, size
from clew.evidence.words import harmless
from clew.knowledge.base import load
from clew.records.masked import masked, masked_words
from clew.records.place import Place
from clew.records.trace import Series
from clew.report.run_page import checks
from clew.report.text import BOLD, DIM, YELLOW, Page, number, percent, seconds

METRIC_ROWS = 12
POINTS = 16
RETURN = re.compile(r"\r+\n?")


def arguments(parser: ArgumentParser, _: str = "") -> None:
    run_argument(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--output", action="store_true", help="the script's output")
    what.add_argument("--metrics", metavar="NAME", help="one quantity by step; NAME/PART for one module or parameter")
    what.add_argument("--code", nargs="?", const="", metavar="FILE", help="the source files it used, or one of them")
    what.add_argument("--all", action="store_true", help="every check: seen, passed, or why it did not apply")
    json_argument(parser)
    parser.add_argument("--html", metavar="FILE", help="write its HTML report")
    parser.set_defaults(act=act)


def act(options: Namespace) -> int:
    if options.output:
        return _output(options)
    if options.metrics is not None:
        answer(options, _series_page(runs.series(options.run, options.metrics), page()))
        return 0
    if options.code:
        _raw(options, [runs.source(options.run, options.code)[1]])
        return 0
    inside = runs.look(options.run)
    if options.all:
        clues, facts = runs.checked(inside)
        made = checks(clues, load().tests, facts, page())
    else:
        made = _code_page(inside, page()) if options.code is not None else run_page(inside, page())
    answer(options, made, lambda: runs.look_json(inside), lambda: runs.page(options.run))
    return 1 if options.code is None and inside.record.verdict in ("fault", "suspect") else 0


def _raw(options: Namespace, texts: Iterable[str]) -> None:
    if options.brief:
        answer(options, laid_out("".join(texts)))
        return
    for text in texts:
        sys.stdout.write(text)


def _output(options: Namespace) -> int:
    """Both streams together, without colours; what a progress bar wrote over gets a line of its own."""
    damage = Damage()
    _raw(options, (RETURN.sub("\n", said.text) for said in runs.printed(options.run, damage)))
    for remark in damage.remarks(OUTPUT):
        print(f"clew: {remark}", file=sys.stderr)
    return 0


def run_page(inside: runs.Inside, made: Page) -> Page:
    _heading(inside, made)
    _causes(inside.report, made)
    _numbers(inside, made)
    _printed(inside, made)
    _setting(inside, made)
    for remark in inside.remarks:
        made.say(remark, 0, "Note: ", YELLOW)
    return made


def _heading(inside: runs.Inside, made: Page) -> None:
    record = inside.record
    made.say(" ".join(masked_words(record.command)), 0, "", BOLD)
    end = record.end
    parts = [f"run {record.run.id}", f"started {record.started[:16].replace('T', ' ')} UTC"]
    parts += [f"{end.steps} steps"] if end else []
    parts += [seconds(inside.seconds), (end.says if end else record.state) or record.state]
    made.say(" · ".join(part for part in parts if part), 0, "", DIM)
    if record.rerun_of:
        made.say(f"a rerun of {record.rerun_of}", 0, "", DIM)
    if record.labels:
        made.say(", ".join(f"{name} {number(masked(name, value))}" for name, value in record.labels), 0, "", DIM)
    if record.state == "interrupted":
        made.say("The run was cut off: everything up to the last flush is here.", 0, "", YELLOW)
    if record.verdict:
        made.line()
        made.line(shown(record.verdict), COLOURS.get(record.verdict, BOLD), BOLD)


def _causes(report: dict[str, Any] | None, made: Page) -> None:
    """The leading causes as the report has them, findings first."""
    if report is None:
        return
    rows = [row for row in _rows(report.get("causes")) if isinstance(row.get("credence"), int | float)]
    findings = [row for row in rows if row.get("kind") == "finding"]
    if chosen := findings or rows[:3]:
        made.head("Found" if findings else "What it may be")
    for row in chosen:
        places = "; ".join(dict.fromkeys(str(Place.from_json(place)) for place in _rows(row.get("where"))))
        says = f"{row.get('id', '')}{f' at {places}' if places else ''}: {row.get('says', '')}"
        made.say(says, 2, f"{percent(row['credence']):>5}  ")


def _rows(value: object) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _numbers(inside: runs.Inside, made: Page) -> None:
    made.head("Metrics, last value")
    held = [item for item in inside.metrics.series.values() if item.steps]
    own = [item for item in held if not item.of]
    if not held:
        made.say("none were recorded", 2, "", DIM)
    width = max((len(item.name) for item in own[:METRIC_ROWS]), default=0)
    for item in own[:METRIC_ROWS]:
        points = f"{len(item.steps)} point{'s' * (len(item.steps) != 1)}"
        made.line(f"  {plain(item.name):<{width}}  {number(item.values[-1]):>10}  at step {item.steps[-1]}, {points}")
    rest = len(held) - min(len(own), METRIC_ROWS)
    if rest:
        names = list(dict.fromkeys(item.name for item in held if item.of or item not in own[:METRIC_ROWS]))
        made.say(f"{rest} more: {', '.join(names[:8])}{' …' if len(names) > 8 else ''}", 2, "", DIM)
    if len(inside.metrics.processes) > 1:
        made.say(f"recorded by {len(inside.metrics.processes)} processes", 2, "", DIM)


def _printed(inside: runs.Inside, made: Page) -> None:
    made.head("Last lines it printed")
    if not inside.tail:
        made.say("nothing was kept", 2, "", DIM)
    for line in inside.tail:
        # A progress bar writes over its line again and again: what stood there last is what a person saw.
        text = plain(harmless(line.rstrip("\r").rpartition("\r")[2]))
        made.line(f"  {text if len(text) <= made.columns - 2 else text[: made.columns - 3] + '…'}")


def _setting(inside: runs.Inside, made: Page) -> None:
    record, git = inside.record, inside.record.git
    made.head("Surroundings")
    made.say(f"{record.python}, {record.platform}, {', '.join(record.gpus) or 'no GPU seen'}", 2)
    made.say(", ".join(f"{name} {version}" for name, version in record.packages) or "no packages recorded", 2)
    if record.environment:
        made.say(", ".join(f"{name}={masked(name, value)}" for name, value in record.environment), 2)
    if git.commit:
        changes = "with uncommitted changes" if git.dirty else "nothing uncommitted"
        made.say(f"commit {git.commit[:12]} on {git.branch or 'no branch'}, {changes}", 2)
    elif git.why:
        made.say(git.why, 2, "", DIM)
    total = sum(item.size for item in inside.code)
    files = f"{len(inside.code)} source files, {size(total)} (--code lists them)" if inside.code else "no code kept"
    made.say(f"{files}; in {record.cwd}", 2)
    made.say(f"kept in {record.run.folder}", 2, "", DIM)


def _code_page(inside: runs.Inside, made: Page) -> Page:
    if not inside.code:
        made.say("No source file of this run was kept.")
    for item in sorted(inside.code, key=lambda item: item.path):
        note = "  (changed while it ran)" if item.changed else ""
        made.line(f"{item.digest[:12]}  {size(item.size):>9}  {plain(item.path)}{note}")
    return made


def _series_page(found: list[Series], made: Page) -> Page:
    several = len(found) > 4
    for item in found:
        made.head(f"{plain(item.name)}{f' of {plain(item.of)}' if item.of else ''}")
        finite = [value for value in item.values if math.isfinite(value)]
        odd = len(item.values) - len(finite)
        parts = [f"{len(item.values)} points", f"last {number(item.values[-1])}" if item.values else ""]
        parts += [f"least {number(min(finite))}", f"most {number(max(finite))}"] if finite else []
        parts += [f"{odd} not finite, first at step {_first_odd(item)}"] if odd else []
        made.say(", ".join(part for part in parts if part), 2, "", DIM)
        for index in [] if several else _spread(len(item.values)):
            made.line(f"  {item.steps[index]:>10}  {number(item.values[index])}")
    return made


def _first_odd(item: Series) -> int:
    return next(step for step, value in zip(item.steps, item.values, strict=True) if not math.isfinite(value))


def _spread(count: int) -> list[int]:
    """Some indices from the first to the last, evenly apart."""
    if count <= POINTS:
        return list(range(count))
    return [round(index * (count - 1) / (POINTS - 1)) for index in range(POINTS)]
