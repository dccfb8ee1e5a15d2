"""Run the codec's stages on the next frames alone, with what earlier frames left behind.

The weights are those of the whole half, and modules are run as they are; the three kinds that look
back take a `Past`. A convolution gets the inputs that its zeros stand for at the start, a
transposed one the inputs whose tails still change its first outputs, an attention its newest keys
and values.

Nothing here waits for the device or depends on its numbers, so that a graph can hold a chunk.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

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
