"""The training step of this project, for clew: `clew exam numerals.debug:subject`, and for the tests."""

import torch

from clew import Subject
from numerals.data import batches, split
from numerals.model import Writer, loss
from numerals.train import optimizer


def subject() -> Subject:
    torch.manual_seed(0)
    training, held_out = split()
    model = Writer()
    return Subject(model, loss, batches(training)[:16], optimizer(model), val_batches=batches(held_out)[:4])
