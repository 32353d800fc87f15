"""The page of a run: its order, its quotes, its plots, and that nothing hostile gets through."""

import math
import re
from typing import Any
from xml.etree import ElementTree

import pytest
import tinyhtml5
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.knowledge import load
from clew.records.case import Case, HeldClue
from clew.records.clue import Clue
from clew.records.place import Place
from clew.records.trace import ASKED, RIGHT, Series
from clew.report.html import environment
from clew.report.plots import HEIGHT, WIDTH, Zone, plot
from clew.report.run_html import quoted, run_html, said
from clew.report.run_page import RunFacts
from clew.report.view import CaseView, guesses, view

KNOWLEDGE = load()
SOURCE = [
    "import torch.nn.functional as F",
    "",
    "def train(net, loader, optimizer):",
    "\tfor images, labels in loader:",
    "\t\toptimizer.zero_grad()",
    "\t\tloss = F.cross_entropy(net(images), labels)",
    "\t\tloss.backward()",
    "\t\toptimizer.step()",
    "",
    "train(*made())",
]
FACTS = RunFacts("train.py", 40, 8.1, 0, 1, ".clew/runs/x")
SERIES = dict[tuple[str, str], Series]


def clue(test: str, outcome: str, *where: Place, says: str = "", why: str = "", **measured: float) -> Clue:
    held = KNOWLEDGE.tests[test]
    return Clue(
        test, outcome, tuple(sorted(measured.items())), where, reads=(held.reads,), source=held.by, says=says, why=why
    )


def seen_by(*clues: Clue, remarks: tuple[str, ...] = (), script: str = "train.py") -> CaseView:
    held = tuple(HeldClue(index + 1, item, "", "") for index, item in enumerate(clues))
    case = Case(
        id="20260801-train",
        folder="",
        symptom=f"clew run {script}",
        domain="vision",
        setting="routine",
        script=script,
        code="",
        opened_at="2026-08-01T10:15:00Z",
        entries=(),
        clues=held,
        notes=(),
        own=(),
        preflights=(),
        closing=None,
        remarks=remarks,
    )
    return view(KNOWLEDGE, case, by_hand=False)


def series(name: str, values: list[float], of: str = "", unit: str = "") -> Series:
    return Series(name, tuple(range(len(values))), tuple(values), of, unit)


def recorded(*held: Series) -> SERIES:
    return {(item.name, item.of): item for item in held}


def source(name: str) -> list[str] | None:
    return SOURCE if name == "train.py" else None


PASSED = (
    clue("event_order", "usual", says="each step follows its backward"),
    clue("update_ratio", "healthy", median_update_over_weight=0.001),
    clue("gradient_by_depth", "even", log10_first_over_last=-0.5),
    clue("activation_saturation", "unclear", why="the model has no tanh or sigmoid"),
)
FOUND = clue(
    "loss_input_kind",
    "probabilities_into_logit_loss",
    Place(file="train.py", line=6, symbol="train"),
    Place(file="elsewhere.py", line=3),
    Place(module="head"),
    says="cross_entropy was given rows that sum to 1",
    rows_summing_to_one=1.0,
)
RUN = recorded(
    series("loss", [2.3 - 0.01 * step for step in range(40)]),
    *(series("grad_norm", [10.0**-index] * 40, f"layers.{index}.weight") for index in range(3)),
    *(series("update_ratio", [1e-3] * 40, f"layers.{index}.weight") for index in range(3)),
    series("activation_zero_share", [0.4] * 40, "layers.1"),
    series("step_time", [0.02] * 40, unit="s"),
)


BLOCKS = {"b", "dt", "dd", "td", "div", "p", "li", "text"}


def parsed(text: str) -> Any:
    """The page with plain tag names, and space between its blocks as a reader sees it."""
    page = tinyhtml5.parse(text, namespace_html_elements=False)
    for item in page.iter():
        if isinstance(item.tag, str):
            item.tag = item.tag.rpartition("}")[2]
            if item.tag in BLOCKS:
                item.tail = f" {item.tail or ''}"
    return page


def words(element: Any) -> str:
    return " ".join("".join(element.itertext()).split())


def headings(page: Any) -> list[str]:
    return [words(item).split("  ")[0] for item in page.iter("h2")]


def section(page: Any, heading: str) -> Any:
    return next(part for part in page.iter("section") if words(part.find("h2")).startswith(heading))


def figures(page: Any) -> dict[str, Any]:
    return {words(item.find("figcaption/b")): item for item in page.iter("figure")}


