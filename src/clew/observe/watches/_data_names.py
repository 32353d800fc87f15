"""What the script itself calls the data that it reads: a validation set is one because the script says so.

Rows that are trained on may be evaluated too, for the training accuracy; only the names on the user's own lines tell
that apart from a validation set made of training rows. Source is read as text: local variables are never touched.
"""

import linecache
import re
import sys
from itertools import islice
from types import FrameType

from clew.observe.places import is_users

HELD_OUT = "held out"
TRAINING = "training"
FRAMES = 8
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_TEXT = re.compile(r"""([A-Za-z]*)("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")
_CALLEE = re.compile(r"[\w.]+\s*\(")
_BRACES = re.compile(r"\{[^{}]*\}")
_SHORT = re.compile(r"(?:\b[A-Za-z]|_)(tr|te|tst)(?![A-Za-z])")
"""Xtr and y_te; a name that is no more than these letters may be anything."""
_HELD = ("valid", "test", "heldout", "holdout", "valload", "valset", "valdata", "valiter")


def meaning(source: str) -> str | None:
    """Whether the names in a piece of source speak of held-out data. Where both are named it counts as training."""
    names = _TEXT.sub(_expressions, source).partition("#")[0]
    words = [word.lower() for word in _WORD.findall(names)]
    short = set(_SHORT.findall(names))
    if "tr" in short or any("train" in word for word in words):
        return TRAINING
    joined = " ".join(words)
    held = any(word == "val" or word.startswith(_HELD) or word in ("xval", "xtest", "yval", "ytest") for word in words)
    return HELD_OUT if held or short or "held out" in joined or "hold out" in joined else None


def _expressions(text: re.Match[str]) -> str:
    """What a text says is no name; what an f-string holds in braces is."""
    return " ".join(_BRACES.findall(text[2])) if "f" in text[1].lower() else ""


def called_here(frames: int = FRAMES) -> str | None:
    """What the innermost of the user's lines that says anything calls the data at hand."""
    frame: FrameType | None = sys._getframe(1)
    looked = 0
    while frame is not None and looked < frames:
        if is_users(frame.f_code.co_filename):
            running = _running(frame)
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            if looked:  # a function that is called "train" may well evaluate
                callee = _CALLEE.match(running)
                running, line = (text.replace(callee[0], "(") if callee else text for text in (running, line))
            looked += 1
            found = meaning(running) or meaning(line)
            if found is not None:
                return found
        frame = frame.f_back
    return None


def _running(frame: FrameType) -> str:
    """The expression that is being evaluated, where it stands on one line."""
    spans = islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)
    line, last, start, end = next(spans, (None, None, None, None))
    if line is None or line != last or start is None or end is None:
        return ""
    source = linecache.getline(frame.f_code.co_filename, line).encode()
    return source[start:end].decode("utf-8", "replace")
