"""Lines of text: whatever prints names with numbers behind them.

nanoGPT, HF Trainer, Keras, tqdm, Lightning's bar, PyTorch's examples, fastai's tables and the home-made print of a
training loop all write a name, perhaps a sign, and a number; one reader takes them all. Formats differ in how they
count time, and that is where the rest of this file goes.
"""

import re

from clew.symptoms.logs_labels import label
from clew.symptoms.logs_names import LOSS_TERM, METRIC, SPLITS, TRAIN_LOSS, VAL_LOSS, counter, meaning
from clew.symptoms.logs_numbers import NUMBER, number, value_of
from clew.symptoms.logs_points import Clock, Points

LONGEST_LINE = 16_384
LARGEST_COUNT = 2**53

_ANSI = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]")
_NOISE = re.compile(
    r"[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}T?"
    r"|(?<![\w:.])[0-9]+:[0-9]{2}(?::[0-9]{2})?(?:[.,][0-9]+)?(?![\w:])"
    r"|cuda:[0-9]+|grad_fn=<[^>]{0,80}>|device='[^']{0,20}'"
)
_TOKEN = re.compile(
    rf"(?<![\w.@/])(?<!\w-)({NUMBER})(?:\s*/\s*([0-9]+)(?![\w.]))?"
    r"(?:\s?(%)|(?:ms|us|µs|sec|secs|s|min|h)\b(?!/))?(?!\w|\.[0-9]|-[0-9])"
)
_LEAD = re.compile(r"\s*(?:\[\s*([0-9]{1,12})\s*,\s+([0-9]{1,12})\s*\]|\[([0-9]{1,12})\](?=\s)|([0-9]{1,12}):\s)")
_CELLS = re.compile(r"\s*\|\s*([\w/ .@()-]{1,60}?)\s*\|\s*(\S{0,30})\s*\|\s*")
_RULE = re.compile(r"\s*[-+=|]{5,}\s*")
_EPOCH_HEAD = re.compile(r"\s*Epoch\s+[0-9]+\s*/\s*[0-9]+\s*", re.IGNORECASE)
_NANOGPT = re.compile(r"(?:step|iter) [0-9]+: (?:train |val )?loss ")
_COLUMNS = re.compile(r"\t|\s{2,}")
_BELONGS = (TRAIN_LOSS, VAL_LOSS, LOSS_TERM, METRIC)

STYLES = {
    "nanogpt": "nanoGPT lines",
    "hf": "HF Trainer lines",
    "keras": "Keras progress lines",
    "tqdm": "tqdm progress bars",
    "table": "a printed table",
    "pairs": "names with values",
}


