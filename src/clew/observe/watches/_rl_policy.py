"""What a policy does: how decided it is when it acts, and which actions an update makes more likely.

Distributions of torch are followed where they are sampled from and where they give log-probabilities. The gradient
that reaches a log-probability during the script's own backward says which actions the update favours; a hook on the
tensor notes it in passing and changes nothing.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections import deque
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from clew.observe.envs import below
from clew.observe.guard import release
from clew.observe.patches import Patches, unframe
from clew.observe.places import users_place
from clew.observe.watches._loss_graph import Key, bare, inputs, key, shape
from clew.observe.watches._rl_moves import Moves, given_as, log_probabilities
from clew.observe.watches._rl_rows import in_order, resolve
from clew.observe.watches._rl_written import Written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from clew.observe.envs import Transition
    from clew.observe.watch import Backward, OptimizerEvent
    from clew.observe.watches._rl_study import Study
    from clew.records.place import Place

    Floats = NDArray[np.float64]

ROWS = 4096
SERIES = 400
WALKED = 4096
_depth = [0]


class Favoured(NamedTuple):
    """One batch of log-probabilities and what an update did with them: positive weights make an action likelier."""

    step: int
    keys: list[int]
    weights: Floats
    place: Place | None
    ratios: Floats | None = None  # of the probabilities to those when the actions were taken, where these were seen
    steps: Sequence[Transition | None] = ()  # of the environment, by row, as they were found at the time


class Pull(NamedTuple):
    """How strongly an update pulls at the entropy, over how strongly it pulls at the log-probabilities together.
    Positive makes the policy less decided."""

    step: int
    share: float
    place: Place | None


class Policy:
    def __init__(self, study: Study) -> None:
        self._study = weakref.ref(study)
        self.entropies: deque[tuple[int, float]] = deque(maxlen=SERIES)  # step, share of the maximum
        self.widths: deque[tuple[int, float]] = deque(maxlen=SERIES)  # step, deviation of actions that are no choices
        self.waiting: list[tuple[list[int], Key, int, Place | None]] = []
        self.gradients: list[tuple[list[int], Floats, Place | None, Floats | None]] = []
        self.favoured: deque[Favoured] = deque(maxlen=64)
        self.products = 0  # updates in which log-probabilities were weighted by something
        self.leaks: list[Place | None] = []
        self.acted: dict[int, tuple[int, float]] = {}  # step and log-probability of the action taken, by observation
        self.moved: deque[float] = deque(maxlen=SERIES)  # estimates of KL(old, new)
        self.turned: list[float] = []  # sums of the gradients that reached entropies since the last step
        self.pulls: deque[Pull] = deque(maxlen=SERIES)
        self.left: deque[float] = deque(maxlen=SERIES)  # shares of the maximum where updates ask for the entropy
        self.attached = False
        self.moves = Moves()
        self.written = Written(study)
        self.by_hand: deque[Favoured] = deque(maxlen=64)  # where log-probabilities are written out
        self.place: Place | None = None  # of the last backward
        self.acts = 0  # how often actions were drawn from a distribution

    def attach(self, patches: Patches) -> None:
        """Put the taps on the distributions."""
        if self.attached:
            return
        self.attached = True
        for kind in below(torch.distributions.Distribution):
            for name in ("sample", "log_prob", "entropy"):
                if isinstance(vars(kind).get(name), FunctionType) and kind.__module__.startswith("torch."):
                    patches.replace(kind, name, functools.partial(_around, weakref.ref(self), name))

    # --- what distributions tell

    def sampled(self, distribution: Any) -> None:
        study = self._study()
        recorder = study._recorder() if study is not None else None
        if study is None or recorder is None or not study.experience.active:
            return
        self.acts += 1
        logs = log_probabilities(distribution)
        if logs is not None:
            keys = self._asked(study, len(logs))
            if len(keys) == len(logs):
                self.moves.acted(recorder.step, keys, logs)
        share = decidedness(distribution)
        if share is not None:
            self.entropies.append((recorder.step, share))
        width = deviation(distribution)
        if width is not None:
            self.widths.append((recorder.step, width))

    @staticmethod
    def _asked(study: Study, rows: int) -> list[int]:
        """The observations of the last call of a network with so many rows."""
        return next((call.keys for call in reversed(study.calls) if call.rows == rows and call.keys), [])

    def weighed(self, distribution: Any, result: torch.Tensor, actions: Any, place: Place | None) -> None:
        """Log-probabilities were computed: of actions just taken, or of those that an update is about."""
        study = self._study()
        if study is None or not study.experience.steps or not 0 < result.numel() <= ROWS or result.is_meta:
            return
        keys = self._asked(study, result.numel())
        recorder = study._recorder()
        step = 0 if recorder is None else recorder.step
        if result.grad_fn is None:
            self._note_old(result, keys, step)
            return
        self._note_new(result, keys, step)
        logs = log_probabilities(distribution)
        if logs is not None and len(logs) == len(keys) == result.numel():
            self.moves.asked_again(step, keys, logs)
            if isinstance(actions, torch.Tensor) and actions.numel() == len(keys):
                self.moves.chosen(logs, actions.detach().to("cpu", torch.int64))
        self._note_actions(result, keys, actions, place)
        node = key(result.grad_fn)
        self.waiting.append((keys, node, result.numel(), place))
        held = weakref.ref(self)
        ratios = self._ratios(result, keys)

        def note(gradient: torch.Tensor) -> None:
            policy = held()
            if policy is not None:
                policy.gradient_came(keys, gradient, place, ratios)

        result.register_hook(note)  # type: ignore[no-untyped-call]

    def spread(self, distribution: Any, result: torch.Tensor) -> None:
        """An entropy was computed; what reaches it in backward is the weight that the loss gives it."""
        if result.grad_fn is None or not 0 < result.numel() <= ROWS or result.is_meta:
            return
        share = decidedness(distribution)
        if share is not None:
            self.left.append(share)
        held = weakref.ref(self)

        def note(gradient: torch.Tensor) -> None:
            policy = held()
            if policy is not None:
                policy.entropy_came(gradient)

        result.register_hook(note)  # type: ignore[no-untyped-call]

    def entropy_came(self, gradient: torch.Tensor) -> None:
        study = self._study()
        recorder = study._recorder() if study is not None else None
        if recorder is not None and recorder.sampled and len(self.turned) < 4096:
            with recorder.quietly(), torch.no_grad():
                self.turned.append(float(gradient.detach().double().sum()))

    def _note_old(self, result: torch.Tensor, keys: list[int], step: int) -> None:
        if len(keys) == result.numel():
            if len(self.acted) > 40_000:
                self.acted.clear()
            self.acted.update({mark: (step, value) for mark, value in zip(keys, _values(result), strict=True)})

    def _note_new(self, result: torch.Tensor, keys: list[int], step: int) -> None:
        """How far the policy has come since it acted, by (r - 1) - log r over the batch; only after a step was made."""
        if len(keys) != result.numel() or len(set(keys)) < len(keys):
            return
        pairs = [(now, self.acted[mark]) for mark, now in zip(keys, _values(result), strict=True) if mark in self.acted]
        ratios = [now - before for now, (when, before) in pairs if when < step]
        if len(ratios) >= max(8, len(keys) // 2):
            self.moved.append(float(np.mean([math.expm1(min(ratio, 50.0)) - ratio for ratio in ratios])))

    def _ratios(self, result: torch.Tensor, keys: list[int]) -> Floats | None:
        """Not a number for actions that were not seen when they were taken."""
        if len(keys) != result.numel():
            return None
        before = np.array([self.acted[mark][1] if mark in self.acted else np.nan for mark in keys])
        return np.asarray(np.exp(np.clip(np.array(_values(result)) - before, -20.0, 20.0)))

    def _note_actions(self, result: torch.Tensor, keys: list[int], actions: Any, place: Place | None) -> None:
        study = self._study()
        if study is None or len(keys) != result.numel() or not isinstance(actions, torch.Tensor):
            return
        study.pairs.observations(keys, place)
        if actions.numel() == len(keys) and not actions.is_floating_point():
            used = actions.detach().to("cpu", torch.int64).reshape(-1).tolist()
            study.pairs.actions(keys, in_order(study.experience, keys), (), used, place)

    def gradient_came(
        self, keys: list[int], gradient: torch.Tensor, place: Place | None, ratios: Floats | None
    ) -> None:
        study = self._study()
        recorder = study._recorder() if study is not None else None
        if recorder is None or not recorder.sampled or len(self.gradients) > 4096:
            return
        with recorder.quietly(), torch.no_grad():
            values = gradient.detach().to("cpu", torch.float64).reshape(-1).numpy().copy()
        self.gradients.append((keys, values, place, ratios))

    # --- events, handed on by the study

    def before_backward(self, event: Backward) -> None:
        self.place = event.place
        nodes = {node: count for _, node, count, _ in self.waiting}
        self.waiting.clear()
        if nodes and event.loss.grad_fn is not None:
            product, leak = weighted_by_network(event.loss.grad_fn, nodes)
            self.products += product
            if leak and len(self.leaks) < SERIES:
                self.leaks.append(event.place)

    def before_step(self, event: OptimizerEvent) -> None:
        """The step that uses the gradients says in which direction it goes."""
        climbs = any(group.get("maximize") for group in event.optimizer.param_groups)
        written = self.written.taken()
        if not self.gradients:
            if written is not None:
                keys, weights, steps = written
                weights = -weights if climbs else weights
                self.by_hand.append(Favoured(event.step, keys, weights, self.place, None, steps))
            return
        held, self.gradients = self.gradients, []
        turned, self.turned = self.turned, []
        weight = sum(float(np.abs(values).sum()) for _, values, _, _ in held)
        if turned and weight > 0 and math.isfinite(weight):
            self.pulls.append(Pull(event.step, sum(turned) / weight * (1.0 if climbs else -1.0), held[-1][2]))
        by_place: dict[Any, list[tuple[list[int], Floats, Floats | None]]] = {}
        for keys, values, place, ratios in held:
            by_place.setdefault(place, []).append((keys, values, ratios))
        for place, parts in by_place.items():
            parts = parts[::-1] if len(parts) > 1 else parts  # backward meets the last call first
            keys = [mark for marks, _, _ in parts for mark in marks]
            weights = np.concatenate([values for _, values, _ in parts]) * (1.0 if climbs else -1.0)
            ratios = parts[0][2] if len(parts) == 1 else None
            if len(keys) == len(weights):
                self.favoured.append(Favoured(event.step, keys, weights, place, ratios, self._steps(keys)))

    def _steps(self, keys: list[int]) -> Sequence[Transition | None]:
        """A rollout is known by its order only while its steps are the newest."""
        study = self._study()
        return () if study is None or study.aimed else resolve(study.experience, keys, [])

    def after_step(self) -> None:
        self.waiting.clear()


def _values(tensor: torch.Tensor) -> list[float]:
    with torch.no_grad():
        return [float(value) for value in tensor.detach().to("cpu", torch.float64).reshape(-1).tolist()]


def decidedness(distribution: Any) -> float | None:
    """Entropy over its maximum, for a choice among several actions."""
    held = given_as(distribution)
    if held is None:
        return None
    with torch.no_grad():
        given = held[0].detach().double()
        probabilities = given.softmax(-1) if held[1] else given
        entropy = -(probabilities * probabilities.clamp_min(1e-300).log()).sum(-1).mean()
        return float(entropy) / math.log(given.shape[-1])


def deviation(distribution: Any) -> float | None:
    """The mean deviation of actions that a Gaussian draws, in their unit; before they are squashed."""
    kinds = torch.distributions
    while isinstance(distribution, kinds.Independent | kinds.TransformedDistribution):
        distribution = distribution.base_dist
    if not isinstance(distribution, kinds.Normal) or not 0 < distribution.scale.numel() <= ROWS * 64:
        return None
    with torch.no_grad():
        return float(distribution.scale.detach().double().mean())


def weighted_by_network(root: Any, nodes: dict[Key, int]) -> tuple[bool, bool]:
    """Whether a loss weights log-probabilities by something, and whether that something trains a network as well."""
    product = False
    sizes = {*nodes.values(), sum(nodes.values())}  # a rollout may be joined from the steps that were made one by one
    waiting: list[Any] = [root]
    seen: set[Any] = set()
    while waiting and len(seen) < WALKED:
        node = waiting.pop()
        mark = key(node)
        if mark in seen or mark in nodes:
            continue
        seen.add(mark)
        if bare(node) == "Mul" and len(node.next_functions) == 2:
            sides = [fed for fed, _ in node.next_functions]
            holds = [fed is not None and _holds(fed, nodes) for fed in sides]
            if holds.count(True) == 1:
                other = sides[holds.index(False)]
                size = shape(node)
                product = True
                if other is not None and size is not None and math.prod(size) in sizes and _trains(other):
                    return True, True
        waiting += inputs(node)
    return product, False


def _holds(node: Any, nodes: dict[Key, int], most: int = 64) -> bool:
    waiting: list[Any] = [node]
    seen: set[Any] = set()
    while waiting and len(seen) < most:
        node = waiting.pop()
        mark = key(node)
        if mark in nodes:
            return True
        if mark not in seen:
            seen.add(mark)
            waiting += inputs(node)
    return False


def _trains(node: Any, most: int = 1024) -> bool:
    """Whether weights of a layer lie behind this: a single learned factor, such as a temperature, does not count."""
    waiting: list[Any] = [node]
    seen: set[Any] = set()
    while waiting and len(seen) < most:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, torch.Tensor) and leaf.dim() > 1:
            return True
        waiting += inputs(node)
    return False


def _around(held: weakref.ref[Policy], name: str, original: Any) -> Any:
    compiling = torch.compiler.is_compiling

    def wrapper(distribution: Any, *args: Any, **kwargs: Any) -> Any:
        if compiling() or _depth[0]:
            return original(distribution, *args, **kwargs)
        _depth[0] += 1
        try:
            result = original(distribution, *args, **kwargs)
        except BaseException as error:
            unframe(error)
            raise
        finally:
            _depth[0] -= 1
        policy = held()
        if policy is not None:
            _tell(policy, name, distribution, args[0] if args else kwargs.get("value"), result)
        return result

    return wrapper


def _tell(policy: Policy, name: str, distribution: Any, given: Any, result: Any) -> None:
    study = policy._study()
    recorder = study._recorder() if study is not None else None
    if study is None or recorder is None or recorder.busy or not recorder.sampled:
        return
    try:
        if not isinstance(result, torch.Tensor) or torch._C._functorch.peek_interpreter_stack() is not None:
            return
        place = users_place(3)
        with recorder.quietly():
            if name == "sample":
                policy.sampled(distribution)
            elif name == "entropy":
                if study.experience.steps:
                    policy.spread(distribution, result)
            else:
                policy.weighed(distribution, result, given, place)
    except BaseException as error:  # noqa: BLE001  # said by every watch that asks; the script goes on
        release(error)
        study.broken = f"the policy could not be traced: {type(error).__name__}: {error}"
