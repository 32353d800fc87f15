"""Loops with one fault of the training loop each, in several spellings."""

# mypy: disable-error-code="no-untyped-call"
# torch leaves Tensor.backward without types, and these loops call little else.

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from loops_training import Backbone, Loop, accumulated, adam, amp, blobs, frozen, in_order, loader, mlp, validate
from torch import nn

schedulers = torch.optim.lr_scheduler
part = functools.partial


def never_cleared_in_a_closure() -> None:
    x, y = blobs()
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def closure() -> torch.Tensor:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    for _ in range(5):
        optimizer.step(closure)


def judge_never_cleared() -> None:
    maker, judge = nn.Linear(4, 6), mlp(0.0)
    made = torch.optim.SGD(maker.parameters(), lr=0.01)
    judged = torch.optim.SGD(judge.parameters(), lr=0.01)
    for x, _ in loader():
        F.cross_entropy(judge(x), torch.zeros(len(x)).long()).backward()
        judged.step()
        made.zero_grad()
        F.cross_entropy(judge(maker(torch.randn(len(x), 4))), torch.zeros(len(x)).long()).backward()
        made.step()


def step_without_backward() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader():
        F.cross_entropy(model(x), y)
        optimizer.step()


def step_behind_a_window_too_long() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        for i, (x, y) in enumerate(loader()):
            (F.cross_entropy(model(x), y) / 32).backward()
            if (i + 1) % 32 == 0:
                optimizer.step()
                optimizer.zero_grad()


def one_of_two_never_steps() -> None:
    maker, judge = nn.Linear(4, 6), mlp(0.0)
    made = torch.optim.SGD(maker.parameters(), lr=0.01)
    judged = torch.optim.SGD(judge.parameters(), lr=0.01)
    for x, _ in [batch for _ in range(3) for batch in loader()]:
        judged.zero_grad()
        F.cross_entropy(judge(x), torch.zeros(len(x)).long()).backward()
        judged.step()
        made.zero_grad()
        F.cross_entropy(judge(maker(torch.randn(len(x), 4))), torch.ones(len(x)).long()).backward()


def eval_never_undone(inner: bool = False) -> None:
    model: Any = nn.Sequential(mlp(), nn.Identity()) if inner else mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    validation = loader(30, 60)
    model.train()
    for _ in range(3):
        for x, y in loader():
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        (model[0] if inner else model).eval()
        with torch.no_grad():
            for x, y in validation:
                F.cross_entropy(model(x), y)


def eval_from_the_start() -> None:
    model = mlp(norm=True).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in loader():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def validated_in_one_go(scored: bool, by_loader: bool) -> None:
    x, y = blobs()
    others, answers = x[80:], y[80:]

    def check(model: nn.Module) -> None:
        with torch.no_grad():
            out = model(others)
            if scored:
                F.cross_entropy(out, answers)
            else:
                (out.argmax(1) == answers).float().mean()

    batches: Any = loader() if by_loader else [(x[:80], y[:80])]
    in_order(batches=batches, epochs=6, each_epoch=check)


def part_without_graph(inference: bool = False) -> None:
    class Cut(Backbone):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.inference_mode() if inference else torch.no_grad():
                features = self.body(x)
            out: torch.Tensor = self.head(features.clone())
            return out

    in_order(model=Cut(), optimizer=adam)


def guarded_backward() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.set_grad_enabled(False)
    try:
        for x, y in loader():
            loss = F.cross_entropy(model(x), y)
            if loss.requires_grad:
                loss.backward()
            optimizer.step()
    finally:
        torch.set_grad_enabled(True)


def loss_made_to_require_grad() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in loader():
        with torch.no_grad():
            out = model(x)
        loss = F.cross_entropy(out, y).requires_grad_(True)
        loss.backward()
        optimizer.step()


def encoder_under_no_grad() -> None:
    encoder, head = mlp(), nn.Linear(3, 3)
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.05)
    for x, y in loader():
        with torch.no_grad():
            features = encoder(x)
        optimizer.zero_grad()
        F.cross_entropy(head(features), y).backward()
        optimizer.step()


def head_replaced() -> None:
    model = mlp()
    optimizer = adam(model)
    model[-1] = nn.Linear(16, 3)
    in_order(model=model, optimizer=lambda _: optimizer)


