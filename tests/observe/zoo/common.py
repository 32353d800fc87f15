"""What every program here does first and last: seed all generators, print all that was trained as one digest."""

import hashlib
import random
import struct

import numpy as np
import torch


def seed_all(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def state_digest(*things):
    """Parameters with their gradients, buffers, optimiser state, and the state of every random generator."""
    held = hashlib.sha256()
    for thing in things:
        _feed(held, _parts(thing))
    _feed(held, [torch.get_rng_state(), list(np.random.get_state()), random.getstate()])
    return held.hexdigest()


def print_digest(*things):
    print("DIGEST", state_digest(*things), flush=True)


def _parts(thing):
    if isinstance(thing, torch.nn.Module):
        return [
            [(name, value, value.grad) for name, value in thing.named_parameters()],
            dict(thing.named_buffers()),
            thing.training,
        ]
    if hasattr(thing, "state_dict"):
        return thing.state_dict()
    return thing


def _feed(held, value):
    held.update(type(value).__name__.encode())
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().contiguous()
        held.update(f"{value.dtype}{tuple(value.shape)}".encode())
        held.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, np.ndarray):
        held.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    elif isinstance(value, float):
        held.update(struct.pack("<d", value))
    elif isinstance(value, dict):
        for key, item in value.items():
            _feed(held, key)
            _feed(held, item)
    elif isinstance(value, list | tuple):
        for item in value:
            _feed(held, item)
    else:
        held.update(repr(value).encode())
