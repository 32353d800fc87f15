"""Checks the quotes of an evidence map, word for word, against the texts they cite.

What counts is the words in their order. Not an alteration:

- spacing, line breaks, and hyphens between or inside words ("gen-erated", "hyper parameter");
- the case of the first letter of a sentence or fragment, because a quote may begin with a capital;
- typographic quotation marks, dashes, ellipses and minus signs against plain ones, ligatures and other compatibility
  forms, accents on words of three letters and more (conversions lose them);
- Markdown and HTML: emphasis, code marks, headings, bullets, block quotes, tables, links (the label counts), images
  (nothing counts), footnote marks that are links; list numbers, which may be kept or left out;
- what PDF conversion leaves: `(cid:73)`, bullets, table pipes and rules, "0 .1" for "0.1";
- full stops, commas, colons, quotation marks and the like, and brackets around words.

An alteration: a word added, dropped, changed or moved, and the case of any letter but the first; a digit; a sign in a
formula or before a number (minus, plus, equals, per cent and so on); and the kind of brackets around numbers and
symbols, since [0, 1] is not (0, 1).

`...`, its one-character form, and either in brackets mark an omission; the fragments must stand in the source in
that order. A sentence is *verbatim* when it stands inside the cited lines, *elsewhere* when it stands in the file but
not (or not wholly) inside them, *altered* when a passage shares 0.6 of its words, else *absent*. A quote is

- `verbatim`: every sentence is, in order, with nothing left out between them but at marks;
- `elided`: every sentence is, but text between them was left out without a mark;
- `elsewhere`: every sentence stands in the file, at least one outside the cited lines;
- `altered`: some sentence is altered or absent, or the sentences stand in another order;
- `absent`: no sentence was found; `source_missing`: there is no source to read, so nothing was judged.

A statement may carry `seals` in its metadata instead of a quote (see `quotes_seal`). A digest agrees or it does not,
so those are never `altered`: where one sentence is not found as it was sealed, the whole is `absent`.
Searching is bounded. Past a limit that only a hostile map reaches, what is not found word for word counts as absent;
past a second one the map is refused.
"""

import os
import re
import stat
from collections.abc import Iterator
from typing import NamedTuple

from clew.errors import ClewError
from clew.evidence import quotes_seal
from clew.evidence.model import Argument, Block, Document, Link, Map, Quote, Statement
from clew.evidence.quotes_judge import Candidate, Judgement, LeftOut, SentenceCheck, candidates, judge
from clew.evidence.quotes_sentences import split
from clew.evidence.quotes_source import Budget, Source
from clew.evidence.quotes_words import read

LARGEST_SOURCE = 16_000_000
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


