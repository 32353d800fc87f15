"""An evidence map as an outline: what every view walks, and the same as a tree of lines for a terminal.

Nothing is computed here but the order of things. A map is a graph; the outline is the tree under its top claims, in
which a node that was met before is named again but not opened again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from clew.evidence.credence import Belief, Credences, Graph, Node, Part, connect, is_local
from clew.evidence.model import Document, Link, Quote, Statement
from clew.evidence.words import cells, clean, number, paint, said, wrap

MARKS = {"claim": "", "support": "(+)", "attack": "(-)", "witness": "(+)", "needed": "(&)"}
LEGEND = "(+) supports, (-) attacks, (&) is needed by the step it stands under."
HEARD = "counted already"

_BOLD, _DIM, _GREEN, _RED = "1", "2", "32", "31"
_ORDER = ("witness", "support", "needed", "attack")
_PAINTS = {"support": _GREEN, "witness": _GREEN, "attack": _RED}
_RAIL = 3
_NARROWEST = 30


class Row(NamedTuple):
    """One node of the outline, in reading order. `depth` says whose child it is.

    An argument and the statement it concludes share a row where nothing else bears on that statement; `node` is then
    the argument and `conclusion` the statement.
    """

    depth: int
    role: str  # a key of MARKS
    node: Node
    conclusion: Node | None = None
    counts: bool = True
    repeated: bool = False


class Facts(NamedTuple):
    """What the map says of a row, gathered from every place that says it.

    `gist` is what an argument says of itself where `text` is that of its conclusion.
    """

    text: str
    gist: str
    tags: tuple[str, ...]
    links: tuple[Link, ...]
    quotes: tuple[Quote, ...]
    reason: str


def outline(graph: Graph, credences: Credences) -> list[Row]:
    """The map as rows: top claims, and below each what bears on it, support before attack."""
    used = {below for node in graph.nodes() for below in graph.below(node)}
    tops = [Row(0, "claim", node) for node in graph.nodes() if node not in used and node.kind != "step"]
    tops.sort(key=lambda row: graph.line(row.node))
    rows: list[Row] = []
    seen: set[Node] = set()
    waiting = tops[::-1]
    while waiting:
        row = _merged(graph, waiting.pop())
        row = row._replace(repeated=row.node in seen)
        rows.append(row)
        if not row.repeated:
            seen.add(row.node)
            waiting += reversed(_children(graph, credences, row))
    return rows


def _merged(graph: Graph, row: Row) -> Row:
    makers = graph.concluders.get(row.node, ())
    if len(makers) != 1 or graph.supports.get(row.node) or graph.attacks.get(row.node):
        return row
    maker = makers[0]
    stated = any(item.data.get("credence") is not None for item in graph.said(row.node))
    if stated or graph.supports.get(maker) or graph.attacks.get(maker):
        return row
    return row._replace(node=maker, conclusion=row.node)


def _children(graph: Graph, credences: Credences, row: Row) -> list[Row]:
    parts = {(part.role, part.node): part for part in credences.of(row.node).parts}
    found: list[tuple[str, str, Node]] = []
    for premise in graph.premises.get(row.node, ()):
        role = "witness" if graph.is_observation(premise.title) else "needed"
        found.append((role, role, premise))
    found += [("concluded", "support", node) for node in graph.concluders.get(row.node, ())]
    found += [("support", "support", node) for node in graph.supports.get(row.node, ())]
    found += [("attack", "attack", node) for node in graph.attacks.get(row.node, ())]
    found.sort(key=lambda item: _ORDER.index(item[1]))
    return [Row(row.depth + 1, shown, node, counts=parts[role, node].counts) for role, shown, node in found]


def facts(graph: Graph, row: Row) -> Facts:
    places = [*graph.said(row.node), *(graph.said(row.conclusion) if row.conclusion else ())]
    reasons = [str(place.data.get("reason")) for place in places if place.data.get("reason") is not None]
    return Facts(
        _text(graph, row.conclusion or row.node),
        _text(graph, row.node) if row.conclusion else "",
        tuple(dict.fromkeys(tag for place in places for tag in place.tags)),
        tuple(dict.fromkeys(link for place in places for link in place.links)),
        tuple(quote for place in places if isinstance(place, Statement) for quote in place.quotes),
        " ".join(reasons),
    )


def _text(graph: Graph, node: Node) -> str:
    return next((place.text for place in graph.said(node) if place.text), "")


def cited(links: Iterable[Link]) -> list[str]:
    """The local files a statement rests on."""
    return [place(link) for link in links if is_local(link.target)]


def place(link: Link) -> str:
    """`file:first-last`, as editors and grep write it."""
    first, last = link.lines or (0, 0)
    lines = "" if not link.lines else f":{first}" if first == last else f":{first}-{last}"
    return clean(link.target.split("#")[0]) + lines


def author(belief: Belief) -> str:
    """The lineage of a statement that speaks for itself; "" for a derived one, or an assumption nobody is named for."""
    names = [name for part in belief.parts if part.role == "own" for name, _ in part.lineages]
    return clean(names[0]) if names and not names[0].startswith(("[", "<")) else ""


# Why a credence is what it is


def explain(node: Node, belief: Belief) -> list[str]:
    """The reckoning behind a credence, one sentence to a line."""
    steps = [part for part in belief.parts if part.role in ("witness", "needed")]
    lines = _statement_reasons(belief) if node.kind == "statement" else _argument_reasons(belief, bool(steps))
    silent = [str(part.node) for part in belief.parts if part.credence is not None and not part.counts]
    if silent:
        lines.append(f"Counted already by lineage, so adds nothing: {', '.join(silent)}.")
    missing = [str(part.node) for part in belief.unstated]
    if missing:
        effect = "" if belief.credence is None else ", so left out"
        lines.append(f"Not stated{effect}: {', '.join(missing)}.")
    return [clean(line) for line in lines]


def _statement_reasons(belief: Belief) -> list[str]:
    own = [part for part in belief.parts if part.role == "own"]
    lines = [f"Stated as {number(part.credence)}, lineage {part.lineages[0][0]}." for part in own]
    others = [part for part in belief.parts if part.role in ("concluded", "support") and part.credence is not None]
    if belief.support is not None and len(own) + len(others) > 1:
        lines.append(f"Support {number(belief.support)}: {_named(others)}.")
    elif others:
        lines.append(f"Carried by {_named(others)}.")
    against = [part for part in belief.parts if part.role == "attack" and part.credence is not None]
    if against:
        lines.append(f"Attack {number(belief.attack)}: {_named(against)}.")
    if against and belief.credence is not None:
        lines.append(f"{number(belief.support)} x (1 - {number(belief.attack)} / 2) = {number(belief.credence)}.")
    return lines or ["No credence is stated and nothing stated supports it."]


def _argument_reasons(belief: Belief, spelled_out: bool) -> list[str]:
    if not spelled_out and belief.credence is None:
        return ["No steps, no credence and nothing stated that supports it."]
    lines = _step_reasons(belief) if spelled_out else []
    whole = [part for part in belief.parts if part.role in ("own", "steps", "support") and part.credence is not None]
    if len(whole) > 1 or not spelled_out:
        lines.append(f"Support {number(belief.support)}: {_named(whole)}.")
    if not spelled_out and belief.inference != 1.0:
        lines.append(f"Inference {number(belief.inference)}.")
    against = [part for part in belief.parts if part.role == "attack" and part.credence is not None]
    if against:
        lines.append(f"Attack {number(belief.attack)} takes that share of it: {_named(against)}.")
    return lines


def _step_reasons(belief: Belief) -> list[str]:
    witnesses = [part for part in belief.parts if part.role == "witness" and part.credence is not None]
    needed = [part for part in belief.parts if part.role == "needed" and part.credence is not None]
    lines = []
    if witnesses:
        lines.append(f"Witnesses: {_named(witnesses)}.")
    if needed:
        lines.append(f"Needed: {_named(needed)}.")
    value = next((part.credence for part in belief.parts if part.role == "steps"), belief.credence)
    if value is not None:
        strength = "" if belief.inference == 1.0 else f"Inference {number(belief.inference)}. "
        lines.append(f"{strength}The step gives {number(value)}.")
    return lines


def _named(parts: Iterable[Part]) -> str:
    return ", ".join(f"{_shown(part)} {number(part.credence)}" for part in parts)


def _shown(part: Part) -> str:
    return "its steps" if part.role == "steps" else "itself" if part.role == "own" else str(part.node)


# The terminal


def tree_lines(document: Document, credences: Credences, width: int = 80, colour: bool = False) -> list[str]:
    """The map as lines no wider than `width`, which is taken to be at least 40."""
    graph = connect(document)
    rows = outline(graph, credences)
    width = max(width, 40)
    lines: list[str] = []
    rails: list[str] = []
    for row, goes_on, opens in zip(rows, _going_on(rows), _opening(rows), strict=True):
        if row.depth == 0 and lines:
            lines.append("")
        del rails[max(row.depth - 1, 0) :]
        # Far to the right the outer rails give way, so that text always has room.
        before = "".join(rails[2 - (width - _NARROWEST) // _RAIL :])
        rails += ["│  " if goes_on else "   "] * (row.depth > 0)
        lead = before + ("├─ " if goes_on else "└─ ") * (row.depth > 0)
        rest = before + ("│  " if goes_on else "   ") * (row.depth > 0) + ("│  " if opens else "   ")
        lines += _row_lines(_says(graph, credences, row), row.role, lead, rest, width, colour)
    return [*lines, "", *wrap(LEGEND, width, cells)] if rows else []


def _going_on(rows: list[Row]) -> list[bool]:
    """For each row, whether a sibling follows."""
    depths: set[int] = set()
    found = []
    for row in reversed(rows):
        found.append(row.depth in depths)
        depths = {depth for depth in depths if depth < row.depth} | {row.depth}
    return found[::-1]


def _opening(rows: list[Row]) -> list[bool]:
    """For each row, whether it has children."""
    after = [*(row.depth for row in rows[1:]), 0]
    return [after[index] > row.depth for index, row in enumerate(rows)]


def _row_lines(says: list[tuple[str, str]], role: str, lead: str, rest: str, width: int, colour: bool) -> list[str]:
    mark = f"{MARKS[role]} " if MARKS[role] else ""
    lines: list[str] = []
    for style, text in says:
        # Only the very first line carries the mark, but all of the heading keeps clear of it.
        room = width - max(len(lead) + len(mark), len(rest))
        for piece in wrap(text, room, cells):
            start = rest if lines else lead + _paint(mark, _PAINTS.get(role, ""), colour)
            lines.append(start + _paint(piece, style, colour))
    return lines


def _says(graph: Graph, credences: Credences, row: Row) -> list[tuple[str, str]]:
    """The lines of a row before they are wrapped, each with how it is painted."""
    belief = credences.of(row.node)
    subject = row.conclusion or row.node
    known = facts(graph, row)
    head = f"{row.node}: {said(belief.credence)}" if row.node.kind != "step" else f"{subject}: {said(belief.credence)}"
    if row.node in graph.inference:
        head += f", inference {number(belief.inference)}"
    if author(belief):
        head += f", lineage {author(belief)}"
    if not row.counts and belief.credence is not None:
        head += f", {HEARD}"
    if row.repeated:
        return [(_BOLD, f"{head}, shown above")]
    text = f"{subject} {known.text}" if row.conclusion and row.node.kind == "argument" else known.text
    lines = [(_BOLD, head), ("", known.gist), ("", text)]
    if belief.attack and belief.credence is not None:
        lines.append(("", f"Support {number(belief.support)}, attack {number(belief.attack)}."))
    if belief.unstated:
        lines.append(("", f"Not stated: {', '.join(str(part.node) for part in belief.unstated)}."))
    return lines + [(_DIM, source) for source in cited(known.links)]


def _paint(text: str, style: str, colour: bool) -> str:
    return paint(text, style) if colour and style else text
