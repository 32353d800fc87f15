"""Does the model learn real labels faster than randomly permuted ones?

Trains copies from the same weights on the available batches: one with the labels as they are, three with the labels
permuted over all examples. Compares the quickest of the three, less the spread between them, with the real one over the
second half of the steps.

Why it matters: real labels share structure with their inputs and are the easier lesson. When random ones are learned as
fast, the labels are unrelated to their inputs.
Cannot tell: labels without relation from a model that learns neither set; overfit_one_batch separates these.
Silent when: permuted labels are learned more slowly. Unclear when they are not and there are fewer than 64 examples,
when neither is learned or neither is better than a constant yet, when a permutation changes nearly no label, and when
the loss is not positive.
Sources: labels-match-inputs, random-input-same-loss
"""

from __future__ import annotations

import math

import torch

from clew.exams.batches import Batch, mapped, take
from clew.exams.checks._data_runs import RATES, Pool, level, pool_of, starting, train, trained_parameters
from clew.exams.checks._data_tables import by_example, is_label, labels_of, named, target_of
from clew.exams.checks.learning_curve import against_constant
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear

STEPS = 60
PERMUTATIONS = 3
FEWEST, ENOUGH = 8, 64
ALIKE = 1.05
LEARNED = 0.8
CHANGED = 0.05
BEYOND = 0.97
SAME_GAIN = 0.8
"""Of what real labels gain over blank inputs permuted ones must gain this much to count as learned alike."""


@exam("label_permutation", needs=("loss",), seconds=4.0, steps=(len(RATES) + PERMUTATIONS) * STEPS)
def examine(lab: Lab) -> Answer:
    pool = pool_of(lab.batches)
    target = target_of(pool.batch) if pool is not None and target_of(lab.batch) is not None else None
    if pool is None or target is None:
        return Unclear("the batches hold no label per example")
    if pool.examples < FEWEST:
        return Unclear(f"{pool.examples} examples are too few to permute")
    model = starting(lab, pool)
    if not trained_parameters(model):
        return Unclear("no parameter of the model takes a gradient")
    orders = [torch.randperm(pool.examples, generator=lab.generator(1 + turn)) for turn in range(PERMUTATIONS)]
    changed = min(_changed(target, order) for order in orders)
    if changed < CHANGED:
        return Unclear(f"a permutation changes {100 * changed:.0f} % of the labels, too few to make a difference")
    state = {name: value.clone() for name, value in model.state_dict().items()}
    every = torch.randperm(pool.examples, generator=lab.generator())

    def run(order: torch.Tensor | None, rate: float, steps: int) -> list[float]:
        model.load_state_dict(state)
        given = pool if order is None else pool._replace(batch=relabelled(pool, order))
        with lab.seeded():
            return train(lab, model, given.feed(every), steps, rate)

    over = _over_constant(lab, model)
    curves = {rate: run(None, rate, STEPS) for rate in RATES}
    rate = min(curves, key=lambda rate: _least(level(curves[rate])))
    real = curves[rate]
    if not math.isfinite(level(real)) or level(real) <= 0 or real[0] <= 0:
        return Unclear(f"the loss on the real labels ends at {level(real):.3g}, so ratios to it are not informative")
    steps = _until_learned(real)
    permuted = [level(run(order, rate, steps)) for order in orders]
    quickest = _least(min(permuted) - (max(permuted) - min(permuted)))
    if quickest <= ALIKE * level(real[:steps]) and pool.examples < ENOUGH:
        return Unclear(
            f"permuted labels are learned as fast, which {pool.examples} examples allow by memorisation alone"
        )
    if quickest <= ALIKE * level(real[:steps]) and level(real[:steps]) * over > LEARNED * real[0]:
        return Unclear(
            f"neither set was learned in {steps} steps: the loss went from {real[0]:.3g} to {level(real):.3g}"
        )
    if quickest <= ALIKE * level(real[:steps]):
        without = _without(lab, pool, model, state, every, rate)
        if level(real[:steps]) >= BEYOND * without:
            return Unclear(f"in {steps} steps the model learned no more than it could without inputs")
        if not gains_alike(level(real[:steps]), quickest, without):
            return Unclear(f"real labels are learned slightly faster, in {steps} steps too little to decide")
    return Reading(
        permuted_over_real=quickest / level(real[:steps]),
        real=level(real[:steps]),
        permuted=quickest,
        start=real[0],
        steps=steps,
        rate=rate,
        examples=pool.examples,
    )


def _over_constant(lab: Lab, model: torch.nn.Module) -> float:
    """How many times the error of the best constant the untrained model makes, at least 1: targets far from zero take
    many steps to be met on the average, and the loss falls as much for any labels."""
    labels = labels_of(lab, lab.batches)
    if labels is None or labels.kind != "values":
        return 1.0
    mode = model.training
    error = against_constant(lab, model, lab.batches, labels)
    model.train(mode)
    return max(1.0, error) if error is not None and math.isfinite(error) else 1.0


def _without(
    lab: Lab, pool: Pool, model: torch.nn.Module, state: dict[str, torch.Tensor], every: torch.Tensor, rate: float
) -> float:
    """The loss that is reached with the inputs at zero: what goes beyond it depends on them."""
    model.load_state_dict(state)
    blank = pool._replace(batch=Batch(mapped(pool.batch.inputs, zeroed), pool.batch.target))
    with lab.seeded():
        return _least(level(train(lab, model, blank.feed(every), STEPS, rate)))


def gains_alike(real: float, permuted: float, without: float) -> bool:
    """Whether permuted labels gain about as much as real ones over blank inputs, all as losses."""
    return math.isinf(without) or without - permuted >= SAME_GAIN * (without - real)


def zeroed(tensor: torch.Tensor) -> torch.Tensor:
    """Blank inputs: numbers of words become the first one; masks stay."""
    return tensor if tensor.dtype == torch.bool else torch.zeros_like(tensor)


def _least(value: float) -> float:
    return value if math.isfinite(value) else math.inf


def _until_learned(losses: list[float]) -> int:
    """The steps after which a tenth of the loss is left: later, memorised labels of either kind look alike."""
    for step, loss in enumerate(losses):
        if loss < 0.1 * losses[0]:
            return max(step, 8)
    return len(losses)


def _changed(target: torch.Tensor, order: torch.Tensor) -> float:
    """The share of examples whose label differs afterwards."""
    other = target[order.to(target.device)]
    return float(by_example(other != target).any(1).float().mean())


def relabelled(pool: Pool, order: torch.Tensor) -> Batch:
    """The same inputs with the labels of other examples; labels among the inputs are dealt out too."""
    mixed = take(pool.batch, order)
    if any(True for _ in named(pool.batch.target)):
        return Batch(pool.batch.inputs, mixed.target)
    labels = iter([is_label(part.name) for part in named(pool.batch.inputs)])
    others = iter([part.tensor for part in named(mixed.inputs)])

    def pick(tensor: torch.Tensor) -> torch.Tensor:
        other = next(others)
        return other if next(labels) else tensor

    return Batch(mapped(pool.batch.inputs, pick), pool.batch.target)
