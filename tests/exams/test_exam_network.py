"""Exams of the network on sound subjects of every kind: no exam may see a fault there."""

import copy
from typing import Any

import pytest
import torch
from network_subjects import Taped, ask, classes, outcome, sound

from clew.exams.exam import all_exams
from clew.exams.sit import clue_of
from clew.exams.subject import Subject
from clew.knowledge.base import load

MINE = (
    "activation_zero_share activation_saturation batch_independence loss_shapes causal_independence "
    "eval_repeat first_nonfinite gradient_check gradient_by_depth prime_dimensions unit_symmetry train_eval_same_batch "
    "weight_distribution"
).split()
SOUND = dict(sound())


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("exam", MINE)
def test_nothing_is_seen_in_what_is_sound(exam: str, name: str) -> None:
    knowledge = load()
    clue = clue_of(knowledge, ask(exam, SOUND[name]))
    if clue.outcome == "unclear":
        assert "failed" not in clue.why
    else:
        known = knowledge.tests[clue.test].outcome(clue.outcome)
        assert known is not None
        assert known.kind == "absent", (clue.outcome, clue.says, clue.measured)


@pytest.mark.parametrize("name", ["classifier", "tokens", "pictures"])
@pytest.mark.parametrize("exam", MINE)
def test_the_usual_models_get_an_answer(exam: str, name: str) -> None:
    silent = exam == "causal_independence" and name != "tokens"
    assert (outcome(exam, SOUND[name]) == "unclear") == silent


@pytest.mark.parametrize("exam", MINE)
def test_a_captured_step_without_parts_is_examined_alike(exam: str) -> None:
    fixed = outcome(exam, Taped(classes(), rows=32))
    free = outcome(exam, Taped(classes()))
    assert free == outcome(exam, SOUND["classifier"])
    # A size that was written down stands in the way of another number of examples, and that is no fault.
    assert fixed == ("unclear" if exam == "prime_dimensions" else free)


@pytest.mark.parametrize("exam", [*MINE, "capacity_doubling"])
def test_subject_and_random_state_stay_as_they_were(exam: str) -> None:
    subject = SOUND["pictures"] if exam != "capacity_doubling" else SOUND["one layer"]
    weights = copy.deepcopy(subject.model.state_dict())
    held = [(batch.inputs.clone(), batch.target.clone()) for batch in subject.batches]
    state, kind = torch.get_rng_state(), torch.get_default_dtype()
    ask(exam, subject)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_default_dtype() is kind
    assert not torch.is_anomaly_enabled()
    assert all(parameter.grad is None for parameter in subject.model.parameters())
    assert all(torch.equal(value, weights[name]) for name, value in subject.model.state_dict().items())
    for batch, (inputs, target) in zip(subject.batches, held, strict=True):
        assert torch.equal(batch.inputs, inputs)
        assert torch.equal(batch.target, target)


@pytest.mark.parametrize("exam", MINE)
def test_two_sittings_agree(exam: str) -> None:
    first, second = (clue_of(load(), ask(exam, SOUND["classifier"])) for _ in range(2))
    assert first.measured == second.measured


def test_every_exam_says_what_it_cannot_tell() -> None:
    exams: dict[str, Any] = {name: held for name, held in all_exams().items() if name in [*MINE, "capacity_doubling"]}
    assert len(exams) == len(MINE) + 1
    for held in exams.values():
        assert held.asks.endswith("?")
        assert all(heading in held.doc for heading in ("Why it matters:", "Cannot tell:", "Silent when:"))
        assert held.test in load().tests


@pytest.mark.parametrize("exam", MINE)
def test_half_precision_is_examined(exam: str) -> None:
    given = [(inputs.bfloat16(), target) for inputs, target in classes()]
    model = copy.deepcopy(SOUND["classifier"].model).bfloat16()
    clue = clue_of(load(), ask(exam, Subject(model, SOUND["classifier"].loss, given)))
    known = load().tests[clue.test].outcome(clue.outcome)
    assert known is None or known.kind == "absent"
