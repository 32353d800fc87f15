"""What the data alone say: sanity, balance, signal, copies, neighbours."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor, NearestNeighbors
from subjects_data import (
    HEALTHY,
    Bagged,
    Small,
    classifier,
    cnn,
    cut,
    figures,
    image_classifier,
    language_model,
    line,
    lopsided,
    mlp,
    outcome,
    pictures,
    regressor,
    rings,
    says,
    sentences,
    shuffled,
    source,
    table,
    text,
    text_classifier,
    tiny,
    why,
)
from torch import nn

from clew.exams.batches import Batch
from clew.exams.checks._data_signal import Examples, linear, measure, moments, nearest, within_batches
from clew.exams.checks._data_tables import Labels, inputs_of, pooled
from clew.exams.checks.data_sanity import useless
from clew.exams.checks.nearest_neighbour_overlap import near_copies
from clew.exams.checks.target_in_input import skill
from clew.exams.exam import find_exam
from clew.exams.sit import sit
from clew.exams.subject import Subject

EVERY = (
    "data_sanity label_counts label_signal label_permutation input_ablation target_in_input nearest_neighbour_overlap "
    "leak_tracer poison_trace confident_errors shortcut learning_curve"
).split()
CE = nn.CrossEntropyLoss


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


# --- data_sanity

X, Y = table()
BAD: dict[str, tuple[str, Callable[[], Subject]]] = {
    "NaN": ("nonfinite", lambda: Subject(mlp(), CE(), cut(torch.where(X > 2.5, torch.nan, X), Y))),
    "infinite target": ("nonfinite", lambda: Subject(mlp(6, 1), nn.MSELoss(), cut(line()[0], line()[1] / 0))),
    "constant": ("inputs_alike", lambda: Subject(mlp(), CE(), cut(torch.ones(256, 8), Y))),
    "zeros": ("inputs_alike", lambda: Subject(cnn(), CE(), cut(0 * pictures()[0], pictures()[1]))),
    "one token": ("inputs_alike", lambda: Subject(Bagged(), CE(), cut(0 * sentences()[0] + 3, sentences()[1]))),
    "one-based": ("labels_outside", lambda: Subject(mlp(), CE(), cut(X, Y + 1))),
    "minus one to one": (
        "labels_outside",
        lambda: Subject(mlp(2, 1), nn.BCEWithLogitsLoss(), cut(rings()[0], rings()[1].float()[:, None] * 2 - 1)),
    ),
    "masked": (
        "labels_masked",
        lambda: Subject(mlp(), CE(), cut(X, torch.full_like(Y, -100))),
    ),
    "one label": ("one_label", lambda: Subject(mlp(), CE(), cut(X, 0 * Y))),
    "empty columns": (
        "features_empty",
        lambda: Subject(mlp(40), CE(), cut(torch.cat([X[:, :2], torch.ones(256, 38)], 1), Y)),
    ),
    "copied columns": ("features_empty", lambda: Subject(mlp(40), CE(), cut(X[:, :1].repeat(1, 40), Y))),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_data_is_named(name: str) -> None:
    wanted, make = BAD[name]
    assert outcome("data_sanity", make()) == wanted


@pytest.mark.parametrize("name", HEALTHY)
def test_sound_data_is_sound(name: str) -> None:
    assert outcome("data_sanity", HEALTHY[name]()) == "sound"


def test_counts_of_words_are_not_empty_features() -> None:
    """Rare words never occur in a sample; that is how such data are."""
    counts = (torch.rand(256, 200, generator=source()) < 0.004).float()
    counts[:, 0] = Y.float()
    assert outcome("data_sanity", Subject(mlp(200), CE(), cut(counts, Y))) == "sound"


def test_masks_of_a_sentence_are_not_masked_labels() -> None:
    rows = text()
    target = rows[:, 1:].clone()
    target[:, :8] = -100
    loss = lambda output, wanted: nn.functional.cross_entropy(output.flatten(0, 1), wanted.flatten())  # noqa: E731
    assert outcome("data_sanity", Subject(Small(), loss, cut(rows[:, :-1], target))) == "sound"


def test_inputs_that_do_not_agree_on_examples() -> None:
    subject = Subject(nn.Bilinear(2, 2, 1), nn.MSELoss(), [((torch.ones(3, 2), torch.ones(4, 2)), torch.ones(3, 1))])
    assert "disagree" in why("data_sanity", subject)


def test_the_first_figures_a_person_would_print() -> None:
    held = figures("data_sanity", classifier())
    assert held["input shape"] == "(32, 8)"
    assert held["input type"] == "float32"
    assert held["input mean"] == pytest.approx(float(X[:32].mean()), abs=1e-5)
    assert held["target most"] == float(Y[:32].max())


def test_useless_features_against_numpy() -> None:
    values = torch.randn(100, 12, generator=source())
    values[:, 3] = 5.0
    values[:, 4] = -2 * values[:, 0] + 7
    values[:, 9] = values[:, 1]
    constant, doubled = useless(values)
    assert constant == pytest.approx(float((values.numpy().std(0) == 0).mean()))
    kept = np.delete(values.double().numpy(), 3, axis=1)
    alike = np.triu(np.abs(np.corrcoef(kept.T)) > 1 - 1e-6, 1).any(0).sum()
    assert doubled == pytest.approx(alike / 12)


# --- label_counts


def test_balance_is_that_of_numpy() -> None:
    held = figures("label_counts", lopsided())
    labels = torch.cat([batch.target for batch in lopsided().batches]).numpy()
    assert held["largest_class_share"] == np.bincount(labels).max() / len(labels)
    assert outcome("label_counts", lopsided()) == "dominated"


@pytest.mark.parametrize("make", [classifier, image_classifier, text_classifier])
def test_balanced_classes(make: Callable[[], Subject]) -> None:
    assert outcome("label_counts", make()) == "balanced"


def test_one_hot_targets_are_counted() -> None:
    hot = nn.functional.one_hot((X[:, 0] > 1.6).long(), 2).float()
    assert outcome("label_counts", Subject(mlp(8, 2), CE(), cut(X, hot))) == "dominated"


def test_weighted_classes_values_positions_and_few_labels_are_unclear() -> None:
    x, y = X, (X[:, 0] > 1.6).long()
    assert "weights" in why("label_counts", Subject(mlp(8, 2), CE(weight=torch.tensor([1.0, 9.0])), cut(x, y)))
    assert "values" in why("label_counts", regressor())
    assert "position" in why("label_counts", language_model())
    assert "too few" in why("label_counts", tiny())


# --- label_signal


def arrows(count: int, flipped: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Wide at the foot or at the head; half of them upside down where they are flipped by chance."""
    y = torch.randint(0, 2, (count,))
    rows = torch.arange(12.0)
    wide = torch.where((y == 0)[:, None], rows, 11 - rows)
    x = (torch.arange(12.0)[None, None] < wide[:, :, None]).float() + 0.1 * torch.randn(count, 12, 12)
    turn = torch.rand(count) < 0.5
    x[turn] = x[turn].flip(1) if flipped else x[turn]
    return x[:, None], y


