"""Small data sets with one fault each, and sound ones: tables, arrays, texts and series of several formats."""

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn import datasets

Array = Any


class Fault(NamedTuple):
    """What is to be said: by which test, with which outcome, about which file; `rows` up to some at the edges."""

    test: str
    outcome: str
    file: str
    rows: tuple[int, int] | None = None
    column: str = ""


FAULTS: dict[str, Callable[[Path], Fault]] = {}
SOUND: dict[str, Callable[[Path], None]] = {}
TOPICS = {
    "sport": "goal match team coach league striker referee cup".split(),
    "money": "bank loan credit rate stock fund market invest".split(),
    "food": "soup bread salt oven cheese pepper dinner cook".split(),
}
FILLING = "the a of on with and my we they was is new old two after before today very quite some".split()


def fault(function: Callable[[Path], Fault]) -> Callable[[Path], Fault]:
    FAULTS[function.__name__] = function
    return function


def sound(function: Callable[[Path], None]) -> Callable[[Path], None]:
    SOUND[function.__name__] = function
    return function


def write(path: Path, head: Sequence[str], rows: Iterable[Iterable[Any]], sign: str = ",") -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=sign)
        writer.writerow(head)
        writer.writerows(rows)


def lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def digits(count: int = 900) -> tuple[Array, Array]:
    """Images of four by four pixels."""
    held = datasets.load_digits()
    order = rng(3).permutation(len(held.target))[:count]
    return held.images.reshape(-1, 4, 2, 4, 2).mean((2, 4))[order], held.target[order]


def four(folder: Path, x: Array, y: Array, at: int) -> None:
    """As people keep arrays: X_train, y_train, X_test, y_test."""
    for name, values in (("train", slice(None, at)), ("test", slice(at, None))):
        np.save(folder / f"X_{name}.npy", x[values])
        np.save(folder / f"y_{name}.npy", y[values])


def wine(copies: int = 1) -> tuple[list[str], Array, Array]:
    held = datasets.load_wine()
    order = rng(5).permutation(len(held.target))
    x, y = np.concatenate([held.data[order]] * copies), np.concatenate([held.target[order]] * copies)
    return list(held.feature_names), x + rng(0).normal(0, 0.02, x.shape) * x.std(0), y


def series(count: int = 1000) -> dict[str, Array]:
    """Temperature, humidity and load by the hour."""
    draws, hours = rng(2), np.arange(count)
    day = 8 * np.sin(hours / 24 * 2 * np.pi - 2) + 6 * np.sin(hours / 700)
    slow = np.zeros(count)
    for at in range(1, count):
        slow[at] = 0.9 * slow[at - 1] + draws.normal(0, 0.8)
    temp = 12 + day + slow
    return {
        "time": np.array([f"2021-{1 + h // 672:02d}-{1 + h // 24 % 28:02d} {h % 24:02d}:00" for h in hours]),
        "temp": temp.round(2),
        "humidity": np.clip(70 - 1.5 * day + draws.normal(0, 4, count), 5, 100).round(1),
        "load": (300 - 6 * temp + 25 * np.cos(hours / 12 * np.pi) + draws.normal(0, 6, count)).round(2),
    }


def keep(folder: Path, held: dict[str, Array]) -> None:
    write(folder / "grid.csv", list(held), zip(*held.values(), strict=True))


def texts(count: int, seed: int) -> list[tuple[str, str]]:
    draws, found = rng(seed), []
    for _ in range(count):
        topic = list(TOPICS)[draws.integers(3)]
        words = []
        for _ in range(draws.integers(6, 14)):
            sides = [(TOPICS[topic], draws.integers(8)), (FILLING, draws.integers(len(FILLING)))]
            source, at = sides[0] if draws.random() < 0.25 else sides[1]
            words.append(source[at])
        found.append((" ".join(words), topic))
    return found


