"""Random numbers that a captured model puts on its inputs before any parameter has a part in them."""

from __future__ import annotations

from clew.tape.coding import slots_in
from clew.tape.model import Tape
from clew.tape.names import short

DRAWS = frozenset("rand randn randint rand_like randn_like randint_like normal bernoulli".split())
PICKS = frozenset("__getitem__ index_select gather take embedding".split())


def disturbed(tape: Tape) -> dict[int, int]:
    """The calls that put something drawn on an input, each with the slot of the input that it should pass on."""
    data = {value.slot for value in tape.of_role("input")}
    noise: set[int] = set()
    found: dict[int, int] = {}
    for index, call in enumerate(tape.calls[: tape.split]):
        uses = slots_in([call.args, call.kwargs["dict"]])
        name = short(call.function)
        if name in DRAWS:
            noise.update(call.made)
        elif noise.intersection(uses) and name not in PICKS:
            passed = [slot for slot in uses if slot in data]
            others = [slot for slot in uses if slot not in data and slot not in noise]
            if not passed and not others:
                noise.update(call.made)
            elif len(passed) == 1 and not others and len(call.made) == 1:
                found[index] = passed[0]
                data.update(call.made)
        elif uses and data.issuperset(uses):
            data.update(call.made)
    return found
