"""What a run does around its step is kept, and ablation leaves it out by parts: clipping, schedule, augmentation."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from taping import kept
from torch import nn
from torch.utils.data import DataLoader, Dataset

from clew.exams.around import Around
from clew.exams.captured import CapturedSubject
from clew.exams.checks.ablation import present
from clew.exams.exam import find_exam
from clew.exams.lab import Lab
from clew.exams.sit import sit
from clew.exams.subject import Clipping
from clew.observe.procedure import augmenting
from clew.records.clue import Answer, Saw, Unclear

torch.set_num_threads(1)
Augment = Callable[[torch.Tensor], torch.Tensor]


def rows(count: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(count, 8, generator=generator)
    return x, x[:, :3].argmax(1)


class Loop:
    """A loop with SGD; each part is left out unless it is given."""

    def __init__(
        self,
        augment: Augment | None = None,
        clip: Callable[[Any], Any] | None = None,
        schedule: Callable[[Any], Any] | None = None,
        by_hand: Callable[[int], float] | None = None,
        model: Callable[[], nn.Module] = lambda: nn.Linear(8, 3),
        rate: float = 0.5,
        steps: int = 30,
    ) -> None:
        self.augment, self.clip, self.schedule, self.by_hand = augment, clip, schedule, by_hand
        self.model, self.rate, self.steps = model, rate, steps

    def __call__(self) -> None:
        torch.manual_seed(0)
        x, y = rows()
        model = self.model()
        optimizer = torch.optim.SGD(model.parameters(), lr=self.rate)
        scheduler = self.schedule(optimizer) if self.schedule is not None else None
        for step in range(self.steps):
            chosen = torch.randint(0, len(x), (32,))
            inputs, target = x[chosen], y[chosen]
            if self.augment is not None:
                inputs = self.augment(inputs)
            if self.by_hand is not None:
                optimizer.param_groups[0]["lr"] = self.by_hand(step)
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), target).backward()
            if self.clip is not None:
                self.clip(model.parameters())
            optimizer.step()
            if scheduler is not None:
                scheduler.step()


def asked(subject: CapturedSubject) -> Answer:
    return sit(find_exam("ablation"), subject).answer


def noisy(inputs: torch.Tensor) -> torch.Tensor:
    return inputs + 60 * torch.randn_like(inputs)


def noisy_in_place(inputs: torch.Tensor) -> torch.Tensor:
    inputs += 60 * torch.randn(inputs.shape)
    return inputs


def noisy_before_scaling(inputs: torch.Tensor) -> torch.Tensor:
    return (10 * inputs + torch.empty_like(inputs).normal_(0, 600)) / 10


def masked(inputs: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.rand(inputs.shape) < 0.9995, torch.zeros_like(inputs), inputs)


def dropped(inputs: torch.Tensor) -> torch.Tensor:
    return F.dropout(inputs, 0.999)


def decays(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.02)


def name_of(function: Any) -> str:
    return getattr(function, "__name__", "")


STOPPING: dict[str, tuple[Loop, str]] = {
    "norm": (Loop(clip=lambda held: nn.utils.clip_grad_norm_(held, 1e-4)), "clipping"),
    "value": (Loop(clip=lambda held: nn.utils.clip_grad_value_(held, 1e-5)), "clipping"),
    "schedule": (Loop(schedule=decays, rate=0.1), "schedule"),
    "by hand": (Loop(by_hand=lambda step: 0.1 * 0.02**step), "schedule"),
    "noise": (Loop(augment=noisy), "augmentation"),
    "in place": (Loop(augment=noisy_in_place), "augmentation"),
    "then scaled": (Loop(augment=noisy_before_scaling), "augmentation"),
    "mask": (Loop(augment=masked), "augmentation"),
    "dropout of inputs": (Loop(augment=dropped), "augmentation"),
}


@pytest.mark.parametrize("name", STOPPING)
def test_the_part_that_stops_training_is_named(tmp_path: Path, name: str) -> None:
    loop, part = STOPPING[name]
    found = asked(kept(tmp_path, loop))
    assert isinstance(found, Saw), found
    assert found.outcome == "something_removed_mends", found.says
    assert dict(found.measured)["removed"] == part
    assert f"With {part} the loss falls by" in found.says
    (place,) = found.where
    where = {"augmentation": name_of(loop.augment), "clipping": "<lambda>", "schedule": "Loop.__call__"}
    assert place.symbol == where[part]


def test_of_several_parts_each_gets_its_figure(tmp_path: Path) -> None:
    loop = Loop(
        augment=lambda x: x + 0.1 * torch.randn_like(x),
        clip=lambda held: nn.utils.clip_grad_norm_(held, 1e-4),
        schedule=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30),
    )
    found = asked(kept(tmp_path, loop))
    assert isinstance(found, Saw)
    measured = dict(found.measured)
    assert measured["parts"] == "augmentation, schedule, clipping"
    assert measured["removed"] == "clipping"
    assert all(math.isfinite(float(measured[f"fall_with_{part}"] or 0)) for part in ("augmentation", "schedule"))
    assert "With one part alone: augmentation" in found.says


SOUND: dict[str, tuple[Loop, str]] = {
    "clipped": (Loop(clip=lambda held: nn.utils.clip_grad_norm_(held, 1.0)), "clipping"),
    "cosine": (Loop(schedule=lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 30)), "schedule"),
    "a little noise": (Loop(augment=lambda x: x + 0.1 * torch.randn_like(x)), "augmentation"),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_parts_are_not_blamed(tmp_path: Path, name: str) -> None:
    loop, part = SOUND[name]
    subject = kept(tmp_path, loop)
    assert present(Lab(subject)) == [part]
    found = asked(subject)
    assert isinstance(found, Saw)
    assert found.outcome == "nothing_helps", found.says


NO_PARTS = {
    "plain": Loop(),
    "slow start": Loop(by_hand=lambda step: 0.5 * (step + 1) / 1000),
    "measured only": Loop(clip=lambda held: nn.utils.clip_grad_norm_(held, math.inf)),
    "rate changed late": Loop(schedule=lambda o: torch.optim.lr_scheduler.StepLR(o, 1000)),
}


@pytest.mark.parametrize("name", NO_PARTS)
def test_what_is_no_part_is_not_left_out(tmp_path: Path, name: str) -> None:
    found = asked(kept(tmp_path, NO_PARTS[name]))
    assert isinstance(found, Unclear)
    assert "to leave out" in found.why


def test_clipping_is_kept_as_it_was_called(tmp_path: Path) -> None:
    subject = kept(tmp_path, Loop(clip=lambda held: nn.utils.clip_grad_norm_(held, 0.5, norm_type=math.inf)))
    assert subject.clip == Clipping(0.5, "norm", math.inf, frozenset(("weight", "bias")))


def test_a_rate_set_by_hand_has_its_peak_for_its_plan(tmp_path: Path) -> None:
    subject = kept(tmp_path, Loop(by_hand=lambda step: 0.5 * min(step + 1, 29 - step) / 15))
    assert subject.schedule is not None
    course = [subject.schedule(step) for step in range(25)]
    assert max(course) == pytest.approx(1.0)
    assert course[0] < 0.1
    assert subject.horizon >= 20
    assert subject.schedule(10**6) == course[-1] or subject.schedule(10**6) < 1


def test_undisturbed_rows_are_the_ones_that_were_given(tmp_path: Path) -> None:
    subject = kept(tmp_path, Loop(augment=noisy_before_scaling))
    assert 8 <= len(subject.plain_batches) <= len(subject.batches)
    x, y = rows()
    (plain,), target = subject.plain_batches[0]
    for row, label in zip(plain, target, strict=True):
        at = int((x - row).abs().sum(1).argmin())
        assert torch.allclose(x[at], row, atol=1e-5)
        assert int(y[at]) == int(label)


def collated(inputs: torch.Tensor) -> torch.Tensor:
    """As a worker of a loader does it: rows, each with its noise, written into memory that is there."""
    held = torch.empty_like(inputs)
    torch.stack([row + 3 * torch.randn(8) for row in inputs], out=held)
    return held


def stacked(inputs: torch.Tensor) -> torch.Tensor:
    return torch.stack([row + 3 * torch.randn(8) for row in inputs])


def test_what_the_script_computes_is_never_written_to(tmp_path: Path) -> None:
    seen = []

    def augment(inputs: torch.Tensor) -> torch.Tensor:
        made = collated(inputs)
        seen.append((inputs.clone(), made))
        return made

    kept(tmp_path / "written", Loop(augment=augment, steps=3))
    assert all(float((made - inputs).abs().mean()) > 1 for inputs, made in seen)
    assert len(kept(tmp_path / "made", Loop(augment=stacked, steps=3)).plain_batches) == 3


def test_numbers_drawn_for_the_task_are_no_augmentation(tmp_path: Path) -> None:
    def diffusion() -> None:
        model = nn.Linear(8, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            clean, noise = rows(32)[0], torch.randn(32, 8)
            level = torch.rand(32, 1)
            optimizer.zero_grad()
            F.mse_loss(model(level * clean + (1 - level) * noise), noise).backward()
            optimizer.step()

    subject = kept(tmp_path, diffusion)
    assert subject.plain_batches == []
    assert "enter the loss too" in subject.beyond()
    found = asked(subject)
    assert isinstance(found, Unclear)
    assert "enter the loss too" in found.why


class Noise(nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + torch.randn_like(inputs) * 60 if self.training else inputs


def test_noise_of_the_model_on_its_inputs_is_left_out(tmp_path: Path) -> None:
    found = asked(kept(tmp_path, Loop(model=lambda: nn.Sequential(Noise(), nn.Linear(8, 3)))))
    assert isinstance(found, Saw), found
    assert dict(found.measured)["removed"] == "augmentation"


class Flipped(Dataset[Any]):
    def __init__(self) -> None:
        self.x, self.y = rows(64)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        row = self.x[index]
        return (row.flip(0) if random.random() < 0.5 else row), self.y[index]


class RandomShift:
    def __call__(self, row: torch.Tensor) -> torch.Tensor:
        return row


class Transformed(Dataset[Any]):
    def __init__(self, *transforms: Any) -> None:
        self.x, self.y = rows(64)
        self.transform = list(transforms)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        row = self.x[index]
        for transform in self.transform:
            row = transform(row)
        return row, self.y[index]


def over(dataset: Dataset[Any]) -> None:
    model = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, target in DataLoader(dataset, 16):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), target).backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("dataset", "said"), [(Flipped(), "Flipped.__getitem__ at"), (Transformed(RandomShift()), "RandomShift")]
)
def test_augmentation_of_the_loader_is_named_and_unclear(tmp_path: Path, dataset: Any, said: str) -> None:
    found = asked(kept(tmp_path, lambda: over(dataset)))
    assert isinstance(found, Unclear)
    assert said in found.why
    assert "rows before it were not observed" in found.why


def test_a_plain_loader_augments_nothing(tmp_path: Path) -> None:
    assert kept(tmp_path, lambda: over(Transformed(torch.tanh))).beyond() == ""
    assert augmenting(iter([])) == ""


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 50), st.floats(1e-6, 1.0)), min_size=1, max_size=12), st.integers(0, 900))
def test_the_course_of_a_rate_stays_within_what_was_seen(held: list[tuple[int, float]], step: int) -> None:
    steps = [sum(gap for gap, _ in held[:index]) for index in range(len(held))]
    values = [rate for _, rate in held]
    rates = [[at, [rate]] for at, rate in zip(steps, values, strict=True)]
    optimizer = {"number": 0, "groups": [{"settings": {}, "parameters": ["w"]}]}
    schedule = Around({"rates": [[0, rates]], "steps": steps[-1] + 1}, [optimizer], 0).schedule()
    if schedule is not None:
        assert min(values) / max(values) - 1e-9 <= schedule(step) <= 1 + 1e-9
        assert schedule(steps[-1]) == pytest.approx(values[-1] / max(values))
