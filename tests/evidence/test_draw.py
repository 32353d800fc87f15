"""The tree, the drawing and the page: well-formed, nothing overlapping, nothing lost, nothing let through."""

from __future__ import annotations

import itertools
import re
import string
from pathlib import Path
from xml.etree import ElementTree

import pytest
import tinyhtml5
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.evidence import argdown
from clew.evidence.credence import Credences, propagate
from clew.evidence.draw import href, html, svg, text_width
from clew.evidence.model import Argument, Document, Link, Map, Quote, Relation, Statement, Step
from clew.evidence.tree import tree_lines
from clew.evidence.words import INK, cells, clean, wrap

SVG = "{http://www.w3.org/2000/svg}"
FOLKLORE = Path(__file__).parents[3] / "shared" / "folklore" / "ml_debug_folklore.argdown"
HOSTILE = (
    "<script>alert(1)</script>",
    "]]>",
    "</text></svg><svg onload=x>",
    "-->",
    "&amp; &lt; &#x3c;",
    '"\' onmouseover="x',
    "{{ 7 * 7 }} {% raw %}",
    "</style></title></details>",
    "\x1b[31mred\x1b[0m\x00\x0b\ufffe",
    "\u202eright to left",
    "漢字" * 30,
    "unbroken" * 40,
)


def build(titles: tuple[str, ...]) -> Document:
    """A map with every kind of edge, in which each of six titles names one node."""
    top, argument, middle, source, doubt, attack = titles
    edges = (
        Relation("support", "in", argument, "argument"),
        Relation("attack", "in", doubt, "statement"),
        Relation("support", "in", source, "statement"),
    )
    said = Statement(
        source,
        f"{source} in its text",
        ("observation", source),
        (
            Link(source, "https://example.org/a"),
            Link("evidence", "evidence/a.md#L3-L5", (3, 5)),
            Link("x", "javascript:x"),
        ),
        (Quote((source, "second row")),),
        Map((("credence", 0.8), ("reason", source))),
    )
    steps = (
        Step(1, said),
        Step(2, Statement(f"{middle} middle", f"{middle} text", data=Map((("inference", 0.9),))), True),
        Step(3, Statement(f"{doubt} needed", tags=("assumption",))),
        Step(4, Statement(middle, data=Map((("inference", 0.5),))), True),
    )
    return Document(
        (
            Statement(top, f"{top} in full", relations=edges),
            Argument(argument, argument, steps=steps, relations=(Relation("attack", "in", attack, "statement"),)),
            Statement(attack, attack, data=Map((("credence", 0.25),))),
            Statement(doubt, doubt, data=Map((("credence", 0.5), ("lineage", doubt)))),
        ),
        Map((("title", top),)),
        "map.argdown",
    )


def plain(count: int) -> Document:
    """One claim with `count` arguments of three premises each."""
    blocks: list[Statement | Argument] = [Statement("Top", "The claim.")]
    for index in range(count):
        premises = [
            Statement(
                f"p{index}.{k}",
                "A premise of ordinary length that takes more than a single line of its box.",
                ("observation",),
                (Link(f"Author{index % 7}", "https://example.org"), Link("e", f"evidence/{index}.md", (k + 1, k + 4))),
                data=Map((("credence", 0.6),)),
            )
            for k in range(3)
        ]
        end = Statement(f"c{index}", "Hence.", relations=(Relation("support", "out", "Top", "statement"),))
        steps = [*(Step(k, premise) for k, premise in enumerate(premises, 1)), Step(4, end, True)]
        blocks.append(Argument(f"a{index}", steps=tuple(steps)))
    return Document(tuple(blocks), name="plain.argdown")


ORDINARY = build(("Top", "Argument", "Middle", "Source", "Doubt", "Objection"))


def weighed(document: Document) -> tuple[Document, Credences]:
    return document, propagate(document)


