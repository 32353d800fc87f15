"""Assertions for other people's tests: they fail with a diagnosis, and pass where nothing is wrong."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from network_subjects import classes, perceptron, sound
from torch import nn

from clew import testing
from clew.exams.exam import all_exams
from clew.exams.subject import Subject
from clew.records.clue import Clue

pytest_plugins = ["pytester"]
torch.set_num_threads(1)
SOUND = dict(sound())
QUICK = (
    "assert_all_parameters_train assert_batch_independent assert_deterministic assert_eval_deterministic "
    "assert_finite assert_gradients_flow assert_init_loss assert_loss_shapes assert_modes_agree assert_no_leak "
    "assert_overfits_batch"
).split()


def of(name: str) -> Callable[..., Clue]:
    held: Callable[..., Clue] = getattr(testing, name)
    return held


def subject(model: nn.Module | None = None, loss: Callable[..., torch.Tensor] = F.cross_entropy) -> Subject:
    return Subject(model or perceptron(), loss, classes(), name="Net")


class Changed(nn.Module):
    """The sound network with something done to its hidden values."""

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.change = nn.Linear(20, 32), nn.Linear(32, 10), change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.change(torch.relu(self.first(x))))
        return out


def broadcast() -> Subject:
    """Outputs in a column, targets in a row."""
    given = [(inputs, inputs[:, 0]) for inputs, _ in classes()]
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1))
    return Subject(model, lambda output, target: (output - target).square().mean(), given, name="Net")


FAULTS: dict[str, Callable[[], Subject]] = {
    "assert_overfits_batch": lambda: subject(loss=lambda output, target: F.cross_entropy(0 * output, target)),
    "assert_batch_independent": lambda: subject(Changed(lambda hidden: hidden - hidden.mean(0))),
    "assert_all_parameters_train": lambda: subject(Changed(torch.Tensor.detach)),
    "assert_gradients_flow": lambda: subject(Changed(torch.Tensor.detach)),
    "assert_init_loss": lambda: subject(Changed(lambda hidden: 100 * hidden)),
    "assert_finite": lambda: subject(Changed(lambda hidden: torch.log(hidden))),
    "assert_loss_shapes": broadcast,
    "assert_eval_deterministic": lambda: subject(Changed(lambda hidden: F.dropout(hidden, 0.5))),
}


@pytest.mark.parametrize("name", FAULTS)
def test_it_fails_with_a_diagnosis(name: str) -> None:
    with pytest.raises(AssertionError) as caught:
        of(name)(FAULTS[name]())
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("Net ")
    assert lines[0].endswith(".")
    labels = [line[:9].strip() for line in lines[1:]]
    assert labels[:2] == ["measured", "means"]
    assert {"may be", "check", "more"} <= set(labels)
    assert lines[-1].startswith("more     clew why ")


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("kind", ["classifier", "regression"])
def test_it_passes_where_nothing_is_wrong(name: str, kind: str) -> None:
    clue = of(name)(SOUND[kind])
    assert clue.source == "exam"
    assert clue.outcome != "unclear"


def test_a_causal_model_is_causal_and_another_is_not() -> None:
    testing.assert_causal(SOUND["tokens"])
    model: nn.Module = nn.Sequential(nn.Embedding(50, 16), Reversed(), nn.Linear(16, 50))
    held = Subject(model, lambda output, target: F.cross_entropy(output.mT, target), SOUND["tokens"].batches)
    with pytest.raises(AssertionError, match="sees later positions"):
        testing.assert_causal(held)


class Reversed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x.flip(1)


def test_a_leak_is_seen() -> None:
    given = [(torch.cat([inputs, target[:, None].float()], 1), target) for inputs, target in classes()]
    held = Subject(nn.Sequential(nn.Linear(21, 32), nn.ReLU(), nn.Linear(32, 10)), F.cross_entropy, given)
    with pytest.raises(AssertionError, match="lets the target through to its output"):
        testing.assert_no_leak(held)


def test_overlap_between_training_and_validation_is_seen() -> None:
    same = Subject(perceptron(), F.cross_entropy, classes(), val_batches=classes()[:2])
    with pytest.raises(AssertionError, match="validates on what it trains on"):
        testing.assert_no_overlap(same)
    testing.assert_no_overlap(Subject(perceptron(), F.cross_entropy, classes()[:2], val_batches=classes()[2:]))


def test_what_cannot_be_told_fails_unless_that_is_allowed() -> None:
    with pytest.raises(
        AssertionError, match=r"(?s)unclear: the model does not seem to predict the next .*clew why causal_independence"
    ):
        testing.assert_causal(SOUND["classifier"])
    assert testing.assert_causal(SOUND["classifier"], allow_unclear=True).outcome == "unclear"


def test_learning_from_the_input() -> None:
    noise = [(inputs, target[torch.randperm(len(target))]) for inputs, target in classes(batches=6)]
    with pytest.raises(AssertionError):
        testing.assert_learns_from_input(Subject(perceptron(), F.cross_entropy, noise))


def test_all_assertions_are_listed_and_their_exams_exist() -> None:
    assert testing.__all__ == sorted(name for name in vars(testing) if name.startswith("assert_"))
    assert {"overfit_one_batch", "causal_independence", "same_seed_repeat", "init_loss"} <= set(all_exams())


# --- in pytest

HEAD = """
import pytest
import torch
from torch import nn
from clew import Subject
from clew.testing import assert_all_parameters_train

