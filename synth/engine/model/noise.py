"""Give the random numbers of a frame's draws, as a function of its place and of nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

SLOW_DRAWS = 2  # the draw and the one that may replace it; the fast AR's draws follow

_MASK32 = 0xFFFFFFFF
_PHILOX_ROUNDS = 10
_PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_PHILOX_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
# Both below 2**31, so that a product with 32 bits stays inside int64.
_MIX_MULTIPLIERS = (0x21F0AAAD, 0x735A2D97)


class FrameNoise(Protocol):
    """Give the uniform numbers of one frame of a batch."""

    def uniform(self, draw: int, ids: Tensor) -> Tensor:
        """Return float32 in [0, 1), shaped like ids int64 [B, k], for the draw's candidates.

        `draw` 0 and 1 are the slow AR's with token ids, draw 1 + k is codebook k's with codes.
        """
        ...


class NoiseSource(Protocol):
    """Give the noise of frames; implementations say whether they keep state."""

    def frame(self, seeds: Tensor, frames: Tensor, num_draws: int) -> FrameNoise:
        """Return the noise of each stream's frame: seeds and frames int64 [B], from 0."""
        ...


class CounterNoise:
    """Key every number by (seed, frame, draw, id): no state, no generator, no global.

    Streams do not see their neighbours, a frame can be computed again, and a tie among candidates
    does not shift any other number. Philox4x32-10 gives two words per (seed, frame, draw); these
    and the id go through two rounds of a 32-bit mixer.
    """

    def frame(self, seeds: Tensor, frames: Tensor, num_draws: int) -> FrameNoise:
        """Return the noise of one frame; see NoiseSource."""
        return CounterFrame(draw_words(seeds, frames, num_draws))


def draw_words(seeds: Tensor, frames: Tensor, num_draws: int) -> Tensor:
    """Return two words below 2**32 for each draw of frames: int64 [B] twice to [B, draws, 2]."""
    draws = torch.arange(num_draws, device=seeds.device)
    seed, frame = seeds.unsqueeze(1), frames.unsqueeze(1)
    zeros = torch.zeros_like(seed) * draws  # also gives every word the full shape
    counter = (zeros + (frame & _MASK32), zeros + (frame >> 32), zeros + draws, zeros)
    words = philox(counter, (seed & _MASK32, seed >> 32))
    return torch.stack(words[:2], dim=-1)


@dataclass(frozen=True, slots=True, eq=False)
class CounterFrame:
    """Hold the words of one frame of a batch, int64 [B, draws, 2]."""

    words: Tensor

    def uniform(self, draw: int, ids: Tensor) -> Tensor:
        """Return odd multiples of 2**-24, so neither 0 nor 1 and exact in float32."""
        words = self.words[:, draw]
        mixed = _mix((ids + words[:, :1]).bitwise_and_(_MASK32)).bitwise_xor_(words[:, 1:])
        return _mix(mixed).bitwise_right_shift_(9).to(torch.float32).add_(0.5).mul_(2.0**-23)


class TorchNoise:
    """Draw from a torch generator in the reference's order and shapes; one stream only.

    Each draw takes a whole vocabulary's or codebook's numbers, however few candidates there are,
    and all draws of a frame are taken even when their result is not used.
    """

    def __init__(self, generator: torch.Generator, *, vocab_size: int, codebook_size: int) -> None:
        self._generator = generator
        self._sizes = (vocab_size, codebook_size)

    def frame(self, seeds: Tensor, frames: Tensor, num_draws: int) -> FrameNoise:
        """Return numbers drawn now; `seeds` and `frames` only say how many streams there are."""
        if seeds.shape[0] != 1:
            raise ValueError("noise in the reference's order exists for one stream at a time")
        vocab_size, codebook_size = self._sizes
        return FixedFrame(
            [
                torch.rand(
                    vocab_size if draw < SLOW_DRAWS else codebook_size,
                    generator=self._generator,
                    device=self._generator.device,
                )
                for draw in range(num_draws)
            ]
        )


class FixedFrame:
    """Give numbers that are there already, one row per draw, the same for every stream."""

    def __init__(self, rows: list[Tensor]) -> None:
        self._rows = rows

    def uniform(self, draw: int, ids: Tensor) -> Tensor:
        """Return the numbers of these ids; see FrameNoise."""
        return self._rows[draw].to(ids.device)[ids]


def philox(counter: Sequence[Tensor], key: tuple[Tensor, Tensor]) -> list[Tensor]:
    """Return Philox4x32-10 of four counter words and two key words, int64 below 2**32 each.

    Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_PHILOX_ROUNDS):
        high0, low0 = _multiply(c0, _PHILOX_MULTIPLIERS[0])
        high1, low1 = _multiply(c2, _PHILOX_MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 = (k0 + _PHILOX_KEY_STEPS[0]) & _MASK32
        k1 = (k1 + _PHILOX_KEY_STEPS[1]) & _MASK32
    return [c0, c1, c2, c3]


def _multiply(a: Tensor, b: int) -> tuple[Tensor, Tensor]:
    """Return the high and low 32 bits of a * b; in halves, as int64 has no room for 64 bits."""
    low_part, high_part = a * (b & 0xFFFF), a * (b >> 16)
    high = (high_part + (low_part >> 16)) >> 16
    low = (low_part + ((high_part & 0xFFFF) << 16)) & _MASK32
    return high, low


def _mix(x: Tensor) -> Tensor:
    """Scatter 32 bits over 32 bits, one to one, in place."""
    x.bitwise_xor_(x >> 16).mul_(_MIX_MULTIPLIERS[0]).bitwise_and_(_MASK32)
    x.bitwise_xor_(x >> 15).mul_(_MIX_MULTIPLIERS[1]).bitwise_and_(_MASK32)
    return x.bitwise_xor_(x >> 15)
