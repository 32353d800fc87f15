"""What an evidence map is made of, as plain frozen values.

A map is a list of blocks. A *statement* says something; an *argument* names a step of reasoning and may spell it out as
numbered premises and a conclusion. Relations say what supports or attacks what. Every value keeps the line and column
it was read from, counted from 1; two maps that differ only there say the same (see `argdown.same`).
"""

from typing import NamedTuple

Value = "str | float | int | bool | None | tuple[Value, ...] | Map"
"""A metadata value. Numbers stay numbers; text keeps no quotation marks."""


class Map(NamedTuple):
    """Metadata in braces, or front matter: names and values in the order written."""

    items: tuple[tuple[str, object], ...] = ()

    def get(self, name: str, default: object = None) -> object:
        for key, value in self.items:
            if key == name:
                return value
        return default


class Link(NamedTuple):
    """`[label](target#L10-L12)`: `lines` is set when the target cites a range of lines."""

    label: str
    target: str
    lines: tuple[int, int] | None = None
    line: int = 0
    column: int = 0


class Quote(NamedTuple):
    """A block of `>` lines, without the marks. It belongs to the link that stands before it.

    `link` is the index of that link among its statement's links, or -1 when the quote stands before all of them.
    """

    rows: tuple[str, ...]
    line: int = 0
    link: int = -1


class Relation(NamedTuple):
    """What stands in the map as `+ <A>`, `- [B]`, `+> [C]` or `-> <D>` under some node.

    `direction` is "in" when the target supports or attacks the node it is written under, "out" when that node
    supports or attacks the target.
    """

    kind: str  # "support" | "attack"
    direction: str  # "in" | "out"
    target: str
    target_kind: str  # "statement" | "argument"
    line: int = 0
    column: int = 0


class Statement(NamedTuple):
    """`[title]: text #tag` with its links, quotes, metadata and relations. `text` is "" for a bare reference."""

    title: str
    text: str = ""
    tags: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    quotes: tuple[Quote, ...] = ()
    data: Map = Map()
    relations: tuple[Relation, ...] = ()
    line: int = 0
    column: int = 0


class Step(NamedTuple):
    """One numbered line of an argument. A conclusion stands below a rule (`----`) and follows from the steps above it.

    `rule` is the name in `-- name --`, where the rule has one.
    """

    number: int
    statement: Statement
    conclusion: bool = False
    line: int = 0
    rule: str = ""


class Argument(NamedTuple):
    """`<title>` with, perhaps, a premise/conclusion structure below it."""

    title: str
    text: str = ""
    tags: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    data: Map = Map()
    relations: tuple[Relation, ...] = ()
    steps: tuple[Step, ...] = ()
    line: int = 0
    column: int = 0


class Heading(NamedTuple):
    level: int
    text: str
    line: int = 0


class Comment(NamedTuple):
    text: str
    line: int = 0


Block = Statement | Argument | Heading | Comment


class Document(NamedTuple):
    """A whole map. `name` is where it came from, for messages and for finding the sources beside it."""

    blocks: tuple[Block, ...]
    front: Map = Map()
    name: str = ""
