"""The rules of conduct, tried on a small base where the leading cause can be chosen at will."""

from hypothesis import given
from hypothesis import strategies as st

from clew.case.choose import choose
from clew.case.conduct import CORRECTNESS, Advice, advise, explanations
from clew.case.verdict import judge
from clew.case.weigh import ORDINARY, weigh
from clew.knowledge import model
from clew.knowledge.model import Knowledge
from clew.records.clue import Clue
from small import cause, clue, knowledge, observation

NAMES = ["data.a", "data.b", "data.c", "loss.c", "train.d", "arch.e", "hp.f", "num.g", "env.h"]
REFERENCE = model.Reference(
    "ref", "A reference", ("general",), "https://example.org", "used widely.", "all.", ("claim",)
)


def base(extra: list[model.Test] | None = None) -> Knowledge:
    """Every cause has a test that speaks for it strongly, and one telling check each for the loop."""
    pointing = [
        observation(
            f"points_at_{name.split('.')[1]}", {name: (0.99, 0.01)}, otherwise=(0.01, 0.99), healthy=(0.01, 0.99)
        )
        for name in NAMES
    ]
    dull = [observation(f"dull{index}", {"data.a": (0.31, 0.69)}) for index in range(4)]
    checks = [observation(name, {"loss.c": (0.6, 0.4)}) for name in (*CORRECTNESS, "reference_diff", "t0")]
    causes = [cause(name, subtle=name == "env.h", refute_test=f"points_at_{name.split('.')[1]}") for name in NAMES]
    return knowledge(causes, [*pointing, *dull, *checks, *(extra or [])], references=(REFERENCE,))


def advice(held: Knowledge, clues: list[Clue]) -> Advice:
    weighing = weigh(held, clues)
    return advise(held, weighing, clues, choose(held, weighing, clues, ORDINARY), "general")


@given(st.lists(st.tuples(st.sampled_from(range(22)), st.sampled_from(["seen", "absent", "unclear"])), max_size=10))
def test_three_different_explanations_with_the_subtle_and_the_null(seen: list[tuple[int, str]]) -> None:
    held = base()
    tests = list(held.tests.values())
    clues = [clue(tests[index % len(tests)], outcome) for index, outcome in seen]
    shown = explanations(held, weigh(held, clues))
    assert len(shown) >= 3
    assert len({item.cause for item in shown}) == len(shown)
    assert len({item.cause.split(".")[0] for item in shown}) >= 3
    assert any(held.causes[item.cause].subtle for item in shown)
    assert any(item.cause.startswith("none.") for item in shown)
    assert [item.credence for item in shown] == sorted((item.credence for item in shown), reverse=True)


def test_the_first_advice_is_an_observation() -> None:
    first = advice(base(), [])
    assert first.kind == "observe"
    assert first.test


def test_a_hyper_parameter_is_not_touched_before_the_code_is_shown_to_be_right() -> None:
    held = base()
    clues = [clue(held.tests["points_at_f"], "seen")]
    assert weigh(held, clues).shares[0].cause == "hp.f"
    for name in CORRECTNESS:
        now = advice(held, clues)
        assert now.kind == "observe"
        assert now.test == name
        assert "hyper-parameter" in now.says
        clues.append(clue(held.tests[name], "absent"))
    assert advice(held, clues).kind == "mend"


def test_a_leading_cause_must_first_survive_an_attempt_to_refute_it() -> None:
    other = observation("other", {"train.d": (0.99, 0.01)}, otherwise=(0.01, 0.99), healthy=(0.01, 0.99))
    held = base([other])
    clues = [clue(other, "seen")]
    now = advice(held, clues)
    assert (now.kind, now.test, now.cause) == ("refute", "points_at_d", "train.d")
    clues.append(clue(held.tests["points_at_d"], "seen"))
    now = advice(held, clues)
    assert (now.kind, now.cause) == ("mend", "train.d")


def test_two_looks_that_localise_nothing_end_the_guessing() -> None:
    held = base()
    clues = [clue(held.tests["dull0"], "seen")]
    assert advice(held, clues).kind == "observe"
    clues.append(clue(held.tests["dull1"], "seen"))
    now = advice(held, clues)
    assert now.kind == "compare"
    assert now.references == (REFERENCE,)


def test_symptoms_do_not_count_as_looks() -> None:
    signs = [observation(f"sign{index}", {"data.a": (0.31, 0.69)}, role="symptom") for index in range(3)]
    held = base(signs)
    assert advice(held, [clue(sign, "seen") for sign in signs]).kind == "observe"


def test_a_finding_is_checked_and_then_mended() -> None:
    look = observation("look", {"loss.c": (0.95, 0.05)}, role="mechanism", decisive=(("seen", "loss.c", 0.97),))
    held = base([look])
    now = advice(held, [clue(look, "seen")])
    assert now.kind == "mend"
    assert "an observation against loss.c" in now.says
    assert "the mend of loss.c" in now.says


def test_verdicts() -> None:
    look = observation("look", {"loss.c": (0.95, 0.05)}, role="mechanism", decisive=(("seen", "loss.c", 0.97),))
    held = base([look])

    def verdict(*clues: Clue) -> str:
        return judge(held, weigh(held, clues)).word

    tests = held.tests
    assert verdict() == "undecided"
    assert verdict(clue(tests["dull0"], "absent")) == "undecided"
    passed = [clue(tests[f"dull{index}"], "absent") for index in range(3)]
    assert verdict(*passed) == "undecided"  # in a complaint, three checks do not show health
    assert verdict(*passed, clue(tests["dull3"], "seen")) == "suspect"
    assert verdict(*passed, clue(look, "seen")) == "fault"
    assert verdict(clue(tests["points_at_d"], "seen")) == "fault"
    assert verdict(Clue("dull0", "unclear", why="no data")) == "undecided"
