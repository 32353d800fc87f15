"""Losses with derivatives of a network by its inputs: which terms hold them, and how large everything is.

Derivatives are calls of torch.autograd.grad that keep their graph and are taken by tensors that are no parameters;
those of torch.func make such calls too, on tensors that wrap the real ones, or carry tangents forward.
Followed once per run, on sampled steps, and shared by the watches on residuals of equations. A gradient penalty takes
such a derivative as well, once, and its norm; an equation uses the derivative itself.
"""

from __future__ import annotations

import functools
import math
import sys
import weakref
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch.autograd import forward_ad

from clew.observe.envs import patches_of
from clew.observe.guard import release
from clew.observe.patches import unframe
from clew.observe.places import is_users, shown
from clew.observe.watch import Backward, LossCall, OptimizerEvent, Watch, when_sampled
from clew.observe.watches._loss_graph import MOVES, Key, Made, Term, bare, inputs, key, square_value, terms
from clew.observe.watches._loss_values import plain, total
from clew.observe.watches._network_lines import lines_of
from clew.records.place import Place

if TYPE_CHECKING:
    from types import FrameType

    from clew.observe.recorder import Recorder

WALKED = 8192
NAMED_WITHIN = 4
KEPT = 200
MANY = 64
FEW = 10
HELPER = 5
"""Lines of a function that does little else than take a derivative."""
NORMS = frozenset("LinalgVectorNorm Norm Sqrt Hypot".split())
RAMPS = frozenset("Relu LeakyRelu PreluKernel Threshold Hardtanh Clamp ClampMin".split())
BENDS = frozenset("Tanh Silu Gelu Sin Cos Sigmoid Softplus Elu Mish Exp".split())


class Known(NamedTuple):
    """A loss function that was called."""

    value: float
    place: Place | None


class Part(NamedTuple):
    """One term of the loss. `weight` is what it is multiplied by; `value` is without it."""

    value: float
    weight: float
    residual: bool  # it holds derivatives by the inputs
    place: Place | None
    points: int = 0  # at which these were taken


class Coordinates(NamedTuple):
    """How large the inputs were by which derivatives are taken."""

    largest: float
    smallest: float  # of the largest values of each column


