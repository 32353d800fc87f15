"""From tables to tensors: fits before splits, splits across time, and that looking changes nothing."""

import math
import pickle
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loops_data import answer, by_slices, fit, lines, loader, mlp, score
from torch.utils.data import DataLoader, TensorDataset

import clew
from clew.observe import provenance
from clew.observe.ledger import LEDGER
from clew.observe.watches.fit_before_split import FitBeforeSplit
from clew.observe.watches.nonfinite_data import NonfiniteData
from clew.observe.watches.split_by_time import SplitByTime

pandas = pytest.importorskip("pandas")
sklearn = pytest.importorskip("sklearn")
selection = pytest.importorskip("sklearn.model_selection")
preprocessing = pytest.importorskip("sklearn.preprocessing")
impute = pytest.importorskip("sklearn.impute")
feature_selection = pytest.importorskip("sklearn.feature_selection")
compose = pytest.importorskip("sklearn.compose")
text = pytest.importorskip("sklearn.feature_extraction.text")
utils = pytest.importorskip("sklearn.utils")

Loop = Callable[[], Any]
Table = Any


@pytest.fixture(autouse=True, scope="module")
def patched() -> None:
    provenance.install("sklearn", sklearn)
    provenance.install("pandas", pandas)
    provenance.install("torch", torch)


def table(rows: int = 200, columns: int = 6) -> tuple[Table, Table]:
    draw = np.random.default_rng(0)
    x = 5 + 3 * draw.normal(size=(rows, columns))
    return x, (x.sum(1) > 5 * columns).astype(int)


def tensors(x: Table, y: Table) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(np.asarray(x), dtype=torch.float32), torch.tensor(np.asarray(y))


def learn(x: Table, y: Table, x_test: Table, y_test: Table) -> None:
    """Trained and evaluated through loaders."""
    model = fit(loader(*tensors(x, y)), mlp(np.asarray(x).shape[1]), 1)
    score(model, loader(*tensors(x_test, y_test), 25))


# --- fit_before_split: seen


def scaled_then_split() -> None:
    x, y = table()
    x = preprocessing.StandardScaler().fit_transform(x)
    x_train, x_test, y_train, y_test = selection.train_test_split(x, y)
    learn(x_train, y_train, x_test, y_test)


def fitted_on_all_then_applied() -> None:
    x, y = table()
    scaler = preprocessing.MinMaxScaler().fit(x)
    x_train, x_test, y_train, y_test = selection.train_test_split(x, y)
    learn(scaler.transform(x_train), y_train, scaler.transform(x_test), y_test)


def fitted_on_all_after_the_split() -> None:
    x, y = table()
    x_train, x_test, y_train, y_test = selection.train_test_split(x, y)
    scaler = preprocessing.StandardScaler().fit(np.vstack([x_train, x_test]))
    learn(scaler.transform(x_train), y_train, scaler.transform(x_test), y_test)


def columns_of_a_frame() -> None:
    """Some columns are scaled in place; the frame that is split has others too."""
    x, y = table()
    frame = pandas.DataFrame(x, columns=list("abcdef")).assign(kind=["u", "v"] * 100, y=y)
    frame[["a", "b", "c"]] = preprocessing.StandardScaler().fit_transform(frame[["a", "b", "c"]])
    train, test = selection.train_test_split(frame)
    learn(train[list("abcdef")], train["y"], test[list("abcdef")], test["y"])


def split_by_hand() -> None:
    x, y = table()
    x = preprocessing.StandardScaler().fit_transform(x)
    learn(x[:150], y[:150], x[150:], y[150:])


def split_by_torch() -> None:
    data = TensorDataset(*tensors(*_imputed_then_scaled()))
    first, second = torch.utils.data.random_split(data, [150, 50])
    model = fit(DataLoader(first, batch_size=16, shuffle=True), epochs=1)
    score(model, DataLoader(second, batch_size=25))


def _imputed_then_scaled() -> tuple[Table, Table]:
    x, y = table()
    x[::9, 2] = np.nan
    return preprocessing.StandardScaler().fit_transform(impute.SimpleImputer().fit_transform(x)), y


