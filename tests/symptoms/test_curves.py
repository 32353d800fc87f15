"""Sound curves raise no alarm, faulty ones do, and nothing that a log can hold breaks a reader."""

import math
import random
from collections import Counter
from collections.abc import Callable

import pytest
from curves_made import noisy, series, sound_run
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.case.weigh import on_scale
from clew.knowledge import load
from clew.records.clue import Reading, Unclear
from clew.records.trace import Series
from clew.symptoms import smooth
from clew.symptoms.curves import read_curves
from clew.symptoms.model import Answer, Seen
from clew.symptoms.names import main_loss

KNOWN = load()
BY_LOG = {test.id for test in KNOWN.tests.values() if test.by == "log" and not test.domains} - {
    "returns_spread",
    "episode_length_trend",
    "accuracy_recounted",  # needs more than the log: see test_recount
}


def outcome(test: str, answer: Answer) -> str:
    if isinstance(answer, Unclear):
        return "unclear"
    if isinstance(answer, Seen):
        assert KNOWN.tests[test].scale is None
        assert KNOWN.tests[test].outcome(answer.outcome) is not None
        return answer.outcome
    scale = KNOWN.tests[test].scale
    assert scale is not None
    value = dict(answer.measured)[scale.of]
    assert isinstance(value, float | int)
    return on_scale(scale, float(value))


def alarms(answers: dict[str, Answer]) -> list[str]:
    found = []
    for test, answer in answers.items():
        known = KNOWN.tests[test].outcome(outcome(test, answer))
        if known is not None and known.kind == "seen":
            found.append(f"{test} {known.name}")
    return found


def read_loss(values: list[float], test: str, every: int = 1, loss_name: str = "") -> str:
    return outcome(test, read_curves({"loss": series("loss", values, every)}, loss_name=loss_name)[test])


def test_every_test_of_a_log_is_answered() -> None:
    assert set(read_curves({})) == BY_LOG
    assert all(isinstance(answer, Unclear) for answer in read_curves({}).values())


def test_sound_curves_raise_no_alarm() -> None:
    raised = []
    for seed in range(500):
        made, marks = sound_run(random.Random(seed))
        found = alarms(read_curves(made, constant=0.1, epochs=marks, loss_name="mse_loss"))
        raised += [(seed, found)] if found else []
    assert len(raised) <= 0.03 * 500, raised


def test_sound_curves_are_mostly_read() -> None:
    """A reader that always says unclear raises no alarm either."""
    said: Counter[str] = Counter()
    for seed in range(100):
        made, marks = sound_run(random.Random(seed))
        answers = read_curves(made, constant=0.1, epochs=marks)
        said.update(test for test, answer in answers.items() if not isinstance(answer, Unclear))
    assert all(said[test] >= 50 for test in BY_LOG - {"init_loss"}), said


def test_sound_epoch_means_raise_no_alarm() -> None:
    raised = []
    for seed in range(200):
        rng = random.Random(seed)
        speed, floor = rng.uniform(0.2, 2), rng.uniform(0, 0.4)
        loss = [floor + (1 - floor) * math.exp(-speed * i) * rng.uniform(0.97, 1.03) for i in range(rng.randint(3, 40))]
        accuracy = [0.1 + 0.8 * (1 - value) for value in loss]
        made = {
            "train_loss": series("train_loss", loss),
            "val_loss": series("val_loss", [v + 0.05 for v in loss]),
            "val_acc": series("val_acc", accuracy),
        }
        found = alarms(read_curves(made, constant=0.1, per_epoch=True))
        raised += [(seed, found)] if found else []
    assert len(raised) <= 6, raised