def decoder_forgotten() -> None:
    encoder, decoder = nn.Linear(6, 3), nn.Linear(3, 6)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-2)
    for x, _ in loader():
        optimizer.zero_grad()
        F.mse_loss(decoder(encoder(x)), x).backward()
        optimizer.step()


def freed_after_the_optimizer_was_made(later: bool = False) -> None:
    """An encoder that an earlier phase trained, then frozen, then set free: the optimiser of this phase lacks it."""
    encoder, decoder, head = nn.Linear(6, 4), nn.Linear(4, 6), nn.Linear(4, 3)
    first = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=1e-2)
    for x, _ in loader():
        first.zero_grad()
        F.mse_loss(decoder(encoder(x)), x).backward()
        first.step()
    encoder.requires_grad_(False)
    model = nn.Sequential(encoder, nn.ReLU(), head)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for epoch in range(16):
        if epoch == 8:
            encoder.requires_grad_(True)
            if later:
                optimizer.add_param_group({"params": list(encoder.parameters())})
        for x, y in loader():
            model.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def copy_is_trained() -> None:
    model = mlp()
    optimizer = adam(model)
    in_order(model=copy.deepcopy(model), optimizer=lambda _: optimizer)


def target_network_is_trained() -> None:
    """Both networks are called, the target without a graph, and the optimiser holds the wrong one of them."""
    online, target = mlp(), mlp()
    optimizer = adam(target)
    for x, y in loader():
        with torch.no_grad():
            aims = target(x).max(1).values
        optimizer.zero_grad()
        F.mse_loss(online(x).gather(1, y[:, None]).squeeze(1), aims).backward()
        optimizer.step()


def all_frozen_but_one_bias() -> None:
    model = mlp()
    model.requires_grad_(False)
    model[-1].bias.requires_grad_(True)
    in_order(model=model, optimizer=adam)


def optimizer_of_frozen_parameters() -> None:
    model = Backbone()
    model.body.requires_grad_(False)
    in_order(model=model, optimizer=lambda held: torch.optim.SGD(held.body.parameters(), lr=0.05))


def built_each_step() -> None:
    model = mlp()
    for x, y in loader():
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def built_each_epoch(epochs: int = 5, falling: float = 1.0) -> None:
    model = mlp()
    for epoch in range(epochs):
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2 * falling**epoch, momentum=0.9)
        for x, y in loader(40):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def scheduled(make: Callable[[Any], Any], order: str = "zero forward backward step schedule", epochs: int = 6) -> Loop:
    return part(in_order, order, scheduler=make, epochs=epochs)


def warmed(warm: int, rest: int) -> Callable[[Any], Any]:
    """A warm-up, then a cosine."""

    def make(optimizer: Any) -> Any:
        parts = [schedulers.LinearLR(optimizer, 0.1, total_iters=warm), schedulers.CosineAnnealingLR(optimizer, rest)]
        return schedulers.SequentialLR(optimizer, parts, [warm])

    return make


def one_cycle_per_epoch() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    batches = loader()
    cycle = schedulers.OneCycleLR(optimizer, max_lr=0.1, epochs=6, steps_per_epoch=len(batches))
    in_order(model=model, optimizer=lambda _: optimizer, batches=batches, epochs=6, each_epoch=lambda _: cycle.step())


def warm_up_per_epoch(calls: int = 500, epochs: int = 8) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    warm_up = schedulers.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / calls))
    in_order(model=model, optimizer=lambda _: optimizer, epochs=epochs, each_epoch=lambda _: warm_up.step())


class Tied(nn.Module):
    """One table embeds what is clicked and scores what may come next."""

    def __init__(self, freeze: bool, bottleneck: bool = False) -> None:
        super().__init__()
        self.items = nn.Embedding.from_pretrained(torch.randn(20, 8).cumsum(0), freeze=freeze)
        self.body = nn.GRU(8, 8, batch_first=True)
        self.back = nn.Linear(8, 8)
        if bottleneck:
            self.back.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.matmul(self.back(self.body(self.items(x))[0]), self.items.weight.t())


