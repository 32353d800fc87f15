import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.records import exact
from clew.records.clue import Clue, Reading, Unclear
from clew.records.place import Place

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
NAMES = st.text().filter(lambda name: name != exact.TAG)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner), max_leaves=20)


def alike(a: Any, b: Any) -> bool:
    """Equality in which NaN equals NaN and 1 is not 1.0 or True."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return set(a) == set(b) and all(alike(a[key], b[key]) for key in a)
    return bool(a == b)


@given(VALUES)
def test_everything_comes_back(value: Any) -> None:
    assert alike(exact.loads(exact.dumps(value)), value)


@given(VALUES)
def test_the_text_is_standard_json(value: Any) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    json.loads(exact.dumps(value), parse_constant=refuse)
    json.loads(exact.pretty(value), parse_constant=refuse)


@given(st.dictionaries(NAMES, SCALARS))
def test_the_order_of_names_does_not_change_the_digest(table: dict[str, Any]) -> None:
    turned = dict(reversed(list(table.items())))
    assert exact.digest(table) == exact.digest(turned)


def test_nan_is_explicit() -> None:
    assert exact.dumps({"loss": math.nan}) == '{"loss":{"$float":"nan"}}'
    assert exact.dumps([math.inf, -math.inf]) == '[{"$float":"inf"},{"$float":"-inf"}]'


def test_the_tag_cannot_be_forged() -> None:
    with pytest.raises(ValueError, match="taken"):
        exact.dumps({exact.TAG: "nan"})


def test_what_is_not_a_value_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot be recorded"):
        exact.dumps(object())
    with pytest.raises(ValueError, match="not JSON"):
        exact.loads("[NaN]")


def test_a_clue_comes_back_with_nan_and_place() -> None:
    clue = Clue(
        "init_loss",
        "far_above",
        measured=(("loss", math.nan), ("ratio", math.inf), ("steps", 3)),
        where=(Place(file="train.py", line=41, symbol="step"), Place(module="head", step=0)),
        under=(("dropout", "off"),),
        reads=("loss curve",),
        says="first loss is not a number",
    )
    again = Clue.from_json(exact.loads(exact.dumps(clue.to_json())))
    assert again.digest == clue.digest
    assert again.where == clue.where
    assert math.isnan(float(dict(again.measured)["loss"] or 0))


@given(st.text(), st.text(), st.dictionaries(st.text(min_size=1), st.floats()))
def test_the_digest_tells_clues_apart(test: str, outcome: str, measured: dict[str, float]) -> None:
    clue = Clue(test, outcome, tuple(sorted(measured.items())))
    assert clue.digest == Clue(test, outcome, tuple(sorted(measured.items()))).digest
    assert clue.digest != clue._replace(outcome=outcome + "x").digest
    assert clue.digest != clue._replace(measured=(*clue.measured, ("zz", 1.0))).digest


def test_records_are_frozen() -> None:
    clue = Clue("a", "b")
    with pytest.raises(AttributeError):
        clue.outcome = "c"  # type: ignore[misc]
    reading = Reading(ratio=math.nan)
    with pytest.raises(AttributeError, match="not changed"):
        reading.measured = ()
    assert reading == Reading(ratio=math.nan)
    assert reading != reading.at(Place(file="a.py", line=1))
    assert Unclear("no validation data").why == "no validation data"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("train.py:41", Place(file="train.py", line=41)),
        ("a:b/train.py:41", Place(file="a:b/train.py", line=41)),
        ("train.py", Place(file="train.py")),
        ("module:encoder.layer.3", Place(module="encoder.layer.3")),
        ("parameter:fc.weight", Place(parameter="fc.weight")),
    ],
)
def test_places_are_read_as_people_write_them(text: str, place: Place) -> None:
    assert Place.parse(text) == place


def test_a_place_prints_what_it_has() -> None:
    assert str(Place(file="t.py", line=3, module="head", step=5, last_step=9, rank=1)) == (
        "t.py:3, module head, steps 5–9, rank 1"
    )
