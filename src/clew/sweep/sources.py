"""The user's own code that a command runs: the script and the modules beside it that it imports, found by reading."""

import ast
import os

from clew.reading import whole

MOST = 2000


def sources(command: tuple[str, ...], cwd: str) -> list[str]:
    found: dict[str, None] = {}
    left = [path for path in (_script(command, cwd),) if path]
    while left and len(found) < MOST:
        path = left.pop()
        if path in found:
            continue
        found[path] = None
        left += [at for name in _imports(path) for at in _module(name, [os.path.dirname(path), cwd])]
    return list(found)


def _script(command: tuple[str, ...], cwd: str) -> str:
    for index, word in enumerate(command):
        if word == "-m" and index + 1 < len(command):
            return next(iter(_module(command[index + 1], [cwd])), "")
        if word.endswith(".py") and os.path.isfile(os.path.join(cwd, word)):
            return os.path.abspath(os.path.join(cwd, word))
    return ""


def _imports(path: str) -> list[str]:
    try:
        tree = ast.parse(whole(path))
    except (OSError, SyntaxError, ValueError):
        return []
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            lead = "." * node.level + (node.module or "")
            names += [lead, *(f"{lead}.{alias.name}" if node.module else lead + alias.name for alias in node.names)]
    return names


def _module(name: str, folders: list[str]) -> list[str]:
    """The files that an import of this name runs, where they lie in one of the folders."""
    dots = len(name) - len(name.lstrip("."))
    if dots:
        folder = folders[0]
        for _ in range(dots - 1):
            folder = os.path.dirname(folder)
        folders, name = [folder], name[dots:]
    for folder in folders:
        files: list[str] = []
        at = folder
        for part in name.split(".") if name else []:
            if os.path.isfile(os.path.join(at, part + ".py")):
                return [*files, os.path.join(at, part + ".py")]
            at = os.path.join(at, part)
            if os.path.isfile(os.path.join(at, "__init__.py")):
                files.append(os.path.join(at, "__init__.py"))
            elif not os.path.isdir(at):
                break
        if files:
            return files
    return []


def code_digest(paths: list[str], cwd: str) -> str:
    """One digest over the names and contents."""
    import hashlib

    made = hashlib.sha256()
    for path in sorted(paths):
        made.update(os.path.relpath(path, cwd).encode() + b"\0")
        try:
            made.update(hashlib.sha256(whole(path)).digest())
        except OSError:
            made.update(b"gone")
    return made.hexdigest()[:16]
