"""Metadata of an evidence map: `{reason: "...", credence: 0.9}` and the front matter between `===` lines.

Both are a small part of YAML, read and written by hand: maps, lists, quoted text, numbers, true, false, null and bare
words. Anything else is refused where it stands, so that a slip of the pen never becomes a value nobody meant.
"""

import re
from collections.abc import Callable
from typing import NoReturn

from clew.errors import ClewError
from clew.evidence.model import Map

Fail = Callable[[int, str], NoReturn]
"""Refuses the map: takes the offset of the fault in the text and what is wrong there."""

DEPTH = 40
"""How deep maps and lists may nest. Deeper ones are a mistake or an attack on the stack."""

_SPACE = re.compile(r"\s*")
_KEY = re.compile(r"[\w.$-]+(?: +[\w.$-]+)*")
_BARE = re.compile(r"[^\s,{}\[\]\"'][^,{}\[\]\n]*")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_PLAIN_STRING = re.compile(r"[^\"\\\n]*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f"}
_WORDS = {"true": True, "false": False, "null": None}


def found(text: str, at: int, nothing: str = "the end of the file") -> str:
    """What stands at an offset, for the second half of "expected this, found that"."""
    if at >= len(text):
        return nothing
    if text[at] == "\n":
        return "the end of the line"
    end = min(at + 24, len(text))
    newline = text.find("\n", at, end)
    return repr(text[at : newline if newline >= 0 else end].rstrip())


def flow(text: str, at: int, fail: Fail, depth: int = 0) -> tuple[object, int]:
    """The value that begins at `at`, and the offset just behind it."""
    if depth > DEPTH:
        fail(at, f"metadata nests more than {DEPTH} levels deep; write it flatter")
    first = text[at : at + 1]
    if first == "{":
        return _map(text, at, fail, depth)
    if first == "[":
        return _list(text, at, fail, depth)
    if first == '"':
        return _double_quoted(text, at, fail)
    if first == "'":
        return _single_quoted(text, at, fail)
    match = _BARE.match(text, at)
    if match is None:
        fail(at, f"expected a value, found {found(text, at)}")
    return scalar(match.group().rstrip(), at, fail), match.end()


def scalar(word: str, at: int, fail: Fail) -> object:
    """A bare word: a number, true, false, null, or else plain text."""
    if word in _WORDS:
        return _WORDS[word]
    if _INTEGER.fullmatch(word):
        # Python refuses to read endless integers; nobody's credence needs one.
        if len(word) > 300:
            fail(at, f"a number of {len(word)} digits is more than a map can mean; quote it if it is text")
        return int(word)
    if _DECIMAL.fullmatch(word):
        number = float(word)
        if number - number != 0:
            fail(at, f"the number {word[:24]} is too large; quote it if it is text")
        return number
    return word


def _map(text: str, opened: int, fail: Fail, depth: int) -> tuple[Map, int]:
    items: list[tuple[str, object]] = []
    seen: set[str] = set()
    at = skip_space(text, opened + 1)
    while text[at : at + 1] != "}":
        _refuse_end(text, at, opened, "}", fail)
        key_at = at
        key, at = _key(text, at, fail)
        if key in seen:
            fail(key_at, f"the name {key!r} stands twice in this map")
        seen.add(key)
        at = skip_space(text, at)
        if text[at : at + 1] != ":":
            _refuse_end(text, at, opened, "}", fail)
            fail(at, f"expected ':' after the name {key!r}, found {found(text, at)}")
        at = skip_space(text, at + 1)
        _refuse_end(text, at, opened, "}", fail)
        value, at = flow(text, at, fail, depth + 1)
        items.append((key, value))
        at = _separator(text, at, opened, "}", fail)
    return Map(tuple(items)), at + 1


def _list(text: str, opened: int, fail: Fail, depth: int) -> tuple[tuple[object, ...], int]:
    values: list[object] = []
    at = skip_space(text, opened + 1)
    while text[at : at + 1] != "]":
        _refuse_end(text, at, opened, "]", fail)
        value, at = flow(text, at, fail, depth + 1)
        values.append(value)
        at = _separator(text, at, opened, "]", fail)
    return tuple(values), at + 1


