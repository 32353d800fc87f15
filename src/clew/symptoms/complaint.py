"""What the words of a complaint say of which quantity: "val accuracy stuck at 9 %, 10 classes; train loss goes to 0.02"
is a metric at chance beside a training loss near zero, and no stuck loss."""

import re
from typing import NamedTuple

QUANTITIES = (
    ("gradient", r"grad(ient)?s?( norms?)?"),
    ("time", r"slow(er|s down)|throughput|takes? (ever )?longer|(step|epoch|iteration)s? (\w+ )?(takes?|gets?) longer"),
    ("memory", r"memory|oom"),
    ("entropy", r"(?<!cross-)(?<!cross )entropy"),
    ("loss", r"loss|nll|cross[- ]?entropy|mse|perplexity|objective|residuals?"),
    ("return", r"returns?|rewards?|rew|agent"),
    ("metric", r"acc(uracy)?|f1|auc|auroc|iou|bleu|rouge|wer|r2|score|metric|precision|recall|map"),
)
HELD_OUT = r"val(id(ation)?)?|test|eval(uation)?|held[- ]?out|dev"
TRAINING = r"train(ing)?"
MOVES = (
    ("nonfinite", r"nan|inf(inite|inity)?|not finite"),
    ("negative", r"negative|below (zero|0)"),
    ("oscillates", r"oscillat\w*|jump\w*|bounc\w*|nois\w*|erratic\w*|spik\w*|swing\w*|fluctuat\w*|zig\w*"),
    ("explodes", r"explod\w*|diverg\w*|blow\w* up|shoots? up"),
    ("plateaus", r"plateau\w*|levels? off|stall\w*"),
    ("stuck", r"stuck|flat|constant|same|stays?|remains?|chance|random|(not|\w*n't|never) \w+|no better"),
    ("falls", r"f[ae]ll\w*|drop\w*|decreas\w*|declin\w*|collaps\w*|(going|goes|went|reaches) (to|down)|near zero|low"),
    ("rises", r"ris\w*|increas\w*|grow\w*|climb\w*|goes up|going up|improv\w*|works?|high|worse\w*|slower"),
)  # fmt: skip
UP = ("rises", "explodes")
FLAT = ("stuck", "plateaus")
CLAUSES = re.compile(r"[;,.](?!\d)|\b(?:but|while|whereas|although|though|yet|and|however|then)\b")
CHANCE = re.compile(r"\b(chance|random|guess\w*|at (0|zero)(?![.\d]))\b")
LATER = re.compile(r"\b(after|then|at some point|later|plateau\w*)\b")
SHARE = re.compile(r"(\d+(?:\.\d+)?) ?%|\b(0?\.\d+)\b")
NEAR_ZERO = re.compile(
    r"\bloss(?: \w+)?(?: (?:to|at|is|of|reaches|near|nearly|almost|=))* "
    r"(?:zero|0|0?\.0[0-4]\d*|\d(?:\.\d+)?e-\d+)(?![\d.]*\d)"
)
OF_A_PART = r"discriminator|critic|generator|kl|value|boundary"
GAP = 0.15
BOUNDARY = r"(boundar(y|ies)|initial) (condition|value)s?|bcs?"
THINGS = "(class|output|prediction|token|answer|label|value)s?"
PHRASES = (
    ("too_good_too_soon", "suspicious", r"too good|suspicious\w*"),
    ("too_good_too_soon", "suspicious", r"(99(\.\d+)? ?%|100 ?%|perfect) .*\b(first|one|after (a few|ten|\d\d?)) \w+"),
    ("too_good_too_soon", "suspicious", r"perplexity( of)? 1\.0\d*"),
    ("outputs_constant", "constant", rf"(same|single|constant|identical) {THINGS}|(predict|answer)\w* (only|always)"),
    ("outputs_constant", "constant", r"(solution|output|prediction)s? (is|are) (zero|constant|flat)"),
    ("boundary_error", "violated", rf"({BOUNDARY}) .*(not|n't|never|violat\w*|ignor\w*|wrong|off)"),
    ("boundary_error", "violated", rf"(not|n't|violat\w*|ignor\w*) .*({BOUNDARY})"),
    ("boundary_error", "violated", r"(residual|pinn) .*solution (is|stays) (zero|constant|flat|wrong)"),
    ("boundary_error", "violated", r"(boundary|bc) (loss|error|term) .*(high|stays|stuck|not|n't|never)"),
    ("physical_parameter_track", "at_zero_or_bound", r"(learned|estimated|inferred) .*(goes|runs|drifts) (to|against)"),
    ("loss_epoch_sawtooth", "seen", r"loss .*(every|each|at) (new )?epoch( boundar\w+| start| end)?s?"),
    ("loss_spike_at_start", "seen", r"spik\w+ .*(first|start|beginning)"),
    ("gradient_by_depth", "zero", r"grad(ient)?s?( norms?)? (is|are) (all )?(zero|0|none)"),
    ("gradient_by_depth", "vanishing", r"vanishing grad\w*|grad(ient)?s? vanish\w*"),
    ("kl_per_update", "spike", r"kl( divergence)?( \w+)? (spik|explod|jump|shoot|too (high|large))\w*"),
    ("explained_variance", "negative", r"explained variance .*(negative|below (0|zero)|-\d)"),
    ("explained_variance", "low", r"explained variance .*(zero|0|low)"),
    ("episode_length_trend", "no_change", r"episode lengths? .*(never|not|n't|same|constant|flat|stays?)"),
    ("fails_on_fresh_data", "fails", r"(good|great|fine|works?|%) .*(but|yet) .*(production|deployed|real|new|unseen)"),
)  # fmt: skip
"""Test, outcome, and how people put it who name no quantity that moves."""
NEEDLESS = (
    (r"dqn|q-?learning|q-?networks?", ("entropy_trend", "entropy_pull", "kl_per_update", "advantage_statistics")),
)
"""By what a complaint is about: tests that ask for what it does not have."""