@pytest.mark.parametrize(("flipped", "expected"), [(True, "turned"), (False, "some")])
def test_pictures_that_were_turned_into_those_of_other_classes(flipped: bool, expected: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(144, 2))
    held = Subject(model, CE(), cut(*arrows(400, flipped)), val_batches=cut(*arrows(400, False)))
    assert outcome("label_signal", held) == expected


SENTENCES, TOPICS = sentences()
ROWS = text(128)
PARTED: dict[str, Callable[[], Subject]] = {
    "table": lambda: Subject(mlp(), CE(), cut(X, shuffled(Y))),
    "pictures": lambda: Subject(cnn(), CE(), cut(pictures()[0], shuffled(pictures()[1]))),
    "sentences": lambda: Subject(Bagged(), CE(), cut(SENTENCES, shuffled(TOPICS))),
    "values": lambda: Subject(mlp(6, 1), nn.MSELoss(), cut(line()[0], shuffled(line()[1]))),
    "next tokens": lambda: Subject(Small(), CE(), cut(ROWS[:, :-1], shuffled(ROWS[:, 1:]))),
    "noise": lambda: Subject(mlp(), CE(), cut(torch.randn(256, 8, generator=source(5)), Y)),
}


@pytest.mark.parametrize("name", PARTED)
def test_labels_that_parted_from_their_inputs(name: str) -> None:
    assert outcome("label_signal", PARTED[name]()) == "none"


