"""Build the codec's convolutional blocks; every one is causal and channel-first, [B, D, T].

Weight norm is folded into `weight` when a checkpoint is loaded; `weight_norm` keeps how the file
spells it, so that the names a file must hold can be told from the modules.

Stages also run on the next frames alone, with what earlier frames left behind. The weights are
those of the whole half, and modules are run as they are; the three kinds that look back take a
`Past`. A convolution gets the inputs that its zeros stand for at the start, a transposed one the
inputs whose tails still change its first outputs, an attention its newest keys and values. Nothing
in this waits for the device or depends on its numbers, so that a graph can hold a chunk.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synth.engine.codec.config import HEAD_DIM
from synth.engine.model.layers import rope_table

Carried = Mapping[nn.Module, tuple[Tensor, ...]]
MAX_PIECE_FRAMES = 128  # more at once is no faster and only takes memory
ROPE_BASE = 10000.0
MIN_KEPT_POSITIONS, MAX_KEPT_POSITIONS = 512, 16384  # rotary rows; 16384 take 4 MB


@dataclass(frozen=True, slots=True, eq=False)
class StreamState:
    """Hold what B streams carry from chunk to chunk.

    `rows` [B, numbers] are cut up by a `StateLayout`; `frames`, int64 [B] on the same device, and
    `counts` on the host both count each stream's frames so far.
    """

    rows: Tensor
    frames: Tensor
    counts: tuple[int, ...]

    def copy(self) -> StreamState:
        return StreamState(self.rows.clone(), self.frames.clone(), self.counts)

    def split(self) -> list[StreamState]:
        return [
            StreamState(self.rows[row : row + 1], self.frames[row : row + 1], (count,))
            for row, count in enumerate(self.counts)
        ]


def join(states: Sequence[StreamState]) -> StreamState:
    """Return the state of several streams of one decoder as one batch, in this order, copied."""
    if len(states) == 1:
        return states[0].copy()
    return StreamState(
        torch.cat([state.rows for state in states]),
        torch.cat([state.frames for state in states]),
        tuple(count for state in states for count in state.counts),
    )


class StateLayout:
    """Say which numbers of a stream's row are which module's; `carried` says their shapes.

    Of a convolution they are its newest inputs [D, context]; of an attention its newest keys and
    values [H, window - 1, head_dim] each; zeros before a stream's start, as the convolutions pad.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        found = ((module, getattr(module, "carried", ())) for module in modules)
        self._shapes: Mapping[nn.Module, tuple[tuple[int, ...], ...]] = {
            module: shapes for module, shapes in found if shapes
        }
        self._sizes = [math.prod(shape) for shapes in self._shapes.values() for shape in shapes]
        self.size = sum(self._sizes)  # of one stream's row
        parts = [sum(map(math.prod, shapes)) for shapes in self._shapes.values()]
        begins = accumulate(parts, initial=0)
        self.offsets = dict(zip(self._shapes, begins, strict=False))  # of each module's first part

    def views(self, rows: Tensor) -> Carried:
        """Return each module's part of rows [B, size], in place: each [B, ...]."""
        parts = iter(torch.split(rows, self._sizes, dim=1))
        return {
            module: tuple(next(parts).view(rows.shape[0], *shape) for shape in shapes)
            for module, shapes in self._shapes.items()
        }

    def initial(self, like: Tensor) -> StreamState:
        """Return the state of one stream that has had no frame, as `like` is in dtype and place."""
        frames = torch.zeros(1, dtype=torch.int64, device=like.device)
        return StreamState(like.new_zeros(1, self.size), frames, (0,))


class RopeRows:
    """Keep the rotary numbers of the first positions by device; all codec transformers share them.

    Copying them there for every chunk would make the host wait for the device each time. Of each
    device at most MAX_KEPT_POSITIONS are kept.
    """

    def __init__(self) -> None:
        self._tables: dict[torch.device, Tensor] = {}

    def rows(self, start: int, stop: int, device: torch.device) -> Tensor:
        """Return the numbers of positions start to stop - 1, float32 [S, head_dim / 2, 2]."""
        if stop > MAX_KEPT_POSITIONS:
            return rope_table(torch.arange(start, stop, device=device), HEAD_DIM, ROPE_BASE)
        table = self._tables.get(device)
        if table is None or table.shape[0] < stop:
            length = max(MIN_KEPT_POSITIONS, 1 << (stop - 1).bit_length())
            # An ordinary tensor, so that training may use what a measurement before it left here.
            with torch.inference_mode(False):
                table = rope_table(torch.arange(length, device=device), HEAD_DIM, ROPE_BASE)
            self._tables[device] = table  # of two threads' tables either is right
        return table[start:stop]


ROPE_ROWS = RopeRows()  # this process's; empty until something is asked of it


def rope_at(table: Tensor, frames: Tensor, length: int) -> Tensor:
    """Return the table's rows of `length` positions from each stream's next frame on."""
    return table[frames[:, None] + torch.arange(length, device=frames.device)]


def rope_of(state: StreamState, length: int) -> Tensor:
    """Return the rotary numbers of each stream's next positions, float32 [B, length, 32, 2]."""
    stop, device = max(state.counts) + length, state.rows.device
    if stop <= MAX_KEPT_POSITIONS:
        return rope_at(ROPE_ROWS.rows(0, stop, device), state.frames, length)
    return torch.stack([ROPE_ROWS.rows(count, count + length, device) for count in state.counts])


class Past:
    """Hold what modules find before their columns, and put in its place what comes after them."""

    def __init__(self, carried: Carried, positions: Tensor, rope: Tensor) -> None:
        """Take the state of B streams and where the transformers' columns are in each.

        Args:
            carried: [B, ...] of each module that looks back.
            positions: int64 [B] or [1], how many columns came before.
            rope: rotary numbers of the columns, float32 [B or 1, n, head_dim / 2, 2].
        """
        self._carried, self._positions = carried, positions
        self.rope, self._length = rope[:, None], rope.shape[1]
        self._seen: dict[int, Tensor] = {}  # by window

    def inputs(self, module: nn.Module) -> Tensor | None:
        """Return the inputs [B, D, context] before a convolution's next one, if it looks back."""
        return self._carried[module][0] if module in self._carried else None

    def extend(self, module: nn.Module, x: Tensor) -> Tensor:
        """Return x [B, D, T] behind the inputs before it, of which the newest are kept.

        What a convolution with a stride gets is a whole number of its strides.
        """
        before = self.inputs(module)
        if before is None:
            return x
        x = torch.cat([before, x], dim=-1)
        self.keep(before, x)
        return x

    def keep(self, before: Tensor, x: Tensor) -> None:
        before.copy_(x[..., x.shape[-1] - before.shape[-1] :])

    def attend(self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
        """Attend as `windowed_attention` does, to carried keys and values as well."""
        keys, values = self._carried[module]
        k, v = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
        keys.copy_(k[:, :, self._length :])
        values.copy_(v[:, :, self._length :])
        if window not in self._seen:
            self._seen[window] = self._visible(window)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self._seen[window])

    def _visible(self, window: int) -> Tensor:
        """Return which keys each query sees, bool [B, 1, n, window - 1 + n]."""
        device = self._positions.device
        query = torch.arange(self._length, device=device)[:, None]
        key = torch.arange(window - 1 + self._length, device=device)
        # The carried keys are right-aligned: those before a stream's first frame are only zeros.
        unused = (window - 1 - self._positions).clamp(min=0)[:, None, None, None]
        return (key >= query) & (key < query + window) & (key >= unused)


WeightNorm = Literal["parametrized", "g_and_v"] | None


# Below so many channels, PyTorch's bfloat16 convolutions (oneDNN's; seen in torch 2.13) give wrong
# numbers on processors with AMX for some kernels and strides, such as 16 channels, 16 taps, step 8.
_TRUSTED_CHANNELS = 32
RESIDUAL_DILATIONS = (1, 3, 9)
KERNELS = "synth.engine.kernels.rowwise"  # it imports triton, which is not everywhere


class Normed(nn.Module):
    """A convolution; `weight_norm` says how a file names the weight's norm and direction.

    `tf32` lets CUDA round float32 inputs and weights to ten bits on the way in. It goes with each
    call: PyTorch's own switch is for the whole process, which other threads share.
    """

    weight_norm: WeightNorm = None
    tf32: bool = False

    def reset_parameters(self) -> None:
        """Draw no first values: they come from a checkpoint, and drawing takes time."""


class NormedConv1d(Normed, nn.Conv1d):
    def forward(self, x: Tensor, *, with_bias: bool = True) -> Tensor:
        """Map [B, in, T] to [B, out, (T - reach) / stride + 1]; nothing is padded."""
        bias = self.bias if with_bias else None
        is_rounded = x.dtype == torch.bfloat16 and not x.is_cuda
        if is_rounded and self.groups == 1 and self.in_channels < _TRUSTED_CHANNELS:
            bias = None if bias is None else bias.float()
            exact = F.conv1d(x.float(), self.weight.float(), bias, self.stride, 0, self.dilation)
            return exact.to(x.dtype)
        return _convolve(self, x, bias)


class NormedConvTranspose1d(Normed, nn.ConvTranspose1d):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]  # of one size alone
        """Map [B, in, T] to [B, out, (T - 1) * stride + kernel]."""
        return _convolve(self, x, self.bias)


def _convolve(conv: NormedConv1d | NormedConvTranspose1d, x: Tensor, bias: Tensor | None) -> Tensor:
    cudnn = torch.backends.cudnn
    return torch._convolution(
        x, conv.weight, bias, conv.stride, (0,), conv.dilation, conv.transposed, (0,), conv.groups,
        cudnn.benchmark, cudnn.deterministic, cudnn.enabled, conv.tf32,
    )  # fmt: skip


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
        self.carried = ((in_dim, self.left),) if self.left else ()
        self.stride = stride

    def forward(self, x: Tensor, past: Past | None = None) -> Tensor:
        """Map [B, in_dim, T] to [B, out_dim, ceil(T / stride)]."""
        right = -x.shape[-1] % self.stride
        if past is not None:
            x = past.extend(self, x)
        elif self.left or right:
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
        context = (kernel - 1) // stride
        self.carried = ((in_dim, context),) if context else ()
        self.stride = stride

    def forward(self, x: Tensor, past: Past | None = None) -> Tensor:
        """Map [B, in_dim, T] to [B, out_dim, T * stride]."""
        inputs = x if past is None else past.extend(self, x)
        start = (inputs.shape[-1] - x.shape[-1]) * self.stride  # outputs that were given before
        y: Tensor = self.conv(inputs)
        return y[..., start : start + x.shape[-1] * self.stride]


class ConvNeXtBlock(nn.Module):
    """Add to the input: depthwise convolution of 7, layer norm, two linear maps around a GELU."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dwconv = CausalConv1d(dim, dim, 7, groups=dim, weight_norm=None)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(torch.empty(dim))

    def forward(self, x: Tensor, past: Past | None = None) -> Tensor:
        y: Tensor = self.norm(self.dwconv(x, past).transpose(1, 2))  # [B, T, dim]
        y = self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + (self.gamma * y).transpose(1, 2)


def group_by_length(lengths: Sequence[int], limit: int) -> Iterator[list[int]]:
    """Yield groups of indices, longest first, whose padded size is at most `limit` positions.

    An input longer than `limit` is a group of its own: the limit saves memory, it forbids nothing.
    """
    group: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if group and lengths[group[0]] * (len(group) + 1) > limit:
            yield group
            group = []
        group.append(index)
    if group:
        yield group


class Pointwise(nn.Module):
    """Work on each number of a signal alone, so that no past is needed."""


class Snake(Pointwise):
    """Add a periodic bump to each channel: x + sin(alpha x)^2 / alpha.

    `inverse` is set where the work is done by kernels: 1 / alpha in float32, [dim].
    """

    inverse: Tensor | None = None

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.empty(1, dim, 1))

    def forward(
        self, x: Tensor, *, bias: Tensor | None = None, left: int = 0, context: Tensor | None = None
    ) -> Tensor:
        """Map [B, dim, T] to [B, dim, left + T].

        Args:
            bias: [dim], added to x first; x may then be written over; this and the others are for
                kernels alone.
            left: columns put before x's own, zeros or `context` [B, dim, left].
        """
        if self.inverse is None:
            assert bias is None and context is None and not left
            # In place on the one temporary: at full width this tensor is the codec's largest.
            bump = (x * self.alpha).sin_()
            bump.mul_(bump)
            return torch.addcmul(x, bump, 1 / (self.alpha + 1e-9))
        kernels, in_place = importlib.import_module(KERNELS), bias is not None and not left
        around = {"bias": bias, "left": left, "context": context, "in_place": in_place}
        y: Tensor = kernels.snake(x, self.alpha, self.inverse, **around)
        return y


class ResidualUnit(nn.Module):
    """Add to the input: Snake, dilated convolution of 7, Snake, convolution of 1."""

    has_kernels: bool = False  # set together with its Snakes' `inverse`

    def __init__(self, dim: int, dilation: int) -> None:
        super().__init__()
        self.block = Chain(
            Snake(dim),
            CausalConv1d(dim, dim, 7, dilation=dilation),
            Snake(dim),
            CausalConv1d(dim, dim, 1),
        )

    def forward(self, x: Tensor, past: Past | None = None) -> Tensor:
        if not self.has_kernels:
            y: Tensor = x + self.block(x, past)
            return y
        kernels = importlib.import_module(KERNELS)
        first, wide, second, narrow = self.layers
        before = None if past is None else past.inputs(wide)
        padded = first(x, left=wide.left, context=before)
        if past is not None and before is not None:
            past.keep(before, padded)
        # Each bias goes with the next pass over its tensor: cuDNN would add it in one of its own.
        branch = wide.conv(padded, with_bias=False)
        del padded  # these are the codec's largest tensors
        branch = second(branch, bias=wide.conv.bias)
        added: Tensor = kernels.add_branch(
            x, narrow.conv(branch, with_bias=False), narrow.conv.bias
        )
        return added

    @property
    def layers(self) -> tuple[Snake, CausalConv1d, Snake, CausalConv1d]:
        return cast("tuple[Snake, CausalConv1d, Snake, CausalConv1d]", tuple(self.block))


class Chain(nn.Sequential):
    """Run modules one after the other, each with the past if there is one."""

    def forward(self, x: Tensor, past: Past | None = None) -> Tensor:
        for module in self:
            # What works on each number alone takes no past; all others must.
            x = module(x) if isinstance(module, (Pointwise, nn.Tanh)) else module(x, past)
        return x


def residual_units(dim: int) -> list[nn.Module]:
    return [ResidualUnit(dim, dilation) for dilation in RESIDUAL_DILATIONS]
