"""An evidence map as a drawing and as a page.

The drawing is the outline laid out left to right: claims, then arguments, then premises. Each subtree has a band of its
own, so no line crosses a box or another line; a node that bears on several things is drawn once and named elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clew.evidence.credence import Belief, Credences, Graph, connect, is_local
from clew.evidence.model import Document, Link
from clew.evidence.tree import HEARD, Facts, Row, author, cited, explain, facts, outline, place
from clew.evidence.words import clean, number, said, wrap

if TYPE_CHECKING:
    from jinja2 import Environment

BOX, GUTTER, MARGIN, GAP, PAD = 330.0, 66.0, 20.0, 14.0, 12.0
BAR = 84.0
LEGEND_HEIGHT = 40.0
MOST_LINES = 14
SIZES = {"title": 12.0, "sub": 11.0, "body": 11.0, "note": 10.0}
LEADING = {"title": 17.0, "sub": 16.0, "body": 15.0, "note": 14.0}
SPACE = {"credence": 2.0, "sub": 5.0, "body": 3.0, "note": 4.0}
SIGNS = {"claim": "", "support": "+", "witness": "+", "attack": "−", "needed": "&"}


class Text(NamedTuple):
    x: float
    y: float
    style: str
    text: str


class Box(NamedTuple):
    id: str
    kind: str  # "claim" | "argument" | "statement" | "repeat"
    x: float
    y: float
    width: float
    height: float
    lines: tuple[Text, ...]
    full: str
    bar_y: float
    filled: float | None  # width of the bar; None when the credence is not stated
    target: str = ""  # the box drawn elsewhere, for a repeat


class Wire(NamedTuple):
    """One straight run of an edge, or several. `sign` stands beside the box the edge starts from."""

    kind: str  # "support" | "attack" | "needed"
    path: str
    top: float
    bottom: float
    sign: str = ""
    sign_x: float = 0.0
    arrow: str = ""


class Slice(NamedTuple):
    """A part of the drawing between two heights that no box crosses, so a page can break there."""

    y: float
    height: float
    boxes: tuple[Box, ...]
    wires: tuple[Wire, ...]


class Drawing(NamedTuple):
    width: float
    height: float
    boxes: tuple[Box, ...]
    wires: tuple[Wire, ...]
    cuts: tuple[float, ...]


class Entry(NamedTuple):
    """A row of the page's outline, with everything ready to print. `closes` counts the elements that end after it."""

    id: str
    role: str
    sign: str
    titles: tuple[str, ...]
    credence: str
    percent: float | None
    gist: str
    text: str
    notes: tuple[str, ...]
    reasons: tuple[str, ...]
    reason: str
    tags: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    quotes: tuple[tuple[str, ...], ...]
    target: str
    closes: int


def svg(document: Document, credences: Credences) -> str:
    """The drawing as a file of its own."""
    graph = connect(document)
    rows = outline(graph, credences)
    drawing = lay_out(graph, credences, rows)
    whole = Slice(0.0, drawing.height, drawing.boxes, drawing.wires)
    return _templates().get_template("map.svg.j2").render(drawing=drawing, slice=whole, label=_title(document, ""))


def html(document: Document, credences: Credences, title: str = "") -> str:
    """The drawing and a collapsible outline on one page that needs nothing else."""
    graph = connect(document)
    rows = outline(graph, credences)
    drawing = lay_out(graph, credences, rows)
    return (
        _templates()
        .get_template("page.html.j2")
        .render(
            title=_title(document, title),
            drawing=drawing,
            slices=_slices(drawing),
            entries=_entries(graph, credences, rows),
            claims=[
                (_id(i), clean(str(row.conclusion or row.node)), said(credences.of(row.node).credence))
                for i, row in enumerate(rows)
                if row.depth == 0
            ],
            counts=(len(graph.statements), len(graph.arguments)),
        )
    )


def _templates() -> Environment:
    import os.path

    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = os.path.join(os.path.dirname(__file__), "templates")
    made = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["n"] = _figure
    return made