def table_of_scores(freeze: bool, bottleneck: bool = False) -> None:
    model = Tied(freeze, bottleneck)
    optimizer = torch.optim.Adam([held for held in model.parameters() if held.requires_grad])
    for _ in range(16):
        clicks = torch.randint(0, 20, (6, 5))
        optimizer.zero_grad()
        F.cross_entropy(model(clicks[:, :-1]).flatten(0, 1), clicks[:, 1:].flatten()).backward()
        optimizer.step()


def clip_from_a_used_generator() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    parameters = model.parameters()
    list(parameters)
    for x, y in loader():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()


def losses_summed(kind: str = "total") -> None:
    model, total, kept = mlp(), torch.zeros(()), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in loader():
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        if kind == "total":
            total = total + loss
        elif kind == "losses":
            kept.append(loss)
        else:
            kept.append(out)


def state_carried_over() -> None:
    cell, head = nn.GRUCell(6, 8), nn.Linear(8, 3)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.05)
    state = torch.zeros(12, 8)
    for x, y in loader():
        state = cell(x, state)
        loss = F.cross_entropy(head(state), y)
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()


def validation_with_graphs() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    total = torch.zeros(())
    for _ in range(3):
        for x, y in loader(40):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        total = torch.zeros(())
        for x, y in loader():
            total = total + F.cross_entropy(model(x), y)


def errors_caught(where: str) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for i, (x, y) in enumerate(loader()):
        try:
            if where == "loss" and i % 3 == 2:
                y = y + 2
            if (where == "model" and i % 3 == 2) or (where == "first call" and i == 0):
                x = x[:, :-1]
            loss = F.cross_entropy(model(x), y)
            if where == "backward" and i % 2:
                loss = loss.detach()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        except (RuntimeError, IndexError):
            continue


def hidden_overwritten(how: str) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = torch.tanh(self.first(x))
            out: torch.Tensor = self.second(hidden)
            if how == "data":
                hidden.data.mul_(0.5)
            elif how == "numpy":
                hidden.detach().numpy()[:] = 0.0
            self.kept = hidden
            return out

    in_order(model=Net(), epochs=1)


def guarded_write() -> None:
    model = mlp()
    for x, y in loader():
        hidden = torch.sigmoid(model(x))
        loss = F.cross_entropy(hidden, y)
        hidden *= 2
        try:
            loss.backward()
        except RuntimeError:
            break


class Shrinking(torch.utils.data.Dataset[Any]):
    def __init__(self) -> None:
        self.x, self.y = blobs(36)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        self.x[i] /= 25
        return self.x[i], self.y[i]


def dataset_shrinks() -> None:
    in_order(batches=torch.utils.data.DataLoader(Shrinking(), batch_size=12), epochs=4)


def decays(optimizer: Callable[[Any], Any]) -> Loop:
    return part(in_order, optimizer=lambda model: optimizer(model.parameters()), epochs=1)


def gradient_rises(factor: float) -> None:
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for i, (x, y) in enumerate(loader()):
        optimizer.zero_grad()
        (F.cross_entropy(model(x), y) * (factor if i == 8 else 1.0)).backward()
        optimizer.step()


def half_weights(dtype: torch.dtype, rate: float) -> None:
    x, y = blobs()
    model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3)).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(8):
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(dtype)), y).backward()
        optimizer.step()


def small_gradients_in_half(scaled: bool = False) -> None:
    """The loss is tiny, so that its gradients fall below what float16 can hold, unless they are scaled."""
    x, y = blobs()
    model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(6):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(x)
        loss = F.cross_entropy(out.float(), y) * 1e-5
        (loss * 2.0**16 if scaled else loss).backward()
        if scaled:
            for p in model.parameters():
                if p.grad is not None:
                    p.grad.mul_(2.0**-16)
        optimizer.step()


Fire = tuple[str, str, Loop, str]
"""Test, outcome, loop, and what stands on the line that is named ("" where none is)."""