@pytest.fixture(scope="module")
def fault() -> Any:
    return parsed(run_html(seen_by(FOUND, *PASSED), FACTS, RUN, source))


def test_the_page_is_in_the_order_of_a_report(fault: Any) -> None:
    starts = ["Found", "Next observation", "Plots", "The run"]
    found = headings(fault)
    assert len(found) == len(starts)
    assert all(heading.startswith(start) for heading, start in zip(found, starts, strict=True))
    verdict = fault.find(".//div[@class='verdict fault']")
    assert words(verdict).startswith("FAULT One fault was observed directly. train.py:6:")


def test_a_finding_quotes_its_line_underlined_with_two_lines_around(fault: Any) -> None:
    card = fault.find(".//div[@class='card finding']")
    assert words(card).startswith("train.py:6 · loss.double_softmax")
    (quote,) = card.iter("pre")
    assert [words(item) for item in quote.iter("mark")] == ["loss = F.cross_entropy(net(images), labels)"]
    assert "".join(quote.itertext()).splitlines() == [
        "4for images, labels in loader:",
        "5    optimizer.zero_grad()",
        "6    loss = F.cross_entropy(net(images), labels)",
        "7    loss.backward()",
        "8    optimizer.step()",
    ]
    text = words(card)
    assert "elsewhere.py:3: its source is not available" in text
    assert "see also module head" in text
    assert "cross_entropy was given rows that sum to 1." in text, "a name at the head keeps its spelling"
    assert "rows summing to one 1" in text
    cause = KNOWLEDGE.causes["loss.double_softmax"]
    for expected in (cause.mend, cause.refute):
        assert " ".join(expected.split()) in text


def test_hypotheses_name_what_speaks_for_and_against_them() -> None:
    seen = seen_by(
        clue("loss_stuck_from_start", "stuck", largest_relative_change=0.01),
        clue("update_ratio", "tiny", median_update_over_weight=3e-6),
        clue("gradient_by_depth", "even"),
    )
    page = parsed(run_html(seen, FACTS, RUN, source))
    part = section(page, "Possible causes")
    cards = {words(card.find(".//code")): words(card) for card in part.iter("div") if card.get("class") == "card"}
    assert set(cards) == {item.cause for item in guesses(seen)}
    assert re.search(r"for it update_ratio: tiny \(\+\d\.\d bits\)", cards["hp.lr_too_low"])
    assert "against it" not in cards["hp.lr_too_low"], "nothing speaks against it, and nothing empty is shown"
    following = words(section(page, "Next observation"))
    assert seen.choices[0].test in following
    assert all(cause in following for cause, _, _ in seen.choices[0].predictions)
    for link in page.iter("a"):
        target = link.get("href")
        if target.startswith("#"):
            assert page.find(f".//*[@id='{target[1:]}']") is not None, f"{target} leads nowhere"


def test_every_check_is_listed_once_by_how_it_came_out(fault: Any) -> None:
    checked, missed = (part for part in fault.iter("details"))
    assert words(checked).startswith("Passed (3)")
    assert words(missed).startswith("Did not apply, or lacked data or time (1)")
    for test in ("event_order", "update_ratio", "gradient_by_depth"):
        assert f"({test}: " in words(checked), "the sentence comes first"
    assert "The model has no tanh or sigmoid." in words(missed)
    assert "loss_input_kind" not in words(checked), "what made the finding stands there"
    ids = [item.get("id") for item in fault.iter() if item.get("id")]
    assert len(ids) == len(set(ids))


def test_troubles_and_remarks_are_not_kept_back() -> None:
    facts = FACTS._replace(troubles=("the progress line could not be written",), status=1, processes=2)
    page = parsed(run_html(seen_by(*PASSED, remarks=("no optimiser step was seen",)), facts, RUN, source))
    header = words(page.find(".//header"))
    assert "The progress line could not be written." in header
    assert "No optimiser step was seen." in header
    assert "2 processes" in header
    assert "ended with status 1" in header


def test_plots_are_there_in_their_order(fault: Any) -> None:
    found = figures(fault)
    assert list(found) == [
        "Loss",
        "Gradient norm by layer",
        "Update over parameter by layer",
        "Activation health: zero share",
        "Step time",
    ]
    for figure in found.values():
        chart = figure.find("svg")
        assert chart.get("role") == "img"
        title, description = chart.find("title"), chart.find("desc")
        assert chart.get("aria-labelledby").split() == [title.get("id"), description.get("id")]
        assert "over steps 0 to 39; vertical axis" in words(description)
        texts = [words(text) for text in chart.iter("text")]
        assert "step" in texts
        assert chart.find(".//polyline") is not None
    assert "s" in [words(text) for text in found["Step time"].iter("text")]
    ratios = [words(text) for text in found["Update over parameter by layer"].iter("text")]
    assert "healthy: 1e-4 to 1e-2" in ratios
    assert "1e-3" in ratios
    assert next(words(item) for item in found["Gradient norm by layer"].iter("li")) == "layers.0.weight last 1"


