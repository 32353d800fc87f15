"""One fault, one trial: is the fault really there, and what did clew make of it?"""

import math
from collections.abc import Set
from typing import Any, NamedTuple

from clew.casebook.mutate import right_lines
from clew.casebook.reasons import first_step, reason
from clew.casebook.reweigh import Picture, reweigh
from clew.casebook.tables import HEALTHY, Fault, Program, healthy
from clew.casebook.work import Options, bare, observed, prepared
from clew.errors import ClewError
from clew.knowledge.model import Knowledge

NEAR = 2
"""So many lines beside the right one still count as the right place."""
BASE_SEEDS = (0, 1, 2)
"""The healthy program is run with these to see how much its figure varies."""
OTHER_SEEDS = (1, 2)
"""A fault without an effect is tried with these before it is called equivalent."""
EQUIVALENT = "equivalent: the figure is that of the sound program"


class Trial(NamedTuple):
    """What became of one fault. `left_out` says why it does not count; `rank` 0: the true cause is not listed; `tried`:
    with how many seeds it ran bare; `first_step`: after how many steps a clue spoke for the true cause."""

    item: Fault
    seed: int
    left_out: str
    effect: str
    figure: float | None
    sound: float | None
    verdict: str = ""
    rank: int = 0
    top: str = ""
    credence: float = 0.0
    kind: str = ""
    localised: bool | None = None
    where: tuple[str, ...] = ()
    steps: int = 0
    seconds: float = 0.0
    run_seconds: float = 0.0
    bare_seconds: float = 0.0
    error: str = ""
    tried: int = 1
    first_step: int | None = None
    reason: str = ""

    @property
    def alarmed(self) -> bool:
        return self.verdict in ("fault", "suspect")

    @property
    def right(self) -> bool:
        """The first cause that is named is the true one."""
        return self.rank == 1


class Record(NamedTuple):
    """A trial before it is judged: the picture of the run under clew, None where it does not count, and the right
    places."""

    held: Trial
    picture: Picture | None = None
    places: tuple[tuple[str, int], ...] = ()


def record(item: Fault, program: Program, seed: int, options: Options, version: str) -> Record:
    """Run it bare and, with the first seed with which the fault shows itself, under clew."""
    if item.cause == HEALTHY:
        held = _alone(item, seed, bare(item, program, seed, options))
    else:
        held = shown(item, program, seed, options)
    if held.left_out:
        return Record(held)
    seen = observed(item, program, held.seed, options, version)
    return Record(held, seen, tuple(right_lines(item, prepared(program, options))))


def shown(item: Fault, program: Program, seed: int, options: Options) -> Trial:
    """The bare run in which the fault shows itself: an effect that one seed hides can show with another."""
    first = bare(item, program, seed, options)
    if first["status"] != 0:
        return _alone(item, seed, first)
    values = [bare(healthy(program.name), program, other, options)["figure"] for other in BASE_SEEDS]
    if None in values:
        raise ClewError(f"{program.name} without a fault did not come to its end, so nothing can be held against it.")
    seeds = [seed, *(other for other in OTHER_SEEDS if other != seed and item.hurts)]
    for count, other in enumerate(seeds, 1):
        plain = bare(item, program, other, options)
        held = _alone(item, other, plain)._replace(
            effect="none" if plain["status"] else effect_of(program, values, plain["figure"]),
            sound=sum(values) / len(values),
            tried=count,
        )
        if not held.left_out and (held.effect != "none" or not item.hurts):
            return held
    return held._replace(left_out=f"{EQUIVALENT}, with {len(seeds)} seeds")


def _alone(item: Fault, seed: int, plain: dict[str, Any]) -> Trial:
    out = ""
    if plain["status"] != 0:
        last = (plain["tail"].strip().splitlines() or ["nothing printed"])[-1]
        out = f"ends with status {plain['status']}: {last[:100]}"
    return Trial(item, seed, out, "none", plain["figure"], None, bare_seconds=plain["seconds"])


def trial_of(held: Record, knowledge: Knowledge, without: Set[str] = frozenset()) -> Trial:
    """What clew says about it under a table, and without some of its instruments."""
    if held.picture is None:
        return held.held
    if held.picture.get("error"):
        return judged(held.held, held.picture, list(held.places))
    again = reweigh(held.picture, knowledge, without)
    seen = {**held.picture, "verdict": again.verdict, "causes": again.causes()}
    found = judged(held.held, seen, list(held.places))
    found = found._replace(first_step=first_step(again, found.item.right))
    return found._replace(reason=reason(again, found.item.right)) if not found.right else found


def effect_of(program: Program, sound: list[float], figure: float | None) -> str:
    """worse, better or none: outside what the program promises, or further from its usual figure than it varies."""
    if figure is None or math.isnan(figure):
        return "worse"
    up = program.at_least is not None
    bound = program.at_least if program.at_least is not None else program.at_most
    assert bound is not None
    mean = sum(sound) / len(sound)
    better = figure - mean if up else mean - figure
    if (figure < bound) if up else (figure > bound):
        return "worse"
    usual = max(1.5 * (max(sound) - min(sound)), 0.2 * abs(mean - bound))
    if abs(better) <= usual:
        return "none"
    return "better" if better > 0 else "worse"


def judged(held: Trial, seen: dict[str, Any], places: list[tuple[str, int]]) -> Trial:
    """What clew said, held against what is true."""
    causes = seen["causes"]
    ranks = [index for index, cause in enumerate(causes, 1) if cause["id"] in held.item.right]
    rank = ranks[0] if ranks else 0
    named = causes[rank - 1] if rank else None
    first: dict[str, Any] = causes[0] if causes else {"id": "", "credence": 0.0, "kind": ""}
    return held._replace(
        verdict=seen["verdict"],
        rank=rank,
        top=first["id"],
        credence=first["credence"],
        kind=first["kind"],
        localised=localised(held.item, named, places),
        where=tuple(spelled(place) for place in (named or first).get("where", [])[:3]),
        steps=seen.get("steps", 0),
        seconds=seen["seconds"],
        run_seconds=seen.get("run_seconds", 0.0),
        error=seen.get("error", ""),
    )


def localised(item: Fault, named: dict[str, Any] | None, places: list[tuple[str, int]]) -> bool | None:
    """Whether a place of the true cause is a right one; None where there is no place to name."""
    if item.cause == HEALTHY:
        return None
    said = named["where"] if named else []
    if item.spoil:
        return any(item.file in text for text in (*(str(place) for place in said), named["says"] if named else ""))
    return any(
        same_file(str(place.get("file", "")), file) and abs((place.get("line") or -99) - line) <= NEAR
        for place in said
        for file, line in places
    )


def same_file(said: str, true: str) -> bool:
    return said == true or said.endswith(f"/{true}")


def spelled(place: dict[str, Any]) -> str:
    if place.get("file"):
        return f"{place['file']}:{place.get('line', '')}"
    return str(place.get("module") or place.get("parameter") or place.get("symbol") or place)