def selected_by_hand() -> None:
    x, y = table()
    chosen = feature_selection.SelectKBest(k=3).fit(x, y)
    x_train, x_test, y_train, y_test = selection.train_test_split(x[:, chosen.get_support()], y)
    learn(x_train, y_train, x_test, y_test)


def mixed_columns() -> None:
    x, y = table()
    frame = pandas.DataFrame(x, columns=list("abcdef")).assign(kind=["u", "v"] * 100)
    both = compose.ColumnTransformer(
        [("n", preprocessing.StandardScaler(), list("abc")), ("k", preprocessing.OneHotEncoder(), ["kind"])]
    )
    x_train, x_test, y_train, y_test = selection.train_test_split(both.fit_transform(frame), y)
    learn(x_train, y_train, x_test, y_test)


def words() -> None:
    texts = [f"word{i % 37} word{i % 11} word{i % 5} number{i}" for i in range(200)]
    x = text.TfidfVectorizer(max_features=60).fit_transform(texts)
    y = np.arange(200) % 2
    x_train, x_test, y_train, y_test = selection.train_test_split(x, y)
    learn(x_train.toarray(), y_train, x_test.toarray(), y_test)


def repeated_then_split() -> None:
    x, y = table()
    more = utils.resample(x[y == 1], n_samples=300, random_state=0)
    both, labels = np.vstack([x, more]), np.concatenate([y, np.ones(300, int)])
    x_train, x_test, y_train, y_test = selection.train_test_split(both, labels)
    learn(x_train, y_train, x_test, y_test)


def joined_with_copies() -> None:
    x, y = table()
    frame = pandas.DataFrame(x).assign(y=y)
    frame = pandas.concat([frame, frame[frame["y"] == 1], frame[frame["y"] == 1]], ignore_index=True)
    train, test = selection.train_test_split(frame)
    learn(train.drop(columns="y"), train["y"], test.drop(columns="y"), test["y"])


def drawn_again() -> None:
    x, y = table()
    frame = pandas.DataFrame(x).assign(y=y)
    rare = frame[frame["y"] == 1].sample(400, replace=True, random_state=0)
    train, test = selection.train_test_split(pandas.concat([frame[frame["y"] == 0], rare]))
    learn(train.drop(columns="y"), train["y"], test.drop(columns="y"), test["y"])


# --- fit_before_split: silent


def drawn_again_after_the_split() -> None:
    x, y = table()
    frame = pandas.DataFrame(x).assign(y=y)
    for seed in range(2):
        train, test = selection.train_test_split(frame, random_state=seed)
        rare = train[train["y"] == 1].sample(400, replace=True, random_state=seed)
        train = pandas.concat([train, rare])
        learn(train.drop(columns="y"), train["y"], test.drop(columns="y"), test["y"])


def put_together_from_files() -> None:
    x, y = table()
    frame = pandas.DataFrame(x).assign(y=y)
    whole = pandas.concat([frame[:100], frame[100:]])
    train, test = selection.train_test_split(whole)
    scaler = preprocessing.StandardScaler().fit(train.drop(columns="y"))
    learn(scaler.transform(train.drop(columns="y")), train["y"], scaler.transform(test.drop(columns="y")), test["y"])


def split_then_scaled() -> None:
    x, y = table()
    x_train, x_test, y_train, y_test = selection.train_test_split(x, y)
    scaler = preprocessing.StandardScaler()
    learn(scaler.fit_transform(x_train), y_train, scaler.transform(x_test), y_test)


def split_by_hand_then_scaled() -> None:
    x, y = table()
    scaler = preprocessing.StandardScaler().fit(x[:150])
    learn(scaler.transform(x[:150]), y[:150], scaler.transform(x[150:]), y[150:])


