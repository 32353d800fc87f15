"""Evidence maps as text: `read` and `parse` make a Document of it, `write` makes one canonical text of a Document.

The dialect is the part of Argdown that evidence maps need:

    ===
    title: front matter, by indentation
    ===

    // a comment, or /* one of several lines */

    # Heading

    [Title]: what is said, on this line and the indented ones below #tag
      [label](where/from.md#L10-L12)
      > what stands there, word for word
      {credence: 0.9, reason: "why it can be relied on"}
      + <Argument that supports it>
      - [Statement that attacks it]
      -> [Statement it attacks]

    <Argument>: what it comes to

    (1) [Premise]: as above
    (2) a premise without a title is called "Argument (2)"
    ----
    (3) [Conclusion]: as above
      +> [Title]

`#tag` and `{` count where a word could begin; a backslash before any punctuation mark takes its meaning away. A title
with text is a definition and stands once; a title alone refers to it. Deeper relations belong to the relation above
them. Comments inside a node come to stand before it. Undercuts and contradictions are refused.
"""

import os
import stat

from clew.errors import ClewError
from clew.evidence.model import Document

__all__ = ["parse", "read", "same", "write"]

LONGEST_LINE = 1_000_000
LARGEST = 64_000_000
MOST_LINES = 2_000_000


def parse(text: str, name: str = "") -> Document:
    """The map in `text`; ClewError, and nothing else, for what is not one."""
    from clew.evidence import argdown_read

    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    _refuse_monsters(text, name or "map")
    return argdown_read.document(text, name)


def _refuse_monsters(text: str, shown: str) -> None:
    if len(text) > LARGEST:
        raise ClewError(f"{shown}: a map of {len(text):,} characters is more than the {LARGEST:,} that are read")
    if "\0" in text:
        at = text.index("\0")
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        raise ClewError(f"{shown}:{line}:{column}: expected text, found a NUL character; this looks like a binary file")
    if not text or text.isspace():
        raise ClewError(f"{shown}:1:1: expected an evidence map, found an empty file")
    breaks = text.count("\n")
    if breaks >= MOST_LINES:
        raise ClewError(f"{shown}: a map of {breaks + 1:,} lines is more than the {MOST_LINES:,} that are read")
    lengths = [len(line) for line in text.split("\n")]
    longest = max(lengths)
    if longest > LONGEST_LINE:
        raise ClewError(
            f"{shown}:{lengths.index(longest) + 1}:1: a line of {longest:,} characters is longer than the "
            f"{LONGEST_LINE:,} that are read; is this an Argdown file?"
        )


def read(path: str) -> Document:
    """The map in a file."""
    try:
        about = os.stat(path)
        if stat.S_ISDIR(about.st_mode):
            raise ClewError(f"{path} is a directory; name an .argdown file in it")
        if not stat.S_ISREG(about.st_mode):
            raise ClewError(f"{path} is not a regular file; name an .argdown file")
        if about.st_size > LARGEST:
            raise ClewError(f"{path} has {about.st_size:,} bytes; maps of more than {LARGEST:,} are not read")
        with open(path, "rb") as file:
            raw = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise ClewError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if b"\0" in raw:
        line = raw.count(b"\n", 0, raw.index(b"\0")) + 1
        raise ClewError(f"{path}:{line}:1: expected text, found a NUL byte; this is a binary file or not UTF-8")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        raise ClewError(
            f"{path}:{line}:{column}: expected UTF-8 text, found byte 0x{raw[error.start]:02x}; save the file as UTF-8"
        ) from error
    return parse(text, path)


def write(document: Document) -> str:
    """The canonical text. What could not be read back as the same map is refused, never written differently."""
    from clew.evidence import argdown_write

    text = argdown_write.text_of(document)
    try:
        again = parse(text, document.name)
    except ClewError as error:
        raise ClewError(f"this map cannot be written as Argdown: {error}") from error
    if not same(again, document):
        raise ClewError(
            "this map cannot be written as Argdown: it would not read back the same; "
            "look for brackets or line breaks in titles, labels and tags, and for doubled spaces in texts"
        )
    return text


def same(a: Document, b: Document) -> bool:
    """Whether two maps say the same, wherever they stand and whatever their files are called."""
    return _said(a) == _said(b)


def _said(value: object) -> object:
    if not isinstance(value, tuple):
        return type(value), value
    fields = getattr(value, "_fields", None)
    if fields is None:
        return tuple(_said(one) for one in value)
    kept = (_said(one) for field, one in zip(fields, value, strict=True) if field not in ("line", "column", "name"))
    return (type(value).__name__, *kept)
