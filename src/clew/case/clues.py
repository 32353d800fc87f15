"""From what an instrument answered to a clue: the tables of the knowledge base name the outcome."""

import math

from clew.case.weigh import on_scale
from clew.knowledge.model import Knowledge, Test
from clew.records.clue import UNCLEAR, Clue, Value
from clew.records.place import Place

SENTENCES = {
    ("loss_stuck_from_start", "stuck"): "the training loss moves by {:.1%} of its first value",
    ("loss_stuck_from_start", "slow"): "the training loss moves by only {:.0%} of its first value",
    ("loss_plateau", "early_high"): "the training loss goes flat at {:.0%} of its first value",
    ("loss_oscillates", "wild"): "the loss swings by {:.0%} of its first value around its running median",
    ("loss_term_sizes", "one_dominates"): "the largest loss term is {:,.0f} times the smallest",
    ("residual_scale", "apart"): "the largest loss term is 10^{:.1f} times the smallest",
    (
        "seed_spread",
        "wide",
    ): "with other seeds the loss after the first steps scatters by {:.0%} of its improvement",
    ("term_conflict", "opposed"): "the gradients of two loss terms point against each other: cosine {:.2f}",
    ("init_loss", "far_below"): "the first loss is {:.2f} times that of guessing",
    ("init_loss", "above"): "the first loss is {:.2f} times that of guessing",
    ("init_loss", "far_above"): "the first loss is {:.3g} times that of guessing",
    (
        "explained_variance",
        "negative",
    ): "the value function does worse than the mean return: explained variance {:.2f}",
    ("explained_variance", "low"): "the value function hardly beats the mean return: explained variance {:.2f}",
    ("clip_activity", "always"): "clipping shortens {:.0%} of the steps, so the limit sets the step size",
}
"""Outcomes said with the figure that decides them, where the knowledge base can only name the limits."""
ORDER = {"seen": 0, "absent": 1, UNCLEAR: 2}


def unclear(test: Test, why: str, source: str, reproduce: str = "") -> Clue:
    return Clue(
        test.id, UNCLEAR, reads=(test.reads,), source=source, reproduce=reproduce, why=why, version=test.version
    )


def answered(
    test: Test,
    measured: tuple[tuple[str, Value], ...],
    outcome: str = "",
    *,
    where: tuple[Place, ...] = (),
    says: str = "",
    source: str,
    reproduce: str = "",
) -> Clue:
    """A clue from figures, or from an outcome that was seen as such. Figures are read on the scale of the test; the one
    that says otherwise than an outcome that was seen is left out, since it would be read again."""
    value = dict(measured).get(test.scale.of) if test.scale is not None else None
    if test.scale is not None and isinstance(value, int | float):
        read = on_scale(test.scale, float(value))
        if outcome and read != outcome:
            measured = tuple(held for held in measured if held[0] != test.scale.of)
        outcome = outcome or read
    known = test.outcome(outcome)
    if known is None:
        given = outcome or ", ".join(f"{name} {value}" for name, value in measured)
        return unclear(test, f"{given} is not an outcome of this test", source, reproduce)
    return Clue(
        test=test.id,
        outcome=outcome,
        measured=measured,
        where=where,
        reads=(test.reads,),
        source=source,
        says=says or _said(test, outcome, dict(measured)) or known.means,
        reproduce=reproduce,
        version=test.version,
    )


def _said(test: Test, outcome: str, measured: dict[str, Value]) -> str:
    value = measured.get(test.scale.of) if test.scale is not None else None
    words = SENTENCES.get((test.id, outcome), "")
    return words.format(value).replace("%", " %") if isinstance(value, int | float) and math.isfinite(value) else ""


def join(knowledge: Knowledge, parts: list[list[Clue]]) -> list[Clue]:
    """One clue per test over several witnesses: what any saw counts, then what any found absent, then unclear."""
    best: dict[str, tuple[int, Clue]] = {}
    for clues in parts:
        for clue in clues:
            outcome = knowledge.tests[clue.test].outcome(clue.outcome)
            rank = ORDER[outcome.kind if outcome else UNCLEAR]
            if clue.test not in best or rank < best[clue.test][0]:
                best[clue.test] = (rank, clue)
    return [clue for _, clue in best.values()]
