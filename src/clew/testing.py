"""Assertions about training code, for the tests of a project.

    from clew import Subject
    from clew.testing import assert_overfits_batch, assert_batch_independent

    def test_the_model_can_learn() -> None:
        assert_overfits_batch(Subject(model, loss, batches))

Each makes one exam on copies of the subject and fails with what was measured, what that means and what to look at. What
cannot be told fails as well, and says why; `allow_unclear=True` lets it pass. All return the clue of the exam.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.app.exam import exam
from clew.case.conduct import is_null
from clew.case.weigh import Subject as Weighed
from clew.case.weigh import read_outcome, weigh
from clew.knowledge.base import load
from clew.knowledge.model import Knowledge, Scale, Test
from clew.records.clue import UNCLEAR, Clue
from clew.report.terminal import sentence
from clew.report.text import number, percent

if TYPE_CHECKING:
    from clew.exams.subject import Subject

__all__ = [
    "assert_all_parameters_train",
    "assert_batch_independent",
    "assert_causal",
    "assert_deterministic",
    "assert_eval_deterministic",
    "assert_exam",
    "assert_finite",
    "assert_gradients_flow",
    "assert_init_loss",
    "assert_learns_from_input",
    "assert_loss_shapes",
    "assert_modes_agree",
    "assert_no_leak",
    "assert_no_overlap",
    "assert_overfits_batch",
]

LIMIT = 60.0
MOST_CAUSES = 3
STANDS_OUT = 0.5


def assert_overfits_batch(subject: Subject, *, limit: float = LIMIT, allow_unclear: bool = False) -> Clue:
    """The model memorises one batch: wiring, loss and gradients are sound."""
    __tracebackhide__ = True
    return assert_exam("overfit_one_batch", subject, "cannot memorise one batch", limit, allow_unclear)


def assert_batch_independent(subject: Subject, *, limit: float = LIMIT, allow_unclear: bool = False) -> Clue:
    """In eval mode the output for an example depends on no other example of the batch."""
    __tracebackhide__ = True
    return assert_exam("batch_independence", subject, "mixes the examples of a batch", limit, allow_unclear)


def assert_causal(subject: Subject, *, limit: float = LIMIT, allow_unclear: bool = False) -> Clue:
    """The output at a position depends on no later position."""
    __tracebackhide__ = True
    return assert_exam("causal_independence", subject, "sees later positions", limit, allow_unclear)


def assert_all_parameters_train(subject: Subject, *, limit: float = LIMIT, allow_unclear: bool = False) -> Clue:
    """Every parameter that takes a gradient changes under the subject's own optimiser."""
    __tracebackhide__ = True
    return assert_exam("parameters_changed", subject, "has parameters that do not train", limit, allow_unclear)


def assert_gradients_flow(subject: Subject, *, limit: float = LIMIT, allow_unclear: bool = False) -> Clue:
    """The gradient neither vanishes nor explodes on its way to the first layer."""
    __tracebackhide__ = True
    return assert_exam("gradient_by_depth", subject, "loses its gradient on the way", limit, allow_unclear)


def assert_init_loss(subject: Subject, *, limit: float = LIMIT, allow_unclear: bool = False) -> Clue:
    """The first loss of an untrained model is at chance level."""
    __tracebackhide__ = True
    return assert_exam("init_loss", subject, "does not start at chance loss", limit, allow_unclear)


def assert_finite(subject: Subject, *, limit: float = LIMIT, allow_unclear: bool = False) -> Clue:
    """No NaN and no infinity appears in the first steps."""
    __tracebackhide__ = True
    return assert_exam("first_nonfinite", subject, "makes values that are not finite", limit, allow_unclear)


def assert_learns_from_input(subject: Subject, *, limit: float = LIMIT, allow_unclear: bool = False) -> Clue:
    """Real inputs train better than noise of the same shape."""
    __tracebackhide__ = True
    return assert_exam(
        "input_ablation", subject, "learns no more from its inputs than from noise", limit, allow_unclear
    )


def assert_loss_shapes(subject: Subject, *, limit: float = LIMIT, allow_unclear: bool = False) -> Clue:
    """Output and target meet in the loss example by example, and are not broadcast."""
    __tracebackhide__ = True
    return assert_exam("loss_shapes", subject, "compares outputs with the wrong targets", limit, allow_unclear)


def assert_modes_agree(subject: Subject, *, limit: float = LIMIT, allow_unclear: bool = False) -> Clue:
    """The losses of the same batches in training mode and in eval mode are close."""
    __tracebackhide__ = True
    return assert_exam("train_eval_same_batch", subject, "behaves differently in eval mode", limit, allow_unclear)


