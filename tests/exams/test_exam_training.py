"""Exams of training on sound subjects of every kind, given and captured: no exam may see a fault there."""

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from network_subjects import Convolutions, Variational, ask, classes, outcome, pictures, sound, variational_loss
from subjects_data import HEALTHY
from taping import kept
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from clew.exams.exam import all_exams
from clew.exams.sit import clue_of
from clew.exams.subject import Subject
from clew.knowledge.base import load
from clew.records.clue import Clue

MINE = (
    "overfit_one_batch init_loss update_ratio same_seed_repeat step_lowers_batch_loss regularisation_raises_loss "
    "lr_range noise_scale term_conflict ablation seed_spread metric_oracle"
).split()
SLOW = ("seed_spread", "overfit_one_batch", "regularisation_raises_loss")
SOUND = dict(sound()) | {f"another {name}": make() for name, make in HEALTHY.items()}
for name, subject in SOUND.items():
    kind: Any = torch.optim.SGD if "regress" in name else torch.optim.AdamW
    subject.optimizer = partial(kind, lr=1e-2 if "regress" in name else 1e-3, weight_decay=1e-4)


def sees_nothing(clue: Clue) -> None:
    if clue.outcome == "unclear":
        assert "failed" not in clue.why
    else:
        known = load().tests[clue.test].outcome(clue.outcome)
        assert known is not None
        assert known.kind == "absent", (clue.outcome, clue.says, clue.measured)


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("exam", MINE)
def test_nothing_is_seen_in_what_is_sound(exam: str, name: str) -> None:
    if exam in SLOW and name in ("tokens", "pictures", "another language model", "time first", "another copying"):
        pytest.skip("the same is tried on smaller ones")
    sees_nothing(clue_of(load(), ask(exam, SOUND[name])))


@pytest.mark.parametrize("exam", MINE)
def test_the_usual_classifier_gets_an_answer(exam: str) -> None:
    assert (outcome(exam, SOUND["another classifier"]) == "unclear") == (exam == "term_conflict")


@pytest.mark.parametrize("exam", MINE)
def test_subject_and_random_state_stay_as_they_were(exam: str) -> None:
    given = SOUND["another images"]
    weights = copy.deepcopy(given.model.state_dict())
    held = [(batch.inputs.clone(), batch.target.clone()) for batch in given.batches]
    state, mode = torch.get_rng_state(), given.model.training
    ask(exam, given)
    assert torch.equal(state, torch.get_rng_state())
    assert given.model.training is mode
    assert all(parameter.grad is None for parameter in given.model.parameters())
    assert all(torch.equal(value, weights[name]) for name, value in given.model.state_dict().items())
    for batch, (inputs, target) in zip(given.batches, held, strict=True):
        assert torch.equal(batch.inputs, inputs)
        assert torch.equal(batch.target, target)


@pytest.mark.parametrize("exam", MINE)
def test_two_sittings_agree(exam: str) -> None:
    first, second = (clue_of(load(), ask(exam, SOUND["another binary"])) for _ in range(2))
    assert first.measured == second.measured
    assert first.why == second.why


@pytest.mark.parametrize("exam", MINE)
@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float64])
def test_other_precisions_are_examined(exam: str, precision: torch.dtype) -> None:
    base = SOUND["another classifier"]
    given = [(batch.inputs.to(precision), batch.target) for batch in base.batches]
    model = copy.deepcopy(base.model).to(precision)
    sees_nothing(clue_of(load(), ask(exam, Subject(model, base.loss, given, optimizer=base.optimizer))))


def test_every_exam_says_what_it_cannot_tell() -> None:
    exams = {name: held for name, held in all_exams().items() if name in MINE}
    assert len(exams) == len(MINE)
    for held in exams.values():
        assert held.asks.endswith("?")
        assert all(heading in held.doc for heading in ("Why it matters:", "Cannot tell:", "Silent when:"))
        assert held.test in load().tests


# --- captured


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(20, 64), nn.Dropout(0.3), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.drop(F.relu(self.first(x))))
        return out


class DroppingByHand(Dropping):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.first(x))
        if self.training:
            hidden = hidden * (torch.rand_like(hidden) < 0.7) / 0.7
        out: torch.Tensor = self.last(hidden)
        return out


def train(kind: str) -> None:
    torch.manual_seed(0)
    inputs, labels = classes(96)[0] if kind != "pictures" else pictures(96)[0]
    made = {"pictures": Convolutions, "no target": Variational, "dropout by hand": DroppingByHand}
    model: nn.Module = made.get(kind, Dropping)()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 1000)
    for given, wanted in DataLoader(TensorDataset(inputs, labels), batch_size=16, shuffle=True):
        optimizer.zero_grad()
        output = model(given)
        if kind == "no target":
            loss = variational_loss(output, None)
        elif kind == "softmax":
            loss = F.cross_entropy(output.softmax(1), wanted)
        elif kind == "two terms":
            loss = F.cross_entropy(output, wanted) + 0.1 * output.pow(2).mean()
        elif kind == "cancelling":
            loss = F.cross_entropy(output, wanted) + -0.9 * F.nll_loss(output.log_softmax(1), wanted)
        else:
            loss = F.cross_entropy(output, wanted)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if kind == "warm-up":
            warm.step()


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Subject]:
    torch.set_num_threads(1)
    made: dict[str, Subject] = {}
    for kind in ("warm-up", "pictures", "no target", "two terms", "softmax", "cancelling", "dropout by hand"):
        folder: Path = tmp_path_factory.mktemp("capture")
        made[kind] = kept(folder, partial(train, kind))
    return made


@pytest.mark.parametrize("kind", ["warm-up", "pictures", "no target", "two terms"])
@pytest.mark.parametrize("exam", MINE)
def test_nothing_is_seen_in_a_sound_capture(captures: dict[str, Subject], exam: str, kind: str) -> None:
    if exam == "seed_spread" and kind == "pictures":
        pytest.skip("the same is tried on smaller ones")
    sees_nothing(clue_of(load(), ask(exam, captures[kind])))


def test_what_a_step_draws_by_hand_need_not_be_drawn_in_eval_mode(captures: dict[str, Subject]) -> None:
    assert outcome("eval_repeat", captures["dropout by hand"]) == "unclear"


def test_a_captured_softmax_before_cross_entropy_is_seen(captures: dict[str, Subject]) -> None:
    assert outcome("overfit_one_batch", captures["softmax"]) == "stalls"
    assert outcome("init_loss", captures["softmax"]) == "at_chance"
    assert outcome("metric_oracle", captures["softmax"]) == "unclear"


def test_captured_terms_are_compared(captures: dict[str, Subject]) -> None:
    assert outcome("term_conflict", captures["two terms"]) == "not_opposed"
    assert outcome("term_conflict", captures["cancelling"]) == "opposed"
    answer = ask("term_conflict", captures["cancelling"]).answer
    assert "test_exam_training.py" in str(answer)


def test_a_warm_up_that_begins_at_zero_is_no_small_rate(captures: dict[str, Subject]) -> None:
    assert outcome("update_ratio", captures["warm-up"]) == "healthy"
    assert outcome("lr_range", captures["warm-up"]) == "in_range"


@pytest.mark.parametrize("exam", ["learning_curve", "seed_spread", "shortcut", "confident_errors"])
def test_held_out_inputs_without_targets_end_no_exam(exam: str) -> None:
    batches = classes(128)
    subject = Subject(Dropping(), F.cross_entropy, batches, val_batches=[(x, None) for x, _ in batches[:4]])
    sat = ask(exam, subject)
    assert "failed" not in str(getattr(sat.answer, "why", ""))
