"""A complaint is read for what it says of which quantity."""

import pytest

from clew.app.known import suggest
from clew.knowledge import load
from clew.symptoms.complaint import observations

SAYS = {
    "val accuracy stuck at 9 %, 10 classes; train loss goes to 0.02": [
        "metric_at_chance=at_chance",
        "metric_vs_loss=loss_falls_metric_flat",
        "training_fit=near_zero",
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
    assert [item.test for item in held] == ["metric_at_chance", "metric_vs_loss", "training_fit"]
    assert held[1].outcome == "loss_falls_metric_flat"


def test_words_of_no_known_quantity_are_searched_for() -> None:
    assert suggest("the agent's return on unseen episodes is the same every time")


FIRST = {
    "val accuracy stuck at 9 %, 10 classes; train loss goes to 0.02": "metric_at_chance=at_chance",
    "loss 0.69 from the start and never moves": "loss_stuck_from_start=stuck",
    "loss is nan after 200 steps": "loss_nonfinite=seen",
    "train accuracy 99 %, test accuracy 60 %": "train_val_gap=val_much_worse",
    "validation loss rises after epoch 5 while the training loss keeps falling": "val_turns_up=turns",
    "the loss oscillates wildly": "loss_oscillates=wild",
    "loss jumps at every epoch boundary": "loss_epoch_sawtooth=seen",
    "every epoch gets slower": "step_time_trend=grows",
    "GPU memory grows until OOM": "memory_trend=grows",
    "the model predicts the same class for every input": "outputs_constant=constant",
    "gradients explode in the LSTM": "gradient_explodes=explodes",
    "great on validation but useless in production": "fails_on_fresh_data=fails",
    "the loss went negative": "loss_goes_negative=seen",
    "99.9 % accuracy in the first epoch": "too_good_too_soon=suspicious",
    "perplexity 1.01 after ten steps": "too_good_too_soon=suspicious",
    "BLEU stays at 0 although the loss decreases": "metric_at_chance=at_chance",
    "GPT loss plateaus at 7.5": "loss_plateau=early_high",
    "generated text is the same token again and again": "outputs_constant=constant",
    "fine-tuning loss spikes to 40 in the first steps and recovers": "loss_spike_at_start=seen",
    "cross-entropy of the language model rises from the start": "loss_rises=steadily",
    "reward goes up then collapses to 9": "returns_course=falls",
    "PPO return falls after 1M steps, entropy collapses": "entropy_trend=collapsed",
    "DQN return stays at 10, never learns": "returns_course=level",
    "average reward flat for 500 episodes, entropy stays at ln 2": "entropy_trend=flat",
    "KL spikes and the policy breaks": "kl_per_update=spike",
    "explained variance is negative": "explained_variance=negative",
    "episode length never changes": "episode_length_trend=no_change",
    "the agent is worse than random": "returns_course=falls",
    "PINN residual goes to zero but the solution is zero everywhere": "outputs_constant=constant",
    "boundary condition not satisfied, residual small": "boundary_error=violated",
    "the PINN ignores the initial condition": "boundary_error=violated",
    "the residual is stuck at 1e3": "loss_stuck_from_start=stuck",
    "training takes longer with every epoch": "step_time_trend=grows",
    "the loss doesn't decrease": "loss_stuck_from_start=stuck",
    "gradient norm is zero": "gradient_by_depth=zero",
    "val loss stuck, accuracy fine": "loss_stuck_from_start=stuck",
    "val loss 0.5 never falls": "loss_stuck_from_start=stuck",
    "learned viscosity goes to zero": "physical_parameter_track=at_zero_or_bound",
}


@pytest.mark.parametrize("words", FIRST)
def test_the_first_suggestion_is_what_was_said(words: str) -> None:
    held = suggest(words)
    assert held, "the words name an observation"
    assert f"{held[0].test}={held[0].outcome}" == FIRST[words]


NOT_SAID = {
    "perplexity 1.01 after ten steps": "step_time_trend",
    "boundary condition not satisfied, residual small": "loss_epoch_sawtooth",
    "PINN residual goes to zero but the solution is zero everywhere": "loss_goes_negative",
    "reward goes up then collapses to 9": "episode_length_trend",
    "train accuracy 99 %, test accuracy 60 %": "val_erratic",
    "DQN return stays at 10, never learns": "loss_rises",
    "val loss goes to 0.02": "training_fit",
    "generator loss goes up, discriminator loss to zero": "training_fit",
    "train loss goes to 0.52": "training_fit",
}


@pytest.mark.parametrize("words", NOT_SAID)
def test_what_was_not_said_is_not_suggested(words: str) -> None:
    assert NOT_SAID[words] not in {item.test for item in suggest(words, most=9)}
