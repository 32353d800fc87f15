"""Trains the writer and says how well it does on numerals that it has not seen."""

import torch

from numerals.data import batches, split
from numerals.model import Writer, loss


def optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=3e-3)


def main(epochs: int = 5) -> None:
    torch.manual_seed(0)
    training, held_out = split()
    model = Writer()
    steps = optimizer(model)
    for epoch in range(epochs):
        order = torch.randperm(len(training))
        for inputs, target in batches(training[order]):
            steps.zero_grad()
            value = loss(model(inputs), target)
            value.backward()
            steps.step()
        with torch.no_grad():
            losses = [float(loss(model(inputs), target)) for inputs, target in batches(held_out)]
        print(f"epoch {epoch}: validation loss {sum(losses) / len(losses):.4f}")


if __name__ == "__main__":
    main()
