"""Reading and writing evidence maps: what comes out, what is refused and how, and that nothing else ever escapes."""

import os
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.errors import ClewError
from clew.evidence import argdown
from clew.evidence.model import (
    Argument,
    Block,
    Comment,
    Document,
    Heading,
    Link,
    Map,
    Quote,
    Relation,
    Statement,
    Step,
)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KILN = os.path.join(ROOT, "tests", "data", "kiln.argdown")
FOLKLORE = os.path.join(os.path.dirname(ROOT), "shared", "folklore", "ml_debug_folklore.argdown")


def kiln_text() -> str:
    with open(KILN, encoding="utf-8") as file:
        return file.read()


def one(text: str, kind: type[Any]) -> Any:
    [block] = [block for block in argdown.parse(text).blocks if isinstance(block, kind)]
    return block


def round_trip(document: Document) -> str:
    text = argdown.write(document)
    again = argdown.parse(text)
    assert argdown.same(again, document)
    assert argdown.write(again) == text
    return text


def test_statement_with_everything() -> None:
    statement = one(
        "[A  title]: Some text\n  goes on here. #tag #(two words)\n  [label](a/b.md#L10-L12)\n  > first\n  >  second\n"
        '  {reason: "why", credence: 0.90}\n  + [A title]\n',
        Statement,
    )
    assert statement.title == "A title"
    assert statement.text == "Some text goes on here."
    assert statement.tags == ("tag", "two words")
    assert statement.links == (Link("label", "a/b.md", (10, 12), 3, 3),)
    assert statement.quotes == (Quote(("first", " second"), 4, 0),)
    assert statement.data == Map((("reason", "why"), ("credence", 0.9)))
    assert statement.relations == (Relation("support", "in", "A title", "statement", 7, 3),)
    assert (statement.line, statement.column) == (1, 1)


def test_argument_with_steps() -> None:
    argument = one(
        "<A>: gist\n\n(1) [P]: one\n(2) two words\n-- By rule --\n(3) [C]: so\n  +> [P]\n",
        Argument,
    )
    assert argument.text == "gist"
    assert [(step.number, step.statement.title, step.conclusion, step.rule) for step in argument.steps] == [
        (1, "P", False, ""),
        (2, "A (2)", False, ""),
        (3, "C", True, "By rule"),
    ]
    [relation] = argument.steps[2].statement.relations
    assert (relation.kind, relation.direction, relation.target) == ("support", "out", "P")
    assert argument.relations == ()


@pytest.mark.parametrize("rule", ["--", "----", "-" * 40, "-- Modus ponens --", "--\nModus ponens\n--"])
def test_every_kind_of_rule(rule: str) -> None:
    argument = one(f"<A>\n(1) one\n{rule}\n(2) two\n", Argument)
    assert argument.steps[1].conclusion
    assert argument.steps[1].rule == ("Modus ponens" if "Modus" in rule else "")


@pytest.mark.parametrize(
    ("sign", "kind", "direction"),
    [
        ("+", "support", "in"),
        ("-", "attack", "in"),
        ("+>", "support", "out"),
        ("->", "attack", "out"),
        ("<-", "attack", "in"),
    ],
)
def test_every_kind_of_relation(sign: str, kind: str, direction: str) -> None:
    statement = one(f"[A]: a\n  {sign} <B>\n\n<B>\n", Statement)
    [relation] = statement.relations
    assert (relation.kind, relation.direction, relation.target, relation.target_kind) == (
        kind,
        direction,
        "B",
        "argument",
    )


def test_nested_and_inline_relations_become_blocks() -> None:
    document = argdown.parse("[A]: a\n  + [B]: b comes\n    in two lines\n    - <C>\n      + [A]\n  - [B]\n\n<C>\n")
    a, b, nested, c = document.blocks
    assert isinstance(a, Statement)
    assert [relation.target for relation in a.relations] == ["B", "B"]
    assert isinstance(b, Statement)
    assert b.text == "b comes in two lines"
    assert [relation.target for relation in b.relations] == ["C"]
    assert isinstance(nested, Argument)
    assert [relation.target for relation in nested.relations] == ["A"]
    assert c == Argument("C", line=8, column=1)
    round_trip(document)


