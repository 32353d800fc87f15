"""The loss curves: one per line of backward, unscaled, and what is known about the main one."""

import gc
import math
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as some
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from clew.archive.metrics import read_numbers
from clew.observe.baseline import Targets, entropy
from clew.observe.hooks import watching
from clew.observe.losses import CURVES
from clew.observe.recorder import Recorder

Curves = dict[tuple[str, str], list[tuple[int, float]]]


def curves(recorder: Recorder) -> Curves:
    recorder.checkpoint(final=True)
    found: Curves = {}
    for name, of, step, value in read_numbers(recorder.stream.path):
        found.setdefault((name, of), []).append((step, value))
    return found


def values(held: Curves, name: str, of: str = "") -> list[float]:
    return [value for _, value in held.get((name, of), [])]


def loss_functions(held: Curves) -> list[str]:
    return [name for name, _ in held if name.startswith("loss function ")]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def train(
    folder: Path, loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], target: torch.Tensor, outputs: int
) -> tuple[Curves, list[float]]:
    """Twelve steps of one backward each; returns what was recorded and the losses as the script knows them."""
    model = nn.Linear(4, outputs)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    known = []
    with watching(folder, []) as recorder:
        for _ in range(12):
            optimizer.zero_grad()
            loss = loss_of(model(torch.randn(len(target), 4)), target)
            torch.autograd.backward(loss)
            optimizer.step()
            known.append(loss.item())
        held = curves(recorder)
    return held, known


# --- curves


def test_every_line_of_backward_has_its_own_curve(tmp_path: Path) -> None:
    first, second = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    optimizers = [torch.optim.SGD([held], lr=0.1) for held in (first, second)]
    with watching(tmp_path, []) as recorder:
        for _ in range(3):
            torch.autograd.backward(first.sum() * 2)
            optimizers[0].step()
            torch.autograd.backward(second.sum() * 5)
            optimizers[1].step()
        held = curves(recorder)
    (other,) = (of for name, of in held if name == "loss" and of)
    file, line = other.rsplit(":", 1)
    assert file.endswith("test_recorder_losses.py")
    assert "second.sum()" in Path(__file__).read_text().splitlines()[int(line) - 1]
    assert [step for step, _ in held["loss", ""]] == [0, 2, 4]
    assert [step for step, _ in held["loss", other]] == [1, 3, 5]
    assert values(held, "loss")[0] == 2
    assert values(held, "loss", other)[0] == 5


def test_several_backward_passes_before_a_step_stay_one_curve(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with watching(tmp_path, []) as recorder:
        for part in range(6):
            torch.autograd.backward(weight.sum() * part)
            if part % 3 == 2:
                optimizer.step()
        held = curves(recorder)
    assert [step for step, _ in held["loss", ""]] == [0, 0, 0, 1, 1, 1]


def test_lines_with_a_curve_are_limited(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.ones(1))
    lines = "\n".join("torch.autograd.backward(weight.sum())" for _ in range(CURVES + 10))
    with watching(tmp_path, []) as recorder:
        exec(compile(lines, str(tmp_path / "many.py"), "exec"), {"torch": torch, "weight": weight})
        held = curves(recorder)
    assert len([key for key in held if key[0] == "loss"]) == CURVES


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("several", [False, True])
def test_a_scaled_loss_is_recorded_unscaled(tmp_path: Path, enabled: bool, several: bool) -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", enabled=enabled, init_scale=1024.0)
    known = []
    with watching(tmp_path, []) as recorder:
        for _ in range(12):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(torch.randn(8, 4)), torch.randint(0, 3, (8,)))
            scaled: Any = scaler.scale([loss])[0] if several else scaler.scale(loss)
            torch.autograd.backward(scaled)
            scaler.step(optimizer)
            scaler.update()
            known.append(loss.item())
        held = curves(recorder)
    assert values(held, "loss") == known
    assert values(held, "classes") == [3]


