"""Do training and evaluation agree on the statistics of their inputs?

Where the columns keep their deviations and move by steps of their own, or all change by one large factor, a subtraction
or a division stands on one side only, and that is said; so it is where several columns change by one factor and the
others do not (another unit), where all channels of pictures are off and keep their spread, as an inversion makes them,
or are wider or narrower by one large factor, where each example was brought to one size on one side only, where most
values of some input, such as the time that a denoiser is told, lie outside of all that the model was trained on by more
than that range is wide, and where a sampler that feeds answers back begins inside that range and leaves it.

Why it matters: a transform that stands in one pipeline only shows the model a distribution it never learned.
Cannot tell: differences that keep mean and deviation, such as another channel order; what a pretrained model expects.
Silent when: the difference lies within sampling error, pictures are changed by chance in training and differ by little,
inputs are token numbers, or nothing marks a forward call as an evaluation (another loader, eval mode, or names on its
line).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clew.observe.watch import Answer, Forward, Judged, LossCall, Saw, when_sampled
from clew.observe.watches._data_feed import FedWatch
from clew.observe.watches._data_given import Verdicts
from clew.observe.watches._data_names import HELD_OUT, TRAINING, called_here
from clew.observe.watches._data_range import Ranges
from clew.observe.watches._data_values import Accumulator, accumulated, by_channel, float_tensors
from clew.records.clue import Reading, Unclear

if TYPE_CHECKING:
    import torch

    from clew.observe.recorder import Recorder
    from clew.observe.watches._data_values import Floats, Moments
    from clew.records.place import Place

    Key = tuple[int, str]

BATCHES = 64
ERRORS = 5.0
FEWEST = 8
SURE, SURE_PICTURES = 64, 16  # examples on either side
COLUMNS = 8
ALIKE, MOST_COLUMNS = 0.35, 0.8
"""How much the ratios of deviations may differ, and in how many columns they must not."""
FACTOR = 5.0  # a series that drifts does not come this far
ONE_UNIT = 0.15  # how far the factors of columns in another unit may lie apart
UNEVEN = 0.3
EVEN, NOT_EVEN = 0.01, 0.1
VALUES_EACH, MOST_VALUES, SIZES = 16, 4_000_000, 256
MOVED = 0.3  # of the columns have moved by more than a deviation
OFF = 0.8
"""Deviations by which the mean of every channel of an image must be off: what pictures show varies far less."""


FAR_OFF = 1.6  # more than brightness that is changed by chance comes to
AGAIN = 16


class Looked(NamedTuple):
    sums: Accumulator
    called: str | None
    digest: int
    sizes: list[float]
    image: bool


class InputStatisticsMatch(FedWatch):
    test = "input_statistics_match"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.verdicts = Verdicts()
        self.ranges = Ranges()
        self.loss_place: Place | None = None
        self.shifts: dict[int, Floats] = {}
        self.known: set[tuple[Key, int]] = set()
        self.training: dict[Key, Accumulator] = {}
        self.evaluation: dict[Key, Accumulator] = {}
        self.places: dict[Key, Place | None] = {}
        self.sizes: dict[Key, list[float]] = {}
        self.images: set[Key] = set()  # evaluations of pictures that another loader gave or a name says are held out

    def forward(self, event: Forward) -> None:
        super().forward(event)
        self.ranges.note(event)
        tensor = next(float_tensors(event.inputs), None)
        if tensor is None or tensor.grad_fn is not None:
            return
        values = by_channel(tensor)
        if values is None:
            return
        shift = self.shifts.setdefault(event.model, np.nan_to_num(values.mean(axis=(0, 2))))
        sums = accumulated(values, shift)
        if sums is not None:
            self.verdicts.push(
                event, Looked(sums, called_here(), hash(values.tobytes()), sizes_of(tensor), tensor.dim() == 4)
            )

    @when_sampled
    def loss(self, event: LossCall) -> None:
        self.loss_place = event.place if event.grad else self.loss_place

    def judged(self, event: Judged) -> None:
        super().judged(event)
        held: Looked | None = self.verdicts.pop(event)
        if held is None:
            return
        if event.backward:
            self.places.setdefault((event.model, TRAINING), event.place)
            self._add(self.training, (event.model, TRAINING), held)
            return
        if not self.evaluates(event, held.called):
            return
        apart = self.apart()
        key = (event.model, str(self.feed.behind if apart else event.place))
        if key in self.evaluation or len(self.evaluation) < 32:
            self.places.setdefault(key, event.place)
            self._add(self.evaluation, key, held)
            if held.image and (apart or held.called == HELD_OUT):
                self.images.add(key)

    def _add(self, kept: dict[Key, Accumulator], key: Key, looked: Looked) -> None:
        """Each batch counts once: rows seen again in a later epoch are no further evidence."""
        held = kept.setdefault(key, Accumulator(looked.sums.shift))
        if held.batches < BATCHES and (key, looked.digest) not in self.known:
            self.known.add((key, looked.digest))
            held.add(looked.sums)
            self.sizes.setdefault(key, []).extend(looked.sizes)

    def _one_step(self) -> tuple[str, Place | None, dict[str, float]] | None:
        for key, sums in self.evaluation.items():
            trained = self.training.get((key[0], TRAINING))
            here, there = sums.moments(), trained.moments() if trained else None
            if here is None or there is None or min(here.examples, there.examples) < SURE_PICTURES:
                continue
            wide = all_wider(there, here) if key in self.images else None
            if wide is not None:
                says = f"the values of every channel have {wide:.3g} times the spread they had in training"
                return says, self.places.get(key), {"factor": wide, "channels": float(len(here.mean))}
            if min(here.examples, there.examples) < SURE:
                continue
            even = self._evened(key)
            if even is not None:
                return even
            off = all_off(there, here) if key in self.images else None
            if off is not None and (off > FAR_OFF or not self._changed_by_chance()):
                says = (
                    f"the mean of every channel is shifted by {off:.2g} standard deviations or more, with the "
                    "same spread"
                )
                return says, self.places.get(key), {"shift": off, "channels": float(len(here.mean))}
            some = some_columns(there, here)
            if some is not None:
                names = ", ".join(map(str, some[1][:6]))
                says = (
                    f"columns {names} have {some[0]:.3g} times the spread they had in training, and the "
                    "others are unchanged"
                )
                return says, self.places.get(key), {"factor": some[0], "columns": float(len(some[1]))}
            found = one_step(there, here)
            if found is not None:
                what = f"a factor of {found[1]:.3g}" if found[0] == "factor" else "a shift of the means alone"
                says = f"{what} over all columns separates the evaluated inputs from those of training"
                return says, self.places.get(key), {found[0]: found[1], "columns": float(len(here.mean))}
        return None

    def _changed_by_chance(self) -> bool:
        """Whether training rows come back as others: brightness that only rises moves the mean by design."""
        loader = self.feed.loaders.get(self.feed.training) if self.feed.training is not None else None
        return loader is not None and loader.later >= AGAIN and loader.known < loader.later / 2

    def _evened(self, key: Key) -> tuple[str, Place | None, dict[str, float]] | None:
        """Examples that are brought to one size each on one side alone."""
        both = (self.sizes.get((key[0], TRAINING), []), self.sizes.get(key, []))
        trained, other = ([size for size in sizes if math.isfinite(size)] for sizes in both)
        if min(len(trained), len(other)) < SURE:
            return None
        here, there = spread(trained), spread(other)
        if min(here, there) > EVEN or max(here, there) < NOT_EVEN:
            return None
        sides = ("training", "evaluation") if here < there else ("evaluation", "training")
        says = f"every example of {sides[0]} is normalised to one length, those of {sides[1]} are not"
        return says, self.places.get(key), {"spread_in_training": here, "spread_in_evaluation": there}

    def _outside(self) -> Answer | None:
        held = self.ranges.outside()
        if held is None:
            return None
        (low, high), (least, most) = held.training, held.evaluation
        says = (
            f"input {held.number} of the model was between {low:.3g} and {high:.3g} in training, and is "
            f"between {least:.3g} and {most:.3g} in evaluation"
        )
        figures = {"input": held.number, "training_high": high, "evaluation_high": most, "evaluations": held.calls}
        if held.fed_back:
            says = f"fed back into the model, its own predictions diverge: {says}"
            return Saw("runs_away", **figures).at(self.loss_place, held.place).saying(says)
        return Saw("outside", **figures).at(held.place).saying(says)

    def read(self) -> Answer:
        outside = self._outside()
        if outside is not None:
            return outside
        found: list[tuple[float, Reading, tuple[Place | None, ...]]] = []
        for key, sums in self.evaluation.items():
            trained = self.training.get((key[0], TRAINING))
            size = (
                self.feed.loaders[self.feed.training].source.size if self.feed.training in self.feed.loaders else None
            )
            here, there = sums.moments(), trained.moments(size) if trained else None
            if here is None or there is None or min(here.examples, there.examples) < FEWEST:
                continue
            shift, channel = largest_shift(there, here)
            reading = Reading(
                largest_shift=shift,
                channel=channel,
                training_mean=float(there.mean[channel]),
                training_deviation=float(there.std[channel]),
                evaluation_mean=float(here.mean[channel]),
                evaluation_deviation=float(here.std[channel]),
                channels=len(here.mean),
                examples=here.examples,
            )
            found.append((shift, reading, (self.places.get(key), self.places.get((key[0], TRAINING)))))
        if not found:
            return Unclear("no evaluation of the trained model on float inputs was seen beside its training")
        _, reading, places = max(found, key=lambda item: item[0])
        step = self._one_step()
        if step is not None:
            says, place, figures = step
            return Saw("one_step_apart", **figures).at(place).saying(says)
        return reading.at(*dict.fromkeys(place for place in places if place is not None))


def sizes_of(tensor: torch.Tensor) -> list[float]:
    """The root mean square of each example, where an example has enough values for that to say something."""
    if tensor.dim() < 2 or tensor[0].numel() < VALUES_EACH or tensor.numel() > MOST_VALUES:
        return []
    return [float(size) for size in tensor.detach().float().flatten(1).square().mean(1).sqrt()[:SIZES]]


def spread(sizes: list[float]) -> float:
    """The deviation of the sizes over their mean."""
    middle = float(np.mean(sizes))
    return float(np.std(sizes)) / middle if middle > 0 else 0.0


def one_step(training: Moments, other: Moments) -> tuple[str, float] | None:
    """Whether a subtraction or a factor over all columns tells the sets apart, with its size; columns that hardly vary
    do not count. Sets that hold other things differ in both at once."""
    varied = training.std > 0.1 * float(np.sqrt((training.std**2).mean()))
    if int(varied.sum()) < COLUMNS:
        return None
    mean, std, means, stds = training.mean[varied], training.std[varied], other.mean[varied], other.std[varied]
    noise = ERRORS * np.hypot(training.mean_error, other.mean_error)[varied]
    ratio = np.maximum(stds, 1e-12) / std
    middle = float(np.median(ratio))
    alike = float((np.abs(ratio / middle - 1) < ALIKE).mean())
    moved = float((np.abs(mean - means) - noise > std).mean())
    if alike < MOST_COLUMNS:
        return None
    if abs(math.log(middle)) > math.log(FACTOR):
        return "factor", middle
    steps = (means - mean) / std
    own = float(steps.std()) > UNEVEN * float(np.abs(steps).mean())  # columns of one series drift together
    return ("shift", float(np.median(np.abs(steps)))) if moved > MOVED and own else None


def some_columns(training: Moments, other: Moments) -> tuple[float, list[int]] | None:
    """Columns that are wider or narrower by one large factor, the same for all of them, while the others keep their
    deviation: another unit. One column alone may have a few values far out."""
    varied = training.std > 1e-3 * float(np.sqrt((training.std**2).mean()))
    ratio = np.where(varied, np.maximum(other.std, 1e-12) / np.maximum(training.std, 1e-12), 1.0)
    off = varied & (np.abs(np.log(ratio)) > math.log(FACTOR))
    rest = varied & ~off
    if int(off.sum()) < 2 or not rest.any() or float((np.abs(ratio[rest] - 1) < ALIKE).mean()) < MOST_COLUMNS:
        return None
    middle = float(np.median(ratio[off]))
    if not (np.abs(ratio[off] / middle - 1) < ONE_UNIT).all():
        return None
    return middle, [int(column) for column in np.flatnonzero(off)]


def all_off(training: Moments, other: Moments) -> float | None:
    """By how many deviations at least each channel of a picture has moved, its spread being kept: an inversion or a
    subtraction that stands on one side."""
    if float(training.std.min()) <= 0.0:
        return None
    noise = ERRORS * np.hypot(training.mean_error, other.mean_error)
    moved = (np.abs(training.mean - other.mean) - noise) / training.std
    alike = np.abs(np.maximum(other.std, 1e-12) / training.std - 1) < ALIKE
    return float(moved.min()) if alike.all() and float(moved.min()) > OFF else None


def all_wider(training: Moments, other: Moments) -> float | None:
    """The factor by which the values of every channel of a picture are wider or narrower, where it is large and the
    same for all of them: a division that stands on one side."""
    if float(training.std.min()) <= 0.0 or float(other.std.min()) <= 0.0:
        return None
    ratio = other.std / training.std
    middle = float(np.median(ratio))
    same = (np.abs(ratio / middle - 1) < ALIKE).all()
    return middle if same and abs(math.log(middle)) > math.log(FACTOR) else None


def largest_shift(training: Moments, other: Moments) -> tuple[float, int]:
    """The largest difference of a mean or a deviation in training deviations, less what sampling explains."""
    typical = float(np.sqrt((training.std**2).mean()))
    scale = np.maximum(training.std, 0.1 * typical)
    if typical == 0.0:
        scale = np.maximum(np.abs(training.mean), 1e-12)
    mean_noise = ERRORS * np.hypot(training.mean_error, other.mean_error)
    std_noise = ERRORS * np.hypot(training.std_error, other.std_error)
    means = np.maximum(np.abs(training.mean - other.mean) - mean_noise, 0.0) / scale
    deviations = np.maximum(np.abs(training.std - other.std) - std_noise, 0.0) / scale
    shift = np.maximum(means, deviations)
    channel = int(np.argmax(shift))
    return float(shift[channel]), channel
