"""The plan of exams: its order and cost, when it stops, and what an interrupt leaves."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from network_subjects import classes, perceptron
from torch import nn

from clew.case.choose import choose
from clew.case.verdict import Verdict, without
from clew.case.weigh import Subject as Weighed
from clew.case.weigh import weigh
from clew.exams import plan as planning
from clew.exams.exam import DECIDING, Exam, all_exams
from clew.exams.lab import Lab
from clew.exams.plan import Options, Progress, estimate, examine, make_plan, step_seconds
from clew.exams.subject import Subject
from clew.knowledge.base import load
from clew.knowledge.model import Knowledge
from clew.records.clue import Answer, Saw, Unclear
from small import cause, clue, knowledge, observation

torch.set_num_threads(1)
COMPLAINT = Options(setting="complaint")


def subject() -> Subject:
    return Subject(perceptron(), nn.CrossEntropyLoss(), classes())


def answering(outcome: str) -> Callable[[Lab], Answer]:
    def function(lab: Lab) -> Answer:
        lab.check(0.5)
        return Saw(outcome)

    return function


def made(name: str, function: Callable[[Lab], Answer], seconds: float = 1.0, steps: int = 0, test: str = "") -> Exam:
    return Exam(name, test or name, (), seconds, steps, function, f"What about {name}?")


def small(*names: str, decisive: bool = False) -> Knowledge:
    """Two causes; each test speaks of the first of them."""
    rows: dict[str, tuple[float, ...]] = {"data.a": (0.9, 0.1)}
    sure = (("seen", "data.a", 0.95),) if decisive else ()
    tests = [observation(name, rows, decisive=sure, role="mechanism" if decisive else "check") for name in names]
    return knowledge([cause("data.a", refute_test=names[0]), cause("loss.b", refute_test=names[0])], tests)


@pytest.fixture
def exams(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def use(*given: Exam) -> None:
        monkeypatch.setattr(planning, "all_exams", lambda: {item.name: item for item in given})

    return use


class Clock:
    """Time passes only when an exam says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    held = Clock()
    monkeypatch.setattr(planning, "time", held)
    return held


def names(items: Any) -> list[str]:
    return [item.exam.name for item in items]


# --- the plan


def test_the_order_is_that_of_the_triage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "step_seconds", lambda _: 1e-4)
    base = load()
    plan = make_plan(subject(), base, budget=1e4)
    order = {test: step.order for step in sorted(base.triage.values(), key=lambda s: -s.order) for test in step.tests}
    first = plan.first[2:]
    assert names(plan.first[:2]) == ["batch_independence", "leak_tracer"]
    questions = [order[item.exam.test] for item in first]
    assert questions == sorted(questions)
    assert names(first)[0] == "first_nonfinite"
    assert names(plan.first).index("init_loss") < names(plan.first).index("overfit_one_batch")
    assert not any(item.exam.test in order for item in plan.then)
    for one, two in pairwise(first):
        if order[one.exam.test] == order[two.exam.test]:
            assert one.seconds <= two.seconds


def next_token() -> Subject:
    tokens = torch.randint(0, 11, (4, 9))
    model = nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 11))
    return Subject(
        model,
        lambda out, y: nn.functional.cross_entropy(out.flatten(0, 1), y.flatten()),
        [(tokens[:, :-1], tokens[:, 1:])],
    )


@pytest.mark.parametrize("step", [1e-4, 0.5])
def test_what_decides_comes_first_whatever_it_costs(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    monkeypatch.setattr(planning, "step_seconds", lambda _: step)
    assert tuple(names(make_plan(next_token(), load()).first)[:3]) == DECIDING
    plan = make_plan(subject(), load())
    assert tuple(names(plan.first)[:2]) == DECIDING[1:]


def test_what_decides_and_had_no_time_forbids_health() -> None:
    for make, missing in ((next_token, DECIDING), (subject, DECIDING[1:])):
        held = make()
        done = examine(held, load(), budget=0.01)
        assert done.left_out(held) == missing
        sound = Verdict("healthy", "All 9 checks that ran passed.")
        said = without(sound, done.left_out(held), "RUN")
        assert said.shown == "NOTHING FOUND"
        assert said.says.endswith(f"clew exam RUN --only {' '.join(missing)}")
        whole = examine(held, load(), budget=60.0, options=Options(only=DECIDING))
        assert without(sound, whole.left_out(held), "RUN") == sound


def test_dear_exams_wait_for_all_the_cheap_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "step_seconds", lambda _: 0.02)
    plan = make_plan(subject(), load(), budget=60.0)
    costs = [item.seconds for item in plan.first]
    limit = 60.0 * planning.DEAR
    first_dear = next(index for index, cost in enumerate(costs) if cost > limit)
    assert all(cost > limit for cost in costs[first_dear:])
    assert {"leak_tracer", "batch_independence"} <= set(names(plan.first)[:first_dear])
    assert all(item.seconds > limit for item in plan.then)


