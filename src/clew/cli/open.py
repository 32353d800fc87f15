"""`clew open`: the report of a run as a page, in a browser where there is one."""

import os
import sys
from argparse import ArgumentParser, Namespace

from clew.app import runs
from clew.cli.output import answer, page
from clew.cli.runs import run_argument

SCREENS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")


def arguments(parser: ArgumentParser, _: str = "") -> None:
    run_argument(parser, default="last")
    parser.set_defaults(act=act)


def act(options: Namespace) -> int:
    link = runs.page_link(options.run)
    made = page()
    made.line(link)
    answer(options, made)
    if sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in SCREENS):
        import webbrowser

        sys.stdout.flush()
        webbrowser.open(link)
    return 0
