"""Writes an evidence map from its values alone: one canonical text for everything that says the same."""

import re

from clew.errors import ClewError
from clew.evidence.argdown_data import write_front, write_value
from clew.evidence.model import Argument, Block, Comment, Document, Heading, Link, Map, Quote, Relation, Statement

WIDTH = 76

_SIGNS = {("support", "in"): "+", ("attack", "in"): "-", ("support", "out"): "+>", ("attack", "out"): "->"}
_ESCAPE = re.compile(r"\\|(?<!\S)(?:#(?=[^\W\d_]|\()|\{|/(?=[/*]))|\[(?=[^\[\]]*\]\()")
_MISREAD = re.compile(r">|(?:[+-]>|<[+-]|[+-]|_>|<_|_|><)(?=\s|[\[<]|$)|\[[^\[\]]+\]:(?!\S)|<[^<>]+>(?::(?!\S)|\s*$)")
_TAG = re.compile(r"[^\W\d_][\w-]*")


def text_of(document: Document) -> str:
    chunks: list[str] = []
    if document.front.items or not document.blocks:
        chunks.append("\n".join(["===", *write_front(document.front), "==="]))
    chunks += ["\n".join(_block(block)) for block in document.blocks]
    # Comments in a row read as one remark; everything else has air around it.
    parts: list[str] = []
    remark = False
    for chunk in chunks:
        is_remark = chunk.startswith("//")
        parts.append(("\n" if is_remark and remark else "\n\n") + chunk)
        remark = is_remark
    return "".join(parts).lstrip("\n") + "\n"


def _block(block: Block) -> list[str]:
    if isinstance(block, Heading):
        return ["#" * block.level + (f" {block.text}" if block.text else "")]
    if isinstance(block, Comment):
        if "\n" in block.text:
            return ["/*", *block.text.split("\n"), "*/"]
        return [f"// {block.text}".rstrip()]
    if isinstance(block, Statement):
        return _statement(block, f"[{block.title}]", 2)
    return _argument(block)


def _argument(argument: Argument) -> list[str]:
    lines = _said(f"<{argument.title}>", argument.text, argument.tags, 2)
    lines += [_link(link, 2) for link in argument.links]
    lines += _data(argument.data, 2) + [_relation(relation) for relation in argument.relations]
    if argument.steps:
        lines.append("")
    for step in argument.steps:
        if step.conclusion:
            lines.append(f"-- {step.rule} --" if step.rule else "----")
        title = step.statement.title
        unnamed = step.statement.text and title == f"{argument.title} ({step.number})"
        lines += _statement(step.statement, f"({step.number})" + ("" if unnamed else f" [{title}]"), 4)
    return lines


def _statement(statement: Statement, head: str, indent: int) -> list[str]:
    lines = _said(head, statement.text, statement.tags, indent)
    lines += _quotes(statement.quotes, -1, indent)
    for index, link in enumerate(statement.links):
        lines += [_link(link, indent), *_quotes(statement.quotes, index, indent)]
    return lines + _data(statement.data, indent) + [_relation(relation) for relation in statement.relations]


def _said(head: str, text: str, tags: tuple[str, ...], indent: int) -> list[str]:
    """`[title]: text #tag`, wrapped; a line that would be read as something else gets a backslash."""
    words = _ESCAPE.sub(lambda match: "\\" + match.group(), text).split(" ") if text else []
    if words and not head.endswith(")"):
        head += ":"
    elif words and words[0].startswith("["):
        words[0] = "\\" + words[0]
    lines = [head]
    for word in words + [f"#{tag}" if _TAG.fullmatch(tag) else f"#({tag})" for tag in tags]:
        if len(lines[-1]) + 1 + len(word) <= WIDTH or lines == [head]:
            lines[-1] += " " + word
        else:
            lines.append(" " * indent + word)
    return [lines[0], *(_guarded(line, indent) for line in lines[1:])]


def _guarded(line: str, indent: int) -> str:
    return line[:indent] + "\\" + line[indent:] if _MISREAD.match(line, indent) else line


def _link(link: Link, indent: int) -> str:
    lines = ""
    if link.lines is not None:
        first, last = link.lines
        lines = f"#L{first}" if first == last else f"#L{first}-L{last}"
    return f"{' ' * indent}[{link.label}]({link.target}{lines})"


def _quotes(quotes: tuple[Quote, ...], link: int, indent: int) -> list[str]:
    """The quotes of one link. An empty line keeps two of them apart."""
    lines: list[str] = []
    for quote in quotes:
        if quote.link == link:
            lines += [""] if lines else []
            lines += [f"{' ' * indent}> {row}".rstrip() for row in quote.rows]
    return lines


def _data(data: Map, indent: int) -> list[str]:
    return [" " * indent + write_value(data)] if data.items else []


def _relation(relation: Relation) -> str:
    sign = _SIGNS.get((relation.kind, relation.direction))
    if sign is None:
        raise ClewError(
            f"a relation to '{relation.target}' is a '{relation.kind}' in direction '{relation.direction}'; "
            "it must be 'support' or 'attack', and 'in' or 'out'"
        )
    target = f"[{relation.target}]" if relation.target_kind == "statement" else f"<{relation.target}>"
    return f"  {sign} {target}"
