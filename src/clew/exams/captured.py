"""A training step that `clew run` kept, as a subject."""

from __future__ import annotations

import glob
import linecache
import math
import os
import re
from typing import Any

import torch
from torch import nn

from clew.errors import ClewError
from clew.exams.around import Around
from clew.exams.batches import Batch
from clew.exams.lab import apart, seed_all
from clew.exams.replay import Player, TapedLoss, TapedModel
from clew.exams.subject import Seen, Subject, remade
from clew.records.place import Place
from clew.tape import files
from clew.tape.coding import slots_in
from clew.tape.model import Call, Tape
from clew.tape.names import short

SUMS = ("add", "__add__", "__radd__", "sum", "add_", "__iadd__")
PRODUCTS = ("mul", "__mul__", "__rmul__", "multiply", "div", "divide", "true_divide", "__truediv__")
QUOTIENTS = PRODUCTS[4:]
DIFFERENCES = ("sub", "__sub__", "__rsub__", "rsub", "subtract", "sub_", "__isub__")


class CapturedSubject(Subject):
    """The captured step behind the interface of a subject. `folder` is the capture's."""

    torch_only = True

    def __init__(self, folder: str, device: str = "") -> None:
        self.tape = files.read_tape(folder)
        where = torch.device(
            device or (self.tape.device if self.tape.device != "cuda" or torch.cuda.is_available() else "cpu")
        )
        self.player = Player(self.tape, where)
        self.folder = folder
        self.optimizers: list[dict[str, Any]] = files.read_json(folder, files.OPTIMIZERS) or []
        trained = {value.name for value in self.tape.of_role("parameter") if value.grad}
        model = TapedModel(self.player, files.read_tensors(folder, files.START), trained)
        self.trained_names = trained
        super().__init__(
            model,
            TapedLoss(self.player, model.constants),
            self._batches("batch"),
            val_batches=self._batches("val"),
            predict=_predict(self.tape.loss_name),
            name="the captured step",
        )
        self.optimizer = self._optimizer_of
        self.procedure = Around(files.read_json(folder, files.PROCEDURE) or {}, self.optimizers, self.tape.step)
        self.clip = self.procedure.clipping()
        self.schedule, self.horizon = self.procedure.schedule(), self.procedure.horizon
        self.plain_batches = self._undisturbed()
        self.random = self._is_random()

    def _batches(self, stem: str) -> list[Batch]:
        entering = self.tape.of_role("input", "target")
        found = []
        for name in files.numbered(self.folder, stem):
            held = files.read_tensors(self.folder, name)
            by_role: dict[str, list[Any]] = {"input": [], "target": []}
            for number, value in enumerate(entering):
                by_role[value.role].append(held.get(f"{value.role}{number}"))
            inputs, targets = by_role["input"], by_role["target"]
            if any(tensor is None for tensor in inputs):
                continue
            whole = bool(targets) and all(tensor is not None for tensor in targets)
            target = (targets[0] if len(targets) == 1 else tuple(targets)) if whole else None
            found.append(Batch(tuple(inputs), target))
        if any(batch.target is not None for batch in found):  # a target may not have been seen in every evaluation
            found = [batch for batch in found if batch.target is not None]
        return [
            Batch(
                tuple(tensor.to(self.player.device) for tensor in batch.inputs),
                _moved(batch.target, self.player.device),
            )
            for batch in found
        ]

    def _undisturbed(self) -> list[Batch]:
        """The first batches before random numbers were put on them, as many as that is known of."""
        entering = self.tape.of_role("input", "target")
        found = []
        for number, batch in enumerate(self.batches):
            held = files.read_tensors(self.folder, f"plain-{number}.safetensors")
            if not held:
                break
            inputs = [held[f"input{index}"] for index, value in enumerate(entering) if value.role == "input"]
            found.append(Batch(tuple(tensor.to(self.player.device) for tensor in inputs), batch.target))
        return found

    # --- what a captured subject knows more

    def beyond(self) -> str:
        return self.procedure.beyond()

    def place(self, name: str = "") -> Place | None:
        tape = self.tape
        if not name:
            calls = tape.calls[tape.split :] or tape.calls[-1:]
            return next((tape.places[call.place] for call in calls if call.place >= 0), None)
        slots = {value.slot for value in tape.of_role("parameter", "buffer") if value.name == name}
        for call in tape.calls:
            if call.place >= 0 and (call.module == name or slots & set(slots_in([call.args, call.kwargs["dict"]]))):
                return tape.places[call.place]._replace(module=call.module or None)
        return None

    def parts(self) -> list[str]:
        return list(self.tape.left)

    def call(self, model: nn.Module, inputs: Any) -> Any:
        return model(*inputs) if isinstance(inputs, tuple) else model(inputs)

    def walk(self, model: nn.Module, inputs: Any) -> tuple[Any, list[Seen]]:
        if not isinstance(model, TapedModel):
            return super().walk(model, inputs)
        seen: list[Seen] = []
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        return model.walk(given, seen), seen

    def trained(self) -> nn.Module | None:
        """A copy with the parameters as they were late in the run; None when they were not kept."""
        state = files.read_tensors(self.folder, files.END)
        if not state:
            return None
        return TapedModel(self.player, {**files.read_tensors(self.folder, files.START), **state}, self.trained_names)

    def uses(self) -> list[tuple[str, str]]:
        names = {value.slot: value.name for value in self.tape.of_role("parameter")}
        found: dict[str, str] = {}
        for call in self.tape.calls:
            for slot in slots_in([call.args, call.kwargs["dict"]]):
                if slot in names:
                    found.setdefault(names[slot], short(call.function))
        return list(found.items())

    def terms(self, model: nn.Module, batch: Batch) -> dict[str, torch.Tensor]:
        """The terms of a loss that is a sum, each by a name and its line; nothing when it is none."""
        tape = self.tape
        weights = _terms(tape, tape.loss)
        if len(weights) < 2 or not isinstance(self.loss, TapedLoss):
            return {}
        output = self.call(model, batch.inputs)
        env = self.loss.values(output, batch.target)
        self.player.play(env, tape.split, len(tape.calls), self.loss.rows, True)
        slots = [tape.loss, *(slot for slot, _ in weights)]
        calls = [next(call for call in tape.calls if slot in call.made) for slot in slots]
        names = _told_apart(calls[1:], [tape.places[call.place] if call.place >= 0 else None for call in calls])
        return {
            name if weight > 0 else f"minus {name}": weight * env[slot]
            for name, (slot, weight) in zip(names, weights, strict=True)
        }

    def _optimizer_of(self, parameters: Any) -> torch.optim.Optimizer:
        del parameters
        raise TypeError("a captured optimiser is made for a model")

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer | None:
        named = dict(model.named_parameters())
        best: tuple[int, dict[str, Any]] | None = None
        for held in self.optimizers:
            count = sum(name in named for group in held["groups"] for name in group["parameters"])
            if best is None or count > best[0]:
                best = count, held
        kind = _optimizers().get(best[1]["kind"]) if best is not None and best[0] else None
        if best is None or kind is None:
            return None
        groups = []
        for group in best[1]["groups"]:
            chosen = [named[name] for name in group["parameters"] if name in named]
            if chosen:
                groups.append({**group["settings"], "params": chosen})
        return remade(kind, groups, best[1]["groups"][0]["settings"])

    # --- whether the replay is true

    def _is_random(self) -> bool:
        first, second = self._replayed(1), self._replayed(2)
        return first != second and not (math.isnan(first) and math.isnan(second))

    def _replayed(self, seed: int) -> float:
        with apart():  # gradients stay on: a loss may hold derivatives
            seed_all(seed)
            model = self.copy().train()
            return float(self.value(self.call(model, self.batches[0].inputs), self.batches[0].target).detach())

    def untrue(self) -> str:
        """Why the replay is not the step that was captured, as a sentence; nothing when it is."""
        if self.random or math.isnan(self.tape.value):
            return ""
        replayed = self._replayed(1)
        if abs(replayed - self.tape.value) <= 1e-3 * max(abs(self.tape.value), 1e-3):
            return ""
        return f"replaying the captured step gives a loss of {replayed:.4g}, the run had {self.tape.value:.4g}"


