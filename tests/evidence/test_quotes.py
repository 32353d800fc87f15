"""Quotes against sources: every verdict, every variation that is allowed, and what must hold for any text."""

import os
import random
import tempfile
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.errors import ClewError
from clew.evidence import argdown, quotes
from clew.evidence.model import Argument, Document, Link, Map, Quote, Statement, Step
from clew.evidence.quotes import Check, QuoteCheck
from clew.evidence.quotes_sentences import split
from clew.evidence.quotes_words import read
from clew.evidence.view import check_lines
from clew.evidence.words import on_terminal

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(ROOT, "tests", "data")
FOLKLORE = os.path.join(os.path.dirname(ROOT), "shared", "folklore")


def quoting(quote: str, target: str, lines: tuple[int, int] | None = None, **data: object) -> Document:
    link = Link("evidence", target, lines)
    rows = (Quote(tuple(quote.split("\n")), 3, 0),) if quote else ()
    return Document((Statement("Claim", "text", (), (link,), rows, Map(tuple(data.items()))),), name="map.argdown")


def judged(source: str, quote: str, lines: tuple[int, int] | None = None) -> QuoteCheck:
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "source.md"), "w", encoding="utf-8") as file:
            file.write(source)
        [result] = quotes.check(quoting(quote, "source.md", lines), folder).quotes
    return result


def of_kiln(quote: str, lines: tuple[int, int] | None) -> QuoteCheck:
    [result] = quotes.check(quoting(quote, "sources/kiln.md", lines), DATA).quotes
    return result


def verdicts(result: QuoteCheck) -> list[str]:
    return [sentence.verdict for sentence in result.sentences]


def test_verbatim_at_its_lines() -> None:
    result = of_kiln(
        "The thermocouple reads late. Trust the cone before the display,\nbecause the cone has been", (3, 5)
    )
    assert result.verdict == "verbatim"
    assert [(one.verdict, one.line, one.similarity) for one in result.sentences] == [("verbatim", 3, 1.0)] * 2


def test_elsewhere_gives_the_true_line() -> None:
    result = of_kiln("Leave two fingers of air between the shelves.", (3, 5))
    assert result.verdict == "elsewhere"
    assert [(one.verdict, one.line, one.similarity) for one in result.sentences] == [("elsewhere", 9, 1.0)]


def test_a_sentence_that_begins_above_the_cited_lines_is_elsewhere() -> None:
    result = of_kiln("A cone that bends early has seen more heat than the dial admits.", (5, 5))
    assert (result.verdict, result.sentences[0].line) == ("elsewhere", 4)
    assert of_kiln("seen more heat than the dial admits.", (5, 5)).verdict == "verbatim"


def test_elided_says_what_was_left_out() -> None:
    result = of_kiln(
        "The thermocouple reads late. A cone that bends early has seen more heat than the dial admits.", (3, 5)
    )
    assert result.verdict == "elided"
    assert verdicts(result) == ["verbatim", "verbatim"]
    [gap] = result.left_out
    assert (gap.after, gap.line) == (0, 3)
    assert gap.text.startswith("Trust the cone before the display, because")
    assert gap.text.endswith("the display has not.")


@pytest.mark.parametrize("mark", ["...", "…", "[...]", "[…]", "(...)", ". . ."])
def test_a_marked_omission_is_none(mark: str) -> None:
    result = of_kiln(f"The thermocouple reads late {mark} has seen more heat than the dial admits.", (3, 5))
    assert result.verdict == "verbatim"
    assert len(result.sentences) == 1
    assert of_kiln(f"The thermocouple reads late. {mark} A cone that bends early has", (3, 5)).verdict == "verbatim"


def test_fragments_must_stand_in_order() -> None:
    result = of_kiln("has seen more heat ... the thermocouple reads late", (3, 5))
    assert result.verdict == "altered"
    assert verdicts(result) == ["altered"]
    assert result.sentences[0].similarity < 1.0


