"""Reads the Argdown dialect of evidence maps, line by line, and refuses what it does not understand.

The reader keeps one current node (the statement or argument that further lines belong to). Block starts stand at the
left margin; what is indented, or follows without an empty line, belongs to the current node. Every pattern here stops
at a bracket or a line end, so that no input takes more than time in proportion to its length.
"""

import re

from clew.evidence import argdown_data
from clew.evidence.argdown_build import Node, Part, check, frozen
from clew.evidence.argdown_content import LINK, Lines, remark
from clew.evidence.model import Document, Heading, Map, Relation

_HEADING = re.compile(r"(#+)(?:\s+(.*))?$")
_STEP = re.compile(r"\((\d{1,9})\)(?!\S)\s*")
_RULE = re.compile(r"-{2,}\s*$|--\s+(\S(?:.*\S)?)\s+--\s*$")
_STATEMENT = re.compile(r"\[([^\[\]]+)\](?!\()")
_ARGUMENT = re.compile(r"<([^<>]+)>")
_MISPLACED = re.compile(r"\[[^\[\]]+\]:(?!\S)|<[^<>]+>(?::(?!\S)|\s*$)")
_RELATION = re.compile(r"([+-]>|<[+-]|[+-]|_>|<_|_|><)(?=\s|[\[<]|$)\s*")
_CONTINUES = re.compile(r"\{|#[^\W\d_(]|" + LINK)


def document(text: str, name: str) -> Document:
    """The map in a text whose size and line lengths were found to be bearable."""
    return _Reader(text, text.split("\n"), name).document()