def test_scaled_losses_that_are_added_are_divided(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.ones(1))
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    with watching(tmp_path, []) as recorder:
        torch.autograd.backward(scaler.scale(weight.sum()) + scaler.scale(2 * weight.sum()))
        unused = weight.sum() * 4
        scaler.scale(unused)
        torch.autograd.backward(unused)
        torch.autograd.backward(weight.sum() * 5)
        held = curves(recorder)
    found = [value for (name, _), points in held.items() if name == "loss" for _, value in points]
    assert found == [3, 4, 5]


def test_no_graph_is_kept_for_a_loss(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.ones(3))
    with watching(tmp_path, []):
        middle = weight * 2
        held = weakref.ref(middle)
        scaled = torch.amp.GradScaler("cpu").scale(F.mse_loss(middle, torch.zeros(3)))
        del middle, scaled
        gc.collect()
        assert held() is None


def test_a_function_mode_of_the_script_does_not_see_the_loss_being_read(tmp_path: Path) -> None:
    seen: list[str] = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    loss = nn.Parameter(torch.ones(1)).sum()
    with watching(tmp_path, []), Mode():
        torch.autograd.backward(torch.amp.GradScaler("cpu").scale(loss))
    assert not {"item", "detach", "clone"} & set(seen)


# --- what the main loss is


LABELS = torch.tensor([0, 0, 0, 0, 1, 1, 2, -100])


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda x, y: F.cross_entropy(x, y),
        nn.CrossEntropyLoss(),
        lambda x, y: F.nll_loss(F.log_softmax(x, 1), y),
        lambda x, y: F.cross_entropy(x, y, reduction="sum") / 7,
        lambda x, y: F.cross_entropy(x, y, reduction="none").sum() / (y != -100).sum(),
        lambda x, y: F.cross_entropy(x, y).double(),
    ],
    ids=["function", "module", "nll", "sum", "none", "double"],
)
def test_classes_and_the_best_constant_answer_are_known(
    tmp_path: Path, loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> None:
    held, known = train(tmp_path, loss_of, LABELS, 5)
    assert values(held, "loss") == known
    assert values(held, "classes") == [5]
    assert values(held, "constant loss")[-1] == pytest.approx(entropy([4 / 7, 2 / 7, 1 / 7]))
    assert loss_functions(held) in (["loss function cross_entropy"], ["loss function nll_loss"])


def test_one_example_without_a_batch_has_its_classes_last(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.randn(6))
    with watching(tmp_path, []) as recorder:
        torch.autograd.backward(F.cross_entropy(weight, torch.tensor(2)))
        held = curves(recorder)
    assert values(held, "classes") == [6]


def test_a_divided_loss_keeps_its_name_and_has_no_level_to_compare_with(tmp_path: Path) -> None:
    held, _ = train(tmp_path, lambda x, y: F.cross_entropy(x, y) / 4, LABELS, 5)
    assert loss_functions(held) == ["loss function cross_entropy"]
    assert not values(held, "classes")
    assert not values(held, "constant loss")


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda x, y: F.cross_entropy(x, y) + x.square().mean(),
        lambda x, y: -F.cross_entropy(x, y),
        lambda x, y: x.square().mean() + 0 * y.sum(),
        lambda x, y: F.cross_entropy(x, y).log(),
    ],
    ids=["two_terms", "negative", "none", "changed"],
)
def test_a_loss_that_is_something_else_has_no_name(tmp_path: Path, loss_of: Any) -> None:
    held, _ = train(tmp_path, loss_of, LABELS, 5)
    assert values(held, "loss")
    assert not loss_functions(held)
    assert not values(held, "classes")


def test_weights_and_smoothing_leave_the_classes_and_no_constant(tmp_path: Path) -> None:
    held, _ = train(tmp_path, lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), LABELS, 5)
    assert values(held, "classes") == [5]
    assert not values(held, "constant loss")


def test_targets_that_never_change_have_no_constant(tmp_path: Path) -> None:
    held, _ = train(tmp_path, nn.BCEWithLogitsLoss(), torch.ones(8, 1), 1)
    assert values(held, "classes") == [2]
    assert not values(held, "constant loss")