def test_altered_shows_the_words() -> None:
    result = of_kiln("The thermocouple reads late. Trust the cone after the display.", (3, 5))
    assert result.verdict == "altered"
    assert verdicts(result) == ["verbatim", "altered"]
    assert 0.6 < result.sentences[1].similarity < 1.0
    [passage] = result.sentences[1].passages
    assert passage.line == 3
    assert passage.diff == (
        ("same", "Trust the cone"),
        ("dropped", "before"),
        ("added", "after"),
        ("same", "the display,"),
    )


def test_sentences_in_another_order_are_an_alteration() -> None:
    result = of_kiln(
        "A cone that bends early has seen more heat than the dial admits. The thermocouple reads late.", (3, 5)
    )
    assert result.verdict == "altered"
    assert verdicts(result) == ["verbatim", "verbatim"]
    assert result.note == "the sentences stand in another order in the source"


def test_absent() -> None:
    result = of_kiln("Glazes of the southern school were never fired twice in winter.", (3, 5))
    assert result.verdict == "absent"
    assert [(one.verdict, one.line) for one in result.sentences] == [("absent", None)]
    assert result.sentences[0].similarity < 0.6


def test_partly_absent_is_altered() -> None:
    result = of_kiln("The thermocouple reads late. Glazes of the southern school were never fired in winter.", (3, 5))
    assert result.verdict == "altered"
    assert verdicts(result) == ["verbatim", "absent"]


def test_source_missing(tmp_path: Any) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"a\0b")
    for target, why in [("no.md", "does not exist"), ("folder", "not a regular file"), ("binary", "binary file")]:
        [result] = quotes.check(quoting("Anything at all.", target, (1, 2)), str(tmp_path)).quotes
        assert (result.verdict, result.sentences) == ("source_missing", ())
        assert why in result.note
    with open(tmp_path / "huge.md", "wb") as file:
        file.truncate(20_000_000)
    [result] = quotes.check(quoting("Anything at all.", "huge.md"), str(tmp_path)).quotes
    assert "are not read" in result.note


def test_a_quote_without_a_local_source_cannot_be_judged() -> None:
    [result] = quotes.check(quoting("Anything at all.", "https://example.org/x.md"), DATA).quotes
    assert (result.verdict, result.file, result.lines) == ("source_missing", "", None)


def test_without_lines_the_whole_file_is_cited() -> None:
    assert of_kiln("Leave two fingers of air between the shelves.", None).verdict == "verbatim"


def test_lines_beyond_the_end_of_the_file_are_noted() -> None:
    result = of_kiln("The thermocouple reads late.", (300, 310))
    assert result.verdict == "elsewhere"
    assert result.note == "the file has only 25 lines"


def test_a_quote_without_words_is_absent() -> None:
    result = of_kiln("...", (3, 5))
    assert (result.verdict, result.sentences, result.note) == ("absent", (), "the quote has no words")


def test_each_quote_goes_with_the_link_above_it() -> None:
    links = (
        Link("notes", "sources/kiln.md", (3, 5)),
        Link("page", "https://example.org"),
        Link("talk", "sources/talk.md", (1, 9)),
    )
    said = (Quote(("The thermocouple reads late.",), 1, 1), Quote(("we lost I think eleven of them that night",), 2, 2))
    found = quotes.check(Document((Statement("A", "a", (), links, said),)), DATA)
    assert [(one.file, one.verdict) for one in found.quotes] == [
        ("sources/kiln.md", "verbatim"),
        ("sources/talk.md", "verbatim"),
    ]


def test_headings_list_items_and_numbers() -> None:
    quote = "**1. Loading.**\nLeave two fingers of air between the shelves."
    assert of_kiln(quote, (7, 9)).verdict == "verbatim"
    assert of_kiln("Loading. Leave two fingers of air", (7, 9)).verdict == "verbatim"
    numbered = "1. Weigh each shelf before and after. 2. Write the difference down at once."
    plain = "Weigh each shelf before and after. Write the difference down at once. Compare it with last month's table."
    assert of_kiln(numbered, (14, 16)).verdict == "verbatim"
    assert of_kiln(plain, (14, 16)).verdict == "verbatim"


