"""Local response normalisation that costs little: torch's own is the slowest part of the CNN."""

from typing import Any

import torch
from torch import Tensor, nn


class LocalNorm(nn.Module):
    """y = x (k + alpha/size * sum of x^2 over `size` neighbouring channels)^-0.75.

    As `torch.nn.LocalResponseNorm` with beta = 0.75, the usual one, whose power is two square
    roots. Channels-last inputs are worked on where they lie.

    >>> x = torch.rand(2, 16, 3, 3)
    >>> ours, theirs = LocalNorm(9, 0.001), nn.LocalResponseNorm(9, 0.001, 0.75, 1.0)
    >>> torch.allclose(ours(x), theirs(x))
    True
    """

    def __init__(self, size: int, alpha: float, k: float = 1.0) -> None:
        """Take the window in channels (odd), its weight, and what is added."""
        super().__init__()
        if size % 2 == 0:
            raise ValueError(f"the window must be odd, got {size}")
        self.size, self.alpha, self.k = size, alpha, k

    def forward(self, x: Tensor) -> Tensor:
        """Normalise [B, C, H, W]."""
        B, C, H, W = x.shape
        flat = x.permute(0, 2, 3, 1).reshape(-1, C)  # a view if channels come last
        y: Tensor = _Normalise.apply(flat, self.size, self.alpha, self.k)[0]  # type: ignore[no-untyped-call]
        return y.view(B, H, W, C).permute(0, 3, 1, 2)

    def extra_repr(self) -> str:
        """Say how wide and how strong."""
        return f"{self.size}, alpha={self.alpha}, k={self.k}"


class _Normalise(torch.autograd.Function):
    """y = x s^-3/4 with s = k + a window(x^2); dx = g s^-3/4 - 3/2 a x window(g x s^-7/4)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, size: int, alpha: float, k: float) -> tuple[Tensor, Tensor]:
        root = window_sums(x * x, size).mul_(alpha / size).add_(k).rsqrt_()  # s^-1/2
        return root.sqrt().mul_(root).mul_(x), root

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, ctx.size, ctx.alpha, _ = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, output[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        x, root = ctx.saved_tensors
        g = root.sqrt().mul_(root).mul_(grads[0])
        around = window_sums((g * x).mul_(root).mul_(root), ctx.size)
        return g.sub_(around.mul_(x), alpha=1.5 * ctx.alpha / ctx.size), None, None, None


def window_sums(q: Tensor, size: int) -> Tensor:
    """Sum of the `size` entries around each of the last dimension, zeros beyond its ends.

    By doubling: sums of 1, 2, 4 ... neighbours, those that make up `size` added.

    >>> window_sums(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), 3).tolist()
    [[3.0, 6.0, 9.0, 7.0]]
    """
    C = q.shape[-1]
    part = torch.nn.functional.pad(q, (size // 2, size // 2))
    total, width, at = None, 1, 0
    while True:
        if size & width:
            piece = part[..., at : at + C]
            total = piece.clone() if total is None else total.add_(piece)
            at += width
        if 2 * width > size:
            break
        part = part[..., :-width] + part[..., width:]
        width *= 2
    return q if total is None else total
