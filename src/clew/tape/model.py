"""What a tape holds. Values are numbered by slot: inputs, parameters, and whatever a call made."""

from typing import Any, NamedTuple

from clew.records.place import Place

VERSION = 1


class Call(NamedTuple):
    """One call of a torch function. `args` and `kwargs` are encoded as in `coding`; `made` are the slots of the tensors
    in its result, in order. `under` names the state it was made in: gradients on or off, and autocast."""

    function: str
    args: Any
    kwargs: Any
    made: tuple[int, ...]
    under: int
    place: int
    module: str


class Under(NamedTuple):
    """Whether gradients were on, and which autocast: ("cpu", "bfloat16"), or nothing."""

    grad: bool
    autocast: tuple[str, str] | None = None


class Value(NamedTuple):
    """A value that comes from outside of the tape. `role` is parameter, buffer, input, target or constant; `argument`
    is where an input was given to a model: (model, position among the tensors), or None."""

    slot: int
    role: str
    name: str
    grad: bool
    rows: bool
    argument: tuple[int, int] | None = None


class Tape(NamedTuple):
    """`outputs` are what the model part hands to the loss part, the prediction first."""

    values: tuple[Value, ...]
    calls: tuple[Call, ...]
    split: int  # the calls before this belong to the model, from it on to the loss
    outputs: tuple[int, ...]
    loss: int
    loss_name: str
    unders: tuple[Under, ...]
    places: tuple[Place, ...]
    rows: int
    left: tuple[str, ...]  # values that left torch on the way, each a sentence
    step: int
    value: float  # the loss as it was
    device: str

    def of_role(self, *roles: str) -> list[Value]:
        return [value for value in self.values if value.role in roles]


def to_json(tape: Tape) -> dict[str, Any]:
    table = tape._asdict()
    table["version"] = VERSION
    table["values"] = [list(value) for value in tape.values]
    table["calls"] = [list(call) for call in tape.calls]
    table["unders"] = [list(under) for under in tape.unders]
    table["places"] = [place.to_json() for place in tape.places]
    return table


def from_json(table: dict[str, Any]) -> Tape:
    if table.get("version") != VERSION:
        raise ValueError(f"the tape has version {table.get('version')}, this clew reads version {VERSION}")
    return Tape(
        values=tuple(_value(*item) for item in table["values"]),
        calls=tuple(_call(*item) for item in table["calls"]),
        split=table["split"],
        outputs=tuple(table["outputs"]),
        loss=table["loss"],
        loss_name=table["loss_name"],
        unders=tuple(Under(item[0], None if item[1] is None else tuple(item[1])) for item in table["unders"]),
        places=tuple(Place.from_json(item) for item in table["places"]),
        rows=table["rows"],
        left=tuple(table["left"]),
        step=table["step"],
        value=float(table["value"]),
        device=table["device"],
    )


def _value(slot: int, role: str, name: str, grad: bool, rows: bool, argument: list[int] | None) -> Value:
    return Value(slot, role, name, grad, rows, None if argument is None else (argument[0], argument[1]))


def _call(function: str, args: Any, kwargs: Any, made: list[int], under: int, place: int, module: str) -> Call:
    return Call(function, args, kwargs, tuple(made), under, place, module)