def chain_after_the_split() -> None:
    x, y = table()
    x[::9, 2] = np.nan
    x_train, x_test, y_train, y_test = selection.train_test_split(x, y)
    imputer, scaler = impute.SimpleImputer(), preprocessing.StandardScaler()
    x_train = scaler.fit_transform(imputer.fit_transform(x_train))
    learn(x_train, y_train, scaler.transform(imputer.transform(x_test)), y_test)


def folds_each_with_a_scaler() -> None:
    x, y = table()
    for train, test in selection.KFold(4).split(x):
        scaler = preprocessing.MinMaxScaler()
        learn(scaler.fit_transform(x[train]), y[train], scaler.transform(x[test]), y[test])


def splits_by_several_seeds() -> None:
    x, y = table()
    for seed in range(3):
        x_train, x_test, y_train, y_test = selection.train_test_split(x, y, random_state=seed)
        imputer, scaler = impute.SimpleImputer(), preprocessing.StandardScaler()
        x_train = scaler.fit_transform(imputer.fit_transform(x_train))
        learn(x_train, y_train, scaler.transform(imputer.transform(x_test)), y_test)


def only_categories() -> None:
    x, y = table()
    names = np.array(["no", "yes"])[y]
    y = preprocessing.LabelEncoder().fit_transform(names)
    kinds = preprocessing.OneHotEncoder(sparse_output=False).fit_transform(np.round(x[:, :2]))
    scaler = preprocessing.StandardScaler()
    x_train, x_test, y_train, y_test = selection.train_test_split(np.hstack([x, kinds]), y)
    learn(scaler.fit_transform(x_train), y_train, scaler.transform(x_test), y_test)


def few_values() -> None:
    """Held-out rows of a table of categories have twins in training, and the scaler saw those."""
    x = np.random.default_rng(0).integers(0, 3, (200, 2)).astype(float)
    y = x.sum(1).astype(int) % 2
    x_train, x_test, y_train, y_test = selection.train_test_split(x, y)
    scaler = preprocessing.StandardScaler().fit(x_train)
    learn(scaler.transform(x_train), y_train, scaler.transform(x_test), y_test)


def training_score_only() -> None:
    """Every row is trained on; the score on the training rows is no validation."""
    x, y = table()
    x = preprocessing.StandardScaler().fit_transform(x)
    model = fit(loader(*tensors(x, y)), epochs=1)
    score(model, loader(*tensors(x, y), 25))


def without_fits() -> None:
    x, y = table()
    learn(x[:150], y[:150], x[150:], y[150:])


# --- fit_before_split: labels averaged by group


def visits(rows: int = 600, users: int = 150) -> Table:
    drawn = np.random.default_rng(0)
    user = drawn.integers(0, users, rows)
    leaning = drawn.random(users)[user]
    held = {"user": user, "age": drawn.normal(40, 9, users)[user], "bid": drawn.gamma(2, 1, rows)}
    return pandas.DataFrame({**held, "bought": (drawn.random(rows) < leaning).astype(int)})


def rate(table: Table, source: Table, prior: float = 0.0, column: str = "bought") -> Any:
    base, found = source[column].mean(), source.groupby("user")[column].agg(["sum", "count"])
    return table["user"].map((found["sum"] + prior * base) / (found["count"] + prior)).fillna(base)


def taught(train: Table, test: Table, *names: str) -> None:
    chosen = ["age", "bid", *names]
    scaler = preprocessing.StandardScaler().fit(train[chosen])
    learn(scaler.transform(train[chosen]), train["bought"], scaler.transform(test[chosen]), test["bought"])


def rate_before_the_split() -> None:
    frame = visits()
    frame["rate"] = frame.groupby("user")["bought"].transform("mean")
    taught(*selection.train_test_split(frame, stratify=frame["bought"]), "rate")


def shrunken_rate_before_the_split() -> None:
    frame = visits()
    frame["rate"] = rate(frame, frame, 4.0).round(4)
    x_train, x_test, y_train, y_test = selection.train_test_split(frame.drop(columns="bought"), frame["bought"])
    taught(x_train.assign(bought=y_train), x_test.assign(bought=y_test), "rate")