@fault
def labels_two_rows_up(folder: Path) -> Fault:
    x, y = digits()
    y[200:500] = np.roll(y[200:500], -2)
    four(folder, x.reshape(len(x), -1), y, 650)
    return Fault("file_labels_fit", "slid", "y_train.npy", (200, 499), "y")


@fault
def labels_of_a_part_shuffled(folder: Path) -> Fault:
    head, x, y = wine(3)
    y[100:260] = rng(4).permutation(y[100:260])
    for name, rows in (("train", slice(0, 420)), ("test", slice(420, None))):
        write(folder / f"wine_{name}.csv", [*head, "cultivar"], np.c_[x[rows].round(4), y[rows]], ";")
    return Fault("file_labels_fit", "chance_in_part", "wine_train.csv", (100, 259), "cultivar")


@fault
def a_shard_of_texts_slides(folder: Path) -> Fault:
    for number in range(3):
        held = texts(250, 10 + number)
        topics = [topic for _, topic in held]
        if number == 1:
            topics = topics[-1:] + topics[:-1]
        pairs = zip(held, topics, strict=True)
        lines(folder / f"week{number}.jsonl", ({"headline": text, "topic": topic} for (text, _), topic in pairs))
    return Fault("file_labels_fit", "slid", "week1.jsonl", (0, 249), "topic")


SYLLABLES = {
    "hill": "bra mor glen dun tar kil".split(),
    "lake": "sel ina lo vee ri ano".split(),
    "moor": "ash ford wick thor ley by".split(),
}


def names(kind: str, count: int, seed: int) -> list[str]:
    draws = rng(seed)
    return ["".join(draws.choice(SYLLABLES[kind], draws.integers(2, 4))) for _ in range(count)]


@fault
def two_lists_swapped_in_part(folder: Path) -> Fault:
    held = {kind: names(kind, 200, seed) for seed, kind in enumerate(SYLLABLES)}
    held["hill"][:90], held["lake"][:90] = held["lake"][:90], held["hill"][:90]
    for kind, rows in held.items():
        (folder / f"{kind}.txt").write_text("\n".join(rows) + "\n")
    return Fault("file_labels_fit", "chance_in_part", "hill.txt", (0, 89))


@fault
def noisy_training_labels(folder: Path) -> Fault:
    x, y = digits()
    wrong = np.flatnonzero(rng(0).random(650) < 0.6)
    y[wrong] = rng(1).integers(0, 10, len(wrong))
    four(folder, x.reshape(len(x), -1), y, 650)
    return Fault("file_labels_fit", "noisy", "y_train.npy", None, "y")


@fault
def labels_wrong_at_random(folder: Path) -> Fault:
    x, y = datasets.make_blobs(900, 6, centers=4, cluster_std=1.2, random_state=1)
    wrong = np.flatnonzero(rng(0).random(900) < 0.45)
    y[wrong] = rng(1).integers(0, 4, len(wrong))
    write(folder / "points.csv", [*"abcdef", "class"], ([*row, "wxyz"[label]] for row, label in zip(x, y, strict=True)))
    return Fault("file_labels_fit", "noisy", "points.csv", None, "class")


@fault
def one_clinic_in_other_units(folder: Path) -> Fault:
    held = datasets.load_breast_cancer()
    names = [name.replace(" ", "_") for name in held.feature_names]
    for number, clinic in enumerate("abc"):
        rows = held.data[number::3].copy()
        rows[:, 3] *= 0.01 if number == 1 else 1
        told = ("MB"[label] for label in held.target[number::3])
        table = ([*row, label] for row, label in zip(rows[:, :8], told, strict=True))
        write(folder / f"clinic_{clinic}.tsv", [*names[:8], "diagnosis"], table, "\t")
    return Fault("file_units", "other_in_part", "clinic_b.tsv", None, "mean_area")


@fault
def kelvin_for_some_days(folder: Path) -> Fault:
    held = series()
    held["temp"][400:700] += 273.15
    keep(folder, held)
    return Fault("file_units", "other_in_part", "grid.csv", (400, 699), "temp")


