"""Tiny training loops, sound ones and the pieces to break them with. Each takes a fraction of a second."""

# mypy: disable-error-code="no-untyped-call"
# torch leaves Tensor.backward without types, and these loops call little else.

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from clew.case.weigh import on_scale
from clew.knowledge import load
from clew.observe.hooks import watching
from clew.observe.watch import Watch

Loop = Callable[[], Any]


def answers(folder: Path, loop: Loop, *watches: type[Watch]) -> dict[str, dict[str, Any]]:
    """Run a loop under the watches. Every answer has an `outcome`: by its own word, by the table, or "unclear"."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        with watching(folder, list(watches)) as recorder:
            loop()
        found = {answer["test"]: answer for answer in recorder.answers()}
    finally:
        torch.set_num_threads(threads)
    tests = load().tests
    for name, answer in found.items():
        if "unclear" in answer:
            assert "instrument failed" not in answer["unclear"], answer
            answer["outcome"] = "unclear"
        elif "outcome" not in answer:
            scale = tests[name].scale
            assert scale is not None
            answer["outcome"] = on_scale(scale, float(answer["measured"][scale.of]))
    return found


def text_at(answer: dict[str, Any], n: int = 0) -> str:
    """The source line of the nth place that has one."""
    place = [held for held in answer["where"] if "line" in held][n]
    rows = Path(str(place["file"])).read_text().splitlines()
    return rows[int(place["line"]) - 1].strip()


def blobs(n: int = 120, features: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(n, features, generator=torch.Generator().manual_seed(1))
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def loader(batch: int = 12, n: int = 120) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*blobs(n)), batch_size=batch, shuffle=True)


def mlp(dropout: float = 0.2, norm: bool = False) -> nn.Sequential:
    middle: list[nn.Module] = [nn.BatchNorm1d(16)] if norm else []
    return nn.Sequential(nn.Linear(6, 16), *middle, nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 3))


def in_order(
    order: str = "zero forward backward step",
    model: nn.Module | None = None,
    optimizer: Any = None,
    scheduler: Any = None,
    epochs: int = 2,
    batches: Any = None,
    limit: float = 1.0,
    each_epoch: Callable[[nn.Module], None] | None = None,
) -> nn.Module:
    """A loop that does what `order` says for each batch, each action on a line of its own."""
    model = mlp() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05) if optimizer is None else optimizer(model)
    scheduler = scheduler(optimizer) if scheduler is not None else None
    batches = loader() if batches is None else batches
    actions = order.split()
    for _ in range(epochs):
        model.train()
        for x, y in batches:
            for action in actions:
                if action == "forward":
                    loss = F.cross_entropy(model(x), y)
                elif action == "zero":
                    optimizer.zero_grad()
                elif action == "zero_in_place":
                    optimizer.zero_grad(set_to_none=False)
                elif action == "model_zero":
                    model.zero_grad()
                elif action == "by_hand":
                    for p in model.parameters():
                        p.grad = None
                elif action == "fill":
                    for p in model.parameters():
                        if p.grad is not None:
                            p.grad.detach_().zero_()
                elif action == "backward":
                    loss.backward()
                elif action == "clip":
                    nn.utils.clip_grad_norm_(model.parameters(), limit)
                elif action == "step":
                    optimizer.step()
                elif action == "schedule":
                    scheduler.step()
        if each_epoch is not None:
            each_epoch(model)
    return model


def validate(mode: str = "eval", grad: bool = False, batch: int = 20) -> Callable[[nn.Module], None]:
    held = loader(batch, 60)

    def run(model: nn.Module) -> None:
        model.train(mode == "train")
        with nullcontext() if grad else torch.no_grad():
            for x, y in held:
                (model(x).argmax(1) == y).float().mean().item()

    return run


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-2)


# --- sound loops of every kind


def classifier() -> None:
    in_order(optimizer=adam, each_epoch=validate())


def zero_at_the_end() -> None:
    in_order("forward backward step zero")


def zero_by_the_model() -> None:
    in_order("model_zero forward backward step")


def zero_by_hand() -> None:
    in_order("forward by_hand backward step")


def zero_in_place() -> None:
    in_order("zero_in_place forward backward step")


def zero_by_filling() -> None:
    in_order("forward backward step fill")


def clipped() -> None:
    in_order("forward zero backward clip step", limit=5.0)


def accumulated(
    divide: bool = True,
    clip: bool = False,
    by_hand: bool = False,
    reduction: str = "mean",
    kind: Any = torch.optim.SGD,
) -> None:
    model = mlp()
    optimizer = kind(model.parameters(), lr=0.01)
    for _ in range(3):
        for i, (x, y) in enumerate(loader()):
            loss = F.cross_entropy(model(x), y, reduction=reduction)
            if divide:
                loss = loss / 5
            loss.backward()
            if (i + 1) % 5 == 0:
                if by_hand:
                    for p in model.parameters():
                        if p.grad is not None:
                            p.grad /= 5
                if clip:
                    nn.utils.clip_grad_norm_(model.parameters(), 10.0)
                optimizer.step()
                optimizer.zero_grad()


def lbfgs() -> None:
    x, y = blobs()
    model = nn.Linear(6, 3).double()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.double()), y)
        loss.backward()
        return loss

    for _ in range(6):
        optimizer.step(closure)
        scheduler.step()


def sgd_with_closure() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in loader():

        def closure(x: torch.Tensor = x, y: torch.Tensor = y) -> float:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss.item()

        optimizer.step(closure)


def gan(detach: bool = True) -> None:
    maker = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 6))
    judge = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(16, 1))
    average = copy.deepcopy(maker)
    made = torch.optim.Adam(maker.parameters(), lr=2e-3, betas=(0.5, 0.999))
    judged = torch.optim.Adam(judge.parameters(), lr=2e-3, betas=(0.5, 0.999))
    fixed = torch.randn(12, 4)
    for x, _ in [batch for _ in range(2) for batch in loader()]:
        judge.zero_grad()
        F.binary_cross_entropy_with_logits(judge(x), torch.ones(len(x), 1)).backward()
        fake = maker(torch.randn(len(x), 4))
        F.binary_cross_entropy_with_logits(judge(fake.detach() if detach else fake), torch.zeros(len(x), 1)).backward(
            retain_graph=not detach
        )
        judged.step()
        made.zero_grad()
        F.binary_cross_entropy_with_logits(
            judge(fake if detach else maker(torch.randn(len(x), 4))), torch.ones(len(x), 1)
        ).backward()
        made.step()
        with torch.no_grad():
            maker(fixed)
            for slow, fast in zip(average.parameters(), maker.parameters(), strict=True):
                slow.lerp_(fast, 0.1)


def actor_and_critic() -> None:
    actor, critic = mlp(0.0), nn.Sequential(nn.Linear(9, 16), nn.Tanh(), nn.Linear(16, 1))
    target = copy.deepcopy(critic)
    for p in target.parameters():
        p.requires_grad_(False)
    for_actor = torch.optim.Adam(actor.parameters(), lr=1e-3)
    for_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for _ in range(12):
        state, action, reward = torch.randn(16, 6), torch.randn(16, 3), torch.randn(16, 1)
        with torch.no_grad():
            goal = reward + 0.9 * target(torch.cat([state, actor(state)], 1))
        value = F.mse_loss(critic(torch.cat([state, action], 1)), goal)
        for_critic.zero_grad()
        value.backward()
        for_critic.step()
        gain = -critic(torch.cat([state, actor(state)], 1)).mean()
        for_actor.zero_grad()
        gain.backward()
        for_actor.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), critic.parameters(), strict=True):
                slow.mul_(0.95).add_(fast, alpha=0.05)


def reinforce() -> None:
    policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for _ in range(12):
        kept = []
        for _ in range(5):
            choice = torch.distributions.Categorical(logits=policy(torch.randn(4)))
            kept.append(choice.log_prob(choice.sample()))
        optimizer.zero_grad()
        (-torch.stack(kept) * torch.randn(5)).sum().backward()
        optimizer.step()


class Backbone(nn.Module):
    def __init__(self, no_grad: bool = False) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(16, 3)
        self.no_grad = no_grad

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.no_grad:
            with torch.no_grad():
                features = self.body(x)
        else:
            features = self.body(x)
        out: torch.Tensor = self.head(features)
        return out


def frozen(how: str = "filter") -> None:
    model = Backbone(no_grad=how == "no_grad")
    if how != "no_grad":
        model.body.requires_grad_(False)
    held = {
        "filter": [p for p in model.parameters() if p.requires_grad],
        "head": list(model.head.parameters()),
        "no_grad": list(model.head.parameters()),
        "everything": list(model.parameters()),
    }[how]
    optimizer = torch.optim.Adam(held, lr=1e-2)
    for x, y in loader():
        model.train()
        model.body.eval()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def whole_model_in_eval_with_frozen_body() -> None:
    model = Backbone()
    model.body.requires_grad_(False)
    optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-2)
    model.eval()
    for x, y in loader():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def batch_norm_kept_in_eval() -> None:
    model = Backbone()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for x, y in loader():
        model.train()
        model.body[1].eval()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 12)
        self.mix = nn.GRU(12, 12, batch_first=True)
        self.out = nn.Linear(12, 20, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(self.mix(self.embed(tokens))[0])
        return out


def language_model() -> None:
    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))
    for _ in range(25):
        tokens = torch.randint(0, 20, (8, 9))
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten(), label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warm_up.step()


def amp(clip_first: bool = False, fused: bool = False, limit: float = 5.0) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, fused=fused or None)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for x, y in loader():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        if not clip_first:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), limit)
        scaler.step(optimizer)
        scaler.update()


def full_batch() -> None:
    x, y = blobs()
    x, other = x.double()[:80], x.double()[80:]
    model = mlp(norm=True).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(15):
        model.train()
        loss = F.cross_entropy(model(x), y[:80])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            F.cross_entropy(model(other), y[80:]).item()


def pseudo_labels() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for (x, y), (unlabelled, _) in zip(loader(), loader(24, 240), strict=True):
        with torch.no_grad():
            guess = model(unlabelled).softmax(1).argmax(1)
        loss = F.cross_entropy(model(x), y) + 0.1 * F.cross_entropy(model(unlabelled + 0.1), guess)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def byol() -> None:
    online, head = mlp(0.0, norm=True), nn.Linear(3, 3)
    target = copy.deepcopy(online)
    optimizer = torch.optim.SGD([*online.parameters(), *head.parameters()], lr=0.05)
    for x, _ in loader():
        with torch.no_grad():
            goal = target(x + 0.1)
        loss = -F.cosine_similarity(head(online(x)), goal.detach()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
            slow.data.lerp_(fast.data, 0.05)


def monte_carlo_dropout() -> None:
    held = loader(20, 60)

    def sample(model: nn.Module) -> None:
        model.train()
        with torch.no_grad():
            for x, _ in held:
                torch.stack([model(x) for _ in range(5)]).std(0)

    in_order(each_epoch=sample)


def statistics_refreshed() -> None:
    held = loader()

    def refresh(model: nn.Module) -> None:
        model.train()
        with torch.no_grad():
            for x, _ in held:
                model(x)

    in_order(model=mlp(norm=True), batches=held, each_epoch=refresh)


def two_tasks() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for pair in zip(loader(), loader(), strict=True):
        optimizer.zero_grad()
        for x, y in pair:
            F.cross_entropy(model(x), y).backward()
        optimizer.step()


def folds() -> None:
    for _ in range(5):
        in_order(optimizer=adam, epochs=1)


def checkpointed() -> None:
    model = Backbone()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for x, y in loader():
        features = torch.utils.checkpoint.checkpoint(model.body, x.requires_grad_(), use_reentrant=True)
        optimizer.zero_grad()
        F.cross_entropy(model.head(features), y).backward()
        optimizer.step()


def perceptual_loss() -> None:
    judge = mlp(0.0).eval()
    maker = nn.Linear(6, 6)
    optimizer = torch.optim.Adam(maker.parameters(), lr=1e-2)
    for x, _ in loader():
        optimizer.zero_grad()
        F.mse_loss(judge(maker(x)), judge(x)).backward()
        optimizer.step()


def input_optimised() -> None:
    model = mlp(0.0)
    image = torch.zeros(1, 6, requires_grad=True)
    optimizer = torch.optim.Adam([image], lr=0.1)
    for _ in range(8):
        optimizer.zero_grad()
        (-model(image)[0, 0]).backward()
        optimizer.step()


def batches_of_one() -> None:
    in_order(batches=loader(1, 15))


def losses_kept_as_numbers() -> None:
    model, total, kept = mlp(), 0.0, []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    best = torch.tensor(9.0)
    for x, y in loader():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
        kept.append(loss.detach())
        best = loss if loss < best else best


def staged_unfreezing() -> None:
    model = Backbone()
    for stage in range(4):
        model.body[0].requires_grad_(stage > 1)
        optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
        for x, y in loader(24):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def clients_start_over() -> None:
    """Federated averaging: every round restores the shared weights and starts a new optimiser on purpose."""
    model = mlp()
    shared = copy.deepcopy(model.state_dict())
    for _ in range(5):
        model.load_state_dict(shared)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for x, y in loader(40):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def plain_sgd_built_each_step() -> None:
    model = mlp()
    for x, y in loader():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def sparse_complex_and_empty() -> None:
    embed = nn.Embedding(30, 4, sparse=True)
    turn = nn.Parameter(torch.randn(4, dtype=torch.complex64))
    nothing = nn.Parameter(torch.empty(0, 4))
    scale = nn.Parameter(torch.ones(()))
    for_rows = torch.optim.SparseAdam(list(embed.parameters()), lr=1e-2)
    for_rest = torch.optim.Adam([turn, nothing, scale], lr=1e-2)
    for _ in range(12):
        out = (embed(torch.randint(0, 30, (8,))).to(torch.complex64) * turn).abs().sum(1) * scale + nothing.sum()
        for_rows.zero_grad()
        for_rest.zero_grad()
        F.mse_loss(out, torch.ones(8)).backward()
        for_rows.step()
        for_rest.step()


def each_epoch_schedule(kind: str) -> None:
    made = torch.optim.lr_scheduler
    kinds: dict[str, Callable[[Any], Any]] = {
        "steps": lambda held: made.StepLR(held, 3),
        "cosine": lambda held: made.CosineAnnealingLR(held, 8),
        "exponential": lambda held: made.ExponentialLR(held, 0.8),
        "one_cycle": lambda held: made.OneCycleLR(held, 0.1, total_steps=9),
        "warm_up": lambda held: made.LambdaLR(held, lambda epoch: min(1.0, (epoch + 1) / 4)),
    }
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = kinds[kind](optimizer)
    in_order(model=model, optimizer=lambda _: optimizer, epochs=8, each_epoch=lambda _: scheduler.step())


def each_batch_schedule(kind: str) -> None:
    made = torch.optim.lr_scheduler
    kinds: dict[str, Callable[[Any], Any]] = {
        "cosine": lambda held: made.CosineAnnealingLR(held, 40),
        "one_cycle": lambda held: made.OneCycleLR(held, 0.1, total_steps=41),
        "steps": lambda held: made.StepLR(held, 15),
        "warmed": lambda held: made.SequentialLR(
            held, [made.LinearLR(held, 0.1, total_iters=8), made.CosineAnnealingLR(held, 32)], [8]
        ),
        "restarts": lambda held: made.CosineAnnealingWarmRestarts(held, 5),
        "cyclic": lambda held: made.CyclicLR(held, 1e-5, 0.1, 4),
        "linear": lambda held: made.LambdaLR(held, lambda step: max(0.0, 1 - step / 40)),
    }
    in_order("forward zero backward step schedule", scheduler=kinds[kind], epochs=4)


def scheduler_wound_forward() -> None:
    """Resuming: the schedule is brought to its place before the loop, which then runs in the usual order."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    scheduler.step()
    in_order("zero forward backward step schedule", model, lambda _: optimizer, lambda _: scheduler)


SOUND: list[Loop] = [
    classifier,
    zero_at_the_end,
    zero_by_the_model,
    zero_by_hand,
    zero_in_place,
    zero_by_filling,
    clipped,
    accumulated,
    lbfgs,
    sgd_with_closure,
    gan,
    partial(gan, False),
    actor_and_critic,
    reinforce,
    frozen,
    partial(frozen, "head"),
    partial(frozen, "no_grad"),
    whole_model_in_eval_with_frozen_body,
    batch_norm_kept_in_eval,
    language_model,
    amp,
    full_batch,
    pseudo_labels,
    byol,
    monte_carlo_dropout,
    statistics_refreshed,
    two_tasks,
    folds,
    checkpointed,
    perceptual_loss,
    input_optimised,
    batches_of_one,
    losses_kept_as_numbers,
    staged_unfreezing,
    clients_start_over,
    plain_sgd_built_each_step,
    sparse_complex_and_empty,
    *(partial(each_epoch_schedule, kind) for kind in ("steps", "cosine", "exponential", "one_cycle", "warm_up")),
    *(
        partial(each_batch_schedule, kind)
        for kind in ("cosine", "warmed", "one_cycle", "steps", "restarts", "cyclic", "linear")
    ),
    scheduler_wound_forward,
]
