"""What clew says when it cannot do what was asked: one sentence, and nothing was changed."""


class ClewError(Exception):
    """A sentence for the person at the keyboard; surfaces print it and exit with status 2."""


def nearest(word: str, known: "list[str] | tuple[str, ...]", how_many: int = 3) -> list[str]:
    """The known words most like `word`, best first: for "did you mean"."""
    import difflib

    low = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), list(low), n=how_many, cutoff=0.6)
    if not close:
        tail = {name.lower().rsplit(".", 1)[-1]: name for name in known}
        hits = difflib.get_close_matches(word.lower().rsplit(".", 1)[-1], list(tail), n=how_many, cutoff=0.6)
        return [tail[hit] for hit in hits]
    return [low[hit] for hit in close]


def did_you_mean(word: str, known: "list[str] | tuple[str, ...]") -> str:
    """A clause to append to an error, empty when nothing is near."""
    close = nearest(word, known)
    return f"; did you mean {' or '.join(close)}?" if close else ""
