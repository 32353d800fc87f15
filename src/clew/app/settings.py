"""From a value that training ran with to the line that it was written on: in a configuration file, in the defaults of
the command line, in a dataclass.

A line counts when it has both a name for the setting and the very number. Configuration files come first: a value in
them goes past every default in the source.
"""

import glob
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from clew.app.source_clues import holding
from clew.archive.model import Run
from clew.observe.places import is_users
from clew.reading import text
from clew.records import exact
from clew.records.clue import Clue
from clew.records.place import DEEDS, Place, near

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
    "train.frozen_params": re.compile(r"requires_grad(_\(\s*| *= *)(False|[^=\s])"),
    "arch.zero_init": re.compile(r"\b(zeros_|constant_)\(|\.zero_\(\)|\.fill_\(0"),
    "arch.bad_init_scale": re.compile(r"(weight|bias|data|param|\bp)\S*\.(normal_|uniform_|mul_|fill_)\("),
    "num.low_precision": re.compile(r"bfloat16|float16|\.half\(\)"),
    "train.scheduler_cadence": re.compile(r"""["']interval["']\s*:|\b(\w+LR|get_\w+_schedule\w*)\("""),
    "loss.saturated": re.compile(r"\b(temperature|tau|logit_scale)\b.*[=,:]\s*\d"),
    "rl.exploration": re.compile(r"\brand(om)?\([^()]*\)[^<>]*[<>]=?\s*\S*(eps|explor)", re.IGNORECASE),
}
"""Causes that a line of the source does, without leaving a trace of where."""
OTHERS = {"weight_decay": re.compile(r"(^|_)(lr|rate|eps|epsilon)(_|$)"), "lr": re.compile(r"drop|mask|min_|decay_")}
"""Names that hold a word of the setting and mean something else."""
OF_RATES = ("hp.lr_too_low", "hp.lr_too_high", "hp.no_warmup")
SCHEDULE = re.compile(r"""\[["']lr["']\]\s*[-+*/]?=[^=]|\b(\w+LR|LambdaLR|get_\w+_schedule\w*)\(""")
SCHEDULED = "sets the rate"
TARGET = re.compile(r"""(?i)\b(target|label)(?:_?(?:column|name|col))?["']?\s*[:=]\s*["'](\w+)["']""")
LARGEST = 1 << 18
MOST = 3
AT_WORK = ("ran", "loss", "loss_elsewhere", "trained", "evaluated")
"""Rows that say which functions were at work: those of some steps, and those in which something was computed."""
WORDS = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
NUMBERS = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])")
AHEAD = "data.leak_temporal"
TABLES = (".csv", ".tsv", ".parquet", ".feather", ".npy", ".npz", ".jsonl", ".xlsx")
CONFIGURATIONS = (".toml", ".yaml", ".yml", ".json", ".ini", ".cfg", ".py")
"""Source that is opened, and not imported, is read for its settings."""


class Met(NamedTuple):
    """What speaks for a cause: where it was seen, the numbers and outcomes, and whether its mechanism was seen. `read`
    is the line that lint names for it."""

    where: tuple[Place, ...]
    measured: frozenset[float] = frozenset()
    outcomes: frozenset[str] = frozenset()
    found: bool = False
    read: tuple[Place, ...] = ()


def settings_places(
    held: Run, sources: list[str], opened: list[str], met: Mapping[str, Met] | None = None
) -> dict[str, tuple[Place, ...]]:
    """By cause: the lines where the setting that it is about was written. Where its mechanism was seen, lines that only
    read like it come after the place that was seen."""
    met = met or {}
    values: dict[str, dict[float, None]] = {}
    seen: dict[str, list[Place]] = {}
    for row in _rows(held):
        if row["value"]:  # a zero is switched off, and zeros stand everywhere
            values.setdefault(row["name"], {})[float(row["value"])] = None
        elif row["where"]:
            seen.setdefault(row["name"], []).append(Place.from_json(row["where"]))
    settings = {path: None for path in opened if path.endswith(CONFIGURATIONS) and not _of_a_library(path)}
    texts = {path: lines for path in [*settings, *sources] if (lines := _lines(path))}
    written = {path: lines for path, lines in texts.items() if path in settings}
    read = {path: lines for path, lines in texts.items() if path not in settings}
    found = {
        name: _written(name, list(held), written) or _written(name, list(held), read)
        for name, held in values.items()
        if name in NAMED
    }
    by_cause = {cause: found.get(name, ()) for cause, name in OF_CAUSES.items()}
    by_cause |= {cause: _spelled(pattern, sources, texts) for cause, pattern in SPELLED.items()}
    if "rate_moved" in seen:
        schedule = tuple(place._replace(role=SCHEDULED) for place in _spelled(SCHEDULE, sources, texts))
        by_cause |= {cause: (*schedule, *by_cause.get(cause, ())) for cause in OF_RATES}
    by_cause["data.leak_target"] = _target_listed(texts)
    if "batch_second" in seen:
        by_cause["arch.batch_mixing"] = tuple(seen["batch_second"])
    from clew.app.cause_lines import Finder
    from clew.app.data_lines import Reader

    reader = Reader(seen, {path: texts[path] for path in sources if path in texts})
    by_cause |= reader.by_cause({name for item in met.values() for name in item.outcomes})
    places = {cause: item.where for cause, item in met.items()}
    finder = Finder(seen, reader.project, reader.texts, written)
    more = finder.by_cause(places, {cause: item.measured for cause, item in met.items()})
    for cause in {**by_cause, **more, **met}:
        guessed, strong = more.get(cause, ()), by_cause.get(cause, ())
        ordered = (*guessed, *strong)
        if cause in met and met[cause].found:
            own = [place for place in met[cause].where if place.file is not None and place.line is not None]
            deeds = (place for place in own if place.role in DEEDS)
            ordered = (*finder.known.get(cause, ()), *met[cause].read, *deeds, *strong, *own, *guessed)
        by_cause[cause] = tuple(dict.fromkeys(ordered))
    if not any(_splits(place, reader.texts) for place in places.get(AHEAD, ())):
        by_cause[AHEAD] = (*_only_table(opened, by_cause.get(AHEAD, ())), *by_cause.get(AHEAD, ()))
    return {cause: places for cause, places in by_cause.items() if places}


