"""Give noise that a test or the reference asks for, in place of a state's own numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from synth.engine.model.sampling import SLOW_DRAWS, CounterFrame, FrameNoise, draw_words


class CounterNoise:
    """Key every number by (seed, frame, draw, id): no state, no generator, no global.

    Streams do not see their neighbours, a frame can be computed again, and a tie among candidates
    does not shift any other number. Philox4x32-10 gives two words per (seed, frame, draw); these
    and the id go through two rounds of a 32-bit mixer.
    """

    def frame(self, seeds: Tensor, frames: Tensor, num_draws: int) -> FrameNoise:
        """Return the noise of one frame; see NoiseSource."""
        return CounterFrame(draw_words(seeds, frames, num_draws))


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
