"""Dependencies point one way only.

cli  web  integrations                                     surfaces
  |
 app                                                       one function per verb
  |
sweep                                                      what looks at many runs
  |
observe data lint exams symptoms landscape rl physics      what looks at a run
  |
report                                                     what shows a case
  |
case  archive                                              what keeps and weighs
  |
knowledge  <-- built from -- evidence                      what is known
  |
records  errors  reading                                   what all exchange
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import clew

SOURCE = Path(clew.__file__).parent
LEVELS = [
    ["clew", "errors", "home", "reading"],
    ["records"],
    ["evidence"],
    ["knowledge"],
    ["case", "archive", "tape"],
    ["report"],
    ["observe", "data", "lint", "exams", "symptoms", "landscape", "rl", "physics"],
    ["sweep"],
    ["app"],
    ["casebook"],
    ["cli", "web", "integrations", "testing", "pytest_plugin"],
    ["__main__"],
]
LEVEL = {part: level for level, parts in enumerate(LEVELS) for part in parts}
HEAVY = {"torch", "numpy", "pandas", "scipy", "sklearn", "matplotlib", "pyarrow", "ray", "gymnasium", "mlflow", "wandb"}
LIGHT_PARTS = {
    "clew",
    "errors",
    "home",
    "reading",
    "records",
    "archive",
    "symptoms",
    "evidence",
    "knowledge",
    "case",
    "report",
    "lint",
    "app",
    "cli",
    "__main__",
}


def part_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return "clew" if first == "__init__.py" else first.removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are written out in full"
            assert node.module is not None
            if node.module == "clew":
                yield from ((node.lineno, f"clew.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, node.module


def test_every_part_has_its_level() -> None:
    parts = {part_of(path) for path in SOURCE.rglob("*.py")}
    assert parts <= set(LEVEL), f"give these a level: {sorted(parts - set(LEVEL))}"


def test_no_arrow_points_upwards() -> None:
    upwards = []
    for path in SOURCE.rglob("*.py"):
        here = LEVEL[part_of(path)]
        for line, name in imports(path):
            if name.startswith("clew."):
                part = name.split(".")[1]
                target = LEVEL.get(part, LEVEL["clew"])
                if target > here or (target == here and part != part_of(path) and part in LEVEL):
                    upwards.append(f"{path.relative_to(SOURCE)}:{line} imports {name}")
    assert not upwards, "\n".join(upwards)


def test_light_parts_import_nothing_heavy() -> None:
    heavy = [
        f"{path.relative_to(SOURCE)}:{line} imports {name}"
        for path in SOURCE.rglob("*.py")
        if part_of(path) in LIGHT_PARTS
        for line, name in imports(path)
        if name.split(".")[0] in HEAVY
    ]
    assert not heavy, "\n".join(heavy)
