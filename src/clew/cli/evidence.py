"""`clew evidence`: is what an evidence map quotes really there, and how far does it carry the conclusions?"""

import os
from argparse import ArgumentParser, Namespace

from clew.app import maps
from clew.cli.output import answer, json_argument, page, save


def arguments(parser: ArgumentParser, _: str = "") -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", required=True)
    check = verbs.add_parser("check", help="compare every quote with its source")
    json_argument(check)
    check.set_defaults(act=act_check)
    tree = verbs.add_parser("show", help="print the tree of claims with credences")
    tree.add_argument("--svg", metavar="OUT", help="draw the map as SVG")
    tree.add_argument("--html", metavar="OUT", help="draw the map as a self-contained page")
    tree.set_defaults(act=act_show)
    seal = verbs.add_parser("seal", help="replace the quotes of a map by digests of their words")
    seal.add_argument("-o", dest="out", required=True, metavar="OUT", help="where to write the sealed map")
    seal.set_defaults(act=act_seal)
    for verb in (check, tree, seal):
        own = verb is not seal
        words = "the map (clew's own)" if own else "the map"
        verb.add_argument("file", nargs="?" if own else None, default="", metavar="FILE", help=words)
    for verb in (check, seal):
        verb.add_argument("--sources", default="", metavar="FOLDER", help="where the cited files are (beside the map)")


def act_check(options: Namespace) -> int:
    from clew.evidence import quotes, view

    found = maps.check(options.file, options.sources)
    made = page()
    made.lines = list(view.check_lines(found, made.columns, made.colour))
    if found.quotes and all(quote.verdict == "source_missing" for quote in found.quotes):
        made.line("None of the cited files is there; say which folder they are in: --sources FOLDER")
    answer(options, made, lambda: quotes.to_json(found))
    return 0 if maps.sound(found) else 1


def act_show(options: Namespace) -> int:
    from clew.evidence import draw
    from clew.evidence.tree import tree_lines

    document, credences = maps.read_map(options.file)
    if options.svg:
        save(options.svg, draw.svg(document, credences))
    if options.html:
        title = str(document.front.get("title") or os.path.basename(document.name))
        save(options.html, draw.html(document, credences, title))
    made = page()
    made.lines = list(tree_lines(document, credences, made.columns, made.colour))
    answer(options, made)
    return 0


def act_seal(options: Namespace) -> int:
    text, count = maps.seal(options.file, options.sources)
    save(options.out, text)
    print(f"Sealed {count} quotes; {options.out} carries none of their words.")
    return 0