class _Reader(Lines):
    def __init__(self, text: str, lines: list[str], name: str) -> None:
        super().__init__(text, lines, name)
        self.front = Map()
        self.parts: list[Part] = []
        self.argument: Node | None = None  # whose steps are being read
        self.node: Node | None = None  # what further text belongs to; None below a bare relation
        self.stack: list[tuple[int, Node, Node | None]] = []
        self.rule: tuple[int, str] | None = None
        self.blank = False

    def document(self) -> Document:
        while self.row < len(self.lines) and not self.lines[self.row].strip():
            self.row += 1
        if self.lines[self.row].rstrip() == "===":
            self.read_front()
        while self.row < len(self.lines):
            line = self.lines[self.row]
            if line.strip():
                self.read_line(line)
            else:
                self.blank = True
                self.row += 1
        self.end_argument()
        self.parts.extend(self.comments)
        check(self.parts, self.fail)
        return Document(frozen(self.parts), self.front, self.name)

    def read_front(self) -> None:
        opened = self.row
        end = opened + 1
        while end < len(self.lines) and self.lines[end].rstrip() != "===":
            end += 1
        if end == len(self.lines):
            self.fail(
                opened + 1, 1, "the front matter is never closed: expected a line '===', found the end of the file"
            )
        rows = [(self.starts[row], self.lines[row]) for row in range(opened + 1, end)]
        self.front = argdown_data.front_matter(rows, self.fail_at)
        self.row = end + 1

    def read_line(self, line: str) -> None:
        body = line.lstrip()
        indent = len(line) - len(body)
        if body.startswith("//"):
            self.comments.append(remark(body[2:], self.row + 1))
            self.row += 1
        elif body.startswith("/*"):
            self.read_block_comments(indent)
        else:
            if indent == 0:
                self.read_margin(line)
            else:
                self.read_indented(line, body, indent)
            self.blank = False

    def read_margin(self, line: str) -> None:
        heading = _HEADING.match(line)
        step = _STEP.match(line)
        rule = _RULE.match(line)
        statement = _STATEMENT.match(line)
        argument = _ARGUMENT.match(line)
        if heading:
            self.end_argument()
            self.start(Heading(len(heading[1]), " ".join((heading[2] or "").split()), self.row + 1))
            self.row += 1
        elif step:
            self.read_step(int(step[1]), step.end())
        elif rule:
            self.read_rule(rule[1] or "")
        elif self.rule is not None:
            self.read_rule_name(line)
        elif _RELATION.match(line) and not argument:
            self.fail(self.row + 1, 1, f"expected a relation to be indented below its node, found {self.found(0)}")
        elif statement:
            self.end_argument()
            self.start(self.titled("statement", statement[1], 0))
            self.after_title(statement.end())
        elif argument:
            self.end_argument()
            self.start(self.titled("argument", argument[1], 0))
            self.argument = self.block
            self.after_title(argument.end())
        else:
            self.read_more(line, 0)

    def read_indented(self, line: str, body: str, indent: int) -> None:
        relation = _RELATION.match(body)
        if relation:
            self.read_relation(relation[1], indent, indent + relation.end())
        elif _MISPLACED.match(body):
            self.fail(
                self.row + 1,
                indent + 1,
                f"expected a definition to begin at the left margin, found {self.found(indent)}; "
                "in running text write a backslash before the bracket",
            )
        else:
            self.read_more(line, indent)

    def read_more(self, line: str, indent: int) -> None:
        """A line that can only belong to the current node."""
        body = line[indent:]
        orphan = self.node is None or (self.blank and (indent == 0 or not (body[0] == ">" or _CONTINUES.match(body))))
        if orphan or self.node is None:
            self.fail(
                self.row + 1,
                indent + 1,
                "expected [title], <title>, a heading, a numbered step, an indented relation or a comment, "
                f"found {self.found(indent)}",
            )
        self.keep_comments()
        if body[0] == ">":
            self.read_quote_row(self.node, body, indent)
        else:
            self.node.quote_open = False
            self.read_content(self.node, indent)

    def start(self, part: Part) -> None:
        self.parts.extend(self.comments)
        self.comments = []
        self.parts.append(part)
        self.block = self.node = part if isinstance(part, Node) else None
        self.stack = [(-1, part, part)] if isinstance(part, Node) else []

    def titled(self, kind: str, title: str, column: int) -> Node:
        clean = " ".join(title.split())
        if not clean:
            self.fail(self.row + 1, column + 1, f"expected a title between the brackets, found {self.found(column)}")
        return Node(kind, clean, self.row + 1, column + 1)

    def after_title(self, column: int) -> None:
        """What may follow `[title]` on its line: a colon and the text, or nothing but tags, links and metadata."""
        assert self.node is not None  # the caller has just made it
        line = self.lines[self.row]
        self.node.bare = line[column : column + 1] != ":"
        self.read_content(self.node, column if self.node.bare else column + 1)

    def read_step(self, number: int, column: int) -> None:
        argument = self.argument
        if argument is None:
            self.fail(self.row + 1, 1, f"expected <title> of an argument before its steps, found {self.found(0)}")
        expected = len(argument.steps) + 1
        if number != expected:
            self.fail(self.row + 1, 1, f"expected step ({expected}) of <{argument.title}>, found ({number})")
        self.keep_comments_for(argument)
        title = _STATEMENT.match(self.lines[self.row], column)
        name = title[1] if title else f"{argument.title} ({number})"
        node = self.titled("statement", name, column)
        row = self.row
        argument.steps.append((number, node, self.rule is not None, row + 1, self.rule[1] if self.rule else ""))
        self.rule = None
        self.node = node
        self.stack = [(-1, node, node)]
        if title:
            self.after_title(title.end())
        else:
            self.read_content(node, column)
            if not node.text:
                self.fail(row + 1, column + 1, f"expected a statement after ({number}), found none")

    def keep_comments_for(self, node: Node) -> None:
        self.block = node
        self.keep_comments()

    def read_rule(self, name: str) -> None:
        argument = self.argument
        if argument is None or not argument.steps:
            self.fail(
                self.row + 1, 1, "expected premises above this rule, found none; a conclusion follows from premises"
            )
        if self.rule is not None:
            self.fail(self.row + 1, 1, "expected a conclusion below the rule, found a second rule")
        self.keep_comments_for(argument)
        self.rule = (self.row + 1, " ".join(name.split()))
        self.node = None
        self.stack = []
        self.row += 1

    def read_rule_name(self, line: str) -> None:
        """The name of a rule may have a line of its own, between two lines of dashes."""
        assert self.rule is not None  # the caller has looked
        below = self.row + 1
        alone = below < len(self.lines) and _RULE.match(self.lines[below])
        if self.rule[1] or not alone or self.lines[below].strip("- \t"):
            self.fail(self.row + 1, 1, f"expected a numbered conclusion below the rule, found {self.found(0)}")
        self.rule = (self.rule[0], " ".join(line.split()))
        self.row += 2

    def end_argument(self) -> None:
        """Called where the steps cannot go on: an argument with steps must have come to a conclusion."""
        argument, self.argument = self.argument, None
        if self.rule is not None:
            self.fail(self.rule[0], 1, "expected a numbered conclusion below this rule, found none")
        if argument is not None and argument.steps and not argument.steps[-1][2]:
            number, node = argument.steps[-1][:2]
            self.fail(
                node.line,
                1,
                f"expected <{argument.title}> to end with a conclusion, found step ({number}) without a rule "
                "('----') above it",
            )

    def read_relation(self, sign: str, indent: int, column: int) -> None:
        place = (self.row + 1, indent + 1)
        if sign in ("_", "_>", "<_", "><"):
            what = "a contradiction ('><')" if sign == "><" else f"an undercut ('{sign}')"
            self.fail(*place, f"expected a relation '+', '-', '+>' or '->', found {what}, which is not supported")
        if not self.stack:
            self.fail(
                *place, f"expected a statement or an argument above this relation, found {self.found(indent)} alone"
            )
        self.keep_comments()
        width = len(self.lines[self.row][:indent].expandtabs(4))
        while self.stack[-1][0] >= width:
            self.stack.pop()
        line = self.lines[self.row]
        match = _STATEMENT.match(line, column) or _ARGUMENT.match(line, column)
        if match is None:
            self.fail(
                self.row + 1, column + 1, f"expected [title] or <title> after '{sign}', found {self.found(column)}"
            )
        target = self.titled("statement" if line[column] == "[" else "argument", match[1], column)
        self.relate(self.parent(), sign, target, place)
        self.stack.append((width, target, None))
        if line[match.end() : match.end() + 1] == ":":
            self.parts.append(target)
            self.stack[-1] = (width, target, target)
            self.node = target
            self.read_content(target, match.end() + 1)
        else:
            self.node = None
            self.expect_nothing(match.end())

    def relate(self, parent: Node, sign: str, target: Node, place: tuple[int, int]) -> None:
        kind = "support" if "+" in sign else "attack"
        direction = "out" if sign.endswith(">") else "in"
        parent.relations.append(Relation(kind, direction, target.title, target.kind, *place))

    def parent(self) -> Node:
        """The node the next relation belongs to; one that was only named so far gets a block of its own."""
        width, named, there = self.stack[-1]
        if there is None:
            there = named
            there.introduces = False
            self.parts.append(there)
            self.stack[-1] = (width, named, there)
        return there

    def read_quote_row(self, node: Node, body: str, indent: int) -> None:
        if node.kind == "argument":
            self.fail(
                self.row + 1, indent + 1, f"expected text, found {self.found(indent)}; only a statement has quotes"
            )
        if self.blank:
            node.quote_open = False
        row = body[1:]
        node.add_quote_row(row.removeprefix(" ").rstrip(), self.row + 1)
        self.row += 1

    def read_block_comments(self, column: int) -> None:
        line = self.lines[self.row]
        while line.startswith("/*", column):
            line, column = self.skip_comment(column)
            column = argdown_data.skip_space(line, column)
        if line[column:].strip() and not line.startswith("//", column):
            self.fail(
                self.row + 1, column + 1, f"expected a line of its own for the comment, found {self.found(column)}"
            )
        if line.startswith("//", column):
            self.comments.append(remark(line[column + 2 :], self.row + 1))
        self.row += 1

    def expect_nothing(self, column: int) -> None:
        line = self.lines[self.row]
        rest = line[column:].strip()
        if rest.startswith("//"):
            self.comments.append(remark(rest[2:], self.row + 1))
        elif rest:
            self.fail(
                self.row + 1,
                column + 1,
                f"expected ':' and a definition, or the end of the line, found {self.found(column)}",
            )
        self.row += 1
        self.keep_comments()