def test_binary_targets_are_taken_column_by_column(tmp_path: Path) -> None:
    target = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    held, _ = train(tmp_path, nn.BCEWithLogitsLoss(), target, 2)
    expected = (entropy([0.75, 0.25]) + entropy([0.25, 0.75])) / 2
    assert values(held, "constant loss")[-1] == pytest.approx(expected)
    assert values(held, "classes") == [2]


def test_the_constant_of_a_squared_error_is_the_variance(tmp_path: Path) -> None:
    target = torch.randn(16, 3) * torch.tensor([1.0, 2.0, 3.0]) + 1000
    held, _ = train(tmp_path, nn.MSELoss(), target, 3)
    assert values(held, "constant loss")[-1] == pytest.approx(float(target.double().var(0, correction=0).mean()))
    assert not values(held, "classes")
    assert loss_functions(held) == ["loss function mse_loss"]


def test_classes_that_change_are_all_written(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.randn(4, 8))
    with watching(tmp_path, []) as recorder:
        for count in (3, 5, 3, 5):
            torch.autograd.backward(F.cross_entropy(weight[:, :count], torch.tensor([0, 1, 2, 0])))
        held = curves(recorder)
    assert values(held, "classes") == [3, 5]


def test_the_loss_of_an_evaluation_is_not_the_main_one(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    with watching(tmp_path, []) as recorder:
        with torch.no_grad():
            F.cross_entropy(model(torch.randn(8, 4)), torch.randint(0, 3, (8,)))
        F.l1_loss(model(torch.randn(8, 4)), torch.zeros(8, 3))
        torch.autograd.backward(F.mse_loss(model(torch.randn(8, 4)), torch.zeros(8, 3)))
        held = curves(recorder)
    assert loss_functions(held) == ["loss function mse_loss"]


@given(some.lists(some.lists(some.integers(0, 5), min_size=1, max_size=30), min_size=1, max_size=6))
def test_labels_counted_in_parts_are_those_counted_at_once(parts: list[list[int]]) -> None:
    whole, sums = Targets("labels", 6), Targets("labels", 6)
    whole.take_labels(torch.tensor([label for part in parts for label in part]))
    sums.take_labels(torch.tensor(parts[0]))
    for part in parts[1:]:
        further = Targets("labels", 6)
        further.take_labels(torch.tensor(part))
        sums.add(further)
    assert (sums.labels, sums.count) == (whole.labels, whole.count)


reals = some.floats(-1e3, 1e3, width=32)


@given(some.lists(some.lists(some.tuples(reals, reals), min_size=1, max_size=20), min_size=1, max_size=6))
def test_a_variance_summed_in_parts_is_that_of_all(parts: list[list[tuple[float, float]]]) -> None:
    sums = Targets("values", 0)
    sums.take_rows(torch.tensor(parts[0]))
    for part in parts[1:]:
        further = Targets("values", 0)
        further.take_rows(torch.tensor(part))
        sums.add(further)
    rows = torch.tensor([row for part in parts for row in part]).double()
    expected = float(rows.var(0, correction=0).mean())
    found = sums.constant_loss()
    assert len(rows) < 20 or (found or 0.0) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert found is None or math.isfinite(found)


# --- epochs


def test_epochs_are_those_of_the_loader_that_trains(tmp_path: Path) -> None:
    data = TensorDataset(torch.randn(6, 4))
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watching(tmp_path, []) as recorder:
        sanity, training = DataLoader(data, batch_size=6), DataLoader(data, batch_size=2)
        list(sanity)
        for _ in range(3):
            for (x,) in training:
                torch.autograd.backward(model(x).sum())
                optimizer.step()
            list(sanity)
        held = curves(recorder)
    assert held["epoch", ""] == [(0, 0), (3, 1), (6, 2)]
    assert recorder.epoch == 2


def test_without_a_loader_there_are_no_epochs(tmp_path: Path) -> None:
    held, _ = train(tmp_path, nn.MSELoss(), torch.randn(8, 1), 1)
    assert ("epoch", "") not in held