@pytest.mark.parametrize("name", [name for name in HEALTHY if name not in ("autoencoder", "tiny")])
def test_a_relation_is_found(name: str) -> None:
    assert outcome("label_signal", HEALTHY[name]()) == "some"


def test_every_pixel_labelled() -> None:
    """Labels of whole pictures are dealt out anew, not those of pixels."""
    images, _ = pictures(96)
    masks = (images[:, 0] > 0.9).long()
    model = nn.Conv2d(1, 2, 3, padding=1)
    assert outcome("label_signal", Subject(model, CE(), cut(images, masks))) == "some"
    smooth = nn.functional.avg_pool2d(torch.randn(96, 1, 12, 12, generator=source(6)), 5, 1, 2)
    apart = (nn.functional.avg_pool2d(torch.randn(96, 1, 12, 12, generator=source(7)), 5, 1, 2)[:, 0] > 0).long()
    assert outcome("label_signal", Subject(model, CE(), cut(smooth, apart))) == "none"


class Pairs(nn.Module):
    """A user and a film, each by a vector of its own."""

    def __init__(self, names: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.users, self.films = nn.Embedding(names, 4), nn.Embedding(names, 4)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return (self.users(given[:, 0]) * self.films(given[:, 1])).sum(1)  # type: ignore[no-any-return]


def rated(names: int) -> Subject:
    generator = torch.Generator().manual_seed(1)
    given = torch.randint(0, names, (512, 2), generator=generator)
    return Subject(Pairs(names), nn.MSELoss(), cut(given, torch.randn(512, generator=generator)))


def test_names_that_come_seldom_say_too_little() -> None:
    for exam in ("label_signal", "input_ablation"):
        assert "are ids" in why(exam, rated(300))
    assert outcome("label_signal", rated(8)) == "none"


def waves(related: bool) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each batch is a wave of another height and place."""
    generator = torch.Generator().manual_seed(2)
    batches = []
    for _ in range(32):
        x = 10 * torch.rand(12, 1, generator=generator) - 5
        height, place = 4 * torch.rand(2, generator=generator)
        y = (height + 0.5) * torch.sin(x + 1.6 * place)
        batches.append((x, y if related else y[torch.randperm(12, generator=generator)]))
    return batches


def test_batches_that_are_tasks_of_their_own() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    assert "task" in why("label_signal", Subject(model, nn.MSELoss(), waves(True)))
    assert within_batches(waves(True), torch.Generator().manual_seed(0)) <= 0.005
    assert within_batches(waves(False), torch.Generator().manual_seed(0)) > 0.05


def test_few_examples_cannot_rule_a_relation_out() -> None:
    assert "too few" in why("label_signal", tiny())
    assert "too few" in why("label_signal", Subject(mlp(), CE(), cut(X[:32], shuffled(Y[:32]))))
    many = torch.arange(128) % 64
    assert "64 classes" in why("label_signal", Subject(mlp(8, 64), CE(), cut(X[:128], many[torch.randperm(128)])))
    assert "same label" in why("label_signal", Subject(mlp(), CE(), cut(X, 0 * Y)))


def test_chance_is_called_chance() -> None:
    """The share of permutations that do as well is uniform when there is nothing to find."""
    found = []
    for seed in range(150):
        draws = source(seed)
        x, y = torch.randn(60, 1, 5, generator=draws), torch.randn(60, 1, 1, generator=draws)
        found.append(measure(Examples(x, y), linear, draws, 199).p)
    distance = np.abs(np.sort(found) - (np.arange(150) + 0.5) / 150).max()
    assert distance < 1.63 / np.sqrt(150), "Kolmogorov and Smirnov's bound for one in a hundred"


def test_moments_of_a_permuted_sum_against_all_permutations() -> None:
    import itertools

    held = torch.randn(6, 6, generator=source(), dtype=torch.float64)
    sums = [sum(float(held[i, p]) for i, p in enumerate(order)) for order in itertools.permutations(range(6))]
    mean, variance = moments(held)
    assert mean == pytest.approx(np.mean(sums))
    assert variance == pytest.approx(np.var(sums))


@pytest.mark.parametrize("features", [3, 80])
def test_linear_model_and_neighbours_against_sklearn(features: int) -> None:
    draws = source(2)
    x, others = torch.randn(40, features, generator=draws), torch.randn(15, features, generator=draws)
    y = torch.randn(40, 2, generator=draws)
    strength = 0.1 * float((x - x.mean(0)).square().sum(1).mean()) + 1e-6
    wanted = Ridge(alpha=strength).fit(x.numpy(), y.numpy()).predict(others.numpy())
    assert np.allclose(linear(x, y, others).numpy(), wanted, atol=1e-4)
    wanted = KNeighborsRegressor(5).fit(x.numpy(), y.numpy()).predict(others.numpy())
    assert np.allclose(nearest(x, y, others).numpy(), wanted, atol=1e-5)


# --- target_in_input


def with_copy(noise: float = 0.0) -> torch.Tensor:
    x = X.clone()
    x[:, 5] = Y + noise * torch.randn(256, generator=source(4))
    return x


def with_token() -> torch.Tensor:
    tokens = SENTENCES.clone()
    tokens[:, 4] = 38 + TOPICS
    return tokens


def with_pixel() -> torch.Tensor:
    x, y = pictures()
    x[:, 0, 0, 0] = y.float()
    return x


GIVEN_AWAY: dict[str, tuple[str, Callable[[], Subject]]] = {
    "copy": ("input[5]", lambda: Subject(mlp(), CE(), cut(with_copy(), Y))),
    "noisy copy": ("input[5]", lambda: Subject(mlp(), CE(), cut(with_copy(0.05), Y))),
    "token": ("token at position 4", lambda: Subject(Bagged(), CE(), cut(with_token(), TOPICS))),
    "pixel": ("input[0, 0, 0]", lambda: Subject(cnn(), CE(), cut(with_pixel(), pictures()[1]))),
    "multiple of the value": (
        "input[6]",
        lambda: Subject(mlp(7, 1), nn.MSELoss(), cut(torch.cat([line()[0], 2 * line()[1] - 1], 1), line()[1])),
    ),
}


@pytest.mark.parametrize("name", GIVEN_AWAY)
def test_a_feature_that_gives_the_target_away(name: str) -> None:
    feature, make = GIVEN_AWAY[name]
    assert outcome("target_in_input", make()) == "one_feature_is_it"
    assert figures("target_in_input", make())["feature"] == feature


@pytest.mark.parametrize("name", ["classifier", "regressor", "images", "tokens", "language model", "lopsided"])
def test_no_feature_solves_it_alone(name: str) -> None:
    assert outcome("target_in_input", HEALTHY[name]()) == "no"


def test_single_features_copies_and_few_examples_are_unclear() -> None:
    x = X[:, :1]
    assert "single feature" in why("target_in_input", Subject(mlp(1, 2), CE(), cut(x, (x[:, 0] > 0).long())))
    assert "the input itself" in why("target_in_input", HEALTHY["copying"]())
    wide = torch.randn(24, 5000, generator=source())
    wide[:, 7] = (torch.arange(24) % 2).float()
    subject = Subject(mlp(5000, 2), CE(), [(wide, torch.arange(24) % 2)])
    assert "by chance" in why("target_in_input", subject)


def test_a_series_without_noise_gives_nothing_away() -> None:
    start = 6.28 * torch.rand(200, 1, generator=source())
    series = torch.sin(start + 0.1 * torch.arange(64)) + 0.003 * torch.randn(200, 64, generator=source(1))
    subject = Subject(mlp(63, 1), nn.MSELoss(), cut(series[:, :-1], series[:, -1:]))
    assert "nearly as well" in why("target_in_input", subject)
    leaked = Subject(mlp(64, 1), nn.MSELoss(), cut(series, series[:, -1:]))
    assert outcome("target_in_input", leaked) == "one_feature_is_it"


def test_a_law_that_hangs_on_one_feature_is_refined_by_others_and_a_noisy_copy_is_not() -> None:
    x = torch.randn(400, 7, generator=source())
    level = 10 * torch.rand(400, 1, generator=source(1))
    law = level**3 * (1 + 0.05 * x[:, :1]) / 100
    subject = Subject(mlp(8, 1), nn.MSELoss(), cut(torch.cat([x, level], 1), law))
    assert "predict the rest" in why("target_in_input", subject)
    value = x.sum(1, keepdim=True) + torch.randn(400, 1, generator=source(2))
    copy = value + 0.2 * torch.randn(400, 1, generator=source(3))
    leaked = Subject(mlp(8, 1), nn.MSELoss(), cut(torch.cat([x, copy], 1), value))
    assert outcome("target_in_input", leaked) == "one_feature_solves"


class Conditional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(3, 4), nn.Linear(12, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(torch.cat([x, self.table(y)], 1))
        return out


def test_labels_that_are_handed_in_beside_the_inputs_are_no_feature() -> None:
    batches = [Batch((X[at : at + 32], Y[at : at + 32]), Y[at : at + 32]) for at in range(0, 256, 32)]
    assert outcome("target_in_input", Subject(Conditional(), CE(), batches)) == "no"


def test_examples_that_come_again_give_nothing_away() -> None:
    again = torch.arange(200) % 12
    x, y = torch.randn(12, 6, generator=source())[again], (torch.arange(12) % 2)[again]
    assert "different examples" in why("target_in_input", Subject(mlp(6, 2), CE(), cut(x, y)))


def test_the_skill_of_a_feature_against_sklearn() -> None:
    x, y = table(200)
    found = skill(x, Labels("classes", y[:, None], 3), 100)
    assert found is not None
    for column in range(8):
        model = KNeighborsClassifier(1).fit(x[:100, column : column + 1].numpy(), y[:100].numpy())
        missed = 1 - model.score(x[100:, column : column + 1].numpy(), y[100:].numpy())
        constant = 1 - np.bincount(y[100:].numpy()).max() / 100
        assert float(found[column]) == pytest.approx(1 - missed / constant, abs=1e-6)
    x, y = line(200)
    found = skill(x, Labels("values", y), 100)
    assert found is not None
    for column in range(6):
        one, level = x[:, column].numpy().astype(float), float(y[:100].mean())
        slope, start = np.polyfit(one[:100], y[:100, 0].numpy().astype(float), 1)
        truth = y[100:, 0].numpy().astype(float)
        whole = ((truth - level) ** 2).sum()
        by_line = 1 - ((truth - slope * one[100:] - start) ** 2).sum() / whole
        near = KNeighborsRegressor(1).fit(one[:100, None], y[:100, 0].numpy()).predict(one[100:, None])
        by_neighbour = 1 - ((truth - near) ** 2).sum() / whole
        assert float(found[column]) == pytest.approx(max(by_line, by_neighbour), abs=1e-4)
        assert r2_score(truth, slope * one[100:] + start) == pytest.approx(by_line, abs=0.1)


# --- nearest_neighbour_overlap


def held_out(x: torch.Tensor, y: torch.Tensor, model: nn.Module, vx: torch.Tensor, vy: torch.Tensor) -> Subject:
    return Subject(model, CE(), cut(x, y), val_batches=cut(vx, vy))


def test_copies_across_the_split() -> None:
    vx, vy = table(seed=1)
    some = torch.cat([vx[:96], X[:32] + 0.01]), torch.cat([vy[:96], Y[:32]])
    assert outcome("nearest_neighbour_overlap", held_out(X, Y, mlp(), *some)) == "near_copies"
    share = figures("nearest_neighbour_overlap", held_out(X, Y, mlp(), *some))["near_copy_share"]
    assert share == pytest.approx(0.25, abs=0.05)
    shared = held_out(SENTENCES, TOPICS, Bagged(), SENTENCES[:64], TOPICS[:64])
    assert outcome("nearest_neighbour_overlap", shared) == "near_copies"
    brighter = held_out(*pictures(), cnn(), pictures()[0][:64] + 0.02, pictures()[1][:64])
    assert outcome("nearest_neighbour_overlap", brighter) == "near_copies"


@pytest.mark.parametrize("make", [classifier, regressor, image_classifier, text_classifier, language_model])
def test_a_split_without_copies(make: Callable[[], Subject]) -> None:
    assert outcome("nearest_neighbour_overlap", make()) == "none"


def test_tables_of_categories_collide_by_chance() -> None:
    vx, vy = table(seed=1)
    subject = held_out((X > 0).float(), Y, mlp(), (vx > 0).float(), vy)
    assert outcome("nearest_neighbour_overlap", subject) == "none"


def test_no_validation_few_examples_and_equal_inputs_are_unclear() -> None:
    assert "validation" in why("nearest_neighbour_overlap", lopsided())
    small = Subject(mlp(), CE(), cut(X, Y), val_batches=[(X[:8], Y[:8])])
    assert "too few" in why("nearest_neighbour_overlap", small)
    alike = held_out(torch.ones(64, 8), Y[:64], mlp(), torch.ones(64, 8), Y[:64])
    assert "the same" in why("nearest_neighbour_overlap", alike)


def test_distances_against_sklearn() -> None:
    vx, _ = table(64, seed=1)
    subject = held_out(X, Y, mlp(), vx, table(64, seed=1)[1])
    scaled, others = X / X.std(0), vx / X.std(0)
    tree = NearestNeighbors(n_neighbors=2).fit(scaled.numpy())
    inside = torch.from_numpy(tree.kneighbors(scaled.numpy())[0][:, 1])
    across = torch.from_numpy(tree.kneighbors(others.numpy(), 1)[0][:, 0])
    held = figures("nearest_neighbour_overlap", subject)
    assert held["usual_distance"] == pytest.approx(float(inside.median()), rel=1e-3)
    assert held["closest"] == pytest.approx(float(across.min()), rel=1e-3)
    assert held["near_copy_share"] == pytest.approx(near_copies(inside, across)[0], abs=0.02)


# --- what holds for all of them


@pytest.mark.parametrize("name", EVERY)
def test_an_exam_leaves_no_trace_and_says_the_same_again(name: str) -> None:
    subject = classifier()
    before = [batch.inputs.clone() for batch in subject.batches]
    weights = {key: value.clone() for key, value in subject.model.state_dict().items()}
    torch.manual_seed(3)
    state = torch.random.get_rng_state()
    first = sit(find_exam(name), subject).answer
    assert torch.equal(torch.random.get_rng_state(), state)
    second = sit(find_exam(name), subject).answer
    assert getattr(first, "measured", first) == getattr(second, "measured", second)
    assert all(torch.equal(old, batch.inputs) for old, batch in zip(before, subject.batches, strict=True))
    assert all(torch.equal(value, subject.model.state_dict()[key]) for key, value in weights.items())


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", [name for name in EVERY if name not in ("learning_curve",)])
def test_other_precisions(name: str, kind: torch.dtype) -> None:
    x, y = table(128)
    held = cut(x.to(kind), y)
    answer = sit(find_exam(name), Subject(mlp().to(kind), CE(), held, val_batches=held)).answer
    assert "failed" not in getattr(answer, "why", "")


def test_nothing_is_done_to_batches_that_do_not_stack() -> None:
    ragged = [Batch(torch.randint(0, 40, (4, size)), torch.zeros(4, dtype=torch.long)) for size in (5, 9)]
    whole = pooled(ragged)
    assert whole is not None
    assert whole.inputs.shape == (8, 5)
    assert pooled([Batch(torch.ones(3, 2)), Batch(torch.ones(3, 2, 2))]) is None
    assert pooled([Batch((torch.ones(3), torch.ones(4)))]) is None


def test_names_of_features() -> None:
    held = inputs_of([Batch({"image": torch.zeros(4, 2, 3), "age": torch.zeros(4)})])
    assert held.feature(0) == "image[0, 0]"
    assert held.feature(5) == "image[1, 2]"
    assert held.feature(6) == "age"


def test_what_is_said_holds_the_figures() -> None:
    assert "256 examples" in says("label_signal", PARTED["table"]())
    assert "1 to 3" in says("data_sanity", BAD["one-based"][1]())
