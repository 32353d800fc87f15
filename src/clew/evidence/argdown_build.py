"""The half-built map: what the reader fills in while it walks the lines, and the checks that need the whole of it."""

from collections.abc import Iterator
from typing import NoReturn, Protocol

from clew.errors import did_you_mean
from clew.evidence.model import (
    Argument,
    Block,
    Comment,
    Heading,
    Link,
    Map,
    Quote,
    Relation,
    Statement,
    Step,
)


class Place(Protocol):
    def __call__(self, line: int, column: int, message: str) -> NoReturn: ...


class Node:
    """A statement or an argument that may still grow."""

    def __init__(self, kind: str, title: str, line: int, column: int) -> None:
        self.kind = kind
        self.title = title
        self.line = line
        self.column = column
        self.text: list[str] = []
        self.tags: list[str] = []
        self.links: list[Link] = []
        self.quotes: list[tuple[list[str], int, int]] = []
        self.quote_open = False
        self.data: Map | None = None
        self.relations: list[Relation] = []
        self.steps: list[tuple[int, Node, bool, int, str]] = []
        self.before: list[Comment] = []
        self.bare = False  # a title without a colon takes no text
        self.introduces = True
        """Whether this occurrence may stand for an argument's definition; a node made for nested relations may not."""

    def add_text(self, text: str) -> None:
        self.text.extend(text.split())

    def add_quote_row(self, row: str, line: int) -> None:
        link = len(self.links) - 1
        if not self.quote_open:
            self.quotes.append(([], line, link))
            self.quote_open = True
        self.quotes[-1][0].append(row)

    def statement(self) -> Statement:
        return Statement(
            self.title,
            " ".join(self.text),
            tuple(self.tags),
            tuple(self.links),
            tuple(Quote(tuple(rows), line, link) for rows, line, link in self.quotes),
            self.data if self.data is not None else Map(),
            tuple(self.relations),
            self.line,
            self.column,
        )

    def argument(self) -> Argument:
        return Argument(
            self.title,
            " ".join(self.text),
            tuple(self.tags),
            tuple(self.links),
            self.data if self.data is not None else Map(),
            tuple(self.relations),
            tuple(Step(number, node.statement(), end, line, rule) for number, node, end, line, rule in self.steps),
            self.line,
            self.column,
        )


Part = Node | Heading | Comment


def frozen(parts: list[Part]) -> tuple[Block, ...]:
    """The parts as values. A comment written inside a node comes to stand before it."""
    blocks: list[Block] = []
    for part in parts:
        if isinstance(part, Node):
            blocks.extend(part.before)
            blocks.append(part.statement() if part.kind == "statement" else part.argument())
        else:
            blocks.append(part)
    return tuple(blocks)


def _nodes(parts: list[Part]) -> Iterator[Node]:
    for part in parts:
        if isinstance(part, Node):
            yield part
            for _, step, _, _, _ in part.steps:
                yield step


def check(parts: list[Part], fail: Place) -> None:
    """Refuse a title defined twice, and a name that nothing defines."""
    statements: dict[str, int] = {}
    arguments: dict[str, int] = {}
    detailed: dict[tuple[str, str], int] = {}
    for node in _nodes(parts):
        if node.kind == "statement" and node.text:
            _once(node, f"[{node.title}]", statements, fail)
        if node.kind == "argument":
            if node.introduces:
                arguments.setdefault(node.title, node.line)
            for part, there in (("text", bool(node.text)), ("steps", bool(node.steps))):
                if there and (node.title, part) in detailed:
                    first = detailed[node.title, part]
                    fail(node.line, node.column, f"<{node.title}> is defined twice; the first time at line {first}")
                if there:
                    detailed[node.title, part] = node.line
    for node in _nodes(parts):
        if node.kind == "statement" and node.title not in statements:
            _undefined(node.title, "statement", node.line, node.column, statements, fail)
        for relation in node.relations:
            known = statements if relation.target_kind == "statement" else arguments
            if relation.target not in known:
                _undefined(relation.target, relation.target_kind, relation.line, relation.column, known, fail)


def _once(node: Node, name: str, known: dict[str, int], fail: Place) -> None:
    if node.title in known:
        fail(node.line, node.column, f"{name} is defined twice; the first time at line {known[node.title]}")
    known[node.title] = node.line


def _undefined(title: str, kind: str, line: int, column: int, known: dict[str, int], fail: Place) -> NoReturn:
    # Looking for the nearest title compares with each; a hostile map may have a million of them.
    some = list(known)[:2000]
    wanted = f"[{title}]" if kind == "statement" else f"<{title}>"
    how = (
        f"expected '{wanted}: ...' somewhere in the map" if kind == "statement" else "expected it somewhere in the map"
    )
    fail(line, column, f"{wanted} is named here, but nothing defines it; {how}{did_you_mean(title[:200], some)}")
