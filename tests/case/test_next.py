"""What is asked next: at its true cost, nothing that is known already, and the field's own questions first."""

import pytest

from clew.case.choose import LEAST_LEADING, AtHand, Choice, choose, leading, settled
from clew.case.weigh import Subject, weigh
from clew.knowledge import load
from clew.records.clue import Clue

AT_CHANCE = ("metric_at_chance", "at_chance")
FALLS = ("loss_stuck_from_start", "falls")
MUCH_WORSE = ("train_val_gap", "val_much_worse")


def asked(*seen: tuple[str, str], domain: str = "general", at_hand: AtHand | None = None) -> list[Choice]:
    knowledge = load()
    clues = [Clue(test, outcome, reads=(knowledge.tests[test].reads,)) for test, outcome in seen]
    subject = Subject(domain)
    return list(choose(knowledge, weigh(knowledge, clues, subject), clues, subject, 300, by_hand=True, at_hand=at_hand))


@pytest.mark.parametrize(
    ("seen", "known"),
    [
        ([FALLS], "loss_nonfinite"),
        ([FALLS, AT_CHANCE], "metric_vs_loss"),
        ([("metric_vs_loss", "loss_falls_metric_flat")], "loss_stuck_from_start"),
        ([MUCH_WORSE], "loss_stuck_from_start"),
        ([AT_CHANCE], "too_good_too_soon"),
    ],
)
def test_nothing_that_the_clues_entail_is_asked(seen: list[tuple[str, str]], known: str) -> None:
    assert known in {choice.test for choice in asked()}
    assert known not in {choice.test for choice in asked(*seen)}


def test_half_of_what_entails_an_answer_leaves_the_question() -> None:
    assert "metric_vs_loss" in {choice.test for choice in asked(FALLS)}
    weighing = weigh(load(), [Clue("loss_stuck_from_start", "slow", reads=("loss curve",))])
    assert settled(load(), weighing) == {"loss_stuck_from_start"}


def test_a_falling_training_loss_beside_chance_asks_for_the_validation_path_and_not_for_the_curve() -> None:
    order = [choice.test for choice in asked(MUCH_WORSE, AT_CHANCE)]
    assert order[0] == "train_batch_in_validation"
    assert "input_statistics_match" in order[:4]
    assert "loss_stuck_from_start" not in order
    run = AtHand("x", 20.0, True, frozenset({"input_statistics_match", "loss_plateau"}))
    order = [choice.test for choice in asked(MUCH_WORSE, AT_CHANCE, at_hand=run)]
    assert order.index("input_statistics_match") < order.index("loss_plateau")


def test_a_run_at_hand_costs_seconds_and_only_where_it_has_the_answer() -> None:
    tests = load().tests
    held = AtHand("x", 20.0, True, frozenset({"update_ratio"}))
    cost = {choice.test: choice.cost for choice in asked(at_hand=held)}
    assert cost["update_ratio"] == tests["update_ratio"].seconds
    assert cost["overfit_one_batch"] == tests["overfit_one_batch"].seconds
    assert cost["gradient_by_depth"] > 60, "the run could not tell"
    again = {choice.test: choice.cost for choice in asked(at_hand=held._replace(captured=False))}
    assert again["overfit_one_batch"] == tests["overfit_one_batch"].seconds + 20
    assert cost["data_looks_right"] == again["data_looks_right"] > 60, "a person has to look"


@pytest.mark.parametrize(("domain", "wanted"), [("rl", "terminal_handling"), ("pinn", "boundary_gradient_share")])
def test_the_questions_of_the_field_lead(domain: str, wanted: str) -> None:
    found = asked(domain=domain)
    first = found[:3]
    assert wanted in {choice.test for choice in first}
    assert {choice.test for choice in first} <= leading(load(), domain)
    assert all(choice.gain > LEAST_LEADING for choice in first)
    rest = [choice.worth for choice in found[3:]]
    assert rest == sorted(rest, reverse=True)


def test_ordinary_fields_have_no_questions_that_lead() -> None:
    assert leading(load(), "general") == leading(load(), "vision") == set()


FLAT = ("metric_vs_loss", "loss_falls_metric_flat")
FITTED = ("training_fit", "near_zero")


def test_a_training_batch_through_the_validation_code_is_asked_first_beside_a_flat_metric() -> None:
    order = [choice.test for choice in asked(AT_CHANCE, FLAT, domain="vision")]
    assert set(order[:2]) == {"train_eval_same_batch", "train_batch_in_validation"}


def test_a_fitted_training_set_answers_whether_the_model_can_fit() -> None:
    order = [choice.test for choice in asked(AT_CHANCE, FITTED)]
    assert set(order[:2]) == {"train_eval_same_batch", "train_batch_in_validation"}
    assert not {"overfit_one_batch", "init_loss", "loss_plateau"} & set(order)


def test_where_a_nan_began_is_asked_only_of_a_nan() -> None:
    assert "nonfinite_onset" not in {choice.test for choice in asked()}
    assert "nonfinite_onset" in {choice.test for choice in asked(("loss_nonfinite", "seen"))}
