"""What a collector brings back: runs with their settings, and every point of every metric exactly."""

from typing import Any, NamedTuple


class Point(NamedTuple):
    """One reading. NaN and the infinities are readings."""

    name: str
    step: int
    value: float


class Found(NamedTuple):
    """A run of some tracker. `updated` is when its source last changed, in seconds since 1970."""

    id: str
    source: str
    group: str
    state: str
    created: str
    updated: float
    config: dict[str, Any]
    points: tuple[Point, ...]
    log: str = ""


class Collected(NamedTuple):
    """The runs that could be read, and a sentence for every source that could not."""

    runs: tuple[Found, ...]
    remarks: tuple[str, ...]


def row(found: Found) -> dict[str, Any]:
    """A run as one row: the last reading of every metric under its own name."""
    made: dict[str, Any] = {
        "run_id": found.id,
        "source": found.source,
        "group": found.group,
        "state": found.state,
        "created": found.created,
        "updated_at": found.updated,
        **{f"config.{name}": value for name, value in found.config.items()},
    }
    last: dict[str, Point] = {}
    for point in found.points:
        if point.name not in last or point.step >= last[point.name].step:
            last[point.name] = point
    for name, point in last.items():
        made.setdefault(name, point.value)
    return made
