"""Evidence maps: checking their quotes, propagating their credences, sealing them."""

import os

from clew.evidence import argdown, quotes
from clew.evidence.credence import Credences, propagate
from clew.evidence.model import Document
from clew.evidence.quotes import Check
from clew.knowledge.base import FOLDER

OWN = os.path.join(FOLDER, "claims.argdown")


def check(path: str, sources: str = "") -> Check:
    """Every quote of a map (clew's own when none is named) against its source; cited files are looked for beside the
    map unless told otherwise."""
    path = path or OWN
    return quotes.check(argdown.read(path), sources or os.path.dirname(os.path.abspath(path)))


def sound(found: Check) -> bool:
    """Whether every quote stands word for word at the lines it cites."""
    return all(quote.verdict == "verbatim" for quote in found.quotes)


def read_map(path: str = "") -> tuple[Document, Credences]:
    """A map with its credences; clew's own when none is named."""
    document = argdown.read(path or OWN)
    return document, propagate(document)


def seal(path: str, sources: str = "") -> tuple[str, int]:
    """The text of a map whose quotes are replaced by digests, and how many there were."""
    folder = sources or os.path.dirname(os.path.abspath(path))
    document = argdown.read(path)
    count = len(quotes.check(document, folder).quotes)
    return argdown.write(quotes.seal(document, folder)), count