def test_images_links_and_footnotes() -> None:
    assert of_kiln("above 0.5 percent moisture. Weigh each shelf", (9, 14)).verdict == "verbatim"
    assert of_kiln("set to -0.25 by trial. It has not been touched since.", (20, 22)).verdict == "verbatim"
    assert of_kiln("Compare it with last month's table.", (16, 16)).verdict == "verbatim"


def test_what_a_conversion_leaves_behind() -> None:
    quote = (
        "What we learned in spring. Calibrate the hygrometer every week.\n"
        "> (cid:73) Readings drift = (t - t0)/τ, -5, 5\n"
        "Don't average across kilns ever.\n"
        '• The efficient path is "slow, then steady" - as de Breville wrote'
    )
    [result] = quotes.check(quoting(quote, "sources/slides.md", (1, 7)), DATA).quotes
    assert result.verdict == "verbatim", result


def test_talk_without_punctuation_is_cut_at_its_marks() -> None:
    quote = (
        "the first thing we did was was to open the door a little early... the glaze was still moving and you could\n"
        "see it run down the side of the pot and we lost I think eleven of them that night... there is a lock on the\n"
        "door with a timer and nobody has a key"
    )
    [result] = quotes.check(quoting(quote, "sources/talk.md", (1, 9)), DATA).quotes
    assert verdicts(result) == ["verbatim", "verbatim", "altered"]
    assert [one.line for one in result.sentences] == [1, 4, 8]
    [passage] = result.sentences[2].passages
    assert passage.changed_line == 9
    assert [part for part in passage.diff if part[0] != "same"] == [("dropped", "the"), ("added", "a")]


def test_a_dropped_stutter_is_an_alteration() -> None:
    [result] = quotes.check(
        quoting("the first thing we did was to open the door", "sources/talk.md", (1, 9)), DATA
    ).quotes
    assert result.verdict == "altered"


SAME = [
    ("It isn't “done” — not yet…", 'It isn\'t "done" - not yet...'),
    ("It isn’t done -- not yet", "It isn't done — not yet"),
    ("a range of 10–20 units", "a range of 10-20 units"),
    ("the eﬃcient ﬁlter", "the efficient filter"),
    ("words are gen-\nerated by hyperpa-rameter search", "words are generated by hyperparameter search"),
    ("a hyper parameter search", "a hyper-parameter search"),
    ("plain words here", "*plain* **words** `here`"),
    ("some _plain_ words **here**", "some plain words here"),
    ("### A Heading\n\nand text", "A Heading. And text"),
    ("> quoted once\n> and again", "quoted once and again"),
    ("* one item\n* two items", "one item, two items"),
    ("- one item\n- two items", "• one item\n• two items"),
    ("1. one item\n2. two items", "one item two items"),
    ("| a cell | b cell |\n| --- | :-: |\n| c cell | d cell |", "a cell b cell c cell d cell"),
    ("|a cell|b cell|", "a cell b cell"),
    ('see [the page](http://x.org/a_(b) "t") now', "see the page now"),
    ("see [the\npage](x.md) now", "see the page now"),
    ("see [the page][ref] now", "see the page now"),
    ("a claim[^3] stands[12](#fn) here<sup>4</sup>", "a claim stands here"),
    ("text ![a plot](p.png) goes on", "text goes on"),
    ("a <em>marked</em> word<br>here &amp; there", "a marked word here & there"),
    ("a value of 0 .1 here", "a value of 0.1 here"),
    ("a value of 0 .1 here", "a value of 0\n.1 here"),
    ("one (and a leak.)\n* two items", "one (and a leak.) * two items"),
    ("draw 2 ** normal(-4, 1) now", "draw 2\n** normal(-4, 1) now"),
    ("it is f(x + e) - f(x) there", "it is f(x\n+ e)\n- f(x) there"),
    ("the norm\n|G|2 is large", "the norm |G|2 is large"),
    ("in Tuff ´ery 2011", "in Tuff\n´ery 2011"),
    ("GB= 0.02 is small", "GB=0.02 is small"),
    ("names like de Br ´ebisson and Gödel", "names like de Brebisson and Godel"),
    ("(see below), then; stop: now", "see below then stop now."),
    ("and the first word", "And the first word"),
    ("The first word", "the first word"),
    ("input/output shapes", "input / output shapes"),
    ("CIFAR-10 and GPT-2", "CIFAR 10 and GPT 2"),
    ("in [0, 1] or [-0.5,0.5]", "in [0,1] or [−0.5, 0.5]"),
    ("clamp((y −µ)/σ,−3,3)", "clamp((y - μ)/σ, -3, 3)"),
    ("escaped \\[0, 1\\] and \\*stars\\*", "escaped [0, 1] and stars"),
    ("soft\u00adhyphen and zero\u200bwidth", "softhyphen and zerowidth"),
    ("```python\nx = 1\n```", "x = 1"),
    ("end of one.\n\n---\n\nStart of two", "end of one. Start of two"),
]