def subject(broken=False):
    torch.manual_seed(0)
    inputs = torch.randn(16, 8)
    batches = [(inputs, inputs[:, :1] * 2)]
    loss = (lambda o, t: (o.detach() - t).square().mean()) if broken else nn.MSELoss()
    return Subject(nn.Linear(8, 1), loss, batches, name="Net")
"""
PLUGIN = ("-p", "clew.pytest_plugin", "-p", "no:cacheprovider")


@pytest.fixture
def written(pytester: pytest.Pytester) -> Callable[[str], pytest.Pytester]:
    def write(text: str) -> pytest.Pytester:
        pytester.makepyfile(HEAD + text)
        return pytester

    return write


def test_a_failure_reads_like_a_diagnosis(written: Callable[[str], pytest.Pytester]) -> None:
    held = written("def test_it():\n    assert_all_parameters_train(subject(broken=True))\n")
    done = held.runpytest(*PLUGIN)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "E  *Net has parameters that do not train.",
            "E  *measured *",
            "E  *means *",
            "E  *more     clew why parameters_changed*",
        ]
    )
    assert "clew/app/exam.py" not in done.stdout.str()


def test_slow_exams_wait_to_be_asked_for(written: Callable[[str], pytest.Pytester]) -> None:
    held = written("@pytest.mark.clew_slow\ndef test_it():\n    assert_all_parameters_train(subject())\n")
    done = held.runpytest(*PLUGIN, "--strict-markers", "-rs")
    done.assert_outcomes(skipped=1)
    done.stdout.fnmatch_lines(["*a slow exam; --clew-slow runs it*"])
    held.runpytest(*PLUGIN, "--clew-slow").assert_outcomes(passed=1)


def test_the_fixture_begins_alike_and_leaves_no_trace(written: Callable[[str], pytest.Pytester]) -> None:
    held = written(
        """
drawn = []

@pytest.fixture(autouse=True)
def untouched():
    state = torch.get_rng_state()
    yield
    drawn.append(torch.equal(state, torch.get_rng_state()))

@pytest.mark.parametrize("turn", [1, 2])
def test_it(clew_lab, turn):
    first = torch.rand(())
    torch.manual_seed(0)
    assert torch.equal(first, torch.rand(()))
    assert clew_lab.exam("loss_reaches_parameters", subject()).outcome == "all"

def test_kept(clew_lab):
    import os
    net = Subject(nn.Linear(4, 3), nn.CrossEntropyLoss(), [(torch.randn(64, 4), torch.randint(3, (64,)))])
    clew_lab.exam("confident_errors", net)
    assert os.listdir(clew_lab.folder) == ["confident_errors"]

def test_before():
    assert drawn == [True, True, True]
"""
    )
    held.runpytest(*PLUGIN).assert_outcomes(passed=4)


def test_the_plugin_alone_loads_no_torch(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\n\ndef test_it():\n    assert 'torch' not in sys.modules\n")
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)
