"""Sitting one exam: what it needs, its time, whatever goes wrong, and what it answered as a clue."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from clew.case.clues import answered, unclear
from clew.errors import ClewError
from clew.exams.batches import tensors
from clew.exams.exam import Exam
from clew.exams.lab import Lab, OutOfTime, apart, seed_all
from clew.exams.subject import Subject
from clew.knowledge.model import Knowledge
from clew.records.clue import Answer, Clue, Reading, Unclear

OVER = "no answer within"


class Sat(NamedTuple):
    """An exam that was made."""

    exam: Exam
    answer: Answer
    seconds: float


def missing(exam: Exam, subject: Subject) -> str:
    """What the exam needs and the subject does not have, as a sentence; nothing when all is there."""
    has = {
        "loss": subject.loss is not None or _makes_its_loss(subject),
        "target": any(True for _ in tensors(subject.batches[0].target)),
        "validation": bool(subject.val_batches),
        "optimizer": subject.optimizer is not None,
        "predict": subject.predict is not None,
        "several batches": len(subject.batches) > 1,
    }
    lacking = [need for need in exam.needs if not has[need]]
    return f"needs {' and '.join(lacking)}, which the subject does not have" if lacking else ""


def _makes_its_loss(subject: Subject) -> bool:
    """Whether the model's output holds a loss. Found out once, on a copy, in as much time as a forward pass takes."""
    known = getattr(subject, "makes_its_loss", None)
    if known is None:
        with apart():
            seed_all(0)
            try:
                subject.value(subject.call(subject.copy(), subject.batches[0].inputs), subject.batches[0].target)
                known = True
            except ClewError:
                known = False
            except Exception:  # noqa: BLE001  # a model that cannot be called says so in every exam
                known = True
        subject.makes_its_loss = known  # type: ignore[attr-defined]
    return bool(known)


def sit(
    exam: Exam,
    subject: Subject,
    limit: float = 60.0,
    seed: int = 0,
    tell: Callable[[float], None] | None = None,
    keep: str | None = None,
    untrue: str = "",
) -> Sat:
    """Make one exam. It never raises, except when it is interrupted. With `untrue`, the reason why replaying the model
    shows nothing, only exams that look at the data alone can answer."""
    began = time.monotonic()
    lacking = missing(exam, subject)
    if lacking:
        return Sat(exam, Unclear(lacking), 0.0)
    answer: Answer
    try:
        with apart():
            seed_all(seed)
            answer = exam.function(Lab(subject, limit, seed, tell, keep, untrue))
    except OutOfTime:
        answer = Unclear(f"{OVER} {limit:.2g} s")
    except ClewError as error:
        answer = Unclear(str(error))
    except Exception as error:  # noqa: BLE001  # an experiment that the subject cannot bear has no answer
        answer = Unclear(
            f"the experiment failed: {type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
        )
    return Sat(exam, answer, time.monotonic() - began)


def clue_of(knowledge: Knowledge, sat: Sat, reproduce: str = "") -> Clue:
    """What was answered, in the words of the knowledge base."""
    test = knowledge.tests[sat.exam.test]
    answer = sat.answer
    if isinstance(answer, Unclear):
        return unclear(test, answer.why, "exam", reproduce)
    if isinstance(answer, Reading):
        return answered(test, answer.measured, where=answer.where, source="exam", reproduce=reproduce)
    return answered(
        test,
        answer.measured,
        answer.outcome,
        where=answer.where,
        says=answer.says,
        source="exam",
        reproduce=reproduce,
    )
