import torch.nn as nn

from tagger.corpus import PAD
from tagger.layers import EncoderLayer, SinusoidalPositions


class TransformerTagger(nn.Module):
    def __init__(self, n_words, n_tags, dim=32, heads=4, layers=2, dropout=0.1):
        super().__init__()
        self.embedding = nn.Embedding(n_words, dim, padding_idx=PAD)
        self.positions = SinusoidalPositions(dim)
        self.layers = nn.ModuleList([EncoderLayer(dim, heads, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)
        self.classifier = nn.Linear(dim, n_tags)

    def forward(self, words):
        padding = words == PAD
        x = self.positions(self.embedding(words))
        for layer in self.layers:
            x = layer(x, padding)
        return self.classifier(self.norm(x))
