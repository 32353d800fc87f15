"""What most projects find out too late: whether the training step can learn at all."""

import pytest

from clew import Subject
from clew.testing import (
    assert_all_parameters_train,
    assert_batch_independent,
    assert_causal,
    assert_deterministic,
    assert_eval_deterministic,
    assert_finite,
    assert_gradients_flow,
    assert_init_loss,
    assert_learns_from_input,
    assert_no_leak,
    assert_no_overlap,
    assert_overfits_batch,
)
from numerals.debug import subject as make


@pytest.fixture(scope="module")
def subject() -> Subject:
    return make()


def test_the_first_loss_is_that_of_guessing(subject: Subject) -> None:
    assert_init_loss(subject)


def test_no_letter_sees_the_letters_after_it(subject: Subject) -> None:
    assert_causal(subject)
    assert_no_leak(subject)


def test_numerals_of_a_batch_do_not_mix(subject: Subject) -> None:
    assert_batch_independent(subject)


def test_every_layer_learns(subject: Subject) -> None:
    assert_finite(subject)
    assert_gradients_flow(subject)
    assert_all_parameters_train(subject)


def test_one_batch_can_be_learned_by_heart(subject: Subject) -> None:
    assert_overfits_batch(subject)


def test_nothing_is_left_to_chance(subject: Subject) -> None:
    assert_deterministic(subject)
    assert_eval_deterministic(subject)


def test_held_out_numerals_are_held_out(subject: Subject) -> None:
    assert_no_overlap(subject)


@pytest.mark.clew_slow
def test_the_letters_before_matter(subject: Subject) -> None:
    assert_learns_from_input(subject, allow_unclear=True)


@pytest.mark.clew_slow
def test_nothing_stands_out(clew_lab, subject: Subject) -> None:
    assert clew_lab.examine(subject, budget=60).verdict == "healthy"