class TextReader:
    """Takes lines one by one; holds the counters that later lines still stand under."""

    def __init__(self) -> None:
        self.points = Points()
        self.styles: dict[str, int] = {}
        self._now: dict[str, int | float] = {}
        self._header: list[str] = []
        self._block: list[tuple[str, float]] = []
        self._block_prefix = ""
        self._section = ""
        self._keras_epoch = False
        self._cut = 0

    @property
    def style(self) -> str:
        return max(self.styles, key=lambda style: self.styles[style]) if self.styles else "pairs"

    def line(self, text: str, redrawn: bool = False) -> None:
        if "\x1b" in text:
            text = _ANSI.sub("", text)
        self._cut += len(text) > LONGEST_LINE
        text = text[:LONGEST_LINE]
        if self._cells(text) or not text.strip():
            return
        if self._row(text):
            return
        lead = _LEAD.match(text)
        clean = _NOISE.sub("|", text)
        found = list(_TOKEN.finditer(clean, lead.end() if lead and clean.startswith(text[: lead.end()]) else 0))
        if not found and not lead:
            self._heading(text)
            return
        self._pairs(text, clean, found, lead, redrawn)

    def end(self) -> list[str]:
        """To be called after the last line; returns what was worked out and not read."""
        self._flush_block()
        cut = f"of {self._cut} long line{'s' * (self._cut != 1)} the first {LONGEST_LINE >> 10} KiB were read."
        return [*([cut] if self._cut else []), *(self._steps_from_speed() if self.style == "hf" else [])]

    def _steps_from_speed(self) -> list[str]:
        """HF Trainer prints epochs and no steps, but in the end how long it ran and how many steps it made a second."""
        held, clocks = self.points.held, self.points.clocks
        seconds, speed = (held.get(name, ([], [0.0]))[1][-1] for name in ("train_runtime", "train_steps_per_second"))
        epochs = clocks[-1].epoch or 0.0
        if not 0 < seconds * speed < LARGEST_COUNT or not epochs > 0 or any(clock.step is not None for clock in clocks):
            return []
        per_epoch = round(seconds * speed) / epochs
        self.points.clocks = [clock._replace(step=round((clock.epoch or 0.0) * per_epoch)) for clock in clocks]
        return ["steps were worked out from the epochs and from the steps per second at the end."]

    def _pairs(
        self, text: str, clean: str, found: list[re.Match[str]], lead: re.Match[str] | None, redrawn: bool
    ) -> None:
        fresh: dict[str, int | float] = _leading(lead) if lead else {}
        values: list[tuple[str, float]] = []
        firm = bool(fresh)
        split, waiting, shared, here = "", "", False, lead.end() if lead else 0
        for token in found:
            raw = clean[here : token.start()]
            digits, of, percent = token.groups()
            held = label(raw)
            if digits[-1].isalpha() and not waiting and (held.weak or not held.name):
                continue  # "number of nan iterations: 0" counts; it has no value of nan
            here = token.end()
            split = held.split or split
            if held.kind:
                count = _count(digits, held.kind)
                if count is not None:
                    fresh.setdefault(held.kind, count)
                    if of and held.kind in ("batch", "step"):
                        fresh.setdefault("total", int(of[:16]))
                waiting = held.after
            elif percent and clean[here : here + 1] == "|":
                continue  # how far a progress bar is
            elif held.name:
                value = _share(digits, of) if of else value_of(digits, bool(percent))
                if value is not None:
                    values.append((_belonging(held.name, split), value))
                    firm, shared = firm or not held.weak, bool(of)
            elif waiting and raw.strip() in (":", "=", "is", "->"):
                values.append((_belonging(waiting, split), value_of(digits, bool(percent))))
                firm, waiting = True, ""
            elif raw.strip() == "(" and of and values and _same_share(digits, of, values[-1][1]):
                continue  # 95.0%(285/300) says it twice
            elif raw.strip() == "(" and values and split in ("val", "test") and not (shared or percent or of):
                # Behind the value of the batch stands the average so far, which is what an evaluation ends with.
                values[-1] = (values[-1][0], value_of(digits, bool(percent)))
            elif of and "step" not in fresh:
                position = _position(digits, of)
                if position and "batch" in fresh:
                    fresh.setdefault("epoch", fresh["batch"])
                fresh.update(position)
        if self._section and not fresh and not split:
            values = [(_belonging(name, self._section), value) for name, value in values]
        self._keep(text, values if firm or fresh else [], fresh, split, redrawn)

    def _keep(
        self, text: str, values: list[tuple[str, float]], fresh: dict[str, int | float], split: str, redrawn: bool
    ) -> None:
        values = [(name, value) for name, value in values if name.lower() != "eta"]
        within = split in ("val", "test") and ("batch" in fresh) and "step" not in fresh
        if within:
            # The batches of an evaluation are no time axis of the run; its last line stands for all of it.
            fresh.pop("batch", None)
            fresh.pop("total", None)
            self._section, redrawn = split, True
        if not values:
            fresh.pop("batch", None)
            fresh.pop("total", None)
        if "epoch" in fresh and fresh["epoch"] != self._now.get("epoch"):
            for kind in ("batch", "total", "step"):
                self._now.pop(kind, None)
        if fresh and not within:
            self._section = ""
        self._now.update(fresh)
        if _EPOCH_HEAD.fullmatch(text):
            self._keras_epoch = True
        if values:
            style = self._style_of(text, fresh)
            self.styles[style] = self.styles.get(style, 0) + 1
            self.points.add(values, _clock(self._now), redrawn)

    def _style_of(self, text: str, fresh: dict[str, int | float]) -> str:
        if _NANOGPT.match(text):
            return "nanogpt"
        if "{'" in text and "'epoch'" in text:
            return "hf"
        if "it/s" in text or "s/it" in text:
            return "tqdm"
        if self._keras_epoch and "batch" in fresh and " - " in text:
            return "keras"
        return "pairs"

    def _cells(self, text: str) -> bool:
        """A table with one quantity to a row, as Stable-Baselines prints them; the whole table is one record."""
        found = _CELLS.fullmatch(text) if "|" in text else None
        if found is None:
            self._flush_block()
            return False
        value = number(found[2])
        if value is not None:
            self._block.append((self._block_prefix + found[1].strip(), value))
        else:
            self._block_prefix = f"{found[1].strip().rstrip('/')}/" if not found[2] else ""
        return True

    def _flush_block(self) -> None:
        block, self._block, self._block_prefix = self._block, [], ""
        values = []
        for name, value in block:
            kind = counter(name)
            count = _whole(value, kind) if kind else None
            if count is not None:
                self._now[kind] = count
            elif not kind:
                values.append((name, value))
        if values:
            self.styles["table"] = self.styles.get("table", 0) + 1
            self.points.add(values, _clock(self._now))

    def _heading(self, text: str) -> None:
        """A line without numbers may name the columns of what follows, or the set of data it is about."""
        columns = [column.strip() for column in _COLUMNS.split(text.strip())]
        if len(columns) > 1 and counter(columns[0]) and len(columns) <= 40:
            self._header = columns
        first = text.strip(" -=#*[]>").split()[:1]
        if first and len(text) < 60 and text.rstrip().endswith((":", ".", "…", "-", "=", "#", "]")):
            self._section = SPLITS.get(first[0].lower().strip(":.]…"), self._section)

    def _row(self, text: str) -> bool:
        """A row below such a heading."""
        if not self._header or _RULE.fullmatch(text):
            return False
        fields = text.split()
        if len(fields) not in (len(self._header), len(self._header) - 1):
            return False
        numbers = [number(field) for field in fields]
        first = numbers[0]
        if first is None or sum(value is not None for value in numbers) < 2:
            return False
        kind = counter(self._header[0])
        count = _whole(first, kind)
        if count is None:
            return False
        self._now[kind] = count
        pairs = zip(self._header[1:], numbers[1:], strict=False)
        self.styles["table"] = self.styles.get("table", 0) + 1
        self.points.add([(name, value) for name, value in pairs if value is not None], _clock(self._now))
        return True


