"""What a learner does with its experience: which observations entered which network, and what values were aimed at.

Several watches ask this; it is followed once per run, on sampled steps, and shared. A value loss is a squared or
absolute error, as a call of a loss function or written out, between what a network gave for observations and some
target; its rows are found again among the steps of the environments.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch

from clew.observe.envs import Transition, experience_of, find_environments, hashes, patches_of
from clew.observe.guard import release
from clew.observe.hooks import tensors_in
from clew.observe.watch import Backward, Forward, LossCall, ModuleCall, OptimizerEvent, Watch, when_sampled
from clew.observe.watches._loss_graph import Key, inputs, key
from clew.observe.watches._rl_choices import Choices
from clew.observe.watches._rl_networks import Networks
from clew.observe.watches._rl_pairs import Pairs
from clew.observe.watches._rl_policy import Policy
from clew.observe.watches._rl_rows import Squared, acted_on_next, gathered, in_order, out_of_order, squares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from clew.observe.recorder import Recorder
    from clew.records.place import Place

    Floats = NDArray[np.float64]

VALUE_LOSSES = ("mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss")
ROWS = 4096
CALLS = 8000
REMEMBERED = 20_000
COLUMNS = 64
PLACES = 8
LOOKED = 16
PULLS = 256

Source = tuple[bool, int, int]
"""A table of values by observation: made with gradients or without, by which model, at which place of its output."""


class Call(NamedTuple):
    """One call of a network. `keys` are its observations, or those of the call whose result it worked on."""

    number: int
    model: int
    rows: int
    keys: list[int]
    outputs: list[Floats]  # rows × columns
    grad: bool


class Row(NamedTuple):
    """One target of a value loss, with the step of the environment that it belongs to."""

    target: float
    step: Transition
    after: dict[Source, Any]  # what networks gave for the observation that followed
    later: dict[Source, Any]  # what they gave for the observation that was acted on next


class Rows:
    """Rows of one loss. Those for which less is known of later values must not push out the others."""

    def __init__(self) -> None:
        self._going: list[deque[Row]] = [deque(maxlen=most) for most in (300, 500, 800)]
        self._ended: list[deque[Row]] = [deque(maxlen=most) for most in (100, 200, 300)]

    def add(self, row: Row) -> None:
        held = self._ended if row.step.terminated or row.step.truncated else self._going
        sources = {*row.after, *row.later}
        held[0 if not sources else 1 if all(grad for grad, _, _ in sources) else 2].append(row)

    def going(self) -> list[Row]:
        return [row for held in self._going for row in held]

    def ended(self) -> list[Row]:
        return [row for held in self._ended for row in held]


class Columns(NamedTuple):
    """Sums over observations that entered a network in training, by component."""

    rows: int
    sums: Floats
    squares: Floats
    place: Place | None

    @classmethod
    def joined(cls, held: Columns | None, rows: Floats, place: Place | None) -> Columns | None:
        if rows.shape[1] > 4096 or (held is not None and len(held.sums) != rows.shape[1]):
            return held
        fresh = cls(len(rows), rows.sum(0), (rows**2).sum(0), place)
        if held is None:
            return fresh
        return cls(held.rows + fresh.rows, held.sums + fresh.sums, held.squares + fresh.squares, held.place)


class Critic(NamedTuple):
    """A network that gives one number for each observation: updates in which it was asked, and in which a loss was
    taken through it."""

    asked: int
    trained: int
    place: Place | None


class Aimed(NamedTuple):
    """The rows of one value loss."""

    step: int
    values: Floats
    targets: Floats
    keys: list[int] | None
    columns: int  # of the network's output: more than one for action values
    place: Place | None
    actions: list[int] | None = None  # whose values were taken, where one of several was


class Study:
    """The shared record. Watches hand on their events; each event is followed once."""

    _of: ClassVar[weakref.WeakKeyDictionary[Any, Study]] = weakref.WeakKeyDictionary()

    @classmethod
    def of(cls, recorder: Recorder) -> Study:
        held = cls._of.get(recorder)
        if held is None:
            held = cls._of[recorder] = cls(recorder)
        return held

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = weakref.ref(recorder)
        self.experience = experience_of(recorder)
        self.experience.choices = Choices()
        self.pairs = Pairs(self.experience)
        self.policy = Policy(self)
        self.networks = Networks(recorder)
        self.broken = ""
        self.told = -1
        self.looked = 0
        self.calls: deque[Call] = deque(maxlen=CALLS)
        self.called = 0
        self.nodes: dict[Key, Call] = {}
        self.given_out: dict[int, tuple[Any, list[int]]] = {}  # results by identity, with the observations behind them
        self.tables: dict[Source, dict[int, Floats]] = {}
        self.last_step = -1
        self.pending: list[tuple[Aimed, list[Call]]] = []
        self.aimed: deque[Aimed] = deque(maxlen=64)
        self.rows: dict[Place | None, Rows] = {}
        self.target_of: dict[Place | None, dict[tuple[int, int], float]] = {}
        self.models_of: dict[Place | None, set[int]] = {}  # the networks that a value loss trains
        self.columns: Columns | None = None
        self.critics: dict[int, Critic] = {}
        self.pulled: dict[Place | None, list[bool]] = {}  # whether a backward pulled at the values of a loss at all
        self.actors: set[int] = set()  # networks whose answers another one is asked about
        self.reached: set[int] = set()  # networks that a loss trains, since the last step
        self.written = 0
        self.steppers: set[int] = set()  # optimisers that step, and those that did in this update
        self.stepped: set[int] = set()

    def follow(self, name: str, number: int, event: Any) -> None:
        if number == self.told or self.broken:
            return
        self.told = number
        try:
            getattr(self, f"_{name}")(event)
        except BaseException as error:  # noqa: BLE001  # every watch that shares this record says so in its answer
            release(error)
            self.broken = f"the agent could not be traced: {type(error).__name__}: {error}"

    # --- events

    def _optimizer_made(self, event: OptimizerEvent) -> None:
        del event
        self.look_around()

    def look_around(self) -> None:
        """Environments are found by their classes, which may be made while the script runs."""
        recorder = self._recorder()
        patches = patches_of(recorder) if self.looked < LOOKED else None
        self.looked += 1
        if patches is not None:
            find_environments(self.experience, patches)
            self.policy.attach(patches)

    def _forward(self, event: Forward) -> None:
        if not self.experience.active:
            return
        if event.step > self.last_step + 1:
            self.tables.clear()  # older than steps that were not looked at
            self.policy.acted.clear()
        self.last_step = event.step
        self.networks.forward(event)
        for tensor in tensors_in(event.inputs, torch):
            fed_by = self.nodes.get(key(tensor.grad_fn)) if tensor.grad_fn is not None else None
            if fed_by is not None and fed_by.model != event.model:
                self.actors.add(fed_by.model)
        rows = observations(event.inputs, self.experience.width)
        outputs = list(numbers(event.output))
        count = len(rows) if rows is not None else len(outputs[0][1]) if outputs else 0
        if not 0 < count <= ROWS:
            return
        keys = self._keys(rows, event.inputs)
        measured = any(tensor.is_floating_point() for tensor in tensors_in(event.inputs, torch))  # no numbers of states
        known = keys is not None and event.grad and any(map(self.experience.knows, keys[:8]))
        if known and rows is not None and measured:
            self.columns = Columns.joined(self.columns, rows, event.place)
        if keys is None:
            keys = next((call.keys for call in reversed(self.calls) if call.rows == count), [])
        outputs = [(tensor, values) for tensor, values in outputs if len(values) == count]
        if len(self.given_out) > CALLS:
            self.given_out.clear()
        call = Call(self.called, event.model, count, keys, [values for _, values in outputs], event.grad)
        self.called += 1
        self.calls.append(call)
        if count <= max(1, self.experience.lanes):
            self.experience.asked = call
        recorder = self._recorder()
        sampled = recorder is not None and recorder.sampled
        for index, (tensor, values) in enumerate(outputs):
            if event.grad and sampled:
                self.policy.written.follow(tensor, call.number, keys, values)
            self.given_out[id(tensor)] = (weakref.ref(tensor), keys)
            if tensor.grad_fn is not None:
                self.nodes[key(tensor.grad_fn)] = call
            if keys:
                self._remember((event.grad, event.model, index), keys, values)

    def _aside(self, event: ModuleCall) -> None:
        """Observations may pass through something that learns nothing, and change with its statistics."""
        width = self.experience.width
        result = event.output if isinstance(event.output, torch.Tensor) else None
        if not self.experience.active or result is None or not width or result.shape[-1:] != (width,):
            return
        rows = observations(event.inputs, width)
        if rows is not None and len(rows) <= ROWS and rows.size == result.numel():
            keys = self._keys(rows, event.inputs)
            if keys:
                self.given_out[id(result)] = (weakref.ref(result), keys)

    def _keys(self, rows: Floats | None, given: Any) -> list[int] | None:
        """The observations among what a network was given; None for what is none."""
        if rows is None:
            return None
        width = self.experience.width
        found = [mark for mark in hashes(rows) if mark is not None]
        handed = self._handed_on(given, len(rows))
        if handed and not any(map(self.experience.knows, found[:32])):
            return handed
        if rows.shape[1] == width or (self.experience.given is None and not width):
            self.experience.network_saw(found, rows.shape[1])
            return found
        if any(map(self.experience.knows, found[:32])):
            return found
        if rows.shape[1] > width > 0:  # an action may follow the observation
            found = [mark for mark in hashes(rows[:, :width]) if mark is not None]
            if any(map(self.experience.knows, found[:32])):
                return found
        elif len(rows) <= self.experience.lanes:
            self.experience.network_saw([mark for mark in hashes(rows) if mark is not None], rows.shape[1])
        return None

    def _handed_on(self, given: Any, count: int) -> list[int]:
        """The observations behind what another call gave out, such as one that brings them to a common scale."""
        for tensor in tensors_in(given, torch):
            made, keys = self.given_out.get(id(tensor), (None, []))
            if made is not None and made() is tensor and len(keys) == count:
                return keys
        return []

    def _remember(self, source: Source, keys: list[int], values: Floats) -> None:
        table = self.tables.setdefault(source, {})
        if len(table) > REMEMBERED:
            table.clear()
        table.update(zip(keys, values, strict=True))

    def _loss(self, event: LossCall) -> None:
        given, target = event.input, event.target
        if not (event.sampled and event.grad and event.name in VALUE_LOSSES and self.experience.steps):
            return
        if not isinstance(target, torch.Tensor) or not 0 < given.numel() == target.numel() <= ROWS:
            return
        if given.grad_fn is None:  # the two are often written the other way round
            given, target = target, given
        if given.grad_fn is not None:
            calls, chosen = self.behind(given.grad_fn), gathered(given.grad_fn)
            self._aim(flat(given), flat(target), calls, event.place, event.step, chosen)
            given.register_hook(self._pull(event.place))  # type: ignore[no-untyped-call]

    def _pull(self, place: Place | None) -> Callable[[Any], None]:
        """A hook that notes whether any gradient arrives, and changes nothing."""
        held = weakref.ref(self)

        def note(gradient: Any) -> None:
            study = held()
            recorder = None if study is None else study._recorder()
            if study is None or recorder is None or not recorder.sampled:
                return
            seen = study.pulled.setdefault(place, []) if len(study.pulled) < PLACES else study.pulled.get(place, [])
            if len(seen) < PULLS:
                with recorder.quietly(), torch.no_grad():
                    given = gradient[0] if isinstance(gradient, tuple) else gradient
                    seen.append(given is not None and bool((given != 0).any()))

        return note

    def behind(self, node: Any) -> list[Call]:
        """The calls whose results this node was computed from, nearest first, not looking behind them."""
        found: dict[int, Call] = {}
        waiting: deque[Any] = deque([node])
        seen: set[Key] = set()
        while waiting and len(seen) < ROWS:
            node = waiting.popleft()
            mark = key(node)
            if mark in seen:
                continue
            seen.add(mark)
            call = self.nodes.get(mark)
            if call is not None:
                found[call.number] = call
            else:
                waiting.extend(inputs(node))
        return [found[number] for number in sorted(found)]

    def _aim(
        self,
        values: Floats,
        targets: Floats,
        calls: list[Call],
        place: Place | None,
        step: int,
        chosen: NDArray[np.int64] | None,
    ) -> None:
        columns = max((out.shape[1] for call in calls for out in call.outputs), default=1)
        whole = [call for call in calls if call.rows == len(values)]
        keys: list[int] | None = None
        if len(whole) == 1:
            keys = whole[0].keys
        elif sum(call.rows for call in calls) == len(values):
            keys = [mark for call in calls for mark in call.keys]
        keys = keys if keys and len(keys) == len(values) else None
        if place in self.models_of or len(self.models_of) < PLACES:
            self.models_of.setdefault(place, set()).update(call.model for call in calls)
        actions = chosen.tolist() if chosen is not None and len(chosen) == len(values) else None
        self.pending.append((Aimed(step, values, targets, keys, columns, place, actions), calls))

    def _before_backward(self, event: Backward) -> None:
        self.look_around()
        if not event.sampled or not self.experience.steps or event.loss.grad_fn is None:
            return
        self.reached.update(call.model for call in self.behind(event.loss.grad_fn))
        if not self.pending:
            for held in squares(event.loss.grad_fn, self.nodes, ROWS):
                self._written_out(held, event)
        for aimed in merged([held for held, _ in self.pending]):
            self.aimed.append(aimed)
            if aimed.keys is not None:
                self._take_rows(aimed)
        self.pending.clear()
        self.policy.before_backward(event)

    def _written_out(self, held: Squared, event: Backward) -> None:
        """A square of a difference: one side is a network's, and the target is what the difference leaves."""
        calls = self.behind(held.node)
        values = held.values(calls)
        if values is not None:
            targets = values - held.sign * held.difference
            self._aim(values, targets, calls, event.place, event.step, held.chosen)
            held.node.register_prehook(self._pull(event.place))

    def _take_rows(self, aimed: Aimed) -> None:
        if aimed.place not in self.rows and len(self.rows) >= PLACES:
            return
        assert aimed.keys is not None
        self.pairs.observations(aimed.keys, aimed.place)
        ordered = in_order(self.experience, aimed.keys)
        others = [call.keys for call in self.calls if call.rows == len(aimed.keys)]
        steps = ordered if ordered is not None else out_of_order(self.experience, aimed.keys, others)
        if aimed.actions is not None:
            self.pairs.actions(aimed.keys, ordered, others, aimed.actions, aimed.place)
        self.pairs.targets(aimed.keys, aimed.targets.tolist(), aimed.actions, aimed.place, self._slipped)
        rows = self.rows.setdefault(aimed.place, Rows())
        targets = self.target_of.setdefault(aimed.place, {})
        if len(targets) > REMEMBERED:
            targets.clear()
        self.pairs.rollout(aimed.targets.tolist(), steps, aimed.place, self._row)
        for target, step in zip(aimed.targets.tolist(), steps, strict=True):
            if step is not None and not step.idle:
                targets[step.lane, step.number] = target
                rows.add(self._row(target, step))

    def _row(self, target: float, step: Transition) -> Row:
        return Row(target, step, self._looked_up(step.next_key), self._looked_up(acted_on_next(self.experience, step)))

    def _slipped(self, target: float, step: Transition, mark: int) -> Row:
        """A row whose later values are those of its own observation."""
        return Row(target, step, {held: value for held, value in self._looked_up(mark).items() if not held[0]}, {})

    def _looked_up(self, mark: int | None) -> dict[Source, Any]:
        if mark is None:
            return {}
        return {source: table[mark] for source, table in self.tables.items() if mark in table}

    def _before_step(self, event: OptimizerEvent) -> None:
        self.policy.before_step(event)

    def _after_step(self, event: OptimizerEvent) -> None:
        if self._update_ends(event.number):
            self._count_critics(event.optimizer)
            self.nodes.clear()
            self.given_out.clear()
            for source in [held for held in self.tables if held[0]]:
                del self.tables[source]
        while len(self.calls) > 64:
            self.calls.popleft()
        self.policy.after_step()
        recorder = self._recorder()
        if recorder is not None and self.experience.steps > self.written:
            self.written = self.experience.steps
            recorder.record("environment steps", self.experience.steps, step=event.step)

    def _update_ends(self, number: int) -> bool:
        """Actor and critic may be asked once for both, and stepped one after the other by optimisers of their own."""
        again = number in self.stepped
        self.steppers.add(number)
        self.stepped.add(number)
        if not again and self.stepped != self.steppers:
            return False
        self.stepped = {number} if again and self.stepped != self.steppers else set()
        return True

    def _count_critics(self, optimizer: Any) -> None:
        """Those whose own optimiser has stepped: the loss of another one may not have been looked at."""
        stepped = {id(held) for group in optimizer.param_groups for held in group["params"]}
        asked = {
            call.model
            for call in self.nodes.values()
            if call.grad and call.rows > 1 and call.keys and all(out.shape[1] == 1 for out in call.outputs)
        }
        recorder = self._recorder()
        live = dict(recorder.live_models()) if recorder is not None and asked else {}
        for model in asked - self.actors:
            network = self.networks.held.get(model)
            mine = model in live and any(id(held) in stepped for held in live[model].parameters())
            if network is not None and mine and len(self.critics) < 64:
                held = self.critics.get(model, Critic(0, 0, network.place))
                self.critics[model] = Critic(held.asked + 1, held.trained + (model in self.reached), held.place)
        self.reached.clear()


