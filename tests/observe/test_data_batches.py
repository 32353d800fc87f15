"""The watches of batches: repeats, order, twins across a split, workers and ranks."""

import random
from collections.abc import Callable
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from loops_data import Grouped, Items, Stream, answer, by_slices, classes, fit, judged, lines, loader, mlp, score
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset, WeightedRandomSampler

from clew.archive.files import Damage
from clew.observe.collect import read_series
from clew.observe.hooks import watching
from clew.observe.ranks import joined
from clew.observe.watches._data_names import HELD_OUT, TRAINING, meaning
from clew.observe.watches._data_order import runs_z
from clew.observe.watches._data_share import shared
from clew.observe.watches.batch_order import BatchOrder
from clew.observe.watches.batch_repeats import BatchRepeats
from clew.observe.watches.rank_data_overlap import RankDataOverlap
from clew.observe.watches.split_overlap import SplitOverlap
from clew.observe.watches.worker_streams import WorkerStreams
from clew.records.clue import Reading, Unclear

Loop = Callable[[], Any]


def nothing() -> None:
    mlp()


def steps(following: Callable[[], Any], count: int = 12) -> None:
    """A loop that fetches each batch by itself."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(count):
        x, y = following()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


# --- batch_repeats


def first_batch_anew() -> None:
    batches = loader(*classes(), shuffle=False)
    steps(lambda: next(iter(batches)))


def fetched_once() -> None:
    batch = next(iter(loader(*classes())))
    steps(lambda: batch)


def index_ignored() -> None:
    x, y = classes()
    fit(DataLoader(Items(256, lambda _: (x[3], y[3])), batch_size=16))


def one_buffer() -> None:
    x, y = classes(16)

    class Refilled(Dataset[Any]):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> Any:
            return x, y

    fit(DataLoader(Refilled(), batch_size=None))


def random_batch_anew() -> None:
    batches = loader(*classes())
    steps(lambda: next(iter(batches)))


def inner_loop() -> None:
    """Several updates on each batch, as in adversarial training."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for x, y in loader(*classes()):
        for _ in range(5):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def first_batch_of_each_epoch() -> None:
    batches = loader(*classes())
    for _ in range(4):
        held = [next(iter(batches))] * len(batches)
        steps(iter(held).__next__, len(held))


def kept_in_a_list() -> None:
    held = list(loader(*classes(64)))
    steps(iter(held * 12).__next__, 48)


def whole_set() -> None:
    fit(loader(*classes(64), 64), epochs=12)


def cycled() -> None:
    held = list(loader(*classes(), shuffle=False))
    steps(iter(held * 3).__next__, 30)


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (first_batch_anew, "same"),
        (fetched_once, "same"),
        (index_ignored, "same"),
        (one_buffer, "same"),
        (first_batch_of_each_epoch, "same"),
        (random_batch_anew, "varied"),
        (kept_in_a_list, "varied"),
        (inner_loop, "varied"),
        (whole_set, "varied"),
        (cycled, "varied"),
        (lambda: fit(loader(*classes(), shuffle=False), epochs=3), "varied"),
        (lambda: fit(by_slices(*classes())), "unclear"),
        (nothing, "unclear"),
    ],
)
def test_batch_repeats(tmp_path: Any, loop: Loop, outcome: str) -> None:
    assert answer(tmp_path, BatchRepeats, loop)["outcome"] == outcome


def test_the_repeated_batch_is_pointed_at(tmp_path: Any) -> None:
    told = answer(tmp_path, BatchRepeats, fetched_once)
    assert lines(told) == ["batch = next(iter(loader(*classes())))"]
    assert (
        told["says"]
        == "one batch was fetched and reused 12 times: training sees only 16 examples of 256 in the data set"
    )


# --- batch_order


def ordered(examples: int = 256, kinds: int = 4) -> tuple[Tensor, Tensor]:
    x, y = classes(examples, kinds=kinds)
    return x[y.argsort()], y.sort().values


def few_large_batches() -> None:
    x, y = torch.randn(150, 6), torch.arange(3).repeat_interleave(50)
    fit(loader(x, y, 50, shuffle=False))


def unordered_stream() -> None:
    x, y = ordered()
    fit(DataLoader(Stream([(a, int(b)) for a, b in zip(x, y, strict=True)]), batch_size=16))


def grouped() -> None:
    x, y = torch.randn(400, 6), torch.arange(400) % 40
    fit(DataLoader(TensorDataset(x, y), batch_sampler=Grouped(y, 4, 4, 25)), mlp(6, 40))


