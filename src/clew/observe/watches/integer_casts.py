"""Does a cast to integers change values that the type cannot hold?

Looks at `astype` of pandas tables and columns: what lies outside the range of the integer type comes out as another
number, without a warning.

Why it matters: an area of 300 becomes 44 in a byte. The column still looks like numbers, and the model learns from it.
Cannot tell: casts of NumPy arrays and tensors; bytes that are meant to wrap, as those of hashes.
Silent when: every value fits.
"""

from __future__ import annotations

from clew.observe.ledger import LEDGER
from clew.observe.watch import Answer, Saw, Watch
from clew.records.clue import Unclear


class IntegerCasts(Watch):
    test = "integer_casts"

    def read(self) -> Answer:
        if LEDGER.casts:
            worst = max(LEDGER.casts, key=lambda cast: cast.changed)
            says = f"{worst.what}: {worst.changed} of {worst.of} values lie outside of that type and were changed"
            return Saw("wraps", changed=worst.changed, of=worst.of, what=worst.what).at(worst.place).saying(says)
        if not LEDGER.frames:
            return Unclear("no table was seen to be read")
        return Saw("fits", tables=len(LEDGER.frames))