def test_a_number_sign_is_a_tag_only_before_a_word() -> None:
    statement = one("[A]: item #12 and items #14-#15. C# too, and \\#not #yes\n", Statement)
    assert statement.text == "item #12 and items #14-#15. C# too, and #not"
    assert statement.tags == ("yes",)


def test_a_link_in_a_sentence_leaves_its_label() -> None:
    statement = one("[A]: see [the page](http://x.org/a_(b)) now\n  [cite](x.md#L7)\n", Statement)
    assert statement.text == "see the page now"
    assert [(link.target, link.lines) for link in statement.links] == [("http://x.org/a_(b)", None), ("x.md", (7, 7))]


def test_quotes_know_their_link() -> None:
    statement = one("[A]: a\n  > zero\n  [x](x.md)\n  > one\n\n  > two\n  [y](y.md)\n  > three\n", Statement)
    assert [(quote.rows, quote.link) for quote in statement.quotes] == [
        (("zero",), -1),
        (("one",), 0),
        (("two",), 0),
        (("three",), 1),
    ]
    round_trip(Document((statement,)))


def test_metadata_values() -> None:
    statement = one(
        "[A]: a {n: 1, f: -2.5e3, t: true, no: false, nil: null, bare: two words, s: 'it''s', d: \"a\\n\\u00e9\\\"\",\n"
        "   list: [1, [2], {x: y}], 'odd key': \"folded\n     text\", dot: .5, v: 1.2.3, z: 007,}\n",
        Statement,
    )
    assert dict(statement.data.items) == {
        "n": 1,
        "f": -2500.0,
        "t": True,
        "no": False,
        "nil": None,
        "bare": "two words",
        "s": "it's",
        "d": 'a\né"',
        "list": (1, (2,), Map((("x", "y"),))),
        "odd key": "folded text",
        "dot": 0.5,
        "v": "1.2.3",
        "z": "007",
    }
    assert type(statement.data.get("n")) is int
    round_trip(Document((statement,)))


def test_front_matter() -> None:
    front = argdown.parse(
        "===\na: b: c\nn: 2\nnone:\nm:\n  k: v\n  deep:\n      x: [1, 2]\nlast: 'q'\n===\n# H\n"
    ).front
    deep = Map((("x", (1, 2)),))
    assert front == Map(
        (("a", "b: c"), ("n", 2), ("none", None), ("m", Map((("k", "v"), ("deep", deep)))), ("last", "q"))
    )


def test_comments_inside_a_node_stand_before_it() -> None:
    document = argdown.parse("// first\n[A]: a // aside\n  // within\n  + [A]\n// after\n/* block\n  two */\n# H\n")
    assert [type(block).__name__ for block in document.blocks] == [
        "Comment",
        "Comment",
        "Comment",
        "Statement",
        "Comment",
        "Comment",
        "Heading",
    ]
    assert [block.text for block in document.blocks if isinstance(block, Comment)] == [
        "first",
        "aside",
        "within",
        "after",
        "block\ntwo",
    ]
    round_trip(document)


def test_a_url_is_not_a_comment_and_a_quote_is_left_alone() -> None:
    statement = one('[A]: http://x.org\n  > // {x} #y [z](w)\n  {u: "http://y.org // z"}\n', Statement)
    assert statement.text == "http://x.org"
    assert statement.quotes[0].rows == ("// {x} #y [z](w)",)
    assert statement.data.get("u") == "http://y.org // z"