def several_sorted_tasks() -> None:
    """Continual learning: one loader per task, each shuffled."""
    model = mlp()
    for kind in range(4):
        fit(loader(torch.randn(64, 6), torch.full((64,), kind) // 2 * 2 + torch.arange(64) % 2), model)


def binary_targets() -> None:
    x, y = ordered(kinds=2)
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for inputs, targets in loader(x, y.float()[:, None], shuffle=False):
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def regression() -> None:
    x, _ = classes()
    y = x.sum(1, keepdim=True).sort(0).values
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for inputs, targets in DataLoader(TensorDataset(x, y), batch_size=16):
        optimizer.zero_grad()
        F.mse_loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (lambda: fit(loader(*ordered(), shuffle=False)), "ordered"),
        (lambda: fit(loader(*ordered(2048, kinds=2), shuffle=False), epochs=1), "ordered"),
        (few_large_batches, "ordered"),
        (unordered_stream, "ordered"),
        (binary_targets, "ordered"),
        (lambda: fit(loader(*ordered())), "shuffled"),
        (lambda: fit(loader(*classes(), shuffle=False)), "shuffled"),
        (grouped, "shuffled"),
        (several_sorted_tasks, "shuffled"),
        (lambda: fit(loader(*ordered(64), 64, shuffle=False), epochs=8), "unclear"),
        (regression, "ordered"),
        (nothing, "unclear"),
    ],
)
def test_batch_order(tmp_path: Any, loop: Loop, outcome: str) -> None:
    assert answer(tmp_path, BatchOrder, loop)["outcome"] == outcome


def test_sorted_labels_show_within_the_first_class(tmp_path: Any) -> None:
    """Front to back over a sorted set, the first steps see one class only; its stored labels tell the rest."""

    def loop() -> None:
        batches = iter(loader(*ordered(2048), shuffle=False))
        steps(lambda: next(batches), 6)

    assert answer(tmp_path, BatchOrder, loop)["outcome"] == "ordered"


@given(st.lists(st.integers(0, 2), min_size=4, max_size=7))
def test_the_runs_test_agrees_with_all_orders(labels: list[int]) -> None:
    agree = [sum(a == b for a, b in pairwise(order)) for order in permutations(labels)]
    mean, spread = float(np.mean(agree)), float(np.std(agree))
    seen = sum(a == b for a, b in pairwise(labels))
    if spread > 1e-9:
        assert runs_z(labels) == pytest.approx((seen - mean) / spread)
    else:
        assert runs_z(labels) == 0.0


# --- split_overlap


def split(shared_rows: int, examples: int = 300) -> Loop:
    def loop() -> None:
        x, y = classes(examples)
        val_loader = loader(x[200 - shared_rows :], y[200 - shared_rows :], 20, shuffle=False)
        model = fit(loader(x[:200], y[:200]))
        score(model, val_loader)

    return loop


def training_set_as_validation() -> None:
    data = TensorDataset(*classes())
    model = fit(DataLoader(data, batch_size=16, shuffle=True))
    val_loader = DataLoader(data, batch_size=64)
    score(model, val_loader)


def validation_tensor_from_training() -> None:
    x, y = classes()
    model = fit(by_slices(x, y), epochs=1)
    x_val = x[64:128]
    with torch.no_grad():
        model(x_val)


def training_accuracy() -> None:
    data = TensorDataset(*classes())
    train_loader = DataLoader(data, batch_size=16, shuffle=True)
    model = fit(train_loader)
    score(model, DataLoader(data, batch_size=64))


def training_and_test_accuracy() -> None:
    x, y = classes(384)
    model = fit(loader(x[:256], y[:256]))
    score(model, loader(x[:256], y[:256], 64))
    score(model, loader(x[256:], y[256:], 64))


def folds() -> None:
    """Every row is trained on in one fold and validates in another."""
    x, y = classes(300)
    for fold in range(3):
        held = torch.arange(300) % 3 == fold
        model = fit(loader(x[~held], y[~held]))
        val_loader = loader(x[held], y[held], 20)
        score(model, val_loader)


def folds_with_one_model() -> None:
    x, y = classes(300)
    model = mlp()
    for fold in range(3):
        held = torch.arange(300) % 3 == fold
        fit(by_slices(x[~held], y[~held]), model)
        with torch.no_grad():
            X_val = x[held]
            model(X_val)