def _separator(text: str, at: int, opened: int, close: str, fail: Fail) -> int:
    at = skip_space(text, at)
    if text[at : at + 1] == ",":
        return skip_space(text, at + 1)
    if text[at : at + 1] != close:
        _refuse_end(text, at, opened, close, fail)
        fail(at, f"expected ',' or '{close}', found {found(text, at)}")
    return at


def _refuse_end(text: str, at: int, opened: int, close: str, fail: Fail) -> None:
    if at >= len(text):
        kind = "metadata map" if close == "}" else "list"
        fail(opened, f"this {kind} is never closed: expected '{close}', found the end of the file")


def skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _key(text: str, at: int, fail: Fail) -> tuple[str, int]:
    if text[at] == '"':
        return _double_quoted(text, at, fail)
    if text[at] == "'":
        return _single_quoted(text, at, fail)
    match = _KEY.match(text, at)
    if match is None:
        fail(at, f"expected a name and ':', found {found(text, at)}; for a brace in running text write \\{{")
    return match.group(), match.end()


def _double_quoted(text: str, opened: int, fail: Fail) -> tuple[str, int]:
    parts: list[str] = []
    at = opened + 1
    while True:
        match = _PLAIN_STRING.match(text, at)
        assert match is not None  # the pattern also matches nothing
        parts.append(match.group())
        at = match.end()
        if at >= len(text):
            fail(opened, "this quoted text is never closed: expected '\"', found the end of the file")
        if text[at] == '"':
            return "".join(parts), at + 1
        if text[at] == "\n":
            parts[-1] = parts[-1].rstrip()
            parts.append(" ")
            at = skip_space(text, at)
        else:
            character, at = _escape(text, at, fail)
            parts.append(character)


def _single_quoted(text: str, opened: int, fail: Fail) -> tuple[str, int]:
    parts: list[str] = []
    at = opened + 1
    while True:
        end = text.find("'", at)
        if end < 0:
            fail(opened, 'this quoted text is never closed: expected "\'", found the end of the file')
        parts.append(text[at:end])
        if text[end + 1 : end + 2] != "'":
            return _folded("'".join(parts)), end + 1
        at = end + 2


def _folded(text: str) -> str:
    """Line breaks inside quoted text read as one space, however the next line is indented."""
    if "\n" not in text:
        return text
    first, *rest = text.split("\n")
    inner = [row.strip() for row in rest[:-1]]
    return " ".join([first.rstrip(), *(row for row in inner if row), rest[-1].lstrip()])


def _escape(text: str, at: int, fail: Fail) -> tuple[str, int]:
    mark = text[at + 1 : at + 2]
    if mark in _ESCAPES and mark:
        return _ESCAPES[mark], at + 2
    digits = text[at + 2 : at + 6]
    if mark == "u" and re.fullmatch(r"[0-9a-fA-F]{4}", digits):
        if digits[0] in "dD" and digits[1] in "89abcdefABCDEF":
            fail(at, f"\\u{digits} is half a character; write the character itself")
        return chr(int(digits, 16)), at + 6
    return fail(at, f'expected an escape such as \\n, \\" or \\u00e9, found {found(text, at)}')


def front_matter(lines: list[tuple[int, str]], fail: Fail) -> Map:
    """The map written by indentation in `lines`, each with the offset it begins at."""
    rows = [(at, line) for at, line in lines if line.strip()]
    items, after = _front_level(rows, 0, fail, 0)
    if after < len(rows):
        fail(rows[after][0], "this line is indented less than the first one of the front matter")
    return items