def test_what_was_answered_is_left_out_and_what_was_unclear_is_not() -> None:
    base = load()
    clues = [clue(base.tests["overfit_one_batch"], "fits"), clue(base.tests["gradient_by_depth"], "unclear")]
    plan = make_plan(subject(), base, clues)
    assert "overfit_one_batch" not in names([*plan.first, *plan.then])
    assert "gradient_by_depth" in names(plan.first)
    why = dict(zip(names(plan.skipped), [item.why for item in plan.skipped], strict=True))
    assert why["overfit_one_batch"] == "already answered"
    assert why["nearest_neighbour_overlap"] == "needs validation, which the subject does not have"


def test_exams_of_labels_are_left_out_for_agents() -> None:
    plan = make_plan(subject(), load(), options=planning.Options(domain="rl"))
    why = dict(zip(names(plan.skipped), [item.why for item in plan.skipped], strict=True))
    assert "no fixed labels" in why["metric_oracle"]
    assert "init_loss" not in why


@pytest.mark.parametrize(
    ("passed", "game"),
    [({"event_order": {"through_others": 9}}, True), ({"players_pull": {}}, True), ({"event_order": {}}, False)],
)
def test_a_copy_that_trains_alone_shows_nothing_in_a_game(passed: dict[str, dict[str, int]], game: bool) -> None:
    base = load()
    outcome = {"event_order": "usual", "players_pull": "opposed"}
    clues = [
        clue(base.tests[test], outcome[test])._replace(measured=tuple(held.items())) for test, held in passed.items()
    ]
    for only in ((), ("overfit_one_batch", "label_permutation")):
        plan = make_plan(subject(), base, clues, options=Options(only=only))
        why = dict(zip(names(plan.skipped), [item.why for item in plan.skipped], strict=True))
        assert ("train against each other" in why.get("overfit_one_batch", "")) is game
        assert ("train against each other" in why.get("label_permutation", "")) is game
        assert "init_loss" not in why


def test_exams_of_another_kind_of_subject_are_left_out(exams: Callable[..., None]) -> None:
    exams(made("probe", answering("seen"), test="probe_constant_value"))
    assert names(make_plan(subject(), load()).skipped) == ["probe"]


@pytest.mark.parametrize(
    ("seconds", "steps", "step", "expected"),
    [(2.0, 0, 0.01, 2.0), (2.0, 0, 3.0, 30.0), (2.0, 200, 0.01, 2.0), (2.0, 200, 0.5, 100.0), (2.0, 200, None, 2.0)],
)
def test_the_estimate(seconds: float, steps: int, step: float | None, expected: float) -> None:
    held = made("x", answering("seen"), seconds, steps)
    assert estimate(held, float("nan") if step is None else step) == pytest.approx(expected)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.01, 200), min_size=1, max_size=12), st.floats(0.5, 100))
def test_every_exam_is_planned_or_skipped_and_none_is_dearer_than_the_budget(costs: list[float], budget: float) -> None:
    given_exams = {f"e{i}": made(f"e{i}", answering("absent"), cost) for i, cost in enumerate(costs)}
    base = small(*given_exams)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "all_exams", lambda: given_exams)
        patch.setattr(planning, "step_seconds", lambda _: float("nan"))
        plan = make_plan(SUBJECT, base, budget=budget, options=COMPLAINT)
    assert sorted(names([*plan.first, *plan.then, *plan.skipped])) == sorted(given_exams)
    assert all(item.seconds <= budget for item in (*plan.first, *plan.then))
    assert plan.seconds <= budget
    assert all(given_exams[item.exam.name].seconds > budget for item in plan.skipped)


SUBJECT = subject()


def test_measuring_a_step_leaves_no_trace() -> None:
    held = subject()
    before = [parameter.detach().clone() for parameter in held.model.parameters()]
    state = torch.get_rng_state()
    assert step_seconds(held) > 0
    assert torch.equal(state, torch.get_rng_state())
    for parameter, old in zip(held.model.parameters(), before, strict=True):
        assert torch.equal(parameter, old)
        assert parameter.grad is None


def test_a_step_that_fails_has_no_time() -> None:
    held = Subject(nn.Linear(3, 2), nn.CrossEntropyLoss(), classes())
    assert step_seconds(held) != step_seconds(held)


# --- making them


def test_it_stops_at_a_finding(exams: Callable[..., None]) -> None:
    exams(made("a", answering("absent")), made("b", answering("seen")), made("c", answering("absent")))
    base = small("a", "b", "c", decisive=True)
    done = examine(subject(), base, options=COMPLAINT)
    assert "b" in names(done.sats)
    assert done.ended == "one cause stands out: data.a"
    assert set(names(done.sats)) | set(names(done.skipped)) == {"a", "b", "c"}
    assert all(item.why == "data.a stands out already" for item in done.skipped)
    assert not done.interrupted


