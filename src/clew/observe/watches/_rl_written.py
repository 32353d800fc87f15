"""Policies whose log-probabilities are written out by hand: log-softmax and a choice of columns, a cross-entropy with
the actions as classes, a logarithm of what a softmax gave.

What backward brings to the output of the network says the same as the gradient of the log-probability itself: for
logits it is the weight of a row times its probabilities less one for the action. Rows that are not of this form, since
other terms pull at them or the output is no policy's, say nothing.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from clew.observe.watches._rl_rows import resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from clew.observe.envs import Transition
    from clew.observe.watches._rl_study import Study

    Floats = NDArray[np.float64]

CALLS, ROWS = 512, 4096
EXACT, CLOSE, NEARLY = 1e-3, 0.2, 0.85
SURE = 0.999


class Came(NamedTuple):
    """The gradient that reached one output of a network, row by row."""

    number: int  # of the call
    keys: list[int]
    outputs: Floats
    gradient: Floats


class Written:
    """Gradients at the outputs of networks since the last step of an optimiser."""

    def __init__(self, study: Study) -> None:
        self._study = weakref.ref(study)
        self.came: list[Came] = []
        self.followed = 0

    def follow(self, tensor: Any, number: int, keys: list[int], values: Floats) -> None:
        """Note what reaches this output in backward; nothing of the graph is kept."""
        if tensor.grad_fn is None or self.followed >= CALLS or values.shape[1] < 2 or len(keys) != len(values):
            return
        self.followed += 1
        held = weakref.ref(self)

        def note(gradient: torch.Tensor) -> None:
            written = held()
            if written is not None:
                written.note(number, keys, values, gradient)

        tensor.register_hook(note)

    def note(self, number: int, keys: list[int], values: Floats, gradient: torch.Tensor) -> None:
        study = self._study()
        recorder = None if study is None else study._recorder()
        if recorder is None or not recorder.sampled or len(self.came) >= CALLS or gradient.is_sparse:
            return
        with recorder.quietly(), torch.no_grad():
            pulled = gradient.detach().to("cpu", torch.float64).numpy().reshape(-1, values.shape[1]).copy()
        if len(pulled) == len(values):
            self.came.append(Came(number, keys, values, pulled))

    def taken(self) -> tuple[list[int], Floats, Sequence[Transition | None]] | None:
        """The rows of an update in the order of the calls: observations, weights and steps; None where they are those
        of no policy."""
        study, came = self._study(), sorted(self.came, key=lambda held: held.number)
        self.came, self.followed = [], 0
        came = [held for held in came if np.abs(held.gradient).max(initial=0.0) > 0]
        if study is None or not came or len({held.outputs.shape[1] for held in came}) != 1:
            return None
        keys = [mark for held in came for mark in held.keys]
        if len(keys) > ROWS:
            return None
        steps = resolve(study.experience, keys, [])
        actions = [None if step is None else step.action for step in steps]
        outputs, gradient = (np.concatenate([getattr(held, name) for held in came]) for name in ("outputs", "gradient"))
        weights = pulls(outputs, gradient, actions)
        return None if weights is None else (keys, weights, steps)


def pulls(outputs: Floats, gradient: Floats, actions: Sequence[int | None]) -> Floats | None:
    """How strongly each row makes its action likelier; None for outputs of no policy, or pulled at otherwise."""
    size = np.abs(gradient).sum(1)
    there = size > 1e-12 * size.max(initial=0.0)
    if not there.any() or not (np.isfinite(outputs).all() and np.isfinite(gradient).all()):
        return None
    chosen = _chosen(gradient, there, actions)
    if chosen is None:
        return None
    rows = np.arange(len(gradient))
    own = gradient[rows, chosen]
    alone = bool((np.abs(own) >= SURE * size)[there].all())
    if alone and (outputs >= 0).all() and np.allclose(outputs.sum(1), 1.0, atol=EXACT):
        return np.asarray(-own * outputs[rows, chosen])
    top = outputs.max(1, keepdims=True)
    total = np.exp(outputs - top).sum(1)
    if alone:  # of log-probabilities, or of the value of an action
        return np.asarray(-own) if np.allclose(np.log(total) + top[:, 0], 0.0, atol=EXACT) else None
    if (np.abs(gradient.sum(1)) > EXACT * size)[there].any():
        return None
    probabilities = np.exp(outputs - top) / total[:, None]
    weights = -own / np.maximum(1.0 - probabilities[rows, chosen], EXACT)
    expected = weights[:, None] * probabilities
    expected[rows, chosen] -= weights
    good = np.abs(gradient - expected).sum(1) <= CLOSE * size
    return np.asarray(weights) if good[there].mean() >= NEARLY else None


def _chosen(gradient: Floats, there: Any, actions: Sequence[int | None]) -> Any:
    """The action of each row: what the environment was given, or, of three and more, the one that is pulled at most."""
    columns = gradient.shape[1]
    known = np.array([-1 if action is None or not 0 <= action < columns else action for action in actions])
    seen = known >= 0
    if columns == 2:
        return known if seen.all() else None
    most = np.abs(gradient).argmax(1)
    told = seen & there
    if told.sum() < NEARLY * there.sum() * 0.5 or (known == most)[told].mean() < NEARLY:
        return None
    return np.where(seen, known, most)
