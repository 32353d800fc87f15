"""What the words of a complaint say of which quantity: "val accuracy stuck at 9 %, 10 classes; train loss goes to 0.02"
is a metric at chance beside a loss that falls, and no stuck loss."""

import re
from typing import NamedTuple

QUANTITIES = (
    ("gradient", r"grad(ient)?s?( norms?)?"),
    ("time", r"(step|epoch|iteration)s?( times?)? (is|are|get|take)|slower|speed"),
    ("memory", r"memory|oom"),
    ("loss", r"loss|nll|cross[- ]?entropy|mse|perplexity|objective"),
    ("metric", r"acc(uracy)?|f1|auc|auroc|iou|bleu|score|metric|precision|recall|map"),
)
HELD_OUT = r"val(id(ation)?)?|test|eval(uation)?|held[- ]?out|dev"
TRAINING = r"train(ing)?"
MOVES = (
    ("nonfinite", r"nan|inf(inite|inity)?|not finite"),
    ("negative", r"negative|below (zero|0)"),
    ("oscillates", r"oscillat\w*|jump\w*|bounc\w*|nois\w*|erratic\w*|spik\w*|swing\w*|fluctuat\w*|zig\w*"),
    ("explodes", r"explod\w*|diverg\w*|blow\w* up|shoots? up"),
    ("stuck", r"stuck|flat|plateau\w*|constant|same|stays?|remains?|chance|random|(not|n't|never) \w+|no better"),
    ("falls", r"fall\w*|drop\w*|decreas\w*|declin\w*|go(es|ing) down|(goes|went|down|reaches) to|near zero|low"),
    ("rises", r"ris\w*|increas\w*|grow\w*|climb\w*|goes up|going up|improv\w*|works?|high|worse\w*|slower"),
)  # fmt: skip
UP = ("rises", "explodes")
CLAUSES = re.compile(r"[;,.](?!\d)|\b(?:but|while|whereas|although|though|yet|and|however)\b")
CHANCE = re.compile(r"\b(chance|random|guess\w*)\b")
LATER = re.compile(r"\b(after|then|at some point|later|plateau\w*)\b")


class Said(NamedTuple):
    """One thing said of one quantity. `part` is "train", "val" or ""."""

    quantity: str
    part: str
    move: str


def said_of(words: str) -> list[Said]:
    """Clause by clause; a clause that names no quantity goes on about the one before."""
    found: list[Said] = []
    quantity = part = ""
    for clause in CLAUSES.split(words.lower()):
        named = next((name for name, pattern in QUANTITIES if _has(pattern, clause)), "")
        if named:
            quantity = named
            part = "val" if _has(HELD_OUT, clause) else "train" if _has(TRAINING, clause) else ""
        move = next((name for name, pattern in MOVES if _has(pattern, clause)), "")
        if quantity and move:
            found.append(Said(quantity, part, move))
    return found


def observations(words: str) -> list[tuple[str, str]]:
    """The tests and outcomes that the words amount to, the most telling first."""
    said = said_of(words)

    def says(quantity: str, move: str, part: str = "") -> bool:
        return any(one.quantity == quantity and one.move == move and part in (one.part, "") for one in said)

    fitted = any(one.quantity == "loss" and one.part != "val" and one.move == "falls" for one in said)
    later = fitted or LATER.search(words.lower()) is not None
    own_loss = [one.move for one in said if one.quantity == "loss" and one.part != "val"]
    flat = says("metric", "stuck")
    rows = (
        ("metric_at_chance", "at_chance", flat and _at_chance(words.lower())),
        ("metric_vs_loss", "loss_falls_metric_flat", flat and fitted),
        ("metric_vs_loss", "metric_worsens", says("metric", "falls") and fitted),
        ("train_val_gap", "val_much_worse", fitted and any(says("loss", move, "val") for move in UP)),
        ("loss_nonfinite", "seen", says("loss", "nonfinite")),
        ("metric_nonfinite", "seen", says("metric", "nonfinite")),
        ("loss_diverges", "after_falling" if later else "at_once", "explodes" in own_loss),
        ("loss_rises", "steadily", "rises" in own_loss),
        ("loss_goes_negative", "seen", "negative" in own_loss),
        ("loss_stuck_from_start", "stuck", "stuck" in own_loss and not fitted),
        ("metric_vs_loss", "neither_moves", flat and "stuck" in own_loss and not fitted),
        ("loss_plateau", "early_high", "stuck" in own_loss and later),
        ("loss_oscillates", "wild", "oscillates" in own_loss),
        ("val_erratic", "seen", says("loss", "oscillates", "val") or says("metric", "oscillates", "val")),
        ("gradient_explodes", "explodes", says("gradient", "explodes") or says("gradient", "nonfinite")),
        ("step_time_trend", "grows", says("time", "rises")),
        ("memory_trend", "grows", says("memory", "rises")),
    )  # fmt: skip
    return [(test, outcome) for test, outcome, stands in rows if stands]


def _has(pattern: str, text: str) -> bool:
    return re.search(rf"(?<![a-z])(?:{pattern})(?![a-z])", text) is not None


def _at_chance(words: str) -> bool:
    """Whether a metric is said to be at chance, in words or by a share that the number of classes makes chance."""
    if CHANCE.search(words):
        return True
    share = re.search(r"(\d+(?:\.\d+)?) ?%|\b(0?\.\d+)\b", words)
    classes = re.search(r"(\d+)[- ]?(?:way|class(?:es)?|labels|categories)\b", words)
    count = int(classes[1]) if classes else 2 if re.search(r"\bbinary\b", words) else 0
    if share is None or count < 2:
        return False
    value = float(share[1]) / 100 if share[1] else float(share[2])
    return 0.5 <= value * count <= 1.5