class QuoteCheck(NamedTuple):
    """What was found about one quote (or one set of seals). `line` is where it stands in the map."""

    claim: str
    file: str
    lines: tuple[int, int] | None
    verdict: str
    sentences: tuple[SentenceCheck, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    note: str = ""
    line: int = 0


class Check(NamedTuple):
    quotes: tuple[QuoteCheck, ...]
    name: str = ""


class Summary(NamedTuple):
    quotes: int
    verbatim: int
    sentences: int
    sentences_verbatim: int


def summary(check: Check) -> Summary:
    sentences = [sentence for quote in check.quotes for sentence in quote.sentences]
    return Summary(
        len(check.quotes),
        sum(quote.verdict == "verbatim" for quote in check.quotes),
        len(sentences),
        sum(sentence.verdict == "verbatim" for sentence in sentences),
    )


def check(document: Document, base_dir: str) -> Check:
    """Judge every quote and every set of seals of a map; the files they cite are sought from `base_dir`."""
    library = _Library(base_dir)
    found: list[QuoteCheck] = []
    for statement in _statements(document):
        found += [_check_quote(statement, quote, library) for quote in statement.quotes]
        sealed = quotes_seal.fragments(statement)
        if sealed:
            found.append(_check_seals(statement, sealed, library))
    return Check(tuple(found), document.name)


def seal(document: Document, base_dir: str) -> Document:
    """The same map with seals in the place of quotes; a quote that is not verbatim at its cited lines is refused."""
    library = _Library(base_dir)
    blocks: list[Block] = []
    for block in document.blocks:
        if isinstance(block, Statement):
            blocks.append(_sealed(block, library))
        elif isinstance(block, Argument):
            steps = [step._replace(statement=_sealed(step.statement, library)) for step in block.steps]
            blocks.append(block._replace(steps=tuple(steps)))
        else:
            blocks.append(block)
    return document._replace(blocks=tuple(blocks))


def to_json(check: Check) -> dict[str, object]:
    """The check as other programs read it."""
    return {
        "schema": "clew/1",
        "command": "evidence check",
        "quotes": [
            {
                "claim": quote.claim,
                "file": quote.file,
                "lines": list(quote.lines) if quote.lines is not None else None,
                "verdict": quote.verdict,
                "sentences": [
                    {
                        "index": sentence.number,
                        "verdict": sentence.verdict,
                        "line": sentence.line,
                        "similarity": round(sentence.similarity, 4),
                    }
                    for sentence in quote.sentences
                ],
            }
            for quote in check.quotes
        ],
        "summary": summary(check)._asdict(),
    }


def _statements(document: Document) -> Iterator[Statement]:
    for block in document.blocks:
        if isinstance(block, Statement):
            yield block
        elif isinstance(block, Argument):
            for step in block.steps:
                yield step.statement


def _local(statement: Statement) -> list[int]:
    return [index for index, link in enumerate(statement.links) if link.target and not _URL.match(link.target)]


def _cites(statement: Statement, before: int) -> Link | None:
    """The link to a local file that a quote belongs to: the last one up to index `before`, else the first of all."""
    local = _local(statement)
    above = [index for index in local if index <= before]
    chosen = above[-1] if above else local[0] if local else None
    return statement.links[chosen] if chosen is not None else None


class _Library:
    """The sources that were read so far, and what is left of the work one check may do."""

    def __init__(self, base_dir: str) -> None:
        self.base_dir = base_dir
        self.budget = Budget()
        self._sources: dict[str, Source | str] = {}
        self._windows: dict[str, quotes_seal.Windows] = {}

    def source(self, target: str) -> Source | str:
        """A source, or why it cannot be read."""
        if target not in self._sources:
            self._sources[target] = _load(self.base_dir, target)
        return self._sources[target]

    def windows(self, target: str, source: Source) -> quotes_seal.Windows:
        return self._windows.setdefault(target, quotes_seal.Windows(source))


def _load(base_dir: str, target: str) -> Source | str:
    name = target.partition("#")[0]
    path = os.path.join(base_dir, name)
    try:
        if "%" in name and not os.path.exists(path):
            from urllib.parse import unquote

            path = os.path.join(base_dir, unquote(name))
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode):
            return f"{name} is not a regular file"
        if about.st_size > LARGEST_SOURCE:
            return f"{name} has {about.st_size:,} bytes; sources of more than {LARGEST_SOURCE:,} are not read"
        with open(path, "rb") as file:
            raw = file.read(LARGEST_SOURCE)
    except FileNotFoundError:
        return f"{name} does not exist"
    except (OSError, ValueError) as error:
        return f"{name} cannot be read: {getattr(error, 'strerror', None) or error}"
    if b"\0" in raw:
        return f"{name} is a binary file"
    return Source(read(raw.decode("utf-8-sig", "replace")))


def _missing(statement: Statement, link: Link | None, why: str, line: int) -> QuoteCheck:
    target, lines = (link.target, link.lines) if link is not None else ("", None)
    return QuoteCheck(statement.title, target, lines, "source_missing", note=why, line=line)


def _judge_quote(quote: Quote, link: Link, source: Source, budget: Budget) -> tuple[Judgement, list[Candidate]]:
    words, sentences = split(quote.rows)
    cited = source.cited(link.lines)
    found = candidates(words, sentences, source, cited, budget)
    return judge(source, cited, found, [sentence.text for sentence in sentences], words, budget), found


