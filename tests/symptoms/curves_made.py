"""Made-up curves: sound ones of many shapes and noise levels, and ones that show each symptom."""

import math
import random
from collections.abc import Callable

from clew.records.trace import Series

Course = Callable[[float], float]


def series(name: str, values: list[float], every: int = 1) -> Series:
    return Series(name, tuple(range(0, every * len(values), every)), tuple(values))


def sound_course(rng: random.Random) -> Course:
    """A level by time, time from 0 to 1, starting at about 1 and falling the way sound training does."""
    floor, speed, power = rng.uniform(0.0, 0.4), rng.uniform(4, 60), rng.uniform(0.3, 1.2)
    late, end, drops = rng.uniform(0.05, 0.3), rng.uniform(0.2, 0.75), sorted(rng.uniform(0.3, 0.8) for _ in range(2))
    scale = 10 ** rng.uniform(1, 3)
    shapes: list[Course] = [
        lambda t: floor + (1 - floor) * math.exp(-speed * t),
        lambda t: max(floor, (1 + scale * t) ** -power),
        lambda t: floor + (1 - floor) * (0.3 * math.exp(-speed * t) + 0.7 / (1 + math.exp(25 * (t - late)))),
        lambda t: 1 - (1 - end) * t,
        lambda t: (floor + (1 - floor) * math.exp(-speed * t)) * 0.7 ** sum(t > drop for drop in drops),
        lambda t: 0.3 + 0.7 * (1 + scale * t) ** -0.4,
    ]
    course = rng.choice(shapes)
    hump = rng.choice([0.0, 0.0, 0.3])
    return lambda t: course(t) * (1 + hump * math.exp(-(((t - 0.01) / 0.01) ** 2)))


def noisy(rng: random.Random, course: Course, count: int, noise: float, memory: float = 0.0) -> list[float]:
    """The course times log-normal noise, with `memory` from point to point as neighbouring batches have."""
    values, state = [], 0.0
    for i in range(count):
        state = memory * state + math.sqrt(1 - memory**2) * rng.gauss(0, 1)
        values.append(course(i / max(1, count - 1)) * math.exp(noise * state - noise**2 / 2))
    return values


def sound_run(rng: random.Random) -> tuple[dict[str, Series], tuple[int, ...]]:
    """Training loss, validation loss and accuracy of a run that is well, and where its epochs begin."""
    course, scale = sound_course(rng), 10 ** rng.uniform(-3, 3)
    count = rng.choice([60, 120, 300, 800, 2000, 5000])
    loss = noisy(rng, course, count, rng.choice([0.0, 0.02, 0.05, 0.1, 0.2, 0.3]), rng.choice([0.0, 0.0, 0.3]))
    for i in range(count):
        if rng.random() < 0.002:
            loss[i] *= rng.uniform(1.5, 5)
    epochs = rng.choice([4, 8, 15])
    marks = tuple(round(count * i / epochs) for i in range(epochs))
    ends = [round(count * (i + 1) / epochs) - 1 for i in range(epochs)]
    gap, top = rng.uniform(0.0, 0.12), rng.uniform(0.6, 0.98)
    held_out = [course(end / count) + gap * (i + 1) / epochs + rng.gauss(0, 0.01) for i, end in enumerate(ends)]
    accuracy = [
        min(1.0, 0.1 + (top - 0.1) * (1 - course(end / count)) / (1 - course(1.0)) + rng.gauss(0, 0.01)) for end in ends
    ]
    made = {
        "loss": series("loss", [value * scale for value in loss]),
        "val_loss": Series("val_loss", tuple(ends), tuple(value * scale for value in held_out)),
        "val_acc": Series("val_acc", tuple(ends), tuple(accuracy)),
    }
    return made, marks