class Said(NamedTuple):
    """One thing said of one quantity. `part` is "train", "val" or ""; `share` a share of 1 that was named."""

    quantity: str
    part: str
    move: str
    share: float | None


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
        if quantity and (named or move):
            found.append(Said(quantity, part, move, _share(clause)))
    return found


def observations(words: str) -> list[tuple[str, str]]:
    """The tests and outcomes that the words amount to, the most telling first."""
    said, text = said_of(words), words.lower()

    def moves(quantity: str, part: str = "") -> set[str]:
        return {one.move for one in said if one.quantity == quantity and part in (one.part, "")}

    own_loss = {one.move for one in said if one.quantity == "loss" and one.part != "val"}
    fitted = "falls" in own_loss or fits(words)
    later = fitted or LATER.search(text) is not None
    flat = not moves("metric").isdisjoint(FLAT)
    val_up = not {one.move for one in said if one.quantity == "loss" and one.part == "val"}.isdisjoint(UP)
    trained, held_out = (
        [one.share for one in said if one.quantity == "metric" and one.part == part and one.share is not None]
        for part in ("train", "val")
    )
    apart = bool(trained and held_out) and max(trained) - min(held_out) >= GAP
    phrases = list(dict.fromkeys((test, outcome) for test, outcome, pattern in PHRASES if _has(pattern, text)))
    spiked = ("loss_spike_at_start", "seen") in phrases or ("loss_epoch_sawtooth", "seen") in phrases
    rows = (
        ("entropy_trend", "collapsed", "falls" in moves("entropy")),
        ("entropy_trend", "flat", not moves("entropy").isdisjoint(FLAT)),
        ("returns_course", "falls", "falls" in moves("return") or _has(r"worse than (a )?random", text)),
        ("returns_course", "level", not moves("return").isdisjoint(FLAT) and "falls" not in moves("return")),
        ("metric_at_chance", "at_chance", flat and _at_chance(text)),
        ("metric_vs_loss", "loss_falls_metric_flat", flat and fitted),
        ("metric_vs_loss", "metric_worsens", "falls" in moves("metric") and fitted),
        ("val_turns_up", "turns", fitted and val_up and bool(re.search(r"\b(after|from|then|later)\b", text))),
        ("train_val_gap", "val_much_worse", apart or (fitted and val_up)),
        ("loss_nonfinite", "seen", "nonfinite" in moves("loss")),
        ("metric_nonfinite", "seen", "nonfinite" in moves("metric") | moves("return")),
        ("loss_diverges", "after_falling" if later else "at_once", "explodes" in own_loss),
        ("loss_rises", "steadily", "rises" in own_loss),
        ("loss_goes_negative", "seen", "negative" in own_loss),
        ("loss_stuck_from_start", "stuck", "stuck" in own_loss and not fitted),
        ("metric_vs_loss", "neither_moves", flat and "stuck" in own_loss and not fitted),
        ("loss_plateau", "early_high", "plateaus" in own_loss or ("stuck" in own_loss and later)),
        ("loss_oscillates", "wild", "oscillates" in own_loss and not spiked),
        ("val_erratic", "seen", "oscillates" in moves("loss", "val") | moves("metric", "val")),
        ("gradient_explodes", "explodes", not moves("gradient").isdisjoint(("explodes", "nonfinite"))),
        ("step_time_trend", "grows", bool(moves("time"))),
        ("memory_trend", "grows", "rises" in moves("memory")),
        ("training_fit", "near_zero", fits(words)),
    )  # fmt: skip
    return [*phrases, *((test, outcome) for test, outcome, stands in rows if stands)]


def fits(words: str) -> bool:
    """Whether the words give the training loss a number near zero, or call it that."""
    clauses = CLAUSES.split(words.lower())
    return any(NEAR_ZERO.search(clause) and not _has(rf"{HELD_OUT}|{OF_A_PART}", clause) for clause in clauses)


def needless(words: str) -> set[str]:
    return {test for pattern, tests in NEEDLESS for test in tests if _has(pattern, words.lower())}


def _has(pattern: str, text: str) -> bool:
    return re.search(rf"(?<![a-z])(?:{pattern})(?![a-z])", text) is not None


def _share(words: str) -> float | None:
    found = SHARE.search(words)
    return None if found is None else float(found[1]) / 100 if found[1] else float(found[2])


def _at_chance(words: str) -> bool:
    """Whether a metric is said to be at chance, in words or by a share that the number of classes makes chance."""
    if CHANCE.search(words):
        return True
    value = _share(words)
    classes = re.search(r"(\d+)[- ]?(?:way|class(?:es)?|labels|categories)\b", words)
    count = int(classes[1]) if classes else 2 if re.search(r"\bbinary\b", words) else 0
    return value is not None and count >= 2 and 0.5 <= value * count <= 1.5
