"""Are classes numbered in evaluation as they are in training?

Counts in evaluation which class the model names and which one the label gives: the labels of the loader's batch, of a
loss, or of the comparison that the script makes itself. Where many answers are wrong, and nearly all would be right if
some classes had another number, the numbering differs, and not what the model has learned.

Why it matters: an encoder that is fitted anew to the validation labels, or a folder that lacks a class, gives every
class another number; the figures of a sound model then look like chance or worse.
Cannot tell: which of the two numberings is meant.
Silent when: the model does not fit its training labels either, there are fewer than 40 answers, two classes share the
number that one of them would need, or a class is only mistaken for another now and then.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.envs import patches_of
from clew.observe.guard import release
from clew.observe.patches import unframe
from clew.observe.places import users_place
from clew.observe.recount import labels_of, one_for_each
from clew.observe.watch import Answer, Batch, Forward, LossCall, Saw, Watch
from clew.observe.watches._loss_values import CLASSES, plain
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from collections.abc import Callable

    from clew.observe.recorder import Recorder
    from clew.records.place import Place

FEWEST = 40
RARE = 0.02
FITTED = 0.7
"""Of the answers to the latest training batches, and of those in evaluation once the classes are renamed."""
MOVED = 0.1
"""At least so many of the answers become right by other numbers, where some classes kept theirs."""
MOST_CLASSES, MOST_ANSWERS = 256, 100_000
TABLES = 64


class Table:
    """What was answered (rows) and what the labels say (columns), in the latest pass of one line."""

    def __init__(self, classes: int, step: int, place: Place | None) -> None:
        self.counts = torch.zeros(classes, classes, dtype=torch.int64)
        self.step, self.place = step, place


class EvaluationClasses(Watch):
    test = "evaluation_classes"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.tables: dict[str, Table] = {}
        self.trained: deque[float] = deque(maxlen=20)
        self.labels: weakref.ref[torch.Tensor] | None = None
        self.answers: torch.Tensor | None = None
        self.classes = 0
        self.broken = ""

    def installed(self) -> None:
        patches = patches_of(self.recorder)
        if patches is not None:
            for name in ("__eq__", "eq"):
                patches.replace(torch.Tensor, name, functools.partial(_compared, weakref.ref(self)))

    def batch(self, event: Batch) -> None:
        held = labels_of(event.value)
        self.labels = None if held is None else weakref.ref(held)

    def forward(self, event: Forward) -> None:
        self.answers = None
        if not event.evaluation or type(event.output) is not torch.Tensor or not plain(event.output):
            return
        if event.output.device.type != "cpu":
            return
        if event.output.dim() != 2 or not 1 < event.output.shape[1] <= MOST_CLASSES:
            return
        if event.output.shape[0] <= MOST_ANSWERS:
            self.answers, self.classes = event.output.detach().argmax(1), event.output.shape[1]
            labels = self.labels() if self.labels is not None else None
            if labels is not None and one_for_each(event.output, labels):
                self.add(f"loader {self.recorder.loader}", self.answers, labels, event.place)

    def loss(self, event: LossCall) -> None:
        if (event.grad and not event.sampled) or event.name not in CLASSES:
            return
        if not (plain(event.input) and plain(event.target)):
            return
        if not one_for_each(event.input, event.target) or event.input.shape[1] > MOST_CLASSES:
            return
        if event.grad:
            right = event.input.detach().argmax(1) == event.target
            self.trained.append(float(right.float().mean()))
        elif event.input.device.type == "cpu":
            self.classes = event.input.shape[1]
            self.add(f"loss {event.place}", event.input.detach().argmax(1), event.target, event.place)

    def compared(self, first: torch.Tensor, second: torch.Tensor) -> None:
        """The script compares two tensors: one may be the answers of the latest call."""
        answers = self.answers
        if answers is None or first.numel() != answers.numel() or first.shape != second.shape:
            return
        for mine, other in ((first, second), (second, first)):
            if mine.dtype == torch.int64 and torch.equal(mine.reshape(-1), answers):
                self.answers = None
                place = users_place(3)
                self.add(f"compared {place}", answers, other.detach().reshape(-1), place)
                return

    def add(self, site: str, answers: torch.Tensor, labels: torch.Tensor, place: Place | None) -> None:
        step, classes = self.recorder.step, self.classes
        if labels.device.type != "cpu" or not len(labels):
            return
        named = labels.long()
        if bool((named != labels).any()) or int(named.min()) < 0 or int(named.max()) >= classes:
            return
        held = self.tables.get(site)
        if held is None and len(self.tables) >= TABLES:
            return
        if held is None or held.step != step or len(held.counts) != classes:
            held = self.tables[site] = Table(classes, step, place)
        held.counts += torch.bincount(answers * classes + named, minlength=classes**2).view(classes, classes)

    def read(self) -> Answer:
        if self.broken:
            return Unclear(self.broken)
        counted = [held for held in self.tables.values() if int(held.counts.sum()) >= FEWEST]
        if not counted:
            return Unclear("fewer than forty predictions with labels were seen in evaluation")
        if len(self.trained) < 2 or sum(self.trained) / len(self.trained) < FITTED:
            return Unclear("the predictions in training are unknown or do not fit the labels there")
        for held in counted:
            names = renamed(held.counts)
            if names:
                return _saw(held, names)
        return Saw("alike", answers=max(int(held.counts.sum()) for held in counted))


def renamed(counts: torch.Tensor) -> dict[int, int]:
    """Which class the labels call what, where that is not the same class and tells nearly every label; else nothing."""
    total = int(counts.sum())
    rows = counts.sum(1)
    common = [number for number in range(len(counts)) if int(rows[number]) > RARE * total]
    names = {number: int(counts[number].argmax()) for number in common}
    told = sum(int(counts[number, name]) for number, name in names.items()) / total
    one_to_one = len(set(names.values())) == len(names) > 1
    moved = [(number, name) for number, name in names.items() if number != name]
    gained = sum(int(counts[number, name] - counts[number, number]) for number, name in moved)
    clear = all(2 * int(counts[number, name]) > int(rows[number]) for number, name in moved)
    return names if one_to_one and clear and told >= FITTED and gained >= max(MOVED * total, FEWEST / 2) else {}


def _saw(held: Table, names: dict[int, int]) -> Saw:
    total = int(held.counts.sum())
    right = float(held.counts.diagonal().sum()) / total
    told = sum(int(held.counts[number, name]) for number, name in names.items()) / total
    moved = [f"{number} as {name}" for number, name in names.items() if number != name]
    more = f" and {len(moved) - 4} more" if len(moved) > 4 else ""
    says = (
        f"Of {total} predictions in evaluation {right:.0%} are right; with the classes renumbered {told:.0%} "
        f"would be: the labels give class {', '.join(moved[:4])}{more}."
    )
    return Saw("renumbered", right=right, right_when_renamed=told, answers=total).at(held.place).saying(says)


def _compared(held: weakref.ref[EvaluationClasses], original: Callable[..., Any]) -> Callable[..., Any]:
    compiling = torch.compiler.is_compiling

    def eq(*args: Any, **kwargs: Any) -> Any:
        if compiling():
            return original(*args, **kwargs)
        watch = held()
        if watch is not None and watch.answers is not None and len(args) == 2 and not watch.recorder.busy:
            _tell(watch, *args)
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            unframe(error)
            raise

    return eq


def _tell(watch: EvaluationClasses, first: Any, second: Any) -> None:
    if type(first) is not torch.Tensor or type(second) is not torch.Tensor or not (plain(first) and plain(second)):
        return  # a tensor of another kind would see what is asked of it here
    try:
        with watch.recorder.quietly():
            watch.compared(first, second)
    except BaseException as error:  # noqa: BLE001  # the script comes first; the answer says that it was not followed
        release(error)
        watch.answers = None
        watch.broken = f"a comparison could not be traced: {type(error).__name__}: {error}"
