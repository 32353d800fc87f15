"""What a training step costs under observation, as a ratio to the same step without it.

    python bench/observe.py                 MLP, CNN and a small GPT on one thread of the processor
    python bench/observe.py --device cuda   GPT-2 with 124 million parameters in bfloat16

In one process, short blocks of steps take turns: bare, observed between samples, observed with one sampled step among
them. Whatever else the machine does touches all three alike. The step counter stands beyond the dense first steps. The
ratio is that of a long run with default sampling and every watch: the median block between samples, the extra time of a
sampled step spread over the steps to the next one, and a checkpoint every three seconds, over the median bare block.
Only torch, numpy and `src` on PYTHONPATH are needed.
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

FIRST = 1000
WARM_UP = 80
SETTLE = 2  # steps after the instruments go on or off that are not timed: Python forgets what it knew of the classes

Step = Callable[[], None]


class Program(NamedTuple):
    """`begin` makes a function that does one training step; `block` steps are timed at once."""

    name: str
    target: float
    block: int
    begin: Callable[[], Step]


def batches(*tensors: torch.Tensor, size: int) -> Iterator[list[torch.Tensor]]:
    """Some short epochs, then long ones: what is looked at in the first epochs only is part of the dense phase."""
    loader = DataLoader(TensorDataset(*tensors), batch_size=size, shuffle=True, drop_last=True)
    for _ in range(3):
        yield from islice(loader, WARM_UP // 4)
    while True:
        yield from loader


def classifier(model: nn.Module, optimizer: torch.optim.Optimizer, data: Iterator[list[torch.Tensor]]) -> Step:
    def step() -> None:
        x, y = next(data)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        torch.autograd.backward(loss)
        optimizer.step()

    return step


def mlp() -> Step:
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return classifier(model, optimizer, batches(torch.randn(64_000, 64), torch.randint(0, 10, (64_000,)), size=64))


def cnn() -> Step:
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.1), nn.Linear(64 * 16, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return classifier(model, optimizer, batches(torch.randn(8192, 3, 32, 32), torch.randint(0, 10, (8192,)), size=48))


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


class GPT(nn.Module):
    def __init__(self, words: int, length: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight
        for held in (self.words, self.places):
            nn.init.normal_(held.weight, std=0.02)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        x = self.words(rows) + self.places(torch.arange(rows.shape[1], device=rows.device))
        out: torch.Tensor = self.head(self.norm(self.blocks(x)))
        return out


def language_model(model: GPT, length: int, size: int, device: str, rows: int) -> Step:
    model.to(device)
    words = model.words.num_embeddings
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device != "cpu")
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100_000)
    data = batches(torch.randint(0, words, (rows, length + 1)), size=size)

    def step() -> None:
        (tokens,) = next(data)
        tokens = tokens.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=device != "cpu"):
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def gpt() -> Step:
    return language_model(GPT(256, 64, 128, 4, 4), 64, 8, "cpu", 16_384)


def gpt2() -> Step:
    """The largest batch of 32, 16, 8 … rows of 1,024 tokens that fits."""
    size = 32
    while True:
        try:
            step = language_model(GPT(50_304, 1024, 768, 12, 12), 1024, size, "cuda", 1024)
            step()
            torch.cuda.synchronize()
            return step
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            size //= 2
            if not size:
                raise


PROGRAMS = {
    "cpu": (Program("MLP", 1.15, 20, mlp), Program("CNN", 1.03, 4, cnn), Program("GPT", 1.03, 4, gpt)),
    "cuda": (Program("GPT-2", 1.01, 4, gpt2),),
}


class Times(NamedTuple):
    """Seconds per block, and of one checkpoint."""

    bare: list[float]
    between: list[float]
    sampled: list[float]
    checkpoint: float


class Bench:
    """One program with its instruments, which go on and off."""

    def __init__(self, program: Program, folder: str, clock: Callable[[], float], sample: str = "auto") -> None:
        torch.manual_seed(0)
        self.program, self.clock = program, clock
        self.recorder = Recorder(folder, all_watches()[0], sample)
        self.hooks = Hooks(self.recorder)
        self.hooks.install()
        self.step = program.begin()
        for _ in range(WARM_UP):
            self.step()
        self.recorder.step = FIRST
        self.hooks.uninstall()

    def block(self) -> float:
        for _ in range(SETTLE):
            self.step()
        self._wait()
        start = self.clock()
        for _ in range(self.program.block):
            self.step()
        self._wait()
        return self.clock() - start

    def observed(self, sampled: bool) -> float:
        """A block with the instruments on. The step to look at closely is one in the middle."""
        recorder = self.recorder
        self.hooks.install()
        self.hooks.looks, recorder.sampled = 0, False
        self.hooks.settle_attachment()
        recorder.next_sample = recorder.step + SETTLE + self.program.block // 2 if sampled else 1 << 60
        recorder._last_checkpoint = time.monotonic() + 1e9  # measured apart, below
        try:
            return self.block()
        finally:
            self.hooks.uninstall()

    def checkpoint(self, times: int = 5) -> float:
        start = time.perf_counter()
        for _ in range(times):
            self.recorder.checkpoint()
        return (time.perf_counter() - start) / times

    def _wait(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()


def measure(bench: Bench, seconds: float) -> Times:
    bare: list[float] = []
    between: list[float] = []
    sampled: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(bare) < 3:
        bare.append(bench.block())
        between.append(bench.observed(sampled=False))
        bare.append(bench.block())
        sampled.append(bench.observed(sampled=True))
    times = Times(bare, between, sampled, bench.checkpoint())
    if bench.recorder.broken:
        raise SystemExit(f"instruments failed: {bench.recorder.broken}")
    return times


class Row(NamedTuple):
    """Seconds per step, of a sampled step beyond the usual, of a checkpoint; and what follows for a long run."""

    bare: float
    between: float
    extra: float
    checkpoint: float

    @property
    def ratio(self) -> float:
        spread = self.extra / spacing(self.extra, self.between)
        return (self.between + spread) / self.bare * (1 + self.checkpoint / CHECKPOINT_SECONDS)


def row(times: Times, block: int) -> Row:
    bare, between, sampled = (statistics.median(part) for part in times[:3])
    return Row(bare / block, between / block, max(sampled - between, 0.0), times.checkpoint)


def profile(bench: Bench, sampled: bool) -> None:
    """Where the time between samples goes, or that of sampled steps."""
    import cProfile
    import pstats

    bench.hooks.install()
    bench.recorder.next_sample = FIRST if sampled else 1 << 60
    bench.step()
    with cProfile.Profile() as held:
        for _ in range(200):
            bench.step()
    bench.hooks.uninstall()
    pstats.Stats(held).sort_stats("tottime").print_stats("clew", 40)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=PROGRAMS, default="cpu")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each program")
    parser.add_argument("--only", help="one program by its name")
    parser.add_argument("--cpu-time", action="store_true", help="processor time, for a machine with other work")
    parser.add_argument("--profile", choices=("between", "sampled"), help="show where the time goes instead")
    options = parser.parse_args()
    torch.set_num_threads(1)
    clock = time.thread_time if options.cpu_time else time.perf_counter
    if not options.profile:
        print(f"{'program':<8}{'bare':>11}{'ratio':>8}{'target':>8}   between samples, sampled step, checkpoint")
    for program in PROGRAMS[options.device]:
        if options.only not in (None, program.name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            if options.profile:
                sampled = options.profile == "sampled"
                profile(Bench(program, folder, clock, "every" if sampled else "auto"), sampled)
                continue
            found = row(measure(Bench(program, folder, clock), options.seconds), program.block)
        print(
            f"{program.name:<8}{1e3 * found.bare:>8.2f} ms{found.ratio:>7.3f}x{program.target:>7.2f}x"
            f"   {found.between / found.bare:.3f}x, +{1e3 * found.extra:.1f} ms, {1e3 * found.checkpoint:.1f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
