"""Give each stream of a batch numbers from a source of its own that knows one stream only."""

from __future__ import annotations

import torch
from torch import Tensor

from synth.engine.model.noise import CounterFrame, FrameNoise, NoiseSource, draw_words


class StreamNoise:
    """Join sources of single streams, told apart by their seed; other streams are counter-based.

    A source's frames are drawn in order and kept, so that a stream gets the same numbers for a
    frame wherever its row is, however often they are asked for, and whether it is started or not.
    """

    def __init__(self) -> None:
        self._sources: dict[int, NoiseSource] = {}
        self._drawn: dict[int, list[FrameNoise]] = {}

    def add(self, seed: int, source: NoiseSource) -> None:
        """Draw the numbers of the stream with this seed from a source."""
        self._sources[seed], self._drawn[seed] = source, []

    def forget(self, seed: int) -> None:
        """Drop a stream that has ended, if it has a source; its row may still be computed."""
        self._sources.pop(seed, None)
        self._drawn.pop(seed, None)

    def frame(self, seeds: Tensor, frames: Tensor, num_draws: int) -> FrameNoise:
        """Return the noise of each stream's frame; see NoiseSource."""
        own = {
            row: self._of_stream(seed, frame, num_draws)
            for row, (seed, frame) in enumerate(zip(seeds.tolist(), frames.tolist(), strict=True))
            if seed in self._sources
        }
        return _MixedFrame(CounterFrame(draw_words(seeds, frames, num_draws)), own)

    def _of_stream(self, seed: int, frame: int, num_draws: int) -> FrameNoise:
        drawn = self._drawn[seed]
        while len(drawn) <= frame:
            one = torch.zeros(1, dtype=torch.int64)
            drawn.append(self._sources[seed].frame(one, one, num_draws))
        return drawn[frame]


class _MixedFrame:
    """Give some rows numbers of their own and the others those of a frame of all rows."""

    def __init__(self, others: FrameNoise, own: dict[int, FrameNoise]) -> None:
        self._others, self._own = others, own

    def uniform(self, draw: int, ids: Tensor) -> Tensor:
        """Return float32 in [0, 1), shaped like ids int64 [B, k]; see FrameNoise."""
        numbers = self._others.uniform(draw, ids)
        for row, noise in self._own.items():
            numbers[row] = noise.uniform(draw, ids[row : row + 1])[0]
        return numbers