REFUSED = [
    ("", "m.argdown:1:1: expected an evidence map, found an empty file"),
    (" \n\t\n", "m.argdown:1:1: expected an evidence map, found an empty file"),
    ("[A]: a\0b", "m.argdown:1:7: expected text, found a NUL character"),
    (
        "===\na: b\n",
        "m.argdown:1:1: the front matter is never closed: expected a line '===', found the end of the file",
    ),
    ("===\nno colon here\n===\n", "m.argdown:2:1: expected 'name: value' in the front matter, found 'no colon here'"),
    ("===\na: 1\na: 2\n===\n", "m.argdown:3:1: the name 'a' stands twice in the front matter"),
    ("===\na: 1\n  b: 2\n===\n", "m.argdown:3:1: this line is indented deeper"),
    ('[A]: a\n  {reason: "x"\n', "m.argdown:2:3: this metadata map is never closed: expected '}'"),
    ('[A]: a\n  {reason: "x}\n', "m.argdown:2:12: this quoted text is never closed: expected '\"'"),
    ("[A]: a {x: [1, 2}", "m.argdown:1:17: expected ',' or ']', found '}'"),
    ("[A]: a {x 1}", "m.argdown:1:12: expected ':' after the name 'x 1', found '}'"),
    ("[A]: a {x: 1, x: 2}", "m.argdown:1:15: the name 'x' stands twice in this map"),
    ("[A]: a {x: 1e999}", "m.argdown:1:12: the number 1e999 is too large"),
    ('[A]: a {x: "\\q"}', "m.argdown:1:13: expected an escape such as"),
    ('[A]: a {x: "\\ud800"}', "m.argdown:1:13: \\ud800 is half a character"),
    ("[A]: a {x: 1}\n  {y: 2}", "m.argdown:2:3: expected one metadata map for 'A', found a second"),
    ("[A]: a\n\n[A]: b\n", "m.argdown:3:1: [A] is defined twice; the first time at line 1"),
    ("<A>: a\n\n<A>: b\n", "m.argdown:3:1: <A> is defined twice; the first time at line 1"),
    ("[Alpha]: a\n  + [Alpa]\n", "m.argdown:2:3: [Alpa] is named here, but nothing defines it"),
    ("[Alpha]: a\n  + [Alpa]\n", "did you mean Alpha?"),
    ("[A]: a\n  - <B>\n", "m.argdown:2:3: <B> is named here, but nothing defines it"),
    ("[A]\n", "m.argdown:1:1: [A] is named here, but nothing defines it"),
    ("[A]: a\n  _> <B>\n", "m.argdown:2:3: expected a relation '+', '-', '+>' or '->', found an undercut ('_>')"),
    ("[A]: a\n  >< [B]\n", "found a contradiction ('><'), which is not supported"),
    ("[A]: a\n+ <B>\n", "m.argdown:2:1: expected a relation to be indented below its node, found '+ <B>'"),
    ("[A]: a\n  + B\n", "m.argdown:2:5: expected [title] or <title> after '+', found 'B'"),
    ("  + <B>\n", "m.argdown:1:3: expected a statement or an argument above this relation"),
    ("<A>\n(1) one\n(3) three\n", "m.argdown:3:1: expected step (2) of <A>, found (3)"),
    ("<A>\n----\n(1) one\n", "m.argdown:2:1: expected premises above this rule, found none"),
    ("<A>\n(1) one\n----\n", "m.argdown:3:1: expected a numbered conclusion below this rule, found none"),
    ("<A>\n(1) one\n----\n----\n(2) b\n", "m.argdown:4:1: expected a conclusion below the rule, found a second rule"),
    ("<A>\n(1) one\n(2) two\n", "m.argdown:3:1: expected <A> to end with a conclusion, found step (2)"),
    ("(1) one\n", "m.argdown:1:1: expected <title> of an argument before its steps, found '(1) one'"),
    ("<A>\n(1)\n", "m.argdown:2:4: expected a statement after (1), found none"),
    ("words\n", "m.argdown:1:1: expected [title], <title>, a heading"),
    ("[A]: a\n\nwords\n", "m.argdown:3:1: expected [title], <title>, a heading"),
    ("[A]: a\n  [B]: b\n", "m.argdown:2:3: expected a definition to begin at the left margin, found '[B]: b'"),
    ("[A] a\n", "m.argdown:1:1: expected ':' between the title 'A' and its text"),
    ("[A]: a\n  > q\n  lazy\n", "m.argdown:3:3: expected the text of 'A' to stand before its quote, found 'lazy'"),
    ("<A>\n  > q\n", "m.argdown:2:3: expected text, found '> q'; only a statement has quotes"),
    ("[A]: a /* b\n", "m.argdown:1:8: this comment is never closed: expected '*/'"),
    ("[A]: a\n  [x](y.md#L9-L3)\n", "m.argdown:2:3: expected a range of lines such as #L10-L12, found '#L9-L3'"),
    ("[A]: a\n" + "x" * 1_000_001, "m.argdown:2:1: a line of 1,000,001 characters is longer than the 1,000,000"),
    ("[A]: a {x: " + "[" * 100, "m.argdown:1:52: metadata nests more than 40 levels deep"),
    ("[A]: a {x: " + "9" * 5000 + "}", "m.argdown:1:12: a number of 5000 digits"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_refuses_with_place_and_reason(text: str, message: str) -> None:
    with pytest.raises(ClewError, match=re.escape(message)):
        argdown.parse(text, "m.argdown")


def test_refuses_monsters_before_reading_them() -> None:
    with pytest.raises(ClewError, match="more than the 64,000,000 that are read"):
        argdown.parse("a" * 64_000_001)
    with pytest.raises(ClewError, match="lines is more than the 2,000,000"):
        argdown.parse("a\n" * 2_000_000)


def test_refuses_files_that_are_none(tmp_path: Any) -> None:
    with pytest.raises(ClewError, match=r"is a directory; name an \.argdown file in it"):
        argdown.read(str(tmp_path))
    with pytest.raises(ClewError, match=r"cannot read .*missing\.argdown: No such file"):
        argdown.read(str(tmp_path / "missing.argdown"))
    with pytest.raises(ClewError, match="cannot read"):
        argdown.read("bad\0name")
    with pytest.raises(ClewError, match="/dev/null is not a regular file"):
        argdown.read("/dev/null")
    latin = tmp_path / "latin.argdown"
    latin.write_bytes(b"[A]: ok\n[B]: caf\xe9\n")
    with pytest.raises(ClewError, match=r"latin\.argdown:2:9: expected UTF-8 text, found byte 0xe9"):
        argdown.read(str(latin))
    binary = tmp_path / "binary.argdown"
    binary.write_bytes(b"\x7fELF\n\0\0")
    with pytest.raises(ClewError, match=r"binary\.argdown:2:1: expected text, found a NUL byte"):
        argdown.read(str(binary))
    huge = tmp_path / "huge.argdown"
    with open(huge, "wb") as file:
        file.truncate(100_000_000)
    with pytest.raises(ClewError, match="has 100,000,000 bytes"):
        argdown.read(str(huge))


def test_reads_any_line_ends_and_a_byte_order_mark() -> None:
    plain = argdown.parse("[A]: a\n  b\n  + [A]\n")
    assert argdown.same(plain, argdown.parse("\ufeff[A]: a\r\n  b\r\n  + [A]\r\n"))
    assert argdown.same(plain, argdown.parse("[A]: a\r  b\r  + [A]\r"))


def test_same_looks_at_what_is_said_only() -> None:
    one_line = argdown.parse("[A]: a b {x: 1}\n", "one")
    assert argdown.same(one_line, argdown.parse("\n\n[A]:\n   a\n   b\n   {x: 1}\n", "two"))
    assert not argdown.same(one_line, argdown.parse("[A]: a b {x: 1.0}\n"))
    assert not argdown.same(one_line, argdown.parse("[A]: a b {x: true}\n"))
    assert not argdown.same(one_line, argdown.parse("[A]: a  c {x: 1}\n"))


def test_the_kiln_map_round_trips() -> None:
    document = argdown.read(KILN)
    round_trip(document)
    titles = [block.title for block in document.blocks if isinstance(block, Statement | Argument)]
    assert titles == [
        "Slow Firing",
        "Gas Cost",
        "Calm Potters",
        "Fast Firing",
        "Cheap Gas",
        "Heat Lag",
        "Gas Cost",
    ]
    lag = next(block for block in document.blocks if isinstance(block, Argument) and block.steps)
    assert [step.conclusion for step in lag.steps] == [False, False, True, False, True]
    assert [step.rule for step in lag.steps] == ["", "", "Reading late is reading low", "", "By habit"]


@pytest.mark.skipif(not os.path.exists(FOLKLORE), reason="the folklore map is not beside this checkout")
def test_the_folklore_map_round_trips() -> None:
    document = argdown.read(FOLKLORE)
    round_trip(document)
    arguments = [block for block in document.blocks if isinstance(block, Argument)]
    assert len(arguments) == 14
    steps = [step for argument in arguments for step in argument.steps]
    assert sum(step.conclusion for step in steps) == 14
    assert sum(len(step.statement.quotes) for step in steps) == 28
    assert all(quote.link == 1 for step in steps for quote in step.statement.quotes)
    [root] = [block for block in document.blocks if isinstance(block, Statement)]
    assert [relation.kind for relation in root.relations].count("attack") == 2
    slavv = next(step.statement for step in steps if step.statement.title == "Slavv Normalize")
    assert slavv.tags == ("observation",)
    assert slavv.text.endswith("items #14-#15.")


@pytest.mark.parametrize(
    "block",
    [
        Statement("a]b", "x"),
        Statement("a\nb", "x"),
        Statement("A", "two  spaces"),
        Statement("A", "x", tags=("a)b",)),
        Statement("A", "x", links=(Link("a]b", "c"),)),
        Statement("A", "x", links=(Link("a", "c d"),)),
        Statement("A", "x", links=(Link("a", "c#L5"),)),
        Statement("A", "x", quotes=(Quote(("a\nb",), 0, -1),)),
        Statement("A", "x", data=Map((("n", float("nan")),))),
        Statement("A", "x", data=Map((("o", object()),))),
        Statement("A", "x", relations=(Relation("support", "in", "B", "statement"),)),
        Statement("A", "x", relations=(Relation("undercut", "in", "A", "statement"),)),
        Argument("A", steps=(Step(1, Statement("B", "b"), True),)),
        Argument("A", steps=(Step(1, Statement("B", "b")),)),
        Heading(1, "two\nlines"),
        Comment("one */\ntwo"),
    ],
)
def test_write_refuses_what_would_not_read_back(block: Block) -> None:
    with pytest.raises(ClewError):
        argdown.write(Document((block,)))


def test_a_map_without_anything_is_empty_front_matter() -> None:
    assert round_trip(Document(())) == "===\n===\n"


# Words that mean something to the reader are the ones that must survive being mere words.
HAZARDS = (
    "+ - +> -> <- _> > >> # #x #(y #12 { } {a} [ ] [b] [b]: [b](c) [b](c <a> <a>: // /* */ \\ \\# -- ---- === (1) (12) "
    "... a/b http://x.org 'q' \"r\" ><"
).split()
plain_words = st.text("abcdefgXYZé1.,;", min_size=1, max_size=8)
texts = st.lists(st.one_of(plain_words, st.sampled_from(HAZARDS)), min_size=1, max_size=40).map(" ".join)
titles = st.lists(st.text("abcABC019é'-.,", min_size=1, max_size=6), min_size=1, max_size=3).map(" ".join)
labels = st.one_of(st.just(""), titles)
targets = st.from_regex(r"(?:https?://)?[a-z0-9/._-]{1,12}(?:\([a-z]{0,3}\))?", fullmatch=True)
links = st.builds(Link, labels, targets, st.one_of(st.none(), st.tuples(st.integers(1, 50), st.integers(50, 99999))))
rows = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp")), max_size=30).map(str.rstrip)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
)
keys = st.text(min_size=0, max_size=8)


def maps(values: st.SearchStrategy[object]) -> st.SearchStrategy[Map]:
    pairs = st.lists(st.tuples(keys, values), max_size=4, unique_by=lambda pair: pair[0])
    return pairs.map(lambda items: Map(tuple(items)))


values: st.SearchStrategy[object] = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=3).map(tuple), maps(inner)), max_leaves=8
)
fronts = maps(st.one_of(values, maps(maps(scalars))))
tags = st.lists(
    st.one_of(st.from_regex(r"[a-z][a-z0-9_-]{0,5}", fullmatch=True), titles.filter(str.strip)), max_size=3
).map(tuple)