def rate_of_the_training_part() -> None:
    frame = visits()
    train, test = selection.train_test_split(frame, stratify=frame["bought"])
    parts = [rate(train[at::5], train.drop(train.index[at::5])) for at in range(5)]
    taught(train.assign(rate=pandas.concat(parts)), test.assign(rate=rate(test, train)), "rate")


def rate_out_of_fold_before_the_split() -> None:
    frame = visits()
    frame["rate"] = pandas.concat([rate(frame[at::5], frame.drop(frame.index[at::5])) for at in range(5)])
    taught(*selection.train_test_split(frame, stratify=frame["bought"]), "rate")


def rate_of_older_rows() -> None:
    frame = visits(1200)
    older, frame = frame[:600], frame[600:].reset_index(drop=True)
    frame["rate"] = rate(frame, older, 2.0)
    taught(*selection.train_test_split(frame, stratify=frame["bought"]), "rate")


def other_means_by_user() -> None:
    frame = visits()
    frame["visits"] = frame.groupby("user")["bid"].transform("count").astype(float)
    frame["usual_bid"] = rate(frame, frame, column="bid")
    taught(*selection.train_test_split(frame, stratify=frame["bought"]), "visits", "usual_bid")


def rate_of_large_groups() -> None:
    frame = visits(2400, users=24)
    frame["rate"] = rate(frame, frame)
    taught(*selection.train_test_split(frame, stratify=frame["bought"]), "rate")


def rate_that_is_no_input() -> None:
    frame = visits()
    frame["rate"] = rate(frame, frame)
    taught(*selection.train_test_split(frame, stratify=frame["bought"]))


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (rate_before_the_split, "labels_averaged"),
        (shrunken_rate_before_the_split, "labels_averaged"),
        (rate_of_the_training_part, "absent"),
        (rate_out_of_fold_before_the_split, "absent"),
        (rate_of_older_rows, "absent"),
        (other_means_by_user, "absent"),
        (rate_of_large_groups, "absent"),
        (rate_that_is_no_input, "absent"),
        (scaled_then_split, "seen"),
        (fitted_on_all_then_applied, "seen"),
        (fitted_on_all_after_the_split, "seen"),
        (columns_of_a_frame, "seen"),
        (split_by_hand, "seen"),
        (split_by_torch, "seen"),
        (selected_by_hand, "seen"),
        (mixed_columns, "seen"),
        (words, "seen"),
        (repeated_then_split, "seen"),
        (joined_with_copies, "seen"),
        (drawn_again, "seen"),
        (drawn_again_after_the_split, "absent"),
        (put_together_from_files, "absent"),
        (split_then_scaled, "absent"),
        (split_by_hand_then_scaled, "absent"),
        (chain_after_the_split, "absent"),
        (folds_each_with_a_scaler, "absent"),
        (splits_by_several_seeds, "absent"),
        (only_categories, "absent"),
        (few_values, "absent"),
        (training_score_only, "unclear"),
        (without_fits, "unclear"),
    ],
)
def test_fit_before_split(tmp_path: Any, loop: Loop, outcome: str) -> None:
    assert answer(tmp_path, FitBeforeSplit, loop)["outcome"] == outcome


def test_large_tables_are_followed_by_a_sample_of_their_rows(tmp_path: Any) -> None:
    def loop(before: bool) -> None:
        x, y = table(30_000, 4)
        scaler = preprocessing.StandardScaler().fit(x) if before else None
        x_train, x_test, y_train, y_test = selection.train_test_split(x, y)
        scaler = scaler or preprocessing.StandardScaler().fit(x_train)
        x_train, x_test = scaler.transform(x_train), scaler.transform(x_test)
        learn(x_train[:500], y_train[:500], x_test[:500], y_test[:500])

    assert answer(tmp_path, FitBeforeSplit, lambda: loop(True))["outcome"] == "seen"
    assert answer(tmp_path, FitBeforeSplit, lambda: loop(False))["outcome"] == "absent"


