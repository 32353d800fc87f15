"""Weighing the clues of a kept run again, under another table or without some of the instruments.

The engine is the one of `clew run`; nothing of it is repeated here. What cannot be done again is the choice of exams:
an exam that would have been made for lack of another one is not in the picture.
"""

from collections.abc import Set
from typing import Any, NamedTuple

from clew.case.conduct import Advice
from clew.case.verdict import Verdict, judge
from clew.case.weigh import Subject, Weighing, weigh
from clew.knowledge.model import Knowledge
from clew.records import exact
from clew.records.case import Case, HeldClue
from clew.records.clue import UNCLEAR, Clue
from clew.records.place import Place, told
from clew.report.view import CaseView, causes_json

INSTRUMENTS = ("observe", "log", "lint", "exam")
"""Who makes the clues of a run: watching it, reading its curves, reading its source, experiments after it."""

Picture = dict[str, Any]


class Again(NamedTuple):
    """A run weighed again. `steps` has, for each clue, the step of the run after which it was there."""

    picture: Picture
    knowledge: Knowledge
    clues: tuple[Clue, ...]
    steps: tuple[int, ...]
    weighing: Weighing
    verdict: str

    @property
    def named(self) -> list[tuple[str, float, str]]:
        """Every cause with its credence and kind, as `clew run` lists them: findings first."""
        found = [(finding.cause, finding.credence, "finding") for finding in self.weighing.findings]
        return found + [(share.cause, share.credence, "hypothesis") for share in self.weighing.shares]

    def causes(self) -> list[dict[str, Any]]:
        """The same with places, as `clew run --json` has them."""
        places = {
            name: tuple(Place.from_json(place) for place in held)
            for name, held in self.picture.get("places", {}).items()
        }
        findings = tuple(
            item._replace(where=told(places.get(item.cause, ()), item.where)) for item in self.weighing.findings
        )
        weighing = self.weighing._replace(findings=findings)
        held = tuple(HeldClue(index + 1, clue, "", "") for index, clue in enumerate(self.clues))
        return causes_json(_view(self.knowledge, held, weighing, places))


def reweigh(picture: Picture, knowledge: Knowledge, without: Set[str] = frozenset()) -> Again:
    """The verdict and the credences of a kept run. `without` holds names of instruments and of tests."""
    kept = [
        (clue_of(table, knowledge), table.get("step", picture.get("steps", 0)))
        for table in picture["clues"]
        if table["outcome"] != UNCLEAR and table["test"] in knowledge.tests
    ]
    kept = [(clue, step) for clue, step in kept if clue.test not in without and clue.source not in without]
    clues = tuple(clue for clue, _ in kept)
    weighing = weigh(knowledge, clues, Subject(picture.get("domain", "general"), "routine"))
    word = sobered(judge(knowledge, weighing), picture)
    return Again(picture, knowledge, clues, tuple(step for _, step in kept), weighing, word)


def clue_of(table: dict[str, Any], knowledge: Knowledge) -> Clue:
    """A clue as it was. Pictures of an older form lack who made it and what was read: the knowledge base says so."""
    test = knowledge.tests[table["test"]]
    return Clue(
        table["test"],
        table["outcome"],
        tuple(sorted(exact.restore(table["measured"]).items())),
        tuple(Place.from_json(place) for place in table.get("where", [])),
        reads=tuple(table.get("reads") or (test.reads,)),
        source=table.get("source") or test.by,
    )


def sobered(verdict: Verdict, picture: Picture) -> str:
    """As in `clew run`: what made no step, or was ended by an error, has not shown that it is healthy."""
    if verdict.word == "healthy" and (not picture.get("steps", 1) or picture.get("exit", 0)):
        return "undecided"
    return verdict.word


def _view(
    knowledge: Knowledge, held: tuple[HeldClue, ...], weighing: Weighing, places: dict[str, tuple[Place, ...]]
) -> CaseView:
    case = Case("", "", "", "general", "routine", "", "", "", (), held, (), (), (), None)
    nothing = Advice("nothing", "")
    return CaseView(
        case, knowledge, "", held, (), (), weighing, judge(knowledge, weighing), (), (), nothing, (), places
    )
