"""`clew lint`: silent bugs in source."""

import sys
from argparse import ArgumentParser, Namespace

from clew.app import lint
from clew.cli.output import answer, complain, page, save
from clew.errors import ClewError, did_you_mean

FORMATS = ("text", "json", "sarif", "github")


def arguments(parser: ArgumentParser, _: str = "") -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files, folders, notebooks; - reads standard input")
    parser.add_argument("--fix", action="store_true", help="fix what can be fixed safely, in place")
    words = "also what may change what the program does; needs --fix or --diff"
    parser.add_argument("--unsafe-fixes", action="store_true", help=words)
    parser.add_argument("--diff", action="store_true", help="show what --fix would change, and change nothing")
    parser.add_argument("--format", default="text", metavar="F", help="text (default), json, sarif or github")
    parser.add_argument("--output", metavar="FILE", help="write the result there instead of to the terminal")
    words = "only these rules: codes, beginnings of codes, or names, separated by commas"
    parser.add_argument("--select", action="append", default=[], metavar="CODES", help=words)
    parser.add_argument("--ignore", action="append", default=[], metavar="CODES", help="not these rules")
    parser.add_argument("--exclude", action="append", default=[], metavar="GLOB", help="not these files or folders")
    parser.add_argument("--confidence", default="", metavar="C", help="at least certain, likely or look (default)")
    parser.add_argument("--statistics", action="store_true", help="count findings by rule")
    parser.add_argument(
        "--baseline", default="", metavar="FILE", help="report only findings that this file does not list"
    )
    parser.add_argument(
        "--write-baseline", default="", metavar="FILE", help="record the present findings in FILE and exit with 0"
    )
    parser.add_argument("--no-cache", action="store_true", help="check every file again, without the cache")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="how many processes (as many as processors)")
    parser.add_argument(
        "--stdin-filename", default=lint.STDIN, metavar="NAME", help="the file name to show for standard input"
    )
    parser.add_argument("--rules", action="store_true", help="list the rules")
    parser.add_argument("--explain", metavar="CODE", help="explain one rule")
    parser.set_defaults(act=act)


def act(options: Namespace) -> int:
    if options.rules or options.explain:
        return tell(options)
    if options.format not in FORMATS:
        close = did_you_mean(options.format, FORMATS) or "."
        raise ClewError(f"there is no format {options.format!r} among {', '.join(FORMATS)}{close}")
    if options.jobs < 0:
        raise ClewError(f"--jobs takes a number of processes, not {options.jobs}.")
    if options.unsafe_fixes and not (options.fix or options.diff):
        raise ClewError("--unsafe-fixes only says which fixes --fix or --diff may use; give one of the two as well.")
    wish = wished(options)
    fixed = 0
    if options.fix or options.diff:
        done = lint.mended(wish, options.unsafe_fixes, write=not options.diff)
        if options.diff:
            return differences(done)
        looked, fixed = done.left, done.many
    else:
        looked = lint.lint(wish)
    for trouble in looked.result.troubles:
        complain(f"{trouble}.")
    if options.write_baseline:
        from clew.records.exact import pretty

        save(options.write_baseline, pretty(lint.baseline(list(looked.result.findings), looked.given)))
        print(f"{len(looked.result.findings)} findings are recorded in {options.write_baseline}.")
        return 0
    output(options, looked, fixed)
    if looked.result.findings:
        return 1
    return 2 if any(not trouble.partly for trouble in looked.result.troubles) else 0


def wished(options: Namespace) -> lint.Wish:
    paths = tuple(options.paths) or (".",)
    stdin = sys.stdin.buffer.read() if "-" in paths else None
    return lint.Wish(
        paths,
        split(options.select),
        split(options.ignore),
        split(options.exclude),
        options.confidence,
        options.baseline,
        not options.no_cache,
        options.jobs,
        stdin,
        options.stdin_filename,
    )


def split(words: list[str]) -> tuple[str, ...]:
    return tuple(part.strip() for word in words for part in word.split(",") if part.strip())


def output(options: Namespace, looked: lint.Looked, fixed: int) -> None:
    from clew.lint import show as formats
    from clew.lint.registry import load

    result = looked.result
    if options.format == "text":
        made = page()
        if options.output:
            made.colour = False
        if options.statistics:
            formats.statistics(result, made)
        elif options.brief:
            from clew.report.brief import LINES

            formats.brief(result, load() if result.findings else {}, made, LINES)
        else:
            formats.page(result, load() if result.findings else {}, made, looked.given)
        if fixed:
            made.line(f"{fixed} fixed.")
        if options.output:
            save(options.output, f"{made}\n")
        else:
            answer(options, made)
        return
    if options.format == "github":
        text = formats.github(result)
    else:
        import json

        table: object = formats.to_json(result) if options.format == "json" else formats.sarif(result, load())
        if options.brief and options.format == "json":
            from clew.report import brief

            table = brief.table(table)
        text = json.dumps(table, indent=2, ensure_ascii=False)
    if options.output:
        save(options.output, f"{text}\n")
    elif text:
        print(text)


def differences(done: lint.Mended) -> int:
    """A unified diff of what fixing would change."""
    import difflib

    for path, (before, after) in done.changed.items():
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), path, path, lineterm="")
        print("\n".join(lines))
    return 1 if done.changed else 0


def tell(options: Namespace) -> int:
    from clew.lint.registry import load
    from clew.lint.show import explained

    code, rules, made = options.explain, load(), page()
    if code is None:
        for rule in rules.values():
            made.line(f"{rule.code}  {rule.name:<38}{rule.confidence:<9}{rule.cause}")
    else:
        explained(lint.rule(code), made)
    answer(options, made)
    return 0