def test_a_plot_without_data_or_news_is_left_out() -> None:
    held = recorded(
        RUN["loss", ""],
        series("memory_resident", [3.40e8, 3.41e8, 3.42e8]),
        series("gradient_norm", [1.0, 2.0, 3.0]),
        series("norm_before_clipping", [1.0, 2.0, 3.0]),
        *(series(name, [300.0], f"call {call}") for name in (RIGHT, ASKED) for call in range(3)),
    )
    page = parsed(run_html(seen_by(*PASSED), FACTS, held, source))
    assert list(figures(page)) == ["Loss", "Gradient norm by optimiser"]
    text = words(section(page, "Plots"))
    assert "were recorded" not in text
    assert "memory_resident" in text.partition("not drawn:")[2]
    growing = recorded(RUN["loss", ""], series("memory_resident", [2.0**30, 2.0**31]))
    figure = figures(parsed(run_html(seen_by(*PASSED), FACTS, growing, source)))["Memory resident"]
    assert "MiB" in [words(text) for text in figure.iter("text")]
    assert "From 1024 to 2048" in words(figure)


def test_nothing_empty_is_shown() -> None:
    page = parsed(run_html(seen_by(), FACTS._replace(steps=0), {}, source))
    assert [heading.split()[0] for heading in headings(page)] == ["Next", "The"]


def test_what_is_not_worth_a_line_is_left_out() -> None:
    seen = seen_by(FOUND, *PASSED, clue("loss_stuck_from_start", "stuck"), clue("update_ratio", "tiny"))
    part = section(parsed(run_html(seen, FACTS, RUN, source)), "If that is not it")
    cards = [words(card.find(".//code")) for card in part.iter("div") if card.get("class") == "card"]
    assert 1 < len(cards) <= 3
    assert "none.healthy" not in cards, "beside a finding it is no explanation"
    assert all(choice.gain > 0.03 for choice in seen.choices)


def test_values_that_are_not_finite_are_marked() -> None:
    held = recorded(series("loss", [2.0] * 20 + [math.inf] + [math.nan] * 19))
    chart = figures(parsed(run_html(seen_by(*PASSED), FACTS, held, source)))["Loss"]
    assert "20 of 40 values are NaN or Inf, the first at step 20." in words(chart)
    (mark,) = [item for item in chart.iter("rect") if item.get("class") == "bad"]
    assert words(mark) == "19 NaN and 1 Inf in loss, steps 20 to 39"


def test_the_step_of_a_finding_is_flagged() -> None:
    nonfinite = clue("first_nonfinite", "in_log", Place(file="train.py", line=6, step=20), says="log of zero")
    found = figures(parsed(run_html(seen_by(nonfinite, *PASSED), FACTS, RUN, source)))
    for figure in found.values():
        (flag,) = [item for item in figure.iter("line") if item.get("class") == "flag"]
        assert words(flag) == "num.log_of_zero"
        assert flag.get("x1") == "51.28%"


def test_other_numbers_are_drawn_too_and_never_dropped_silently() -> None:
    held = recorded(*(series(f"metric_{index}", [float(index)] * 3) for index in range(8)), series("val_loss", [1.0]))
    page = parsed(run_html(seen_by(*PASSED), FACTS, held, source))
    assert {f"Metric {index}" for index in range(6)} <= set(figures(page))
    assert "Also recorded, not drawn: metric_6, metric_7." in words(section(page, "Plots"))
    assert "One finite value: 1 at step 0." in words(figures(page)["Loss"])


def test_a_healthy_run_says_so_and_claims_no_more() -> None:
    page = parsed(run_html(seen_by(*PASSED, clue("learning_curve", "both_low")), FACTS, RUN, source))
    assert words(page.find(".//div[@class='verdict healthy']")).startswith("HEALTHY")
    assert headings(page)[0].startswith("Next observation")
    assert "none.healthy" not in words(page.find(".//main")).replace("none.healthy →", "")


HOSTILE = '</pre></title></style><script>alert("x")</script><img src=x onerror=alert(1)>\'"&\x00\x1b[31m\ud800\u202e'


