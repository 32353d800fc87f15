"""What the project says about itself in several places must agree."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


MODULES = {"scikit-learn": "sklearn"}


def packages(wanted: list[str]) -> set[str]:
    return {re.split(r"[<>=!\[ ;]", item, maxsplit=1)[0] for item in wanted} - {"clew"}


def test_every_dependency_has_its_reason_and_its_pin() -> None:
    extras = PROJECT["optional-dependencies"]
    named = packages(PROJECT["dependencies"]).union(*map(packages, extras.values()))
    reasons = (ROOT / "docs" / "DEPENDENCIES.md").read_text()
    assert not {name for name in named if not re.search(rf"\b{re.escape(name)}\b", reasons)}
    pins = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    tried = packages(PROJECT["dependencies"]) | packages(extras["dev"]) | packages(extras["torch"])
    assert not {name for name in tried if name.lower() not in pins}


def test_the_extra_for_everything_has_everything() -> None:
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    assert set(everything.removeprefix("clew[").removesuffix("]").split(",")) == set(extras) - {"all", "dev"}


def test_an_extra_installs_only_what_is_imported() -> None:
    imported = {word for path in (ROOT / "src").rglob("*.py") for word in _imported(path.read_text())}
    wanted = packages(
        [item for name, items in PROJECT["optional-dependencies"].items() if name != "dev" for item in items]
    )
    assert not {name for name in wanted if MODULES.get(name, name) not in imported}


def _imported(text: str) -> set[str]:
    return set(re.findall(r"""(?:\bimport |\bfrom |import_module\(f?["'])(\w+)""", text))


def test_every_command_stands_in_the_readme() -> None:
    from clew.cli import COMMANDS

    readme = (ROOT / "README.md").read_text()
    assert not [name for name in COMMANDS if f"clew {name}" not in readme]


def test_every_link_of_the_documents_leads_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)", re.sub(r"`[^`]*`", "", page.read_text())):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"