def few_values() -> None:
    """A table of categories: most rows of the validation set have a twin by nature."""
    x = torch.randint(0, 3, (600, 4)).float()
    y = x.sum(1).long() % 4
    model = fit(loader(x[:500], y[:500]), mlp(4))
    val_loader = loader(x[500:], y[500:], 20)
    score(model, val_loader)


def few_values_without_a_loader() -> None:
    x = torch.randint(0, 3, (600, 4)).float()
    y = x.sum(1).long() % 4
    model = fit(by_slices(x[:500], y[:500], 50), mlp(4))
    with torch.no_grad():
        X_test = x[500:]
        model(X_test)


def one_stray_twin() -> None:
    x, y = classes(140)
    x[130] = x[5]
    model = fit(loader(x[:110], y[:110]))
    val_loader = loader(x[110:], y[110:], 15)
    score(model, val_loader)


def drawn_with_replacement() -> None:
    x, y = classes(300)
    sampler = WeightedRandomSampler([1.0] * 200, 200)
    model = fit(loader(x[:200], y[:200], shuffle=None, sampler=sampler))
    val_loader = loader(x[200:], y[200:], 20)
    score(model, val_loader)


def replay() -> None:
    """An agent acts on states without a gradient, and learns from the same states later."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    buffer: list[tuple[Tensor, Tensor]] = []
    for _ in range(8):
        state = torch.randn(16, 6)
        with torch.no_grad():
            buffer.append((state, model(state).argmax(1)))
        rows = torch.randperm(16)[:8]
        old, action = buffer[int(torch.randint(len(buffer), ()))]
        optimizer.zero_grad()
        F.cross_entropy(model(torch.cat([old[rows], torch.randn(8, 6)])), action[torch.cat([rows, rows])]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


class Mixing(nn.Module):
    """Every node sees its neighbours; which nodes are trained on, a mask says."""

    def __init__(self) -> None:
        super().__init__()
        self.body = mlp()

    def forward(self, nodes: Tensor, links: Tensor) -> Tensor:
        out: Tensor = self.body(links @ nodes)
        return out


def one_graph() -> None:
    x, y = classes()
    links, train_mask = torch.eye(256), torch.arange(256) < 128
    model = Mixing()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(4):
        optimizer.zero_grad()
        F.cross_entropy(model(x, links)[train_mask], y[train_mask]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        model.eval()
        with torch.no_grad():
            val_scores = model(x, links)[~train_mask]
        model.train()
    assert len(val_scores) == 128


def teacher_and_student(x: Tensor, val_rows: Tensor) -> None:
    """The teacher reads the training rows without a gradient, below a line that names the validation rows."""
    student, teacher = mlp(), mlp()
    optimizer = torch.optim.SGD(student.parameters(), lr=1e-3)
    for start in range(0, 100, 20):
        rows = x[start : start + 20]
        with torch.no_grad():
            told = teacher.eval()(rows).argmax(1)
        optimizer.zero_grad()
        F.cross_entropy(student(rows), told).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        student(val_rows)


def augmented() -> None:
    x, y = classes(256)
    noisy = Items(200, lambda i: (x[i] + 0.1 * torch.randn(6), y[i]))
    model = fit(DataLoader(noisy, batch_size=16, shuffle=True), epochs=3)
    val_loader = DataLoader(Subset(TensorDataset(x, y), range(150, 250)), batch_size=25)
    score(model, val_loader)


def augmented_half_the_time() -> None:
    """The training set is scored as it is: some of its rows were trained on unchanged."""
    x, y = classes(300)
    flipped = Items(200, lambda i: (x[i].flip(0) if torch.rand(()) < 0.5 else x[i], y[i]))
    model = fit(DataLoader(flipped, batch_size=16, shuffle=True), epochs=3)
    score(model, loader(x[:200], y[:200], 50))
    score(model, loader(x[200:], y[200:], 50))


def a_part_of_it_all() -> None:
    data = TensorDataset(*classes(300))
    first, second = Subset(data, range(200)), Subset(data, range(170, 300))
    model = fit(DataLoader(ConcatDataset([first]), batch_size=16, shuffle=True))
    score(model, DataLoader(second, batch_size=13))


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (split(20), "shared"),
        (split(100), "shared"),
        (a_part_of_it_all, "shared"),
        (training_set_as_validation, "shared"),
        (validation_tensor_from_training, "shared"),
        (split(0), "disjoint"),
        (training_and_test_accuracy, "disjoint"),
        (augmented_half_the_time, "disjoint"),
        (folds, "disjoint"),
        (folds_with_one_model, "disjoint"),
        (few_values, "disjoint"),
        (one_stray_twin, "disjoint"),
        (drawn_with_replacement, "disjoint"),
        (lambda: teacher_and_student(classes()[0], val_rows=torch.randn(50, 6)), "disjoint"),
        (one_graph, "unclear"),
        (few_values_without_a_loader, "unclear"),
        (training_accuracy, "unclear"),
        (replay, "unclear"),
        (augmented, "unclear"),
        (lambda: fit(loader(*classes())), "unclear"),
    ],
)
def test_split_overlap(tmp_path: Any, loop: Loop, outcome: str) -> None:
    assert answer(tmp_path, SplitOverlap, loop)["outcome"] == outcome


def test_the_share_of_twins_is_right(tmp_path: Any) -> None:
    told = answer(tmp_path, SplitOverlap, split(20))
    assert told["measured"]["shared_share"] == pytest.approx(20 / 120)
    assert told["measured"]["twins_seen"] == 20


@given(st.integers(0, 60), st.integers(1, 4))
def test_known_part_of_the_training_set_is_allowed_for(twins: int, known: int) -> None:
    rows = dict.fromkeys(range(100), 1)
    others = set(range(0, twins, known)) | set(range(1000, 1100))
    found = shared(rows, others, 0.0, 1 / known)
    assert found.rows == 100
    if len(range(0, twins, known)) < 3:
        assert found.share == 0
    else:
        assert found.share == pytest.approx(twins / 100, abs=known / 100)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("for x, y in valloader:", HELD_OUT),
        ("acc = evaluate(model, X_test)", HELD_OUT),
        ("pred = model(heldOutRows)", HELD_OUT),
        ("train_acc = evaluate(model, x)  # not the test set", TRAINING),
        ("train_loss, val_loss = run(a), run(b)", TRAINING),
        ('print(f"train {loss} test {evaluate(m, test_rows)}")', HELD_OUT),
        ('print("test", model(x))', None),
        ("values = model(latest.to(device))", None),
        ("loss = F.mse_loss(model(Xte), yte)", HELD_OUT),
        ("acc = (model(x_te).argmax(1) == y_te).float().mean()", HELD_OUT),
        ("acc = score(model(Xtr), ytr), score(model(Xte), yte)", TRAINING),
        ("layer = te.Linear(write, byte, states, attr)", None),
    ],
)
def test_names_tell_what_rows_are_for(source: str, said: str | None) -> None:
    assert meaning(source) == said


# --- worker_streams


class Noisy(Dataset[Any]):
    """Adds noise from a generator that it keeps."""

    def __init__(self, generator: Any) -> None:
        self.x, self.y = classes()
        self.generator = generator

    def __len__(self) -> int:
        return len(self.x)

    def draw(self) -> float:
        return float(self.generator.random())

    def __getitem__(self, index: int) -> Any:
        return self.x[index] + self.draw(), self.y[index]


class Lazy(Noisy):
    """Makes its generator inside the worker."""

    def __getitem__(self, index: int) -> Any:
        if self.generator is None:
            info = torch.utils.data.get_worker_info()
            self.generator = np.random.default_rng(info.seed if info else 0)
        return super().__getitem__(index)


class Spare(Noisy):
    """Keeps the generator that made its data, and draws from torch."""

    def draw(self) -> float:
        return float(torch.rand(()))


class Jitter:
    def __init__(self) -> None:
        self.source = random.Random(3)

    def __call__(self, x: Tensor) -> Tensor:
        return x + self.source.random()


class Transformed(Dataset[Any]):
    def __init__(self) -> None:
        self.x, self.y = classes()
        self.transform = Jitter()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.x[index]), self.y[index]


def same_seed(worker: int) -> None:  # noqa: ARG001  # that it is unused is the fault
    np.random.seed(7)


def own_seed(worker: int) -> None:  # noqa: ARG001  # torch knows the worker
    np.random.seed(torch.initial_seed() % 2**32)


def numbered_seed(worker: int) -> None:
    np.random.seed(7 + worker)


def with_workers(dataset: Any, **options: Any) -> Loop:
    return lambda: fit(DataLoader(dataset() if callable(dataset) else dataset, batch_size=16, **options), epochs=1)


def stream() -> Stream:
    x, y = classes()
    return Stream(list(zip(x, y, strict=True)))


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (with_workers(lambda: Noisy(np.random.default_rng(0)), num_workers=2), "identical"),
        (with_workers(Transformed, num_workers=2), "identical"),
        (with_workers(stream, num_workers=2), "identical"),
        (with_workers(lambda: Spare(None), num_workers=2, worker_init_fn=same_seed), "identical"),
        (with_workers(lambda: Lazy(None), num_workers=2), "distinct"),
        (with_workers(lambda: Spare(np.random.default_rng(0)), num_workers=2), "distinct"),
        (with_workers(lambda: Spare(None), num_workers=2, worker_init_fn=own_seed), "distinct"),
        (with_workers(lambda: Spare(None), num_workers=2, worker_init_fn=numbered_seed), "distinct"),
        (with_workers(lambda: Noisy(np.random.default_rng(0)), num_workers=0), "unclear"),
    ],
)
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_worker_streams(tmp_path: Any, loop: Loop, outcome: str) -> None:
    assert answer(tmp_path, WorkerStreams, loop)["outcome"] == outcome


# --- rank_data_overlap


@pytest.fixture
def two_ranks(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Any]], dict[str, Any]]:
    """Runs one loop per rank, one after the other, and joins what they wrote."""

    def run(loops: list[Loop]) -> dict[str, Any]:
        monkeypatch.setenv("WORLD_SIZE", str(len(loops)))
        traces = []
        for rank, loop in enumerate(loops):
            monkeypatch.setenv("RANK", str(rank))
            folder = tmp_path / str(rank)
            folder.mkdir()
            torch.manual_seed(0)
            with watching(folder, [RankDataOverlap]) as recorder:
                loop()
            assert not recorder.broken
            assert "compared after" in recorder.answers()[0]["unclear"]
            recorder.stream.flush()
            traces.append(read_series(recorder.stream.path, Damage()))
        told = joined(traces)
        if isinstance(told, Unclear):
            return {"outcome": "unclear"}
        assert isinstance(told, Reading)
        return judged({"test": "rank_data_overlap", "measured": dict(told.measured), "where": []})

    return run


def on_rank(rank: int, shard: bool, seed: int = 0, evaluate: bool = False) -> Loop:
    def loop() -> None:
        x, y = classes(400)
        rows = slice(rank, None, 2) if shard else slice(None)
        batches = loader(x[rows], y[rows], generator=torch.Generator().manual_seed(seed))
        model = fit(batches, epochs=1)
        if evaluate:
            score(model, loader(x[:100], y[:100], 50))

    return loop


def test_ranks_that_read_the_same_rows(two_ranks: Callable[[list[Loop]], dict[str, Any]]) -> None:
    told = two_ranks([on_rank(0, False), on_rank(1, False)])
    assert told["outcome"] == "overlap"
    assert told["measured"]["shared_share"] == 1.0


def test_ranks_that_shuffle_the_whole_set_each(two_ranks: Callable[[list[Loop]], dict[str, Any]]) -> None:
    assert two_ranks([on_rank(0, False, 1), on_rank(1, False, 2)])["outcome"] == "overlap"


def test_ranks_with_their_own_rows(two_ranks: Callable[[list[Loop]], dict[str, Any]]) -> None:
    told = two_ranks([on_rank(0, True, evaluate=True), on_rank(1, True, evaluate=True)])
    assert told["outcome"] == "disjoint"


def test_ranks_without_rows(two_ranks: Callable[[list[Loop]], dict[str, Any]]) -> None:
    assert two_ranks([nothing, nothing])["outcome"] == "unclear"


def test_one_process_has_no_ranks(tmp_path: Any) -> None:
    assert answer(tmp_path, RankDataOverlap, lambda: fit(loader(*classes())))["outcome"] == "unclear"
    assert isinstance(joined([{}]), Unclear)


def test_memory_stays_bounded(tmp_path: Any) -> None:
    """What is kept of a long run is as much as of a short one."""
    x, y = classes(20_000)
    torch.set_num_threads(1)
    with watching(tmp_path, [SplitOverlap, BatchOrder, BatchRepeats], sample="every") as recorder:
        fit(loader(x, y, 200), epochs=1)
        fit(by_slices(x, y, 200), epochs=1)
    feed = next(watch for watch in recorder.watches if isinstance(watch, SplitOverlap)).feed
    assert len(feed.loaders[0].rows) <= 10_200
    assert len(feed.trained) <= 11_024
    assert len(feed.repeats) <= 64
