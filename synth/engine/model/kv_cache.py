"""Keep keys and values of a fixed number of streams, and of one frame of theirs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from synth.engine.model.config import TransformerConfig


def cache_dtype(device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that keys and values are kept in: float32 on a CPU, else the model's.

    A CPU attends faster in float32, and a number of 16 bits loses nothing by being kept in 32.
    Values of 16 bits would be read faster still, but then the shares must have 16 bits too, and the
    error of the hidden states grows by half.
    """
    return torch.float32 if device.type == "cpu" else dtype


class Cache:
    """Hold keys and values, [L, B, KV, S, D] each; written in place, never replaced.

    A captured graph may point into the two tensors, so they live as long as the cache.
    """

    def __init__(self, keys: Tensor, values: Tensor) -> None:
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
    ) -> Self:
        """Return a cache of zeros for a model of this dtype.

        Zeros and not garbage, as a masked NaN still spreads.
        """
        shape = (config.n_layer, num_slots, config.n_local_heads, num_positions, config.head_dim)
        kept = cache_dtype(device, dtype)
        keys, values = (torch.zeros(shape, device=device, dtype=kept) for _ in range(2))
        return cls(keys, values)

    def first(self, num_slots: int) -> Self:
        return type(self)(self.keys[:, :num_slots], self.values[:, :num_slots])


class KVCache(Cache):
    """Keep all positions of streams. Views that every step needs are made once."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__(keys, values)
        self._live_length = 0
        self._live: list[tuple[Tensor, Tensor]] = []

    @property
    def num_slots(self) -> int:
        return self.keys.shape[1]

    @property
    def num_positions(self) -> int:
        return self.keys.shape[3]

    def rows(self, position: Tensor, slots: Tensor) -> Tensor:
        """Return where `write_step` writes positions of slots: int64 [N] and [N] to [N * KV].

        One slot [1] is that of all positions.
        """
        heads = torch.arange(self.keys.shape[2], device=position.device)
        streams = slots.unsqueeze(1) * self.keys.shape[2] + heads
        return (streams * self.num_positions + position.unsqueeze(1)).flatten()

    def live(self, length: int) -> list[tuple[Tensor, Tensor]]:
        """Return each layer's keys and values of the first positions, [B, KV, length, D] each."""
        if length != self._live_length:
            layers = zip(self.keys, self.values, strict=True)
            self._live = [(keys[:, :, :length], values[:, :, :length]) for keys, values in layers]
            self._live_length = length
        return self._live

    @cached_property
    def _flat(self) -> list[tuple[Tensor, Tensor]]:
        """Return each layer's keys and values as rows, [B * KV * S, D] each."""
        size = self.keys.shape[-1]
        layers = zip(self.keys, self.values, strict=True)
        return [(keys.view(-1, size), values.view(-1, size)) for keys, values in layers]

    def write_step(self, layer: int, rows: Tensor, k: Tensor, v: Tensor) -> None:
        """Write single positions, at `rows` of `self.rows`: k and v [N, KV, D]."""
        keys, values = self._flat[layer]
        size = k.shape[-1]
        keys.index_copy_(0, rows, k.to(keys.dtype).reshape(-1, size))
        values.index_copy_(0, rows, v.to(values.dtype).reshape(-1, size))

    def read_prefix(self, slot: int, length: int) -> tuple[Tensor, Tensor]:
        """Return copies of a stream's first positions, [L, KV, length, D] each."""
        return self.keys[:, slot, :, :length].clone(), self.values[:, slot, :, :length].clone()

    def write_prefix(self, slot: int, keys: Tensor, values: Tensor) -> None:
        """Put positions that `read_prefix` returned at the start of a stream."""
        self.keys[:, slot, :, : keys.shape[2]] = keys
        self.values[:, slot, :, : values.shape[2]] = values

    def move(self, source: int, target: int, length: int) -> None:
        for cache in (self.keys, self.values):
            cache[:, target, :, :length] = cache[:, source, :, :length]

    def wipe(self, slot: int) -> None:
        """Zero a stream: what a failed request left there may be NaN, which no mask stops.

        A masked value is still multiplied by 0, and a masked score is added to minus infinity.
        """
        self.keys[:, slot].zero_()
        self.values[:, slot].zero_()


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


class FrameCache(Cache):
    """Hold one frame of all streams, S = K; every frame overwrites it.

    A frame has hundreds of small steps, in which making a view takes as long as using it.
    """

    @cached_property
    def places(self) -> list[list[FramePlace]]:
        return [
            [
                FramePlace(
                    key=keys[:, :, position],
                    value=values[:, :, position],
                    keys=keys.flatten(0, 1)[:, : position + 1].transpose(1, 2),
                    values=values.flatten(0, 1)[:, : position + 1],
                )
                for keys, values in zip(self.keys, self.values, strict=True)
            ]
            for position in range(self.keys.shape[3])
        ]
