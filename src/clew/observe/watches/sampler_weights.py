"""Do a weighted sampler, or the weights of a loss, give the rare classes more, or still less?

Read once for each loader whose sampler has a weight for every example: the labels that the data set keeps are held
against the weights, where these are one number for each class. Of a classification loss with weights the labels are
counted as they come.

Why it matters: such weights are there to even the classes out. The frequency of a class in the place of its inverse
takes from the rare ones what little they had, and the model never meets them.
Inverse frequencies that were given to the classes in another order are told from four classes on.
Cannot tell: classes that are drawn less often on purpose.
Silent when: the weights follow no column of labels, all examples weigh the same, or the data set keeps no labels.
"""

from __future__ import annotations

import functools
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import BatchSampler, Subset, TensorDataset, WeightedRandomSampler

from clew.observe.envs import patches_of
from clew.observe.patches import unframe
from clew.observe.places import users_place
from clew.observe.watch import Answer, Batch, LossCall, Saw, Unclear, Watch, when_sampled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from clew.observe.recorder import Recorder
    from clew.records.place import Place

MOST = 2_000_000
LOADERS = 16
CLASSES = 1000
PER_CLASS = 5  # examples, on average: numbers that are nearly all different are no labels
SAME = 1e-4
LESS = 0.7  # of its share in the data
WEIGHED = {"cross_entropy": "weight", "nll_loss": "weight", "binary_cross_entropy_with_logits": "pos_weight"}
ENOUGH = 100
UNEVEN, TURNED = 2.0, 1.5
"""How far the largest class must outnumber the smallest, and outweigh it, for weights to be turned round."""


SEVERAL = 4  # classes: fewer weights of any kind fit frequencies in some order
ALIKE, APART = 0.25, 0.7
"""Deviation of the logarithm of weight times count: what counts of sampled steps allow, and a factor of two."""


class Drawn(NamedTuple):
    """The rarest class that is drawn at all: its share in the data set and in what the sampler draws."""

    held: float
    drawn: float
    along: bool  # the more examples a class has, the more each of them weighs
    classes: int


class Weighed(NamedTuple):
    """The weights of a loss by class, and how many examples of each it got."""

    weights: NDArray[np.float64]
    counts: NDArray[np.int64]


class SamplerWeights(Watch):
    test = "sampler_weights"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.made: weakref.WeakKeyDictionary[Any, Place | None] = weakref.WeakKeyDictionary()
        self.looked: set[int] = set()
        self.found: list[tuple[Drawn, Place | None]] = []
        self.weighted = False
        self.losses: dict[tuple[str, Place | None], Weighed] = {}

    def installed(self) -> None:
        patches = patches_of(self.recorder)
        if patches is not None:
            patches.replace(WeightedRandomSampler, "__init__", functools.partial(_noting, weakref.ref(self)))

    def batch(self, event: Batch) -> None:
        if event.loader in self.looked or len(self.looked) >= LOADERS:
            return
        self.looked.add(event.loader)
        sampler = getattr(event.source, "_index_sampler", None)
        sampler = sampler.sampler if isinstance(sampler, BatchSampler) else sampler
        weights = numbers(getattr(sampler, "weights", None))
        if weights is None or not np.isfinite(weights).all() or weights.min() < 0 or weights.max() == weights.min():
            return
        self.weighted = True
        for column in columns(getattr(event.source, "_dataset", None), len(weights)):
            drawn = by_class(column, weights)
            if drawn is not None:
                self.found.append((drawn, self._place(sampler) or event.place))
                return

    @when_sampled
    def loss(self, event: LossCall) -> None:
        option = WEIGHED.get(event.name)
        weight = event.options.get(option) if option and event.grad and event.sampled else None
        if (
            not isinstance(weight, torch.Tensor)
            or not isinstance(event.target, torch.Tensor)
            or len(self.losses) > LOADERS
        ):
            return
        given, target = numbers(weight.detach().reshape(-1).cpu()), event.target.detach().reshape(-1)
        if given is None or weight.requires_grad or target.numel() > MOST:
            return
        if option == "pos_weight":
            if len(given) != 1 or not bool(((target == 0) | (target == 1)).all()):
                return
            given = np.array([1.0, given[0]])
        elif target.is_floating_point() or len(given) < 2:
            return
        known = target[(target >= 0) & (target < len(given))].long().cpu()
        counts = np.bincount(known.numpy(), minlength=len(given))
        held = self.losses.get((event.name, event.place))
        counts = counts if held is None or len(held.counts) != len(counts) else counts + held.counts
        self.losses[event.name, event.place] = Weighed(given, counts)

    def _place(self, sampler: Any) -> Place | None:
        try:
            return self.made.get(sampler)
        except TypeError:
            return None

    def _turned_round(self) -> Answer | None:
        for (name, place), held in self.losses.items():
            seen = held.counts > 0
            counts, weights = held.counts[seen], held.weights[seen]
            if seen.sum() < 2 or counts.sum() < ENOUGH or counts.max() < UNEVEN * counts.min():
                continue
            more = counts[:, None] > 1.2 * counts[None, :]
            along = bool((weights[:, None] > weights[None, :])[more].all())
            if along and weights.max() > TURNED * weights.min() > 0:
                says = (
                    f"the weights of {name} grow with the number of examples, from {weights.min():.2g} for "
                    f"the rarest class to {weights.max():.2g}"
                )
                return Saw("weighs_less", classes=int(seen.sum())).at(place).saying(says)
            if in_another_order(counts, weights):
                says = (
                    f"the weights of {name} are the inverse frequencies of the classes, given to other classes: "
                    f"{weights[counts.argmax()]:.2g} for the largest and {weights[counts.argmin()]:.2g} for the rarest"
                )
                return Saw("weighs_less", classes=int(seen.sum())).at(place).saying(says)
        return None

    def read(self) -> Answer:
        turned = self._turned_round()
        if turned is not None:
            return turned
        if not self.found:
            return Unclear(
                "the sampler's weights match no labels of the data set"
                if self.weighted
                else "no loader has a sampler with weights"
            )
        for drawn, place in self.found:
            if drawn.along and drawn.drawn < LESS * drawn.held:
                saw = Saw("rarer_still", share_in_data=drawn.held, share_drawn=drawn.drawn, classes=drawn.classes)
                return saw.at(place).saying(
                    f"the rarest class is {drawn.held:.2g} of the data set and {drawn.drawn:.2g} of the "
                    "sampled rows: examples of frequent classes weigh more"
                )
        drawn, place = self.found[0]
        if drawn.drawn < drawn.held:
            return Unclear("the weights lower the share of the rarest class, but not by its frequency")
        return Saw("evens_out", share_in_data=drawn.held, share_drawn=drawn.drawn, classes=drawn.classes).at(place)


