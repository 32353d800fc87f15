"""The weighing against brute force, and its promises as properties."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.case.choose import choose, gain
from clew.case.clues import answered
from clew.case.conduct import LOCALISED
from clew.case.weigh import ORDINARY, UNKNOWN, Subject, Weighing, priors, weigh
from clew.knowledge import load, model
from clew.knowledge.model import Knowledge
from clew.records.case import Own
from clew.records.clue import Clue
from clew.records.place import Place
from small import cause, clue, knowledge, observation

NAMES = ["data.a", "data.b", "loss.c", "train.d", "arch.e"]


@st.composite
def chances(draw: st.DrawFn, size: int = 2) -> tuple[float, ...]:
    parts = [draw(st.floats(0.05, 1.0)) for _ in range(size)]
    whole = sum(parts)
    return tuple(part / whole for part in parts)


@st.composite
def bases(draw: st.DrawFn, sizes: tuple[int, int] = (1, 5)) -> Knowledge:
    tests = []
    for index in range(draw(st.integers(*sizes))):
        size = draw(st.integers(2, 4))
        named = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
        tests.append(
            observation(
                f"t{index}",
                {name: draw(chances(size)) for name in named},
                healthy=draw(chances(size)),
                otherwise=draw(chances(size)),
                reads=draw(st.sampled_from(["one", "two", "three"])),
            )
        )
    return knowledge([cause(name) for name in NAMES], tests)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Knowledge, list[Clue]]:
    base = draw(bases())
    clues = []
    for _ in range(draw(st.integers(0, 8))):
        test = draw(st.sampled_from(list(base.tests.values())))
        outcome = draw(st.sampled_from([*(item.name for item in test.outcomes), "unclear"]))
        clues.append(Clue(test.id, outcome, reads=(test.reads, draw(st.sampled_from("xyz")))))
    return base, clues


def row_of(base: Knowledge, test: model.Test, name: str) -> tuple[float, ...]:
    """P(outcome | explanation), looked up the slow way."""
    for row in test.rows:
        if name in row.causes:
            return row.p
    if name == UNKNOWN:
        prior = priors(base, ORDINARY)
        rows = {key: row_of(base, test, key) for key in prior if key != UNKNOWN}
        mass = sum(prior[key] for key in rows)
        return tuple(sum(prior[key] * rows[key][i] for key in rows) / mass for i in range(len(test.outcomes)))
    return test.healthy if name.startswith("none.") else test.otherwise


def brute_force(base: Knowledge, clues: list[Clue]) -> dict[str, float]:
    """Multiply out prior and likelihoods, clue by clue, without logarithms."""
    distinct = {item.digest: item for item in clues if item.outcome != "unclear"}
    shares = dict(priors(base, ORDINARY))
    for item in distinct.values():
        test = base.tests[item.test]
        index = [outcome.name for outcome in test.outcomes].index(item.outcome)
        alike = [other for other in distinct.values() if (other.outcome == "absent") == (item.outcome == "absent")]
        crowd = max(sum(channel in other.reads for other in alike) for channel in item.reads)
        weight = 1 / (1 + (crowd - 1) * base.priors.overlap)
        shares = {name: share * row_of(base, test, name)[index] ** weight for name, share in shares.items()}
    whole = sum(shares.values())
    shares = {name: share / whole for name, share in shares.items()}
    floor = base.priors.unknown_floor
    if shares[UNKNOWN] < floor:
        scale = (1 - floor) / (1 - shares[UNKNOWN])
        shares = {name: floor if name == UNKNOWN else share * scale for name, share in shares.items()}
    return shares


def credences(held: Weighing) -> dict[str, float]:
    return {**{share.cause: share.credence for share in held.shares}, UNKNOWN: held.unknown}


@given(situations())
def test_weighing_equals_brute_force(situation: tuple[Knowledge, list[Clue]]) -> None:
    base, clues = situation
    held, slow = credences(weigh(base, clues)), brute_force(base, clues)
    assert held.keys() == slow.keys()
    for name in slow:
        assert held[name] == pytest.approx(slow[name], rel=1e-9, abs=1e-12)


@given(situations(), st.randoms())
def test_the_order_of_clues_does_not_matter(situation: tuple[Knowledge, list[Clue]], chance: random.Random) -> None:
    base, clues = situation
    mixed = clues[:]
    chance.shuffle(mixed)
    assert credences(weigh(base, mixed)) == credences(weigh(base, clues))


@given(situations(), st.data())
def test_retracting_returns_to_the_earlier_state_exactly(
    situation: tuple[Knowledge, list[Clue]], data: st.DataObject
) -> None:
    base, clues = situation
    before = credences(weigh(base, clues))
    test = data.draw(st.sampled_from(list(base.tests.values())))
    extra = Clue(test.id, test.outcomes[0].name, reads=(test.reads,), says="added and taken back")
    place = data.draw(st.integers(0, len(clues)))
    longer = [*clues[:place], extra, *clues[place:]]
    weigh(base, longer)
    longer.remove(extra)
    assert credences(weigh(base, longer)) == before


@given(situations())
def test_credences_sum_to_one_and_unknown_never_vanishes(situation: tuple[Knowledge, list[Clue]]) -> None:
    base, clues = situation
    held = weigh(base, clues)
    assert math.fsum(credences(held).values()) == pytest.approx(1.0, abs=1e-12)
    assert held.unknown >= base.priors.unknown_floor - 1e-15
    assert all(0.0 <= share.credence <= 1.0 for share in held.shares)


@given(situations())
def test_the_same_observation_twice_counts_once(situation: tuple[Knowledge, list[Clue]]) -> None:
    base, clues = situation
    assert credences(weigh(base, clues + clues)) == credences(weigh(base, clues))


def test_a_flood_of_evidence_leaves_unknown_its_floor() -> None:
    test = observation("t0", {"loss.c": (0.99, 0.01)}, otherwise=(0.01, 0.99), healthy=(0.01, 0.99))
    base = knowledge([cause(name) for name in NAMES], [test])
    clues = [Clue("t0", "seen", reads=(str(index),)) for index in range(500)]
    held = weigh(base, clues)
    assert held.shares[0].cause == "loss.c"
    assert held.unknown == pytest.approx(0.02)
    assert math.fsum(credences(held).values()) == pytest.approx(1.0)


def test_five_views_of_one_curve_count_about_once() -> None:
    tests = [observation(f"t{i}", {"loss.c": (0.9, 0.1)}, otherwise=(0.3, 0.7), reads="loss curve") for i in range(5)]
    base = knowledge([cause(name) for name in NAMES], tests)
    one = weigh(base, [clue(tests[0], "seen")]).credence("loss.c")
    five = weigh(base, [clue(test, "seen") for test in tests]).credence("loss.c")
    apart = weigh(base, [clue(test, "seen", reads=test.id) for test in tests]).credence("loss.c")
    assert one < five < one + 0.1
    assert apart > 0.9


def test_nine_ordinary_readings_do_not_drown_an_odd_one() -> None:
    rows: dict[str, tuple[float, ...]] = {"loss.c": (0.5, 0.5)}
    dull = [observation(f"t{i}", rows, otherwise=(0.5, 0.5), healthy=(0.5, 0.5), reads="loss curve") for i in range(9)]
    telling = observation("odd", {"loss.c": (0.9, 0.1)}, otherwise=(0.2, 0.8), reads="loss curve")
    base = knowledge([cause(name) for name in NAMES], [*dull, telling])
    alone = weigh(base, [clue(telling, "seen")]).credence("loss.c")
    among = weigh(base, [clue(telling, "seen"), *(clue(test, "absent") for test in dull)]).credence("loss.c")
    assert among == pytest.approx(alone)


def test_direct_looks_stand_by_themselves() -> None:
    rows: dict[str, tuple[float, ...]] = {"loss.c": (0.9, 0.1)}
    looks = [observation(f"t{i}", rows, otherwise=(0.3, 0.7), reads="events", role="mechanism") for i in range(3)]
    base = knowledge([cause(name) for name in NAMES], looks)
    together = weigh(base, [clue(test, "seen") for test in looks])
    apart = weigh(base, [clue(test, "seen", reads=test.id) for test in looks])
    assert credences(together) == credences(apart)


def test_a_mechanism_seen_overrides_the_prior() -> None:
    test = observation(
        "look", {"env.z": (0.95, 0.05)}, otherwise=(0.02, 0.98), role="mechanism", decisive=(("seen", "env.z", 0.97),)
    )
    base = knowledge([*(cause(name) for name in NAMES), cause("env.z", weight=0.05)], [test])
    seen = Clue("look", "seen", where=(Place(file="t.py", line=3),), reads=("source",))
    held = weigh(base, [seen])
    assert [item.cause for item in held.findings] == ["env.z"]
    assert held.findings[0].credence == pytest.approx(0.97)
    assert held.findings[0].where == (Place(file="t.py", line=3),)
    assert "env.z" not in {share.cause for share in held.shares}
    assert math.fsum(credences(held).values()) == pytest.approx(1.0)


def test_a_second_look_that_sees_nothing_takes_a_finding_back() -> None:
    tests = [
        observation(
            f"look{index}",
            {"loss.c": (0.97, 0.03)},
            otherwise=(0.02, 0.98),
            healthy=(0.01, 0.99),
            role="mechanism",
            decisive=(("seen", "loss.c", 0.9),),
        )
        for index in range(3)
    ]
    base = knowledge([cause(name) for name in NAMES], tests)
    once = weigh(base, [clue(tests[0], "seen"), clue(tests[1], "absent")])
    assert not once.findings or once.findings[0].credence < 0.9
    twice = weigh(base, [clue(tests[0], "seen"), clue(tests[1], "absent"), clue(tests[2], "absent")])
    assert not twice.findings
    assert "loss.c" in {share.cause for share in twice.shares}


def test_several_findings_can_stand_at_once() -> None:
    tests = [
        observation(f"look{i}", {name: (0.9, 0.1)}, role="mechanism", decisive=(("seen", name, 0.95),))
        for i, name in enumerate(("loss.c", "train.d"))
    ]
    base = knowledge([cause(name) for name in NAMES], tests)
    held = weigh(base, [clue(test, "seen") for test in tests])
    assert {item.cause for item in held.findings} == {"loss.c", "train.d"}


def test_a_consequence_is_no_finding_of_its_own() -> None:
    names = ("data.a", "num.g", "num.h", "num.i", "num.j")
    tests = [
        observation(f"look{i}", {name: (0.9, 0.1)}, role="mechanism", decisive=(("seen", name, 0.9 + i / 100),))
        for i, name in enumerate(names)
    ]
    causes = [cause("data.a", explains=("num.g",)), *(cause(name) for name in names[1:])]
    base = knowledge(causes, tests)
    both = weigh(base, [clue(tests[0], "seen"), clue(tests[1], "seen")])
    assert [item.cause for item in both.findings] == ["data.a"]
    alone = weigh(base, [clue(tests[1], "seen")])
    assert [item.cause for item in alone.findings] == ["num.g"]
    many = weigh(base, [clue(test, "seen") for test in tests])
    assert len(many.findings) == 3, "one cause, not a dozen"


def test_an_old_number_is_read_on_todays_scale() -> None:
    scale = model.Scale("ratio", "1", ((0.1, "absent"),), "seen", "seen")
    test = observation("t0", {"loss.c": (0.9, 0.1)}, scale=scale)
    base = knowledge([cause(name) for name in NAMES], [test])
    high = weigh(base, [Clue("t0", "absent", (("ratio", 5.0),), reads=("r",))])
    assert high.clues[0].outcome == "seen", "the number decides, not the word written down back then"
    assert weigh(base, [Clue("t0", "seen", (("ratio", 0.01),), reads=("r",))]).clues[0].outcome == "absent"
    assert weigh(base, [Clue("t0", "absent", (("ratio", math.nan),), reads=("r",))]).clues[0].outcome == "seen"


def test_an_outcome_that_was_seen_is_not_read_again_from_its_figure() -> None:
    """Such as a rate far above that of the steepest fall, with which the loss falls as fast as with a tenth of it."""
    test = observation(
        "t0", {"loss.c": (0.9, 0.1)}, scale=model.Scale("ratio", "1", ((0.1, "absent"),), "seen", "seen")
    )
    base = knowledge([cause(name) for name in NAMES], [test])
    for outcome, figure, kept in (("absent", 5.0, False), ("seen", 5.0, True), ("", 5.0, True), ("absent", 0.01, True)):
        made = answered(test, (("rate", 2.0), ("ratio", figure)), outcome, source="exam")
        assert weigh(base, [made]).clues[0].outcome == made.outcome == (outcome or "seen")
        assert dict(made.measured) == {"rate": 2.0} | ({"ratio": figure} if kept else {})


def test_clues_that_are_unclear_or_unknown_carry_no_weight() -> None:
    test = observation("t0", {"loss.c": (0.9, 0.1)})
    base = knowledge([cause(name) for name in NAMES], [test])
    nothing = credences(weigh(base, []))
    assert credences(weigh(base, [Clue("t0", "unclear", why="no data")])) == nothing
    assert credences(weigh(base, [Clue("gone", "seen"), Clue("t0", "renamed")])) == nothing


def test_a_persons_hypothesis_takes_its_prior_and_what_it_expects() -> None:
    test = observation("t0", {"loss.c": (0.2, 0.8)}, otherwise=(0.2, 0.8), healthy=(0.2, 0.8))
    base = knowledge([cause(name) for name in NAMES], [test])
    own = Own(2, "own.1", "the cable is loose", 0.3, (("t0", "seen"),), "wiggle it")
    subject = Subject(own=(own,))
    assert weigh(base, [], subject).credence("own.1") == pytest.approx(0.3)
    assert weigh(base, [clue(test, "seen")], subject).credence("own.1") > 0.55
    assert weigh(base, [clue(test, "absent")], subject).credence("own.1") < 0.15


# --- choosing


@given(bases())
def test_gain_equals_the_expected_fall_in_entropy(base: Knowledge) -> None:
    prior = priors(base, ORDINARY)
    for test in base.tests.values():
        rows = {name: row_of(base, test, name) for name in prior}
        entropy = -sum(share * math.log2(share) for share in prior.values())
        expected = 0.0
        for index in range(len(test.outcomes)):
            joint = {name: prior[name] * rows[name][index] for name in prior}
            mass = sum(joint.values())
            expected += mass * -sum(p / mass * math.log2(p / mass) for p in joint.values())
        assert gain([(rows[name], prior[name]) for name in prior]) == pytest.approx(entropy - expected, abs=1e-9)


@given(chances(3), bases())
def test_a_test_on_which_all_agree_gains_nothing(same: tuple[float, ...], base: Knowledge) -> None:
    dull = observation("dull", {NAMES[0]: same}, healthy=same, otherwise=same)
    fuller = base._replace(tests={**base.tests, "dull": dull})
    prior = priors(fuller, ORDINARY)
    assert gain([(same, share) for share in prior.values()]) == pytest.approx(0.0, abs=1e-12)
    assert "dull" not in {choice.test for choice in choose(fuller, weigh(fuller, []), [], ORDINARY, 99)}


@given(situations())
def test_choices_are_new_sorted_and_sensible(situation: tuple[Knowledge, list[Clue]]) -> None:
    base, clues = situation
    held = weigh(base, clues)
    found = choose(base, held, clues, ORDINARY, 99)
    made = {item.test for item in clues if item.outcome != "unclear"}
    assert not made & {choice.test for choice in found}
    assert [choice.worth for choice in found] == sorted((choice.worth for choice in found), reverse=True)
    for choice in found:
        assert choice.gain > 0
        names = {outcome.name for outcome in base.tests[choice.test].outcomes}
        assert {outcome for _, outcome, _ in choice.predictions} <= names


def test_cheap_beats_thorough_and_a_persons_time_counts() -> None:
    telling: dict[str, tuple[float, ...]] = {"loss.c": (0.9, 0.1), "data.a": (0.1, 0.9)}
    cheap = observation("cheap", telling, seconds=1)
    slow = observation("slow", {"loss.c": (0.95, 0.05), "data.a": (0.05, 0.95)}, seconds=3600)
    eyes = observation("eyes", telling, seconds=1, person=True)
    base = knowledge([cause(name) for name in NAMES], [slow, eyes, cheap])
    order = [choice.test for choice in choose(base, weigh(base, []), [], ORDINARY)]
    assert order == ["cheap", "eyes", "slow"]


def test_by_hand_every_observation_costs_a_persons_time() -> None:
    telling: dict[str, tuple[float, ...]] = {"loss.c": (0.9, 0.1), "data.a": (0.1, 0.9)}
    quick = observation("quick", telling, seconds=1)
    base = knowledge([cause(name) for name in NAMES], [quick])
    assert choose(base, weigh(base, []), [], ORDINARY)[0].cost == 1.0
    assert choose(base, weigh(base, []), [], ORDINARY, by_hand=True)[0].cost == 61.0


def test_a_test_of_a_channel_already_read_is_discounted() -> None:
    rows: dict[str, tuple[float, ...]] = {"loss.c": (0.9, 0.1), "data.a": (0.1, 0.9)}
    first, again, other = (
        observation("first", rows, reads="loss curve"),
        observation("again", rows, reads="loss curve"),
        observation("other", rows, reads="gradients"),
    )
    base = knowledge([cause(name) for name in NAMES], [first, again, other])
    clues = [clue(first, "seen")]
    found = {choice.test: choice.gain for choice in choose(base, weigh(base, clues), clues, ORDINARY)}
    assert found["other"] == pytest.approx(found["again"] * 1.8)


def test_priors_follow_the_families_and_weights() -> None:
    base = knowledge([cause("data.a", weight=3.0), cause("data.b"), cause("loss.c")], [])
    prior = priors(base, ORDINARY)
    assert prior["data.a"] == pytest.approx(3 * prior["data.b"])
    assert (prior["data.a"] + prior["data.b"]) == pytest.approx(2 * prior["loss.c"])
    assert math.fsum(prior.values()) == pytest.approx(1.0)


def test_each_outcome_moves_credence_the_way_the_table_says() -> None:
    test = observation("t0", {"loss.c": (0.8, 0.2)}, otherwise=(0.4, 0.6), healthy=(0.1, 0.9))
    base = knowledge([cause(name) for name in NAMES], [test])
    start = weigh(base, []).credence("loss.c")
    assert weigh(base, [clue(test, "absent")]).credence("loss.c") < start
    assert weigh(base, [clue(test, "seen")]).credence("loss.c") > start


def test_a_mechanism_that_may_do_no_harm_needs_a_symptom_beside_it() -> None:
    alone = model.Decisive("old", "env.z", 0.9, ("curve=alike",), ("curve=apart", "metric=low"))
    assert not alone.stands(set())
    assert alone.stands({"metric=low", "other=seen"})
    assert not alone.stands({"metric=low", "curve=alike"})
    assert model.Decisive("old", "env.z", 0.9).stands(set())
    look = observation("look", {"env.z": (0.95, 0.05)}, role="mechanism", decisive=(("seen", "env.z", 0.9),))
    look = look._replace(decisive=(look.decisive[0]._replace(beside=("curve=seen",)),))
    curve = observation("curve", {"data.a": (0.6, 0.4)})
    base = knowledge([cause("env.z"), cause("data.a")], [look, curve])
    assert not weigh(base, [clue(look, "seen"), clue(curve, "absent")]).findings
    assert weigh(base, [clue(look, "seen"), clue(curve, "seen")]).findings


@pytest.mark.parametrize("prior", [0.1, 0.4, 0.6])
def test_an_own_hypothesis_without_observations_keeps_the_prior_it_was_given(prior: float) -> None:
    own = Own(2, "own.1", "the labels are shuffled", prior, (), "look")
    weighing = weigh(load(), [], Subject(own=(own,)))
    assert weighing.credence("own.1") == pytest.approx(prior, abs=0.005)


def test_what_was_seen_rules_explanations_out() -> None:
    held = weigh(load(), [Clue("loss_nonfinite", "seen", reads=("loss curve",))], Subject(setting="routine"))
    assert [held.credence(name) for name in ("none.healthy", "none.overfitting", "none.slow")] == [0.0, 0.0, 0.0]
    assert math.fsum([held.unknown, *(share.credence for share in held.shares)]) == pytest.approx(1.0)


def test_a_bias_that_no_loss_reaches_is_nothing_against_conditions_that_enter_none() -> None:
    """Nor is it enough to accuse: what is known by its gradient alone has a bias that is free as well."""
    seen = {"parameters_changed": "some_never", "loss_reaches_parameters": "some_missing"}
    clues = [answered(load().tests[test], (), outcome, source="observe") for test, outcome in seen.items()]
    held = weigh(load(), clues, Subject("pinn"))
    bits = {pull.clue: pull.bits for pull in held.pulls("pinn.boundary_ignored")}
    assert bits[0] > 0
    assert next(share.credence for share in held.shares if share.cause == "pinn.boundary_ignored") < LOCALISED