def test_fit_and_split_are_pointed_at(tmp_path: Any) -> None:
    told = answer(tmp_path, FitBeforeSplit, scaled_then_split)
    assert lines(told) == [
        "x = preprocessing.StandardScaler().fit_transform(x)",
        "x_train, x_test, y_train, y_test = selection.train_test_split(x, y)",
    ]
    assert told["says"] == "StandardScaler was fitted before the split and saw 100% of the held-out rows"


def test_the_line_that_averages_labels_is_pointed_at(tmp_path: Any) -> None:
    told = answer(tmp_path, FitBeforeSplit, rate_before_the_split)
    assert lines(told)[0] == 'frame["rate"] = frame.groupby("user")["bought"].transform("mean")'
    assert "the mean of the labels by user" in told["says"]


@pytest.fixture
def oversampler() -> Iterator[Any]:
    """A stand-in for imbalanced-learn, which need not be installed."""

    class Doubling:
        def fit_resample(self, X: Table, y: Table) -> tuple[Table, Table]:
            again = np.flatnonzero(y == y.max())
            return np.vstack([X, X[again] + 1e-3]), np.concatenate([y, y[again]])

    module = types.ModuleType("imblearn.over_sampling")
    module.Doubling = Doubling  # type: ignore[attr-defined]  # made up here
    provenance._patch("imblearn.over_sampling", module)
    yield Doubling
    del module


def test_oversampling_before_the_split(tmp_path: Any, oversampler: Any) -> None:
    def before() -> None:
        x, y = oversampler().fit_resample(*table())
        x_train, x_test, y_train, y_test = selection.train_test_split(x, y)
        learn(x_train, y_train, x_test, y_test)

    def after() -> None:
        for seed in range(2):
            x_train, x_test, y_train, y_test = selection.train_test_split(*table(), random_state=seed)
            x_train, y_train = oversampler().fit_resample(x_train, y_train)
            learn(x_train, y_train, x_test, y_test)

    assert answer(tmp_path, FitBeforeSplit, before)["outcome"] == "seen"
    assert answer(tmp_path, FitBeforeSplit, after)["outcome"] == "absent"


# --- split_by_time


def series(rows: int = 300) -> Table:
    draw = np.random.default_rng(0)
    return np.cumsum(draw.normal(size=rows))


def dated(**index: Any) -> Table:
    days = pandas.date_range("2020-01-01", periods=300, **index)
    return pandas.DataFrame({"x": series(), "y": series()}, index=days)


def in_windows() -> None:
    held = series()
    x = np.stack([held[i : i + 8] for i in range(280)])
    selection.train_test_split(x, held[8:288])


def in_windows_of_torch() -> None:
    held = series()
    x = np.stack([held[i : i + 8] for i in range(280)]).astype(np.float32)
    torch.utils.data.random_split(TensorDataset(torch.from_numpy(x)), [200, 80])


def lagged() -> None:
    frame = pandas.DataFrame({"y": series()})
    frame["before"] = frame["y"].shift(1)
    frame["rain"] = np.random.default_rng(1).normal(size=300)
    frame = frame.dropna()
    selection.train_test_split(frame[["before", "rain"]], frame["y"])


def events() -> None:
    """A list of customers by the day they came: dated and sorted, but no series."""
    days = np.sort(np.random.default_rng(0).integers(0, 10**6, 300))
    frame = pandas.DataFrame({"day": pandas.to_datetime("2020-01-01") + pandas.to_timedelta(days, unit="m")})
    selection.train_test_split(frame.assign(x=np.random.default_rng(1).normal(size=300)))


def sorted_by_value() -> None:
    x, y = table()
    selection.train_test_split(np.sort(x, 0), y)


