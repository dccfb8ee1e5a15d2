"""Run the codec's stages on the next frames alone, with what earlier frames left behind.

The weights are those of the whole half: every module is run as it is, but for the three kinds
that look back. A convolution gets the inputs that its zeros stand for at the start, a transposed
one the inputs whose tails still change its first outputs, an attention its newest keys and values.

Nothing here waits for the device or depends on its numbers, so that a graph can hold a chunk.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synth.engine.codec.config import HEAD_DIM
from synth.engine.codec.layers import (
    CausalConv1d,
    CausalConvTranspose1d,
    ConvNeXtBlock,
    ResidualUnit,
    Snake,
)
from synth.engine.codec.stages import (
    MAX_KEPT_POSITIONS,
    ROPE_ROWS,
    Attention,
    Blocks,
    TransformerLayer,
    WaveDecoder,
    WindowedTransformer,
)

Carried = Mapping[nn.Module, tuple[Tensor, ...]]
MAX_PIECE_FRAMES = 128  # more at once is no faster and only takes memory


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
    """Say which numbers of a stream's row are which module's.

    Of a convolution they are its newest inputs [D, context]; of an attention its newest keys and
    values [H, window - 1, head_dim] each; zeros before a stream's start, as the convolutions pad.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._shapes = {module: shapes for module in modules if (shapes := _shapes(module))}
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


def context_of(module: CausalConv1d | CausalConvTranspose1d) -> int:
    """Return how many inputs before the next one its first outputs depend on."""
    if isinstance(module, CausalConv1d):
        return module.left
    return (module.conv.kernel_size[0] - 1) // module.stride


def _shapes(module: nn.Module) -> tuple[tuple[int, ...], ...]:
    """Return the shapes that a module carries, none where it looks at no earlier input."""
    if isinstance(module, (CausalConv1d, CausalConvTranspose1d)):
        context = context_of(module)
        return ((module.conv.in_channels, context),) if context else ()
    if isinstance(module, Attention):
        shape = (module.wo.in_features // HEAD_DIM, module.window - 1, HEAD_DIM)
        return (shape, shape)
    return ()


def rope_at(table: Tensor, frames: Tensor, length: int) -> Tensor:
    """Return the table's rows of `length` positions from each stream's next frame on."""
    return table[frames[:, None] + torch.arange(length, device=frames.device)]


def rope_of(state: StreamState, length: int) -> Tensor:
    """Return the rotary numbers of each stream's next positions, float32 [B, length, 32, 2]."""
    stop, device = max(state.counts) + length, state.rows.device
    if stop <= MAX_KEPT_POSITIONS:
        return rope_at(ROPE_ROWS.rows(0, stop, device), state.frames, length)
    return torch.stack([ROPE_ROWS.rows(count, count + length, device) for count in state.counts])


class Chunk:
    """Run modules on columns behind a state, and put the state after them in its place."""

    def __init__(self, carried: Carried, positions: Tensor, rope: Tensor) -> None:
        """Take the state of B streams and where the transformers' columns are in each.

        Args:
            carried: [B, ...] of each module that looks back.
            positions: int64 [B] or [1], how many columns came before.
            rope: rotary numbers of the columns, float32 [B or 1, n, head_dim / 2, 2].
        """
        self._carried, self._positions = carried, positions
        self._rope, self._length = rope[:, None], rope.shape[1]

    def run(self, module: nn.Module, x: Tensor) -> Tensor:
        """Map x [B, D, T] as the module does where x goes on from the state.

        What a convolution with a stride gets is a whole number of its strides.
        """
        match module:
            case nn.Sequential():
                for child in module:
                    x = self.run(child, x)
                return x
            case Snake() | nn.Tanh():
                y: Tensor = module(x)
                return y
            case CausalConv1d():
                return self._conv(module, x)
            case CausalConvTranspose1d():
                start = module.stride * context_of(module)  # outputs that were given before
                return self._conv(module, x)[..., start : start + module.stride * x.shape[-1]]
            case ResidualUnit() if module.has_kernels:
                first, wide, _, _ = module.layers
                (before,) = self._carried[wide]
                padded = first(x, left=wide.left, context=before)
                self._keep(before, padded)
                return module.finish(x, padded)
            case ResidualUnit():
                return x + self.run(module.block, x)
            case ConvNeXtBlock():
                return x + module.mix(self._conv(module.dwconv, x))
            case WindowedTransformer():
                return self._transformer(module, x)
            case Blocks():
                return self.run(module.block, x)
            case WaveDecoder():
                return self.run(module.model, x)
        # Running it as it is would forget what came before.
        raise TypeError(f"{type(module).__name__} cannot be run in chunks")

    def _conv(self, conv: CausalConv1d | CausalConvTranspose1d, x: Tensor) -> Tensor:
        """Convolve with the inputs before x in front of it, and keep the newest ones."""
        if conv in self._carried:
            (before,) = self._carried[conv]
            x = torch.cat([before, x], dim=-1)
            self._keep(before, x)
        y: Tensor = conv.conv(x)
        return y

    def _keep(self, before: Tensor, x: Tensor) -> None:
        before.copy_(x[..., x.shape[-1] - before.shape[-1] :])

    def _transformer(self, module: WindowedTransformer, x: Tensor) -> Tensor:
        hidden, seen = x.transpose(1, 2), self._visible(module)
        for layer in cast("Iterable[TransformerLayer]", module.layers):
            attended = self._attend(layer.attention, layer.attention_norm(hidden), seen)
            hidden = layer.finish(hidden, attended)
        y: Tensor = module.norm(hidden).transpose(1, 2)
        return y

    def _attend(self, attention: Attention, x: Tensor, seen: Tensor) -> Tensor:
        q, k, v = attention.project(x, self._rope)
        keys, values = self._carried[attention]
        k, v = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
        keys.copy_(k[:, :, self._length :])
        values.copy_(v[:, :, self._length :])
        return attention.merge(F.scaled_dot_product_attention(q, k, v, attn_mask=seen))

    def _visible(self, module: WindowedTransformer) -> Tensor:
        """Return which keys each query sees, bool [B, 1, n, window - 1 + n]."""
        window, device = module.window, self._positions.device
        query = torch.arange(self._length, device=device)[:, None]
        key = torch.arange(window - 1 + self._length, device=device)
        # The carried keys are right-aligned: those before a stream's first frame are only zeros.
        unused = (window - 1 - self._positions).clamp(min=0)[:, None, None, None]
        return (key >= query) & (key < query + window) & (key >= unused)
