"""A complaint is read for what it says of which quantity."""

import pytest

from clew.app.known import suggest
from clew.knowledge import load
from clew.symptoms.complaint import observations

SAYS = {
    "val accuracy stuck at 9 %, 10 classes; train loss goes to 0.02": [
        "metric_at_chance=at_chance",
        "metric_vs_loss=loss_falls_metric_flat",
    ],
    "val accuracy stuck at 10 %, 10 classes": ["metric_at_chance=at_chance"],
    "accuracy is at chance and the loss does not move": [
        "metric_at_chance=at_chance",
        "loss_stuck_from_start=stuck",
        "metric_vs_loss=neither_moves",
    ],
    "loss stuck at 2.3": ["loss_stuck_from_start=stuck"],
    "train loss falls, val loss rises": ["train_val_gap=val_much_worse"],
    "loss becomes NaN after 200 steps": ["loss_nonfinite=seen"],
    "the loss drops, then explodes": ["loss_diverges=after_falling"],
    "training loss decreases but F1 stays at 0.31": ["metric_vs_loss=loss_falls_metric_flat"],
    "validation accuracy jumps around": ["val_erratic=seen"],
    "val acc 0.5, binary": [],
    "accuracy improves while the train loss is flat": ["loss_stuck_from_start=stuck"],
    "memory grows until it is killed": ["memory_trend=grows"],
}


@pytest.mark.parametrize("words", SAYS)
def test_what_is_said_of_which_quantity(words: str) -> None:
    assert [f"{test}={outcome}" for test, outcome in observations(words)] == SAYS[words]


def test_every_observation_is_one_of_the_knowledge_base() -> None:
    tests = load().tests
    for words in SAYS:
        assert all(tests[test].outcome(outcome) for test, outcome in observations(words))


def test_a_falling_training_loss_is_not_suggested_to_be_stuck() -> None:
    held = suggest("val accuracy stuck at 9 %, 10 classes; train loss goes to 0.02")
    assert [item.test for item in held] == ["metric_at_chance", "metric_vs_loss"]
    assert held[1].outcome == "loss_falls_metric_flat"


def test_words_of_no_known_quantity_are_searched_for() -> None:
    assert suggest("the agent's return on unseen episodes is the same every time")