@pytest.mark.parametrize(("source", "quote"), SAME)
def test_not_an_alteration(source: str, quote: str) -> None:
    result = judged(f"Something before.\n\n{source}\n\nSomething after.\n", quote)
    assert result.verdict == "verbatim", (result, read(source).words, read(quote).words)


CHANGED = [
    ("values lie in [0, 1] as a rule", "values lie in (0, 1) as a rule"),
    ("values lie in [0, 1] as a rule", "values lie in [0, 1) as a rule"),
    ("values lie in [0, 1] as a rule", "values lie in 0-1 as a rule"),
    ("a loss of -0.5 is what we want", "a loss of 0.5 is what we want"),
    ("a loss of 0.5 is what we want", "a loss of 0.6 is what we want"),
    ("a loss of 0.5 is what we want", "a loss of 05 is what we want"),
    ("about 12% of the runs fail here", "about 12 of the runs fail here"),
    ("we set x = y + 1 in this case", "we set x = y - 1 in this case"),
    ("we set x - 1 in this one case", "we set x 1 in this one case"),
    ("clamp((y - m)/s, 1) is what we use", "clamp(y - m/s, 1) is what we use"),
    ("when N < 5 the test is weak", "when N > 5 the test is weak"),
    ("the rate is 1 0 of them in all", "the rate is 10 of them in all"),
    ("you should not do this at home", "you should do this at home"),
    ("you should do this at home", "you should not do this at home"),
    ("you should do this at home", "you should do that at home"),
    ("use the Adam optimiser for this", "use the adam optimiser for this"),
    ("it is not what we want here", "it is NOT what we want here"),
    ("one two three four five six", "one two four three five six"),
    ("we don't know what it does", "we dont know what it does"),
    ("the potter's wheel turns on long", "the potters wheel turns on long"),
    ("about ~60 of the cases we saw", "about 60 of the cases we saw"),
    ("it costs $100 to run this test", "it costs 100 to run this test"),
]


@pytest.mark.parametrize(("source", "quote"), CHANGED)
def test_an_alteration(source: str, quote: str) -> None:
    result = judged(f"Something before.\n\n{source}.\n\nSomething after.\n", quote + ".")
    assert (result.verdict, verdicts(result)) == ("altered", ["altered"]), result


@pytest.mark.parametrize(
    ("quote", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("As in Smith et al. 2016, e.g. here, vs. There.", ["As in Smith et al. 2016, e.g. here, vs. There."]),
        ("It can't. Walk on.", ["It can't.", "Walk on."]),
        ("Down to 0. We saw 1.5 of them.", ["Down to 0.", "We saw 1.5 of them."]),
        ("12. Standardise them.\n13. Do it.", ["12. Standardise them.", "13. Do it."]),
        ("(cid:73) one thing\n(cid:73) another", ["one thing", "another"]),
        ("**A title**\nand a text", ["A title", "and a text"]),
        ("- an item\n- another", ["an item", "another"]),
        ("He said \"stop.\" Then he went.", ['He said "stop."', "Then he went."]),
        ("a half... another half. Next", ["a half... another half.", "Next"]),
        ("We used 1. **One**: first. 2. **Two**: second.", ["We used", "1. One: first.", "2. Two: second."]),
        ("... ... .", []),
        ("", []),
    ],
)  # fmt: skip
def test_sentences(quote: str, sentences: list[str]) -> None:
    assert [one.text for one in split(tuple(quote.split("\n")))[1]] == sentences


