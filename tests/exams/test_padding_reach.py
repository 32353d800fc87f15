"""Padding at the end of rows, read and kept out, by attention, pooling and a mask the wrong way round."""

import pytest
import torch
import torch.nn.functional as F
from network_subjects import outcome, seeded
from torch import nn

from clew.exams.subject import Subject


class Pooled(nn.Module):
    """`attend` and `pool` say whether padding is masked there: "kept out", "read" or "turned round"."""

    def __init__(self, attend: str, pool: str, causal: bool = False) -> None:
        super().__init__()
        self.attend, self.pool, self.causal = attend, pool, causal
        self.table = nn.Embedding(30, 16, padding_idx=0)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
        self.head = nn.Linear(16, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        padding = ids == 0
        masks = {"kept out": padding, "read": None, "turned round": ~padding}
        ahead = nn.Transformer.generate_square_subsequent_mask(ids.shape[1]) if self.causal else None
        h = self.block(self.table(ids), src_mask=ahead, src_key_padding_mask=masks[self.attend])
        if self.causal:
            each: torch.Tensor = self.head(h)
            return each
        kept = {"kept out": ~padding, "read": torch.ones_like(padding), "turned round": padding}[self.pool].unsqueeze(2)
        out: torch.Tensor = self.head((h * kept).sum(1) / kept.sum(1))
        return out


def subject(attend: str, pool: str, padded: bool = True, causal: bool = False) -> Subject:
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 30, (8, 12), generator=draws)
    if padded:
        for row in range(8):
            ids[row, 4 + row :] = 0

    def loss(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output.mean(1) if causal else output, labels)

    model = seeded(lambda: Pooled(attend, pool, causal))
    return Subject(model, loss, [(ids, torch.arange(8) % 3)])


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (subject("kept out", "kept out"), "kept_out"),
        (subject("kept out", "read"), "read"),
        (subject("read", "kept out"), "read"),
        (subject("turned round", "turned round"), "instead"),
        (subject("turned round", "kept out"), "instead"),
        (subject("read", "read", causal=True), "kept_out"),
        (subject("read", "read", padded=False), "unclear"),
    ],
    ids=["masked", "averaged", "attended", "turned round", "turned round in attention alone", "causal", "no padding"],
)
def test_padding_reach(held: Subject, expected: str) -> None:
    assert outcome("padding_reach", held) == expected
