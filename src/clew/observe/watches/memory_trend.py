"""Does memory in use grow from step to step?

Reads the resident memory of the process after steps, and the memory in use on the device when there is one. Once it has
grown, the script's own lists of tensors are looked at: one that gets longer all the time and holds most of what was
added is what keeps it.

Why it matters: what is kept on every step ends in a killed run, and is often a graph that should have been let go.
Cannot tell: what is kept: graphs, a replay buffer that fills as designed, logged tensors.
Silent when: memory jumps once or levels off, as when an evaluation first runs or a cache fills.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

from clew.observe.envs import experience_of
from clew.observe.watch import Answer, OptimizerEvent, Saw, Watch
from clew.observe.watches._holders import Holders
from clew.observe.watches._network_trend import Bins
from clew.records.clue import Unclear

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
WARM_UP = 20
DENSE = 128
EVERY = 8
ENOUGH = 50
STEADY = 0.6
LEVELS_OFF = 0.25
"""The least growth of the later half, as a share of that of the earlier half."""
ONE_JUMP = 0.5
LOOK_EVERY = 64
"""Steps between two looks at what holds tensors, once memory has grown."""
GROWS, RUNS_AWAY, BYTES = 1.1, 1.8, 2e8
LOOK_FROM = 1.05
KEPT, MOST, OFTEN = 5e7, 0.5, 0.25
"""What a list of the script's must hold: so many bytes, so much of what was added, one entry in so many steps."""
ENVIRONMENTS = ("gymnasium", "gym")
"""Where agents learn, a replay buffer fills for a long time by design."""


class MemoryTrend(Watch):
    test = "memory_trend"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.steps = 0
        self.host = Bins()
        self.device = Bins()
        self.holders = Holders()
        self.lowest = float("inf")
        self.added = float("inf")  # since the lowest level, when what holds it was found

    def after_step(self, event: OptimizerEvent) -> None:
        self.steps += 1
        if self.steps <= WARM_UP or (self.steps > DENSE and self.steps % EVERY):
            return
        resident = resident_bytes()
        if resident:
            self.host.add(resident)
            if event.sampled:
                self.recorder.record("memory_resident", resident)
            self.lowest = min(self.lowest, resident)
            if self.steps % LOOK_EVERY == 0 and resident > LOOK_FROM * self.lowest:
                found = self.holders.place is not None
                self.holders.look()
                if not found:
                    self.added = resident - self.lowest
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch leaves it without types
            used = float(torch.cuda.memory_allocated())
            self.device.add(used)
            if event.sampled:
                self.recorder.record("memory_device", used)

    def read(self) -> Answer:
        kinds = {"resident": self.host, "device": self.device}
        found = {kind: growth(bins) for kind, bins in kinds.items() if bins.count >= ENOUGH}
        if not found:
            return Unclear(f"memory was read {self.host.count} times after the warm-up; {ENOUGH} are needed")
        kind = max(found, key=lambda name: found[name])
        early, _, late = kinds[kind].tenths()
        ratio = found[kind]
        agent = any(name in sys.modules for name in ENVIRONMENTS) or experience_of(self.recorder).steps > 0
        far = ratio >= RUNS_AWAY and (ratio - 1) * early >= BYTES and not agent
        kept = ratio >= GROWS and (ratio - 1) * early >= KEPT and not agent and self._kept()
        outcome = "runs_away" if far else "kept" if kept else "grows" if ratio >= GROWS else "flat"
        saw = Saw(outcome, late_over_early=ratio, memory=kind, early_mb=early / 1e6, late_mb=late / 1e6)
        return saw.at(self.holders.place) if outcome != "flat" else saw

    def _kept(self) -> bool:
        """Whether one list of the script's holds most of what was added, and gets an entry every few steps."""
        held = self.holders
        return held.bytes >= MOST * self.added and held.gain >= OFTEN * LOOK_EVERY


def growth(bins: Bins) -> float:
    """Late over early. What jumped once or has levelled off is taken out: it does not grow from step to step."""
    early, middle, late = bins.tenths()
    if early <= 0 or middle <= 0:
        return 1.0
    jump = bins.largest_jump()
    steady = (
        bins.steadiness() > STEADY
        and late - middle >= LEVELS_OFF * (middle - early)
        and jump < ONE_JUMP * (late - early)
    )
    return late / early if steady or late <= early else max(1.0, min(late / middle, (late - jump) / early))


def resident_bytes() -> float:
    """What the process holds in memory, 0 where that cannot be read."""
    try:
        handle = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return _peak_bytes()
    try:
        return float(os.read(handle, 100).split()[1]) * PAGE
    finally:
        os.close(handle)


def _peak_bytes() -> float:
    """The highest level so far: it cannot fall, and where it does not rise nothing grows."""
    try:
        import resource
    except ImportError:
        return 0.0
    peak = float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return peak if sys.platform == "darwin" else 1024 * peak
