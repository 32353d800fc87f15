"""`clew skill`: how to debug training code with clew, for a coding agent to read or to have at hand."""

import os
from argparse import ArgumentParser, Namespace

from clew.cli.output import answer, laid_out, save
from clew.errors import ClewError
from clew.records.place import near

BEGIN, END = "<!-- clew skill: begin -->", "<!-- clew skill: end -->"


def arguments(parser: ArgumentParser, _: str = "") -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", required=True)
    verbs.add_parser("show", help="print it").set_defaults(act=act_show)
    install = verbs.add_parser("install", help="put it into AGENTS.md or a folder of skills; again to renew it")
    words = "a Markdown file, which gets a section (AGENTS.md), or a folder of skills, which gets clew/SKILL.md"
    install.add_argument("to", nargs="?", default="AGENTS.md", metavar="PATH", help=words)
    install.set_defaults(act=act_install)


def text() -> str:
    from clew import report

    folder = os.path.dirname(os.path.abspath(report.__file__))
    with open(os.path.join(folder, "templates", "skill.md"), encoding="utf-8") as file:
        return file.read()


def act_show(options: Namespace) -> int:
    answer(options, laid_out(text()))
    return 0


def act_install(options: Namespace) -> int:
    path = options.to
    if path.endswith(".md"):
        save(path, section(path))
    else:
        path = os.path.join(path, "clew", "SKILL.md")
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except OSError as error:
            raise ClewError(f"cannot write {path}: {error.strerror}.") from error
        save(path, text())
    print(f"The skill is in {near(path)}.")
    return 0


def section(path: str) -> str:
    """What a file says with the skill between its markers: in the place of an earlier one, or at the end."""
    body = text().partition("---\n")[2].partition("---\n")[2].strip()
    mine = f"{BEGIN}\n{body}\n{END}"
    held = ""
    if os.path.lexists(path):
        try:
            with open(path, encoding="utf-8", newline="") as file:
                held = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise ClewError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is no UTF-8'}.") from error
    if not held.count(BEGIN) == held.count(END) <= 1 or held.find(END) < held.find(BEGIN):
        raise ClewError(f"{path} has its marks {BEGIN} and {END} not once and in this order; put them right first.")
    if BEGIN in held:
        return held[: held.index(BEGIN)] + mine + held[held.index(END) + len(END) :]
    gap = "" if not held else "\n" if held.endswith("\n") else "\n\n"
    return f"{held}{gap}{mine}\n"
