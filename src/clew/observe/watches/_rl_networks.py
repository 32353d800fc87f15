"""The networks of an agent: which are trained, which only follow, and which name they go by."""

from __future__ import annotations

import linecache
import weakref
from typing import TYPE_CHECKING

import numpy as np
import torch

from clew.observe.watches._named import names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clew.observe.recorder import Recorder
    from clew.observe.watch import Forward
    from clew.records.place import Place

    Floats = NDArray[np.float64]

FAR = 0.05
READ = 16
NAMES = 60
TARGETS = ("target", "tgt")


class Network:
    """How one model fared between its first and its last call that was looked at."""

    def __init__(self, module: torch.nn.Module, step: int, place: Place | None) -> None:
        self.module = weakref.ref(module)
        self.place = place
        self.shapes = tuple((name, tuple(held.shape)) for name, held in module.named_parameters())
        self.first_step = self.last_step = step
        self.first = sample(module)
        self.print = hash(self.first.tobytes())
        self.followed: float | None = None  # how much of the way of the trained network of its form it has gone
        self.changes = 0
        self.looks = 0
        self.equal = 0  # looks at which it equalled the trained network of its form
        self.trained = False
        self.noisy = any(is_noisy(each) for each in module.modules())
        self.version = version(module)
        self.writes = 0  # looks before which somebody had written to its parameters


class Networks:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = weakref.ref(recorder)
        self.held: dict[int, Network] = {}
        self.named: dict[int, tuple[str, str, Place | None]] = {}  # a model that goes by two names, one of a target
        self.called: dict[int, str] = {}  # models that the script calls a target
        self.placed: set[int] = set()  # those whose line calls them a target
        self.asked = 0

    def forward(self, event: Forward) -> None:
        held = self.held.get(event.model)
        if held is None:
            if len(self.held) < 64:
                held = self.held[event.model] = Network(event.module, event.step, event.place)
                held.trained = self.in_training(event.module)
                self._names(event)
            return
        if event.model in self.named and event.model not in self.placed:
            self._better_line(event)
        if event.step == held.last_step:
            return
        now = fingerprint(event.module)
        held.changes += now != held.print
        held.print, held.last_step = now, event.step
        written = version(event.module)
        held.writes += written != held.version
        held.version = written
        held.looks += 1
        self._names(event)
        held.trained = held.trained or self.in_training(event.module)
        if not held.trained:
            twin = self.twin(event.model)
            held.equal += twin is not None and fingerprint(twin) == now
            held.followed = None if twin is None else followed(held.first, sample(event.module), sample(twin))

    def in_training(self, module: torch.nn.Module) -> bool:
        """Whether an optimiser holds some of its parameters."""
        recorder = self._recorder()
        own = {id(parameter) for parameter in module.parameters()}
        return recorder is not None and any(
            id(parameter) in own
            for _, optimizer in recorder.live_optimizers()
            for group in optimizer.param_groups
            for parameter in group["params"]
        )

    def of_one_form(self, models: set[int]) -> set[int]:
        """These, and all others with parameters of the same names and shapes."""
        forms = {self.held[model].shapes for model in models if model in self.held}
        return models | {number for number, other in self.held.items() if other.shapes in forms}

    def copies(self) -> set[int]:
        """Untrained models that the script calls a target, beside a trained one of the same form."""
        trained = {other.shapes for other in self.held.values() if other.trained}
        return {model for model in self.called if not self.held[model].trained and self.held[model].shapes in trained}

    def twin(self, model: int) -> torch.nn.Module | None:
        """The one trained network of the same form."""
        found = [
            module
            for number, other in self.held.items()
            if number != model and other.shapes == self.held[model].shapes
            if (module := other.module()) is not None and self.in_training(module)
        ]
        return found[0] if len(found) == 1 else None

    def _names(self, event: Forward) -> None:
        """What the script calls this model, in the functions that led to the call and in their objects."""
        if event.model in self.named or self.asked >= NAMES:
            return
        self.asked += 1
        held = names(event.module)
        targets = sorted(name for name in held if is_target(name))
        others = sorted(name for name in held if not is_target(name))
        if targets:
            self.called[event.model] = targets[0]
        if targets and others:
            self.named[event.model] = (targets[0], others[0], event.place)

    def _better_line(self, event: Forward) -> None:
        """Where it is called by the name of a target, the fault can be seen."""
        target, other, _ = self.named[event.model]
        place = event.place
        if place is not None and place.file and place.line and target in linecache.getline(place.file, place.line):
            self.named[event.model] = target, other, place
            self.placed.add(event.model)


def is_target(name: str) -> bool:
    return any(part in name.lower() for part in TARGETS)


def is_noisy(module: torch.nn.Module) -> bool:
    """Noise in the weights, or in the activations, that also makes choices vary."""
    kind = type(module).__name__.lower()
    return "nois" in kind or (module.training and "dropout" in kind)


def version(module: torch.nn.Module) -> int:
    """A number that grows with every write to the parameters, also one that leaves all values as they were."""
    return sum(parameter._version for parameter in module.parameters() if not parameter.is_inference())


def fingerprint(module: torch.nn.Module) -> int:
    """A number that changes when the parameters do."""
    return hash(sample(module).tobytes())


def sample(module: torch.nn.Module) -> Floats:
    """A few values of each parameter."""
    parts = []
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.numel() and parameter.layout == torch.strided and not parameter.is_meta:
                flat = parameter.detach().reshape(-1)
                parts.append(flat[:: -(-flat.numel() // READ)][:READ].to("cpu", torch.float64))
    return torch.cat(parts).numpy() if parts else np.zeros(0)


def followed(first: Floats, now: Floats, leader: Floats) -> float | None:
    """The share of the leader's way from where this one began; None where the leader has hardly moved."""
    if not len(first) == len(now) == len(leader):
        return None
    way = leader - first
    length = float(way @ way)
    if not length > FAR**2 * float(first @ first):
        return None
    return float((now - first) @ way) / length
