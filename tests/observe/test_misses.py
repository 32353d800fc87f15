"""Faults that no loader, no single gradient and no share of values shows: rows picked by hand, terms, formats."""

from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loops_data import answer, mlp
from torch import Tensor, nn

from clew.observe.picked import Picked
from clew.observe.watches._data_parted import apart_z
from clew.observe.watches.accumulation_scaling import AccumulationScaling
from clew.observe.watches.batch_norm_batch import BatchNormBatch
from clew.observe.watches.batch_order import BatchOrder
from clew.observe.watches.batch_repeats import BatchRepeats
from clew.observe.watches.input_statistics_match import InputStatisticsMatch
from clew.observe.watches.label_range import LabelRange
from clew.observe.watches.loss_reaches_parameters import LossReachesParameters
from clew.observe.watches.loss_reduction import LossReduction


def table(rows: int = 200, columns: int = 6) -> tuple[Tensor, Tensor]:
    x = torch.randn(rows, columns)
    return x, (x[:, 0] > 0).long()


def by_slices(starts: Any, evaluated: bool = False, steps: int = 24) -> None:
    """Batches are views of one table."""
    x, y = table()
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(steps):
        at = starts(step)
        optimizer.zero_grad()
        F.cross_entropy(model(x[at : at + 16]), y[at : at + 16]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if evaluated and step % 4 == 3:
            model.eval()
            with torch.no_grad():
                model(x[16:])
            model.train()


def test_the_same_rows_of_a_table_on_every_step_are_seen(tmp_path: Any) -> None:
    told = answer(tmp_path, BatchRepeats, lambda: by_slices(lambda _: 0))
    assert told["outcome"] == "same"
    assert told["measured"]["rows"] == 16
    assert told["measured"]["data_set"] == 200
    assert told["where"]


@pytest.mark.parametrize("evaluated", [False, True], ids=["moving on", "held out"])
def test_rows_that_move_on_or_a_held_out_rest_are_not(tmp_path: Any, evaluated: bool) -> None:
    starts = (lambda _: 0) if evaluated else (lambda step: 8 * step)
    assert "unclear" in answer(tmp_path, BatchRepeats, lambda: by_slices(starts, evaluated))


def test_a_source_is_known_through_picks_and_casts_and_kept_by_nobody() -> None:
    held, source = Picked(), torch.randn(10, 3)
    part = source[torch.tensor([1, 2])]
    held.note("__getitem__", [source], [part])
    cast = part.double()
    held.note("to", [part], [cast])
    assert held.source_of(cast) is source
    assert held.source_of(torch.randn(2, 3)) is None
    assert held.source_of(source[2:4]) is source  # a view says so itself
    del source
    assert held.source_of(cast) is None


def micro_batches(divide: bool) -> None:
    x, y = table()
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(6):
        optimizer.zero_grad()
        for part in range(4):
            at = (16 * (4 * step + part)) % 160
            loss = F.cross_entropy(model(x[at : at + 16]), y[at : at + 16])
            (loss / 4 if divide else loss).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@pytest.mark.parametrize(("divide", "outcome"), [(True, "scaled_or_none"), (False, "unscaled")])
def test_accumulation_by_hand_is_judged_too(tmp_path: Any, divide: bool, outcome: str) -> None:
    assert answer(tmp_path, AccumulationScaling, lambda: micro_batches(divide))["outcome"] == outcome


def train(loss_of: Any, model: nn.Module, data: tuple[Tensor, Tensor], steps: int = 8) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, *data).backward()
        optimizer.step()


@pytest.mark.parametrize("parts", [1, 8])
def test_a_sum_over_answers_stays_one_when_divided_by_the_passes_of_a_step(tmp_path: Any, parts: int) -> None:
    def accumulate() -> None:
        x, y = table()
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        for _ in range(6):
            optimizer.zero_grad()
            for part in range(parts):
                rows = slice(16 * part, 16 * part + 16)
                loss = F.cross_entropy(model(x[rows]), y[rows], reduction="sum") / parts
                loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    told = answer(tmp_path, LossReduction, accumulate)
    assert told["outcome"] == "sum_of_answers"
    assert told["measured"]["examples"] == 16


def penalised(model: nn.Module, x: Tensor, y: Tensor, cut: bool, metric: bool) -> Tensor:
    output = model(x)
    if metric:
        F.cross_entropy(output.detach(), y)
    given = output.detach() if cut else output
    return F.cross_entropy(given, y) + 1e-4 * sum((p**2).sum() for p in model.parameters())


@pytest.mark.parametrize(
    ("cut", "metric", "outcome"), [(True, False, "none"), (False, False, "all"), (False, True, "all")]
)
def test_a_loss_without_its_output_is_cut_off_whatever_a_penalty_adds(
    tmp_path: Any, cut: bool, metric: bool, outcome: str
) -> None:
    def loop() -> None:
        train(lambda m, x, y: penalised(m, x, y, cut, metric), mlp(), table())

    assert answer(tmp_path, LossReachesParameters, loop)["outcome"] == outcome


