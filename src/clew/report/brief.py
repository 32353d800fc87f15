"""The short form of a result: what an agent needs next, in at most 15 lines or 2 KB of JSON.

Both are made from the full JSON result, so that they cannot say anything else.
"""

from typing import Any

from clew.case.verdict import shown as shown_word
from clew.evidence.words import cells, wrap
from clew.records import exact
from clew.records.place import Place
from clew.report.terminal import VERDICT_COLOURS
from clew.report.text import BOLD, DIM, Page, percent, seconds
from clew.report.view import LEAST_SHARE

LINES, BYTES = 15, 2048
FEW = 4
"""A report of so many lines is short as it is."""
CAUSES = 3
OF_A_CAUSE = ("id", "credence", "kind", "where", "seen", "fix", "check")
SIZES = ((8, 400), (5, 250), (3, 250), (3, 160), (3, 90), (2, 80), (1, 60), (1, 20), (0, 20))
"""How many items of a list and characters of a text may stay: the first pair that fits is taken."""


def table(full: Any) -> Any:
    """The result under the same names, small enough for a context window."""
    held = _chosen(full) if isinstance(full, dict) else full
    for items, text in SIZES:
        small = _cut(held, items, text)
        if len(exact.dumps(small).encode()) <= BYTES:
            return small
    return {name: value for name, value in small.items() if isinstance(value, str)} if isinstance(small, dict) else []


def _chosen(full: dict[str, Any]) -> dict[str, Any]:
    if isinstance(full.get("report"), dict):  # of `clew show`: what the run concluded, and which run it was
        return {**_chosen(full["report"]), "command": full["command"], "run": {"id": full["run"]["id"]}}
    if "causes" not in full or "verdict" not in full:
        return full
    causes = [{"says": _gloss(row), **{name: row[name] for name in OF_A_CAUSE if name in row}} for row in _told(full)]
    held = {name: full[name] for name in ("schema", "command", "verdict") if name in full} | {"causes": causes}
    held |= {name: full[name] for name in ("result",) if name in full}
    return held | {"next": full.get("next", [])[:1], "run": {"id": full.get("run", {}).get("id", "")}}


def _gloss(row: dict[str, Any]) -> str:
    """What a cause is; its fix has a field of its own."""
    return str(row["says"]).removesuffix(row.get("fix", "")).strip()


def _told(full: dict[str, Any]) -> list[dict[str, Any]]:
    """The first causes; under a fault "nothing wrong" is none, and what is hardly credible never is one."""
    fault = full["verdict"] == "fault"
    rows = [row for row in full["causes"] if not (fault and str(row["id"]).startswith("none."))]
    return [row for row in rows if row["kind"] == "finding" or row["credence"] >= LEAST_SHARE][:CAUSES]


def _cut(value: Any, items: int, text: int, depth: int = 0) -> Any:
    if isinstance(value, str):
        return value if len(value) <= text else value[: text - 1] + "…"
    if isinstance(value, list | tuple):
        return [_cut(item, items, text, depth + 1) for item in value[:items]]
    if isinstance(value, dict):
        rows = list(value.items()) if depth < 1 else list(value.items())[: 4 * items]
        return {name: _cut(item, items, text, depth + 1) for name, item in rows}
    return value


def page(full: Any, made: Page) -> Page:
    """The report in few lines: the verdict with its causes where the result has one, else how the report begins."""
    inner = full.get("report") if isinstance(full, dict) and isinstance(full.get("report"), dict) else full
    if (
        not isinstance(inner, dict)
        or "causes" not in inner
        or "verdict" not in inner
        or 0 < len(made.lines) <= FEW
        or (inner.get("exams") or {}).get("only")
    ):
        return cut(made)
    short = Page(made.columns, made.colour)
    if closing := (inner.get("case") or {}).get("closed"):
        some(short, f"Case closed: {closing['cause']}. {closing['evidence']}".strip(), "", 2)
        return short
    _heading(inner, short)
    findings = [row for row in inner["causes"] if row.get("kind") == "finding"]
    shown = findings[:CAUSES] or (_told(inner) if inner["verdict"] in ("fault", "suspect") else [])
    for row in inner.get("unusual", [])[:1] if not findings and inner["verdict"] != "healthy" else []:
        places = [f"{Place.from_json(place)}: " for place in row["where"][:1]]
        some(short, "".join([*places, row["says"]]), "seen: ", 3)
    for index, row in enumerate(shown):
        places = [str(Place.from_json(place)) for place in row.get("where", [])[:1]]
        short.line(short.paint(f"{', '.join([*places, row['id']])} ({percent(row['credence'])})", BOLD))
        some(short, _gloss(row), "  ", 2 if index == 0 else 1)
        if index == 0:
            for text in row.get("seen", [])[:1] if row["kind"] == "finding" else []:
                some(short, text, "  seen: ", 2)
            if row.get("fix"):
                some(short, row["fix"], "  fix: ", 3)
            some(short, row["check"], "  this is wrong if: ", 3)
    if not findings and inner.get("next"):
        first = inner["next"][0]
        timed = inner["command"] in ("run", "exam")
        cost = " (by hand)" if first.get("by") == "person" else f" ({seconds(first['cost_s'])})" if timed else ""
        some(short, f"next: {first['test']}{cost}. {first.get('says', '')}", "", 2)
    if inner["command"] in ("run", "exam") and (name := inner["run"].get("id")):
        short.line(f"all of it: clew show {name}", DIM)
    short.lines = short.lines[:LINES]
    return short


def _heading(inner: dict[str, Any], short: Page) -> None:
    run, word = inner["run"], inner["verdict"]
    took = f": {run['steps']} steps in {seconds(run['seconds'])}" if run.get("steps") and run["seconds"] else ""
    ended = f", exit {run['exit']}" if run.get("exit") else ""
    says = inner.get("says", "")
    if crash := run.get("crash"):
        place = f"{Place.from_json(crash['place'])}: " if crash.get("place") else ""
        some(short, f"{place}{crash['kind']}: {crash['says']}", "", 2)
    some(short, f"{run.get('script') or run.get('id', '')}{took}{ended}. {says}".strip(), f"{shown_word(word)}  ", 2)
    painted = short.paint(shown_word(word), VERDICT_COLOURS[word], BOLD)
    short.lines = [line.replace(shown_word(word), painted, 1) for line in short.lines]


def some(made: Page, text: str, first: str, most: int) -> None:
    """A paragraph of at most so many lines."""
    rows = wrap(text, max(20, made.columns - len(first) - 2), cells) or [""]
    if len(rows) > most:
        rows = [*rows[: most - 1], rows[most - 1] + " …"]
    for index, row in enumerate(rows):
        made.line(f"{first if index == 0 else ' ' * len(first)}{row}")


def cut(made: Page) -> Page:
    """The beginning of a report, and how much of it is missing."""
    if len(made.lines) > LINES:
        rest = len(made.lines) - LINES + 1
        made.lines = [*made.lines[: LINES - 1], f"… {rest} more lines without --brief."]
    return made