def assert_deterministic(subject: Subject, *, limit: float = LIMIT, allow_unclear: bool = False) -> Clue:
    """Training twice from the same seed gives the same losses."""
    __tracebackhide__ = True
    return assert_exam("same_seed_repeat", subject, "trains differently from the same seed", limit, allow_unclear)


def assert_eval_deterministic(subject: Subject, *, limit: float = LIMIT, allow_unclear: bool = False) -> Clue:
    """In eval mode the same batch gives the same output twice."""
    __tracebackhide__ = True
    return assert_exam("eval_repeat", subject, "gives varying outputs in eval mode", limit, allow_unclear)


def assert_no_overlap(subject: Subject, *, limit: float = LIMIT, allow_unclear: bool = False) -> Clue:
    """No validation example is among the training examples. Needs `val_batches`."""
    __tracebackhide__ = True
    return assert_exam("nearest_neighbour_overlap", subject, "validates on what it trains on", limit, allow_unclear)


def assert_no_leak(subject: Subject, *, limit: float = LIMIT, allow_unclear: bool = False) -> Clue:
    """The target is not part of the inputs, and nothing that must not be seen reaches the output. One of the two exams
    behind this has to be clear."""
    __tracebackhide__ = True
    traced = assert_exam("leak_tracer", subject, "lets the target through to its output", limit, True)
    single = assert_exam("target_in_input", subject, "is given its target among its inputs", limit, True)
    if traced.outcome == UNCLEAR and single.outcome == UNCLEAR and not allow_unclear:
        raise AssertionError(_untold(subject.name, traced))
    return traced if traced.outcome != UNCLEAR else single


def assert_exam(
    name: str,
    subject: Subject,
    fault: str = "",
    limit: float = LIMIT,
    allow_unclear: bool = False,
    seed: int = 0,
) -> Clue:
    """Make the exam of that name; fails when it sees what it looks for. `fault` says in a few words what that is."""
    __tracebackhide__ = True
    clue = exam(name, subject, limit, seed=seed)
    knowledge = load()
    _, kind = read_outcome(knowledge, clue)
    if kind == "seen":
        raise AssertionError(diagnosis(knowledge, clue, f"{subject.name} {fault or 'does not pass ' + name}"))
    if kind == UNCLEAR and not allow_unclear:
        raise AssertionError(_untold(subject.name, clue))
    return clue


def _untold(name: str, clue: Clue) -> str:
    return (
        f"{name}: unclear: {clue.why}\n"
        f"asked    {load().tests[clue.test].asks}\n"
        f"more     clew why {clue.test}; allow_unclear=True lets this pass"
    )


def diagnosis(knowledge: Knowledge, clue: Clue, fault: str) -> str:
    """What was measured, what it means, what it may come from, and what to look at: one line each."""
    test = knowledge.tests[clue.test]
    outcome, _ = read_outcome(knowledge, clue)
    known = test.outcome(outcome)
    says = clue.says or (known.means if known else outcome)
    rows = [("measured", _figures(test, clue)), ("means", sentence(says))]
    rows += [("at", str(place)) for place in clue.where[:MOST_CAUSES]]
    causes = _causes(knowledge, clue)
    rows += [("may be", f"{name}, {percent(share)}: {knowledge.causes[name].gloss}") for name, share in causes]
    if causes:
        rows.append(("check", knowledge.causes[causes[0][0]].refute))
    if causes and causes[0][1] < STANDS_OUT:
        rows.append(("next", "clew.examine(subject) runs the exams that distinguish these"))
    rows.append(("more", "; ".join(f"clew why {name}" for name in (test.id, *(name for name, _ in causes[:1])))))
    lines = []
    for index, (label, text) in enumerate(rows):
        shown = "" if index and rows[index - 1][0] == label else label
        lines.append(f"{shown:<9}{text}")
    return "\n".join([f"{fault}.", *lines])


def _figures(test: Test, clue: Clue) -> str:
    parts = []
    for name, value in clue.measured:
        limits = f" ({_limits(test.scale)})" if test.scale is not None and test.scale.of == name else ""
        parts.append(f"{name.replace('_', ' ')} {number(value)}{limits}")
    return ", ".join(parts) or "no numbers"


def _limits(scale: Scale) -> str:
    below = [f"{outcome} below {limit:g}" for limit, outcome in scale.steps]
    return ", ".join([*below, f"{scale.above} from there on"])


def _causes(knowledge: Knowledge, clue: Clue) -> list[tuple[str, float]]:
    """What the clue alone makes of the causes: a mechanism that was seen, or the likeliest explanations."""
    held = weigh(knowledge, [clue], Weighed("general", "complaint"))
    if held.findings:
        return [(finding.cause, finding.credence) for finding in held.findings]
    faults = [share for share in held.shares if not is_null(knowledge, share.cause)]
    raised = [share for share in faults if share.credence > share.prior]
    return [(share.cause, share.credence) for share in raised[:MOST_CAUSES]]