def _belonging(name: str, split: str) -> str:
    """The name with the set of data that the line says it belongs to."""
    held = meaning(name)
    return f"{split} {name}" if split and not held.split and held.role in _BELONGS else name


def _same_share(digits: str, of: str, value: float) -> bool:
    share = _share(digits, of)
    return share is not None and abs(share - value) < 0.005


def _leading(lead: re.Match[str]) -> dict[str, int | float]:
    epoch, batch, boxed, plain = lead.groups()
    if epoch is not None:
        return {"epoch": int(epoch), "batch": int(batch)}
    return {"step": int(boxed or plain)}


def _count(digits: str, kind: str) -> int | float | None:
    return _whole(value_of(digits), kind)


def _whole(value: float, kind: str) -> int | float | None:
    """The value as a counter: whole, except for epochs, which may be fractions."""
    if not abs(value) < LARGEST_COUNT:
        return None
    if value.is_integer():
        return int(value)
    return value if kind == "epoch" else None


def _position(digits: str, of: str) -> dict[str, int | float]:
    """How far into an epoch: 640/60000."""
    if not digits.isdigit() or len(digits) > 15 or len(of) > 15 or not 0 <= int(digits) <= int(of):
        return {}
    return {"batch": int(digits), "total": int(of)}


def _share(digits: str, of: str) -> float | None:
    """9820/10000 right is a share."""
    if not digits.isdigit():
        return value_of(digits)
    return value_of(digits) / float(of) if float(of) else None


def _clock(now: dict[str, int | float]) -> Clock:
    def whole(kind: str) -> int | None:
        value = now.get(kind)
        return None if value is None else int(value)

    return Clock(whole("step"), whole("batch"), whole("total"), now.get("epoch"), whole("frames"), whole("episode"))