def in_another_order(counts: NDArray[np.int64], weights: NDArray[np.float64]) -> bool:
    """Whether weights times counts are alike for all classes only once both are sorted."""
    if len(counts) < SEVERAL or counts.min() < PER_CLASS or weights.min() <= 0:
        return False
    own = np.log(weights) + np.log(counts)
    sorted_ = np.log(np.sort(weights)[::-1]) + np.log(np.sort(counts))
    return bool(sorted_.std() < ALIKE and own.std() > APART)


def by_class(labels: NDArray[Any], weights: NDArray[np.float64]) -> Drawn | None:
    """None where the weights are no function of these labels."""
    _, numbered = np.unique(labels, return_inverse=True)
    counts = np.bincount(numbered)
    if not 2 <= len(counts) <= min(CLASSES, len(labels) // PER_CLASS):
        return None
    sums = np.bincount(numbered, weights)
    means = sums / counts
    if np.abs(weights - means[numbered]).max() > SAME * weights.max():
        return None
    drawn = means > 0  # a class that is never drawn is left out on purpose
    counts, means, sums = counts[drawn], means[drawn], sums[drawn]
    if len(counts) < 2 or counts.max() == counts.min():
        return None
    more = counts[:, None] > counts[None, :]
    rarest = int(np.argmin(counts))
    along = bool((means[:, None] > means[None, :])[more].all())
    return Drawn(float(counts[rarest] / counts.sum()), float(sums[rarest] / sums.sum()), along, len(counts))


def columns(dataset: Any, count: int, depth: int = 0) -> Iterator[NDArray[Any]]:
    """What a data set keeps with one plain value for each example."""
    if isinstance(dataset, Subset) and depth < 3:
        chosen = np.asarray(dataset.indices)
        inner = len(dataset.dataset)  # type: ignore[arg-type]
        if len(chosen) == count and chosen.ndim == 1 and chosen.dtype.kind in "iu":
            yield from (column[chosen] for column in columns(dataset.dataset, inner, depth + 1))
        return
    kept = dataset.tensors if isinstance(dataset, TensorDataset) else list(getattr(dataset, "__dict__", {}).values())
    for item in kept:
        column = numbers(item) if isinstance(item, torch.Tensor) else values(item)
        if column is not None and len(column) == count:
            yield column


def values(item: Any) -> NDArray[Any] | None:
    if isinstance(item, list | tuple) and 0 < len(item) <= MOST and isinstance(item[0], int | float | str | bool):
        kind = type(item[0])
        return np.asarray(item) if all(type(each) is kind for each in item) else None
    if isinstance(item, np.ndarray) and item.ndim == 1 and 0 < len(item) <= MOST and item.dtype.kind in "biufU":
        return item
    return None


def numbers(item: Any) -> NDArray[np.float64] | None:
    """One number for each row of a tensor, an array or a list."""
    if isinstance(item, torch.Tensor):
        if item.layout is not torch.strided or item.device.type != "cpu" or item.is_complex():
            return None
        if not 0 < item.numel() <= MOST or not item.dim() or item.numel() != len(item):
            return None
        return np.asarray(item.detach().reshape(-1).double().numpy())
    column = values(item)
    return None if column is None or column.dtype.kind == "U" else column.astype(np.float64)


def _noting(held: weakref.ref[SamplerWeights], original: Any) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            original(self, *args, **kwargs)
        except BaseException as error:
            unframe(error)
            raise
        watch = held()
        if watch is not None:
            with suppress(TypeError):  # a class of the user's may not be hashable
                watch.made[self] = users_place()

    return __init__
