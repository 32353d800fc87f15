"""Which operation made the first value that is not finite: forward by watching every operation, backward by the graph.

Forward, operations are watched below autograd, so that functions written in Python and fused ones are seen alike. What
an operation writes is known by the memory it lies in: views and in-place writes share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from clew.exams.batches import Batch, is_values, tensors
from clew.exams.checks._network_graph import bare, graph, joined, line_now, noting_lines, place_of, saved
from clew.exams.lab import Lab, Seen
from clew.records.place import Place

IN_LOG = frozenset("log log2 log10 log1p xlogy special_xlog1py logit sqrt log_sigmoid atanh acosh asin acos".split())
IN_DIVISION = frozenset(
    "div reciprocal rsqrt std var std_mean var_mean mean nll_loss nll_loss2d native_layer_norm native_group_norm "
    "native_batch_norm cudnn_batch_norm layer_norm group_norm batch_norm remainder fmod".split()
)
ON_PURPOSE = frozenset(
    "full full_like new_full fill scalar_tensor masked_fill where lift_fresh lift_fresh_copy triu tril".split()
)
UNWRITTEN = frozenset("empty empty_like new_empty empty_strided new_empty_strided empty_permuted".split())


class Found(NamedTuple):
    """`outcome` as the test names it, the operation, what it was fed with, and where it stands."""

    outcome: str
    operation: str
    fed: str
    place: Place | None


class Bad(NamedTuple):
    """An operation whose result is not finite. `values` are kept so that their memory is not used again."""

    operation: str
    outcome: str
    fed: str
    line: Place | None
    module: str
    values: list[torch.Tensor]
    before: list[int]  # memories of operands that were bad themselves


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every operation with a bad result. An infinity that is put in on purpose is none until it becomes NaN."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: dict[int, Bad] = {}
        self.inside: list[str] = []
        self.meant: dict[int, torch.Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.overloadpacket.__name__).rstrip("_").removeprefix("_").removesuffix("_forward")
        operands = [t for t in tensors([args, kwargs or {}]) if is_values(t)]
        # Looked at before the call: an in-place operation writes over what it was fed with.
        fed = [memory(t) for t in operands if not _all_finite(t)]
        words = described(operands)
        outcome = kind(name, args)
        result = func(*args, **(kwargs or {}))
        if name not in UNWRITTEN:
            wrong = [t for t in tensors(result) if is_values(t) and not _all_finite(t)]
            if wrong:
                self._note(name, outcome, words, wrong, fed)
        return result

    def _note(self, name: str, outcome: str, words: str, wrong: list[torch.Tensor], fed: list[int]) -> None:
        only_infinite = not any(bool(torch.isnan(t).any()) for t in wrong)
        meant = [at for at in fed if at in self.meant and at not in self.made]
        if only_infinite and len(meant) == len(fed) and (meant or name in ON_PURPOSE):
            self.meant |= {memory(t): t for t in wrong}
            return
        before = [at for at in fed if at not in meant]
        if not before and meant:
            outcome = "in_division" if "softmax" in name or "attention" in name else ""
        bad = Bad(name, outcome, words, line_now(), next(reversed(self.inside), ""), wrong, before)
        for t in wrong:
            # Reading what is bad already makes nothing new of it.
            if not (memory(t) in before and memory(t) in self.made):
                self.made[memory(t)] = bad


def memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _all_finite(tensor: torch.Tensor) -> bool:
    return tensor.is_meta or bool(torch.isfinite(tensor).all())


def described(operands: list[torch.Tensor]) -> str:
    """The range of each operand, as people read it."""
    said = []
    for held in operands[:3]:
        known = held.detach()[torch.isfinite(held.detach())].float()
        span = f"{float(known.min()):.3g} to {float(known.max()):.3g}" if known.numel() else "nothing finite"
        zeros = int((known == 0).sum())
        bad = held.numel() - known.numel()
        said.append(span + (f", {zeros} zeros" if zeros else "") + (f", {bad} not finite" if bad else ""))
    return " and ".join(said) or "constants"


def kind(name: str, args: Any) -> str:
    if name == "pow":
        return _kind_of_power(args)
    if name == "div":
        below = args[1] if len(args) > 1 else None
        zero = bool((below == 0).any()) if isinstance(below, torch.Tensor) else below == 0
        return "in_division" if zero else "in_overflow"
    if name in IN_LOG:
        return "in_log"
    if name in ("mean", "var", "std", "var_mean", "std_mean"):
        # Over nothing, or a spread of one value; otherwise the sum was too large.
        return "in_division" if args[0].numel() == 0 or name != "mean" else "in_overflow"
    if name in IN_DIVISION:
        return "in_division"
    return "in_overflow"


def _kind_of_power(args: Any) -> str:
    base, exponent = args[0], args[1]
    if not isinstance(base, torch.Tensor) or isinstance(exponent, torch.Tensor):
        return "in_overflow"
    if exponent < 0 and bool((base == 0).any()):
        return "in_division"
    return "in_log" if exponent != int(exponent) and bool((base <= 0).any()) else "in_overflow"


def forward_origin(lab: Lab, model: torch.nn.Module, batch: Batch, step: int) -> Found | str:
    """What made the loss of this step not finite; a sentence when that cannot be said."""
    watch = Watch()
    with lab.seeded(step):
        with following(model, watch.inside), watch:
            loss = lab.loss(model, batch)
        bad = watch.made.get(memory(loss))
        for _ in range(100_000):
            if bad is None or not bad.before:
                break
            known = [watch.made[at] for at in bad.before if at in watch.made and watch.made[at] is not bad]
            if not known:
                name = _held_by(model, bad.before)
                return f"{name or 'a value from outside the model'} was not finite before {bad.operation} used it"
            bad = known[0]
    if bad is None:
        return "the loss was not finite, and the operation that caused it was not seen"
    if not bad.outcome:
        return f"a deliberate infinity became NaN in {bad.operation}"
    known_place = lab.place(bad.module) if bad.module else None
    if bad.line is None and known_place is None:
        with lab.seeded(step):
            seen = _first_bad(lab, model, batch)
        known_place = (seen.place or lab.place(seen.name)) if seen is not None else lab.place()
    return Found(bad.outcome, bad.operation, bad.fed, joined(known_place, bad.line))


@contextmanager
def following(model: torch.nn.Module, inside: list[str]) -> Iterator[None]:
    """Keeps the names of the parts that are being executed, innermost last."""

    def enter(name: str) -> Any:
        return lambda *_: inside.append(name)

    def leave(*_: Any) -> None:
        inside.pop()

    handles = []
    for name, part in model.named_modules():
        if name:
            handles += [part.register_forward_pre_hook(enter(name)), part.register_forward_hook(leave)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _held_by(model: torch.nn.Module, places: list[int]) -> str:
    held = {memory(value): name for name, value in [*model.named_parameters(), *model.named_buffers()]}
    return next((held[at] for at in places if at in held), "")


def _first_bad(lab: Lab, model: torch.nn.Module, batch: Batch) -> Seen | None:
    """The first value on the way with a NaN, or with an infinity that the output has too."""
    output, seen = lab.walk(model, batch)
    nan = [held for held in seen if is_values(held.value) and bool(torch.isnan(held.value).any())]
    wrong = [held for held in seen if is_values(held.value) and not _all_finite(held.value)]
    if all(_all_finite(value) for value in tensors(output) if is_values(value)):
        return None  # the output is sound: it arose in the loss
    return next(iter(nan), None) if nan and wrong[:1] != nan[:1] else next(iter(wrong), None)


STEEP = dict.fromkeys("Log Log2 Log10 Log1P Logit Xlogy Atanh".split(), "in_log")
STEEP |= dict.fromkeys(
    "Div Reciprocal Rsqrt Std Var StdMean VarMean Sqrt Pow Acos Asin Norm Cdist".split(), "in_division"
)


def backward_origin(lab: Lab, model: torch.nn.Module, batch: Batch, step: int) -> Found | str:
    """The first operation of the backward pass that makes a bad gradient from sound ones."""
    made: list[tuple[Any, str]] = []
    with lab.seeded(step), noting_lines():
        output, seen = lab.walk(model, batch)
        loss = lab.subject.value(output, batch.target)
        nodes = [node for node in graph([loss.grad_fn]) if not hasattr(node, "variable")]
        for node in nodes:
            node.register_hook(_hook(node, made))
        leaves = [held for held in model.parameters() if held.requires_grad]
        torch.autograd.grad(loss, leaves, allow_unused=True)
    if not made:
        return "gradients were not finite although the loss was, and the operation that caused it was not seen"
    node, fed = made[0]
    name = bare(node)
    return Found(STEEP.get(name, "in_overflow"), f"the derivative of {name.lower()}", fed, place_of(node, seen, lab))


def _hook(node: Any, made: list[tuple[Any, str]]) -> Any:
    def look(given: Any, got: Any) -> None:
        if made:
            return
        came = [t for t in tensors(list(got)) if is_values(t)]
        gave = [t for t in tensors(list(given)) if is_values(t)]
        if all(_all_finite(t) for t in came) and not all(_all_finite(t) for t in gave):
            made.append((node, described(_operands(node) or came)))

    return look


def _operands(node: Any) -> list[torch.Tensor]:
    held = [saved(node, name) for name in ("self", "result", "other")]
    return [value for value in held if value is not None and is_values(value)]