class Equations:
    """The shared record."""

    _of: ClassVar[weakref.WeakKeyDictionary[Any, Equations]] = weakref.WeakKeyDictionary()

    @classmethod
    def of(cls, recorder: Recorder) -> Equations:
        held = cls._of.get(recorder)
        if held is None:
            held = cls._of[recorder] = cls(recorder)
        return held

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = weakref.ref(recorder)
        self.told = -1
        self.broken = ""
        self.derivatives: dict[Key, int] = {}  # at how many points each was taken
        self.calls_made: dict[int, tuple[set[Key], Place | None]] = {}  # derivatives of one call, since the last step
        self.unused: set[int] = set()  # calls of which neither the loss nor another derivative has made use yet
        self.derived_from: set[int] = set()  # calls of which another derivative made use
        self.cut: dict[Place | None, int] = {}  # steps at which the derivatives taken at a line stayed unused
        self.steps = 0  # of the optimiser that were looked at
        self.ramps = self.bends = 0  # activations below what was derived, by whether they have a second derivative
        self.twice = False
        self.twice_place: Place | None = None
        self.normed = 0
        self.alone = True  # no two optimisers train different parameters
        self.updates = 0  # in which derivatives entered the loss
        self.columns: dict[int, float] = {}  # largest value of each coordinate seen
        self.calls = Made(64)
        self.parts: list[tuple[int, list[Part]]] = []
        self.place: Place | None = None
        self.lines: dict[int, Place] = {}  # of the terms, by their order
        self.formula: Place | None = None  # the line of what is squared in a residual
        self.attached = False
        self.trained: set[int] = set()  # parameters of the optimisers, by identity
        self._order: dict[int, int] = {}

    def follow(self, name: str, number: int, event: Any) -> None:
        if number == self.told or self.broken:
            return
        self.told = number
        try:
            getattr(self, f"_{name}")(event)
        except BaseException as error:  # noqa: BLE001  # every watch that shares this record says so in its answer
            release(error)
            self.broken = f"the equation could not be traced: {type(error).__name__}: {error}"

    def is_equation(self) -> bool:
        """Whether the derivatives look like those of an equation: taken again, or used as they are by a single
        optimiser. A penalty on gradients takes one and its norm; adversaries have two optimisers."""
        return self.twice or (self.updates > 0 and self.alone and self.normed < self.updates)

    def coordinates(self) -> Coordinates | None:
        found = [value for value in self.columns.values() if value > 0 and math.isfinite(value)]
        return Coordinates(max(found), min(found)) if found else None

    # --- events

    def _optimizer_made(self, event: OptimizerEvent) -> None:
        self._another(event.optimizer)

    def attach(self) -> None:
        """Before the script begins: what it imports by name, and may pickle by name, stays the same function."""
        patches = None if self.attached else patches_of(self.recorder())  # several watches share it
        if patches is not None:
            self.attached = True
            patches.replace(torch.autograd, "grad", functools.partial(_around, weakref.ref(self)))
            patches.replace(forward_ad, "unpack_dual", functools.partial(_around_dual, weakref.ref(self)))

    def _another(self, optimizer: torch.optim.Optimizer) -> None:
        """A network of its own after the first one was trained: its terms are not the course of the others."""
        held = {id(each) for group in optimizer.param_groups for each in group["params"]}
        if self.parts and self.trained.isdisjoint(held):
            self.parts.clear()
            self.lines.clear()
            self.trained.clear()
            self.updates = 0
        self.trained |= held

    def derived(self, given: list[torch.Tensor], by: list[torch.Tensor], result: list[torch.Tensor]) -> None:
        """A derivative was taken with its graph kept."""
        if any(isinstance(one, torch.nn.Parameter) for one in by) or len(self.derivatives) > KEPT:
            return
        unused = set(self.unused)
        again = [one for one in given if one.grad_fn is not None and self._holds(one.grad_fn)]
        self.derived_from |= unused - self.unused
        place = asked_from()
        if again and not self.twice:
            self.twice, self.twice_place = True, place
        elif not again and not self.ramps + self.bends:
            self.ramps, self.bends = activations(given)
        for number, one in enumerate(by):
            if plain(one) and one.grad_fn is None and one.dim() and one.numel() <= 1_000_000:
                with torch.no_grad():
                    columns = one.detach().abs().float().reshape(-1, one.shape[-1] if one.dim() > 1 else 1)
                    if columns.shape[1] <= 16:
                        for column, value in enumerate(columns.amax(0).tolist()):
                            mark = 100 * number + column if len(by) > 1 or columns.shape[1] > 1 else self._lone(one)
                            self.columns[mark] = max(self.columns.get(mark, 0.0), value)
        held = [one for one in result if one.grad_fn is not None]
        made = {key(one.grad_fn): len(one) if one.dim() else 1 for one in held}
        self.derivatives |= made
        if made:
            number = len(self.calls_made)
            self.calls_made[number] = {*made}, place
            self.unused.add(number)

    def _lone(self, tensor: torch.Tensor) -> int:
        """Coordinates that come as tensors of their own are told apart by their order of appearance in a step."""
        known = self._order.setdefault(id(tensor), len(self._order)) if len(self._order) < 8 else 0
        return 1000 + known

    def _holds(self, node: Any) -> bool:
        return bool(self._way(node)[0])

    def _way(self, root: Any) -> tuple[int, bool]:
        """At how many points the derivatives in the graph below were taken, and whether a norm of one lies above it."""
        waiting: list[tuple[Any, bool]] = [(root, False)]
        seen: set[tuple[Key, bool]] = set()
        oldest = min((number for _, number in self.derivatives), default=0)
        found, normed = 0, False
        while waiting and len(seen) < WALKED:
            node, under = waiting.pop()
            mark = key(node)
            if (mark, under) in seen or mark[1] < oldest:
                continue
            seen.add((mark, under))
            if mark in self.derivatives:
                found, normed = max(found, self.derivatives[mark]), normed or under
                self.unused -= {number for number in self.unused if mark in self.calls_made[number][0]}
                continue
            under = under or bare(node) in NORMS
            waiting += [(fed, under) for fed in inputs(node)]
        if waiting:
            self.unused.clear()
        return found, normed

    def _loss(self, event: LossCall) -> None:
        if event.sampled and event.grad and plain(event.result):
            self.calls.note(event.result, Known(total(event.result), event.place))

    def _before_backward(self, event: Backward) -> None:
        if not event.sampled or not self.derivatives or not plain(event.loss) or event.loss.numel() != 1:
            self.unused.clear()  # what was not looked through may hold them
            return
        held_terms = terms(event.loss, self.calls)
        self._name_lines(held_terms, event)
        found = [self._part(held, event, self.lines.get(at)) for at, held in enumerate(held_terms)]
        if len(held_terms) >= MANY:
            self.unused.clear()
        known = [part for part in found if part is not None]
        if not any(part.residual for part in known):
            return
        # A speed that is prescribed at the start is a condition too: it holds a derivative, at few points.
        most = max(part.points for part in known)
        known = [part._replace(residual=False) if part.points * FEW <= most else part for part in known]
        self.updates += 1
        self.place = event.place
        if len(self.parts) < KEPT:
            self.parts.append((event.step, known))

    def _name_lines(self, held: list[Term], event: Backward) -> None:
        """The lines of the terms written by hand, until they are known: they do not change."""
        recorder = self.recorder()
        unknown = [at for at, term in enumerate(held) if term.known is None and at not in self.lines]
        if recorder is not None and unknown and self.updates < NAMED_WITHIN:
            found = lines_of(recorder, [held[at].node for at in unknown], event.loss)
            self.lines |= {at: line for at, line in zip(unknown, found, strict=True) if line is not None}
        if recorder is not None and self.formula is None and self.updates < NAMED_WITHIN:
            squared = [_formula(term.node) for term in held if self._holds(term.node)]
            self.formula = next((line for line in lines_of(recorder, squared, event.loss) if line is not None), None)

    def _part(self, held: Term, event: Backward, line: Place | None) -> Part | None:
        points, normed = self._way(held.node)
        residual = points > 0
        self.normed += residual and normed
        value = held.known.value if held.known is not None else square_value(held.node)
        if value is None or held.factor is None or not math.isfinite(value):
            return Part(math.nan, math.nan, True, line or event.place, points) if residual else None
        place = held.known.place if held.known is not None else line or event.place
        return Part(abs(value), abs(held.factor), residual, place, points)

    def _after_step(self, event: OptimizerEvent) -> None:
        if event.sampled:
            self.steps += 1
            # A line that is used as well, on other rows, is no cut: rows that are only looked at go through it too.
            # Where the loss holds no derivative at all, one that only served another is as idle as that.
            idle = self.unused if self.updates else self.unused | self.derived_from
            used = {place for number, (_, place) in self.calls_made.items() if number not in idle}
            for place in {self.calls_made[number][1] for number in self.unused} - used:
                if place in self.cut or len(self.cut) < KEPT:
                    self.cut[place] = self.cut.get(place, 0) + 1
        self.calls_made.clear()
        self.unused.clear()
        self.derived_from.clear()
        self.derivatives.clear()
        self._order.clear()
        recorder = self.recorder()
        if recorder is None:
            return
        held = [{id(p) for group in o.param_groups for p in group["params"]} for _, o in recorder.live_optimizers()]
        self.alone = all(one & other for one in held for other in held)
        if self.is_equation():
            recorder.record("input derivatives", self.updates, step=event.step)