def characters() -> None:
    ids = np.random.default_rng(0).integers(0, 30, 300)
    selection.train_test_split(np.stack([ids[i : i + 3] for i in range(280)]), ids[3:283])


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (lambda: selection.train_test_split(dated(freq="h")), "random_over_time"),
        (lambda: selection.train_test_split(dated(freq="B")), "random_over_time"),
        (lambda: selection.train_test_split(dated().reset_index(names="date")), "random_over_time"),
        (lambda: selection.train_test_split(dated().reset_index(names="when").astype({"when": str})), "by_time"),
        (
            lambda: selection.train_test_split(dated().reset_index(names="date").astype({"date": str})),
            "random_over_time",
        ),
        (in_windows, "random_over_time"),
        (in_windows_of_torch, "random_over_time"),
        (lagged, "random_over_time"),
        (lambda: selection.train_test_split(dated(), shuffle=False), "by_time"),
        (lambda: selection.train_test_split(dated().sample(frac=1.0, random_state=0)), "by_time"),
        (lambda: selection.train_test_split(*table()), "by_time"),
        (events, "by_time"),
        (sorted_by_value, "by_time"),
        (characters, "by_time"),
        (lambda: selection.train_test_split(np.arange(300)), "unclear"),
        (lambda: None, "unclear"),
    ],
)
def test_split_by_time(tmp_path: Any, loop: Loop, outcome: str) -> None:
    assert answer(tmp_path, SplitByTime, loop)["outcome"] == outcome


def shops(cut: Callable[[Table], tuple[Table, Table]]) -> None:
    """Five shops over a hundred days, split by hand."""
    days = pandas.date_range("2020-01-01", periods=100)
    frames = [pandas.DataFrame({"date": days, "shop": f"s{k}", "x": series(100) + k, "y": k}) for k in range(5)]
    frame = pandas.concat(frames, ignore_index=True)
    frame["z"] = np.random.default_rng(1).normal(size=len(frame))
    cut(frame)
    assert len(LEDGER.splits) <= 1, "what looking itself takes from a table is no split"


def opposite(frame: Table, mask: Table) -> tuple[Table, Table]:
    return frame[mask], frame[~mask]


def sample_and_drop(frame: Table) -> tuple[Table, Table]:
    train = frame.sample(frac=0.8, random_state=0)
    return train, frame.drop(train.index)


CUTS: dict[str, tuple[Callable[[Table], tuple[Table, Table]], str]] = {
    "random mask": (lambda frame: opposite(frame, np.random.default_rng(0).random(len(frame)) < 0.8), "random"),
    "sample and drop": (sample_and_drop, "random"),
    "by date": (lambda frame: opposite(frame, frame["date"] < pandas.Timestamp("2020-03-20")), "unclear"),
    "by shop": (lambda frame: opposite(frame, frame["shop"] != "s2"), "unclear"),
    "by a limit": (lambda frame: opposite(frame, frame["z"] < 0.5), "unclear"),
    "one side": (lambda frame: (frame[np.random.default_rng(0).random(len(frame)) < 0.8], None), "unclear"),
    "people": (lambda frame: opposite(frame.drop(columns="date"), np.arange(len(frame)) % 3 > 0), "unclear"),
}


@pytest.mark.parametrize("cut", CUTS)
def test_series_that_are_split_by_hand(tmp_path: Any, cut: str) -> None:
    told = answer(tmp_path, SplitByTime, lambda: shops(CUTS[cut][0]))
    assert told["outcome"] == ("random_over_time" if CUTS[cut][1] == "random" else "unclear"), told


# --- what else is noted, and what must not be


def test_gaps_of_a_file_are_told(tmp_path: Any) -> None:
    (tmp_path / "people.csv").write_text("age,height\n1,2\n,3\n4,\n,5\n")

    def loop() -> None:
        frame = pandas.read_csv(tmp_path / "people.csv")
        x = torch.tensor(frame.to_numpy(), dtype=torch.float32).repeat(8, 3)
        fit(by_slices(x, torch.arange(32) % 4))

    told = answer(tmp_path, NonfiniteData, loop)
    assert told["outcome"] == "seen"
    assert told["measured"]["gaps_on_reading"] == "people.csv: age (2 of 4), height (1 of 4)"


