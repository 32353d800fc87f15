"""Does validation contain near copies of training examples?

For every validation example the distance to its nearest training example; for every training example that to its
nearest neighbour among the others. Counts the validation examples that are closer than all but a twentieth of the
training examples are to each other, less the share of training examples for which the same holds.

Why it matters: a score on copies of the training examples measures memorisation.
Cannot tell: harmless similarity from a leak; siblings of one source that are as near to each other inside the training
set, as neighbouring frames are; copies whose original is not in the given batches; crops and mirror images.
Silent when: distances across the split match those within the training set. Unclear below 32 examples on a side.
Sources: leakage-looks-too-good
"""

from __future__ import annotations

import torch

from clew.exams.checks._data_tables import Inputs, inputs_of, some_rows
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear

MOST_TRAINING, MOST_VALIDATION = 1024, 512
FEWEST = 32
MOST_FEATURES = 4096
MOST_POSITIONS = 64
CHUNK = 64
REFERENCE = 0.05


@exam("nearest_neighbour_overlap", needs=("validation",), seconds=2.0)
def examine(lab: Lab) -> Answer:
    training, validation = inputs_of(lab.batches), inputs_of(lab.val_batches)
    if min(training.examples, validation.examples) < FEWEST:
        return Unclear(
            f"{training.examples} training and {validation.examples} validation examples are too few to compare"
        )
    pair = _comparable(training, validation)
    if pair is None:
        return Unclear("training and validation inputs have different kinds")
    ours, theirs = pair
    ours = ours[some_rows(len(ours), MOST_TRAINING, lab.generator()).to(ours.device)]
    theirs = theirs[some_rows(len(theirs), MOST_VALIDATION, lab.generator(1)).to(theirs.device)]
    ours, theirs = _prepared(ours, theirs, lab.generator(2))
    if not bool((ours != ours[:1]).any()):
        return Unclear("all training inputs are the same")
    inside, across = _nearest(lab, ours, ours, own=True), _nearest(lab, theirs, ours, own=False)
    share, limit = near_copies(inside, across)
    return Reading(
        near_copy_share=share,
        distance=limit,
        closest=float(across.min()),
        usual_distance=float(inside.median()),
        training=len(ours),
        validation=len(theirs),
    )


def near_copies(inside: torch.Tensor, across: torch.Tensor) -> tuple[float, float]:
    """The share of `across` at or below the lowest twentieth of `inside`, less what lies there of `inside` itself."""
    limit = inside.double().quantile(REFERENCE)
    share = (across <= limit).double().mean() - (inside <= limit).double().mean()
    return max(0.0, float(share)), float(limit)


def _comparable(training: Inputs, validation: Inputs) -> tuple[torch.Tensor, torch.Tensor] | None:
    if training.values is not None and validation.values is not None:
        if training.values.shape[1] == validation.values.shape[1]:
            return training.values, validation.values
        return None
    if training.tokens is None or validation.tokens is None:
        return None
    size = min(training.tokens.shape[1], validation.tokens.shape[1])
    return training.tokens[:, :size], validation.tokens[:, :size]


def _prepared(
    ours: torch.Tensor, theirs: torch.Tensor, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Features of equal weight, and not too many: a random projection keeps distances to a few per cent."""
    if not ours.is_floating_point():
        stride = max(1, -(-ours.shape[1] // MOST_POSITIONS))
        return ours[:, ::stride], theirs[:, ::stride]
    spread = ours.std(0)
    used = spread > 1e-6 * float(spread.max())
    ours, theirs = (ours / spread.clamp_min(1e-12))[:, used], (theirs / spread.clamp_min(1e-12))[:, used]
    if ours.shape[1] > MOST_FEATURES:
        turn = torch.randn(ours.shape[1], 512, generator=generator).to(ours) / 512**0.5
        ours, theirs = ours @ turn, theirs @ turn
    return ours, theirs


def _nearest(lab: Lab, some: torch.Tensor, others: torch.Tensor, own: bool) -> torch.Tensor:
    """The distance of each row to the nearest of the others; `own`: some are the others, and do not count for
    themselves. Of tokens, the number of positions that differ."""
    found = []
    for start in range(0, len(some), CHUNK):
        lab.check(start / len(some))
        part = some[start : start + CHUNK]
        if part.is_floating_point():
            distance = torch.cdist(part, others)
        else:
            distance = (part[:, None] != others[None]).sum(2).float()
        if own:
            distance[torch.arange(len(part)), torch.arange(start, start + len(part))] = torch.inf
        found.append(distance.min(1).values)
    return torch.cat(found)
