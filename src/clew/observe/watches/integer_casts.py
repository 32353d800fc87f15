"""Does a cast to integers change values that the type cannot hold?

Looks at `astype` of pandas tables and columns: what lies outside the range of the integer type comes out as another
number, without a warning. Looks also at what the user's functions return between a step and the next batch: bytes that
were added up beyond 255 begin again at 0, so that the brightest pixels come out black. And looks at squares, products
and differences in eight or sixteen bits in the functions that prepare the data: samples of sound that stay whole
numbers have no room for their squares.

Why it matters: an area of 300 becomes 44 in a byte. The column still looks like numbers, and the model learns from it.
Cannot tell: casts and sums whose two sides no function knows by name; examples that worker processes make; bytes that
are meant to wrap and do not say so; arithmetic on what a function computes in between and gives no name.
Silent when: every value fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.observe import files
from clew.observe.ledger import LEDGER
from clew.observe.watch import Answer, Batch, OptimizerEvent, Saw, Watch, when_sampled
from clew.observe.watches._data_bytes import Bytes
from clew.observe.watches._data_narrow import Narrow
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder


class IntegerCasts(Watch):
    test = "integer_casts"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.bytes = Bytes()
        self.narrow = Narrow()
        self._here = False  # whether examples are made in this process
        self._stepped = False

    def installed(self) -> None:
        files.tell(self._read)

    def _read(self) -> None:
        """A data file is opened; what is made of it follows."""
        if not self._stepped:
            self.narrow.start()

    def forked(self) -> None:
        self.bytes.stop()
        self.narrow.stop()

    def batch(self, event: Batch) -> None:
        self.bytes.stop()
        self._here = type(event.source).__name__ == "_SingleProcessDataLoaderIter"

    @when_sampled
    def after_step(self, event: OptimizerEvent) -> None:
        del event
        if not self._stepped:
            self._stepped = True
            self.narrow.stop()
            self.narrow.script()
        if self._here:
            self.bytes.start()

    def read(self) -> Answer:
        self.bytes.stop()
        self.narrow.stop()
        if LEDGER.casts:
            worst = max(LEDGER.casts, key=lambda cast: cast.changed)
            says = f"{worst.what}: {worst.changed} of {worst.of} values lie outside that type and were changed"
            return Saw("wraps", changed=worst.changed, of=worst.of, what=worst.what).at(worst.place).saying(says)
        if self.bytes.found is not None:
            held = self.bytes.found
            how = f"{held.by:+d} in eight bits" if held.by else "cast to eight bits"
            says = f"{held.name} {how}: {held.changed} of {held.of} values overflowed and wrapped around"
            return Saw("wraps", changed=held.changed, of=held.of, what=held.name).at(held.place).saying(says)
        if self.narrow.found is not None:
            held = self.narrow.found
            says = f"{held.name}: {held.changed} of {held.of} values overflowed the type and wrapped around"
            return Saw("wraps", changed=held.changed, of=held.of, what=held.name).at(held.place).saying(says)
        broken = self.bytes.broken or self.narrow.broken
        if broken:
            return Unclear(f"arrays could not be compared: {broken}")
        if not LEDGER.frames:
            return Unclear(LEDGER.trouble or "no table was read")
        return Saw("fits", tables=len(LEDGER.frames))
