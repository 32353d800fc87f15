"""Fine-tunes a small language model on questions and answers; only the answers count."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
QUESTION, ANSWER, END, PAD = 12, 13, 14, 15


def example(generator):
    """A number of three digits, and the same backwards."""
    digits = torch.randint(0, 10, (3,), generator=generator).tolist()
    return [QUESTION, *digits, ANSWER, *digits[::-1], END]


def collate(rows):
    tokens = torch.full((len(rows), 12), PAD)
    labels = torch.full((len(rows), 12), -100)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = torch.tensor(row)
        start = row.index(END) + 1
        labels[i, start : len(row)] = torch.tensor(row)[start:]
    return tokens, labels


class TinyLM(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.tokens = nn.Embedding(16, width)
        self.positions = nn.Embedding(12, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 16)

    def forward(self, tokens):
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        hidden = self.tokens(tokens) + self.positions(torch.arange(length))
        return self.head(self.norm(self.blocks(hidden, mask=mask, is_causal=True)))


generator = torch.Generator().manual_seed(1)
data = [example(generator) for _ in range(800)]
model = TinyLM()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(160):
    rows = [data[i] for i in torch.randint(0, len(data), (32,), generator=generator).tolist()]
    tokens, labels = collate(rows)
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, 16), labels[:, 1:].reshape(-1), ignore_index=-100)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
