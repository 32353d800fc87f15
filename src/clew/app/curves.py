"""What the curves of an observed run show: the losses that were seen, and the metrics that the script printed."""

import math

from clew.app.logs import spread
from clew.archive import output
from clew.archive.files import Damage
from clew.archive.model import Run
from clew.case.clues import answered, unclear
from clew.errors import ClewError
from clew.home import private
from clew.knowledge.model import Knowledge
from clew.observe.collect import Process
from clew.records.clue import Clue, Reading, Unclear
from clew.records.place import Place
from clew.records.trace import ASKED, RIGHT, Series
from clew.symptoms.curves import read_curves
from clew.symptoms.logs import read_log
from clew.symptoms.recount import Pass, accuracy_recounted, counted_apart
from clew.symptoms.scale import as_printed
from clew.symptoms.scores import own_score

MOST_PRINTED = 8 << 20
OFTEN = 0.2
"""A second loss with this share of the first one's points is trained along with it, and no rare extra."""
FUNCTION = "loss function "


def curve_clues(knowledge: Knowledge, part: Process, held: Run) -> list[Clue]:
    epochs = part.series[("epoch", "")].steps if ("epoch", "") in part.series else ()
    series = losses(part)
    main = series.get("loss")
    told = printed(held)
    said = {name: item for name, item in told.items() if name not in ("loss", "train_loss")}
    if main is not None:
        main = series["loss"] = as_printed(main, told)
        said = spread({**said, "train_loss": main}, [], epochs)
        del said["train_loss"]
    series = {**said, **series}
    classes = _only(part, "classes")
    answers = read_curves(
        series,
        math.log(classes) if classes is not None and classes > 1 else None,
        constant=_largest_share(part),
        constant_loss=_last(part, "constant loss"),
        epochs=epochs,
        loss_name=_function(part),
    )
    if ("environment steps", "") in part.series:
        answers["own_score"] = own_score(told, _outcome(part, "returns_course"))
    answers["accuracy_recounted"] = accuracy_recounted(told, _passes(part))
    clues = []
    for name, answer in answers.items():
        test = knowledge.tests.get(name)
        if test is None:
            continue
        if isinstance(answer, Unclear):
            clues.append(unclear(test, answer.why, "log"))
        else:
            outcome = "" if isinstance(answer, Reading) else answer.outcome
            where = _places(part, "returns_course") if name == "own_score" else ()
            says = counted_apart(dict(answer.measured)) if outcome == "differs" else ""
            clues.append(answered(test, answer.measured, outcome, where=where, says=says, source="log"))
    return clues


def losses(part: Process) -> dict[str, Series]:
    """The losses by line of backward. Where several are trained in turn, none stands for the run."""
    main = part.series.get(("loss", ""))
    if main is None:
        return {}
    others = {of: item for (name, of), item in part.series.items() if name == "loss" and of}
    often = {of: item for of, item in others.items() if len(item.values) >= OFTEN * len(main.values)}
    if not often:
        return {"loss": main}
    return {"loss at the first backward": main, **{f"loss at {of}": item for of, item in often.items()}}


def printed(held: Run) -> dict[str, Series]:
    """Numbers that the script itself printed, by name."""
    text = "".join(said.text for said in output.read(held, Damage()) if said.stream == "out")[:MOST_PRINTED]
    if not text.strip():
        return {}
    path = held.path("printed.txt")
    try:
        with open(path, "w", encoding="utf-8", errors="replace", opener=private) as file:
            file.write(text)
        return {item.name: item for item in read_log(path).series}
    except (ClewError, OSError):
        return {}  # no numbers among the words: nothing was printed that could be read


def _passes(part: Process) -> list[Pass]:
    """What was counted in evaluation. A pass that was written before it was over is there twice."""
    found: dict[tuple[str, int], Pass] = {}
    for (name, of), held in part.series.items():
        asked = part.series.get((ASKED, of))
        if name == RIGHT and asked is not None:
            for step, right, count in zip(held.steps, held.values, asked.values, strict=False):
                found[of, step] = Pass(step, right, count)
    return list(found.values())


def _last(part: Process, name: str) -> float | None:
    held = part.series.get((name, ""))
    return held.values[-1] if held and held.values else None


def _only(part: Process, name: str) -> float | None:
    """The value of a series that never changed."""
    held = part.series.get((name, ""))
    return held.values[-1] if held and len(set(held.values)) == 1 else None


def _function(part: Process) -> str:
    names = {name.removeprefix(FUNCTION) for name, _ in part.series if name.startswith(FUNCTION)}
    return names.pop() if len(names) == 1 else ""


def _outcome(part: Process, test: str) -> str:
    """What a watch answered, nothing where it was unclear."""
    return next((str(answer.get("outcome") or "") for answer in part.answers if answer["test"] == test), "")


def _places(part: Process, test: str) -> tuple[Place, ...]:
    """Where a watch saw what it answered."""
    found = [answer.get("where", []) for answer in part.answers if answer["test"] == test]
    return tuple(Place.from_json(place) for held in found[:1] for place in held)


def _largest_share(part: Process) -> float | None:
    """The accuracy of naming the most frequent class always."""
    for answer in part.answers:
        if answer["test"] == "label_counts":
            share = answer.get("measured", {}).get("largest_class_share")
            return float(share) if isinstance(share, int | float) else None
    return None
