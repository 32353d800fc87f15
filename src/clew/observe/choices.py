"""Where a step chooses among vectors by what a part of the model gave out, and hands the chosen ones on.

A choice (the nearest code, the largest score) has no gradient. A model that is to learn through it puts the gradient
past it, usually as `z + (chosen - z).detach()`. Read from the record of a step's calls alone: nothing is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from clew.observe.roll import Raw
from clew.records.place import Place

CHOICES = frozenset(("argmin", "argmax", "argsort"))
VALUES_AND_CHOICES = frozenset(("min", "max", "topk", "sort"))
PULLS = frozenset("mse_loss l1_loss smooth_l1_loss huber_loss sub __sub__ __rsub__ rsub subtract".split())
"""What brings two values together, or begins to."""


class Cut(NamedTuple):
    """`chosen`, `pulled` and `given`: where the choice is made, where what chose is drawn to it, and the first layer
    behind that is given what was chosen. `lost` are the parameters that nothing behind the choice reaches."""

    chosen: Place | None
    pulled: Place | None
    given: Place | None
    lost: tuple[str, ...]


class _Choice:
    def __init__(self, behind: int, place: Place | None) -> None:
        self.behind = behind  # the parameters that the scores come from
        self.place = place
        self.pull: Raw | None = None
        self.z = 0  # the parameters behind what is drawn to the chosen
        self.given: list[tuple[Raw, int]] = []  # layers behind it, and the parameters that a gradient goes on to


class _Study:
    """Sets are kept as bits: one for each parameter, and one for each choice."""

    def __init__(self, parameters: dict[int, str]) -> None:
        self.bits = {slot: 1 << number for number, slot in enumerate(parameters)}
        self.reached = dict(self.bits)  # by slot: the parameters that a gradient would come to
        self.chosen: dict[int, int] = {}  # by slot: the choices that its values come from
        self.choices: list[_Choice] = []

    def take(self, call: Raw) -> None:
        sources, came = _any(self.reached, call.uses), _any(self.chosen, call.uses)
        if call.said in CHOICES or (call.said in VALUES_AND_CHOICES and len(call.made) > 1):
            self._choose(call, sources, came)
            return
        if came and call.under.grad:
            self._pulled(call)
            self._given(call, came)
        for slot in call.made:
            self.reached[slot] = sources if call.trained else 0
            self.chosen[slot] = came

    def _choose(self, call: Raw, sources: int, came: int) -> None:
        values = call.made[0] if call.said in VALUES_AND_CHOICES else None
        if sources:
            came |= 1 << len(self.choices)
            self.choices.append(_Choice(sources, call.place))
        for slot in call.made:
            self.reached[slot] = sources if slot == values and call.trained else 0
            self.chosen[slot] = came

    def _pulled(self, call: Raw) -> None:
        if call.said not in PULLS or len(call.uses) != 2:
            return
        for one, other in (call.uses, call.uses[::-1]):
            to, z = self.chosen.get(one, 0), self.reached.get(other, 0)
            to &= ~self.chosen.get(other, 0)
            if z & self.reached.get(one, 0):
                continue
            for number, choice in enumerate(self.choices):
                if to >> number & 1 and choice.pull is None and z & choice.behind:
                    choice.pull, choice.z = call, z

    def _given(self, call: Raw, came: int) -> None:
        """A layer with parameters of its own, which have no part in the choice."""
        own = _any(self.bits, call.uses)
        through = _any(self.reached, [slot for slot in call.uses if slot not in self.bits])
        for number, choice in enumerate(self.choices):
            if came >> number & 1 and own and not own & choice.behind:
                choice.given.append((call, through))


def cut_by_choice(calls: Sequence[Raw], parameters: dict[int, str]) -> Cut | None:
    """A choice whose scores come from trained parameters, past which no gradient goes to them, although what chose is
    drawn to what was chosen; None where there is none. `parameters` are the trained ones, names by slot."""
    if not any(call.said in CHOICES or call.said in VALUES_AND_CHOICES for call in calls):
        return None
    study = _Study(parameters)
    for call in calls:
        study.take(call)
    for choice in study.choices:
        if choice.pull is not None and choice.given and not any(choice.z & through for _, through in choice.given):
            lost = tuple(name for slot, name in parameters.items() if choice.z & study.bits[slot])
            return Cut(choice.place, choice.pull.place, choice.given[0][0].place, lost)
    return None


def _any(held: dict[int, int], slots: Sequence[int]) -> int:
    found = 0
    for slot in slots:
        found |= held.get(slot, 0)
    return found