@fault
def a_target_in_thousands(folder: Path) -> Fault:
    x, y = datasets.make_friedman1(700, 6, noise=1, random_state=2)
    y[200:400] *= 1000
    write(folder / "yield.csv", [*"abcdef", "target"], np.c_[x, y].round(4))
    return Fault("file_units", "other_in_target", "yield.csv", (200, 399), "target")


@fault
def a_test_set_standardised(folder: Path) -> Fault:
    draws = rng(0)
    kind, at = draws.integers(0, 5, 500), np.arange(200)
    x = 400 * np.sin(at * (0.05 + 0.04 * kind[:, None]) + draws.uniform(0, 6, (500, 1))) + 900
    x = (x + draws.normal(0, 60, x.shape)).astype(np.float32)
    x[350:] = (x[350:] - x.mean()) / x.std()
    four(folder, x, kind, 350)
    return Fault("file_units", "other_in_validation", "X_test.npy", None, "x")


@fault
def some_channels_in_another_unit(folder: Path) -> Fault:
    draws = rng(4)
    kind, at = draws.integers(0, 4, 600), np.arange(40)
    waves = np.sin(at * (0.1 + 0.1 * kind[:, None, None]) + draws.uniform(0, 6, (600, 6, 1)))
    x = (9.8 * waves + draws.normal(0, 2, waves.shape)).astype(np.float32)
    x[400:, :3] /= 9.80665
    four(folder, x, kind, 400)
    return Fault("file_units", "other_in_validation", "X_test.npy", None, "x")


@fault
def texts_in_capitals_for_validation(folder: Path) -> Fault:
    lines(folder / "train.jsonl", ({"headline": text, "label": topic} for text, topic in texts(300, 1)))
    lines(folder / "valid.jsonl", ({"headline": text.upper(), "label": topic} for text, topic in texts(100, 2)))
    return Fault("file_units", "other_in_validation", "valid.jsonl", None, "headline")


@fault
def images_of_a_class_blank(folder: Path) -> Fault:
    x, y = digits()
    x[:600][y[:600] == 7] = 0
    for name, rows in (("part0", slice(None, 600)), ("test", slice(600, None))):
        np.savez(folder / f"{name}.npz", pixels=x[rows].astype(np.uint8), digit=y[rows])
    return Fault("file_constant_values", "class_emptied", "part0.npz", None, "pixels")


@fault
def a_sensor_stuck(folder: Path) -> Fault:
    x = rng(0).normal(20, 5, (900, 5))
    y = x @ [1, 0.5, -1, 2, 0.1]
    x[300:460, 3] = x[300, 3]
    write(folder / "plant.csv", ["p1", "p2", "p3", "p4", "p5", "output"], np.c_[x, y].round(3))
    return Fault("file_constant_values", "part_emptied", "plant.csv", (300, 459), "p4")


@fault
def infinite_features(folder: Path) -> Fault:
    x, y = digits()
    held = x.reshape(len(x), -1).astype(np.float32)
    held[[5, 77, 400], 10] = np.inf
    four(folder, held, y, 650)
    return Fault("file_missing_values", "infinite", "X_train.npy", (5, 400), "x[:, 10]")


@fault
def empty_cells(folder: Path) -> Fault:
    held = series(400)
    cells = [f"{value}" if at % 90 != 50 else "" for at, value in enumerate(held["humidity"])]
    keep(folder, {**held, "humidity": np.array(cells)})
    return Fault("file_missing_values", "missing", "grid.csv", (50, 320), "humidity")


@fault
def test_texts_in_training(folder: Path) -> Fault:
    train, test = texts(500, 1), texts(150, 2)
    train += [test[at] for at in rng(3).permutation(150)[:60]]
    write(folder / "news_train.csv", ["headline", "topic"], train)
    write(folder / "news_test.csv", ["headline", "topic"], test)
    return Fault("file_rows_shared", "copied", "news_train.csv", (500, 559))