def _check_quote(statement: Statement, quote: Quote, library: _Library) -> QuoteCheck:
    link = _cites(statement, quote.link if quote.link >= 0 else len(statement.links))
    if link is None:
        return _missing(statement, None, "no link to a local file stands above the quote", quote.line)
    source = library.source(link.target)
    if isinstance(source, str):
        return _missing(statement, link, source, quote.line)
    verdict, _ = _judge_quote(quote, link, source, library.budget)
    return _result(statement, link, verdict, source, quote.line)


def _check_seals(statement: Statement, sealed: list[quotes_seal.Fragment], library: _Library) -> QuoteCheck:
    link = _cites(statement, len(statement.links))
    if link is None:
        return _missing(statement, None, "no link to a local file stands beside the seals", statement.line)
    source = library.source(link.target)
    if isinstance(source, str):
        return _missing(statement, link, source, statement.line)
    cited = source.cited(link.lines)
    windows = library.windows(link.target, source)
    found = [Candidate(one.sentence, one.size, one.marked, windows.find(one, cited, library.budget)) for one in sealed]
    verdict = judge(source, cited, found, [""] * (sealed[-1].sentence + 1), None, library.budget)
    return _result(statement, link, verdict, source, statement.line)


def _result(statement: Statement, link: Link, verdict: Judgement, source: Source, line: int) -> QuoteCheck:
    note = ""
    total = source.words.clean.count("\n") + (not source.words.clean.endswith("\n"))
    if not verdict.sentences:
        note = "the quote has no words"
    elif link.lines is not None and link.lines[1] > total:
        note = f"the file has only {total} lines"
    elif verdict.reordered:
        note = "the sentences stand in another order in the source"
    return QuoteCheck(
        statement.title, link.target, link.lines, verdict.verdict, verdict.sentences, verdict.left_out, note, line
    )


def _sealed(statement: Statement, library: _Library) -> Statement:
    if not statement.quotes:
        return statement
    if statement.data.get("seals") is not None:
        raise ClewError(f"[{statement.title}] has quotes and seals; remove the seals before sealing it again")
    places = len(_local(statement))
    if places > 1:
        raise ClewError(
            f"[{statement.title}] cites {places} local places; make it one statement for each, then seal it"
        )
    link = _cites(statement, len(statement.links))
    if link is None:
        raise ClewError(f"[{statement.title}] cannot be sealed: it has a quote, but no link to a local file")
    source = library.source(link.target)
    if isinstance(source, str):
        raise ClewError(f"[{statement.title}] cannot be sealed: {source}")
    seals: list[str] = []
    for quote in statement.quotes:
        verdict, found = _judge_quote(quote, link, source, library.budget)
        if verdict.verdict != "verbatim":
            raise ClewError(
                f"[{statement.title}] cannot be sealed: its quote is {verdict.verdict} at {link.target}"
                f"{_lines(link.lines)}; only what is verbatim at its cited lines can"
            )
        seals += _seals_of(found, verdict, source, follows=bool(seals))
    data = Map((*statement.data.items, ("seals", tuple(seals))))
    return statement._replace(quotes=(), data=data)


def _seals_of(found: list[Candidate], verdict: Judgement, source: Source, follows: bool) -> list[str]:
    """One seal for each sentence. A second quote of the same place is set off from the first by a mark."""
    parts: dict[int, list[tuple[bool, list[str]]]] = {}
    for index, (one, place) in enumerate(zip(found, verdict.places, strict=True)):
        assert place is not None  # a verbatim quote has a place for each piece
        marked = one.marked or (follows and index == 0)
        parts.setdefault(one.sentence, []).append((marked, source.words.words[place[0] : place[1]]))
    return [quotes_seal.written(pieces) for pieces in parts.values()]


def _lines(lines: tuple[int, int] | None) -> str:
    if lines is None:
        return ""
    return f":{lines[0]}" if lines[0] == lines[1] else f":{lines[0]}-{lines[1]}"
