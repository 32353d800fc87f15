"""Does the model train better on real inputs than on noise of the same shape?

Trains copies from the same weights: on the inputs as they are, on noise of their scale, on inputs of other examples,
and on zeros. Noise and other examples are redrawn at every step, so that they cannot be memorised. A third of the
examples is held out, and the losses on it are compared as well.

Why it matters: if noise does as well, the output does not use the inputs, and no tuning of the model helps.
Cannot tell: whether the information is lost in the data, on the way through the network, or by labels that do not
belong to it.
Silent when: real inputs end clearly lower. Unclear when they end a little lower, when only memorising sets them apart
and there are few examples to show more, and when the loss makes its target from the inputs.
Sources: random-input-same-loss
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import nn

from clew.exams.batches import Batch, is_values, mapped, rows, tensors
from clew.exams.checks._data_runs import RATES, Feed, Pool, level, pool_of, starting, trained_parameters
from clew.exams.checks._data_tables import BESIDE, inputs_of, is_label, named, named_seldom, target_of
from clew.exams.checks.label_signal import OWN_TASK, tasks
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear

STEPS = 60
CHUNK = 10
KINDS = ("noise", "permuted", "zero")
FEWEST = 8
ENOUGH = 96
SURELY_ALIKE, ALIKE = 1.01, 1.05
SLOWER = 0.8


class Trial(NamedTuple):
    """The level of the training loss, and the best held-out loss on the way."""

    fitted: float
    held_out: float


@exam("input_ablation", needs=("loss",), seconds=5.0, steps=(len(RATES) + len(KINDS)) * STEPS)
def examine(lab: Lab) -> Answer:
    pool = pool_of(lab.batches)
    target = target_of(pool.batch) if pool is not None and target_of(lab.batch) is not None else None
    if pool is None or target is None:
        return Unclear("the target is computed from the inputs, so noise would change both")
    if pool.examples < FEWEST:
        return Unclear(f"{pool.examples} examples are too few to compare")
    seldom = named_seldom(inputs_of([pool.batch]))
    if seldom:
        return Unclear(seldom)
    model = starting(lab, pool)
    if not trained_parameters(model):
        return Unclear("no parameter of the model takes a gradient")
    bench = Bench(lab, pool, model)
    tried = {rate: bench.run("real", rate) for rate in RATES}
    rate = min(tried, key=lambda rate: _least(tried[rate].held_out))
    real = tried[rate]
    if not math.isfinite(real.fitted) or min(real) <= 0:
        return Unclear(f"the loss on the real inputs ends at {real.fitted:.3g}, so ratios to it are not informative")
    others = {kind: bench.run(kind, rate) for kind in KINDS}
    fitted = min(_least(trial.fitted) for trial in others.values()) / real.fitted
    held_out = min(_least(trial.held_out) for trial in others.values()) / real.held_out
    figures = {f"{kind}_loss": trial.fitted for kind, trial in others.items()}
    if fitted > ALIKE >= held_out and pool.examples < ENOUGH:
        return Unclear(
            "real inputs are memorised and noise is not, but both do equally well on held-out examples, and "
            f"{pool.examples} examples are too few to tell why"
        )
    if held_out < SLOWER:
        return Unclear(
            f"in {STEPS} steps real inputs do worse than noise or zeros ({real.held_out:.3g} against "
            f"{held_out * real.held_out:.3g} on held-out examples): they are learned slowly, which does not "
            "show whether they matter"
        )
    if SURELY_ALIKE < held_out <= ALIKE:
        return Unclear(
            f"on held-out examples real inputs do {100 * (held_out - 1):.0f} % better than noise, other "
            "examples or zeros, which may be a weak relation or none"
        )
    if held_out <= SURELY_ALIKE and tasks(lab):
        return Unclear(OWN_TASK)
    return Reading(
        noise_over_real=held_out,
        fitted_ratio=fitted,
        real_loss=real.fitted,
        real_held_out=real.held_out,
        rate=rate,
        examples=pool.examples,
        **figures,
    )


class Bench:
    """The same start, the same steps, the same held-out rows for every kind of input."""

    def __init__(self, lab: Lab, pool: Pool, model: nn.Module) -> None:
        self.lab, self.pool, self.model = lab, pool, model
        self.state = {name: value.clone() for name, value in model.state_dict().items()}
        order = torch.randperm(pool.examples, generator=lab.generator())
        cut = max(1, pool.examples // 3)
        self.held_out, self.training = order[:cut], order[cut:]

    def run(self, kind: str, rate: float) -> Trial:
        self.model.load_state_dict(self.state)
        draws = self.lab.generator(5)
        feed = self._feed(kind, self.training, draws)
        tests = [self._feed(kind, self.held_out, self.lab.generator(6))(turn) for turn in range(self._turns())]
        losses: list[float] = []
        best = math.inf
        optimizer = torch.optim.Adam(trained_parameters(self.model), lr=rate)
        for start in range(0, STEPS, CHUNK):
            with self.lab.seeded(start):
                for step in range(start, start + CHUNK):
                    self.lab.check(step / STEPS)
                    losses.append(self.lab.one_step(self.model.train(), feed(step), optimizer))
                if not math.isfinite(losses[-1]):
                    return Trial(math.nan, best)
                self.model.eval()
                held = [self.lab.loss_value(self.model, batch) for batch in tests]
            best = min(best, sum(held) / len(held))
        return Trial(level(losses), best)

    def _turns(self) -> int:
        return min(4, -(-len(self.held_out) // self.pool.size))

    def _feed(self, kind: str, index: torch.Tensor, draws: torch.Generator) -> Feed:
        plain = self.pool.feed(index)
        if kind == "real":
            return plain
        return lambda step: changed(plain(step), kind, self.pool, index, draws)


def changed(batch: Batch, kind: str, pool: Pool, index: torch.Tensor, draws: torch.Generator) -> Batch:
    """The batch with other inputs; what says which values count, and labels among the inputs, stay."""
    count = rows(batch)
    other = index[torch.randint(len(index), (count,), generator=draws)]
    parts = iter(list(named(batch.inputs)))
    whole = iter(list(tensors(pool.batch.inputs)))

    def change(tensor: torch.Tensor) -> torch.Tensor:
        name, everything = next(parts).name, next(whole)
        fixed = tensor.dtype == torch.bool or is_label(name) or any(word in name.lower() for word in BESIDE)
        if fixed or not tensor.dim() or tensor.shape[0] != count:
            return tensor
        if kind == "zero":
            return torch.zeros_like(tensor)
        if kind == "permuted":
            return everything[other.to(tensor.device)]
        if is_values(tensor) and not tensor.is_complex():
            drawn = torch.randn(tensor.shape, generator=draws).to(tensor)
            return drawn * everything.std(0, correction=0) + everything.mean(0)
        flat = everything.flatten()
        return flat[torch.randint(flat.numel(), tensor.shape, generator=draws).to(flat.device)]

    return Batch(mapped(batch.inputs, change), batch.target)


def _least(value: float) -> float:
    return value if math.isfinite(value) else math.inf