def merged(held: list[Aimed]) -> Iterator[Aimed]:
    """Losses that one line called row by row are one loss."""
    by_place: dict[Any, list[Aimed]] = {}
    for each in held:
        by_place.setdefault(each.place, []).append(each)
    for several in by_place.values():
        if len(several) == 1 or len(several[0].values) > 1:
            yield from several
        else:
            keys = [mark for each in several for mark in each.keys or []]
            values = np.concatenate([each.values for each in several])
            targets = np.concatenate([each.targets for each in several])
            actions = [action for each in several for action in each.actions or []]
            yield several[0]._replace(
                values=values,
                targets=targets,
                keys=keys if len(keys) == len(values) else None,
                actions=actions if len(actions) == len(values) else None,
            )


def observations(given: Any, width: int) -> Floats | None:
    """The first array among the inputs, one row for each observation. Whole numbers are states only where environments
    give out as many of them."""
    for tensor in tensors_in(given, torch):
        if not tensor.dim() or not 0 < tensor.numel() <= ROWS * 4096 or tensor.is_complex():
            continue
        if tensor.is_floating_point() or width == 1 or (width and tensor.shape[-1] == width):
            values = readable(tensor)
            if values is None:
                continue
            if width and (values.shape[-1] == width or not tensor.is_floating_point()):
                return values.reshape(-1, width)
            return values.reshape(1 if values.ndim == 1 else len(values), -1)
    return None