def test_of_two_places_the_one_that_follows_on_counts() -> None:
    source = "It held.\n\nOther text.\n\nWe tried it once. It held. Then we went home.\n"
    result = judged(source, "We tried it once. It held. Then we went home.", (1, 5))
    assert result.verdict == "verbatim"
    assert [one.line for one in result.sentences] == [5, 5, 5]


def test_json_is_the_contract() -> None:
    document = Document(
        (
            *quoting(
                "The thermocouple reads late. Trust the cone after the display.", "sources/kiln.md", (3, 5)
            ).blocks,
            *quoting("Nothing.", "none.md").blocks,
        )
    )
    shown = quotes.to_json(quotes.check(document, DATA))
    similarity = shown["quotes"][0]["sentences"][1]["similarity"]  # type: ignore[index]
    assert 0.6 < similarity < 1.0
    assert shown == {
        "schema": "clew/1",
        "command": "evidence check",
        "quotes": [
            {
                "claim": "Claim",
                "file": "sources/kiln.md",
                "lines": [3, 5],
                "verdict": "altered",
                "sentences": [
                    {"index": 0, "verdict": "verbatim", "line": 3, "similarity": 1.0},
                    {"index": 1, "verdict": "altered", "line": 3, "similarity": similarity},
                ],
            },
            {"claim": "Claim", "file": "none.md", "lines": None, "verdict": "source_missing", "sentences": []},
        ],
        "summary": {"quotes": 2, "verbatim": 0, "sentences": 2, "sentences_verbatim": 1},
    }


# -- seals ----------------------------------------------------------------------------------------------------------


def test_the_kiln_map_is_sealed_and_stays_true() -> None:
    sealed = quotes.seal(argdown.read(os.path.join(DATA, "kiln.argdown")), DATA)
    statements = [step.statement for block in sealed.blocks if isinstance(block, Argument) for step in block.steps]
    assert not any(statement.quotes for statement in statements)
    again = argdown.parse(argdown.write(sealed))
    found = quotes.check(again, DATA)
    assert [(one.claim, one.verdict) for one in found.quotes] == [("Cone First", "verbatim"), ("Bill", "verbatim")]
    assert quotes.summary(found) == (2, 2, 3, 3)


def test_a_seal_is_the_number_of_words_and_their_digest() -> None:
    import hashlib

    sealed = quotes.seal(quoting("The thermocouple reads late.", "sources/kiln.md", (3, 5)), DATA)
    digest = hashlib.sha256(b"The thermocouple reads late").hexdigest()[:32]
    [statement] = sealed.blocks
    assert isinstance(statement, Statement)
    assert statement.data.get("seals") == (f"4:{digest}",)


TWICE = Statement("B", "b", (), (Link("", "x"), Link("", "y")), (Quote(("q",), 0, 0),))