def test_hostile_text_is_shown_and_does_nothing() -> None:
    place = Place(file=HOSTILE, line=2, symbol=HOSTILE, step=1)
    seen = seen_by(
        FOUND._replace(where=(place,), says=HOSTILE, measured=((HOSTILE, HOSTILE),)),
        PASSED[0]._replace(says=HOSTILE),
        PASSED[3]._replace(why=HOSTILE),
        remarks=(HOSTILE,),
        script=HOSTILE,
    )
    held = recorded(*(series(name, [1.0, math.nan], HOSTILE, HOSTILE) for name in ("loss", "grad_norm", HOSTILE)))
    facts = FACTS._replace(script=HOSTILE, folder=HOSTILE, troubles=(HOSTILE,))
    text = run_html(seen, facts, held, lambda _: [HOSTILE] * 3)
    text.encode("utf-8")
    assert not re.search("[\x00\x1b\u202e]", text)
    page = parsed(text)
    for tag in ("script", "img", "link", "iframe", "object"):
        assert page.find(f".//{tag}") is None
    assert not [item for item in page.iter() if any(name.startswith("on") for name in item.attrib)]
    assert len(list(page.iter("style"))) == 1
    heading = words(page.find(".//h1"))
    assert heading.startswith('</pre></title></style><script>alert("x")</script>')
    assert len(list(page.iter("mark"))) == 1


def test_nothing_is_fetched(fault: Any) -> None:
    text = run_html(seen_by(FOUND, *PASSED), FACTS, RUN, source)
    assert "http" not in text
    assert "@import" not in text
    assert "url(" not in text
    for item in fault.iter():
        assert item.get("src") is None
        assert item.get("href", "#").startswith("#")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 99), st.floats()), min_size=1, max_size=30),
    st.text(max_size=12),
    st.sampled_from(("auto", "log", "share")),
)
def test_every_chart_is_well_formed_xml(pairs: list[tuple[int, float]], label: str, scale: str) -> None:
    held = Series("loss", tuple(step for step, _ in pairs), tuple(value for _, value in pairs))
    zone = Zone(1e-4, 1e-2, label)
    made = plot(label, [(label, held), ("other", held)], unit=label, scale=scale, zone=zone, flags=[(3, label)])
    template = environment()
    template.globals.update(width=WIDTH, height=HEIGHT)
    text = str(getattr(template.get_template("plot.svg.j2").module, "panel")(made, "plot-1"))  # noqa: B009  # untyped
    allowed = "".join(char if char.isprintable() or char == "\n" else "?" for char in text)
    tree = ElementTree.fromstring(allowed)
    for shape in (*tree.iter("polyline"), *tree.iter("polygon")):
        for pair in shape.get("points", "").split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT


@pytest.mark.parametrize(
    ("place", "numbers", "hits"),
    [
        (Place(file="train.py", line=6), [4, 5, 6, 7, 8], [6]),
        (Place(file="train.py", line=1), [1, 2, 3], [1]),
        (Place(file="train.py", line=10), [8, 9, 10], [10]),
        (Place(file="train.py", line=8), [6, 7, 8, 9, 10], [8]),
        (Place(file="train.py", line=6, end_line=7), [4, 5, 6, 7, 8], [6, 7]),
        (Place(file="train.py", line=6, end_line=2), [4, 5, 6, 7, 8], [6]),
        (Place(file="train.py", line=11), [], []),
        (Place(file="train.py", line=0), [], []),
        (Place(file="train.py"), [], []),
        (Place(file="gone.py", line=1), [], []),
        (Place(module="head"), [], []),
    ],
)
def test_quotes(place: Place, numbers: list[int], hits: list[int]) -> None:
    rows = quoted(place, source)
    assert [row.number for row in rows] == numbers
    assert [row.number for row in rows if row.hit] == hits


def test_a_long_line_and_a_long_statement_are_cut() -> None:
    rows = quoted(Place(file="x", line=1, end_line=400), lambda _: ["y" * 5000] * 500)
    assert len(rows) == 10
    assert all(len(row.text) < 320 for row in rows)


def test_an_empty_file_and_an_empty_line_can_be_quoted() -> None:
    assert quoted(Place(file="x", line=1), lambda _: []) == []
    rows = quoted(Place(file="x", line=1), lambda _: ["", ""])
    assert [row.number for row in rows] == [1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the loss is stuck", "The loss is stuck."),
        ("cross_entropy got probabilities", "cross_entropy got probabilities."),
        ("optimizer.step() came first.", "optimizer.step() came first."),
        ("", ""),
    ],
)
def test_sentences(text: str, expected: str) -> None:
    assert said(text) == expected
