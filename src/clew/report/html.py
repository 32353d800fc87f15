"""A case as one self-contained page: no scripts, nothing fetched, every text escaped by the template engine."""

from typing import TYPE_CHECKING, Any

from clew.evidence.words import word
from clew.report.terminal import sentence
from clew.report.text import number, percent, seconds
from clew.report.view import CaseView, guesses, telling

if TYPE_CHECKING:
    from jinja2 import Environment


def case_html(seen: CaseView) -> str:
    return environment().get_template("case.html.j2").render(**_data(seen))


def environment() -> "Environment":
    """The templates of all pages, every value escaped. jinja2 takes 60 ms to load, so only pages load it."""
    import os

    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "templates")
    made = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        percent=percent, word=lambda share: word(round(share, 2)), number=number, seconds=seconds, sentence=sentence
    )
    return made


def _data(seen: CaseView) -> dict[str, Any]:
    """The view as the template wants it: rows of plain values."""
    knowledge = seen.knowledge
    own = {item.id: item for item in seen.case.own}
    shares = {share.cause: share for share in seen.weighing.shares}
    hypotheses = []
    held = guesses(seen)
    for item in held:
        cause = knowledge.causes.get(item.cause)
        pulls = telling(seen, item.cause)[:6]
        hypotheses.append(
            {
                "id": item.cause,
                "part": {"subtle": "the subtle one", "null": "the null", "own": "yours"}.get(item.part, ""),
                "credence": item.credence,
                "prior": shares[item.cause].prior,
                "says": cause.gloss if cause else own[item.cause].says,
                "check": cause.refute if cause else own[item.cause].check,
                "pulls": [
                    {"number": seen.counted[p.clue].number, "test": seen.counted[p.clue].clue.test, "bits": p.bits}
                    for p in pulls
                ],
            }
        )
    shown = sum(item.credence for item in held)
    return {
        "case": seen.case,
        "verdict": seen.verdict,
        "clues": list(zip(seen.counted, seen.weighing.clues, strict=True)),
        "left_out": [
            *((held, "made on other code, not counted") for held in seen.other_code),
            *((held, f"retracted: {held.retracted}") for held in seen.retracted),
        ],
        "findings": [
            {
                "id": finding.cause,
                "credence": finding.credence,
                "where": "; ".join(dict.fromkeys(map(str, finding.where))),
                "clues": [seen.counted[index].number for index in finding.clues],
                "cause": seen.cause(finding),
            }
            for finding in seen.weighing.findings
        ],
        "hypotheses": hypotheses,
        "unknown": seen.weighing.unknown,
        "rest": max(0.0, 1.0 - shown - seen.weighing.unknown),
        "rest_count": len(seen.weighing.shares) - len(held),
        "advice": seen.advice,
        "choices": [(choice, knowledge.tests[choice.test]) for choice in seen.choices],
        "leading": [share.cause for share in seen.weighing.shares[:4]],
        "tests": knowledge.tests,
        "foreseen": seen.foreseen,
    }
