"""What the names in somebody's log mean: `eval_acc`, `Loss/val`, `train-rmse` and `gnorm` by role."""

import re
from typing import NamedTuple

TRAIN_LOSS, VAL_LOSS, LOSS_TERM = "train loss", "validation loss", "loss term"
METRIC, RATE, GRAD_NORM, LENGTH = "metric", "learning rate", "gradient norm", "episode length"
ENTROPY, TIMING, OTHER = "policy entropy", "timing", "other"

SPLITS = {
    **dict.fromkeys(("train", "training", "trn", "tr", "learn"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "validate", "vali", "eval", "evaluation", "dev", "holdout"), "val"),
    **dict.fromkeys(("heldout", "evaluating", "validating"), "val"),
    **dict.fromkeys(("test", "testing", "tst"), "test"),
}
AVERAGES = {"average", "avg", "mean", "ave", "running", "current", "cur", "smoothed", "set", "the"}
GRAIN = {"step", "epoch", "batch", "iter", "iteration", "dataloader", "idx", "metrics", "minibatch", "raw", "history"}
EXTREMES = {"best", "min", "max", "lowest", "highest", "std", "var", "target", "initial", "final", "last", "so", "far"}

LOSSES = {"loss", "losses", "cost", "nll", "xent", "logloss", "objective", "criterion", "deviance", "elbo"}
CRITERIA = {
    *("ce", "bce", "nll", "mse", "mae", "l1", "l2", "xent", "cross", "entropy", "lm", "mlm", "total", "overall", "sum"),
    *("huber", "smooth", "focal", "ctc", "softmax", "binary", "multi", "categorical", "sparse", "model", "log"),
    *("crossentropy", "rmse", "objective", "criterion", "main", "combined", "full", "seq2seq", "next", "token"),
}
NO_LOSS = {"scale", "scaler", "weight", "weights", "coef", "scaling", "ratio", "count", "log2"}
RISING = {
    **dict.fromkeys(("accuracy", "acc", "accu"), "accuracy"),
    **dict.fromkeys(("f1", "f1score", "fscore", "precision", "recall", "iou", "miou", "dice", "jaccard"), ""),
    **dict.fromkeys(("auc", "auroc", "aucroc", "auprc", "ap", "map", "map50", "map95", "ndcg", "mrr"), ""),
    **dict.fromkeys(("bleu", "rouge", "rougel", "meteor", "psnr", "ssim", "r2", "mcc", "kappa", "spearman"), ""),
    **dict.fromkeys(("pearson", "reward", "rewards", "rew", "return", "returns", "score", "success", "em"), ""),
    **dict.fromkeys(("sensitivity", "specificity", "top1", "top5", "elo", "hits", "matches"), ""),
}
FALLING = {
    **dict.fromkeys(("perplexity", "ppl"), "perplexity"),
    **dict.fromkeys(("error", "err", "wer", "cer", "mae", "mse", "rmse", "mape", "fid", "bpb", "bpc", "bpd"), ""),
    **dict.fromkeys(("l1", "l2", "crossentropy", "mare", "smape", "rmsle", "merror"), ""),
    **dict.fromkeys(("distance", "mmd", "emd", "chamfer", "wasserstein", "kid", "lpips", "rmsd"), ""),
}
OF_MOVES = {"travelled", "traveled", "travel", "moved", "parameter", "parameters", "weights", "goal", "init", "start"}
"""Beside these a distance is how far something went, and nobody's aim."""
SHARES = {
    *("accuracy", "f1", "f1score", "precision", "recall", "iou", "miou", "dice", "auc", "auroc", "ap", "map"),
    *("sensitivity", "specificity", "top1", "top5", "success", "em", "jaccard", "kappa", "map50", "map95"),
}
TIMES = {
    *("time", "dt", "duration", "dur", "elapsed", "eta", "sec", "secs", "seconds", "runtime", "ms", "speed", "second"),
    *("throughput", "fps", "tok", "ips", "mfu", "wall", "took", "remaining", "latency", "hours", "minutes", "mins"),
}
STANDS_FOR_LOSS = {"rmse", "mse", "mae", "l1", "l2", "error", "mape", "crossentropy", "merror", "rmsle"}


RETURNS = {"reward", "rewards", "rew", "return", "returns"}
OF_POLICIES = {"entropy", "loss", "policy", "pi", "actor"}


class Meaning(NamedTuple):
    """A name, normalised. `split` is "train", "val", "test" or "" when the name does not say; `goal` is "up" or "down"
    for what somebody wants to see rise or fall."""

    name: str
    role: str
    split: str = ""
    goal: str = ""
    base: str = ""


