"""The command line: one file per command, each a thin skin over `clew.app`.

Only the command that was asked for is imported, so that `clew --help` starts as fast as Python does.
"""

import gc
import os
import sys
from argparse import SUPPRESS, ArgumentParser, HelpFormatter, Namespace, _SubParsersAction
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from clew import __version__
from clew.cli.output import complain, flush_streams, screened
from clew.errors import ClewError

if TYPE_CHECKING:
    from collections.abc import Iterable

COMMANDS = {
    "run": "run a training script with instruments and report what is wrong with it",
    "lint": "silent bugs in source, found without running it",
    "exam": "experiments on a training step: memorise one batch, replace inputs by noise, change the other examples",
    "log": "what the curves of a log show",
    "sweep": "same-seed sweeps: which value is better, and whether the evidence suffices",
    "runs": "archived runs: list, compare, rerun, clean up",
    "show": "one archived run: its report, output, metrics, code",
    "open": "the report of a run as a page, in a browser where there is one",
    "case": "debug by hand: enter what you saw, get credences and the next observation",
    "why": "what is known about a cause, a test, a claim or a symptom, with its sources",
    "preflight": "before a long run: what is most likely to go wrong",
    "evidence": "check the quotes of an evidence map, draw it, seal it",
    "casebook": "known faults in known-good programs: how many of them clew finds",
    "skill": "how to debug training code with clew, for coding agents: show it, install it",
    "completion": "print the line that enables shell completion",
}


GIST = (
    "Finds out why training code that runs does not learn. `run` and `exam` need PyTorch (pip install 'clew[torch]'); "
    "everything else works without it."
)


class Formatter(HelpFormatter):
    """Help as wide as the terminal, without importing what argparse would ask for its size."""

    def __init__(self, prog: str) -> None:
        from clew.report.text import width

        super().__init__(prog, max_help_position=28, width=width())


class Parser(ArgumentParser):
    """Says what is wrong in one sentence instead of printing the usage above it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", Formatter)
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


FIRST = """\
clew run train.py          run a training script, watch it, and say what is wrong with it
clew lint .                silent bugs in source, without running it
clew case new "SYMPTOM"    what a symptom may be, and the observation that tells
clew open                  the report of the latest run as a page
clew --help                every command"""


def build(words: list[str] | None = None) -> Parser:
    """The parser, or, to save the making of two dozen others, only as much of it as `words` will ask for."""
    only = words[:2] if words is not None else None
    parser = Parser(prog="clew", description=GIST)
    parser.add_argument("--version", action="version", version=f"clew {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", required=True)
    asked = {name: gist for name, gist in COMMANDS.items() if only and name == only[0]}
    for name, gist in (asked or COMMANDS).items():
        command = commands.add_parser(name, help=gist, description=gist[0].upper() + gist[1:] + ".")
        if only is None:
            import_module(f"clew.cli.{name}").arguments(command)
        elif only[:1] == [name]:
            import_module(f"clew.cli.{name}").arguments(command, *only[1:])
    brief(commands.choices.values())
    return parser


def brief(parsers: "Iterable[ArgumentParser]") -> None:
    """Every command, and every verb of one, has a short form."""
    for parser in parsers:
        verbs = [action.choices for action in parser._actions if isinstance(action, _SubParsersAction)]
        words = "the result in at most 15 lines, and 2 KB of JSON"
        parser.add_argument("--brief", action="store_true", default=SUPPRESS, help=words)
        for choices in verbs:
            brief(choices.values())


@screened()
def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    words = sys.argv[1:] if argv is None else argv
    if not words and "_ARGCOMPLETE" not in os.environ:
        print(FIRST)
        return 0
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(build())
    collecting = gc.isenabled()
    if words[:1] in (["case"], ["why"]):
        gc.disable()  # over before there is any garbage: looking for it in between takes a twentieth of the time
    try:
        rest: list[str] = []
        if words[:1] == ["run"]:
            own, rest = import_module("clew.cli.run").split(words[1:])
            words = ["run", *own]
        options = build(words).parse_args(words, Namespace(brief=False))
        options.rest = rest
        status: int = options.act(options)
        flush_streams()
        return status
    except ClewError as error:
        complain(error)
        return 2
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    finally:
        if collecting:
            gc.enable()
