"""The watches of targets, outputs and reach: where they must speak, and where they must keep silent."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loops_loss import Step, Tokens, answer, binary, classes, fit, flat, gan, lines, mlp, numbers, padded, plain, single
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from clew.observe.watches.label_counts import LabelCounts
from clew.observe.watches.label_range import LabelRange
from clew.observe.watches.labels_masked import LabelsMasked
from clew.observe.watches.loss_reaches_parameters import LossReachesParameters
from clew.observe.watches.outputs_constant import OutputsConstant
from clew.observe.watches.padding_counted import PaddingCounted
from clew.observe.watches.unused_parameters import UnusedParameters
from clew.tape.tokens import padding

Train = Callable[[], Any]
Pair = tuple[Tensor, Tensor]


def loop(step: Step, **more: Any) -> Train:
    return lambda: fit(step, **more)


def with_labels(change: Callable[[Tensor], Tensor], of: Callable[[], Pair] = classes) -> Callable[[], Pair]:
    def made() -> Pair:
        x, y = of()
        return x, change(y)

    return made


def by_hand() -> None:
    fit(lambda m, x, _y: (m(x)[:, 0] * torch.randn(len(x))).mean())


def binary_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(model(x), y)


def squares(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(model(x), y)


# --- label_range

OUTSIDE = {
    "-1 and 1": loop(binary_loss, model=single, data=with_labels(lambda y: 2 * y - 1, binary)),
    "0 and 255": loop(binary_loss, model=single, data=with_labels(lambda y: 255 * y, binary)),
    "sigmoid head": loop(squares, model=lambda: single(nn.Sigmoid()), data=with_labels(lambda y: 10 + 5 * y, numbers)),
    "log targets": loop(
        lambda m, x, _y: F.kl_div(m(x).log_softmax(1), torch.randn(32, 4).log_softmax(1), reduction="batchmean")
    ),
    "hinge of 0 and 1": loop(lambda m, x, y: F.soft_margin_loss(m(x), y), model=single, data=binary),
}
INSIDE = {
    "indices": loop(plain),
    "ignored": loop(plain, data=with_labels(lambda y: torch.where(torch.arange(32) % 2 == 0, -100, y))),
    "one-hot": loop(plain, data=with_labels(lambda y: F.one_hot(y, 4).float())),
    "smoothed": loop(lambda m, x, y: F.cross_entropy(m(x), y, label_smoothing=0.1)),
    "mixed": loop(plain, data=with_labels(lambda y: 0.3 * F.one_hot(y, 4).float() + 0.7 * F.one_hot(3 - y, 4))),
    "masked rows": loop(plain, data=with_labels(lambda y: F.one_hot(y, 4) * (torch.arange(32)[:, None] > 5).float())),
    "binary": loop(binary_loss, model=single, data=binary),
    "noisy gan labels": loop(
        binary_loss, model=single, data=with_labels(lambda y: 0.7 + 0.5 * torch.rand_like(y), binary)
    ),
    "regression": loop(squares, model=single, data=numbers),
    "tanh head, scaled": loop(squares, model=lambda: single(nn.Tanh()), data=with_labels(torch.tanh, numbers)),
}


@pytest.mark.parametrize("train", OUTSIDE.values(), ids=OUTSIDE)
def test_labels_out_of_range_are_seen(tmp_path: Any, train: Train) -> None:
    told = answer(tmp_path, LabelRange, train)
    assert told["outcome"] == "outside"
    assert "F." in lines(told)[0]


@pytest.mark.parametrize("train", INSIDE.values(), ids=INSIDE)
def test_labels_in_range_are_left_alone(tmp_path: Any, train: Train) -> None:
    assert answer(tmp_path, LabelRange, train)["outcome"] == "inside"


def test_a_label_past_the_last_class_is_heard_of(tmp_path: Any) -> None:
    def train() -> None:
        with pytest.raises(IndexError):
            fit(plain, data=with_labels(lambda y: y + 1))

    told = answer(tmp_path, LabelRange, train)
    assert told["outcome"] == "outside"
    assert told["measured"]["highest"] == 4
    assert "unclear" in answer(tmp_path, LabelRange, by_hand)


# --- labels_masked


@pytest.mark.parametrize(
    ("change", "share"),
    [
        (lambda y: torch.full_like(y, -100), 1.0),
        (lambda y: torch.where(torch.arange(32) < 31, -100, y), 31 / 32),
        (lambda y: torch.where(torch.arange(32) < 8, -100, y), 0.25),
        (lambda y: y, 0.0),
    ],
)
def test_masked_targets_are_counted(tmp_path: Any, change: Callable[[Tensor], Tensor], share: float) -> None:
    told = answer(tmp_path, LabelsMasked, loop(plain, data=with_labels(change)))
    assert told["measured"]["masked_share"] == pytest.approx(share)
    assert bool(told["where"]) == (share > 0.9)


def test_the_ignored_index_may_be_another(tmp_path: Any) -> None:
    def step(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        made: Tensor = nn.NLLLoss(ignore_index=0, reduction="sum")(model(x).log_softmax(1), 0 * y)
        return made

    assert answer(tmp_path, LabelsMasked, loop(step))["measured"]["masked_share"] == 1.0


def test_a_class_of_whole_examples_that_is_ignored_is_seen(tmp_path: Any) -> None:
    def ignoring(rows: int) -> Callable[[nn.Module, Tensor, Tensor], Tensor]:
        def step(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            # With several rows for an example, as of tokens, the label may be padding.
            return F.cross_entropy(model(x).repeat(rows, 1), y.repeat(rows), ignore_index=0)

        return step

    def one_by_one(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        # Positions of sequences, each with all examples.
        return torch.stack([F.cross_entropy(model(x), y.roll(at), ignore_index=0) for at in range(4)]).mean()

    told = answer(tmp_path, LabelsMasked, loop(one_by_one))
    assert "masked_share" in told["measured"], told
    told = answer(tmp_path, LabelsMasked, loop(ignoring(1)))
    assert (told["outcome"], told["measured"]["label"]) == ("one_class", 0)
    assert "cross_entropy" in lines(told)[0]
    assert "masked_share" in answer(tmp_path, LabelsMasked, loop(ignoring(3)))["measured"]


@pytest.mark.parametrize(
    ("masks", "outcome"),
    [
        (lambda y: y * 255, "one_left"),
        (lambda y: y, None),
        # Borders that are left out between two classes, a class in every batch, and the first that is always meant.
        (lambda y: torch.where(torch.arange(16)[:, None] < 2, 255, y), None),
        (lambda y: y * 0, None),
    ],
)
def test_masks_in_which_a_class_is_the_ignored_index(
    tmp_path: Any, masks: Callable[[Tensor], Tensor], outcome: str | None
) -> None:
    def run() -> None:
        torch.manual_seed(0)
        model = nn.Conv2d(3, 2, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(12):
            x = torch.randn(4, 3, 16, 16)
            optimizer.zero_grad()
            F.cross_entropy(model(x), masks((x[:, 0] > 0.5).long()), ignore_index=255).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    told = answer(tmp_path, LabelsMasked, run)
    assert told.get("outcome") == outcome
    if outcome:
        assert told["measured"]["label"] == 0
        assert "255" not in told["says"]
        assert "cross_entropy" in lines(told)[0]


def test_targets_without_a_mask_are_unclear(tmp_path: Any) -> None:
    assert "unclear" in answer(tmp_path, LabelsMasked, loop(squares, model=single, data=numbers))


# --- label_counts


def rare(y: Tensor) -> Tensor:
    return torch.where(torch.arange(len(y)) < len(y) - 2, torch.zeros_like(y.flatten()), 1).view(y.shape).to(y.dtype)


@pytest.mark.parametrize(
    ("train", "share"),
    [
        (loop(plain, data=with_labels(rare)), 30 / 32),
        (loop(binary_loss, model=single, data=with_labels(rare, binary)), 30 / 32),
        (loop(binary_loss, model=single, data=binary), 0.5),
        (loop(plain, data=with_labels(lambda y: torch.arange(len(y)) % 4)), 0.25),
    ],
)
def test_labels_are_counted(tmp_path: Any, train: Train, share: float) -> None:
    told = answer(tmp_path, LabelCounts, train)
    assert told["measured"]["largest_class_share"] == pytest.approx(share)


UNCOUNTED = {
    "weighted": loop(
        lambda m, x, y: F.cross_entropy(m(x), y, weight=torch.tensor([0.1, 1, 1, 1])), data=with_labels(rare)
    ),
    "gan": lambda: gan(lambda scores: F.binary_cross_entropy_with_logits(scores, torch.ones(16, 1))),
    "pixels": loop(
        lambda m, x, y: F.cross_entropy(m(x), y),
        model=lambda: nn.Conv2d(3, 2, 1),
        data=lambda: (torch.randn(4, 3, 5, 5), torch.zeros(4, 5, 5, dtype=torch.long)),
    ),
    "many labels": loop(binary_loss, data=lambda: (torch.randn(32, 6), torch.zeros(32, 4))),
    "numbers": loop(squares, model=single, data=numbers),
}


@pytest.mark.parametrize("train", UNCOUNTED.values(), ids=UNCOUNTED)
def test_counts_that_say_nothing_are_unclear(tmp_path: Any, train: Train) -> None:
    assert "unclear" in answer(tmp_path, LabelCounts, train)


@pytest.mark.parametrize("made", [True, False])
def test_one_label_for_all_counts_where_it_came_with_the_data(tmp_path: Any, made: bool) -> None:
    """The place of the positive in a contrastive loss is no label; a column of labels that is all zeros is."""
    rows = (torch.randn(64, 6), torch.zeros(64, dtype=torch.long))

    def train() -> None:
        model = nn.Linear(6, 5)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, *labels in DataLoader(TensorDataset(*rows[: 1 if made else 2]), batch_size=16):
            optimizer.zero_grad()
            y = torch.zeros(len(x), dtype=torch.long) if made else labels[0]
            F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    assert ("unclear" in answer(tmp_path, LabelCounts, train)) == made


def test_many_classes_are_held_in_bounds(tmp_path: Any) -> None:
    def train() -> None:
        model = nn.Linear(2, 5000)
        for _ in range(8):
            F.cross_entropy(model(torch.randn(1000, 2)), torch.randint(0, 5000, (1000,)))

    told = answer(tmp_path, LabelCounts, train)
    assert told["measured"]["classes"] <= 512
    assert told["measured"]["largest_class_share"] < 0.1


# --- outputs_constant


def dead() -> nn.Module:
    model = mlp()
    with torch.no_grad():
        for layer in (model[0], model[2]):  # type: ignore[index]
            layer.weight.zero_()
    for layer in (model[0], model[2]):  # type: ignore[index]
        layer.weight.requires_grad_(False)
    return model


def zero_head() -> nn.Module:
    model = mlp()
    nn.init.zeros_(model[2].weight)  # type: ignore[index]
    nn.init.zeros_(model[2].bias)  # type: ignore[index]
    return model


CONSTANT = {
    "dead": loop(plain, model=dead),
    "empty input": loop(squares, model=single, data=lambda: (torch.zeros(32, 6), torch.randn(32, 1))),
    "one class named": loop(
        lambda m, x, y: F.cross_entropy(m(x) + torch.tensor([9.0, 0, 0, 0]), y), steps=120, lr=1e-6
    ),
}
VARIED = {
    "plain": loop(plain),
    "zero head": loop(plain, model=zero_head),
    "large offset": loop(lambda m, x, y: F.mse_loss(m(x) + 1e4, y + 1e4), model=single, data=numbers),
    "early days": loop(lambda m, x, y: F.cross_entropy(m(x) + torch.tensor([9.0, 0, 0, 0]), y), lr=1e-6),
}


@pytest.mark.parametrize("train", CONSTANT.values(), ids=CONSTANT)
def test_constant_outputs_are_measured(tmp_path: Any, train: Train) -> None:
    told = answer(tmp_path, OutputsConstant, train)
    assert told["measured"]["spread_over_examples"] < 0.01
    assert told["where"]


@pytest.mark.parametrize("train", VARIED.values(), ids=VARIED)
def test_varied_outputs_are_measured(tmp_path: Any, train: Train) -> None:
    assert answer(tmp_path, OutputsConstant, train)["measured"]["spread_over_examples"] > 0.01


UNASKED = {
    "equal targets": loop(squares, model=single, data=lambda: (torch.zeros(32, 6), torch.zeros(32, 1))),
    "batch of one": loop(lambda m, x, y: plain(m, x[:1], y[:1])),
    "two steps": loop(plain, steps=2),
}


@pytest.mark.parametrize("train", UNASKED.values(), ids=UNASKED)
def test_outputs_nobody_asks_to_differ_are_unclear(tmp_path: Any, train: Train) -> None:
    assert "unclear" in answer(tmp_path, OutputsConstant, train)


# --- padding_counted


def tokens(step: Step, ids: Callable[[], Tensor] = padded) -> Train:
    def data() -> Pair:
        made = ids()
        return made, made

    return loop(step, model=Tokens, data=data)


def next_token(model: nn.Module, x: Tensor, y: Tensor, **options: Any) -> Tensor:
    return F.cross_entropy(model(x)[:, :-1].reshape(-1, 12), y[:, 1:].reshape(-1), **options)


def by_axis(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    shifted = torch.cat([y[:, 1:], torch.zeros_like(y[:, :1])], dim=1)
    return F.cross_entropy(model(x).transpose(1, 2), shifted)


def tagged(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.nll_loss(model(x).log_softmax(-1).flatten(0, 1), (y * 7 % 12).flatten())


COUNTED = {"flattened": tokens(next_token), "by axis": tokens(by_axis), "tags": tokens(tagged)}


def masked_after(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    each = next_token(model, x, y, reduction="none")
    mask = (y[:, 1:].reshape(-1) != 0).float()
    return (each * mask).sum() / mask.sum()


def picked_before(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    keep = y[:, 1:] != 0
    return F.cross_entropy(model(x)[:, :-1][keep], y[:, 1:][keep])


def sorted_rows() -> Tensor:
    return torch.randint(0, 12, (32, 9)).sort(dim=1).values


def text() -> Tensor:
    return torch.randint(0, 12, (12, 9))


NOT_COUNTED = {
    "ignored": tokens(lambda m, x, y: next_token(m, x, y, ignore_index=0)),
    "weighted": tokens(lambda m, x, y: next_token(m, x, y, weight=torch.tensor([0.0] + [1.0] * 11))),
    "relabelled": tokens(lambda m, x, y: next_token(m, x, torch.where(y == 0, -100, y))),
    "masked after": tokens(masked_after),
    "picked before": tokens(picked_before),
    "no padding": tokens(next_token, text),
    "sorted rows": tokens(next_token, sorted_rows),
    "one label per row": tokens(lambda m, x, y: F.cross_entropy(m(x)[:, -1], y[:, 0])),
    "images": loop(plain),
}


@pytest.mark.parametrize("train", COUNTED.values(), ids=COUNTED)
def test_counted_padding_is_measured(tmp_path: Any, train: Train) -> None:
    told = answer(tmp_path, PaddingCounted, train)
    assert 0.1 < told["measured"]["counted_padding_share"] < 0.5
    assert told["measured"]["label"] == 0
    assert told["where"]


@pytest.mark.parametrize("train", NOT_COUNTED.values(), ids=NOT_COUNTED)
def test_masked_padding_is_left_alone(tmp_path: Any, train: Train) -> None:
    told = answer(tmp_path, PaddingCounted, train)
    if train in (NOT_COUNTED["ignored"], NOT_COUNTED["weighted"], NOT_COUNTED["relabelled"]):
        assert told["measured"]["counted_padding_share"] < 0.01
    else:
        assert "unclear" in told, "that it is masked was not seen"


def test_padding_that_ends_in_other_labels_is_not_called_masked(tmp_path: Any) -> None:
    """Every pad token counts, each with a label of its own."""

    def numbered(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x).flatten(0, 1), ((y + torch.arange(y.shape[1])) % 12).flatten())

    assert "not all one label" in answer(tmp_path, PaddingCounted, tokens(numbered))["unclear"]


def test_padding_is_found_by_its_place() -> None:
    assert padding(torch.tensor([[5, 3, 0, 0], [4, 0, 0, 0], [1, 2, 3, 4]])) == [2, 3, 0]
    assert padding(torch.tensor([[5, 0, 3, 0, 0], [4, 6, 0, 0, 0]])) is None
    assert padding(torch.tensor([[5, 3, 1, 1], [4, 2, 6, 6]])) is None
    assert padding(torch.tensor([[9, 3, 9, 9], [9, 2, 4, 9], [9, 9, 9, 9]])) is None
    assert padding(torch.tensor([[9, 3, 9, 9], [9, 2, 4, 9], [8, 9, 9, 9]])) == [2, 1, 3]


def test_no_class_indices_no_padding(tmp_path: Any) -> None:
    assert "unclear" in answer(tmp_path, PaddingCounted, by_hand)


# --- loss_reaches_parameters and unused_parameters


class Branches(nn.Module):
    """`kind` says what becomes of the second branch."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(6, 8)
        self.scale = nn.Parameter(torch.ones(8))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Any:
        h = torch.tanh(self.first(x))
        if self.kind == "cut":
            h = h + (self.second(x) * self.scale).detach()
        elif self.kind == "not called":
            h = h * self.scale
        elif self.kind == "scale forgotten":
            h = h + self.second(x)
        else:
            h = h + self.second(x) * self.scale
        return (self.head(h), h) if self.kind == "two outputs" else self.head(h)


