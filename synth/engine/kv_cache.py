"""Keep keys and values of a fixed number of streams, one row of positions per stream."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from synth.engine.config import TransformerConfig


@dataclass(frozen=True, slots=True, eq=False)
class KVCache:
    """Hold keys and values, [L, B, KV, S, D] each; written in place, never replaced.

    A captured graph may point into the two tensors, so they live as long as the cache.
    """

    keys: Tensor
    values: Tensor

    @classmethod
    def allocate(
        cls,
        config: TransformerConfig,
        *,
        num_slots: int,
        num_positions: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> KVCache:
        """Return a cache of zeros; zeros and not garbage, as a masked NaN still spreads."""
        shape = (config.n_layer, num_slots, config.n_local_heads, num_positions, config.head_dim)
        return cls(
            torch.zeros(shape, device=device, dtype=dtype),
            torch.zeros(shape, device=device, dtype=dtype),
        )

    @property
    def num_positions(self) -> int:
        """Return the positions of each stream."""
        return self.keys.shape[3]

    @property
    def num_bytes(self) -> int:
        """Return the memory held, in bytes."""
        return 2 * self.keys.numel() * self.keys.element_size()

    def write_step(self, layer: int, position: Tensor, k: Tensor, v: Tensor) -> None:
        """Write one position per stream: position int64 [B], k and v [B, KV, D]."""
        slots = torch.arange(k.shape[0], device=k.device)
        self.keys[layer][slots, :, position] = k
        self.values[layer][slots, :, position] = v

    def write_prompt(self, layer: int, slot: int, start: int, k: Tensor, v: Tensor) -> None:
        """Write one stream's positions from `start`: k and v [S, KV, D]."""
        end = start + k.shape[0]
        self.keys[layer, slot, :, start:end] = k.transpose(0, 1)
        self.values[layer, slot, :, start:end] = v.transpose(0, 1)

    def read_prefix(self, slot: int, length: int) -> tuple[Tensor, Tensor]:
        """Return copies of a stream's first positions, [L, KV, length, D] each."""
        return self.keys[:, slot, :, :length].clone(), self.values[:, slot, :, :length].clone()

    def write_prefix(self, slot: int, keys: Tensor, values: Tensor) -> None:
        """Put positions that `read_prefix` returned at the start of a stream."""
        self.keys[:, slot, :, : keys.shape[2]] = keys
        self.values[:, slot, :, : values.shape[2]] = values

    def wipe(self, slot: int) -> None:
        """Zero a stream: what a failed request left there may be NaN, which no mask stops.

        A masked value is still multiplied by 0, and a masked score may be added to minus infinity.
        """
        self.keys[:, slot].zero_()
        self.values[:, slot].zero_()
