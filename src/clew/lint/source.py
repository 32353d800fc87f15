"""Reading a file: its text, its tree, or the one line that says why not. Notebooks become one text with a map back."""

import ast
import io
import tokenize
from typing import Any, NamedTuple

from clew.reading import whole

# Files larger than this are generated; reading one takes longer than the whole project around it.
MOST_BYTES = 4 << 20
LIBRARIES = (
    b"torch",
    b"jax",
    b"sklearn",
    b"pandas",
    b"keras",
    b"tensorflow",
    b"lightning",
    b"flax",
    b"imblearn",
    b"accelerate",
    b"transformers",
    b"xgboost",
    b"lightgbm",
    b".backward(",  # a loop whose model and loss come from other files
    b"requires_grad",
    b".permutation(",  # batches made by hand, with numpy alone
    b"random.shuffle(",
    b"input_ids",  # examples made ready for a language model, by a tokenizer that is handed in
)


class Source(NamedTuple):
    """A file as it was read. `cells[n]` is the notebook cell, and the line in it, that line n + 1 came from."""

    path: str
    text: str
    tree: ast.Module
    cells: tuple[tuple[int, int], ...] = ()


class Unreadable(Exception):
    """Why a file cannot be looked at, in a few words."""


def concerns(data: bytes) -> bool:
    """Whether the file mentions a library that the rules know: most files of most projects do not."""
    return any(name in data for name in LIBRARIES)


def read_bytes(path: str) -> bytes:
    try:
        return whole(path, MOST_BYTES)
    except OSError as error:
        raise Unreadable(error.strerror or "it cannot be opened") from None


def read(path: str, data: bytes) -> Source:
    """The text and tree of a file whose bytes are `data`."""
    if path.endswith(".ipynb"):
        text, cells = notebook(data)
        return Source(path, text, parse(text), cells)
    text = decode(data)
    return Source(path, text, parse(text))


def parse(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        said = str(error.msg or "it is not Python").split("\n")[0].rstrip("?.")
        raise Unreadable(f"line {error.lineno}: {said}" if error.lineno else said) from None
    except (RecursionError, MemoryError):
        raise Unreadable("it is nested too deeply") from None
    except (ValueError, UnicodeError, OverflowError, LookupError) as error:
        raise Unreadable(str(error).split("\n")[0] or "it is not Python") from None


def encoding(data: bytes) -> str:
    """The encoding that a file declares, as PEP 263 has it."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data:
        raise Unreadable("it holds null bytes, as UTF-16 does, which Python does not run; save it as UTF-8")
    try:
        return tokenize.detect_encoding(io.BytesIO(data).readline)[0]
    except SyntaxError as error:
        raise Unreadable(str(error.msg)) from None


def decode(data: bytes) -> str:
    """The text, in the encoding that the file declares."""
    name = encoding(data)
    try:
        return data.decode(name)
    except UnicodeError as error:
        line = data.count(b"\n", 0, getattr(error, "start", 0)) + 1
        raise Unreadable(f"line {line}: not in {name}, the encoding of the file; declare another one") from None


def notebook(data: bytes) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The code cells one after the other, and for each line its cell and its line in that cell, both from 1."""
    import json

    try:
        book: Any = json.loads(data.decode("utf-8-sig", errors="replace"))
    except (ValueError, RecursionError):
        raise Unreadable("it is not a notebook: its JSON does not parse") from None
    held = book.get("cells") if isinstance(book, dict) else None
    if not isinstance(held, list):
        raise Unreadable("it is not a notebook: it has no list of cells")
    lines: list[str] = []
    cells: list[tuple[int, int]] = []
    for number, cell in enumerate(held, 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        said = cell.get("source", "")
        text = "".join(str(part) for part in said) if isinstance(said, list) else str(said)
        if text.lstrip().startswith("%%") and not text.lstrip().startswith(("%%time", "%%capture")):
            continue
        for at, line in enumerate(text.split("\n"), 1):
            lines.append(plain(line))
            cells.append((number, at))
    return "\n".join(lines), tuple(cells)


def plain(line: str) -> str:
    """A notebook line without what only IPython understands."""
    bare = line.lstrip()
    if bare.startswith(("%", "!", "?")) or bare.endswith("?"):
        return line[: len(line) - len(bare)] + "pass"
    return line