def test_a_finding_from_watching_leaves_nothing_to_do(exams: Callable[..., None]) -> None:
    exams(made("b", answering("absent")))
    base = small("a", "b", decisive=True)
    done = examine(subject(), base, [clue(base.tests["a"], "seen")], options=COMPLAINT)
    assert not done.sats
    assert names(done.skipped) == ["b"]


@pytest.mark.parametrize("options", [COMPLAINT._replace(thorough=True), COMPLAINT._replace(only=("c", "b"))])
def test_whoever_asks_for_more_gets_more(
    exams: Callable[..., None], monkeypatch: pytest.MonkeyPatch, options: Options
) -> None:
    held = {name: made(name, answering("seen")) for name in "abc"}
    exams(*held.values())
    monkeypatch.setattr(planning, "find_exam", held.__getitem__)
    done = examine(subject(), small("a", "b", "c", decisive=True), options=options)
    assert names(done.sats) == ["c", "b"] if options.only else sorted(names(done.sats)) == ["a", "b", "c"]


def test_the_engine_chooses_what_tells_most_for_its_time(exams: Callable[..., None]) -> None:
    tests = [
        observation("weak", {"data.a": (0.45, 0.55)}, healthy=(0.3, 0.7)),
        observation("strong", {"data.a": (0.95, 0.05)}, healthy=(0.05, 0.95), otherwise=(0.05, 0.95)),
        observation("deaf", {}, healthy=(0.3, 0.7)),
    ]
    base = knowledge([cause("data.a", refute_test="weak"), cause("loss.b", refute_test="weak")], tests)
    exams(*(made(test.id, answering("absent")) for test in tests))
    done = examine(subject(), base, options=COMPLAINT)
    kind = Weighed("general", "complaint")
    assert names(done.sats)[0] == choose(base, weigh(base, [], kind), [], kind)[0].test == "strong"
    assert "deaf" not in names(done.sats)
    assert done.ended == "no remaining exam would tell more"


def test_the_budget_is_kept(exams: Callable[..., None], clock: Clock) -> None:
    limits = []

    def slow(lab: Lab) -> Answer:
        limits.append(lab.limit)
        clock.now += 8.0
        return Saw("absent")

    exams(*(made(name, slow, seconds=3.0) for name in "abcd"))
    done = examine(subject(), small(*"abcd"), budget=20.0, options=COMPLAINT._replace(thorough=True))
    assert len(done.sats) == 3
    assert limits == [6.0, 6.0, 4.0]
    assert done.seconds == pytest.approx(24.0)
    assert done.ended == "stopped at the time limit of 20 s (--budget gives more)"
    assert [item.why for item in done.skipped] == ["the budget was used up"]


def test_what_does_not_fit_any_more_is_skipped_with_its_reason(exams: Callable[..., None], clock: Clock) -> None:
    def slow(_: Lab) -> Answer:
        clock.now += 15.0
        return Saw("absent")

    exams(made("a", slow, seconds=0.5), made("b", answering("absent"), seconds=9.0))
    done = examine(subject(), small("a", "b"), budget=20.0, options=COMPLAINT._replace(thorough=True))
    assert names(done.sats) == ["a"]
    assert [item.why for item in done.skipped] == ["would take about 9 s, and 5 s of the budget were left"]


def test_an_interrupt_keeps_what_was_learned(exams: Callable[..., None]) -> None:
    def stop(lab: Lab) -> Answer:
        del lab
        raise KeyboardInterrupt

    exams(made("a", answering("absent"), 0.1), made("b", stop, 5.0), made("c", answering("absent"), 6.0))
    done = examine(subject(), small(*"abc"), options=COMPLAINT)
    assert done.interrupted
    assert done.ended == "interrupted"
    assert names(done.sats) == ["a"]
    assert len(done.clues) == 1
    assert sorted(names(done.skipped)) == ["b", "c"]


def test_an_interrupt_while_planning(exams: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_: Subject) -> float:
        raise KeyboardInterrupt

    exams(made("a", answering("absent")))
    monkeypatch.setattr(planning, "step_seconds", stop)
    done = examine(subject(), small("a"), options=COMPLAINT)
    assert done.interrupted
    assert done.sats == ()


def test_progress_is_told_up_to_the_clue(exams: Callable[..., None]) -> None:
    exams(made("a", answering("absent")))
    told: list[Progress] = []
    examine(subject(), small("a"), tell=told.append, options=COMPLAINT)
    assert [item.share for item in told] == [0.0, 0.5, 1.0]
    assert [item.clue is not None for item in told] == [False, False, True]
    assert told[-1].clue is not None
    assert told[-1].clue.outcome == "absent"


