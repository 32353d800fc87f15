"""Which call of the user's an operation of the graph belongs to.

Operations are numbered as they are executed. A call that took in something with number a and gave out something with
number b made the operations after a up to b. On a step that was not looked at, the picture of the last one that was
serves as well, as long as the graph has the same size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from clew.records.place import Place

MOST = 4000


class Span(NamedTuple):
    taken: int  # the number of the newest input, -1 when none has one
    made: int
    name: str
    place: Place | None


class Layout:
    def __init__(self) -> None:
        self.step = -1
        self.spans: list[Span] = []
        self._kept: list[Span] = []
        self._size = (0, 0)

    def note(self, step: int, span: Span) -> None:
        if step != self.step:
            self.step = step
            self.spans = []
        if span.made >= 0 and len(self.spans) < MOST:
            self.spans.append(span)

    def keep(self, nodes: list[Any]) -> None:
        """Remember the calls of this step relative to the first operation of its graph."""
        base, size = _extent(nodes)
        if len(self.spans) >= len(self._kept):
            self._size = size
            self._kept = [_moved(span, -base) for span in self.spans]

    def match(self, nodes: list[Any]) -> None:
        """Fall back on the remembered calls where this step's own were not seen."""
        base, size = _extent(nodes)
        if len(self.spans) < len(self._kept) and size == self._size:
            self.spans = [_moved(span, base) for span in self._kept]

    def around(self, at: int, end: Place | None) -> tuple[Place | None, ...]:
        """The call that made this operation, or the stretch of lines between the calls before and after it."""
        inside = [span for span in self.spans if span.taken < at <= span.made]
        if inside:
            inner = min(inside, key=lambda span: (span.made - span.taken, span.made))
            holds_others = any(inner.taken < s.made < inner.made and s is not inner for s in self.spans)
            if not holds_others and inner.place is not None:
                return (inner.place._replace(module=inner.name),)
        before = max((span for span in self.spans if span.made < at), key=lambda span: span.made, default=None)
        after = min((span for span in self.spans if span.taken >= at), key=lambda span: span.made, default=None)
        start = before.place if before else None
        stop = after.place if after else end
        if start is not None and stop is not None and start.file == stop.file and start.symbol == stop.symbol:
            low, high = sorted((start.line or 0, stop.line or 0))
            return (start._replace(line=low, end_line=high if high > low else None),)
        return (start, stop)


def _extent(nodes: list[Any]) -> tuple[int, tuple[int, int]]:
    numbers = [int(node._sequence_nr()) for node in nodes if not hasattr(node, "variable")]
    base = min(numbers, default=0)
    return base, (len(numbers), max(numbers, default=0) - base)


def _moved(span: Span, by: int) -> Span:
    return span._replace(taken=span.taken + by if span.taken >= 0 else -1, made=span.made + by)
