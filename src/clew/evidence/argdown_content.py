"""What stands inside a line of an evidence map: text, tags, links, metadata and comments."""

import re
from bisect import bisect_right
from typing import NoReturn

from clew.errors import ClewError
from clew.evidence import argdown_data
from clew.evidence.argdown_build import Node
from clew.evidence.model import Comment, Link, Map

_LINES = re.compile(r"#L(\d{1,9})(?:-L?(\d{1,9}))?$")
LINK = r"\[[^\[\]]*\]\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*\)"
_SPECIAL = re.compile(
    r"\\[!-/:-@\[-`{-~]|(?<!\S)(?:#[^\W\d_][\w-]*(?!\S)|#\([^()]+\)(?!\S)|\{|//|/\*)|" + LINK,
)


def remark(text: str, line: int) -> Comment:
    """A `//` comment. What is indented behind the mark stays so: people draw lists there."""
    return Comment(text.removeprefix(" ").rstrip(), line)


class Lines:
    """The text under way: where the reader is, and what it found between the marks."""

    def __init__(self, text: str, lines: list[str], name: str) -> None:
        self.text = text
        self.lines = lines
        self.name = name
        self.starts = [0]
        for line in lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.row = 0
        self.comments: list[Comment] = []
        self.block: Node | None = None  # the last block, where it can still grow

    def fail(self, line: int, column: int, message: str) -> NoReturn:
        raise ClewError(f"{self.name or 'map'}:{line}:{column}: {message}")

    def fail_at(self, offset: int, message: str) -> NoReturn:
        row = min(bisect_right(self.starts, offset) - 1, len(self.lines) - 1)
        self.fail(row + 1, offset - self.starts[row] + 1, message)

    def found(self, column: int) -> str:
        line = self.lines[self.row]
        return argdown_data.found(line, argdown_data.skip_space(line, column), "the end of the line")

    def keep_comments(self) -> None:
        """The node goes on after these comments, so they are put before it."""
        if self.block is not None and self.comments:
            self.block.before.extend(self.comments)
            self.comments = []

    def read_content(self, node: Node, column: int) -> None:
        """Text, tags, links and metadata from here to the end of the line; metadata may lead on to a later line."""
        line = self.lines[self.row]
        words: list[str] = []
        links: list[tuple[int, Link]] = []
        while True:
            match = _SPECIAL.search(line, column)
            words.append(line[column : match.start() if match else len(line)])
            if match is None:
                break
            mark = match.group()
            column = match.end()
            if mark[0] == "\\":
                words.append(mark[1])
            elif mark[0] == "#":
                node.tags.append(" ".join(mark[2:-1].split()) if mark[1] == "(" else mark[1:])
            elif mark[0] == "[":
                links.append((len(words), self.link(mark, match.start())))
                words.append("")
            elif mark == "{":
                self.put_text(node, words, links)
                words, links = [], []
                line, column = self.read_data(node, match.start())
            elif mark == "//":
                self.comments.append(remark(line[column:], self.row + 1))
                break
            else:
                line, column = self.skip_comment(match.start())
        self.put_text(node, words, links)
        self.row += 1
        self.keep_comments()

    def put_text(self, node: Node, words: list[str], links: list[tuple[int, Link]]) -> None:
        """A link inside a sentence leaves its label there; one on a line of its own is a citation, not text."""
        alone = not "".join(words).strip()
        for index, link in links:
            node.links.append(link)
            if not alone:
                words[index] = link.label
        text = "".join(words)
        if text.strip():
            if node.bare:
                self.fail(
                    self.row + 1, 1, f"expected ':' between the title '{node.title}' and its text, found no colon"
                )
            if node.quotes or node.data is not None:
                what = "its quote" if node.quotes else "its metadata"
                column = len(self.lines[self.row]) - len(self.lines[self.row].lstrip()) + 1
                self.fail(
                    self.row + 1,
                    column,
                    f"expected the text of '{node.title}' to stand before {what}, found {self.found(column - 1)}; "
                    "begin every row of a quote with '>'",
                )
            node.add_text(text)

    def link(self, mark: str, column: int) -> Link:
        label, _, target = mark[1:-1].partition("](")
        label = " ".join(label.split())
        match = _LINES.search(target)
        if match is None:
            return Link(label, target, None, self.row + 1, column + 1)
        first = int(match[1])
        last = int(match[2] or match[1])
        if first < 1 or last < first:
            self.fail(
                self.row + 1, column + 1, f"expected a range of lines such as #L10-L12, found {match.group()[:24]!r}"
            )
        return Link(label, target[: match.start()], (first, last), self.row + 1, column + 1)

    def read_data(self, node: Node, column: int) -> tuple[str, int]:
        """Read the map in braces; returns the line it ends on and the column behind it."""
        if node.data is not None:
            self.fail(self.row + 1, column + 1, f"expected one metadata map for '{node.title}', found a second")
        value, end = argdown_data.flow(self.text, self.starts[self.row] + column, self.fail_at)
        assert isinstance(value, Map)  # it began with a brace
        node.data = value
        return self.go_to(end)

    def go_to(self, offset: int) -> tuple[str, int]:
        self.row = bisect_right(self.starts, offset) - 1
        return self.lines[self.row], offset - self.starts[self.row]

    def skip_comment(self, column: int) -> tuple[str, int]:
        """Keep a `/* comment */`; returns the line it ends on and the column behind it."""
        opened = self.starts[self.row] + column
        end = self.text.find("*/", opened + 2)
        if end < 0:
            self.fail(
                self.row + 1, column + 1, "this comment is never closed: expected '*/', found the end of the file"
            )
        rows = [row.strip() for row in self.text[opened + 2 : end].split("\n")]
        self.comments.append(Comment("\n".join(rows).strip(), self.row + 1))
        return self.go_to(end + 2)
