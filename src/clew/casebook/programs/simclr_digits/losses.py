import torch
import torch.nn as nn
import torch.nn.functional as F


class NTXent(nn.Module):
    """Each view must find its partner among all other views of the batch."""

    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, a, b):
        n = len(a)
        z = F.normalize(torch.cat([a, b]), dim=1)
        similarity = z @ z.T / self.temperature
        similarity = similarity.masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
        partner = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
        return F.cross_entropy(similarity, partner)