FAULTY: list[Fire] = [
    ("event_order", "no_zero_grad", part(in_order, "forward backward step"), "loss.backward()"),
    ("event_order", "no_zero_grad", never_cleared_in_a_closure, "loss.backward()"),
    ("event_order", "no_zero_grad", judge_never_cleared, ""),
    ("event_order", "zeroed_before_step", part(in_order, "forward backward zero step"), "optimizer.zero_grad()"),
    (
        "event_order",
        "zeroed_before_step",
        part(in_order, "forward backward zero_in_place step"),
        "optimizer.zero_grad(",
    ),
    ("event_order", "zeroed_before_step", part(in_order, "forward backward model_zero step"), "model.zero_grad()"),
    ("event_order", "zeroed_before_step", part(in_order, "forward backward by_hand step"), "optimizer.step()"),
    ("event_order", "step_before_backward", part(in_order, "zero forward step backward"), "optimizer.step()"),
    (
        "event_order",
        "step_before_backward",
        part(in_order, "forward step zero backward", nn.Linear(6, 3)),
        "optimizer.step()",
    ),
    ("event_order", "step_before_backward", part(in_order, "forward step backward zero"), "optimizer.step()"),
    ("event_order", "step_before_backward", step_without_backward, "optimizer.step()"),
    ("event_order", "no_step", part(in_order, "zero forward backward"), "loss.backward()"),
    ("event_order", "no_step", step_behind_a_window_too_long, ".backward()"),
    ("event_order", "no_step", one_of_two_never_steps, ".backward()"),
    ("mode_in_training", "eval", eval_never_undone, "for x, y in loader():"),
    ("mode_in_training", "eval", part(eval_never_undone, inner=True), "for x, y in loader():"),
    ("mode_in_training", "eval", eval_from_the_start, "model = mlp(norm=True).eval()"),
    ("mode_in_validation", "train", part(in_order, each_epoch=validate("train")), "(model(x).argmax"),
    ("mode_in_validation", "train", part(in_order, each_epoch=validate("train", grad=True)), "(model(x).argmax"),
    ("mode_in_validation", "train", part(validated_in_one_go, True, False), "out = model(others)"),
    ("mode_in_validation", "train", part(validated_in_one_go, True, True), "out = model(others)"),
    ("mode_in_validation", "train", part(validated_in_one_go, False, True), "out = model(others)"),
    ("grad_mode_in_training", "off", part_without_graph, "features = self.body(x)"),
    ("grad_mode_in_training", "off", part(part_without_graph, inference=True), "features = self.body(x)"),
    ("grad_mode_in_training", "off", guarded_backward, "F.cross_entropy(model(x), y)"),
    ("grad_mode_in_training", "off", loss_made_to_require_grad, "out = model(x)"),
    ("grad_mode_in_training", "off", encoder_under_no_grad, "features = encoder(x)"),
    ("optimizer_coverage", "missing", head_replaced, "torch.optim.Adam"),
    ("optimizer_coverage", "missing", decoder_forgotten, "torch.optim.Adam"),
    ("optimizer_coverage", "missing", freed_after_the_optimizer_was_made, "torch.optim.Adam"),
    ("optimizer_coverage", "other_model", copy_is_trained, "torch.optim.Adam"),
    ("optimizer_coverage", "other_model", target_network_is_trained, "torch.optim.Adam"),
    ("requires_grad_flags", "frozen", all_frozen_but_one_bias, "torch.optim.Adam"),
    ("requires_grad_flags", "frozen", part(frozen, "everything"), "torch.optim.Adam"),
    ("requires_grad_flags", "frozen", optimizer_of_frozen_parameters, "torch.optim.SGD"),
    ("parameters_changed", "none", part(in_order, "forward backward zero step"), ""),
    ("parameters_changed", "none", copy_is_trained, ""),
    ("parameters_changed", "some_never", head_replaced, ""),
    ("parameters_changed", "some_never", all_frozen_but_one_bias, ""),
    ("optimizer_rebuilt", "rebuilt", built_each_step, "torch.optim.Adam"),
    ("optimizer_rebuilt", "rebuilt", built_each_epoch, "torch.optim.SGD"),
    ("optimizer_rebuilt", "rebuilt", part(built_each_epoch, 3), "torch.optim.SGD"),
    ("scheduler_steps", "wrong_cadence", scheduled(lambda o: schedulers.StepLR(o, 2)), "scheduler.step()"),
    ("scheduler_steps", "wrong_cadence", scheduled(lambda o: schedulers.ExponentialLR(o, 0.7)), "scheduler.step()"),
    ("scheduler_steps", "wrong_cadence", scheduled(lambda o: schedulers.MultiStepLR(o, [2, 4, 5])), "scheduler.step()"),
    ("scheduler_steps", "wrong_cadence", scheduled(lambda o: schedulers.CosineAnnealingLR(o, 6)), "scheduler.step()"),
    ("scheduler_steps", "wrong_cadence", scheduled(warmed(1, 5)), "scheduler.step()"),
    ("scheduler_steps", "wrong_cadence", one_cycle_per_epoch, "cycle.step()"),
    ("scheduler_steps", "wrong_cadence", warm_up_per_epoch, "warm_up.step()"),
    ("scheduler_steps", "wrong_cadence", part(warm_up_per_epoch, 100, 16), "warm_up.step()"),
    ("requires_grad_flags", "frozen_head", part(table_of_scores, freeze=True), ""),
    (
        "scheduler_steps",
        "before_optimizer",
        scheduled(lambda o: schedulers.ExponentialLR(o, 0.94), "schedule zero forward backward step"),
        "scheduler.step()",
    ),
    (
        "scheduler_steps",
        "before_optimizer",
        scheduled(lambda o: schedulers.ExponentialLR(o, 0.94), "zero forward backward schedule step"),
        "scheduler.step()",
    ),
    ("accumulation_scaling", "unscaled", part(accumulated, divide=False), "loss.backward()"),
    ("accumulation_scaling", "unscaled", part(accumulated, divide=False, clip=True), "loss.backward()"),
    ("clip_activity", "always", part(in_order, "zero forward backward clip step", epochs=6, limit=1e-3), "clip_grad"),
    ("clip_position", "misplaced", part(in_order, "zero clip forward backward step"), "clip_grad_norm_"),
    ("clip_position", "misplaced", part(in_order, "zero forward backward step clip"), "clip_grad_norm_"),
    ("clip_position", "misplaced", part(amp, clip_first=True), "clip_grad_norm_"),
    ("clip_position", "misplaced", part(amp, clip_first=True, fused=True), "clip_grad_norm_"),
    ("clip_position", "misplaced", clip_from_a_used_generator, "clip_grad_norm_"),
    ("graph_growth", "retained", losses_summed, "F.cross_entropy"),
    ("graph_growth", "retained", part(losses_summed, "losses"), "F.cross_entropy"),
    ("graph_growth", "retained", part(losses_summed, "outputs"), "F.cross_entropy"),
    ("graph_growth", "retained", state_carried_over, "F.cross_entropy"),
    ("graph_growth", "retained", validation_with_graphs, ""),
    ("batch_norm_batch", "signs_only", part(in_order, model=mlp(norm=True), batches=loader(2)), ""),
    ("batch_norm_batch", "tiny", part(in_order, model=mlp(norm=True), batches=loader(4)), ""),
    ("swallowed_exceptions", "caught", part(errors_caught, "loss"), "F.cross_entropy"),
    ("swallowed_exceptions", "caught", part(errors_caught, "backward"), "loss.backward()"),
    ("swallowed_exceptions", "caught", part(errors_caught, "model"), "model(x)"),
    ("inplace_writes", "corrupting", part(hidden_overwritten, "data"), "self.second(hidden)"),
    ("inplace_writes", "corrupting", part(hidden_overwritten, "numpy"), "self.second(hidden)"),
    ("inplace_writes", "corrupting", guarded_write, "loss.backward()"),
    ("inplace_writes", "corrupting", dataset_shrinks, ""),
    ("update_ratio", "zero", part(in_order, "forward backward zero step"), ""),
    ("update_ratio", "tiny", part(in_order, optimizer=lambda m: torch.optim.Adam(m.parameters(), lr=1e-7)), ""),
    ("update_ratio", "huge", part(in_order, optimizer=lambda m: torch.optim.Adam(m.parameters(), lr=1.0)), ""),
    ("decay_against_gradient", "decay_dominates", decays(lambda p: torch.optim.SGD(p, lr=1e-3, weight_decay=30.0)), ""),
    ("decay_against_gradient", "decay_dominates", decays(lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=50.0)), ""),
    ("gradient_explodes", "explodes", part(gradient_rises, 1e4), ""),
    ("gradient_explodes", "explodes", part(gradient_rises, float("inf")), ""),
    ("half_precision", "underflow", part(half_weights, torch.bfloat16, 1e-4), ""),
    ("half_precision", "underflow", part(half_weights, torch.float16, 1e-5), ""),
    ("half_precision", "underflow", small_gradients_in_half, ""),
]
