"""What a training step costs under observation, as a ratio to the same step without it.

In one process, short blocks of steps with and without the instruments take turns, so that whatever else the machine
does touches both alike. The step counter stands beyond the dense first steps, where one step in 200 is looked at
closely, or fewer where steps are short. Printed are the medians of a bare step, of a step between samples, of a sampled
step, of a checkpoint, and what follows for the run as a whole: the sampled step's extra time spread over the steps
between two, and a checkpoint every three seconds.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from clew.observe.hooks import Hooks
from clew.observe.recorder import CHECKPOINT_SECONDS, Recorder, spacing
from clew.observe.registry import all_watches

BLOCK = 6
FIRST = 1000
WARM_UP = 80


class Loop(NamedTuple):
    """`step` does one training step on the next batch of `data`."""

    name: str
    target: float
    begin: Callable[[], Callable[[], float]]


def batches(*tensors: torch.Tensor, size: int) -> Iterator[list[torch.Tensor]]:
    """Some short epochs, then long ones: what is looked at in the first epochs only is part of the dense phase."""
    loader = DataLoader(TensorDataset(*tensors), batch_size=size, shuffle=True)
    for _ in range(3):
        yield from islice(loader, WARM_UP // 4)
    while True:
        yield from loader


def mlp() -> Callable[[], float]:
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = batches(torch.randn(64_000, 64), torch.randint(0, 10, (64_000,)), size=64)

    def step() -> float:
        x, y = next(data)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        torch.autograd.backward(loss)
        optimizer.step()
        return loss.item()

    return step


def cnn() -> Callable[[], float]:
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.1), nn.Linear(64 * 16, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data = batches(torch.randn(8192, 3, 32, 32), torch.randint(0, 10, (8192,)), size=48)

    def step() -> float:
        x, y = next(data)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        torch.autograd.backward(loss)
        optimizer.step()
        return loss.item()

    return step


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size, length, width = x.shape
        parts = self.attend(self.norm1(x)).view(size, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(size, length, width))
        out: torch.Tensor = x + self.mlp(self.norm2(x))
        return out


def gpt() -> Callable[[], float]:
    width, length, words = 128, 64, 256
    model = nn.Sequential(
        nn.Embedding(words, width), *(Block(width, 4) for _ in range(4)), nn.LayerNorm(width), nn.Linear(width, words)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100_000)
    tokens = torch.randint(0, words, (16_384, length + 1))
    data = batches(tokens, size=8)

    def step() -> float:
        (rows,) = next(data)
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


LOOPS = (Loop("MLP", 1.15, mlp), Loop("CNN", 1.03, cnn), Loop("GPT", 1.03, gpt))


class Times(NamedTuple):
    bare: list[float]
    between: list[float]
    sampled: list[float]
    checkpoint: list[float]


def timed(step: Callable[[], float], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    step()
    return clock() - start


def measure(loop: Loop, seconds: float, clock: Callable[[], float], folder: str) -> Times:
    torch.manual_seed(0)
    recorder = Recorder(folder, all_watches()[0])
    hooks = Hooks(recorder)
    hooks.install()
    step = loop.begin()
    for _ in range(WARM_UP):
        step()
    recorder.step = FIRST
    times = Times([], [], [], [])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        recorder.next_sample = recorder.step + BLOCK // 2
        recorder._last_checkpoint = time.monotonic()  # measured apart, below
        step()
        for _ in range(BLOCK):
            sampled = recorder.sampled
            (times.sampled if sampled else times.between).append(timed(step, clock))
        hooks.uninstall()
        step()
        times.bare.extend(timed(step, clock) for _ in range(BLOCK))
        hooks.install()
        hooks.settle_attachment()
    start = time.perf_counter()
    for _ in range(5):
        recorder.checkpoint()
    times.checkpoint.append((time.perf_counter() - start) / 5)
    hooks.uninstall()
    if recorder.broken:
        raise SystemExit(f"instruments failed: {recorder.broken}")
    return times


def profile(loop: Loop, folder: str, sampled: bool) -> None:
    """Where the time between samples goes, or that of sampled steps."""
    import cProfile
    import pstats

    recorder = Recorder(folder, all_watches()[0], "every" if sampled else "auto")
    hooks = Hooks(recorder)
    hooks.install()
    step = loop.begin()
    for _ in range(WARM_UP):
        step()
    recorder.step, recorder.next_sample = FIRST, FIRST if sampled else 1 << 40
    step()
    with cProfile.Profile() as held:
        for _ in range(200):
            step()
    hooks.uninstall()
    pstats.Stats(held).sort_stats("tottime").print_stats("clew", 40)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each of the three loops")
    parser.add_argument("--only", choices=[loop.name for loop in LOOPS])
    parser.add_argument("--cpu", action="store_true", help="processor time, for a machine with other work")
    parser.add_argument("--profile", choices=("between", "sampled"), help="show where the time goes instead")
    options = parser.parse_args()
    torch.set_num_threads(1)
    clock = time.thread_time if options.cpu else time.perf_counter
    loops = [loop for loop in LOOPS if options.only in (None, loop.name)]
    if options.profile:
        for loop in loops:
            with tempfile.TemporaryDirectory() as folder:
                profile(loop, folder, options.profile == "sampled")
        return
    print(f"{'loop':<6}{'bare':>10}{'between':>10}{'ratio':>8}{'sampled':>10}{'check':>9}{'whole':>8}{'target':>8}")
    for loop in loops:
        with tempfile.TemporaryDirectory() as folder:
            times = measure(loop, options.seconds, clock, folder)
        bare, between, sampled = (statistics.median(part) for part in times[:3])
        check = times.checkpoint[0]
        spread = (sampled - between) / spacing(sampled - between, between)
        whole = (between + spread) / bare * (1 + check / CHECKPOINT_SECONDS)
        print(
            f"{loop.name:<6}{1e3 * bare:>7.2f} ms{1e3 * between:>7.2f} ms{between / bare:>7.3f}x"
            f"{1e3 * sampled:>7.2f} ms{1e3 * check:>6.1f} ms{whole:>7.3f}x{loop.target:>7.2f}x"
        )


if __name__ == "__main__":
    main()