def test_an_exam_that_fails_is_unclear_and_the_others_go_on(exams: Callable[..., None]) -> None:
    def fail(_: Lab) -> Answer:
        raise RuntimeError("shapes do not fit")

    exams(made("a", fail), made("b", answering("absent")))
    done = examine(subject(), small("a", "b"), options=COMPLAINT)
    assert {item.test: item.outcome for item in done.clues} == {"a": "unclear", "b": "absent"}


def test_a_step_that_is_not_replayed_truly_lets_only_the_data_speak(exams: Callable[..., None]) -> None:
    class Untrue(Subject):
        def untrue(self) -> str:
            return "the replay differs"

    def looks_at_data(lab: Lab) -> Answer:
        return Saw("absent") if lab.batches else Unclear("nothing there")

    def calls_the_model(lab: Lab) -> Answer:
        lab.fresh()
        return Saw("seen")

    exams(made("a", calls_the_model), made("b", looks_at_data))
    held = Untrue(perceptron(), nn.CrossEntropyLoss(), classes())
    done = examine(held, small("a", "b"), options=COMPLAINT)
    assert done.plan.untrue == "the replay differs"
    assert done.plan.step != done.plan.step
    assert [item.test for item in done.clues] == ["b"]
    assert [item.why for item in done.skipped] == ["calls the model, which cannot be replayed"]


def test_a_second_exam_of_an_answered_test_is_not_made(exams: Callable[..., None]) -> None:
    exams(made("a", answering("absent")), made("a2", answering("seen"), 2.0, test="a"))
    done = examine(subject(), small("a"), options=COMPLAINT._replace(thorough=True))
    assert names(done.sats) == ["a"]


# --- the real ones


class Mixing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(20, 32), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(x))
        out: torch.Tensor = self.last(hidden.t().reshape(hidden.shape))
        return out


def stands(done: planning.Examined) -> str:
    base = load()
    return planning.stands_out(base, weigh(base, done.clues, Weighed("general", "routine")))


QUICK = (
    "batch_independence label_counts data_sanity first_nonfinite gradient_by_depth init_loss leak_tracer "
    "loss_reaches_parameters"
).split()


def test_a_fault_is_found_and_a_sound_subject_is_not_accused(exams: Callable[..., None]) -> None:
    exams(*(held for name, held in all_exams().items() if name in QUICK))
    with torch.random.fork_rng():
        faulty = Subject(Mixing(), nn.CrossEntropyLoss(), classes())
    state = torch.get_rng_state()
    assert stands(examine(faulty, load())) == "arch.batch_mixing"
    sound = examine(subject(), load())
    assert torch.equal(state, torch.get_rng_state())
    assert stands(sound) == ""
    assert len(sound.sats) == len(QUICK)
    assert not [item for item in sound.clues if "failed" in item.why]


def test_every_exam_is_of_a_known_test_and_says_what_it_cannot_tell() -> None:
    tests = load().tests
    for held in all_exams().values():
        assert held.test in tests, held.name
        assert held.asks.endswith("?"), held.name
        for heading in ("Why it matters:", "Cannot tell:", "Silent when:"):
            assert heading in held.doc, (held.name, heading)


def test_an_exam_over_its_estimate_is_stopped(exams: Callable[..., None], clock: Clock) -> None:
    """At once where others wait for the time, and otherwise not much later."""
    limits: dict[str, float] = {}

    def asks(name: str) -> Callable[[Lab], Answer]:
        def function(lab: Lab) -> Answer:
            limits[name] = lab.limit
            clock.now += 8.0
            return Saw("absent")

        return function

    held = [made(name, asks(name), 10.0) for name in ("a", "b", "c")]
    exams(*held)
    base = small("a", "b", "c")
    many = planning.Plan(tuple(planning.Planned(exam, 10.0, "") for exam in held), (), (), float("nan"))
    thorough = COMPLAINT._replace(thorough=True)
    examine(subject(), base, budget=30.0, options=thorough, plan=many)
    assert limits == {"a": 10.0, "b": 12.0, "c": 14.0}
    examine(subject(), base, budget=300.0, options=thorough, plan=many)
    assert limits == {"a": 20.0, "b": 20.0, "c": 20.0}


def test_the_estimate_of_what_was_asked_for_keeps_to_the_budget(exams: Callable[..., None]) -> None:
    held = {name: made(name, answering("absent"), 25.0) for name in ("a", "b", "c")}
    exams(*held.values())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "find_exam", held.__getitem__)
        patch.setattr(planning, "step_seconds", lambda _: float("nan"))
        plan = make_plan(SUBJECT, small(*held), budget=60.0, options=COMPLAINT._replace(only=("a", "b", "c")))
    assert (names(plan.first), names(plan.skipped)) == (["a", "b"], ["c"])
    assert "takes the budget of 60 s" in plan.skipped[0].why