def _splits(place: Place, texts: Mapping[str, list[str]]) -> bool:
    """Whether a line that was met is one that splits rows: then it is not the table that brings later ones in."""
    lines = texts.get(os.path.realpath(str(place.file)), [])
    return place.line is not None and "split" in "".join(lines[place.line - 1 : place.line])


def _only_table(opened: list[str], known: tuple[Place, ...]) -> tuple[Place, ...]:
    """Where no line of the source brings rows of other times in, a column that looks ahead came with the data: the
    file, where there is one only."""
    from clew.app.data_lines import COMES_IN

    tables = [path for path in opened if path.endswith(TABLES)]
    if len(tables) != 1 or any(place.role == COMES_IN for place in known):
        return ()
    return (_place(tables[0], 0)._replace(line=None, role="the columns are read from here"),)


def _target_listed(texts: dict[str, list[str]]) -> tuple[Place, ...]:
    """Lines of a list in which the name of the target stands too."""
    hits = [match for lines in texts.values() for line in lines if (match := TARGET.search(line))]
    if not hits:
        return ()
    either = "|".join(sorted({re.escape(hit[2]) for hit in hits}))
    wanted = re.compile(rf"""[\[,]\s*["']({either})["']\s*[\],]""")
    lines = ((path, number, line) for path, text in texts.items() for number, line in enumerate(text, 1))
    listed = [_place(path, number) for path, number, line in lines if wanted.search(line) and "drop" not in line]
    return tuple(place._replace(role="names the target") for place in listed[:MOST])


def with_lines(held: Run, clues: list[Clue]) -> list[Clue]:
    """The clues, with the line that made a module or the layer of a parameter where they name nothing else."""
    made = {row["where"].get("module"): Place.from_json(row["where"]) for row in _rows(held) if row["name"] == "made"}
    if not made:
        return clues

    def placed(place: Place) -> Place:
        name = place.module or (place.parameter or "").rpartition(".")[0]
        if place.file is not None or not name or name not in made:
            return place
        found = made[name]
        return place._replace(file=found.file, line=found.line, symbol=found.symbol, role=place.role or found.role)

    ordered = [tuple(sorted(map(placed, clue.where), key=lambda place: place.file is None)) for clue in clues]
    return [clue._replace(where=where) for clue, where in zip(clues, ordered, strict=True)]


def functions_run(held: Run) -> set[tuple[str, int]]:
    """The user's functions that training steps and evaluations were seen to run, by file and first line; nothing where
    no whole step was heard."""
    places = [(row["name"], Place.from_json(row["where"])) for row in _rows(held) if row["name"] in AT_WORK]
    ran = {(os.path.realpath(str(place.file)), place.line or 0) for name, place in places if name == "ran"}
    if not ran:
        return ran
    beside = [place for name, place in places if name != "ran" and place.file is not None]
    lines = ((os.path.realpath(str(place.file)), holding(str(place.file), place.line or 0)) for place in beside)
    return ran | {(file, line) for file, line in lines if line is not None}


def _rows(held: Run) -> list[dict[str, Any]]:
    """What every process of the run left behind."""
    rows: list[dict[str, Any]] = []
    for path in sorted(glob.glob(os.path.join(glob.escape(held.folder), "settings-*.json"))):
        try:
            rows += exact.loads(text(path, encoding="ascii"))
        except (OSError, ValueError):
            continue
    return rows


def _spelled(pattern: re.Pattern[str], sources: list[str], texts: dict[str, list[str]]) -> tuple[Place, ...]:
    lines = ((path, number, line) for path in sources for number, line in enumerate(texts.get(path, ()), 1))
    return tuple(_place(path, number) for path, number, line in lines if pattern.search(line))[:MOST]


def _place(path: str, line: int) -> Place:
    return Place(file=near(path), line=line)


def _written(name: str, values: list[float], texts: dict[str, list[str]]) -> tuple[Place, ...]:
    lines = ((path, number, line) for path, text in texts.items() for number, line in enumerate(text, 1))
    return tuple(_place(path, number) for path, number, line in lines if says(line, name, values))[:MOST]


def says(line: str, name: str, values: list[float]) -> bool:
    """Whether a line gives one of these values to a setting of that name."""
    words = [word.lower().replace("-", "_") for word in WORDS.findall(line)]
    other = OTHERS.get(name)
    if not any(NAMED[name].search(word) and not (other and other.search(word)) for word in words):
        return False
    return any(abs(float(text) - value) <= 1e-9 * abs(value) for text in NUMBERS.findall(line) for value in values)


def _of_a_library(path: str) -> bool:
    """What libraries keep for themselves: in hidden folders of the home, or beside their code."""
    home, whole = os.path.expanduser("~") + os.sep, os.path.abspath(path)
    hidden = whole.startswith(home) and whole.removeprefix(home).startswith(".")
    return not is_users(whole) or (hidden and not os.getcwd().startswith(os.path.dirname(whole)))


def _lines(path: str) -> list[str]:
    try:
        return text(path, LARGEST).splitlines()
    except OSError:
        return []
