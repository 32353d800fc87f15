"""`clew why`: what is known, with its sources."""

import re
from argparse import ArgumentParser, Namespace

from clew.app import known
from clew.cli.output import answer, json_argument, page
from clew.errors import ClewError, did_you_mean
from clew.knowledge import load
from clew.knowledge.search import SHELVES, everything
from clew.report import why


def arguments(parser: ArgumentParser, _: str = "") -> None:
    from clew.cli.complete import ids

    what = parser.add_argument(
        "what", nargs="*", metavar="WHAT", help="an id (loss.double_softmax), or words (loss stuck)"
    )
    what.completer = ids  # type: ignore[attr-defined]  # argcomplete reads this
    parser.add_argument(
        "--list", nargs="?", const="", metavar="KIND", help="list a family of causes, or tests, claims, …"
    )
    json_argument(parser)
    parser.set_defaults(act=act)


def _rule(options: Namespace, code: str) -> int:
    from clew.app import lint
    from clew.lint.show import explained

    rule, made = lint.rule(code), page()
    explained(rule, made, options.brief)
    entry = {"id": rule.code, "name": rule.name, "cause": rule.cause, "confidence": rule.confidence}
    entry |= {"gloss": rule.title, "fix": rule.section("Fix"), "silent_when": rule.section("Silent when")}
    table = {"schema": "clew/1", "command": "why", "kind": "rule", "entry": entry}
    answer(options, made, lambda: table)
    return 0


def act(options: Namespace) -> int:
    knowledge = load()
    if options.list is not None:
        kinds = [*knowledge.families, *(field for _, field in SHELVES), *(shelf for shelf, _ in SHELVES)]
        if options.list and options.list not in kinds:
            hint = did_you_mean(options.list, kinds) or f"; there are: {', '.join(dict.fromkeys(kinds))}."
            raise ClewError(f"there is no kind {options.list!r}{hint}")
        answer(options, why.list_page(knowledge, options.list, page()))
        return 0
    query = " ".join(options.what).strip()
    if not query:
        raise ClewError("say what you want to know about: clew why loss.double_softmax, or clew why --list")
    if re.fullmatch("CLW[0-9]+", query, re.IGNORECASE):
        return _rule(options, query)
    if " " in query or not (query in {found.id for found in everything(knowledge)} or "." in query or "_" in query):
        hits = known.search(query)
        exact = [hit for hit in hits if hit.id == query]
        if hits and not exact:
            rows = [{"kind": hit.shelf, "id": hit.id} for hit in hits]
            listed = {"schema": "clew/1", "command": "why", "query": query, "hits": rows}
            answer(options, why.hits_page(query, hits, page()), lambda: listed)
            return 0
    found = known.why(query)
    tests = known.tests_on(knowledge, found.id) if found.shelf == "cause" else []
    entry = why.entry_table(found.entry)
    table: dict[str, object] = {"schema": "clew/1", "command": "why", "kind": found.shelf, "entry": entry}
    answer(options, why.entry_page(knowledge, found, tests, page(), options.brief), lambda: table)
    return 0