def _optimizers() -> dict[str, type[torch.optim.Optimizer]]:
    """torch's own, by the names that captures give them: another may be anything."""
    kinds = [kind for kind in vars(torch.optim).values() if isinstance(kind, type)]
    return {f"{kind.__module__}.{kind.__qualname__}": kind for kind in kinds if issubclass(kind, torch.optim.Optimizer)}


def captured(run_folder: str, device: str = "") -> CapturedSubject:
    """The step that was kept of a run."""
    for folder in sorted(glob.glob(os.path.join(glob.escape(run_folder), "capture-*"))):
        if os.path.exists(os.path.join(folder, files.TAPE)):
            return CapturedSubject(folder, device)
    raise ClewError(f"no training step was kept of the run in {run_folder}; run it with clew run --keep-capture.")


ASSIGNS = re.compile(r"\s*(\w+)\s*(?::[^=]+)?=(?!=)")


def _told_apart(calls: list[Call], places: list[Place | None]) -> list[str]:
    """A name for what each call made: the variable that its line assigns, or else the call, and the line. The first
    place is that of the sum, whose variable names none of its terms."""
    whole, *places = places
    told = [at if at and (whole is None or at.line != whole.line) else None for at in places]
    lines = [linecache.getline(at.file, at.line) if at and at.file and at.line else "" for at in told]
    given = [found[1] if (found := ASSIGNS.match(line)) else "" for line in lines]
    names = [
        f"{name if name and given.count(name) == 1 else short(call.function)}{f' at {place}' if place else ''}"
        for name, call, place in zip(given, calls, places, strict=True)
    ]
    return [
        f"{name} ({names[:index].count(name) + 1} of {names.count(name)} there)" if names.count(name) > 1 else name
        for index, name in enumerate(names)
    ]


