"""The text for coding agents: short, true to the commands there are, and installed without touching anything else."""

import re
import shlex
from pathlib import Path

import pytest

from clew.cli import build
from clew.cli import run as run_command
from clew.cli.skill import BEGIN, END, text
from clew.knowledge import load
from conftest import Clew


def commands() -> list[str]:
    code = [
        line.partition("#")[0] for block in re.findall(r"```\n(.*?)```", text(), re.S) for line in block.splitlines()
    ]
    return [line.strip() for line in [*code, *re.findall(r"`(clew [^`]+)`", text())] if line.startswith("clew ")]


def test_it_is_short() -> None:
    assert len(text().splitlines()) < 200
    assert text().startswith("---\nname: clew\ndescription: ")


@pytest.mark.parametrize("line", sorted({*commands()}))
def test_every_command_it_names_is_one(line: str) -> None:
    words = shlex.split(line)[1:]
    if words[0] == "run":
        own, rest = run_command.split(words[1:])
        assert rest in (["train.py"], [])
        words = ["run", *own]
    held = build(words).parse_args(words)
    if words[:2] == ["case", "clue"]:
        assert load().tests[held.test].outcome(held.outcome)
    if words[:2] in (["case", "close"], ["why", "loss.double_softmax"]):
        assert getattr(held, "cause", held.__dict__.get("what", [""])[0]) in load().causes
    if words[0] == "exam" and held.only:
        assert set(held.only) <= set(load().tests)


def test_show(clew: Clew) -> None:
    assert clew("skill", "show").out.strip() == text().strip()
    assert len(clew("skill", "show", "--brief").out.splitlines()) <= 15


def test_a_section_is_put_in_once_and_renewed(clew: Clew) -> None:
    Path("AGENTS.md").write_text("# Ours\r\nrun make\r\n", newline="")
    assert clew("skill", "install").status == 0
    first = Path("AGENTS.md").read_bytes()
    assert first.startswith(b"# Ours\r\nrun make\r\n")
    assert b"name: clew" not in first
    assert clew("skill", "install", "AGENTS.md").status == 0
    assert Path("AGENTS.md").read_bytes() == first
    old = first.decode().replace("Stay calibrated", "An earlier version") + "# After\n"
    Path("AGENTS.md").write_text(old, newline="")
    clew("skill", "install")
    assert Path("AGENTS.md").read_bytes() == first + b"# After\n"


def test_it_makes_the_file_or_the_folder(clew: Clew) -> None:
    said = clew("skill", "install")
    assert said.out == "The skill is in AGENTS.md.\n"
    assert Path("AGENTS.md").read_text().splitlines()[0] == BEGIN
    for _ in range(2):
        assert clew("skill", "install", ".agent/skills").status == 0
        assert Path(".agent/skills/clew/SKILL.md").read_text() == text()


@pytest.mark.parametrize("held", [BEGIN, END, f"{END}\n{BEGIN}", f"{BEGIN}\n{END}\n{BEGIN}\n{END}"])
def test_broken_marks_change_nothing(clew: Clew, held: str) -> None:
    Path("AGENTS.md").write_text(held)
    said = clew("skill", "install")
    assert said.status == 2
    assert "put them right" in said.err
    assert Path("AGENTS.md").read_text() == held
    Path("bytes.md").write_bytes(b"\xff\xfe")
    assert clew("skill", "install", "bytes.md").status == 2