def _formula(node: Any) -> Any:
    """What a mean of squares is taken of."""
    for _ in range(8):
        fed = {key(one): one for one in inputs(node)}
        if len(fed) != 1 or bare(node) not in MOVES | {"Mean", "Sum", "Pow", "Mul"}:
            return node
        node = next(iter(fed.values()))
    return node


def asked_from() -> Place | None:
    """The user's line that asked for a derivative: where a helper takes it, the line that called the helper."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    lines = {line for _, _, line in frame.f_code.co_lines() if line is not None}
    if len(lines) <= HELPER and frame.f_back is not None and is_users(frame.f_back.f_code.co_filename):
        frame = frame.f_back
    symbol = frame.f_code.co_qualname
    return Place(shown(frame.f_code.co_filename), frame.f_lineno, symbol=None if symbol == "<module>" else symbol)


def activations(outputs: list[torch.Tensor]) -> tuple[int, int]:
    """How many ramps and how many smooth functions lie in the graph of a network's output."""
    waiting: list[Any] = [one.grad_fn for one in outputs if one.grad_fn is not None]
    seen: set[Key] = set()
    ramps = bends = 0
    while waiting and len(seen) < WALKED:
        node = waiting.pop()
        mark = key(node)
        if mark in seen:
            continue
        seen.add(mark)
        ramps += bare(node) in RAMPS
        bends += bare(node) in BENDS
        waiting += inputs(node)
    return ramps, bends


