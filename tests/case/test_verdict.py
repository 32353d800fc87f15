"""One word for what was weighed."""

import pytest

from clew.case.verdict import judge, unusual
from clew.case.weigh import Share, Weighed, Weighing
from clew.knowledge import load

CLUES = (
    Weighed("train_val_gap", "val_better", "seen", 1.0),
    *(Weighed(f"check {number}", "passed", "absent", 1.0) for number in range(4)),
)


def weighing(sound: float, **shares: float) -> Weighing:
    held = [Share(cause.replace("__", "."), credence, 0.01) for cause, credence in shares.items()]
    held.sort(key=lambda share: -share.credence)
    bits = {(clue.test, clue.outcome): {share.cause: 1.0 for share in held} for clue in CLUES}
    return Weighing((), tuple(held), 1.0 - sum(shares.values()), CLUES, bits, sound)


@pytest.mark.parametrize(
    ("sound", "shares", "word"),
    [
        (0.8, {"none__healthy": 0.81, "hp__lr_too_low": 0.1}, "healthy"),
        (0.8, {"none__healthy": 0.79, "hp__lr_too_low": 0.1}, "undecided"),
        (0.45, {"none__healthy": 0.37, "hp__lr_too_low": 0.16, "loss__saturated": 0.08}, "undecided"),
        (0.45, {"none__healthy": 0.37, "hp__lr_too_low": 0.3}, "suspect"),
        (0.30, {"none__healthy": 0.25, "hp__lr_too_low": 0.1}, "suspect"),
        (0.30, {"none__slow": 0.45, "hp__lr_too_low": 0.1}, "suspect"),
        (0.79, {"none__overfitting": 0.57, "none__healthy": 0.22}, "suspect"),
        (0.95, {"none__overfitting": 0.57, "none__healthy": 0.38}, "undecided"),
        (0.30, {"none__healthy": 0.2, "hp__lr_too_low": 0.6}, "fault"),
    ],
)
def test_the_word(sound: float, shares: dict[str, float], word: str) -> None:
    """Where nothing wrong leads and no cause comes near, an oddity is one that a sound run has too."""
    assert judge(load(), weighing(sound, **shares)).word == word


@pytest.mark.parametrize(
    ("test", "outcome", "word"),
    [
        ("loss_term_sizes", "one_dominates", "undecided"),
        ("clip_activity", "always", "undecided"),
        ("train_val_gap", "val_much_worse", "undecided"),
        ("file_class_counts", "rare", "healthy"),
        ("source_data_leak_split", "certain", "suspect"),
        ("source_data_leak_split", "likely", "undecided"),
        ("source_data_leak_split", "look", "healthy"),
    ],
)
def test_health_stands_above_no_line_that_contradicts_it(test: str, outcome: str, word: str) -> None:
    held = weighing(0.99, none__healthy=0.97)
    held = held._replace(clues=(CLUES[0], Weighed(test, outcome, "seen", 1.0), *CLUES[1:]))
    verdict = judge(load(), held)
    assert verdict.word == word
    assert verdict.shown == {"undecided": "NOTHING FOUND"}.get(word, word.upper())
    assert word == "healthy" or unusual(load(), held) == [1, 0]
