"""A tape as a model: the captured calls with parameters of one's own and other inputs.

The model hands the values that the loss part needs to the loss, the prediction first; the loss part compares them with
the targets. Dropout, batch norm and their like follow `train()` and `eval()`, although the script's classes are gone.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from clew.errors import ClewError
from clew.exams.disturbed import disturbed
from clew.exams.subject import Seen
from clew.tape.coding import constant, decode, slots_in
from clew.tape.model import Call, Tape
from clew.tape.names import function_of, short

TRAINING = ("training", "train", "use_input_stats")
POSITIONS = {"dropout": 2, "alpha_dropout": 2, "feature_dropout": 2, "feature_alpha_dropout": 2, "batch_norm": 5}
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
SHAPED = frozenset(
    "view reshape expand repeat zeros ones empty full rand randn randint arange new_zeros new_ones new_empty new_full "
    "unflatten tile broadcast_to split chunk unbind".split()
)


class Part(nn.Module):
    """A name on the way to a parameter."""


class Player:
    """Runs calls of a tape. Made once per tape: functions are looked up and flags located beforehand."""

    def __init__(self, tape: Tape, device: torch.device) -> None:
        self.tape = tape
        self.device = device
        self.functions: list[Callable[..., Any]] = []
        self.flags: list[Callable[[list[Any], dict[str, Any]], None] | None] = []
        for call in tape.calls:
            function = function_of(call.function)
            if function is None:
                raise ClewError(
                    f"this torch ({torch.__version__}) has no {call.function}, which the captured step calls."
                )
            self.functions.append(function)
            self.flags.append(_for_evaluation(call, function))
        self.writes = any(
            short(call.function).rstrip("_") != short(call.function) or "inplace" in str(call.kwargs)
            for call in tape.calls
        )
        self.disturbed = disturbed(tape)

    def play(
        self,
        env: dict[int, Any],
        first: int,
        last: int,
        rows: int,
        training: bool,
        seen: list[Seen] | None = None,
        passing: bool = False,
    ) -> None:
        """Make the calls from `first` to before `last`; values by slot are read from and written to `env`. With
        `passing`, those that put random numbers on the inputs are left out."""
        for index in range(first, last):
            call = self.tape.calls[index]
            if passing and index in self.disturbed:
                env[call.made[0]] = env[self.disturbed[index]]
                continue
            function, flag = self.functions[index], self.flags[index]
            result = self._call(call, function, flag, env, rows, training)
            made = list(_tensors(result))
            if not made and len(call.made) == 1:  # an assignment to a part of a tensor returns nothing
                continue
            env.update(zip(call.made, made, strict=True))
            if seen is not None:
                place = self.tape.places[call.place] if call.place >= 0 else None
                name = call.module or short(call.function)
                seen += [Seen(name, short(call.function), tensor, place) for tensor in made]

    def _call(
        self, call: Call, function: Callable[..., Any], flag: Any, env: dict[int, Any], rows: int, training: bool
    ) -> Any:
        number: Callable[[int], int] = _same
        if rows != self.tape.rows and rows and short(call.function) in SHAPED:
            number = _resized(call, env, self.tape.rows, rows)
        args = decode(call.args, env.__getitem__, self.device, number)
        kwargs = decode(call.kwargs, env.__getitem__, self.device, number)
        if not training and flag is not None:
            flag(args, kwargs)
        under = self.tape.unders[call.under]
        if under.grad and under.autocast is None:
            return function(*args, **kwargs)
        with ExitStack() as stack:
            if not under.grad:
                stack.enter_context(torch.no_grad())
            if under.autocast is not None:
                stack.enter_context(torch.autocast(self.device.type, dtype=constant(under.autocast[1])))
            return function(*args, **kwargs)


class TapedModel(nn.Module):
    """The model part of a tape. Parameters and buffers have the names they had."""

    def __init__(self, player: Player, state: dict[str, torch.Tensor], trained: set[str]) -> None:
        super().__init__()
        self.player = player
        self.undisturbed = False  # whether random numbers are kept off the inputs
        tape = player.tape
        self.slots: dict[str, int] = {}
        self.constants: dict[int, torch.Tensor] = {}
        for value in tape.of_role("parameter", "buffer", "constant"):
            if value.role == "constant":
                self.constants[value.slot] = state[f"constant {value.slot}"].to(player.device)
                continue
            held = state[value.name].to(player.device)
            self.slots[value.name] = value.slot
            _register(self, value.name, held, value.role == "parameter", value.name in trained)
        self.paths = {name: (tuple(name.split(".")[:-1]), name.split(".")[-1]) for name in self.slots}

    def __deepcopy__(self, memo: dict[int, Any]) -> TapedModel:
        made = TapedModel.__new__(TapedModel)
        memo[id(self)] = made
        for name, value in self.__dict__.items():
            shared = name in ("player", "slots", "paths", "constants")
            made.__dict__[name] = value if shared else copy.deepcopy(value, memo)
        return made

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.walk(inputs, None)

    def walk(self, inputs: Sequence[torch.Tensor], seen: list[Seen] | None) -> Any:
        tape = self.player.tape
        env = self.values(inputs)
        self.player.play(env, 0, tape.split, rows_of(tape, inputs), self.training, seen, self.undisturbed)
        outputs = tuple(env[slot] for slot in tape.outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def values(self, inputs: Sequence[torch.Tensor]) -> dict[int, Any]:
        """All values that enter the model part, by slot."""
        tape = self.player.tape
        entering = tape.of_role("input")
        if len(inputs) != len(entering):
            raise ClewError(f"the captured step takes {len(entering)} inputs; {len(inputs)} were given.")
        env: dict[int, Any] = dict(self.constants)
        for name, slot in self.slots.items():
            env[slot] = _get(self, self.paths[name])
        for value, tensor in zip(entering, inputs, strict=True):
            given = tensor.to(self.player.device)
            if value.grad and given.is_floating_point() and not given.requires_grad:
                given = given.detach().clone().requires_grad_()
            env[value.slot] = given.clone() if self.player.writes and not value.grad else given
        return env


class TapedLoss:
    """The loss part of a tape: loss(output, target)."""

    def __init__(self, player: Player, constants: dict[int, torch.Tensor]) -> None:
        self.player = player
        self.constants = constants

    def __call__(self, output: Any, target: Any) -> torch.Tensor:
        env = self.values(output, target)
        tape = self.player.tape
        self.player.play(env, tape.split, len(tape.calls), self.rows, True)
        result: torch.Tensor = env[tape.loss]
        return result

    def values(self, output: Any, target: Any) -> dict[int, Any]:
        tape = self.player.tape
        outputs = output if isinstance(output, tuple | list) else (output,)
        targets = target if isinstance(target, tuple | list) else () if target is None else (target,)
        env: dict[int, Any] = dict(self.constants)
        env.update(zip(tape.outputs, outputs, strict=True))
        entering = tape.of_role("target")
        if len(targets) != len(entering):
            raise ClewError(f"the captured loss compares with {len(entering)} targets; {len(targets)} were given.")
        self.rows = tape.rows
        for value, tensor in zip(entering, targets, strict=True):
            env[value.slot] = tensor.to(self.player.device)
            if value.rows and tensor.dim():
                self.rows = tensor.shape[0]
        return env


def rows_of(tape: Tape, inputs: Sequence[torch.Tensor]) -> int:
    for value, tensor in zip(tape.of_role("input"), inputs, strict=True):
        if value.rows and tensor.dim():
            return int(tensor.shape[0])
    return tape.rows


# --- flags of training and evaluation


def _for_evaluation(call: Call, function: Callable[..., Any]) -> Callable[[list[Any], dict[str, Any]], None] | None:
    """What turns a call of training into one of evaluation; None when there is nothing to turn."""
    name = short(call.function)
    if name in RECURRENT:
        packed = isinstance(call.args, list) and len(call.args) > 2 and not isinstance(call.args[2], list)
        return _setting("train", 7 if packed else 6, False)
    if name == "scaled_dot_product_attention":
        return _setting("dropout_p", 4, 0.0)
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return _setting("train", POSITIONS[name], False) if name in POSITIONS else None
    for flag in TRAINING:
        if flag in names:
            if "norm" in name and not _has_statistics(call, names):
                return None
            return _setting(flag, names.index(flag), False)
    return None


def _has_statistics(call: Call, names: list[str]) -> bool:
    """Without running statistics a norm uses those of the batch in both modes."""
    given = dict(zip(names, call.args, strict=False))
    given.update(call.kwargs["dict"])
    return given.get("running_mean") is not None


def _setting(name: str, position: int, value: Any) -> Callable[[list[Any], dict[str, Any]], None]:
    def set_it(args: list[Any], kwargs: dict[str, Any]) -> None:
        if name in kwargs:
            kwargs[name] = value
        elif position < len(args):
            args[position] = value
        elif name == "training":
            kwargs[name] = value  # it was left at its default, which for dropout is True

    return set_it


# --- other batch sizes


def _same(number: int) -> int:
    return number


def _resized(call: Call, env: dict[int, Any], old: int, new: int) -> Callable[[int], int]:
    """Which numbers among the arguments stand for the batch size: those equal to it, and multiples of it where only
    that makes the sizes come out."""

    def equal(number: int) -> int:
        return new if number == old else number

    def multiple(number: int) -> int:
        return number // old * new if number > 0 and number % old == 0 else number

    if short(call.function) not in ("view", "reshape"):
        return equal
    slots = slots_in(call.args)
    size = env[slots[0]].numel() if slots else 0
    first = _Once(old, new)
    for candidate in (first, equal, multiple):
        numbers = [candidate(number) for number in _numbers(call.args)]
        known = math.prod(number for number in numbers if number >= 0)
        if known and (known == size or (-1 in numbers and size % known == 0)):
            return _Once(old, new) if candidate is first else candidate
    return equal


class _Once:
    """Puts the new number in the place of the first that equals the old one."""

    def __init__(self, old: int, new: int) -> None:
        self.old, self.new, self.done = old, new, False

    def __call__(self, number: int) -> int:
        if not self.done and number == self.old:
            self.done = True
            return self.new
        return number


def _numbers(value: Any) -> list[int]:
    if type(value) is int:
        return [value]
    if isinstance(value, list):
        return [number for item in value for number in _numbers(item)]
    if isinstance(value, dict) and "tuple" in value:
        return _numbers(value["tuple"])
    return []


# --- names


def _register(model: nn.Module, name: str, tensor: torch.Tensor, parameter: bool, trained: bool) -> None:
    *path, last = name.split(".")
    owner = model
    for part in path:
        if part not in owner._modules:
            owner._modules[part] = Part()
        held = owner._modules[part]
        assert held is not None
        owner = held
    if parameter:
        owner._parameters[last] = nn.Parameter(tensor.clone(), requires_grad=trained and tensor.is_floating_point())
    else:
        owner._buffers[last] = tensor.clone()


def _get(model: nn.Module, where: tuple[tuple[str, ...], str]) -> torch.Tensor:
    owner: Any = model
    for part in where[0]:
        owner = owner._modules[part]
    held: torch.Tensor = owner._parameters[where[1]] if where[1] in owner._parameters else owner._buffers[where[1]]
    return held


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in _tensors(item)]
    return []
