"""Autograd functions as people write them: right ones, wrong ones, and such as change the gradient on purpose."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, override"
# ruff: noqa: ARG004

import torch
from torch import distributed as dist
from torch.autograd import Function
from torch.autograd.function import once_differentiable

KEPT: list[float] = []


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad


class Square(Function):
    """With a context of its own, a constant, and an output that has no gradient."""

    @staticmethod
    def forward(x, scale=1.0):
        return scale * x**2, (x > 0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.scale = inputs
        ctx.save_for_backward(x)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, _):
        (x,) = ctx.saved_tensors
        return 2 * ctx.scale * x * grad, None


class Linear(Function):
    """Several inputs, of which some need no gradient."""

    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight)
        return x @ weight.T + (bias if bias is not None else 0.0)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        into_x = grad @ weight if ctx.needs_input_grad[0] else None
        into_weight = grad.T @ x if ctx.needs_input_grad[1] else None
        return into_x, into_weight, grad.sum(0) if ctx.needs_input_grad[2] else None


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.exp_()
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


class Noisy(Function):
    """Draws a random number in forward, and uses the same one in backward."""

    @staticmethod
    def forward(ctx, x):
        mask = (torch.rand_like(x) > 0.3).to(x.dtype)
        ctx.save_for_backward(mask, x)
        return mask * torch.sin(x)

    @staticmethod
    def backward(ctx, grad):
        mask, x = ctx.saved_tensors
        return grad * mask * torch.cos(x)


class Kinked(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0) + 0.1 * x

    @staticmethod
    def backward(ctx, grad):
        return grad * ((ctx.saved_tensors[0] > 0) + 0.1)


class WrongFactor(Cube):
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return x**2 * grad


class WrongSign(Square):
    @staticmethod
    def backward(ctx, grad, _):
        (x,) = ctx.saved_tensors
        return -2 * ctx.scale * x * grad, None


class WrongWeight(Linear):
    """Only the second of three gradients is wrong."""

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight, grad.T @ x / len(x), grad.sum(0)


class SlightlyOff(Cube):
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2.997 * x**2 * grad


class Reversed(Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


class StraightThrough(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


class Surrogate(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad / (1 + 10 * x.abs()) ** 2


class ClampedThrough(Function):
    """Passes the gradient where forward is flat, as binary networks do, or as a forgotten mask would."""

    @staticmethod
    def forward(ctx, x):
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad):
        return grad


class Printing(Cube):
    @staticmethod
    def forward(ctx, x):
        print("forward")
        ctx.save_for_backward(x)
        return x**3


def remember(value):
    KEPT.append(float(value))


class Remembering(Cube):
    @staticmethod
    def forward(ctx, x):
        remember(x.sum())
        ctx.save_for_backward(x)
        return x**3


class Gathering(Function):
    @staticmethod
    def forward(ctx, x):
        parts = [torch.zeros_like(x)]
        dist.all_gather(parts, x)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad):
        return grad


class Coarse(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.float() ** 2

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * grad


class Stopped(Function):
    @staticmethod
    def forward(ctx, x):
        return x**2

    @staticmethod
    def backward(ctx, grad):
        return None


class Failing(Function):
    """Works once."""

    @staticmethod
    def forward(ctx, x):
        if x.dtype is torch.float64:
            raise SystemExit("no kernel for double")
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * grad


class OfAnObject(Function):
    @staticmethod
    def forward(ctx, x, module):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, grad):
        return 2 * ctx.saved_tensors[0] * grad, None