@pytest.mark.parametrize(("way", "outcome"), [("late", "wiped"), ("early", "absent"), ("finite", "absent")])
def test_a_column_whose_mean_was_infinite_is_wiped(tmp_path: Any, way: str, outcome: str) -> None:
    """Replaced before the mean is taken, an infinite value does no harm; a column that is never used is no fault."""
    drawn = np.random.default_rng(0).normal(size=(1600, 4))
    drawn[:, 0] = 0.0 if way == "finite" else drawn[:, 0]
    held = pandas.DataFrame(drawn, columns=list("abcd"))
    held.loc[7, "c"] = 4.0 if way == "finite" else math.inf
    held.to_csv(tmp_path / "loans.csv", index=False)

    def loop() -> None:
        x = torch.tensor(pandas.read_csv(tmp_path / "loans.csv").to_numpy(), dtype=torch.float32)
        if way == "early":
            x = x.clamp(-5, 5)
        x = torch.nan_to_num((x - x.mean(0)) / (x.std(0) + 1e-6), nan=0.0, posinf=0.0, neginf=0.0)
        fit(by_slices(x, torch.arange(1600) % 4), torch.nn.Linear(4, 4), epochs=4)

    told = answer(tmp_path, NonfiniteData, loop)
    assert told["outcome"] == outcome, told
    if outcome == "wiped":
        assert (told["measured"]["columns"], told["where"][0]["column"]) == ("2", "c")


def test_results_and_random_states_are_untouched() -> None:
    """The same numbers, kinds and random states as from the functions themselves."""
    x, y = table()
    x[::9, 2] = np.nan

    def run(split: Any, imputer: Any) -> tuple[Any, ...]:
        np.random.seed(3)
        torch.manual_seed(3)
        kept = x.copy()
        parts = split(kept, y, test_size=0.3)
        scaled = imputer(parts[0])
        assert np.array_equal(kept, x, equal_nan=True)
        return (*parts, scaled, np.random.random(4), torch.get_rng_state().numpy())

    bare = run(selection.train_test_split.__wrapped__, lambda t: impute.SimpleImputer().fit(t).transform(t))
    seen = run(selection.train_test_split, lambda t: impute.SimpleImputer().fit_transform(t))
    assert all(np.array_equal(a, b, equal_nan=True) and a.dtype == b.dtype for a, b in zip(bare, seen, strict=True))


def test_patched_things_pickle_and_clone() -> None:
    scaler = preprocessing.StandardScaler().fit(table()[0])
    again = pickle.loads(pickle.dumps(scaler))  # noqa: S301  # our own bytes
    assert np.array_equal(again.mean_, scaler.mean_)
    assert pickle.loads(pickle.dumps(selection.train_test_split)) is selection.train_test_split  # noqa: S301  # as above
    assert sklearn.base.clone(scaler).get_params() == scaler.get_params()


def test_errors_and_warnings_come_from_the_same_place(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="could not convert") as caught:
        preprocessing.StandardScaler().fit([["x"]])
    assert not any(str(entry.path).startswith(str(Path(clew.__file__).parent)) for entry in caught.traceback[1:])
    (tmp_path / "odd.csv").write_text("a::b\n1::2\n")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        pandas.read_csv(tmp_path / "odd.csv", sep="::")
    assert {warning.filename for warning in told} == {__file__}


def test_nothing_that_fails_in_looking_reaches_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("in the instrument")

    monkeypatch.setattr(provenance, "sampled", fails)
    monkeypatch.setattr(provenance, "order_in_time", fails)
    monkeypatch.setattr(provenance, "users_place", fails)
    x, y = table()
    scaled = preprocessing.StandardScaler().fit_transform(x)
    assert len(selection.train_test_split(scaled, y)) == 4
    assert "RuntimeError: in the instrument" in LEDGER.trouble
    LEDGER.clear()
    assert not LEDGER.trouble


def test_many_calls_are_not_all_kept() -> None:
    LEDGER.clear()
    x = table(8)[0]
    for _ in range(300):
        preprocessing.StandardScaler().fit_transform(x)
        selection.train_test_split(x)
    assert len(LEDGER.calls) == 256
    assert len(LEDGER.splits) == 64
    LEDGER.clear()