def test_sealed_sentences_elsewhere_absent_and_elided() -> None:
    whole = quotes.seal(quoting("The thermocouple reads late. Trust the cone", "sources/kiln.md", (3, 5)), DATA)
    [statement] = whole.blocks
    assert isinstance(statement, Statement)

    def at(lines: tuple[int, int], seals: object) -> QuoteCheck:
        [result] = quotes.check(quoting("", "sources/kiln.md", lines, seals=seals), DATA).quotes
        return result

    seals = statement.data.get("seals")
    assert isinstance(seals, tuple)
    assert at((3, 5), seals).verdict == "verbatim"
    moved = at((9, 10), seals)
    assert (moved.verdict, [one.line for one in moved.sentences]) == ("elsewhere", [3, 3])
    wrong = at((3, 5), (seals[0], "3:" + "0" * 32))
    assert (wrong.verdict, verdicts(wrong)) == ("absent", ["verbatim", "absent"])
    half = at((3, 5), (seals[0] + "...3:" + "0" * 32,))
    assert (half.verdict, verdicts(half)) == ("absent", ["absent"])
    swapped = at((3, 5), (seals[1] + "..." + seals[0],))
    assert (swapped.verdict, verdicts(swapped)) == ("absent", ["absent"])
    assert at((3, 5), ("3:" + "0" * 32,)).verdict == "absent"
    later = quotes.seal(quoting("The dial admits", "sources/kiln.md", (3, 5)), DATA).blocks[0]
    assert isinstance(later, Statement)
    apart = (seals[0], *later.data.items[0][1])  # type: ignore[misc]
    assert at((3, 5), apart).verdict == "elided"
    assert at((3, 5), (seals[0], "..." + apart[1])).verdict == "verbatim"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            quoting("Trust the cone after all.", "sources/kiln.md", (3, 5)),
            r"\[Claim\] .* is altered at sources/kiln.md:3-5",
        ),
        (quoting("Leave two fingers", "sources/kiln.md", (3, 3)), r"\[Claim\] .* is elsewhere at sources/kiln.md:3;"),
        (quoting("Leave two fingers", "none.md"), r"\[Claim\] cannot be sealed: none.md does not exist"),
        (quoting("Leave two fingers", "https://x.org"), r"\[Claim\] cannot be sealed: .* no link to a local file"),
        (quoting("The thermocouple", "sources/kiln.md", seals=("1:" + "0" * 32,)), r"\[Claim\] has quotes and seals"),
        (Document((Argument("A", steps=(Step(1, TWICE),)),)), r"\[B\] cites 2 local places"),
    ],
)
def test_seal_refuses(document: Document, message: str) -> None:
    with pytest.raises(ClewError, match=message):
        quotes.seal(document, DATA)


@pytest.mark.parametrize(
    "seals", ["4:" + "0" * 32, (), (3,), ("x",), ("0:" + "0" * 32,), ("4:" + "0" * 31,), ("4:" + "G" * 32,)]
)
def test_malformed_seals_are_refused(seals: object) -> None:
    with pytest.raises(ClewError, match=r"\[Claim\]: "):
        quotes.check(quoting("", "sources/kiln.md", (3, 5), seals=seals), DATA)


# -- what the terminal shows ----------------------------------------------------------------------------------------


def everything() -> Check:
    said = [
        ("The thermocouple reads late.", (3, 5)),
        ("The thermocouple reads late. A cone that bends early", (3, 5)),
        ("Leave two fingers of air between the shelves.", (3, 5)),
        ("Trust the cone after the display.", (3, 5)),
        ("Glazes of the southern school were never fired twice.", (3, 5)),
    ]
    blocks = [block for quote, lines in said for block in quoting(quote, "sources/kiln.md", lines).blocks]
    return quotes.check(Document((*blocks, *quoting("Gone.", "gone.md").blocks)), DATA)


def test_the_view_reads_like_this() -> None:
    assert check_lines(everything(), 80, False) == [
        "verbatim    Claim  sources/kiln.md:3-5",
        "elided      Claim  sources/kiln.md:3-5",
        "  line 3    left out: Trust the cone before the display, because the ... the",
        "            kiln and the display has not.",
        "elsewhere   Claim  sources/kiln.md:3-5",
        '  line 9    outside the cited lines: "Leave two fingers of air between the',
        '            shelves."',
        "altered     Claim  sources/kiln.md:3-5",
        "  line 3    Trust the cone [-before-] {+after+} the display,",
        "absent      Claim  sources/kiln.md:3-5",
        '            not in the file: "Glazes of the southern school were never fired',
        '            twice."',
        "no source   Claim  gone.md",
        "            gone.md does not exist",
        "",
        "6 quotes: 1 verbatim, 1 elided, 1 elsewhere, 1 altered, 1 absent, 1 no source. 3",
        "of 6 sentences stand word for word where they are cited.",
    ]


def test_the_view_keeps_to_its_width_and_colours() -> None:
    for width in (40, 60, 100):
        assert all(len(line) <= width for line in check_lines(everything(), width, False))
    coloured = [on_terminal(line) for line in check_lines(everything(), 80, True)]
    assert coloured[0].startswith("\x1b[32mverbatim\x1b[0m")
    assert any("\x1b[31mbefore\x1b[0m \x1b[32mafter\x1b[0m" in line for line in coloured)
    assert check_lines(Check(()), 80, True) == ["No quotes to check."]


