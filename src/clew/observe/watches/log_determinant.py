"""Does the loss of a flow count the volume change of its layers with the right sign?

A module that maps rows to rows of the same width and gives one number for each beside them is held against the
Jacobian of its own output, for narrow rows. Where that number is the logarithm of its determinant, or the negative of
that, the gradient that reaches it in the script's own backward says what the loss rewards: stretching, as a likelihood
of data and a divergence of samples both do, or shrinking.

Why it matters: with the sign turned round the likelihood rises without end while everything is pressed into a point.
Cannot tell: determinants of wide rows; layers that are no modules; a loss that means to shrink.
Silent when: no such module is called on something that depends on parameters, or the number is no log-determinant.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.places import shown, users_code
from clew.observe.watch import Answer, Backward, Forward, ModuleCall, OptimizerEvent, Saw, Unclear, Watch, when_sampled
from clew.observe.watches._loss_graph import inputs
from clew.records.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from clew.observe.recorder import Recorder

WIDEST = 16
ROWS = 4096
NODES = 512
CHECKS = 64
PER_STEP = 4
CLOSE = 1e-3
CLEAR = 1e-2
UPDATES = 3


class LogDeterminant(Watch):
    test = "log_determinant"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.checks = 0
        self.checked: tuple[int, int] = (-1, 0)  # a step and the checks made there
        self.pulls: list[float] = []  # how the gradient of the true number points, since the last step
        self.stretching = self.shrinking = 0  # updates
        self.place: Place | None = None
        self.backward: Place | None = None

    def forward(self, event: Forward) -> None:
        if event.grad and event.training:
            self._look(event.module, event.inputs, event.output, event.step)

    def module(self, event: ModuleCall) -> None:
        if not event.evaluation:
            self._look(event.module, event.inputs, event.output, event.step)

    def _look(self, module: torch.nn.Module, given: Any, output: Any, step: int) -> None:
        made = self.checked[1] if self.checked[0] == step else 0
        if self.checks >= CHECKS or made >= PER_STEP or not isinstance(output, tuple | list) or len(output) != 2:
            return
        found = layer(given, *output)
        if found is None:
            return
        x, y, number, before = found
        self.checks += 1
        self.checked = step, made + 1
        with self.recorder.quietly():
            true = log_determinants(x, y)
            sign = 0 if true is None else sign_of(true, number, before)
        if sign:
            self.place = self.place or _given_back(module)
            number.register_hook(self._noting(sign))  # type: ignore[no-untyped-call]

    def _noting(self, sign: int) -> Callable[[torch.Tensor], None]:
        """A hook that notes how the gradient points, and changes nothing."""
        held = weakref.ref(self)

        def note(gradient: torch.Tensor) -> None:
            watch = held()
            if watch is not None and watch.recorder.sampled and len(watch.pulls) < CHECKS:
                with watch.recorder.quietly(), torch.no_grad():
                    one_way = bool((gradient > 0).all()) or bool((gradient < 0).all())
                    watch.pulls.append(sign * float(gradient.double().sum()) if one_way else 0.0)

        return note

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        self.backward = event.place

    @when_sampled
    def before_step(self, event: OptimizerEvent) -> None:
        pulls, self.pulls = self.pulls, []
        climbs = any(group.get("maximize") for group in event.optimizer.param_groups)
        pulls = [-pull if climbs else pull for pull in pulls]
        self.stretching += bool(pulls) and max(pulls) < 0
        self.shrinking += bool(pulls) and min(pulls) > 0

    def read(self) -> Answer:
        figures = {"updates": self.stretching + self.shrinking}
        if self.shrinking >= UPDATES and not self.stretching:
            saw = Saw("rewards_shrinking", **figures).at(self.place, self.backward)
            return saw.saying("a layer's log-determinant enters the loss with the wrong sign: it rewards contraction")
        if self.stretching >= UPDATES and not self.shrinking:
            return Saw("rewards_stretching", **figures).at(self.place)
        return Unclear("no module's log-determinant enters a loss")


Layer = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]


def layer(given: Any, y: Any, number: Any) -> Layer | None:
    """What went in, what came out, the number beside it, and the one that was handed in, where that was."""
    if not isinstance(y, torch.Tensor) or not isinstance(number, torch.Tensor) or not number.requires_grad:
        return None
    if y.dim() != 2 or not 0 < y.shape[1] <= WIDEST or not 1 < len(y) <= ROWS or y.grad_fn is None:
        return None
    if number.numel() != len(y) or not number.is_floating_point() or not y.is_floating_point():
        return None
    tensors = [held for held in given if isinstance(held, torch.Tensor)]
    x = next((held for held in tensors if held.shape == y.shape and held.requires_grad), None)
    if x is None or x is y or not plain(y.grad_fn, x.grad_fn):
        return None
    return x, y, number, next((held for held in tensors if held.shape == number.shape and held is not x), None)


def plain(root: Any, end: Any) -> bool:
    """Whether only functions of torch lie above the end: one of the user's may free what it has saved when asked."""
    waiting, seen = [root], {root, end}
    while waiting and len(seen) < NODES:
        node = waiting.pop()
        if isinstance(node, torch.autograd.function.BackwardCFunction) or "Checkpoint" in type(node).__name__:
            return False
        for fed in inputs(node):
            if fed not in seen:
                seen.add(fed)
                waiting.append(fed)
    return not waiting


def log_determinants(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor | None:
    """By row, of the change of y with x; rows must not mix."""
    columns = []
    for column in range(y.shape[1]):
        found: Any = torch.autograd.grad(y[:, column].sum(), x, retain_graph=True, allow_unused=True)[0]
        if found is None:
            return None
        columns.append(found.detach().double())
    with torch.no_grad():
        true = torch.linalg.slogdet(torch.stack(columns, 1).cpu()).logabsdet
    return true if bool(torch.isfinite(true).all()) else None


def sign_of(true: torch.Tensor, number: torch.Tensor, before: torch.Tensor | None) -> int:
    """1 where the number is the log-determinant, -1 where it is its negative, 0 where it is something else."""
    with torch.no_grad():
        told = [number, *([] if before is None else [number - before])]
        if float(true.abs().max()) < CLEAR:
            return 0
        for each in told:
            held = each.detach().double().cpu().reshape(-1)
            for sign in (1, -1):
                if bool(((held - sign * true).abs() <= CLOSE * (1.0 + true.abs())).all()):
                    return sign
    return 0


def _given_back(module: torch.nn.Module) -> Place | None:
    """Where the user's forward gives both back."""
    import linecache

    code = users_code(type(module).forward)
    if code is None:
        return None
    lines = sorted({line for _, _, line in code.co_lines() if line})
    last = [line for line in lines if linecache.getline(code.co_filename, line).lstrip().startswith("return")]
    return Place(shown(code.co_filename), (last or lines)[-1], symbol=code.co_qualname)
