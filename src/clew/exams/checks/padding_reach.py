"""Do outputs at real positions depend on padding?

Finds the padding that closes the rows of token ids, and takes the gradient of the outputs, at real positions only where
there is one per position, with respect to the embedded tokens. It must be zero at padded positions.

Why it matters: padding that is attended to or averaged makes an output depend on the longest row of its batch. An
inverted mask reads only padding.
Cannot tell: padding at the front of a row, or in the middle; whether a network without any mask should read it.
Silent when: there is no attention in the model (recurrent layers and convolutions over padded text are common
practice), or rows have no padding.
"""

from __future__ import annotations

import torch

from clew.exams.batches import is_values, tensors
from clew.exams.checks._network_rows import seeded_walk
from clew.exams.exam import exam
from clew.exams.lab import Lab, Seen
from clew.records.clue import Answer, Saw, Unclear
from clew.records.place import ATTENDS, Place
from clew.tape.tokens import padding

ATTENTION = frozenset(
    "scaled_dot_product_attention multi_head_attention_forward softmax MultiheadAttention Softmax".split()
)
OTHERWISE = frozenset(
    "lstm gru rnn_tanh rnn_relu conv1d conv2d LSTM GRU RNN Conv1d Conv2d max_pool1d adaptive_max_pool1d".split()
)
NOTHING = 1e-7
"""Of the largest gradient at any position: what a masked score of -1e9 leaves."""
MOST, HALF = 0.8, 0.5
ROWS = 2
LOOKED = 24


@exam("padding_reach", seconds=0.5)
def examine(lab: Lab) -> Answer:
    found = _padded(lab)
    if found is None:
        return Unclear("no token ids with padding at the end of their rows were seen")
    ids, lengths = found
    model = lab.fresh(training=False)
    output, seen = seeded_walk(lab, model, lab.batch)
    kinds = {held.kind for held in seen} | {type(module).__name__ for module in model.modules()}
    if not kinds & ATTENTION or kinds & OTHERWISE:
        return Unclear("the model has no attention, or also layers that read neighbouring positions")
    embedded = next((held for held in seen if _is_embedding(held, ids)), None)
    if embedded is None:
        return Unclear("the embedding of the tokens was not seen")
    padded = torch.arange(ids.shape[1], device=ids.device) >= (ids.shape[1] - lengths)[:, None]
    score = _said_of_real(output, padded)
    if score is None:
        return Unclear("no output depends on the embedded tokens")
    turned = _turned(seen, embedded, padded)
    if turned is not None:
        return turned if turned.where else turned.at(embedded.place, lab.place())
    gradient = _gradient(score, embedded)
    if gradient is None:
        return Unclear("no output depends on the embedded tokens")
    last = next((held.place for held in reversed(seen) if held.place is not None), None)
    return _judged(lab, last, gradient.flatten(2).norm(dim=2), padded, embedded)


def _gradient(score: torch.Tensor, embedded: Seen, again: bool = False) -> torch.Tensor | None:
    found: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
        score, embedded.value, allow_unused=True, retain_graph=again
    )
    return found[0]


def _turned(seen: list[Seen], embedded: Seen, padded: torch.Tensor) -> Saw | None:
    """Whether the first position, which is real, attends to padding and to no real position but itself. What else leads
    past the attention does not matter here: the first result that depends on other positions tells."""
    real = ~padded
    real[:, 0] = False
    later = [held for held in seen if held is not embedded]
    for held in later[:LOOKED]:
        value = _first_position(held.value, padded)
        if value is None or not value.requires_grad:
            continue
        weights = torch.linspace(0.5, 1.5, value.numel(), device=value.device, dtype=value.dtype).view_as(value)
        gradient = _gradient((value * weights).sum(), embedded, again=True)
        if gradient is None:
            continue
        size = gradient.flatten(2).norm(dim=2)
        reached = size > NOTHING * size.max()
        read, kept = float(reached[padded].float().mean()), float(reached[real].float().mean())
        if read >= MOST and kept < 1 - MOST:
            told = Saw("instead", padding_read=read, tokens_read=kept, padded=int(padded.sum()))
            at = [held.place._replace(role=ATTENDS)] if held.place is not None else []
            return told.at(*at).saying("Attention reads only padding: the mask is inverted.")
        if read or kept:
            return None
    return None


def _first_position(value: torch.Tensor, padded: torch.Tensor) -> torch.Tensor | None:
    """What attention gives at the first position of every row."""
    if value.dim() == 3 and value.shape[:2] == padded.shape:
        return value[:, 0]
    if value.dim() == 3 and value.shape[:2] == padded.T.shape:
        return value[0]
    if value.dim() == 4 and (value.shape[0], value.shape[2]) == tuple(padded.shape):
        return value[:, :, 0]
    return None


def _judged(lab: Lab, at: Place | None, size: torch.Tensor, padded: torch.Tensor, embedded: Seen) -> Answer:
    reached = size > NOTHING * size.max()
    inner = ~padded
    inner[:, 0] = False  # a first token that is read out reads itself
    read, kept = float(reached[padded].float().mean()), float(reached[inner].float().mean())
    if read < MOST:
        return Saw("kept_out", padded=int(padded.sum()), padding_read=read)
    figures = {"padding_read": read, "tokens_read": kept, "padded": int(padded.sum())}
    if kept < HALF:
        told = Saw("instead", **figures).at(embedded.place, lab.place())
        return told.saying(f"Padding is read, and {1 - kept:.0%} of the tokens are not: the mask is inverted.")
    share = float((size * padded).sum() / size.sum())
    told = Saw("read", share=share, **figures).at(at, embedded.place)
    return told.saying(
        f"Outputs at real positions depend on {read:.0%} of the padded ones, which receive {share:.1%} of the gradient."
    )


def _padded(lab: Lab) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Token ids and how much padding closes each row."""
    for held in tensors(lab.batch.inputs):
        if is_values(held) or held.dim() != 2 or held.dtype == torch.bool or min(held.shape) < ROWS:
            continue
        lengths = padding(held)
        if lengths is not None and int(held.max()) > 1:
            return held, torch.tensor(lengths, device=held.device)
    return None


def _is_embedding(held: Seen, ids: torch.Tensor) -> bool:
    value = held.value
    return (
        held.kind in ("embedding", "Embedding")
        and value.dim() == 3
        and value.shape[:2] == ids.shape
        and value.requires_grad
    )


def _said_of_real(output: object, padded: torch.Tensor) -> torch.Tensor | None:
    """One number that depends on all that is said of real positions; how is of no matter, but nothing may cancel."""
    parts = []
    for value in tensors(output):
        if not is_values(value) or not value.requires_grad or not value.dim():
            continue
        if value.dim() > 1 and value.shape[:2] == padded.shape:
            value = value[~padded]
        elif value.shape[0] == padded.numel():
            value = value[~padded.flatten()]
        weights = torch.linspace(0.5, 1.5, value.numel(), device=value.device, dtype=value.dtype).view_as(value)
        signs = 1 - 2 * (torch.arange(value.numel(), device=value.device) % 2).view_as(value)
        parts.append((value * weights * signs).sum())
    return torch.stack(parts).sum() if parts else None