def test_a_source_cannot_steer_the_terminal() -> None:
    result = judged("One word \x1b[2J\x07of the old text stands here.\n", "One word of the new text stands here.")
    assert result.verdict == "altered"
    assert "\x1b" not in "\n".join(check_lines(Check((result,)), 80, False))


# -- what holds for any text ----------------------------------------------------------------------------------------

WORDS = (
    "amber basin cedar delta ember fjord grove heath inlet jetty knoll lagoon marsh notch ocean plain quarry ridge "
    "spruce tundra upland valley willow yonder zephyr bright calm deep early faint grand quiet rapid slow thick vast "
    "with into over under"
).split()


class Text(NamedTuple):
    source: str
    sentences: list[list[str]]
    lines: list[tuple[int, int]]


def wrapped(words: list[str], chance: random.Random) -> list[str]:
    rows = [words[0]]
    for word in words[1:]:
        if chance.random() < 0.15:
            rows.append(word)
        else:
            rows[-1] += " " + word
    return rows


@st.composite
def sources(draw: st.DrawFn, least: int = 4) -> Text:
    """Sentences that each have a word of their own, wrapped and broken into paragraphs by chance."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    sentences: list[list[str]] = []
    rows: list[str] = []
    lines: list[tuple[int, int]] = []
    for index in range(draw(st.integers(least, 9))):
        words = [chance.choice(WORDS) for _ in range(chance.randint(7, 14))]
        words[chance.randrange(len(words))] = f"unit{'abcdefghijkl'[index]}"
        words[0] = words[0].capitalize()
        words[-1] += "."
        sentences.append(words)
        first, *rest = wrapped(words, chance)
        if rows and rows[-1] and chance.random() < 0.5:
            rows[-1] += " " + first
        else:
            rows.append(first)
        begin = len(rows)
        rows += rest
        lines.append((begin, len(rows)))
        if chance.random() < 0.3:
            rows.append("")
    return Text("\n".join(rows) + "\n", sentences, lines)


def dressed(words: list[str], chance: random.Random) -> str:
    """The same words in other lines, some of them emphasised."""
    marks = ["", "", "", "", "*", "**", "`", "_"]
    return "\n".join(wrapped([mark + word + mark for word in words for mark in [chance.choice(marks)]], chance))


def flat(sentences: list[list[str]]) -> list[str]:
    return [word for sentence in sentences for word in sentence]


@given(sources(), st.data())
@settings(max_examples=120, deadline=None)
def test_any_passage_in_any_dress_is_verbatim(text: Text, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(text.sentences) - 1))
    last = data.draw(st.integers(first, len(text.sentences) - 1))
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    quote = dressed(flat(text.sentences[first : last + 1]), chance)
    result = judged(text.source, quote, (text.lines[first][0], text.lines[last][1]))
    assert result.verdict == "verbatim"
    assert all(one.similarity == 1.0 for one in result.sentences)


@given(sources(), st.data())
@settings(max_examples=120, deadline=None)
def test_any_other_word_is_an_alteration(text: Text, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(text.sentences) - 1))
    words = list(text.sentences[index])
    place = data.draw(st.integers(0, len(words) - 1))
    words[place] = data.draw(st.sampled_from(["Walrus", "walrus", "17"])) + ("." if place == len(words) - 1 else "")
    if place == 0:
        words[0] = "Walrus"
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    result = judged(text.source, dressed(words, chance), text.lines[index])
    assert (result.verdict, verdicts(result)) == ("altered", ["altered"])
    sentence = result.sentences[0]
    assert 0.6 <= sentence.similarity < 1.0
    [passage] = sentence.passages
    added = " ".join(said for kind, said in passage.diff if kind == "added")
    assert words[place].strip(".") in added


@given(sources(), st.data(), st.booleans())
@settings(max_examples=120, deadline=None)
def test_a_dropped_sentence_is_elided_unless_marked(text: Text, data: st.DataObject, marked: bool) -> None:
    gone = data.draw(st.integers(1, len(text.sentences) - 2))
    before, after = text.sentences[:gone], text.sentences[gone + 1 :]
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    quote = dressed(flat(before), chance) + ("\n[...] " if marked else "\n") + dressed(flat(after), chance)
    result = judged(text.source, quote, (1, text.lines[-1][1]))
    assert set(verdicts(result)) == {"verbatim"}
    if marked:
        assert (result.verdict, result.left_out) == ("verbatim", ())
    else:
        assert result.verdict == "elided"
        [out] = result.left_out
        assert out.after == gone - 1
        assert out.text == " ".join(text.sentences[gone])


@given(sources(), st.data())
@settings(max_examples=100, deadline=None)
def test_a_passage_cited_at_other_lines_is_elsewhere(text: Text, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(text.sentences) - 1))
    other = text.lines[-1][1] + data.draw(st.integers(1, 50))
    result = judged(text.source, dressed(text.sentences[index], random.Random(0)), (other, other + 3))
    assert (result.verdict, [one.line for one in result.sentences]) == ("elsewhere", [text.lines[index][0]])


@given(sources(), st.data())
@settings(max_examples=100, deadline=None)
def test_what_is_sealed_is_found_again_until_the_source_changes(text: Text, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(text.sentences) - 1))
    last = data.draw(st.integers(first, len(text.sentences) - 1))
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    quote = dressed(flat(text.sentences[first : last + 1]), chance)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "source.md")

        def holds(content: str) -> QuoteCheck:
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
            [result] = quotes.check(sealed, folder).quotes
            return result

        with open(path, "w", encoding="utf-8") as file:
            file.write(text.source)
        sealed = quotes.seal(quoting(quote, "source.md", (text.lines[first][0], text.lines[last][1])), folder)
        assert holds(text.source).verdict == "verbatim"
        assert holds("new line\n" * 200 + text.source).verdict == "elsewhere"
        word = f"unit{'abcdefghijkl'[first]}"
        changed = holds(text.source.replace(word, "walrus").replace(word.capitalize(), "Walrus"))
        assert changed.sentences[0].verdict == "absent"
        assert changed.verdict == "absent"


@given(st.text(max_size=200), st.text(min_size=1, max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_two_texts_can_be_compared(source: str, quote: str) -> None:
    result = judged(source.encode("utf-8", "replace").decode(), quote)
    assert result.verdict in ("verbatim", "elided", "elsewhere", "altered", "absent", "source_missing")
    assert all(0.0 <= one.similarity <= 1.0 for one in result.sentences)
    check_lines(Check((result,)), 80, True)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_text_quotes_itself(text: str) -> None:
    result = judged(text, text)
    assert result.verdict == "verbatim" or not result.sentences


# -- the folklore map -----------------------------------------------------------------------------------------------

JUDGED_BY_HAND = {
    "verbatim": "CS231n Overfit, FSDL Overfit, Goodfellow Overfit, Jones Bug, Schulman Batch Slides, Rahtz Log",
    "elided": "Schulman Normalize, Goodfellow Bug Mask, Jones Loss Herring, Henderson Seeds, Irpan Seeds, "
    "Jones Reward Scale, Jones Ref Impl, Rahtz Ref, Rahtz Confusion, Goodfellow Monitor, CS231n Random",
    "altered": "FSDL Normalize, Slavv Normalize, Schulman Seeds, Schulman Batch, McCandlish Critical Batch, "
    "Schulman Reward Mean, Henderson Reward Scale, Jones Anomaly, Schulman Random, Jones Probes, Schulman Entropy",
}


@pytest.mark.skipif(not os.path.exists(FOLKLORE), reason="the folklore map is not beside this checkout")
def test_the_folklore_map_as_judged_by_hand() -> None:
    found = quotes.check(argdown.read(os.path.join(FOLKLORE, "ml_debug_folklore.argdown")), FOLKLORE)
    for verdict, claims in JUDGED_BY_HAND.items():
        assert [one.claim for one in found.quotes if one.verdict == verdict] == claims.split(", ")
    assert all(len(line) <= 80 for line in check_lines(found, 80, False))
