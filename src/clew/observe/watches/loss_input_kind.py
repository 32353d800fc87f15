"""Does the loss get logits where it wants logits, and probabilities where it wants probabilities?

The autograd graph says which operation made the input of a loss call: softmax or sigmoid, or a bare linear or
convolution layer. Where there is no graph to read, rows that sum to one tell as much.

Why it matters: cross_entropy and binary_cross_entropy_with_logits apply softmax or sigmoid themselves. A second one
squeezes the scores into [0, 1], where the loss cannot come near zero. nll_loss, kl_div and ctc_loss apply none: fed
with raw scores they reward ever larger ones. An overlap written by hand (Dice, intersection over union) is a share only
of numbers between 0 and 1.
Cannot tell: other losses written out by hand, and a graph that was compiled as one piece when its values say nothing.
Silent when: log-probabilities enter cross_entropy (log-softmax is its own fixed point), the values pass any arithmetic
after the softmax (a temperature, a margin), or the result of the call never reaches backward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from clew.observe.watch import Answer, Backward, Forward, FunctionCall, LossCall, Raised, Saw, Watch, when_sampled
from clew.observe.watches._loss_graph import MOVES, PICKS, SQUASHES, Made, bare, made_by, origin, overlap
from clew.observe.watches._loss_values import by_class, plain
from clew.observe.watches._network_lines import line_of
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.records.place import Place

WANT_LOGITS = frozenset(("cross_entropy", "binary_cross_entropy_with_logits", "multilabel_soft_margin_loss"))
WANT_LOGS = frozenset(("nll_loss", "kl_div", "ctc_loss"))
WANT_PROBABILITIES = frozenset(("binary_cross_entropy",))
CLAMPS = frozenset(("Clamp", "ClampMin", "ClampMax"))
OVERLAP = "a hand-written overlap loss"
TRIES = 12
LARGE, OFF = 1_000_000, 0.05
TWICE, RAW, FITS = "probabilities_into_logit_loss", "logits_into_probability_loss", "fits"


class Seen(NamedTuple):
    outcome: str
    loss: str
    made_by: str
    places: tuple[Place | None, ...]


class LossInputKind(Watch):
    test = "loss_input_kind"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.squashed = Made()
        self.calls = Made(32)
        self.by_graph_seen = 0
        self.backward_seen = False
        self.by_graph: dict[str, Seen] = {}
        self.suspects: dict[str, Seen] = {}
        self.by_value: dict[str, Seen] = {}
        self.by_value_fits = 0
        self.last_output = ""
        self.tries = TRIES

    def function(self, event: FunctionCall) -> None:
        if event.place is not None:
            self.squashed.note(event.result, event.place)

    def forward(self, event: Forward) -> None:
        self.last_output = made_by(origin(event.output)) if isinstance(event.output, torch.Tensor) else ""

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if not event.sampled or not isinstance(event.input, torch.Tensor):
            return
        if event.name not in WANT_LOGITS | WANT_LOGS | WANT_PROBABILITIES:
            return
        node = origin(event.input, MOVES | PICKS | (CLAMPS if event.name in WANT_LOGITS else frozenset()))
        if node is None or bare(node) == "CompiledFunction":
            self._by_value(event)
            return
        self.by_graph_seen += 1
        kind = made_by(node)
        if event.name == "kl_div" and not kind and raw_scores(event.input):
            kind = "raw scores"
        outcome = judge(event.name, kind)
        if outcome != FITS:
            seen = Seen(outcome, event.name, kind, (event.place, self.squashed.get(node)))
            self.calls.note(event.result, seen)
            self.suspects.setdefault(outcome, seen)

    def _by_value(self, event: LossCall) -> None:
        if event.name not in ("cross_entropy", "nll_loss") or not plain(event.input) or event.input.dim() < 2:
            return
        rows = by_class(event.input)
        if rows.shape[0] < 2 or rows.shape[1] < 2 or not bool(torch.isfinite(rows).all()):
            return
        low, high = float(rows.min()), float(rows.max())
        sums = float((rows.sum(1) - 1).abs().max())
        shares = low >= -1e-6 and high <= 1 + 1e-3 and sums < 1e-2 and float(rows.std()) > 1e-6
        raw = event.name == "nll_loss" and (shares or high > 0.01)
        if shares or raw:
            outcome = TWICE if event.name == "cross_entropy" else RAW
            kind = "softmax" if shares else "raw scores"
            self.by_value.setdefault(outcome, Seen(outcome, event.name, kind, (event.place,)))
        else:
            self.by_value_fits += 1

    def before_backward(self, event: Backward) -> None:
        self.backward_seen = True
        if event.sampled and not self.by_graph:
            for seen in self.calls.under(event.loss):
                self.by_graph.setdefault(seen.outcome, seen)
        if event.sampled and self.tries and (not self.by_graph or RAW in self.by_graph):
            self.tries -= 1  # in the first steps, until the line is known
            self._by_hand(event)

    def _by_hand(self, event: Backward) -> None:
        share = overlap(event.loss)
        if share is None:
            return
        self.by_graph_seen += 1
        kind = made_by(share.scores)
        if kind in ("affine", "log_softmax", "logsigmoid"):
            line = line_of(self.recorder, share.product, event.loss)
            self.tries = self.tries if line is None else 0
            self.by_graph[RAW] = Seen(RAW, OVERLAP, kind, (line, event.place))

    def raised(self, event: Raised) -> None:
        # binary_cross_entropy checks its input and stops; the check speaks of NaN in the same words.
        if event.during == "binary_cross_entropy" and "between 0 and 1" in event.error and self.last_output == "affine":
            self.by_graph.setdefault(RAW, Seen(RAW, event.during, "affine", (event.place,)))
            self.by_graph_seen += 1

    def read(self) -> Answer:
        # Without any backward the gradients are taken in another way, and every loss made with a graph counts.
        found = self.by_graph or (self.suspects if not self.backward_seen else {})
        found = found or (self.by_value if not self.by_graph_seen else {})
        for outcome in (TWICE, RAW):
            if outcome in found:
                seen = found[outcome]
                return Saw(outcome, loss=seen.loss, made_by=seen.made_by).at(*seen.places).saying(says(seen))
        if self.by_graph_seen or self.by_value_fits:
            return Saw(FITS, calls=self.by_graph_seen + self.by_value_fits)
        return Unclear("no call of a loss function on logits or probabilities was seen")


def raw_scores(given: torch.Tensor) -> bool:
    """Whether no axis is one over which these are logarithms of shares."""
    if not plain(given) or given.dim() < 2 or not 0 < given.numel() <= LARGE:
        return False
    with torch.no_grad():
        held = given.detach().float()
        sums = [held.logsumexp(axis) for axis in range(held.dim()) if held.shape[axis] > 1]
        sums += [held.flatten(1).logsumexp(1), held.flatten().logsumexp(0)]
        return bool(torch.isfinite(held).all()) and all(float(one.abs().median()) > OFF for one in sums)


def judge(loss: str, kind: str) -> str:
    if loss in WANT_LOGITS:
        harmless = kind == "log_softmax" and loss == "cross_entropy"
        return TWICE if kind in SQUASHES.values() and not harmless else FITS
    if loss in WANT_LOGS:
        return RAW if kind in ("affine", "softmax", "sigmoid", "raw scores") else FITS
    return RAW if kind in ("affine", "log_softmax", "logsigmoid") else FITS


def says(seen: Seen) -> str:
    if seen.outcome == TWICE:
        return f"The output of {seen.made_by} enters {seen.loss}, which applies its own."
    if seen.made_by in ("affine", "raw scores"):
        wants = "probabilities" if seen.loss in (*WANT_PROBABILITIES, OVERLAP) else "log-probabilities"
        return f"Raw scores enter {seen.loss}, which expects {wants}."
    return f"The output of {seen.made_by} enters {seen.loss} without a logarithm."