LOSS_CASES: dict[str, tuple[str, str, Callable[[float], float], float]] = {
    "flat": ("loss_stuck_from_start", "stuck", lambda _: 1.0, 0.1),
    "flat without noise": ("loss_stuck_from_start", "stuck", lambda _: 2.303, 0.0),
    "a tenth in all": ("loss_stuck_from_start", "slow", lambda t: 1 - 0.1 * min(1, 3 * t), 0.02),
    "exponential climb": ("loss_diverges", "at_once", lambda t: math.exp(6 * t), 0.1),
    "falls, then climbs": (
        "loss_diverges",
        "after_falling",
        lambda t: math.exp(-8 * t) + 0.2 if t < 0.5 else math.exp(12 * (t - 0.5)),
        0.1,
    ),
    "level": ("loss_diverges", "stable", lambda _: 1.0, 0.2),
    "noise beyond a third": ("loss_oscillates", "wild", lambda _: 1.0, 0.6),
    "climbs without end": ("loss_rises", "steadily", lambda t: 1 + 2 * t, 0.1),
    "climbs faster and faster": ("loss_rises", "steadily", lambda t: math.exp(3 * t), 0.05),
    "rises and comes back": ("loss_rises", "no", lambda t: 1 + math.sin(math.pi * t), 0.05),
    "flat at seven tenths": ("loss_plateau", "early_high", lambda t: 0.7 + 0.3 * math.exp(-20 * t), 0.03),
    "flat at a tenth": ("loss_plateau", "keeps_falling", lambda t: 0.1 + 0.9 * math.exp(-20 * t), 0.03),
    "a burst at the start": ("loss_spike_at_start", "seen", lambda t: 1 + 6 * math.exp(-(((t - 0.02) * 80) ** 2)), 0.1),
    "no burst": ("loss_spike_at_start", "absent", lambda t: 1.2 - t, 0.2),
}


@pytest.mark.parametrize("name", LOSS_CASES)
def test_the_symptom_is_read(name: str) -> None:
    test, wanted, course, noise = LOSS_CASES[name]
    got = Counter(read_loss(noisy(random.Random(seed), course, 600, noise), test) for seed in range(40))
    assert got[wanted] >= 36, got


def test_a_run_that_ends_in_nan_diverged() -> None:
    for tail in ([8.0, 90.0, 4e6, math.inf], [5.0, 50.0, 3e9, math.nan, math.nan]):
        values = [2.3 * 0.99**i for i in range(60)] + tail
        assert read_loss(values, "loss_diverges") == "after_falling"
        assert read_loss(values, "loss_nonfinite") == "seen"
    early = [2.3, 2.4, 9.0, 400.0, 1e9, 1e20, math.nan]
    assert read_loss(early, "loss_diverges") == "at_once"


def test_a_lone_nan_is_no_divergence() -> None:
    values = [2.3 * 0.99**i for i in range(100)]
    values[50] = math.nan
    answers = read_curves({"loss": series("loss", values)})
    assert outcome("loss_diverges", answers["loss_diverges"]) == "stable"
    assert answers["loss_nonfinite"] == Reading(nonfinite_share=0.01, first_step=50)


def test_nan_in_any_of_several_losses_is_seen() -> None:
    made = {"d_loss": series("d_loss", [1.0] * 10), "g_loss": series("g_loss", [1.0] * 9 + [math.nan])}
    answers = read_curves(made)
    assert outcome("loss_nonfinite", answers["loss_nonfinite"]) == "seen"
    assert isinstance(answers["loss_stuck_from_start"], Unclear)
    assert "none is their total" in answers["loss_stuck_from_start"].why


@pytest.mark.parametrize("pattern", [(1.4, 0.7), (1.4, 1.4, 0.5), (2.0, 2.0, 2.0, 2.0, 2.0, -1.0)])
def test_losses_that_take_turns_are_not_read_as_one(pattern: tuple[float, ...]) -> None:
    rng = random.Random(0)
    values = [pattern[i % len(pattern)] * (1 + rng.gauss(0, 0.03)) for i in range(400)]
    answers = read_curves({"loss": series("loss", values)})
    assert alarms(answers) == []
    assert isinstance(answers["loss_oscillates"], Unclear)
    assert "alternately" in answers["loss_oscillates"].why


def test_a_negative_loss_counts_only_when_it_cannot_be() -> None:
    falling = [1 - 0.1 * i for i in range(100)]
    assert read_loss(falling, "loss_goes_negative", loss_name="cross_entropy") == "seen"
    assert read_loss(falling, "loss_goes_negative") == "unclear"
    assert read_loss([abs(v) for v in falling], "loss_goes_negative") == "absent"
    dip = [1.0] * 50 + [-3.0] * 12 + [1.0] * 50
    assert read_loss(dip, "loss_goes_negative", loss_name="mse_loss") == "absent"


