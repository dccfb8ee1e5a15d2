"""Run the encoder piece by piece, so that a long clip takes no more memory than a short one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from synth.engine.codec.config import CodecConfig
from synth.engine.codec.encoder_layers import EncodingQuantizer, WaveEncoder
from synth.engine.codec.stream_layers import Chunk
from synth.engine.codec.stream_state import Carried, StateLayout
from synth.engine.codec.transformer import ROPE_ROWS


class SampleRunner:
    """Run both stages of an encoder on some frames after others; it holds no state of any clip."""

    def __init__(
        self, encoder: WaveEncoder, quantizer: EncodingQuantizer, config: CodecConfig
    ) -> None:
        self._encoder, self._quantizer = encoder, quantizer
        self._hop, self._rate = config.hop_length, math.prod(config.downsample_factors)
        self._layout = StateLayout((*encoder.modules(), *quantizer.modules()))

    def run(self, samples: Tensor, piece: int) -> Tensor:
        """Return the codes, int64 [B, K, T], of clips that begin with their first sample.

        Args:
            samples: [B, 1, hop_length * T] in the model's dtype and on its device.
            piece: frames that go through the layers at once.
        """
        frames = samples.shape[-1] // self._hop
        carried = self._layout.views(samples.new_zeros(samples.shape[0], self._layout.size))
        codes = []
        for start in range(0, frames, piece):
            stop = min(start + piece, frames)
            fine = self._chunk(carried, start * self._rate, stop * self._rate, samples.device)
            latents = fine.run(self._encoder, samples[..., start * self._hop : stop * self._hop])
            coarse = self._chunk(carried, start, stop, samples.device)
            latents = coarse.run(self._quantizer.downsample, latents)
            latents = coarse.run(self._quantizer.pre_module, latents)
            codes.append(self._quantizer.choose(latents))
        return torch.cat(codes, dim=-1)

    @staticmethod
    def _chunk(carried: Carried, start: int, stop: int, device: torch.device) -> Chunk:
        positions = torch.full((1,), start, dtype=torch.int64, device=device)
        return Chunk(carried, positions, ROPE_ROWS.rows(start, stop, device)[None])
