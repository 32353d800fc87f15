"""`clew evidence` on a small map with every verdict, on our own map, and on the folklore map where it is at hand."""

import json
from pathlib import Path

import pytest

from clew.knowledge.base import FOLDER
from conftest import Clew

FOLKLORE = Path(__file__).resolve().parents[3] / "shared" / "folklore"
OWN = str(Path(FOLDER) / "claims.argdown")
SOURCE = """Source: a made-up text

Cats sleep a lot. They wake when it rains. Nobody knows why.

Dogs do not care about rain at all.
"""
MAP = """[Cats Sleep]: Cats are said to sleep much. #observation
  [A made-up text](https://example.org/cats)
  [evidence](evidence/cats.md#L3)
  > {quote}
  {{credence: 0.8}}
"""


@pytest.fixture
def small(clew: Clew) -> Clew:
    Path("evidence").mkdir()
    Path("evidence/cats.md").write_text(SOURCE)
    return clew


@pytest.mark.parametrize(
    ("quote", "verdict", "status"),
    [
        ("Cats sleep a lot. They wake when it rains.", "verbatim", 0),
        ("**Cats** sleep a lot... Nobody knows why.", "verbatim", 0),
        ("Cats sleep a lot. Nobody knows why.", "elided", 1),
        ("Cats sleep very little indeed, a lot.", "altered", 1),
        ("Dogs do not care about rain at all.", "elsewhere", 1),
        ("The moon is made of green cheese and butter.", "absent", 1),
    ],
)
def test_verdicts_and_exit_status(small: Clew, quote: str, verdict: str, status: int) -> None:
    Path("map.argdown").write_text(MAP.format(quote=quote))
    said = small("evidence", "check", "map.argdown", "--json", "out.json")
    assert said.status == status, said.out + said.err
    assert verdict in said.out
    table = json.loads(Path("out.json").read_text())
    assert table["schema"] == "clew/1"
    assert table["command"] == "evidence check"
    held = table["quotes"][0]
    assert held["claim"] == "Cats Sleep"
    assert held["file"] == "evidence/cats.md"
    assert held["lines"] == [3, 3]
    assert held["verdict"] == verdict
    assert set(held["sentences"][0]) >= {"index", "verdict", "line", "similarity"}
    assert set(table["summary"]) >= {"quotes", "verbatim", "sentences", "sentences_verbatim"}


def test_a_missing_source(clew: Clew) -> None:
    Path("map.argdown").write_text(MAP.format(quote="Cats sleep a lot."))
    said = clew("evidence", "check", "map.argdown", "--json", "out.json")
    assert said.status == 1
    assert json.loads(Path("out.json").read_text())["quotes"][0]["verdict"] == "source_missing"


def test_sealing_keeps_the_check_and_drops_the_words(small: Clew) -> None:
    Path("map.argdown").write_text(MAP.format(quote="They wake when it rains. Nobody knows why."))
    assert small("evidence", "seal", "map.argdown", "-o", "sealed.argdown").status == 0
    assert "wake" not in Path("sealed.argdown").read_text()
    assert small("evidence", "check", "sealed.argdown").status == 0
    Path("evidence/cats.md").write_text(SOURCE.replace("rains", "snows"))
    assert small("evidence", "check", "sealed.argdown").status == 1


def test_sealing_refuses_what_is_not_there(small: Clew) -> None:
    Path("map.argdown").write_text(MAP.format(quote="They wake when it snows."))
    said = small("evidence", "seal", "map.argdown", "-o", "sealed.argdown")
    assert said.status == 2
    assert "Cats Sleep" in said.err
    assert not Path("sealed.argdown").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"\xff\xfe\x00\x01binary", "bad.argdown"),
        (b"[A]: text {credence: 0.5", "bad.argdown:1"),
        (b"[A]: one\n\n[A]: two\n", "bad.argdown:3"),
        (b"[A]: one\n  + <Nothing>\n", "bad.argdown:2"),
        (b"[A]: one {credence: 7}\n", "A"),
    ],
)
@pytest.mark.parametrize("verb", ["check", "show"])
def test_bad_maps_get_a_sentence(clew: Clew, content: bytes, says: str, verb: str) -> None:
    Path("bad.argdown").write_bytes(content)
    said = clew("evidence", verb, "bad.argdown")
    if verb == "check" and b"credence: 7" in content:
        return  # a credence is not a quote: only showing the map needs it
    assert said.status == 2
    assert says in said.err
    assert len(said.err.strip().splitlines()) == 1


def test_a_map_that_is_not_there(clew: Clew) -> None:
    assert clew("evidence", "check", "gone.argdown").status == 2
    assert clew("evidence", "show", ".").status == 2


def test_clews_own_map_can_be_read_and_drawn(clew: Clew) -> None:
    said = clew("evidence", "show", "--svg", "own.svg", "--html", "own.html")
    assert said.status == 0
    assert "overfit-one-batch" in said.out
    assert Path("own.svg").read_text().startswith("<svg")
    assert "<script" not in Path("own.html").read_text()


def test_when_no_source_is_at_hand_it_says_how_to_name_them(clew: Clew) -> None:
    said = clew("evidence", "check")
    assert said.status == 1
    assert "--sources FOLDER" in said.out


def test_clews_own_map_carries_no_quotation() -> None:
    lines = Path(OWN).read_text().splitlines()
    assert not [line for line in lines if line.lstrip().startswith(">")]


@pytest.mark.skipif(not FOLKLORE.exists(), reason="the cited sources are not part of the project")
def test_clews_own_quotations_stand_in_their_sources(clew: Clew) -> None:
    said = clew("evidence", "check", "--sources", str(FOLKLORE), "--json", "out.json")
    assert said.status == 0, said.out
    assert json.loads(Path("out.json").read_text())["summary"]["quotes"] >= 250


@pytest.mark.skipif(not FOLKLORE.exists(), reason="the folklore map is not part of the project")
def test_the_folklore_map(clew: Clew) -> None:
    path = str(FOLKLORE / "ml_debug_folklore.argdown")
    assert clew("evidence", "check", path, "--json", "out.json").status == 1
    table = json.loads(Path("out.json").read_text())
    verdicts = {held["claim"]: held["verdict"] for held in table["quotes"]}
    assert table["summary"]["quotes"] == 28
    assert verdicts["CS231n Overfit"] == "verbatim"
    assert verdicts["FSDL Normalize"] == "altered"
    assert verdicts["Goodfellow Bug Mask"] == "elided"
    assert clew("evidence", "show", path).status == 0
