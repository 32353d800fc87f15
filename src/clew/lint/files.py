"""Which files are meant, and what the project says about looking at them."""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from clew.errors import ClewError, did_you_mean
from clew.lint.model import CONFIDENCES
from clew.reading import whole

SKIPPED = frozenset(
    "__pycache__ node_modules site-packages dist-packages build dist .git .hg .svn .tox .nox .venv venv env "
    ".mypy_cache .ruff_cache .pytest_cache .ipynb_checkpoints .eggs .clew".split()
)
KINDS = (".py", ".ipynb", ".pyw")


class Settings(NamedTuple):
    """What is looked for and where. Codes may be whole (CLW101) or the beginning of several (CLW1)."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    per_file: tuple[tuple[str, tuple[str, ...]], ...] = ()
    confidence: str = "look"

    def wants(self, code: str, name: str) -> bool:
        chosen = not self.select or any(code.startswith(word) or name == word for word in self.select)
        return chosen and not any(code.startswith(word) or name == word for word in self.ignore)


def collect(paths: list[str], exclude: tuple[str, ...]) -> list[str]:
    """The files meant by the paths; those below a folder are sorted, and hidden and installed ones left out."""
    found: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            found += _below(path, exclude)
        elif os.path.exists(path):
            if not excluded(path, exclude):
                found.append(path)
        else:
            raise ClewError(f"there is no file or folder {path}.")
    return list(dict.fromkeys(found))


def _below(folder: str, exclude: tuple[str, ...]) -> Iterator[str]:
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if name not in SKIPPED and not name.startswith(".") and not excluded(os.path.join(at, name), exclude)
        )
        for name in sorted(names):
            path = os.path.normpath(os.path.join(at, name))
            if name.endswith(KINDS) and not excluded(path, exclude) and waits_for_nobody(path):
                yield path


def waits_for_nobody(path: str) -> bool:
    """Not a pipe or a device, whose opening never ends. A broken link passes: reading it says what is wrong."""
    return os.path.isfile(path) or not os.path.exists(path)


def excluded(path: str, patterns: tuple[str, ...]) -> bool:
    return any(matches(path, pattern) for pattern in patterns)


def matches(path: str, pattern: str) -> bool:
    """Whether a path lies under a folder named by a pattern, or fits it as a whole, from the right, or by its name."""
    from fnmatch import fnmatch

    path = path.replace(os.sep, "/").removeprefix("./")
    pattern = pattern.rstrip("/").removeprefix("./")
    parts = path.split("/")
    ends = ["/".join(parts[at:]) for at in range(len(parts))]
    return any(fnmatch(end, pattern) or fnmatch(end, f"{pattern}/*") for end in ends)


def settings(start: str) -> tuple[Settings, str]:
    """What the nearest pyproject.toml upwards from `start` says under [tool.clew.lint], and its path ("" for none)."""
    folder = os.path.abspath(start if os.path.isdir(start) else os.path.dirname(start) or ".")
    while True:
        path = os.path.join(folder, "pyproject.toml")
        if os.path.isfile(path):
            return from_toml(path), path
        above = os.path.dirname(folder)
        if above == folder:
            return Settings(), ""
        folder = above


def from_toml(path: str) -> Settings:
    data = whole(path)
    if b"clew" not in data:
        return Settings()
    import tomllib

    try:
        table: Any = tomllib.loads(data.decode("utf-8", errors="replace"))
    except tomllib.TOMLDecodeError as error:
        raise ClewError(f"{path} is not valid TOML: {error}.") from None
    for key in ("tool", "clew", "lint"):
        table = table.get(key, {}) if isinstance(table, dict) else {}
    known = ("select", "ignore", "exclude", "per-file-ignores", "confidence")
    for key in table:
        if key not in known:
            raise ClewError(f"{path}: [tool.clew.lint] has no setting {key!r}{did_you_mean(key, known) or '.'}")
    per_file = table.get("per-file-ignores", {})
    if not isinstance(per_file, dict):
        raise ClewError(f"{path}: per-file-ignores must be a table of patterns and lists of codes.")
    return Settings(
        words(table, "select", path),
        words(table, "ignore", path),
        words(table, "exclude", path),
        tuple((pattern, words(per_file, pattern, path)) for pattern in per_file),
        level(str(table.get("confidence", "look"))),
    )


def words(table: dict[str, Any], key: str, path: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise ClewError(f"{path}: {key} must be a list of words.")
    return tuple(value)


def level(word: str) -> str:
    if word not in CONFIDENCES:
        close = did_you_mean(word, CONFIDENCES) or "."
        raise ClewError(f"a confidence is {', '.join(CONFIDENCES)}, not {word!r}{close}")
    return word