def _figure(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _title(document: Document, title: str) -> str:
    given = document.front.get("title")
    return clean(title or (given if isinstance(given, str) else "") or document.name or "Evidence map")


def _id(index: int) -> str:
    return f"b{index}"


# Measuring

_WIDTHS = {
    char: width
    for chars, width in (
        ("il'", 0.28),
        ("fjt., ", 0.4),
        ('rI()[]{}-/\\"`|:;!', 0.46),
        ("cszkvxyJ", 0.6),
        ("BCEFKLPRSTVXYZ", 0.71),
        ("ADGHNOQU&", 0.79),
        ("w+<>=~^#", 0.84),
        ("mMW@%", 1.08),
    )
    for char in chars
}


def text_width(text: str, size: float, bold: bool = False) -> float:
    """An upper estimate of the width of text in Verdana or DejaVu Sans, the widest of the usual screen fonts."""
    return sum(_em(char) for char in text) * size * (1.13 if bold else 1.0)


def _em(char: str) -> float:
    if char < "\x7f":
        return _WIDTHS.get(char, 0.64)
    return 0.8 if char < "\u0250" else 1.15


def _broken(text: str, style: str, room: float) -> list[str]:
    bold = style in ("title", "sub")
    return wrap(text, room, lambda line: text_width(line, SIZES[style], bold))


# Laying out


def lay_out(graph: Graph, credences: Credences, rows: list[Row]) -> Drawing:
    """Place every row: a column for its depth, and a height below everything that was placed before it."""
    boxes: list[Box] = []
    first = {row.node: index for index, row in reversed(list(enumerate(rows))) if not row.repeated}
    free: list[float] = []
    above: list[int] = []
    for index, row in enumerate(rows):
        del above[row.depth :]
        free += [LEGEND_HEIGHT + MARGIN] * (row.depth + 1 - len(free))
        top = max([*free[row.depth :], *(boxes[parent].y for parent in above[-1:])])
        if row.depth == 0 and index:
            top += GAP
        target = _id(first[row.node]) if row.repeated else ""
        box = _box(graph, credences, row, _id(index), MARGIN + row.depth * (BOX + GUTTER), top, target)
        boxes.append(box)
        free[row.depth] = top + box.height + GAP
        above.append(index)
    width = max((box.x + box.width for box in boxes), default=BOX) + MARGIN
    bottom = max((box.y + box.height for box in boxes), default=LEGEND_HEIGHT) + MARGIN
    return Drawing(width, bottom, tuple(boxes), tuple(_wires(rows, boxes)), _cuts(rows, boxes))


def _box(graph: Graph, credences: Credences, row: Row, id_: str, x: float, y: float, target: str) -> Box:
    belief = credences.of(row.node)
    lines: list[Text] = []
    at = y + PAD - 2.0
    bar_y = 0.0
    before = ""
    for style, text in _contents(graph, belief, row):
        if not text:
            continue
        at += SPACE.get(style, 0.0) if style != before else 0.0
        before = style
        indent = BAR + 8.0 if style == "credence" else 0.0
        size = "note" if style == "credence" else style
        pieces = _broken(text, size, BOX - 2 * PAD - indent)
        if style == "body" and len(pieces) > MOST_LINES:
            pieces = [*pieces[: MOST_LINES - 1], f"{pieces[MOST_LINES - 1]} …"]
        if style == "credence":
            bar_y = at + 4.0
        for piece in pieces:
            at += LEADING[size]
            lines.append(Text(x + PAD + indent, at - 4.0, size, piece))
    kind = "repeat" if row.repeated else row.role if row.role == "claim" else row.node.kind
    filled = None if belief.credence is None else BAR * belief.credence
    known = facts(graph, row)
    full = clean(f"{row.node}: {said(belief.credence)}. {known.text}")
    return Box(id_, kind, x, y, BOX, at + PAD - y - 2.0, tuple(lines), full, bar_y, filled, target)


def _contents(graph: Graph, belief: Belief, row: Row) -> list[tuple[str, str]]:
    subject = row.conclusion or row.node
    known = facts(graph, row)
    heading = subject if row.node.kind == "step" else row.node
    credence = said(belief.credence)
    if row.node in graph.inference:
        credence += f", inference {number(belief.inference)}"
    lines = [("title", str(heading)), ("credence", credence)]
    if row.repeated:
        return [*lines, ("note", "drawn elsewhere on this map")]
    lines.append(("body", known.gist))
    if heading != subject:
        lines.append(("sub", str(subject)))
    lines.append(("body", known.text))
    if belief.attack and belief.credence is not None:
        lines.append(("note", f"support {number(belief.support)}, attack {number(belief.attack)}"))
    return lines + [("note", note) for note in _notes(belief, row, known)]


def _notes(belief: Belief, row: Row, known: Facts) -> list[str]:
    notes = []
    if author(belief):
        notes.append(f"lineage: {author(belief)}")
    elif any(part.role == "own" for part in belief.parts):
        notes.append("lineage: none named")
    if not row.counts and belief.credence is not None:
        notes.append(HEARD)
    if belief.unstated:
        notes.append(f"not stated: {', '.join(str(part.node) for part in belief.unstated)}")
    return notes + cited(known.links)


def _wires(rows: list[Row], boxes: list[Box]) -> list[Wire]:
    """A trunk for each parent and kind of edge, and a branch from it to each child."""
    edges: dict[int, dict[str, list[int]]] = {}
    above: list[int] = []
    for index, row in enumerate(rows):
        del above[row.depth :]
        if above:
            kind = row.role if row.role in ("attack", "needed") else "support"
            edges.setdefault(above[-1], {}).setdefault(kind, []).append(index)
        above.append(index)
    wires = []
    for parent, kinds in edges.items():
        # Children come in the order of the lanes. A later lane is further out and leaves the parent lower, so that no
        # two lanes of a parent cross.
        for lane, (kind, children) in enumerate(kinds.items()):
            wires += _lane(boxes[parent], [boxes[child] for child in children], kind, lane)
    return wires


def _lane(parent: Box, children: list[Box], kind: str, lane: int) -> list[Wire]:
    right, y = parent.x + parent.width, parent.y + 20.0 + 9.0 * lane
    x = right + GUTTER * (0.48 - 0.13 * lane)
    ends = [child.y + 20.0 for child in children]
    trunk = f"M{_figure(right + 6)} {_figure(y)}H{_figure(x)}V{_figure(ends[-1])}"
    arrow = f"M{_figure(right)} {_figure(y)}l6 -3.5v7z"
    wires = [Wire(kind, trunk, min(y, *ends) - 4.0, max(y, *ends), arrow=arrow)]
    for child, end in zip(children, ends, strict=True):
        branch = f"M{_figure(x)} {_figure(end)}H{_figure(child.x)}"
        wires.append(Wire(kind, branch, end - 10.0, end + 10.0, SIGNS[kind], child.x - 13.0))
    return wires


def _cuts(rows: list[Row], boxes: list[Box]) -> tuple[float, ...]:
    edges = [box.y - GAP / 2 for row, box in zip(rows, boxes, strict=True) if row.depth <= 1]
    inner = {y for y in edges if y > edges[0] and not any(box.y < y < box.y + box.height for box in boxes)}
    return tuple(sorted(inner))


def _slices(drawing: Drawing) -> list[Slice]:
    found = []
    for top, bottom in zip((0.0, *drawing.cuts), (*drawing.cuts, drawing.height), strict=True):
        boxes = tuple(box for box in drawing.boxes if top <= box.y < bottom)
        wires = tuple(wire for wire in drawing.wires if wire.top < bottom and wire.bottom > top)
        found.append(Slice(top, bottom - top, boxes, wires))
    return found


# The outline on the page


def _entries(graph: Graph, credences: Credences, rows: list[Row]) -> list[Entry]:
    first = {row.node: index for index, row in reversed(list(enumerate(rows))) if not row.repeated}
    after = [*(row.depth for row in rows[1:]), 0]
    return [
        _entry(graph, credences.of(row.node), row, index, first[row.node], row.depth - after[index] + 1)
        for index, row in enumerate(rows)
    ]


def _entry(graph: Graph, belief: Belief, row: Row, index: int, first: int, closes: int) -> Entry:
    subject = row.conclusion or row.node
    known = facts(graph, row)
    titles = (str(row.node), str(subject)) if row.conclusion and row.node.kind == "argument" else (str(subject),)
    extra = [f"inference {number(belief.inference)}"] if row.node in graph.inference else []
    if author(belief):
        extra.append(f"lineage {author(belief)}")
    if not row.counts and belief.credence is not None:
        extra.append(HEARD)
    return Entry(
        _id(index),
        row.role,
        SIGNS[row.role],
        tuple(clean(title) for title in titles),
        said(belief.credence),
        None if belief.credence is None else 100 * belief.credence,
        clean(known.gist),
        clean(known.text),
        tuple(extra),
        tuple(explain(row.node, belief)),
        clean(known.reason),
        tuple(clean(tag) for tag in known.tags),
        tuple((_label(link), href(link.target)) for link in known.links),
        tuple(tuple(clean(quoted) for quoted in quote.rows) for quote in known.quotes),
        _id(first) if row.repeated else "",
        closes,
    )


def _label(link: Link) -> str:
    return place(link) if is_local(link.target) else clean(link.label or link.target)


def href(target: str) -> str:
    """The target if a browser may follow it: http, https, or a path beside the page. Otherwise ""."""
    if clean(target) != target or " " in target or "\\" in target or target.startswith("//"):
        return ""
    scheme, colon, _ = target.split("#")[0].split("?")[0].split("/")[0].partition(":")
    return target if not colon or scheme.lower() in ("http", "https") else ""
