"""Hold what streams carry from chunk to chunk: one row of numbers each, cut up by modules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from synth.engine.codec.config import HEAD_DIM
from synth.engine.codec.layers import CausalConv1d, CausalConvTranspose1d
from synth.engine.codec.transformer import Attention

Carried = Mapping[nn.Module, tuple[Tensor, ...]]


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
        """Return an equal state in memory of its own."""
        return StreamState(self.rows.clone(), self.frames.clone(), self.counts)

    def split(self) -> list[StreamState]:
        """Return each stream's own state, as views."""
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
        parts = [sum(map(math.prod, shapes)) for shapes in self._shapes.values()]
        begins = accumulate(parts, initial=0)
        self.offsets = dict(zip(self._shapes, begins, strict=False))  # of each module's first part

    @property
    def size(self) -> int:
        """Return the numbers of one stream's row."""
        return sum(self._sizes)

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