_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORDS = re.compile(r"[^\W_]+")
_known: dict[str, Meaning] = {}


def words(source: str) -> list[str]:
    """`trainLoss/epoch` is train, loss, epoch."""
    return _WORDS.findall(_CAMEL.sub(" ", source.replace("'s", " ")).lower())


def meaning(source: str) -> Meaning:
    found = _known.get(source)
    if found is None:
        if len(_known) > 20_000:
            _known.clear()
        found = _known[source] = _meaning(words(source))
    return found


def _meaning(tokens: list[str]) -> Meaning:
    tokens = [token for token in tokens if token not in AVERAGES]
    split = next((SPLITS[token] for token in tokens if token in SPLITS), "")
    core = [token for token in tokens if token not in SPLITS]
    heart = [token for token in core if token not in GRAIN and not token.isdigit()]
    spelt = [RISING.get(token) or FALLING.get(token) or token for token in core]
    name = "_".join([*([split] if split else []), *spelt]) or "value"
    if EXTREMES & set(heart):
        return Meaning(name, OTHER, split)
    return _role(name, split, heart)


def _role(name: str, split: str, heart: list[str]) -> Meaning:
    held = set(heart)
    if "lr" in held or {"learning", "rate"} <= held:
        return Meaning("learning_rate", RATE)
    if "gnorm" in held or "gradnorm" in held or heart in (["norm"], ["total", "norm"]):
        return Meaning("grad_norm", GRAD_NORM)
    if "norm" in held and held & {"grad", "gradient", "gradients"}:
        plain = held <= {"norm", "grad", "gradient", "gradients", "total", "global"}
        return Meaning("grad_norm", GRAD_NORM) if plain else Meaning(name, OTHER)
    if held & {"len", "length"} and held & {"ep", "episode", "rollout"}:
        return Meaning(name, LENGTH)
    if held & TIMES or heart[-2:] in (["per", "s"], ["it", "s"]):
        return Meaning(name, TIMING)
    if "entropy" in held and held <= OF_POLICIES:
        return Meaning(name, ENTROPY)
    if held & LOSSES:
        if held & NO_LOSS:
            return Meaning(name, OTHER, split)
        plain = held <= LOSSES | CRITERIA
        whole = VAL_LOSS if split in ("val", "test") else TRAIN_LOSS
        return Meaning(name, whole if plain else LOSS_TERM, split, "down", "loss")
    for token in reversed(heart):
        if token in RISING:
            return Meaning(name, METRIC, split, "up", RISING[token] or token)
        if token in FALLING and not (token == "distance" and held & OF_MOVES):
            return Meaning(name, METRIC, split, "down", FALLING[token] or token)
    return Meaning(name, OTHER, split)


def known(source: str) -> bool:
    """Whether the name means something to clew."""
    return meaning(source).role != OTHER


COUNTERS = {
    **dict.fromkeys(("step", "steps", "iter", "iters", "iteration", "iterations", "it", "itr", "update"), "step"),
    **dict.fromkeys(("updates", "round", "tree"), "step"),
    **dict.fromkeys(("timesteps", "timestep", "frames", "frame"), "frames"),
    **dict.fromkeys(("episode", "episodes"), "episode"),
    **dict.fromkeys(("batch", "minibatch", "batches"), "batch"),
    **dict.fromkeys(("epoch", "epochs", "ep"), "epoch"),
}
_BESIDE = {"global", "current", "trainer", "optimizer", "optimiser", "env", "idx", "index", "id", "no", "num"}
_PLURALS = {"epochs", "steps", "batches", "episodes", "iters", "updates"}


def counter(source: str) -> str:
    """ "step", "batch", "epoch", "frames" or "episode" when the name counts time, "" otherwise.

    `num_epochs`, `batch_size` and `steps_per_epoch` count nothing; `num_updates` and `num_timesteps` do.
    """
    tokens = words(source)
    if tokens[:1] == ["time"]:
        tokens = tokens[1:]
    kinds = [token for token in tokens if token in COUNTERS]
    if len(kinds) != 1 or len(tokens) > 4:
        return ""
    rest = set(tokens) - {kinds[0]}
    total_frames = rest == {"total"} and COUNTERS[kinds[0]] == "frames"
    if not (rest <= _BESIDE | set(SPLITS) or total_frames):
        return ""
    if "num" in rest and (kinds[0] in _PLURALS - {"updates"} or kinds[0] in ("batch", "epoch", "step")):
        return ""
    return COUNTERS[kinds[0]]
