"""The numerals from 1 to 3999 as rows of tokens."""

import torch

LETTERS = ".MDCLXVI"
"""The first one ends a numeral and fills up the row."""
LENGTH = 16
SIGNS = [
    (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"),
    (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
]  # fmt: skip


def numeral(value: int) -> str:
    text = ""
    for worth, sign in SIGNS:
        text += sign * (value // worth)
        value %= worth
    return text


def encoded(text: str) -> list[int]:
    row = [0, *(LETTERS.index(letter) for letter in text)]
    return row + [0] * (LENGTH + 1 - len(row))


def split(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows to train on and rows held out, shuffled before they are parted."""
    rows = torch.tensor([encoded(numeral(value)) for value in range(1, 4000)])
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))]
    return rows[:3200], rows[3200:]


def batches(rows: torch.Tensor, size: int = 32) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Inputs, and as targets the same letters one place on; what follows the end of a numeral does not count."""
    made = []
    for chunk in rows.split(size):
        inputs, targets = chunk[:, :-1], chunk[:, 1:].clone()
        targets[(inputs == 0) & (torch.arange(LENGTH) > 0)] = -100
        made.append((inputs, targets))
    return made