@st.composite
def statements(
    draw: st.DrawFn, title: str, known: list[str], arguments: list[str], reference: bool = False
) -> Statement:
    own_links = tuple(draw(st.lists(links, max_size=2)))
    quotes = [
        Quote(tuple(draw(st.lists(rows, min_size=1, max_size=3))), 0, index)
        for index in range(-1, len(own_links))
        for _ in range(draw(st.integers(0, 2)))
    ]
    return Statement(
        title,
        "" if reference else draw(texts),
        draw(tags),
        own_links,
        tuple(quotes),
        draw(maps(values)),
        tuple(draw(st.lists(relations(known, arguments), max_size=3))),
    )


def relations(known: list[str], arguments: list[str]) -> st.SearchStrategy[Relation]:
    to_statement = st.tuples(st.sampled_from(known), st.just("statement"))
    to_argument = st.tuples(st.sampled_from(arguments), st.just("argument")) if arguments else to_statement
    return st.builds(
        lambda kind, direction, target: Relation(kind, direction, *target),
        st.sampled_from(["support", "attack"]),
        st.sampled_from(["in", "out"]),
        st.one_of(to_statement, to_argument),
    )


@st.composite
def arguments_of(draw: st.DrawFn, title: str, own: list[str], known: list[str], names: list[str]) -> Argument:
    steps: list[Step] = []
    for number, name in enumerate(own, 1):
        conclusion = number == len(own) or (number > 1 and draw(st.booleans()))
        rule = draw(titles) if conclusion and draw(st.booleans()) else ""
        steps.append(Step(number, draw(statements(name, known, names)), conclusion, 0, rule.strip("- ")))
    return Argument(
        title,
        draw(st.one_of(st.just(""), texts)),
        draw(tags),
        tuple(draw(st.lists(links, max_size=2))),
        draw(maps(values)),
        tuple(draw(st.lists(relations(known, names), max_size=2))),
        tuple(steps),
    )


