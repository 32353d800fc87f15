"""Looking for silent bugs in source."""

import os
from typing import Any, NamedTuple

from clew.errors import ClewError, did_you_mean
from clew.lint.files import Settings, collect, level, settings
from clew.lint.fix import mend
from clew.lint.model import Finding
from clew.lint.registry import Rule, load
from clew.lint.run import Result, run
from clew.lint.source import decode, encoding, read_bytes

STDIN = "<stdin>"
ROUNDS = 8


class Wish(NamedTuple):
    """What is asked for on the command line; empty fields leave the project's settings as they are."""

    paths: tuple[str, ...]
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    confidence: str = ""
    baseline: str = ""
    cached: bool = True
    jobs: int = 0
    stdin: bytes | None = None
    stdin_name: str = STDIN


class Looked(NamedTuple):
    """What was found, and the text of files that are not on the disk."""

    result: Result
    given: dict[str, bytes]
    settings: Settings


def lint(wish: Wish) -> Looked:
    """Look at the files that a wish names."""
    chosen = chosen_settings(wish)
    files = [path for path in wish.paths if path != "-"]
    paths = collect(list(files), chosen.exclude) if files else []
    given: dict[str, bytes] = {}
    if "-" in wish.paths:
        given[wish.stdin_name] = wish.stdin or b""
        paths.append(wish.stdin_name)
    result = run(paths, chosen, cached=wish.cached, jobs=wish.jobs, given=given)
    if wish.baseline:
        result = result._replace(findings=tuple(beyond(list(result.findings), wish.baseline, given)))
    return Looked(result, given, chosen)


def chosen_settings(wish: Wish) -> Settings:
    first = next((path for path in wish.paths if path != "-"), ".")
    held, _ = settings(first if os.path.exists(first) else ".")
    known(wish.select + wish.ignore)
    return held._replace(
        select=wish.select or held.select,
        ignore=held.ignore + wish.ignore,
        exclude=held.exclude + wish.exclude,
        confidence=level(wish.confidence) if wish.confidence else held.confidence,
    )


def known(codes: tuple[str, ...]) -> None:
    """Refuse codes that no rule has."""
    if not codes:
        return
    rules = load()
    names = [rule.name for rule in rules.values()]
    for code in codes:
        if code not in names and not any(rule.startswith(code) for rule in (*rules, "CLW001")):
            close = did_you_mean(code, [*rules, *names]) or "."
            raise ClewError(f"there is no rule {code!r} among those of clew lint --rules{close}")


def rule(code: str) -> Rule:
    """The rule of a code or a name."""
    rules = load()
    named = {held.name: held for held in rules.values()}
    found = rules.get(code.upper()) or named.get(code)
    if found is None:
        close = did_you_mean(code, [*rules, *named]) or "."
        raise ClewError(f"there is no rule {code!r} among those of clew lint --rules{close}")
    return found


class Mended(NamedTuple):
    """What fixing did: the new text of each changed file, how many findings it fixed, and what is left."""

    changed: dict[str, tuple[str, str]]
    many: int
    left: Looked


def mended(wish: Wish, unsafe: bool, write: bool) -> Mended:
    """Fix what can be fixed, again and again until nothing changes; with `write` the files are changed."""
    before: dict[str, str] = {}
    encodings: dict[str, str] = {}
    given: dict[str, bytes] = {}
    count = 0
    looked = lint(wish)
    paths = sorted({finding.path for finding in looked.result.findings if finding.fix is not None})
    for path in paths:
        if not path.endswith(".ipynb"):
            data = looked.given[path] if path in looked.given else read_bytes(path)
            before[path], encodings[path] = decode(data), encoding(data)
    after = dict(before)
    for _ in range(ROUNDS):
        changed = False
        for path in list(after):
            here = [finding for finding in looked.result.findings if finding.path == path]
            text, done = mend(after[path], here, unsafe)
            if done:
                after[path], changed = text, True
                given[path] = text.encode(encodings[path])
                count += len(done)
        if not changed:
            break
        again = run(list(after), looked.settings, cached=False, given=given)
        others = [finding for finding in looked.result.findings if finding.path not in after]
        looked = looked._replace(result=looked.result._replace(findings=(*others, *again.findings)))
    texts = {path: (before[path], after[path]) for path in after if after[path] != before[path]}
    if write:
        for path, (_, text) in texts.items():
            if path not in looked.given:
                replace(path, text, encodings[path])
    return Mended(texts, count, looked)


def replace(path: str, text: str, encoding: str) -> None:
    """Write a file in one go, with the line ends and in the encoding that it had. A link stays a link."""
    path = os.path.realpath(path)
    part = f"{path}.part-{os.getpid()}"
    try:
        with open(part, "w", encoding=encoding, newline="") as file:
            file.write(text)
        os.chmod(part, os.stat(path).st_mode)
        os.replace(part, path)
    except OSError as error:
        if os.path.exists(part):
            os.unlink(part)
        raise ClewError(f"cannot write {path}: {error.strerror}.") from error


def baseline(findings: list[Finding], given: dict[str, bytes]) -> dict[str, Any]:
    """What is there today, by rule, file and the text of the line, so that moving code does not matter."""
    counts: dict[str, int] = {}
    for key in keys(findings, given):
        counts[key] = counts.get(key, 0) + 1
    return {"schema": "clew/1", "command": "lint", "known": counts}


def keys(findings: list[Finding], given: dict[str, bytes]) -> list[str]:
    from clew.lint.run import text_of

    lines: dict[str, Any] = {}
    found = []
    for finding in findings:
        if finding.path not in lines:
            lines[finding.path] = text_of(finding.path, given)
        held = lines[finding.path](finding)
        text = held[finding.line - 1].strip() if 0 < finding.line <= len(held) else ""
        found.append(f"{finding.rule} {finding.path.replace(os.sep, '/')} {text}")
    return found


def beyond(findings: list[Finding], path: str, given: dict[str, bytes]) -> list[Finding]:
    """The findings that a baseline does not know."""
    import json

    try:
        with open(path, encoding="utf-8") as file:
            held = json.load(file)
        counts = {str(key): int(many) for key, many in held["known"].items()}
    except OSError as error:
        raise ClewError(
            f"cannot read the baseline {path}: {error.strerror}; clew lint --write-baseline makes one."
        ) from None
    except (OverflowError, ValueError, KeyError, TypeError, AttributeError):
        raise ClewError(f"{path} is not a baseline of clew lint.") from None
    left = []
    for finding, key in zip(findings, keys(findings, given), strict=True):
        if counts.get(key, 0) > 0:
            counts[key] -= 1
        else:
            left.append(finding)
    return left
