"""From a value that training ran with to the line that it was written on: in a configuration file, in the defaults of
the command line, in a dataclass.

A line counts when it has both a name for the setting and the very number. Configuration files come first: a value in
them goes past every default in the source.
"""

import glob
import os
import re

from clew.archive.model import Run
from clew.records import exact
from clew.records.place import Place

OF_CAUSES = {
    "hp.lr_too_high": "lr",
    "hp.lr_too_low": "lr",
    "hp.no_warmup": "lr",
    "hp.weight_decay": "weight_decay",
    "train.clip_always_active": "clip",
    "hp.batch_too_small": "batch",
    "train.bn_small_batch": "batch",
}
NAMED = {
    "lr": re.compile(r"(^|_)(lr|rate|eta|learning_?rate|learningrate|step_size)(_|$)"),
    "weight_decay": re.compile(r"(^|_)(decay|weight_?decay|wd|l2)(_|$)"),
    "clip": re.compile(r"(^|_)(clip|clipping|max_?norm|max_grad_norm|grad_?clip)(_|$)"),
    "batch": re.compile(r"(^|_)(batch|batch_?size|bs)(_|$)"),
}
SPELLED = {
    "train.frozen_params": re.compile(r"requires_grad(_\(\s*| *= *)False"),
    "arch.zero_init": re.compile(r"\b(zeros_|constant_)\(|\.zero_\(\)|\.fill_\(0"),
}
"""Causes that a line of the source does, without leaving a trace of where."""
OTHERS = {"weight_decay": re.compile(r"(^|_)(lr|rate|eps|epsilon)(_|$)"), "lr": re.compile(r"drop|mask|min_|decay_")}
"""Names that hold a word of the setting and mean something else."""
LARGEST = 1 << 18
MOST = 3
WORDS = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
NUMBERS = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])")
CONFIGURATIONS = (".toml", ".yaml", ".yml", ".json", ".ini", ".cfg")


def settings_places(held: Run, sources: list[str], opened: list[str]) -> dict[str, tuple[Place, ...]]:
    """By cause: the lines where the setting that it is about was written."""
    values: dict[str, dict[float, None]] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(held.folder), "settings-*.json"))):
        try:
            with open(path, encoding="ascii") as file:
                rows = exact.loads(file.read())
        except (OSError, ValueError):
            continue
        for row in rows:
            if row["value"]:  # a zero is switched off, and zeros stand everywhere
                values.setdefault(row["name"], {})[float(row["value"])] = None
    files = [*(path for path in opened if path.endswith(CONFIGURATIONS)), *sources]
    texts = {path: lines for path in files if (lines := _lines(path))}
    found = {name: _written(name, list(held), texts) for name, held in values.items() if name in NAMED}
    by_cause = {cause: found.get(name, ()) for cause, name in OF_CAUSES.items()}
    by_cause |= {cause: _spelled(pattern, sources, texts) for cause, pattern in SPELLED.items()}
    return {cause: places for cause, places in by_cause.items() if places}


def _spelled(pattern: re.Pattern[str], sources: list[str], texts: dict[str, list[str]]) -> tuple[Place, ...]:
    lines = ((path, number, line) for path in sources for number, line in enumerate(texts.get(path, ()), 1))
    return tuple(_place(path, number) for path, number, line in lines if pattern.search(line))[:MOST]


def _place(path: str, line: int) -> Place:
    return Place(file=os.path.relpath(path) if path.startswith(os.getcwd() + os.sep) else path, line=line)


def _written(name: str, values: list[float], texts: dict[str, list[str]]) -> tuple[Place, ...]:
    found: list[Place] = []
    for path, lines in texts.items():
        if found and str(found[0].file).endswith(CONFIGURATIONS) and not path.endswith(CONFIGURATIONS):
            break
        found += [_place(path, number) for number, line in enumerate(lines, 1) if says(line, name, values)]
    return tuple(found[:MOST])


def says(line: str, name: str, values: list[float]) -> bool:
    """Whether a line gives one of these values to a setting of that name."""
    words = [word.lower().replace("-", "_") for word in WORDS.findall(line)]
    other = OTHERS.get(name)
    if not any(NAMED[name].search(word) and not (other and other.search(word)) for word in words):
        return False
    return any(abs(float(text) - value) <= 1e-9 * abs(value) for text in NUMBERS.findall(line) for value in values)


def _lines(path: str) -> list[str]:
    try:
        if os.path.getsize(path) > LARGEST:
            return []
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []
