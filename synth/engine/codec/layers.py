"""Build the codec's convolutional blocks; every one is causal and channel-first, [B, D, T].

Weight norm is folded into `weight` when a checkpoint is loaded; `weight_norm` keeps how the file
spells it, so that the names a file must hold can be told from the modules.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WeightNorm = Literal["parametrized", "g_and_v"] | None


# Below so many channels, PyTorch's bfloat16 convolutions (oneDNN's; seen in torch 2.13) give wrong
# numbers on processors with AMX for some kernels and strides, such as 16 channels, 16 taps, step 8.
_TRUSTED_CHANNELS = 32


class NormedConv1d(nn.Conv1d):
    """Convolve; `weight_norm` says how a file names the weight's norm and direction.

    `tf32` lets CUDA round float32 inputs and weights to ten bits on the way in. It goes with each
    call: PyTorch's own switch is for the whole process, which other threads share.
    """

    weight_norm: WeightNorm = None
    tf32: bool = False

    def reset_parameters(self) -> None:
        """Draw no first values: they come from a checkpoint, and drawing takes time."""

    def forward(self, x: Tensor, *, with_bias: bool = True) -> Tensor:
        """Map [B, in, T] to [B, out, (T - reach) / stride + 1]; nothing is padded."""
        bias = self.bias if with_bias else None
        is_rounded = x.dtype == torch.bfloat16 and not x.is_cuda
        if is_rounded and self.groups == 1 and self.in_channels < _TRUSTED_CHANNELS:
            bias = None if bias is None else bias.float()
            exact = F.conv1d(x.float(), self.weight.float(), bias, self.stride, 0, self.dilation)
            return exact.to(x.dtype)
        return _convolve(self, x, bias, self.tf32)


class NormedConvTranspose1d(nn.ConvTranspose1d):
    """Convolve transposed; `weight_norm` and `tf32` as for `NormedConv1d`."""

    weight_norm: WeightNorm = None
    tf32: bool = False

    def reset_parameters(self) -> None:
        """Draw no first values, as `NormedConv1d`."""

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        """Map [B, in, T] to [B, out, (T - 1) * stride + kernel]; no other size can be had."""
        if output_size is not None:
            raise ValueError("the output's size follows from the input's")
        return _convolve(self, x, self.bias, self.tf32)


def _convolve(
    conv: nn.Conv1d | nn.ConvTranspose1d, x: Tensor, bias: Tensor | None, tf32: bool
) -> Tensor:
    cudnn = torch.backends.cudnn
    return torch._convolution(
        x,
        conv.weight,
        bias,
        conv.stride,
        (0,),
        conv.dilation,
        conv.transposed,
        (0,),
        conv.groups,
        cudnn.benchmark,
        cudnn.deterministic,
        cudnn.enabled,
        tf32,
    )


class CausalConv1d(nn.Module):
    """Convolve with zeros on the left, so that no output sees a later input.

    Zeros on the right only complete the last window: the output has ceil(T / stride) positions.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        kernel: int,
        *,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
        weight_norm: WeightNorm = "parametrized",
    ) -> None:
        super().__init__()
        self.conv = NormedConv1d(
            in_dim, out_dim, kernel, stride=stride, dilation=dilation, groups=groups
        )
        self.conv.weight_norm = weight_norm
        self.left = (kernel - 1) * dilation + 1 - stride
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, in_dim, T] to [B, out_dim, ceil(T / stride)]."""
        right = -x.shape[-1] % self.stride
        if self.left or right:
            x = F.pad(x, (self.left, right))
        y: Tensor = self.conv(x)
        return y


class CausalConvTranspose1d(nn.Module):
    """Convolve transposed and cut the tail that later inputs would still change."""

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        kernel: int,
        *,
        stride: int,
        weight_norm: WeightNorm = "parametrized",
    ) -> None:
        super().__init__()
        self.conv = NormedConvTranspose1d(in_dim, out_dim, kernel, stride=stride)
        self.conv.weight_norm = weight_norm
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, in_dim, T] to [B, out_dim, T * stride]."""
        y: Tensor = self.conv(x)
        return y[..., : x.shape[-1] * self.stride]


class ConvNeXtBlock(nn.Module):
    """Add to the input: depthwise convolution of 7, layer norm, two linear maps around a GELU."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dwconv = CausalConv1d(dim, dim, 7, groups=dim, weight_norm=None)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(torch.empty(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, dim, T] to the same shape."""
        return x + self.mix(self.dwconv(x))

    def mix(self, x: Tensor) -> Tensor:
        """Map what comes of `dwconv`, [B, dim, T], to what is added; each position on its own."""
        y: Tensor = self.norm(x.transpose(1, 2))  # [B, T, dim]
        y = self.pwconv2(F.gelu(self.pwconv1(y)))
        return (self.gamma * y).transpose(1, 2)