def test_losses_around_zero_are_unclear() -> None:
    rng = random.Random(0)
    values = [rng.gauss(0, 1) for _ in range(400)]
    for test in ("loss_stuck_from_start", "loss_diverges", "loss_oscillates", "loss_plateau", "loss_spike_at_start"):
        assert read_loss(values, test) == "unclear", test
    assert read_loss(values, "loss_rises") == "no"


def test_short_curves_are_unclear() -> None:
    answers = read_curves({"loss": series("loss", [2.3, 2.2, 2.25])}, chance=math.log(10))
    said = {test for test, answer in answers.items() if not isinstance(answer, Unclear)}
    assert said == {"loss_nonfinite", "loss_goes_negative", "init_loss"}


@pytest.mark.parametrize(
    ("first", "wanted"), [(0.5, "far_below"), (2.4, "at_chance"), (5.0, "above"), (56.0, "far_above")]
)
def test_the_first_loss_against_chance(first: float, wanted: str) -> None:
    made = {"loss": series("loss", [first, 2.0, 1.0])}
    assert outcome("init_loss", read_curves(made, chance=math.log(10))["init_loss"]) == wanted
    assert isinstance(read_curves(made)["init_loss"], Unclear)
    late = {"loss": Series("loss", (100, 200), (first, 2.0))}
    assert isinstance(read_curves(late, chance=math.log(10))["init_loss"], Unclear)


def _epochs(course: Callable[[int, float], float], noise: float, seed: int) -> str:
    rng = random.Random(seed)
    values = [course(e, i / 50) * math.exp(rng.gauss(0, noise)) for e in range(8) for i in range(50)]
    answers = read_curves({"loss": series("loss", values)}, epochs=range(0, 400, 50))
    return outcome("loss_epoch_sawtooth", answers["loss_epoch_sawtooth"])


def test_epoch_boundaries() -> None:
    def jumps(_: int, t: float) -> float:
        return 1.3 - 0.5 * t

    def staircase(epoch: int, _: float) -> float:
        return 0.8**epoch

    def inverted(_: int, t: float) -> float:
        return 0.6 + 0.5 * t

    def smooth_fall(epoch: int, t: float) -> float:
        return math.exp(-0.4 * (epoch + t))

    for course, wanted in [(jumps, "seen"), (inverted, "seen"), (staircase, "absent"), (smooth_fall, "absent")]:
        got = Counter(_epochs(course, 0.1, seed) for seed in range(20))
        assert got[wanted] >= 18, (course, got)
    assert read_loss([1.0] * 100, "loss_epoch_sawtooth") == "unclear"


def _run(
    train: Callable[[float], float], held_out: Callable[[float], float], metric: Callable[[float], float]
) -> dict[str, Answer]:
    rng = random.Random(1)
    ends = tuple(range(39, 400, 40))
    made = {
        "loss": series("loss", noisy(rng, train, 400, 0.1)),
        "val_loss": Series("val_loss", ends, tuple(held_out(end / 399) for end in ends)),
        "val_acc": Series("val_acc", ends, tuple(metric(end / 399) for end in ends)),
    }
    return read_curves(made, chance=math.log(10), epochs=range(0, 400, 40))


def falls(t: float) -> float:
    return 0.2 + 0.8 * math.exp(-4 * t)


def test_validation_beside_training() -> None:
    def jumpy(t: float) -> float:
        return falls(t) + (1.5 if round(t * 10) % 3 == 0 else 0.0)

    def accuracy(t: float) -> float:
        return 0.1 + 0.8 * t

    worse = _run(falls, lambda t: falls(t) + 0.6 * t, accuracy)
    assert outcome("train_val_gap", worse["train_val_gap"]) == "val_much_worse"
    alike = _run(falls, falls, accuracy)
    assert outcome("train_val_gap", alike["train_val_gap"]) == "alike"
    assert outcome("val_erratic", alike["val_erratic"]) == "absent"
    better = _run(falls, lambda t: falls(t) - 0.15, accuracy)
    assert outcome("train_val_gap", better["train_val_gap"]) == "val_better"
    assert outcome("val_erratic", _run(falls, jumpy, accuracy)["val_erratic"]) == "seen"
    assert outcome("val_erratic", _run(jumpy, jumpy, accuracy)["val_erratic"]) in ("absent", "unclear")