def _front_level(rows: list[tuple[int, str]], index: int, fail: Fail, depth: int) -> tuple[Map, int]:
    if depth > DEPTH:
        fail(rows[index][0], f"the front matter nests more than {DEPTH} levels deep; write it flatter")
    items: list[tuple[str, object]] = []
    seen: set[str] = set()
    level = _indent(rows[index][1]) if index < len(rows) else 0
    while index < len(rows) and _indent(rows[index][1]) >= level:
        at, line = rows[index]
        if _indent(line) > level:
            fail(at, "this line is indented deeper than its neighbours, but the line above already has a value")
        key, written, value_at = _front_line(line, at, fail)
        if key in seen:
            fail(at, f"the name {key!r} stands twice in the front matter")
        seen.add(key)
        index += 1
        value: object = None
        if written:
            value = _front_value(written, value_at, fail)
        elif index < len(rows) and _indent(rows[index][1]) > level:
            value, index = _front_level(rows, index, fail, depth + 1)
            if index < len(rows) and _indent(rows[index][1]) > level:
                fail(rows[index][0], "this line's indentation fits no line above it")
        items.append((key, value))
    return Map(tuple(items)), index


def _front_line(line: str, at: int, fail: Fail) -> tuple[str, str, int]:
    """The name, the value as written, and where the value begins."""
    body = line.strip()
    start = at + len(line) - len(line.lstrip())
    if body[0] in "\"'":
        key, after = _key(body, 0, _inside(start, fail))
        after = skip_space(body, after)
    else:
        after = body.find(":")
        key = body[: max(after, 0)].rstrip()
    if after < 1 or body[0] in "{[" or body[after : after + 1] != ":" or body[after + 1 : after + 2].strip():
        fail(start, f"expected 'name: value' in the front matter, found {found(body, 0)}")
    rest = body[after + 1 :].lstrip()
    return key, rest, start + len(body) - len(rest)


def _inside(start: int, fail: Fail) -> Fail:
    """Refusals inside one line, which end where the line does."""

    def here(offset: int, message: str) -> NoReturn:
        fail(start + offset, message.replace("the end of the file", "the end of the line"))

    return here


def _front_value(written: str, at: int, fail: Fail) -> object:
    if written[0] not in "{[\"'":
        return scalar(written, at, fail)

    here = _inside(at, fail)
    value, end = flow(written, 0, here)
    if written[end:].strip():
        here(end, f"expected the end of the line after the value, found {found(written, end)}")
    return value


def _indent(line: str) -> int:
    wide = line.expandtabs(4)
    return len(wide) - len(wide.lstrip())


def write_value(value: object) -> str:
    """A value as it stands inside braces."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Map):
        return "{" + ", ".join(f"{_write_key(key)}: {write_value(one)}" for key, one in value.items) + "}"
    if isinstance(value, tuple):
        return "[" + ", ".join(write_value(one) for one in value) + "]"
    if isinstance(value, int):
        if value.bit_length() > 900:
            raise ClewError("metadata cannot hold a number of hundreds of digits; write it as text")
        return str(value)
    if isinstance(value, float):
        if value - value != 0:
            raise ClewError(f"metadata cannot hold the number {value}; a map has finite numbers only")
        return repr(value)
    if isinstance(value, str):
        return write_string(value)
    raise ClewError(
        f"metadata cannot hold a {type(value).__name__}; use text, numbers, true, false, null, lists or maps"
    )


def write_string(text: str) -> str:
    parts = []
    for character in text:
        if character in '"\\':
            parts.append("\\" + character)
        elif character == "\n":
            parts.append("\\n")
        elif character < " " or character in "\x7f\x85\u2028\u2029" or character == "\xa0":
            parts.append(f"\\u{ord(character):04x}")
        else:
            parts.append(character)
    return '"' + "".join(parts) + '"'


def _write_key(key: str) -> str:
    return key if _KEY.fullmatch(key) else write_string(key)


def write_front(front: Map, indent: int = 0) -> list[str]:
    """The lines between the two `===`."""
    lines: list[str] = []
    for key, value in front.items:
        name = _write_key(key)
        if isinstance(value, Map) and value.items:
            lines += [f"{' ' * indent}{name}:", *write_front(value, indent + 4)]
        else:
            lines.append(f"{' ' * indent}{name}: {_write_front_value(value)}")
    return lines


def _write_front_value(value: object) -> str:
    if not isinstance(value, str):
        return write_value(value)
    bare = value == " ".join(value.split()) and value != "" and value[0] not in "{[\"'" and value.isprintable()
    if bare and not (value in _WORDS or _INTEGER.fullmatch(value) or _DECIMAL.fullmatch(value)):
        return value
    return write_string(value)
