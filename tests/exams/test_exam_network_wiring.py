"""Exams of the wiring on subjects with a fault, on sound ones that look like it, and where nothing can be said."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from network_subjects import (
    Taped,
    Transformer,
    ask,
    classes,
    figures,
    outcome,
    perceptron,
    places,
    seeded,
    token_loss,
    tokens,
    values,
    why,
)
from taping import kept
from torch import nn

from clew.exams.subject import Subject
from clew.records.clue import Saw


def sequences(rows: int = 8) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(given.reshape(rows, 5, 4), labels) for given, labels in classes(rows)]


# --- batch_independence


class Attention(nn.Module):
    """Over the positions, or over the examples when batch_first is forgotten."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(4, 2, batch_first=batch_first)
        self.head = nn.Linear(4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, _ = self.attend(x, x, x)
        out: torch.Tensor = self.head(h.mean(1))
        return out


class Summary(nn.Module):
    """A learned token in front of each sequence is read out; over the batch it meets only itself."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.token, self.head = nn.Parameter(torch.randn(1, 1, 4)), nn.Linear(4, 10)
        self.attend = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=batch_first)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.attend(torch.cat([self.token.expand(len(x), -1, -1), x], 1))
        out: torch.Tensor = self.head(h[:, 0])
        return out


class Constant(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.randn(10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores.expand(len(x), 10)


class Turned(nn.Module):
    """A reshape in the place of a transpose."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(20, 20), nn.Linear(20, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.first(x))
        out: torch.Tensor = self.head(h.t().reshape(x.shape))
        return out


class Words(nn.Module):
    """Recurrent over the first axis."""

    def __init__(self, whole: bool = True) -> None:
        super().__init__()
        self.whole = whole
        self.table, self.cells, self.head = nn.Embedding(50, 16), nn.LSTM(16, 16), nn.Linear(16, 50)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, _ = self.cells(self.table(x))
        out: torch.Tensor = self.head(h if self.whole else h[:, -1])
        return out


def test_a_single_vector_is_no_batch() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    batches = [(torch.randn(16), torch.randn(4)) for _ in range(4)]
    assert "single vector" in why("batch_independence", Subject(model, F.mse_loss, batches))


def test_what_reads_no_input_is_looked_at_on_the_way() -> None:
    assert outcome("batch_independence", Subject(Summary(False), F.cross_entropy, sequences())) == "mixes"
    assert outcome("batch_independence", Subject(Summary(True), F.cross_entropy, sequences())) == "independent"
    assert outcome("batch_independence", Subject(Constant(), F.cross_entropy, sequences())) == "unclear"


def test_attention_over_the_batch_mixes() -> None:
    assert outcome("batch_independence", Subject(Attention(False), F.cross_entropy, sequences())) == "mixes"
    assert outcome("batch_independence", Subject(Attention(True), F.cross_entropy, sequences())) == "independent"


def test_mixing_is_placed_behind_the_last_sound_layer() -> None:
    subject = Subject(seeded(Turned), F.cross_entropy, classes())
    answer = ask("batch_independence", subject).answer
    assert isinstance(answer, Saw)
    assert answer.outcome == "mixes"
    assert [place.module for place in answer.where] == ["head"]
    assert "head" in answer.says


def test_numbers_are_followed_by_replacing_other_rows() -> None:
    labels = [(given, wanted[:, 0]) for given, wanted in tokens()]
    assert outcome("batch_independence", Subject(seeded(lambda: Words(False)), F.cross_entropy, labels)) == "mixes"
    # Every position has a target here: that it is the next word says which axis counts the examples.
    assert outcome("batch_independence", Subject(seeded(Words), token_loss, tokens())) == "mixes"


def test_time_first_is_no_mixing() -> None:
    turned = [(given.t().contiguous(), wanted.t().reshape(-1)) for given, wanted in tokens()]
    assert outcome("batch_independence", Subject(seeded(Words), token_loss, turned)) == "independent"


def test_an_axis_that_nothing_names_is_unclear() -> None:
    turned = [(given.t().contiguous(), torch.zeros_like(wanted.t())) for given, wanted in tokens()]
    assert "axis 0" in why("batch_independence", Subject(seeded(Words), token_loss, turned))


class Codes(nn.Module):
    """The nearest of some codes stands for each example. They begin as vectors of the first batch."""

    def __init__(self, mixes: bool) -> None:
        super().__init__()
        self.first, self.head, self.mixes = nn.Linear(20, 4), nn.Linear(4, 10), mixes
        self.codes: torch.Tensor
        self.register_buffer("codes", torch.randn(6, 4))
        self.started = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.first(x)
        if self.training and not self.started and not self.mixes:
            with torch.no_grad():
                self.codes.copy_(z[torch.randint(len(z), (6,))])
            self.started = True
        chosen = self.codes[torch.cdist(z, self.codes).argmin(1)]
        if self.mixes:
            z = z.t().reshape(z.shape)
        out: torch.Tensor = self.head(z + (chosen - z).detach() if not self.mixes else z)
        return out


@pytest.mark.parametrize("exam", ["batch_independence", "poison_trace"])
@pytest.mark.parametrize("mixes", [False, True])
def test_what_training_keeps_of_a_batch_mixes_nothing(tmp_path: Path, exam: str, mixes: bool) -> None:
    def train() -> None:
        torch.manual_seed(0)
        model = Codes(mixes)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(4):
            for given, labels in classes(16):
                optimizer.zero_grad()
                F.cross_entropy(model(given), labels).backward()  # type: ignore[no-untyped-call]
                optimizer.step()

    subject = kept(tmp_path, train)
    assert (outcome(exam, subject) in ("mixes", "from_other_rows")) == mixes
    if exam == "batch_independence" and not mixes:
        assert "writes into codes" in why(exam, subject)


def test_a_captured_step_that_mixes_names_its_line() -> None:
    subject = Taped(classes(), mixes=True)
    assert outcome("batch_independence", subject) == "mixes"
    assert places("batch_independence", subject)[0].line == 10


def test_batch_norm_without_statistics_and_graphs_are_unclear() -> None:
    norm = nn.Sequential(nn.Linear(20, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, 10))
    assert "normalises over the batch" in why("batch_independence", Subject(norm, F.cross_entropy, classes()))

    class Convolve(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(20, 10)

        def forward(self, x: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = near @ self.layer(x)
            return out

    given = [((x, torch.ones(32, 32) / 32), y) for x, y in classes()]
    assert "32 by 32" in why("batch_independence", Subject(Convolve(), F.cross_entropy, given))


# --- causal_independence


def test_a_missing_mask_lets_the_future_through() -> None:
    subject = Subject(seeded(lambda: Transformer(False)), token_loss, tokens())
    assert outcome("causal_independence", subject) == "sees_future"
    assert (places("causal_independence", subject)[0].module or "").startswith("blocks.0")


def test_a_mask_that_is_off_by_one_lets_one_position_through() -> None:
    class Late(nn.Module):
        def __init__(self, shift: int) -> None:
            super().__init__()
            self.shift = shift
            self.table, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.table(x)
            hidden = torch.triu(torch.full((x.shape[1], x.shape[1]), -torch.inf), self.shift)
            out: torch.Tensor = self.head((h @ h.transpose(1, 2) + hidden).softmax(-1) @ h)
            return out

    early = figures("causal_independence", Subject(seeded(lambda: Late(2)), token_loss, tokens()))
    assert early["positions"] == 1
    assert outcome("causal_independence", Subject(seeded(lambda: Late(1)), token_loss, tokens())) == "causal"


def test_a_loss_that_shifts_by_itself_is_known() -> None:
    def shifted(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return token_loss(output[:, :-1], target[:, 1:])

    same = [(given, given) for given, _ in tokens()]
    assert outcome("causal_independence", Subject(seeded(lambda: Transformer(False)), shifted, same)) == "sees_future"
    assert outcome("causal_independence", Subject(seeded(Transformer), shifted, same)) == "causal"
    # An autoencoder of words may see all of them.
    assert "next position" in why("causal_independence", Subject(seeded(lambda: Transformer(False)), token_loss, same))


def test_a_tagger_may_look_ahead() -> None:
    tags = [(given, given % 7) for given, _ in tokens()]
    assert outcome("causal_independence", Subject(seeded(lambda: Transformer(False)), token_loss, tags)) == "unclear"


def test_measured_values_are_followed_too() -> None:
    class Smooth(nn.Module):
        def __init__(self, ahead: int) -> None:
            super().__init__()
            self.ahead = ahead
            self.layer = nn.Conv1d(3, 3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.layer(F.pad(x.transpose(1, 2), (2 - self.ahead, self.ahead))).transpose(1, 2)
            return out

    waves = torch.randn(4, 13, 3, generator=torch.Generator().manual_seed(0)).cumsum(1)
    batch = [(waves[:, :-1], waves[:, 1:])]
    assert outcome("causal_independence", Subject(seeded(lambda: Smooth(1)), F.mse_loss, batch)) == "sees_future"
    assert outcome("causal_independence", Subject(seeded(lambda: Smooth(0)), F.mse_loss, batch)) == "causal"


def test_convolutions_are_followed_with_their_positions_last() -> None:
    class Melody(nn.Module):
        """Two causal convolutions, then one that is centred, and a head behind it."""

        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(50, 16), nn.Conv1d(16, 50, 1)
            self.past, self.centred = nn.Conv1d(16, 16, 3), nn.Conv1d(16, 16, 3, padding="same")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = F.relu(self.past(F.pad(self.table(x).transpose(1, 2), (2, 0))))
            out: torch.Tensor = self.head(F.relu(self.centred(h))).transpose(1, 2)
            return out

    subject = Subject(seeded(Melody), token_loss, tokens(length=12))
    assert outcome("causal_independence", subject) == "sees_future"
    assert places("causal_independence", subject)[0].module == "centred"


# --- prime_dimensions


class Fixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(20, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x.view(32, 20))
        return out


class Square(nn.Module):
    """Fits only while there are as many examples as features."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(20, 20)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x.t())
        return out


def test_a_size_written_into_the_model_breaks() -> None:
    subject = Subject(Fixed(), F.cross_entropy, classes())
    assert outcome("prime_dimensions", subject) == "breaks"
    assert "32, 20" in figures("prime_dimensions", subject)["error"]
    assert places("prime_dimensions", subject)[0].symbol == "forward"


def test_sizes_that_agree_by_chance_break() -> None:
    assert outcome("prime_dimensions", Subject(Square(), F.cross_entropy, classes(20))) == "breaks"


def test_an_output_that_does_not_follow_the_batch_breaks() -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.answer = nn.Parameter(torch.randn(32, 10))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.answer + 0 * x.sum()

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return output.mean() + 0 * target.sum()

    assert outcome("prime_dimensions", Subject(Constant(), loss, classes())) == "breaks"


def test_a_fixed_length_is_no_fault_and_one_example_is_unclear() -> None:
    flat = nn.Sequential(nn.Flatten(), nn.Linear(20, 10))
    assert figures("prime_dimensions", Subject(flat, F.cross_entropy, sequences()))["positions"] is None
    assert figures("prime_dimensions", Subject(seeded(Transformer), token_loss, tokens()))["positions"] == 13
    assert "single example" in why("prime_dimensions", Subject(perceptron(), F.cross_entropy, classes(1)))


# --- loss_shapes


def by_hand(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((output - target) ** 2).mean()


def regressor() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))


@pytest.mark.parametrize("loss", [by_hand, F.mse_loss, F.l1_loss])
def test_a_column_against_a_row_is_broadcast(loss: Any) -> None:
    assert outcome("loss_shapes", Subject(regressor(), loss, values(column=False))) == "broadcast"
    assert outcome("loss_shapes", Subject(regressor(), loss, values())) == "match"


def test_a_constant_output_does_not_hide_it() -> None:
    model = regressor()
    torch.nn.init.zeros_(model[2].weight)  # type: ignore[index]
    assert outcome("loss_shapes", Subject(model, by_hand, values(column=False))) == "broadcast"


def test_a_loss_that_brings_the_shapes_together_is_sound() -> None:
    def squeezed(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return by_hand(output.squeeze(1), target)

    def chances(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy(output.squeeze(1), target)

    assert outcome("loss_shapes", Subject(regressor(), squeezed, values(column=False))) == "match"
    yes_or_no = [(given, (wanted > 0).float()) for given, wanted in values(column=False)]
    model = nn.Sequential(regressor(), nn.Sigmoid())
    assert outcome("loss_shapes", Subject(model, chances, yes_or_no)) == "match"


def test_comparing_all_pairs_is_unclear() -> None:
    def ranking(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.relu(1 - (output - output.T) * (target - target.T)).mean()

    assert "do not show whether" in why("loss_shapes", Subject(regressor(), ranking, values()))


def test_the_two_losses_are_those_of_the_formula() -> None:
    found = figures("loss_shapes", Subject(regressor(), by_hand, values(column=False)))
    # A table of all pairs has the spread of both sides and the distance of their means, whatever belongs together.
    assert found["loss"] != pytest.approx(found["loss_of_equal_shapes"], rel=1e-3)
    assert (found["prediction"], found["target"]) == ("(32, 1)", "(32,)")


class Reader(nn.Module):
    """Reads along the first axis, as recurrent layers do by default."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.last = nn.LSTM(5, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.body(x)[0]).squeeze(1)
        return out


def test_one_sequence_is_no_batch_of_steps() -> None:
    torch.manual_seed(0)
    one = [(torch.randn(20, 1, 5), torch.randint(0, 3, (20,))) for _ in range(3)]
    assert "single sequence" in why("batch_independence", Subject(Reader(), F.cross_entropy, one))
