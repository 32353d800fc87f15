"""Where things come from: the user's line that built a module, a parameter, a loader or a schedule, and the line that
last gave a parameter its first values on purpose.

Nothing is kept alive for it. What is built anew in every step is forgotten with what it belonged to.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from clew.observe.places import is_users, local, place_of

if TYPE_CHECKING:
    from types import FrameType

    from clew.records.place import Place

MADE, STARTED, USED, ASKED = "made here", "first values set here", "used here", "asked for here"
CROWDED = 4096
MOST_ADDRESSES = 20_000
MOST_KINDS, LINES_EACH = 64, 2


class Held:
    """Places by thing, without keeping the thing."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[weakref.ref[Any], Place]] = {}
        self._crowded = CROWDED

    def note(self, thing: Any, place: Place) -> None:
        if len(self._held) >= self._crowded:
            self._held = {mark: held for mark, held in self._held.items() if held[0]() is not None}
            self._crowded = max(CROWDED, 2 * len(self._held))
        self._held[id(thing)] = (weakref.ref(thing), place)

    def get(self, thing: Any) -> Place | None:
        held = self._held.get(id(thing))
        return held[1] if held is not None and held[0]() is thing else None

    def forget(self, thing: Any) -> None:
        self._held.pop(id(thing), None)


class Origins:
    """`made` of modules, parameters, loaders, schedules; `started` of parameters."""

    def __init__(self) -> None:
        self._made = Held()
        self._started = Held()
        self._asked = Held()
        self._kinds: dict[type, dict[Place, None]] = {}  # lines that made modules of a kind
        self.loaders: dict[int, Place] = {}  # by the number that they get when they are first used
        self._addresses: dict[int, Place] = {}  # of tensors that are only another view of a parameter, as `.data` is

    def note_made(self, thing: Any, frame: FrameType | None) -> None:
        found = maker(thing, frame)
        if found is None:
            return
        place = place_of(found)._replace(role=MADE)
        self._made.note(thing, place)
        if hasattr(type(thing), "forward"):
            kinds = self._kinds.setdefault(type(thing), {}) if len(self._kinds) < MOST_KINDS else {}
            if len(kinds) < LINES_EACH:
                kinds[place] = None
        above = _helped(found)
        if above is not None:
            self._asked.note(thing, place_of(above)._replace(role=ASKED))

    def note_started(self, tensor: Any, frame: FrameType | None, parameter: bool) -> None:
        """By whom decides: torch's own constructors begin a parameter anew, a line of the user's does it on purpose."""
        user = frame is not None and is_users(frame.f_code.co_filename)
        place = place_of(frame)._replace(role=STARTED) if user and frame is not None else None
        if parameter and place is not None:
            self._started.note(tensor, place)
        elif parameter:
            self._started.forget(tensor)
        if parameter:
            return
        address = int(tensor.untyped_storage().data_ptr())
        if place is None:
            self._addresses.pop(address, None)
        elif len(self._addresses) < MOST_ADDRESSES:
            self._addresses[address] = place

    def made(self, thing: Any) -> Place | None:
        return self._made.get(thing)

    def copied(self, thing: Any) -> tuple[Place, ...]:
        """The lines that made modules of the kind of one that nobody made: it may be a copy of one of them."""
        return () if self.made(thing) is not None else tuple(self._kinds.get(type(thing), ()))

    def asked(self, thing: Any) -> Place | None:
        """The line of a constructor that had a helper make this; None where there was no helper."""
        return self._asked.get(thing)

    def started(self, parameter: Any) -> Place | None:
        """The line of the user's that last filled this parameter, None where its layer did."""
        held = self._started.get(parameter)
        if held is None and self._addresses:
            held = self._addresses.get(int(parameter.untyped_storage().data_ptr()))
        return held

    def of_layer(self, module: Any) -> tuple[Place, ...]:
        """Where the values of a layer were given, if that was done on purpose, then where it was made."""
        begun = [self.started(parameter) for parameter in module._parameters.values() if parameter is not None]
        made = (self.asked(module), self.made(module))
        return tuple(dict.fromkeys(place for place in (*begun, *made) if place is not None))


def maker(thing: Any, frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's code that is not part of the thing's own constructors."""
    while frame is not None:
        code = frame.f_code
        if is_users(code.co_filename) and not (code.co_name == "__init__" and _belongs(frame, thing)):
            return frame
        frame = frame.f_back
    return None


def _helped(frame: FrameType) -> FrameType | None:
    """The constructor that called a small function to make a layer: its line says which layer, and with what."""
    above = frame.f_back
    if frame.f_code.co_name in ("__init__", "<module>") or above is None or above.f_code.co_name != "__init__":
        return None
    return above if is_users(above.f_code.co_filename) else None


def _belongs(frame: FrameType, thing: Any) -> bool:
    names = frame.f_code.co_varnames
    return bool(names) and local(frame, names[0]) is thing
