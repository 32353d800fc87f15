"""Which line of the user's made which operation of a graph.

For the length of a few steps Python itself says when a line of the user's code begins, and autograd what number its
next operation will get: all operations with numbers from there up to the next line are made by that line. Operations
keep their place relative to the first one of their graph, so what was learned on one step serves for every later graph
of the same size. Nothing of torch is replaced for this, and a debugger or coverage tool that traces is left alone.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from clew.observe.guard import HERE
from clew.observe.places import is_users, shown
from clew.observe.watch import Backward, Batch, OptimizerEvent, Raised, Watch, when_sampled
from clew.observe.watches._network_graph import whole_graph
from clew.observe.watches._network_spans import _extent
from clew.records.place import Place

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from clew.observe.recorder import Recorder

MOST_EVENTS = 40_000
"""Calls and lines followed in one stretch: some tens of milliseconds."""
MOST = 20_000
WALKS = 8
STRETCHES = 6
"""How many stretches of the script are followed line by line, each from a backward pass to the next."""
SIZES = 8
Size = tuple[int, int]


class Mark(NamedTuple):
    number: int  # of the next operation when the line began
    code: CodeType
    line: int


class Lines:
    """`start` and `stop` enclose a stretch; `keep` remembers it for graphs of that size; `at` answers."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.marks: list[Mark] = []
        self.end = -1  # the number of the first operation after the stretch
        self.known: dict[Size, list[Mark]] = {}
        self.stretches = 0
        self.following = False
        self._events = 0
        self._number: Any = getattr(torch._C._autograd, "_get_sequence_nr", None)

    def start(self) -> None:
        if self.following or self._number is None or sys.gettrace() is not None or _compiles():
            return
        self.following = True
        self.stretches += 1
        self._events = 0
        self.marks = []
        frame: FrameType | None = sys._getframe(1)
        innermost = True
        while frame is not None:
            if is_users(frame.f_code.co_filename) and frame.f_trace is None:
                if innermost:
                    self.marks.append(Mark(self._number(), frame.f_code, frame.f_lineno))
                    innermost = False
                frame.f_trace = self._line
            frame = frame.f_back
        sys.settrace(self._call)

    def stop(self) -> None:
        if not self.following:
            return
        self.following = False
        self.end = self._number()
        if sys.gettrace() == self._call:
            sys.settrace(None)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_trace == self._line:
                frame.f_trace = None
            frame = frame.f_back

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        del event, argument
        file = frame.f_code.co_filename
        if self._recorder.busy or file.startswith(HERE):
            return None  # or more instruments would leave less of the script
        self._events += 1
        if self._events > MOST_EVENTS:
            self.stop()
            self.marks = []
            return None
        return self._line if is_users(file) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        del argument
        self._events += 1
        if not self.following:
            return None
        if event == "line":
            self._mark(frame)
        elif event == "return":  # the rest of the caller's line goes on, without a word
            above = frame.f_back
            while above is not None and not is_users(above.f_code.co_filename):
                above = above.f_back
            if above is not None:
                self._mark(above)
        return self._line

    def _mark(self, frame: FrameType) -> None:
        mark = Mark(self._number(), frame.f_code, frame.f_lineno or 0)
        if self.marks and self.marks[-1].number == mark.number:
            self.marks[-1] = mark
        else:
            self.marks.append(mark)

    def keep(self, nodes: list[Any]) -> bool:
        """Remember the stretch for graphs of this size; whether that size was new."""
        base, size = _extent(nodes)
        new = size not in self.known
        if new and len(self.known) < SIZES and self.marks and self.marks[0].number <= base <= self.end:
            self.known[size] = [mark._replace(number=mark.number - base) for mark in self.marks]
        return new

    def at(self, number: int, nodes: list[Any]) -> Place | None:
        """The line that made the operation with this number, if it was followed or a graph of that size was."""
        here = self.marks and self.marks[0].number <= number
        if here and (self.following or number < self.end):
            return _place(self.marks, number)
        base, size = _extent(nodes)
        return _place(self.known[size], number - base) if size in self.known else None


class Followed(Watch):
    """Learns the lines of the first graphs for whichever watch asks, from a backward pass to the next one."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.graph: list[Any] | None = None  # of the backward that is under way, on a sampled step
        self.owed = False  # a watch still waits for a line
        self._lines = recorder.lines
        self._new_size = True
        self._walks = (-1, 0)

    def optimizer_made(self, event: OptimizerEvent) -> None:
        if not event.step:
            self._follow()

    def batch(self, event: Batch) -> None:
        if not event.step:
            self._follow()

    def before_backward(self, event: Backward) -> None:
        self._lines.stop()
        self.graph = None
        if event.sampled and event.loss.grad_fn is not None and self._may_walk(event.step):
            self.graph = whole_graph(event.loss.grad_fn, MOST)
            if self.graph is not None:
                self._new_size = self._lines.keep(self.graph)

    def after_backward(self, event: Backward) -> None:
        self.graph = None
        if event.sampled or self.owed:
            self._follow()

    @when_sampled
    def after_step(self, event: OptimizerEvent) -> None:
        del event
        self._follow()

    def raised(self, event: Raised) -> None:
        del event
        self.graph = None

    def _follow(self) -> None:
        wanted = self._new_size or self._lines.stretches < 2
        if (wanted or self.owed) and self._lines.stretches < STRETCHES + self.owed:
            self._lines.start()

    def _may_walk(self, step: int) -> bool:
        """A few graphs per step: there may be many backward passes before a step, and no step at all."""
        self._walks = (step, self._walks[1] + 1 if self._walks[0] == step else 1)
        return self._walks[1] <= WALKS


def lines_of(recorder: Recorder, wanted: list[Any], loss: Any) -> list[Place | None]:
    """The lines that made operations of a loss, where a graph like it was followed."""
    nodes = whole_graph(loss.grad_fn) if loss.grad_fn is not None else None
    if nodes is None:
        return [None] * len(wanted)
    return [recorder.lines.at(int(node._sequence_nr()), nodes) for node in wanted]


def line_of(recorder: Recorder, node: Any, loss: Any) -> Place | None:
    return lines_of(recorder, [node], loss)[0]


def _place(marks: list[Mark], number: int) -> Place | None:
    index = bisect_right([mark.number for mark in marks], number) - 1
    if index < 0:
        return None
    _, code, line = marks[index]
    symbol = code.co_qualname
    return Place(shown(code.co_filename), line, symbol=None if symbol == "<module>" else symbol)


def _compiles() -> bool:
    """Whether anything was compiled in this process: its frames are not ordinary ones."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    backends = getattr(dynamo, "cached_backends", None) or {}
    return any(backend is not None for backend in backends.values())
