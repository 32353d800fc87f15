"""Which larger tensor a batch was picked from, where a script picks its batches by hand.

Known by weak reference from the calls that are noted on the first steps; nothing is kept alive. What only moves rows
or casts them passes its origin on.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

PICKS = frozenset("__getitem__ index_select narrow split chunk unbind".split())
MOVES = frozenset("to float double cuda cpu contiguous clone detach view reshape flatten unsqueeze squeeze".split())
FOLLOWED = PICKS | MOVES
MOST = 4096


class Picked:
    def __init__(self) -> None:
        self._held: dict[int, tuple[weakref.ref[Any], weakref.ref[Any]]] = {}

    def note(self, said: str, used: Sequence[Any], results: Sequence[Any]) -> None:
        """A call outside of any model, by its name."""
        if not used or said not in FOLLOWED:
            return
        source = self.source_of(used[0])
        if source is None and said in MOVES:
            return
        source = used[0] if source is None else source
        if len(self._held) > MOST:
            self._held = {key: held for key, held in self._held.items() if held[0]() is not None}
        if len(self._held) <= MOST:
            for result in results:
                if result is not source:
                    self._held[id(result)] = (weakref.ref(result), weakref.ref(source))

    def source_of(self, tensor: Any) -> Any:
        """The tensor that this one holds some rows of; None where that was not seen."""
        held = self._held.get(id(tensor))
        if held is not None and held[0]() is tensor:
            source = held[1]()
            if source is not None:
                return source
        return tensor._base if tensor._is_view() else None