@fault
def every_row_twice(folder: Path) -> Fault:
    head, x, y = wine()
    write(folder / "wine.csv", [*head, "cultivar"], np.concatenate([np.c_[x, y]] * 2))
    return Fault("file_rows_shared", "repeated", "wine.csv")


@fault
def every_name_twice(folder: Path) -> Fault:
    held = sorted({*names("hill", 900, 1)})
    write(folder / "names.csv", ["name"], [(name,) for name in [*held, *held]])
    return Fault("file_rows_shared", "repeated", "names.csv")


@fault
def a_column_from_the_target(folder: Path) -> Fault:
    x, y = datasets.make_friedman1(800, 7, noise=1, random_state=0)
    told = y * 1.7 + 4 + rng(0).normal(0, 0.05, len(y))
    rows = np.c_[x, told, y].round(5).tolist()
    names = [*(f"f{at}" for at in range(8)), "target"]
    (folder / "records.json").write_text(json.dumps([dict(zip(names, row, strict=True)) for row in rows]))
    return Fault("file_tells_target", "may_tell", "records.json", None, "f7")


@fault
def a_sensor_of_the_future(folder: Path) -> Fault:
    held = series()
    keep(folder, {**held, "sensor_b": np.r_[held["load"][3:], held["load"][-3:]] * 0.5 + 10})
    return Fault("file_tells_target", "future", "grid.csv", None, "sensor_b")


@fault
def a_class_nearly_gone(folder: Path) -> Fault:
    x, y = datasets.make_moons(900, noise=0.2, random_state=0)
    kept = [at for at in range(600) if y[at] == 0 or (y[:at] == 1).sum() < 5]
    write(folder / "train.csv", ["a", "b", "y"], ([*x[at], y[at]] for at in kept))
    write(folder / "test.csv", ["a", "b", "y"], ([*x[at], y[at]] for at in range(600, 900)))
    return Fault("file_class_counts", "lost", "train.csv", None, "y")


@fault
def classes_counted_from_one(folder: Path) -> Fault:
    x, y = digits()
    y[:650] += 1
    four(folder, x.reshape(len(x), -1), y, 650)
    return Fault("file_label_coding", "differs", "y_train.npy", None, "y")


@fault
def embeddings_of_another_order(folder: Path) -> Fault:
    x, y = digits()
    held = np.tanh(x.reshape(len(x), -1) @ rng(0).normal(0, 0.03, (16, 24)))
    for name, values in (("images", x), ("labels", y), ("embeddings", held[rng(1).permutation(len(held))])):
        np.save(folder / f"{name}.npy", values)
    return Fault("file_cache_fits", "unrelated", "embeddings.npy")


@fault
def embeddings_late_in_half(folder: Path) -> Fault:
    x, y = digits()
    held = np.tanh(x.reshape(len(x), -1) @ rng(0).normal(0, 0.03, (16, 24)))
    held[450:] = np.roll(held[450:], 2, axis=0)
    for name, values in (("images", x), ("labels", y), ("embeddings", held)):
        np.save(folder / f"{name}.npy", values)
    return Fault("file_cache_fits", "slid", "embeddings.npy", (450, 899))


def beside(folder: Path, name: str, count: int, lost: Sequence[int] = (), words: str = "txt labels") -> None:
    """Texts in one file, their labels in another; some texts are lost."""
    one, other = words.split()
    held = list(texts(count, count))
    kept = [text for at, (text, _) in enumerate(held) if at not in lost]
    (folder / f"{name}.{one}").write_text("\n".join(kept) + "\n")
    (folder / f"{name}.{other}").write_text("\n".join(topic for _, topic in held) + "\n")


@fault
def texts_that_lost_lines_and_labels_that_did_not(folder: Path) -> Fault:
    beside(folder, "train", 400, lost=(40, 41, 200))
    beside(folder, "dev", 90)
    return Fault("file_lines_paired", "uneven", "train.labels")


