"""From what an instrument answered to a clue: the tables of the knowledge base name the outcome."""

from clew.case.weigh import on_scale
from clew.knowledge.model import Knowledge, Test
from clew.records.clue import UNCLEAR, Clue, Value
from clew.records.place import Place

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
        says=says or known.means,
        reproduce=reproduce,
        version=test.version,
    )


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
