"""A knowledge base small enough to work out by hand, made by hypothesis or by name."""

from clew.knowledge import model
from clew.knowledge.model import Knowledge
from clew.records.clue import Clue

FAMILIES = {"data": 0.4, "loss": 0.2, "train": 0.15, "arch": 0.1, "hp": 0.05, "num": 0.05, "env": 0.05}


def cause(
    name: str,
    *,
    subtle: bool = False,
    weight: float = 1.0,
    refute_test: str = "t0",
    explains: tuple[str, ...] = (),
) -> model.Cause:
    return model.Cause(
        id=name,
        family=name.split(".")[0],
        gloss=f"gloss of {name}",
        means=f"meaning of {name}.",
        shows=("a sign.",),
        refute=f"an observation against {name}.",
        refute_test=refute_test,
        not_first="a reflex.",
        mend=f"the mend of {name}.",
        claims=("claim",),
        subtle=subtle,
        weight=weight,
        explains=explains,
    )


def observation(
    name: str,
    rows: dict[str, tuple[float, ...]],
    *,
    healthy: tuple[float, ...] = (0.1, 0.9),
    otherwise: tuple[float, ...] = (0.3, 0.7),
    reads: str = "",
    role: str = "check",
    seconds: float = 1.0,
    person: bool = False,
    decisive: tuple[tuple[str, str, float], ...] = (),
    scale: model.Scale | None = None,
) -> model.Test:
    names = ("seen", "absent", "third", "fourth")[: len(healthy)]
    return model.Test(
        id=name,
        asks=f"what about {name}?",
        how=f"do {name}.",
        by="person",
        reads=reads or f"channel of {name}",
        role=role,
        seconds=seconds,
        person=person,
        outcomes=tuple(
            model.Outcome(item, "absent" if item == "absent" else "seen", f"{name} is {item}") for item in names
        ),
        healthy=healthy,
        otherwise=otherwise,
        otherwise_why="because.",
        rows=tuple(model.Row((key,), p, "because.") for key, p in rows.items()),
        cannot_tell="much.",
        claims=("claim",),
        scale=scale,
        decisive=tuple(model.Decisive(*item) for item in decisive),
    )


def knowledge(
    causes: list[model.Cause],
    tests: list[model.Test],
    *,
    unknown: float = 0.05,
    floor: float = 0.02,
    overlap: float = 0.8,
    references: tuple[model.Reference, ...] = (),
) -> Knowledge:
    healthy = [cause("none.healthy"), cause("none.overfitting"), cause("none.slow")]
    return Knowledge(
        families={key: model.Family(key, prior, "") for key, prior in {**FAMILIES, "none": 0.0}.items()},
        causes={item.id: item for item in [*causes, *healthy]},
        tests={item.id: item for item in tests},
        symptoms={},
        triage={},
        lenses={},
        habits={},
        antipatterns={},
        ranges={},
        references={item.id: item for item in references},
        domains={"general": model.Domain("general", "", (), (), "")},
        claims={},
        priors=model.Priors(
            unknown,
            floor,
            overlap,
            (("complaint", (("none.healthy", 0.04), ("none.overfitting", 0.03), ("none.slow", 0.03))),),
            (("person", 60.0), ("log", 30.0)),
            "",
        ),
    )


def clue(held: model.Test, outcome: str, reads: str = "") -> Clue:
    return Clue(test=held.id, outcome=outcome, reads=(reads or held.reads,))
