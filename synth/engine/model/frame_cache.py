"""Keep the fast AR's keys and values of one frame, with all views of them made beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from synth.engine.model.config import TransformerConfig


@dataclass(frozen=True, slots=True, eq=False)
class FramePlace:
    """Hold a layer's views at one position of a frame; `key` and `value` are what is written there.

    key, value [B, KV, D]; `keys` [B * KV, D, T] and `values` [B * KV, T, D] are those up to and
    with the position, laid out for products.
    """

    key: Tensor
    value: Tensor
    keys: Tensor
    values: Tensor


class FrameCache:
    """Hold one frame of all streams; every frame overwrites it.

    A frame has hundreds of small steps, in which making a view takes as long as using it.
    """

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        """Take both tensors, [L, B, KV, K, D] each."""
        self.keys, self.values = keys, values

    @classmethod
    def allocate(
        cls,
        config: TransformerConfig,
        *,
        num_slots: int,
        num_positions: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> FrameCache:
        """Return a cache of zeros."""
        shape = (config.n_layer, num_slots, config.n_local_heads, num_positions, config.head_dim)
        return cls(
            torch.zeros(shape, device=device, dtype=dtype),
            torch.zeros(shape, device=device, dtype=dtype),
        )

    @property
    def num_bytes(self) -> int:
        """Return the memory held, in bytes."""
        return 2 * self.keys.numel() * self.keys.element_size()

    def first(self, num_slots: int) -> FrameCache:
        """Return the first streams as a cache over the same memory."""
        return FrameCache(self.keys[:, :num_slots], self.values[:, :num_slots])

    @cached_property
    def places(self) -> list[list[FramePlace]]:
        """Return the views of each position, for each layer."""
        positions = range(self.keys.shape[3])
        return [[self._place(layer, position) for layer in self._layers] for position in positions]

    @property
    def _layers(self) -> range:
        return range(self.keys.shape[0])

    def _place(self, layer: int, position: int) -> FramePlace:
        keys, values = self.keys[layer], self.values[layer]
        upto = slice(0, position + 1)
        return FramePlace(
            key=keys[:, :, position],
            value=values[:, :, position],
            keys=keys.flatten(0, 1)[:, upto].transpose(1, 2),
            values=values.flatten(0, 1)[:, upto],
        )