def _terms(tape: Tape, slot: int, weight: float = 1.0) -> list[tuple[int, float]]:
    """The slots that are added up to one, each with its weight. A sum that is multiplied as a whole is still one."""
    call = next((call for call in reversed(tape.calls[tape.split :]) if slot in call.made), None)
    name = short(call.function) if call is not None else ""
    if call is None or name not in (*SUMS, *DIFFERENCES, *PRODUCTS) or call.kwargs["dict"]:
        return [(slot, weight)]
    uses = slots_in(call.args)
    made = {made for other in tape.calls for made in other.made}
    if not uses or not all(use in made for use in uses):
        return [(slot, weight)]
    if len(uses) == 1:
        factor = _factor(name, call.args)
        inner = [] if factor is None else _terms(tape, uses[0], weight * factor)
        whole = len(inner) > 1 or name in SUMS  # a weight is part of its term
        return inner if inner and whole else [(slot, weight)]
    if name in PRODUCTS:
        return [(slot, weight)]
    weights = [weight] * len(uses)
    if name in DIFFERENCES:
        weights[0 if name in ("rsub", "__rsub__") else 1] = -weight
    return [part for use, its in zip(uses, weights, strict=True) for part in _terms(tape, use, its)]


def _factor(name: str, args: list[Any]) -> float | None:
    """What a call with one tensor and one number multiplies the tensor by; None where it does something else."""
    numbers = [held for held in args if isinstance(held, int | float) and not isinstance(held, bool)]
    if len(args) != 2 or len(numbers) != 1:
        return None
    number = float(numbers[0])
    if name in SUMS:
        return 1.0 if number == 0 else None  # what Python's own sum begins with
    if name in QUOTIENTS:
        return 1 / number if number and args[1] is numbers[0] else None
    return number if name in PRODUCTS else None


def _predict(loss: str) -> Any:
    """What the output of a model with this loss says, comparable with the target; None where it is not known."""
    if loss in ("cross_entropy", "nll_loss", "multi_margin_loss"):
        return lambda output: _first(output).argmax(1)
    if loss == "binary_cross_entropy_with_logits":
        return lambda output: (_first(output) > 0).float()
    if loss == "binary_cross_entropy":
        return lambda output: (_first(output) > 0.5).float()
    if loss in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        return _first
    return None


def _first(output: Any) -> torch.Tensor:
    held: torch.Tensor = output[0] if isinstance(output, tuple | list) else output
    return held


def _moved(target: Any, device: torch.device) -> Any:
    if isinstance(target, tuple):
        return tuple(tensor.to(device) for tensor in target)
    return target.to(device) if target is not None else None