def test_overfitting_turns_the_validation_loss() -> None:
    def metric(t: float) -> float:
        return 0.1 + 0.8 * t

    turned = _run(falls, lambda t: falls(t) + max(0.0, t - 0.3), metric)
    assert outcome("val_turns_up", turned["val_turns_up"]) == "turns"
    for held_out in (falls, lambda t: falls(t) + 0.4, lambda t: 1.0 + 0.5 * t):
        assert outcome("val_turns_up", _run(falls, held_out, metric)["val_turns_up"]) == "no"
    both = _run(lambda t: falls(t) + max(0.0, t - 0.3), lambda t: falls(t) + max(0.0, t - 0.3), metric)
    assert outcome("val_turns_up", both["val_turns_up"]) == "no", "the training loss rises too"


@pytest.mark.parametrize(("trained", "validated", "expected"), [(0.86, 0.39, "val_much_worse"), (0.86, 0.8, "alike")])
def test_a_gap_between_metrics_counts_where_no_validation_loss_was_recorded(
    trained: float, validated: float, expected: str
) -> None:
    made = {
        "train_loss": series("train_loss", [falls(n / 20) for n in range(20)]),
        "train_acc": series("train_acc", [trained - 0.5 / (n + 1) for n in range(20)]),
        "val_acc": series("val_acc", [validated - 0.2 / (n + 1) for n in range(20)]),
    }
    assert outcome("train_val_gap", read_curves(made, per_epoch=True)["train_val_gap"]) == expected
    del made["train_acc"]
    assert isinstance(read_curves(made, per_epoch=True)["train_val_gap"], Unclear)


def test_how_the_loss_broke() -> None:
    climbs = [1.7 - 0.08 * n for n in range(5)] + [1.4 + 0.5 * 2**n for n in range(7)]
    ordinary = [falls(n / 12) for n in range(12)]
    for values, expected in ((climbs, "climbs"), (ordinary, "suddenly"), (climbs[:4], "unclear")):
        held = {"loss": series("loss", [*values, math.nan, math.nan])}
        assert outcome("nonfinite_onset", read_curves(held, per_epoch=True)["nonfinite_onset"]) == expected
    held = {"loss": series("loss", [*climbs, math.nan]), "val_loss": series("val_loss", [2 * v for v in climbs])}
    assert isinstance(read_curves(held, per_epoch=True)["train_val_gap"], Unclear), "the gap of a loss that diverged"
    assert outcome("loss_diverges", read_curves(held, per_epoch=True)["loss_diverges"]) == "after_falling"
    assert outcome("nonfinite_onset", read_curves({"loss": series("loss", ordinary)})["nonfinite_onset"]) == "absent"


def test_metric_beside_loss() -> None:
    chance = _run(falls, falls, lambda t: 0.1 + 0.004 * math.sin(40 * t))
    assert outcome("metric_at_chance", chance["metric_at_chance"]) == "at_chance"
    assert outcome("metric_vs_loss", chance["metric_vs_loss"]) == "loss_falls_metric_flat"
    sound = _run(falls, falls, lambda t: 0.9 - 0.8 * math.exp(-4 * t))
    assert outcome("metric_at_chance", sound["metric_at_chance"]) == "above"
    assert outcome("metric_vs_loss", sound["metric_vs_loss"]) == "both_move"
    still = _run(lambda _: 1.0, lambda _: 1.0, lambda _: 0.1)
    assert outcome("metric_vs_loss", still["metric_vs_loss"]) == "neither_moves"
    majority = _run(falls, falls, lambda t: 0.3 + 0.01 * t)
    assert isinstance(majority["metric_at_chance"], Unclear), "one class may have three tenths of the examples"


def test_too_good_too_soon() -> None:
    at_once = _run(falls, falls, lambda _: 0.997)
    assert outcome("too_good_too_soon", at_once["too_good_too_soon"]) == "suspicious"
    in_the_end = _run(falls, falls, lambda t: min(0.995, 0.5 + t))
    assert outcome("too_good_too_soon", in_the_end["too_good_too_soon"]) == "plausible"
    unknown = read_curves({"val_acc": series("val_acc", [0.999] * 5)})
    assert isinstance(unknown["too_good_too_soon"], Unclear)