@fault
def a_translation_that_lost_a_line(folder: Path) -> Fault:
    beside(folder, "train", 300, lost=(70,), words="de en")
    beside(folder, "test", 60, words="de en")
    return Fault("file_lines_paired", "uneven", "train.en")


@sound
def texts_with_their_labels_beside_them(folder: Path) -> None:
    """Of different length by split, with a head line, blank lines and a list of classes."""
    beside(folder, "train", 400)
    beside(folder, "dev", 90)
    labels = folder / "dev.labels"
    labels.write_text("label\n" + labels.read_text() + "\n\n")
    train = folder / "train.txt"
    train.write_text(train.read_text().replace("\n", "\n\n", 20))
    (folder / "classes.labels").write_text("".join(f"{topic}\n" for topic in TOPICS))
    for name, count in (("vocab.de", 300), ("vocab.en", 310)):
        (folder / name).write_text("".join(f"word{at}\n" for at in range(count)))


@sound
def a_list_of_pictures_with_classes_and_folds(folder: Path) -> None:
    rows = [(f"{at}.png", at % 10, at * 5 // 600) for at in range(600)]
    write(folder / "folds.csv", ["image_name", "target", "fold"], rows)


@sound
def labels_that_are_joined_by_a_key(folder: Path) -> None:
    held = list(texts(300, 3))
    (folder / "train_text.txt").write_text("".join(f"u{at:04} {text}\n" for at, (text, _) in enumerate(held)))
    (folder / "train_labels.txt").write_text("".join(f"u{at:04} {held[at][1]}\n" for at in range(290)))


@sound
def corpora_of_two_languages_that_are_not_parallel(folder: Path) -> None:
    beside(folder, "mono", 300, lost=(1, 2, 3), words="de en")
    (folder / "names.txt").write_text("\n".join(names("hill", 60, 1)) + "\n")


@fault
def dates_at_other_rows(folder: Path) -> Fault:
    held = series()
    keep(folder, {**held, "time": rng(0).permutation(held["time"])})
    return Fault("file_time_order", "scattered", "grid.csv", None, "time")


@sound
def iris_sorted_by_species(folder: Path) -> None:
    held = datasets.load_iris()
    table = ([*row, held.target_names[label]] for row, label in zip(held.data, held.target, strict=True))
    write(folder / "iris.csv", ["sl", "sw", "pl", "pw", "species"], table)


@sound
def lists_of_names(folder: Path) -> None:
    for seed, kind in enumerate(SYLLABLES):
        (folder / f"{kind}.txt").write_text("\n".join(sorted(names(kind, 200, seed))) + "\n")


@sound
def digits_in_four_arrays(folder: Path) -> None:
    x, y = digits()
    four(folder, x.reshape(len(x), -1), y, 650)


@sound
def diabetes_in_two_files(folder: Path) -> None:
    held = datasets.load_diabetes()
    for name, rows in (("train", slice(None, 340)), ("test", slice(340, None))):
        write(folder / f"{name}.csv", [*held.feature_names, "target"], np.c_[held.data[rows], held.target[rows]])


@sound
def a_series_by_the_hour(folder: Path) -> None:
    keep(folder, series())


@sound
def a_field_over_a_symmetric_range(folder: Path) -> None:
    """A steep front in the middle: one half of the rows is the other with the opposite sign."""
    x, t = np.linspace(-1, 1, 256), np.linspace(0, 1, 100)
    np.savez(folder / "field.npz", x=x, t=t, u=-np.tanh(40 * x)[:, None] * (1 - np.abs(x))[:, None] * (1 + t))


@sound
def four_random_walks(folder: Path) -> None:
    write(folder / "walk.csv", list("abcd"), (np.cumsum(rng(0).normal(0, 1, (1500, 4)), 0) + 50).round(3))


@sound
def regions_that_differ(folder: Path) -> None:
    for number, name in enumerate(("north", "south", "east")):
        x = rng(number).normal([10 + 4 * number, 50, 3], [2 + number, 8, 1], (250, 3))
        y = x @ [3, 1, -4] + rng(9).normal(0, 3, 250)
        write(folder / f"{name}.csv", ["a", "b", "c", "sales"], np.c_[x, y].round(3))


@sound
def a_rare_class_in_both_files(folder: Path) -> None:
    x, y = datasets.make_classification(1500, 10, weights=[0.96], random_state=0)
    for name, rows in (("train", slice(None, 1100)), ("test", slice(1100, None))):
        write(folder / f"{name}.csv", [*"abcdefghij", "label"], np.c_[x[rows].round(4), y[rows]])


@sound
def texts_in_two_files(folder: Path) -> None:
    write(folder / "news_train.csv", ["headline", "topic"], texts(500, 1))
    write(folder / "news_test.csv", ["headline", "topic"], texts(150, 2))


@sound
def earlier_values_as_columns(folder: Path) -> None:
    load = series()["load"]
    table = np.c_[load[:-2], load[1:-1], load[2:]]
    write(folder / "lags.csv", ["load_lag2", "load_lag1", "load"], table)


@sound
def embeddings_of_the_same_order(folder: Path) -> None:
    x, y = digits()
    held = np.tanh(x.reshape(len(x), -1) @ rng(0).normal(0, 0.03, (16, 24)))
    for name, values in (("images", x), ("labels", y), ("embeddings", held)):
        np.save(folder / f"{name}.npy", values)


@sound
def texts_with_a_cache_of_their_numbers(folder: Path) -> None:
    """The cache has the labels as numbers, and the texts have them as words: that is no leak."""
    records = texts(500, 1)
    topics = sorted({topic for _, topic in records})
    vocabulary = {word: number for number, word in enumerate(sorted({w for text, _ in records for w in text.split()}))}
    ids = [[vocabulary[word] for word in text.split()][:12] for text, _ in records]
    padded = np.array([[*held, *[0] * (12 - len(held))] for held in ids])
    lines(folder / "train.jsonl", ({"utterance": text, "intent": topic} for text, topic in records))
    lines(folder / "valid.jsonl", ({"utterance": text, "intent": topic} for text, topic in texts(150, 2)))
    np.savez(folder / "train_len12.npz", ids=padded, labels=np.array([topics.index(topic) for _, topic in records]))


@sound
def specimens_with_several_rows_each(folder: Path) -> None:
    """The specimen tells the kind, and rows are split by it: it is no measurement."""
    kinds = rng(0).integers(0, 4, 600)
    specimen = [f"{'ABCD'[kind]}{number:02d}" for kind, number in zip(kinds, rng(1).integers(0, 12, 600), strict=True)]
    x = rng(2).normal(kinds[:, None] * 0.3, 1, (600, 3)).round(3)
    write(folder / "spectra.csv", ["a", "b", "c", "specimen", "label"], zip(*x.T, specimen, kinds, strict=True))


@sound
def patients_by_number_with_several_rows_each(folder: Path) -> None:
    patient = rng(1).integers(0, 50, 600)
    x = rng(2).normal((patient >= 25)[:, None] * 0.3, 1, (600, 3)).round(3)
    rows = zip(*x.T, patient, (patient >= 25).astype(int), strict=True)
    write(folder / "visits.csv", ["a", "b", "c", "patient_id", "label"], rows)


@sound
def a_law_that_hangs_on_one_column_and_is_refined_by_others(folder: Path) -> None:
    """Power follows the wind all but alone, and the density of the air tells the rest."""
    wind, heat, other = rng(0).uniform(2, 12, 1200), rng(1).normal(10, 9, 1200), rng(2).normal(0, 1, (1200, 3))
    power = wind**3 * (1 - 0.004 * heat) + rng(3).normal(0, 4, 1200)
    head = ["wind", "heat", "a", "b", "c", "target"]
    write(folder / "turbine.csv", head, np.c_[wind, heat, other, power].round(3))


@fault
def a_noisy_copy_of_a_number(folder: Path) -> Fault:
    x = rng(0).normal(0, 1, (1200, 4))
    y = x @ [3, 1, -4, 2] + rng(1).normal(0, 4, 1200)
    copy = 3 * y + rng(2).normal(0, 1, 1200)
    write(folder / "table.csv", ["a", "b", "c", "d", "estimate", "target"], np.c_[x, copy, y].round(3))
    return Fault("file_tells_target", "may_tell", "table.csv", column="estimate")


@fault
def days_that_only_one_class_has(folder: Path) -> Fault:
    """As many values as a group has, each of one class; but they are counted, and no names."""
    y = rng(0).integers(0, 2, 800)
    x = rng(1).normal(y[:, None] * 0.3, 1, (800, 3)).round(3)
    days = np.where(y == 1, rng(2).integers(30, 90, 800), rng(3).integers(0, 3, 800))
    write(folder / "loans.csv", ["a", "b", "c", "days_overdue", "label"], zip(*x.T, days, y, strict=True))
    return Fault("file_tells_target", "may_tell", "loans.csv", column="days_overdue")


def tones(count: int = 500) -> tuple[Array, list[str]]:
    """Signals whose pitch tells the word; where the tone begins and how loud it is tells nothing."""
    kinds = rng(0).integers(0, 4, count)
    pitch = np.array([0.02, 0.05, 0.09, 0.14])[kinds][:, None]
    wave = np.sin(2 * np.pi * (pitch * np.arange(512) + rng(1).random((count, 1))))
    wave = wave * rng(2).uniform(2000, 8000, (count, 1)) + rng(3).normal(0, 600, wave.shape)
    return wave.astype(np.int16), [("stop", "go", "left", "right")[kind] for kind in kinds]


@fault
def words_that_slide_beside_their_signals(folder: Path) -> Fault:
    wave, words = tones()
    np.savez(folder / "clips.npz", pcm=wave)
    words[200:] = [*words[201:], words[200]]
    write(folder / "manifest.csv", ["speaker", "word"], ((f"s{at % 7}", word) for at, word in enumerate(words)))
    return Fault("file_labels_fit", "slid", "manifest.csv", rows=(200, 498), column="word")


@sound
def signals_with_their_words_in_another_file(folder: Path) -> None:
    wave, words = tones()
    np.savez(folder / "clips.npz", pcm=wave)
    write(folder / "manifest.csv", ["speaker", "word"], ((f"s{at % 7}", word) for at, word in enumerate(words)))


@sound
def signals_of_one_kind_after_another(folder: Path) -> None:
    wave, words = tones()
    order = np.argsort(words, kind="stable")
    np.savez(folder / "clips.npz", pcm=wave[order])
    write(folder / "manifest.csv", ["speaker", "word"], ((f"s{at % 7}", words[at]) for at in order))


def loans(folder: Path, name: str, apart: float, others: float = 0.6) -> None:
    """A rate that tells something of who fails to pay, and one more column that tells as much as is asked for."""
    y = rng(0).integers(0, 2, 900)
    rate, years = rng(1).normal(others * y, 1), rng(2).normal(0.3 * y, 1)
    more = np.maximum(0, rng(3).normal(apart * y, 1)).round(2)
    write(
        folder / "loans.csv", ["rate", "years", name, "label"], zip(rate.round(3), years.round(3), more, y, strict=True)
    )


@fault
def fees_that_came_with_the_outcome(folder: Path) -> Fault:
    loans(folder, "collection_fees", 3.0)
    return Fault("file_tells_target", "afterwards", "loans.csv", column="collection_fees")


@sound
def fees_that_tell_a_little(folder: Path) -> None:
    loans(folder, "annual_fee", 0.8)


@sound
def a_strong_measurement(folder: Path) -> None:
    """As strong as a fee that came afterwards; nothing says that it did."""
    loans(folder, "troponin", 3.0)


@sound
def fees_beside_columns_that_tell_as_much(folder: Path) -> None:
    loans(folder, "collection_fees", 3.0, 3.0)