class Forgotten(nn.Module):
    """Nothing in it ever calls the second branch."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(6, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.first(x)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Hands on two things, as a layer of a graph network that moves points does."""

    def __init__(self) -> None:
        super().__init__()
        self.points, self.nodes = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        return x + torch.tanh(self.points(x + h)), torch.tanh(self.nodes(x + h))


class LastNodesForNobody(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = x
        for block in self.blocks:
            x, h = block(x, h)
        return self.head(x)  # type: ignore[no-any-return]


class Weighed(nn.Module):
    """A layer with a parameter of its own beside the layers that it holds."""

    def __init__(self) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.zeros(1))
        self.inner = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6))

    def forward(self, x: Tensor) -> Tensor:
        return (1 + self.share) * x + self.inner(x)  # type: ignore[no-any-return]


class Row(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.rows = nn.ModuleList(Weighed() for _ in range(3))
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        out, held = x, []
        for row in self.rows:
            if self.kind == "at random" and torch.rand(()) < 0.4:
                continue
            out = row(x if self.kind in ("written over", "collected") else out)
            if self.kind == "cut" and row is not self.rows[-1]:
                out = out.detach()
            held.append(out if self.kind == "collected" else out.detach().mean())
        return self.head(sum(held) if self.kind == "collected" else out)  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """Keeps the layer that it only gave away to be copied, as many tutorials do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(self.layer, 2)
        self.embed = nn.Linear(6, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(self.encoder(self.embed(x)[:, None])[:, 0])
        return made


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.pool, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = torch.tanh(self.body(x))
        return {"pooled": self.pool(h), "logits": self.head(h)}


def branches(kind: str) -> Train:
    return loop(plain, model=lambda: Branches(kind))


def rewrapped(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return torch.tensor(plain(model, x, y).item(), requires_grad=True)


def target_network() -> None:
    online, target = mlp(), mlp()
    optimizer = torch.optim.Adam(online.parameters())
    x, _ = classes()
    for _ in range(6):
        optimizer.zero_grad()
        F.mse_loss(online(x), target(x).max(1, keepdim=True).values.detach().expand(-1, 4)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                slow.lerp_(fast, 0.1)


def frozen_backbone() -> None:
    body, head = mlp(8), nn.Linear(8, 4)
    body.requires_grad_(False)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    x, y = classes()
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(head(body(x)), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def alternating_heads() -> None:
    body, heads = mlp(8), nn.ModuleList([nn.Linear(8, 4), nn.Linear(8, 4)])
    optimizer = torch.optim.SGD([*body.parameters(), *heads.parameters()], lr=0.1)
    x, y = classes()
    for number in range(6):
        optimizer.zero_grad()
        F.cross_entropy(heads[number % 2](body(x)), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def closure() -> None:
    model, (x, y) = mlp(), classes()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def again() -> float:
        optimizer.zero_grad()
        loss = plain(model, x, y)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    for _ in range(4):
        optimizer.step(again)  # type: ignore[no-untyped-call]


def checkpointed(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    from torch.utils.checkpoint import checkpoint

    return F.cross_entropy(checkpoint(model, x, use_reentrant=False), y)


def detached_encoder() -> None:
    encoder, decoder = mlp(8), nn.Linear(8, 4)
    optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
    x, y = classes()
    for _ in range(6):
        optimizer.zero_grad()
        F.cross_entropy(decoder(encoder(x).detach()), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


MISSING = {
    "cut": branches("cut"),
    "not called": branches("not called"),
    "encoder detached": detached_encoder,
    "head left out": loop(lambda m, x, y: F.cross_entropy(m(x)["logits"], y), model=Pooled),
}
WHOLE = {
    "plain": loop(plain),
    "branches": branches("used"),
    "target network": target_network,
    "frozen": frozen_backbone,
    "alternating": alternating_heads,
    "closure": closure,
    "checkpointed": loop(checkpointed),
    "prototype": loop(plain, model=Encoder),
    "gan": lambda: gan(lambda scores: F.binary_cross_entropy_with_logits(scores, torch.ones(16, 1))),
    "rare generator steps": lambda: gan(lambda s: -s.mean(), steps=40, critic_steps=13),
    "double": loop(lambda m, x, y: F.mse_loss(m.double()(x.double()), y.double()), model=single, data=numbers),
}


@pytest.mark.parametrize("train", MISSING.values(), ids=MISSING)
def test_parameters_out_of_reach_are_seen(tmp_path: Any, train: Train) -> None:
    told = answer(tmp_path, LossReachesParameters, train)
    assert told["outcome"] == ("part_cut_off" if train is detached_encoder else "some_missing")
    assert told["where"]


@pytest.mark.parametrize("train", WHOLE.values(), ids=WHOLE)
def test_reach_is_whole(tmp_path: Any, train: Train) -> None:
    assert answer(tmp_path, LossReachesParameters, train)["outcome"] == "all"


def test_a_loss_cut_off_entirely_is_seen(tmp_path: Any) -> None:
    told = answer(tmp_path, LossReachesParameters, loop(rewrapped))
    assert told["outcome"] == "none"
    assert "backward" in lines(told)[0]


def test_a_loss_without_a_graph_is_seen(tmp_path: Any) -> None:
    def train() -> None:
        with pytest.raises(RuntimeError):
            fit(lambda m, x, y: F.mse_loss(m(x).argmax(1).float(), y.float()))

    assert answer(tmp_path, LossReachesParameters, train)["outcome"] == "none"


def test_no_backward_no_reach(tmp_path: Any) -> None:
    assert "unclear" in answer(tmp_path, LossReachesParameters, lambda: mlp()(torch.randn(2, 6)))


UNUSED = {
    "not called": loop(plain, model=Forgotten),
    "forgotten": branches("scale forgotten"),
    "written over": loop(plain, model=lambda: Row("written over")),
}
USED = {
    "fed on": loop(plain, model=lambda: Row("fed on")),
    "collected": loop(plain, model=lambda: Row("collected")),
    "detached on the way": loop(plain, model=lambda: Row("cut")),
    "skipped at random": loop(plain, model=lambda: Row("at random"), steps=40),
    "plain": loop(plain),
    "cut": branches("cut"),
    "two outputs": loop(lambda m, x, y: F.cross_entropy(m(x)[0], y), model=lambda: Branches("two outputs")),
    "pooler": loop(lambda m, x, y: F.cross_entropy(m(x)["logits"], y), model=Pooled),
    "prototype": loop(plain, model=Encoder),
    "another setting": loop(plain, model=lambda: Branches("not called")),
    "by-product": loop(plain, model=LastNodesForNobody),
    "tokens": tokens(next_token),
    "target network": target_network,
    "frozen": frozen_backbone,
    "gan": lambda: gan(lambda scores: -scores.mean()),
    "closure": closure,
    "encoder detached": detached_encoder,
    "squeezed": loop(lambda m, x, y: F.mse_loss(m(x)[:, 0], y), model=single, data=flat),
}


@pytest.mark.parametrize("train", UNUSED.values(), ids=UNUSED)
def test_unused_parameters_are_seen(tmp_path: Any, train: Train) -> None:
    told = answer(tmp_path, UnusedParameters, train)
    assert told["outcome"] == "unused"
    assert all(line.startswith(("self.second =", "self.scale =", "for row in")) for line in lines(told))
    assert lines(told)


@pytest.mark.parametrize("train", USED.values(), ids=USED)
def test_parameters_in_use_are_left_alone(tmp_path: Any, train: Train) -> None:
    assert answer(tmp_path, UnusedParameters, train)["outcome"] == "none"


def test_too_few_steps_are_unclear(tmp_path: Any) -> None:
    assert "unclear" in answer(tmp_path, UnusedParameters, lambda: None)
    assert "unclear" in answer(tmp_path, UnusedParameters, loop(plain, model=Forgotten, steps=2))