def test_which_loss_stands_for_the_run() -> None:
    assert main_loss(["loss", "aux_loss", "val_loss"], held_out=False)[0] == "loss"
    assert main_loss(["train/kl_loss", "train/total_loss"], held_out=False)[0] == "train/total_loss"
    assert main_loss(["Loss/train", "Loss/val"], held_out=True)[0] == "Loss/val"
    assert main_loss(["d_loss", "g_loss"], held_out=False)[0] is None
    assert main_loss(["lr"], held_out=False) == (None, "no training loss was recorded")


numbers = st.floats(allow_nan=True, allow_infinity=True)
curves = st.lists(st.tuples(st.integers(-5, 2000), numbers), max_size=150).map(
    lambda rows: Series("loss", tuple(step for step, _ in rows), tuple(value for _, value in rows))
)


@given(curves, curves, curves, st.none() | numbers, st.lists(st.integers(-5, 2000), max_size=6), st.booleans())
@settings(max_examples=150, deadline=None)
def test_no_log_breaks_a_reader(
    loss: Series, held_out: Series, metric: Series, chance: float | None, epochs: list[int], per_epoch: bool
) -> None:
    made = {"loss": loss, "val_loss": held_out, "val_acc": metric}
    answers = read_curves(made, chance, constant=chance, epochs=epochs, per_epoch=per_epoch, loss_name="mse_loss")
    assert set(answers) == BY_LOG
    for test, answer in answers.items():
        outcome(test, answer)


@given(st.integers(0, 10_000), st.integers(-40, 40))
@settings(max_examples=40, deadline=None)
def test_the_unit_of_the_loss_does_not_matter(seed: int, power: int) -> None:
    made, marks = sound_run(random.Random(seed))
    scaled = {
        name: held._replace(values=tuple(v * 2.0**power for v in held.values)) if "loss" in name else held
        for name, held in made.items()
    }
    plain, other = (read_curves(held, constant=0.1, epochs=marks) for held in (made, scaled))
    own_units = {"loss_goes_negative"}
    assert {t: a for t, a in plain.items() if t not in own_units} == {
        t: a for t, a in other.items() if t not in own_units
    }


@given(st.integers(0, 10_000), st.lists(st.integers(0, 58), max_size=5, unique=True))
@settings(max_examples=30, deadline=None)
def test_bad_values_are_counted_and_otherwise_left_out(seed: int, at: list[int]) -> None:
    values = list(sound_run(random.Random(seed))[0]["loss"].values)
    holed = [math.nan if i in at else value for i, value in enumerate(values)]
    rest = [i for i in range(len(values)) if i not in at]
    kept = Series("loss", tuple(rest), tuple(values[i] for i in rest))
    with_holes, without = read_curves({"loss": series("loss", holed)}), read_curves({"loss": kept})
    counted = dict(with_holes["loss_nonfinite"].measured) if isinstance(with_holes["loss_nonfinite"], Reading) else {}
    assert counted["nonfinite_share"] == pytest.approx(len(at) / len(values))
    for test in ("loss_stuck_from_start", "loss_diverges", "loss_oscillates", "loss_rises", "loss_plateau"):
        assert with_holes[test] == without[test]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.integers(0, 10))
def test_running_median_against_the_slow_way(values: list[float], half: int) -> None:
    slow = [sorted(values[max(0, i - half) : i + half + 1]) for i in range(len(values))]
    wanted = [0.5 * part[(len(part) - 1) // 2] + 0.5 * part[len(part) // 2] for part in slow]
    assert smooth.running_median(values, 2 * half + 1) == pytest.approx(wanted)


@given(st.floats(-1e3, 1e3), st.floats(-10, 10), st.integers(0, 1000))
@settings(deadline=None)
def test_noise_sees_no_level_and_no_slope(level: float, rise: float, seed: int) -> None:
    rng = random.Random(seed)
    scatter = [rng.gauss(0, 1) for _ in range(400)]
    tilted = [level + rise * i + value for i, value in enumerate(scatter)]
    assert smooth.noise(tilted) == pytest.approx(smooth.noise(scatter), rel=1e-6, abs=1e-6)
    assert 0.75 < smooth.noise(scatter) < 1.3


def test_a_very_long_curve_is_read() -> None:
    rng = random.Random(0)
    values = noisy(rng, lambda t: 0.1 + 0.9 * math.exp(-30 * t), 60_000, 0.1)
    assert alarms(read_curves({"loss": series("loss", values)})) == []