def frames(root: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    found = []
    for rect in root.iter(f"{SVG}rect"):
        if rect.get("class") == "frame":
            x, y, width, height = (float(rect.get(name, "nan")) for name in ("x", "y", "width", "height"))
            found.append((x, y, x + width, y + height))
    return found


def check_drawing(document: Document) -> ElementTree.Element:
    root = ElementTree.fromstring(svg(*weighed(document)))
    left, top, width, height = (float(part) for part in root.get("viewBox", "").split())
    boxes = frames(root)
    for box in boxes:
        assert left <= box[0] < box[2] <= left + width
        assert top <= box[1] < box[3] <= top + height
    for index, one in enumerate(boxes):
        for other in boxes[index + 1 :]:
            assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    check_texts(root)
    return root


def check_texts(root: ElementTree.Element) -> None:
    """Every line of text ends inside the frame of its box, and no two lines of a box share a height."""
    sizes = {"title": 12.0, "sub": 11.0, "body": 11.0, "note": 10.0}
    for group in root.iter(f"{SVG}g"):
        here = frames(group)
        if group.get("id") is None:
            continue
        (x, y, right, bottom) = here[0]
        heights = []
        for line in group.iter(f"{SVG}text"):
            style = line.get("class", "")
            end = float(line.get("x", "nan")) + text_width(line.text or "", sizes[style], style in ("title", "sub"))
            assert x < float(line.get("x", "nan")) < end <= right
            heights.append(float(line.get("y", "nan")))
        assert all(y < height < bottom for height in heights)
        assert all(after - before >= 12 for before, after in itertools.pairwise(heights))


def words_of(root: ElementTree.Element) -> str:
    return "".join("".join(root.itertext()).split())


# The drawing


def test_the_drawing_names_everything_and_nothing_overlaps() -> None:
    shown = words_of(check_drawing(ORDINARY))
    for title in ("[Top]", "<Argument>", "[Middle]", "[Middlemiddle]", "[Source]", "[Doubt]", "[Objection]"):
        assert title in shown


def test_what_bears_on_two_things_is_drawn_once_and_named_again() -> None:
    root = check_drawing(ORDINARY)
    repeats = [group for group in root.iter(f"{SVG}g") if group.get("class") == "repeat"]
    assert len(repeats) == 1
    targets = [link.get("href", "") for link in root.iter(f"{SVG}a")]
    ids = {group.get("id"): words_of(group) for group in root.iter(f"{SVG}g") if group.get("id")}
    assert [("[Source]" in ids[target[1:]]) for target in targets] == [True]


def test_support_and_attack_differ_by_more_than_colour() -> None:
    text = svg(*weighed(ORDINARY))
    assert re.search(r"\.attack\.wire\{stroke-dasharray", text)
    signs = {
        element.text for element in ElementTree.fromstring(text).iter(f"{SVG}text") if element.get("class") == "sign"
    }
    assert signs == {"+", "−", "&"}


def test_a_credence_that_is_not_stated_has_an_empty_bar() -> None:
    root = check_drawing(Document((Statement("Alone", "Nothing is known."),)))
    classes = [rect.get("class") for rect in root.iter(f"{SVG}rect")]
    assert "unstated" in classes
    assert "filled" not in classes


def test_the_bar_is_as_long_as_the_credence() -> None:
    root = check_drawing(Document((Statement("S", data=Map((("credence", 0.25),))),)))
    bars = {rect.get("class"): float(rect.get("width", "nan")) for rect in root.iter(f"{SVG}rect")}
    assert bars["filled"] == bars["track"] / 4


def test_a_map_of_hundreds_of_statements_still_has_room_for_all() -> None:
    assert len(frames(check_drawing(plain(70)))) == 1 + 70 * 4


def test_an_empty_map_can_be_drawn() -> None:
    check_drawing(Document(()))
    html(*weighed(Document(())))
    assert tree_lines(*weighed(Document(()))) == []


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_as_text(text: str) -> None:
    document = build(tuple(f"{text} {name}" for name in "abcdef"))
    root = check_drawing(document)
    assert {element.tag for element in root.iter()} <= {
        SVG + tag for tag in ("svg", "style", "rect", "path", "circle", "text", "g", "title", "a")
    }
    for element in root.iter():
        assert not any(name.startswith("on") for name in element.attrib)
    shown = words_of(root)
    for name in "abcdef":
        assert "".join(clean(f"{text} {name}").split()) in shown


ANY_TEXT = st.text(min_size=1, max_size=60).filter(lambda text: bool(text.strip()))


@settings(max_examples=40, deadline=None)
@given(st.lists(ANY_TEXT, min_size=6, max_size=6, unique=True))
def test_any_text_makes_a_sound_drawing_page_and_tree(texts: list[str]) -> None:
    document = build(tuple(f"{text} {letter}" for text, letter in zip(texts, string.ascii_letters, strict=False)))
    check_drawing(document)
    check_page(html(*weighed(document), title=texts[0]))
    for line in tree_lines(*weighed(document), width=60):
        assert cells(line) <= 60
        assert clean(line.strip()).count("\ufffd") == line.count("\ufffd")


# The page


def check_page(text: str) -> ElementTree.Element:
    root: ElementTree.Element = tinyhtml5.parse(text, namespace_html_elements=False)
    tags = {str(element.tag).removeprefix(SVG) for element in root.iter()}
    assert not tags & {"script", "img", "iframe", "object", "embed", "link", "base", "form", "foreignObject", "image"}
    for element in root.iter():
        for name, value in element.attrib.items():
            assert not str(name).startswith("on")
            if str(name).endswith(("href", "src")):
                assert value.startswith(("#", "https://", "http://")) or ":" not in value.split("/")[0]
    assert not re.search(r"@import|url\(", text)
    return root


@pytest.mark.parametrize("text", HOSTILE)
def test_the_page_lets_no_script_through(text: str) -> None:
    page = html(*weighed(build(tuple(f"{text} {name}" for name in "abcdef"))), title=text)
    root = check_page(page)
    heading = root.find(".//h1")
    assert heading is not None
    assert "".join(heading.itertext()) == clean(text)
    assert page.count("<details") == page.count("</details>")


def test_the_page_holds_texts_reasons_quotations_and_links() -> None:
    root = check_page(html(*weighed(ORDINARY), title="A map"))
    shown = " ".join("".join(root.itertext()).split())
    assert "Source in its text" in shown
    assert "Stated reason: Source" in shown
    assert "Stated as 0.80, lineage source." in shown
    assert "second row" in shown
    links = {"".join(link.itertext()): link.get("href") for link in root.iter("a")}
    assert links["Source"] == "https://example.org/a"
    assert links["evidence/a.md:3-5"] == "evidence/a.md#L3-L5"
    assert "x" not in links


def test_every_link_inside_the_page_leads_somewhere() -> None:
    root = check_page(html(*weighed(ORDINARY)))
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    inner = [link.get("href", "") for link in root.iter() if link.get("href", "").startswith("#")]
    assert inner
    assert {target[1:] for target in inner} <= set(ids)


def test_the_parts_of_the_drawing_cut_no_box_and_hold_every_box() -> None:
    root = check_page(html(*weighed(plain(12))))
    parts = list(root.iter(f"{SVG}svg"))
    assert len(parts) == 12
    boxes = 0
    end = 0.0
    for part in parts:
        _, top, _, height = (float(figure) for figure in part.get("viewBox", "").split())
        assert top == pytest.approx(end, abs=0.11)
        end = top + height
        for _, above, _, below in frames(part):
            assert top <= above < below <= end
            boxes += 1
    assert boxes == 1 + 12 * 4


@pytest.mark.parametrize(
    ("target", "followed"),
    [
        ("https://example.org/a?b=c#d", True),
        ("HTTP://example.org", True),
        ("evidence/a.md#L3", True),
        ("../a.md", True),
        ("#here", True),
        ("a?x=y:z", True),
        ("javascript:alert(1)", False),
        ("JavaScript:alert(1)", False),
        (" javascript:alert(1)", False),
        ("java\nscript:alert(1)", False),
        ("\x01javascript:alert(1)", False),
        ("data:text/html,x", False),
        ("file:///etc/passwd", False),
        ("//example.org/x", False),
        ("\\\\example.org\\x", False),
    ],
)
def test_only_web_addresses_and_paths_become_links(target: str, followed: bool) -> None:
    assert href(target) == (target if followed else "")


# The tree


def test_the_tree_reads_from_claims_down_to_files() -> None:
    assert tree_lines(*weighed(plain(1)), width=70) == [
        "[Top]: 0.60 even odds",
        "│  The claim.",
        "└─ (+) <a0>: 0.60 even odds",
        "   │  [c0] Hence.",
        "   ├─ (+) [p0.0]: 0.60 even odds, lineage author0",
        "   │     A premise of ordinary length that takes more than a single",
        "   │     line of its box.",
        "   │     evidence/0.md:1-4",
        "   ├─ (+) [p0.1]: 0.60 even odds, lineage author0, counted already",
        "   │     A premise of ordinary length that takes more than a single",
        "   │     line of its box.",
        "   │     evidence/0.md:2-5",
        "   └─ (+) [p0.2]: 0.60 even odds, lineage author0, counted already",
        "         A premise of ordinary length that takes more than a single",
        "         line of its box.",
        "         evidence/0.md:3-6",
        "",
        "(+) supports, (-) attacks, (&) is needed by the step it stands under.",
    ]


def test_what_an_argument_says_of_itself_stands_beside_its_conclusion() -> None:
    document = argdown.parse("<A>: The gist.\n\n(1) [P]: Holds.\n  {credence: 0.5}\n----\n(2) [C]: Hence.\n")
    text = "\n".join(tree_lines(*weighed(document)))
    assert "<A>: 0.50 even odds\n│  The gist.\n│  [C] Hence.\n" in text
    assert "Thegist.[C]Hence." in words_of(check_drawing(document))
    assert "The gist." in html(*weighed(document))


def test_support_and_attack_are_marked_without_colour() -> None:
    text = "\n".join(tree_lines(*weighed(ORDINARY)))
    assert "(-) [Doubt]: 0.50 even odds" in text
    assert "(-) [Objection]: 0.25 unlikely" in text
    assert "(&) [Doubt needed]: not stated" in text
    assert "(+) [Source]: 0.80 likely, lineage source, shown above" in text
    assert "\x1b" not in text


def test_colour_changes_nothing_but_colour() -> None:
    bare = tree_lines(*weighed(ORDINARY), width=80, colour=False)
    painted = tree_lines(*weighed(ORDINARY), width=80, colour=True)
    assert [re.sub(rf"{INK}\[\d+m", "", line) for line in painted] == bare
    assert painted != bare


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_deep_tree_stays_within_the_width(width: int) -> None:
    blocks = [
        Statement(f"S{i}", "Some words to wrap.", relations=(Relation("support", "in", f"S{i + 1}", "statement"),))
        for i in range(1500)
    ]
    document, credences = weighed(Document(tuple(blocks)))
    lines = tree_lines(document, credences, width)
    assert max(cells(line) for line in lines) <= width
    assert sum("words" in line for line in lines) == 1500


@settings(deadline=None)
@given(st.text(), st.integers(1, 30))
def test_wrapping_loses_nothing_and_keeps_the_width(text: str, limit: int) -> None:
    lines = wrap(text, limit, cells)
    assert "".join("".join(lines).split()) == "".join(clean(text).split())
    assert all(cells(line) <= limit or len(line) == 1 for line in lines)


@pytest.mark.skipif(not FOLKLORE.exists(), reason="the folklore map is not beside this checkout")
def test_the_folklore_map_is_drawn_whole() -> None:
    document = argdown.parse(FOLKLORE.read_text(encoding="utf-8"), FOLKLORE.name)
    shown = words_of(check_drawing(document))
    credences = propagate(document)
    for title in (*(f"[{title}]" for title in credences.statements), *(f"<{title}>" for title in credences.arguments)):
        assert "".join(title.split()) in shown
    check_page(html(document, credences, title="Folklore"))
    assert max(cells(line) for line in tree_lines(document, credences, width=80)) <= 80
