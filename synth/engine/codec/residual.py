"""Build the codec's residual units and their Snakes, which kernels may compute, [B, D, T]."""

from __future__ import annotations

import importlib
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synth.engine.codec.layers import CausalConv1d

RESIDUAL_DILATIONS = (1, 3, 9)
KERNELS = "synth.engine.kernels.snake"  # it imports triton, which is not everywhere


class Snake(nn.Module):
    """Add a periodic bump to each channel: x + sin(alpha x)^2 / alpha.

    `inverse` is set where the work is done by kernels, see `fusing`: 1 / alpha in float32, [dim].
    """

    inverse: Tensor | None = None

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.empty(1, dim, 1))

    def forward(
        self,
        x: Tensor,
        *,
        bias: Tensor | None = None,
        left: int = 0,
        context: Tensor | None = None,
    ) -> Tensor:
        """Map [B, dim, T] to [B, dim, left + T].

        Args:
            bias: [dim], added to x first; x may then be written over.
            left: columns put before x's own, zeros or `context` [B, dim, left].
        """
        if self.inverse is None:
            return self._plain(x, bias, left, context)
        kernels = importlib.import_module(KERNELS)
        y: Tensor = kernels.snake(
            x,
            self.alpha,
            self.inverse,
            bias=bias,
            left=left,
            context=context,
            in_place=bias is not None and not left,
        )
        return y

    def _plain(self, x: Tensor, bias: Tensor | None, left: int, context: Tensor | None) -> Tensor:
        if bias is not None:
            x = x + bias[:, None]
        # In place on the one temporary: at full width this tensor is the codec's largest.
        bump = (x * self.alpha).sin_()
        bump.mul_(bump)
        y = torch.addcmul(x, bump, 1 / (self.alpha + 1e-9))
        if context is not None:
            return torch.cat([context, y], dim=-1)
        return F.pad(y, (left, 0)) if left else y


class ResidualUnit(nn.Module):
    """Add to the input: Snake, dilated convolution of 7, Snake, convolution of 1."""

    has_kernels: bool = False  # set together with its Snakes' `inverse`

    def __init__(self, dim: int, dilation: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            Snake(dim),
            CausalConv1d(dim, dim, 7, dilation=dilation),
            Snake(dim),
            CausalConv1d(dim, dim, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, dim, T] to the same shape."""
        if self.has_kernels:
            first, wide, _, _ = self.layers
            return self.finish(x, first(x, left=wide.left))
        y: Tensor = x + self.block(x)
        return y

    @property
    def layers(self) -> tuple[Snake, CausalConv1d, Snake, CausalConv1d]:
        """Return the block's four layers."""
        return cast("tuple[Snake, CausalConv1d, Snake, CausalConv1d]", tuple(self.block))

    def finish(self, x: Tensor, padded: Tensor) -> Tensor:
        """Return the unit's output of x [B, dim, T] where kernels do the work.

        Args:
            padded: what comes of the first Snake, behind what its convolution looks back on.
        """
        _, wide, second, narrow = self.layers
        kernels = importlib.import_module(KERNELS)
        # Each bias goes with the next pass over its tensor: cuDNN would add it in one of its own.
        branch = wide.conv(padded, with_bias=False)
        del padded  # these are the codec's largest tensors
        branch = second(branch, bias=wide.conv.bias)
        y: Tensor = kernels.add_branch(x, narrow.conv(branch, with_bias=False), narrow.conv.bias)
        return y


def residual_units(dim: int) -> list[nn.Module]:
    """Return the three residual units of a block, with growing dilation."""
    return [ResidualUnit(dim, dilation) for dilation in RESIDUAL_DILATIONS]
