"""Is a sequence model asked for the token that comes next, or for another one?

Compares the class indices that cross_entropy and nll_loss get, position by position, with the token ids that were
embedded on the same step: as they stand, and moved by one, two and three.

Why it matters: where the shift by one was forgotten the model only has to copy, its loss falls to zero, and it has
learned nothing of what comes next. So is it with a decoder that is fed the sequence it is asked for. Where data and
loss both shift, it learns to leave out a token.
Cannot tell: an autoencoder of text with one input, which is asked for its input on purpose.
Silent when: targets are shifted by one, masked or labels of another kind, when the first of two sequences is the target
(an autoencoder), when some other loss of the step asks for the next token, and when rows are too short or too uniform.
"""

from __future__ import annotations

import linecache
import os
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.watch import Answer, Backward, LossCall, ModuleCall, Saw, Watch, when_sampled
from clew.observe.watches._loss_values import CLASSES, ignored, integers
from clew.records.clue import Unclear
from clew.records.place import MOVED

if TYPE_CHECKING:
    from clew.records.place import Place

CALLS = 3
COLUMNS = 4
SAME = 0.99
ALIKE = 0.6
"""Of neighbouring tokens: a sequence that mostly repeats itself looks the same shifted or not."""
FURTHEST = 3
AROUND = 6
SHIFTS = re.compile(r"\[[^\]]*\b1\s*:[^\]]*\]|\broll\(|\bshift")


class TokensAsTargets(Watch):
    test = "tokens_as_targets"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.tokens: list[torch.Tensor] = []
        self.step = -1
        self.calls = self.same = self.fed = 0
        self.ahead: Counter[int] = Counter()
        self.where: Place | None = None
        self.backward: Place | None = None  # near which the targets are often moved

    def module(self, event: ModuleCall) -> None:
        if not self.recorder.sampled or event.evaluation or not isinstance(event.module, torch.nn.Embedding):
            return
        value = event.inputs[0] if event.inputs else None
        if event.step != self.step:
            self.step, self.tokens = event.step, []
        if value is not None and integers(value) and value.dim() == 2 and max(value.shape) >= COLUMNS:
            self.tokens.append(value.detach())

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if not event.sampled or not event.grad or event.name not in CLASSES or not integers(event.target):
            return
        if event.step != self.step or not self.tokens:
            return
        with torch.no_grad():
            self.tokens = [value for value in self.tokens if not counts(value)]
            if not self.tokens:
                return
            ids = self.tokens[-1]
            if not all(torch.equal(value.reshape(-1), ids.reshape(-1)) for value in self.tokens):
                self.calls += 1
                if fed_target(self.tokens, event.target.detach(), ignored(event)):
                    self.fed += 1
                    self.where = event.place
                return
            flat = ids.reshape(-1)
            if float((flat[1:] == flat[:-1]).float().mean()) > ALIKE:
                return
            target = event.target.detach().reshape(-1)
            counted = target != ignored(event)
            if int(counted.sum()) < COLUMNS:
                return
            self.calls += 1
            if flat.numel() == target.numel() and float((flat == target)[counted].float().mean()) >= SAME:
                self.same += 1
                self.where = event.place
                return
            by = moved_by(ids, target, ignored(event))
            if by is not None:
                self.ahead[by] += 1
                self.where = event.place if by > 1 else self.where

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        self.backward = event.place

    def read(self) -> Answer:
        if self.calls < CALLS:
            return Unclear("no token sequence with targets of the same length was seen")
        if self.same >= SAME * self.calls:
            says = "the targets are the input tokens at the same positions, so the model only has to copy them"
            return Saw("same", calls=self.calls).at(self.where).saying(says)
        if self.fed >= SAME * self.calls:
            says = "the decoder gets the target sequence at the same positions: it only has to copy it"
            return Saw("fed_target", calls=self.calls).at(self.where, self.backward).saying(says)
        by, times = max(self.ahead.items(), key=lambda item: item[1], default=(1, 0))
        if by > 1 and not self.ahead[1] and times >= SAME * self.calls:
            says = (
                f"the target at each position is the token {by} positions ahead, not the next one: it is shifted twice"
            )
            return Saw("beyond_next", calls=self.calls, by=by).at(shifting(self.where), self.backward).saying(says)
        return Saw("others", calls=self.calls)


def shifting(place: Place | None) -> Place | None:
    """The line at a loss or shortly before it that moves the targets: what is left out there is the first of a row."""
    if place is None or place.file is None or place.line is None:
        return place
    for line in range(place.line + 1, place.line - AROUND, -1):
        if SHIFTS.search(linecache.getline(os.path.abspath(place.file), line)):
            return place._replace(line=line, role=MOVED)
    return place


def fed_target(sequences: list[torch.Tensor], target: torch.Tensor, left_out: int) -> bool:
    """Whether the last of several sequences is the target as it stands, and no other one is, as it stands or one place
    behind: what an autoencoder is asked for is its first sequence."""
    wanted = target.reshape(-1)
    counted = wanted != left_out
    if int(counted.sum()) < COLUMNS or float((wanted[1:] == wanted[:-1]).float().mean()) > ALIKE:
        return False

    def is_target(ids: torch.Tensor) -> bool:
        flat = ids.reshape(-1)
        return flat.numel() == wanted.numel() and float((flat == wanted)[counted].float().mean()) >= SAME

    *before, last = sequences
    return is_target(last) and not any(is_target(ids) or moved_by(ids, wanted, left_out) == 1 for ids in before)


def counts(ids: torch.Tensor) -> bool:
    """Numbers of positions or of segments, which are embedded beside the tokens."""
    steps = ids[:, 1:] - ids[:, :-1]
    return bool((steps == 1).all()) or bool((ids == ids.reshape(-1)[0]).all())


def moved_by(ids: torch.Tensor, target: torch.Tensor, left_out: int) -> int | None:
    """How many places further on in its row the token lies that a position is asked for; None where it is none, or
    several would do. Targets may be one place shorter than the inputs."""
    for rows, across in ((ids, False), (ids.t(), True)):
        for width in (rows.shape[1], rows.shape[1] - 1):
            if width < COLUMNS or target.numel() != rows.shape[0] * width:
                continue
            wanted = target.reshape(width, -1).t() if across else target.reshape(-1, width)
            found = [by for by in range(1, FURTHEST + 1) if _lies(rows, wanted, by, left_out)]
            if len(found) == 1:
                return found[0]
    return None


def _lies(rows: torch.Tensor, wanted: torch.Tensor, by: int, left_out: int) -> bool:
    width = min(wanted.shape[1], rows.shape[1] - by)
    there, asked = rows[:, by : by + width], wanted[:, :width]
    counted = asked != left_out
    return int(counted.sum()) >= COLUMNS and float((there == asked)[counted].float().mean()) >= SAME
