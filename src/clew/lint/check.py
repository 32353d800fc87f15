"""Looking at one file: parse, index, ask every rule that has something to ask."""

import ast
import os
import re
from typing import NamedTuple

from clew.lint.index import Module, index
from clew.lint.model import Finding, Related, Trouble
from clew.lint.project import Project
from clew.lint.registry import Rule
from clew.lint.script import Hit, Script
from clew.lint.source import Source, Unreadable, decode, read


class Looked(NamedTuple):
    """What one file gave. `reads` are the other files the answer rests on, `wide` says that callers were searched;
    `asked` are the causes that rules with something to look at there know of."""

    findings: tuple[Finding, ...]
    trouble: Trouble | None
    reads: tuple[str, ...] = ()
    wide: bool = False
    asked: tuple[str, ...] = ()


def look(path: str, data: bytes, project: Project, rules: dict[str, Rule]) -> Looked:
    """Every finding in one file, before suppressions."""
    known = project.start(path)
    try:
        if known is not None:
            source, module = Source(path, decode(data), known.tree), known
        else:
            source = read(path, data)
            module = index(path, project.root(path)[1], source.tree, path.endswith("__init__.py"))
    except Unreadable as error:
        return Looked((), Trouble(path, str(error)))
    except RecursionError:
        return Looked((), Trouble(path, "it is nested too deeply"))
    module.path = path
    project.keep(path, module, len(data))
    script = Script(module, project, source.text)
    findings: list[Finding] = []
    failed: list[str] = []
    asked: set[str] = set()
    # Tests build small, odd models on purpose: what is only worth a look is not worth it there.
    for rule in rules.values():
        if rule.needs and rule.needs.isdisjoint(module.names):
            continue
        asked.add(rule.cause)
        try:
            for hit in rule.check(script):
                one = finding(rule, hit, module, script, source)
                findings += [] if script.tests and one.confidence == "look" else [one]
        except Exception as error:  # noqa: BLE001 - one rule that fails must not hide what the others find
            failed.append(f"{rule.code} failed on it: {type(error).__name__} {error}".split("\n")[0])
    script.forget()
    findings = sorted(dict.fromkeys(findings), key=lambda one: (one.cell, one.line, one.column, one.rule))
    reads = tuple(sorted(project.touched - {os.path.abspath(path)}))
    trouble = Trouble(path, "; ".join(failed), True) if failed else None
    return Looked(tuple(findings), trouble, reads, project.searched, tuple(sorted(asked)))


LINE = re.compile(r"\bline (\d+)\b")


def in_cell(line: int, source: Source) -> str:
    """A line that a message names, counted as the reader of a notebook counts it."""
    cell, shown = source.cells[min(line, len(source.cells)) - 1]
    return f"line {shown} of cell {cell}"


def finding(rule: Rule, hit: Hit, module: Module, script: Script, source: Source) -> Finding:
    node = hit.node
    line, end = node.lineno, node.end_lineno or node.lineno
    start = script.column(line, node.col_offset)
    stop = script.column(end, node.end_col_offset or node.col_offset)
    script.column(line, 0)
    if isinstance(node, ast.For | ast.While | ast.If | ast.With | ast.Try | ast.FunctionDef | ast.ClassDef):
        # Of a statement with a body the head is marked, not everything below it.
        end, stop = line, len(script.lines[line - 1].rstrip()) if script.lines else start + 1
        stop = max(stop, start + 1)
    elif isinstance(node, ast.ExceptHandler):
        end, stop = line, start + 6
    cell = 0
    if source.cells:
        cell, shown = source.cells[min(line, len(source.cells)) - 1]
        end = source.cells[min(end, len(source.cells)) - 1][1]
        line = shown
        hit = hit._replace(message=LINE.sub(lambda found: in_cell(int(found[1]), source), hit.message))
    related = tuple(one for one in hit.related if not (one.path == module.path and one.line == node.lineno))
    return Finding(
        rule.code,
        rule.name,
        hit.cause or rule.cause,
        module.path,
        line,
        start + 1,
        max(end, line),
        stop + 1,
        hit.message,
        hit.confidence or rule.confidence,
        hit.fix if not source.cells else None,
        tuple(Related(one.path, one.line, one.says) for one in related),
        cell,
    )
