"""Words that are numbered per set of rows: told where the numbers part, and nowhere else."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from clew.observe import provenance
from clew.observe.coded import MARK
from clew.observe.ledger import LEDGER
from clew.observe.watches.codes_agree import CodesAgree

pandas = pytest.importorskip("pandas")
sklearn = pytest.importorskip("sklearn")
preprocessing = pytest.importorskip("sklearn.preprocessing")

BRANDS = [f"brand {letter}" for letter in "abcdefghijklmnop"]


@pytest.fixture(autouse=True)
def patched() -> Iterator[None]:
    provenance.install("sklearn", sklearn)
    provenance.install("pandas", pandas)
    LEDGER.clear()
    yield
    LEDGER.clear()


def frame(rows: int = 400, seed: int = 0, without: tuple[str, ...] = ()) -> Any:
    draw = np.random.default_rng(seed)
    names = [name for name in BRANDS if name not in without]
    return pandas.DataFrame({"brand": draw.choice(names, rows), "km": draw.normal(size=rows)})


def parts() -> tuple[Any, Any]:
    """Rows of one table; one brand happens to have no row in the smaller part."""
    whole = frame()
    held = whole[(whole.index % 5 == 0) & (whole.brand != BRANDS[2])]
    return whole.drop(held.index), held


def told() -> tuple[str, Any]:
    answer = CodesAgree(None).read()  # type: ignore[arg-type]  # it asks the ledger alone
    return getattr(answer, "outcome", "unclear"), answer


def by_categorical(table: Any) -> Any:
    return pandas.Categorical(table["brand"]).codes


def by_accessor(table: Any) -> Any:
    return table["brand"].astype("category").cat.codes


def by_factorize(table: Any) -> Any:
    return pandas.factorize(table["brand"])[0]


def by_method(table: Any) -> Any:
    return table["brand"].factorize()[0]


def by_encoder(table: Any) -> Any:
    return preprocessing.LabelEncoder().fit_transform(table["brand"])


def by_ordinal(table: Any) -> Any:
    return preprocessing.OrdinalEncoder().fit_transform(table[["brand"]])


EACH = [by_categorical, by_accessor, by_factorize, by_method, by_encoder, by_ordinal]


@pytest.mark.parametrize("code", EACH)
def test_parts_that_are_numbered_by_themselves(code: Callable[[Any], Any]) -> None:
    one, other = parts()
    code(one)
    code(other)
    outcome, answer = told()
    assert outcome == "differ", answer
    assert "brand" in answer.says
    assert answer.where[0].file.endswith("test_codes.py")


@pytest.mark.parametrize("code", [by_categorical, by_encoder])
def test_two_files_that_both_count_their_rows_from_zero(code: Callable[[Any], Any]) -> None:
    code(frame())
    code(frame(120, seed=1, without=(BRANDS[1],)))
    assert told()[0] == "differ"


def given_categories() -> None:
    one, other = parts()
    known = sorted(one.brand.unique())
    for table in (one, other):
        _ = pandas.Categorical(table["brand"], categories=known).codes


def one_encoder() -> None:
    one, other = parts()
    encoder = preprocessing.LabelEncoder()
    encoder.fit_transform(one["brand"])
    encoder.transform(other["brand"])


def the_categories_of_the_first() -> None:
    one, other = parts()
    first = one["brand"].astype("category")
    _ = first.cat.codes
    _ = other["brand"].astype("category").cat.set_categories(first.cat.categories).cat.codes


def every_word_in_both() -> None:
    whole = frame(800)
    by_encoder(whole[:600])
    by_encoder(whole[600:])


def folds() -> None:
    whole = frame(60)
    for fold in range(3):
        by_encoder(whole[whole.index % 3 != fold])


def numbered_once_more_without_some_rows() -> None:
    whole = frame()
    by_accessor(whole)
    by_accessor(whole[whole.brand != BRANDS[1]].reset_index(drop=True))


def groups_with_numbers_of_their_own() -> None:
    whole = frame(600)
    for group in range(10):
        by_factorize(whole[whole.index % 10 == group])


def tables_that_share_a_name() -> None:
    by_encoder(frame())
    by_encoder(pandas.DataFrame({"brand": np.random.default_rng(1).choice(["x", "y", "z", BRANDS[3]], 200)}))


def pandas_numbering_for_itself() -> None:
    one, other = parts()
    for table in (one, other):
        table.groupby("brand")["km"].mean()
        table["brand"].astype("category").describe()


@pytest.mark.parametrize(
    "sound",
    [
        given_categories,
        one_encoder,
        the_categories_of_the_first,
        every_word_in_both,
        folds,
        numbered_once_more_without_some_rows,
        groups_with_numbers_of_their_own,
        tables_that_share_a_name,
        pandas_numbering_for_itself,
    ],
)
def test_sound_ways_to_number_words(sound: Callable[[], None]) -> None:
    sound()
    outcome, answer = told()
    assert outcome in ("agree", "unclear"), answer


def test_what_pandas_gives_is_what_it_gave() -> None:
    assert hasattr(pandas.factorize, MARK)
    codes, words = pandas.factorize(np.array(["b", "a", "b"], dtype=object))
    assert codes.tolist() == [0, 1, 0]
    assert list(words) == ["b", "a"]
    with pytest.raises(TypeError):
        pandas.Categorical()
    assert pandas.Series(["b", "a"], dtype="category").cat.codes.tolist() == [1, 0]
    assert not LEDGER.trouble
