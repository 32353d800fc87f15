import torch
import torch.nn as nn


class Factorization(nn.Module):
    """stars = average + user bias + film bias + user . film"""

    def __init__(self, n_users, n_films, rank, average):
        super().__init__()
        self.user_factors = nn.Embedding(n_users, rank)
        self.film_factors = nn.Embedding(n_films, rank)
        self.user_bias = nn.Embedding(n_users, 1)
        self.film_bias = nn.Embedding(n_films, 1)
        self.register_buffer("average", torch.tensor(average, dtype=torch.float32))
        for table in (self.user_factors, self.film_factors):
            nn.init.normal_(table.weight, std=0.1)
        for table in (self.user_bias, self.film_bias):
            nn.init.zeros_(table.weight)

    def forward(self, users, films):
        interaction = (self.user_factors(users) * self.film_factors(films)).sum(-1)
        biases = self.user_bias(users) + self.film_bias(films)
        return self.average + biases.squeeze(-1) + interaction