@st.composite
def documents(draw: st.DrawFn) -> Document:
    known = draw(st.lists(titles, min_size=1, max_size=6, unique=True))
    names = draw(st.lists(titles, max_size=2, unique=True))
    cut = draw(st.integers(1, len(known)))
    blocks: list[Block] = [draw(statements(title, known, names)) for title in known[:cut]]
    left = known[cut:]
    for index, name in enumerate(names):
        share = left if index == len(names) - 1 else []
        own = share if len(share) >= 2 else []
        blocks.append(draw(arguments_of(name, own, known if own or not left else known[:cut], names)))
        left = [title for title in left if title not in own]
    blocks += [draw(statements(title, known, names)) for title in left]
    blocks.append(draw(statements(known[0], known, names, reference=True)))
    blocks += draw(st.lists(st.builds(Heading, st.integers(1, 6), st.one_of(st.just(""), titles)), max_size=2))
    blocks += draw(st.lists(st.builds(Comment, rows.map(str.strip)), max_size=2))
    blocks += draw(st.lists(st.builds(Comment, st.just("two\nlines of it")), max_size=1))
    return Document(tuple(draw(st.permutations(blocks))), draw(st.one_of(st.just(Map()), fronts)))


@given(documents())
@settings(max_examples=150, deadline=None)
def test_every_document_round_trips(document: Document) -> None:
    round_trip(document)