def numbers(output: Any) -> Iterator[tuple[torch.Tensor, Floats]]:
    """What a network gave out, as rows × columns, where it is narrow enough to be values or scores."""
    for tensor in tensors_in(output, torch):
        if tensor.is_floating_point() and 0 < tensor.numel() <= ROWS * COLUMNS:
            if tensor.dim() > 1 and tensor.shape[-1] > COLUMNS:
                continue
            values = readable(tensor)
            if values is not None:
                if values.ndim == 1 and tensor.numel() <= COLUMNS:
                    yield tensor, values.reshape(1, -1)
                yield tensor, values.reshape(-1, 1) if values.ndim < 2 else values.reshape(-1, values.shape[-1])


def readable(tensor: torch.Tensor) -> Floats | None:
    if tensor.layout != torch.strided or tensor.is_meta:
        return None
    with torch.no_grad():
        return tensor.detach().to("cpu", torch.float64).numpy()


def flat(tensor: torch.Tensor) -> Floats:
    with torch.no_grad():
        return tensor.detach().to("cpu", torch.float64).reshape(-1).numpy()


class Studied(Watch):
    """A watch that asks the study; it follows every event that the study needs."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.study = Study.of(recorder)

    def optimizer_made(self, event: OptimizerEvent) -> None:
        self.study.follow("optimizer_made", self.recorder.told, event)

    def forward(self, event: Forward) -> None:
        self.study.follow("forward", self.recorder.told, event)

    def aside(self, event: ModuleCall) -> None:
        self.study.follow("aside", self.recorder.told, event)

    @when_sampled
    def loss(self, event: LossCall) -> None:
        self.study.follow("loss", self.recorder.told, event)

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        self.study.follow("before_backward", self.recorder.told, event)

    @when_sampled
    def before_step(self, event: OptimizerEvent) -> None:
        self.study.follow("before_step", self.recorder.told, event)

    @when_sampled
    def after_step(self, event: OptimizerEvent) -> None:
        self.study.follow("after_step", self.recorder.told, event)

    def unseen(self) -> str:
        """Why nothing can be said about an agent; nothing when there is one."""
        if self.study.broken:
            return self.study.broken
        return "" if self.study.experience.steps else "no environment step was seen"
