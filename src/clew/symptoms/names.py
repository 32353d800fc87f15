"""Which of the recorded series stands for the run: its loss in training, its loss on held-out data, its metric."""

from collections.abc import Iterable
from typing import NamedTuple

from clew.symptoms.logs_names import LOSS_TERM, METRIC, TRAIN_LOSS, VAL_LOSS, meaning, words

# What the best constant answer scores, for metrics whose kind settles it, and None where it depends on the data.
CONSTANT: dict[str, float | None] = {
    **dict.fromkeys(("accuracy", "top1", "f1", "precision", "recall", "iou", "miou", "dice", "ap", "map"), None),
    **dict.fromkeys(("auc", "auroc"), 0.5),
    **dict.fromkeys(("r2", "mcc", "kappa"), 0.0),
}
ACCURACY = ("accuracy", "top1")


class Kind(NamedTuple):
    held_out: bool
    loss: bool
    metric: str  # which metric it is, "" for a loss or something else
    rises: bool  # whether higher is better


def kind(name: str) -> Kind:
    said = meaning(name)
    loss = said.role in (TRAIN_LOSS, VAL_LOSS, LOSS_TERM)
    metric = said.base if said.role == METRIC else ""
    return Kind(said.split in ("val", "test"), loss, metric, said.goal == "up")


def main_loss(names: Iterable[str], held_out: bool) -> tuple[str | None, str]:
    """The loss that stands for the whole run among these names, or None and the reason."""
    losses = [name for name in names if (found := kind(name)).loss and found.held_out == held_out]
    whole = "validation" if held_out else "training"
    if not losses:
        return None, f"no {whole} loss was recorded"
    plain = [name for name in losses if meaning(name).role in (TRAIN_LOSS, VAL_LOSS)]
    for wanted in ("total", "overall"):
        totals = [name for name in plain if wanted in words(name)]
        if totals:
            return min(totals, key=_shortest), ""
    if plain:
        return min(plain, key=_shortest), ""
    if len(losses) == 1:
        return losses[0], ""
    return None, f"there are several {whole} losses ({', '.join(sorted(losses)[:4])}) and none is their total"


def _shortest(name: str) -> tuple[int, bool, str]:
    """Validation before test: the one is followed through training, the other looked at when it is over."""
    return len(words(name)), meaning(name).split == "test", name