def parses_or_is_refused(text: str) -> None:
    try:
        document = argdown.parse(text, "fuzz.argdown")
    except ClewError as error:
        refusal = str(error)
    else:
        round_trip(document)
        return
    assert refusal.startswith("fuzz.argdown:")


@given(st.text(st.characters(), max_size=300))
@settings(max_examples=150, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    parses_or_is_refused(text)


LINES = (
    "[A]: a|<B>|(1) x|(2) [C]: y|----|-- n --|  + [A]|    - <B>|  > q|  {k: 1}|  {k: [|  #t|# H|// c|/* d|*/|===|k: v||"
    "  [l](f#L1)|  text|text"
).split("|")


@given(st.lists(st.sampled_from(LINES), max_size=14))
@settings(max_examples=200, deadline=None)
def test_any_order_of_lines_is_read_or_refused(lines: list[str]) -> None:
    parses_or_is_refused("\n".join(lines))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_damaged_map_is_read_or_refused(data: st.DataObject) -> None:
    text = kiln_text()
    for _ in range(data.draw(st.integers(1, 4))):
        by_line = data.draw(st.booleans())
        parts = text.split("\n") if by_line else list(text)
        first = data.draw(st.integers(0, len(parts) - 1))
        second = data.draw(st.integers(0, len(parts) - 1))
        change = data.draw(st.sampled_from(["delete", "double", "swap", "put"]))
        if change == "delete":
            del parts[first]
        elif change == "double":
            parts.insert(first, parts[first])
        elif change == "swap":
            parts[first], parts[second] = parts[second], parts[first]
        else:
            parts.insert(first, data.draw(st.sampled_from('[]<>(){}"\\#:/*->\0\n\t 1a')))
        text = ("\n" if by_line else "").join(parts)
        if not text:
            break
    parses_or_is_refused(text)