class Solved(Watch):
    """A watch that asks about equations."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.equations = Equations.of(recorder)

    def installed(self) -> None:
        self.equations.attach()

    def optimizer_made(self, event: OptimizerEvent) -> None:
        self.equations.follow("optimizer_made", self.recorder.told, event)

    @when_sampled
    def loss(self, event: LossCall) -> None:
        self.equations.follow("loss", self.recorder.told, event)

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        self.equations.follow("before_backward", self.recorder.told, event)

    @when_sampled
    def after_step(self, event: OptimizerEvent) -> None:
        self.equations.follow("after_step", self.recorder.told, event)

    def unseen(self) -> str:
        if self.equations.broken:
            return self.equations.broken
        if not self.equations.updates:
            return "no loss with derivatives of a network with respect to its inputs was seen"
        return (
            ""
            if self.equations.is_equation()
            else "the derivatives with respect to the inputs look like a gradient penalty"
        )


def _around(held: weakref.ref[Equations], original: Any) -> Any:
    compiling = torch.compiler.is_compiling

    def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = original(outputs, inputs, *args, **kwargs)
        except BaseException as error:
            unframe(error)
            raise
        if not compiling() and (kwargs.get("create_graph") or (len(args) > 2 and args[2])):
            equations = held()
            if equations is not None:
                _tell(equations, outputs, inputs, result)
        return result

    return grad


def _around_dual(held: weakref.ref[Equations], original: Any) -> Any:
    """Tangents that are carried forward: what they are taken by is not at hand where they come out."""

    def unpack_dual(*args: Any, **kwargs: Any) -> Any:
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            unframe(error)
            raise
        equations = held()
        if equations is not None and result.tangent is not None and not torch.compiler.is_compiling():
            _tell(equations, result.primal, (), (result.tangent,))
        return result

    return unpack_dual


def _unwrapped(given: Any) -> list[torch.Tensor]:
    """The tensors below the wrappers of torch.func, whose graph is the ordinary one."""
    wraps = torch._C._functorch
    found = []
    for one in [given] if isinstance(given, torch.Tensor) else given:
        while isinstance(one, torch.Tensor) and wraps.is_functorch_wrapped_tensor(one):
            one = wraps.get_unwrapped(one)
        if isinstance(one, torch.Tensor):
            found.append(one)
    return found


def _tell(equations: Equations, outputs: Any, by: Any, result: Any) -> None:
    recorder = equations.recorder()
    if recorder is None or recorder.busy or not recorder.sampled or equations.broken:
        return
    try:
        with recorder.quietly():
            equations.derived(*(_unwrapped(one) for one in (outputs, by, result)))
    except BaseException as error:  # noqa: BLE001  # as in follow
        release(error)
        equations.broken = f"the equation could not be traced: {type(error).__name__}: {error}"