def test_several_labels_in_a_row_and_classes_as_numbers_are_told_apart(tmp_path: Any) -> None:
    x, y = table()
    many = F.one_hot(y, 4).float() + F.one_hot(y + 2, 4)
    told = answer(
        tmp_path / "many", LabelRange, lambda: train(lambda m, a, b: F.cross_entropy(m(a), b), mlp(), (x, many))
    )
    assert told["outcome"] == "many_ones"
    single = F.one_hot(y, 4).float()
    told = answer(
        tmp_path / "one", LabelRange, lambda: train(lambda m, a, b: F.cross_entropy(m(a), b), mlp(), (x, single))
    )
    assert told["outcome"] == "inside"

    def numbers(target: Tensor) -> Any:
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
        return lambda: train(lambda m, a, b: F.mse_loss(m(a)[:, 0], b), model, (x, target))

    assert answer(tmp_path / "two", LabelRange, numbers(y.float()))["outcome"] == "two_classes"
    assert answer(tmp_path / "values", LabelRange, numbers(x[:, 1]))["outcome"] == "inside"
    assert answer(tmp_path / "constant", LabelRange, numbers(torch.ones(len(x))))["outcome"] == "inside"


def test_a_normalisation_over_two_values_leaves_signs(tmp_path: Any) -> None:
    def loop(rows: int) -> Any:
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        return lambda: train(lambda m, x, y: F.cross_entropy(m(x), y), model, table(rows))

    assert answer(tmp_path / "two", BatchNormBatch, loop(2))["outcome"] == "signs_only"
    assert "examples_per_normalisation" in answer(tmp_path / "five", BatchNormBatch, loop(5))["measured"]


def evaluated(change: Any) -> Any:
    def loop() -> None:
        x, y = table(400, 12)
        model = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for step in range(10):
            rows = slice(20 * step, 20 * step + 20)
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        model.eval()
        with torch.no_grad():
            model(change(x[200:]))

    return loop


def test_a_subtraction_on_one_side_only_is_told_from_a_drift(tmp_path: Any) -> None:
    own = torch.linspace(-3, 3, 12)
    assert answer(tmp_path / "own", InputStatisticsMatch, evaluated(lambda x: x + own))["outcome"] == "one_step_apart"
    assert (
        answer(tmp_path / "factor", InputStatisticsMatch, evaluated(lambda x: 255 * x))["outcome"] == "one_step_apart"
    )
    for name, change in (("same", lambda x: x), ("drift", lambda x: x + 2.0), ("wider", lambda x: 1.5 * x)):
        told = answer(tmp_path / name, InputStatisticsMatch, evaluated(change))
        assert told.get("outcome") != "one_step_apart", name


class Counted(nn.Module):
    """A model that is told how many items a batch holds, as some trainers do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: Tensor, items: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return out / items if self.training else out


def test_a_count_of_items_may_grow_with_the_batch(tmp_path: Any) -> None:
    def train() -> None:
        x, y = table()
        model = Counted()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for step in range(24):
            rows = 16 + step % 2
            optimizer.zero_grad()
            F.cross_entropy(model(x[:rows], torch.tensor(rows)), y[:rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if step % 4 == 3:
                model.eval()
                with torch.no_grad():
                    model(x[40:], torch.tensor(160))
                model.train()

    assert answer(tmp_path, InputStatisticsMatch, train)["outcome"] != "outside"


@pytest.mark.parametrize(("ordered", "outcome"), [(True, "ordered"), (False, "shuffled")])
def test_batches_cut_by_hand_from_sorted_rows_are_seen(tmp_path: Any, ordered: bool, outcome: str) -> None:
    def train() -> None:
        torch.manual_seed(0)
        x, y = table(768)
        order = y.argsort() if ordered else torch.randperm(len(y))
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for _ in range(2):
            for rows in torch.split(order, 16):
                optimizer.zero_grad()
                F.cross_entropy(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()

    assert answer(tmp_path, BatchOrder, train)["outcome"] == outcome


def test_classes_parted_among_steps_are_measured_as_scipy_does() -> None:
    stats = pytest.importorskip("scipy.stats")
    steps = [Counter({0: 9, 1: 3, 2: 4}), Counter({0: 2, 1: 11, 2: 5}), Counter({1: 6, 2: 8})]
    whole = sum(steps, Counter[int]())
    chi = stats.chi2_contingency([[step[kind] for kind in range(3)] for step in steps], correction=False)
    assert apart_z(steps, whole) == pytest.approx((chi.statistic - chi.dof) / (2 * chi.dof) ** 0.5)
