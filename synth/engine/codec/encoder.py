"""Turn audio into codes: the half of the codec that a voice's reference clip goes through."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from synth.engine.codec.batching import group_by_length, pad_right
from synth.engine.codec.config import CodecConfig
from synth.engine.codec.encoder_layers import EncodingQuantizer, WaveEncoder
from synth.engine.codec.streams.layers import Chunk
from synth.engine.codec.streams.state import Carried, StateLayout
from synth.engine.codec.transformer import ROPE_ROWS
from synth.engine.errors import ReferenceAudioError

NOT_FINITE = "The reference audio contains values that are not finite; export the clip again."
# 3 s of audio; a full-size encoder takes about 4 MB a frame. More at once is no faster: on a CPU
# the tensors of many frames leave the heap and are mapped anew at each operation.
MAX_BATCH_FRAMES = 64


class CodecEncoder(nn.Module):
    """Hold the encoding half; its weights do not change after it is loaded."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = WaveEncoder(config)
        self.quantizer = EncodingQuantizer(config)

    @property
    def device(self) -> torch.device:
        """Return the device that the weights are on."""
        return self.quantizer.pre_module.norm.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of the weights."""
        return self.quantizer.pre_module.norm.weight.dtype

    @cached_property
    def _runner(self) -> SampleRunner:
        """Return what runs the same weights frame by frame."""
        return SampleRunner(self.encoder, self.quantizer, self.config)

    @torch.inference_mode()
    def encode(
        self, waveforms: Sequence[Tensor], *, max_batch_frames: int = MAX_BATCH_FRAMES
    ) -> list[Tensor]:
        """Return the codes of mono waveforms at the codec's sample rate.

        Args:
            waveforms: float tensors [N] of any lengths above 0, on any device.
            max_batch_frames: padded frames that go through the model at once, at least 1. Of a
                longer waveform one part goes after the other, which changes no more than rounding.

        Returns:
            For each waveform int64 [K, ceil(N / hop_length)] on the model's device.

        Raises:
            ReferenceAudioError: a waveform is empty, not one axis of floats, or not finite.
            ValueError: `max_batch_frames` is below 1.
        """
        if max_batch_frames < 1:
            raise ValueError(f"max_batch_frames is {max_batch_frames} and must be at least 1")
        for waveform in waveforms:
            _check_waveform(waveform)
        finite = [waveform.isfinite().all() for waveform in waveforms]
        frames = [-(-waveform.shape[0] // self.config.hop_length) for waveform in waveforms]
        codes: list[Tensor] = [torch.empty(0)] * len(frames)
        for group in group_by_length(frames, max_batch_frames):
            batch = self._encode_batch([waveforms[index] for index in group], max_batch_frames)
            for row, index in enumerate(group):
                codes[index] = batch[row, :, : frames[index]]
        # Asked for behind the work, so that a device is waited for once and not on the way.
        if not all(finite):
            raise ReferenceAudioError(NOT_FINITE)
        return codes

    def _encode_batch(self, waveforms: Sequence[Tensor], limit: int) -> Tensor:
        """Return the codes [B, K, T] of waveforms, the longest one first."""
        hop = self.config.hop_length
        moved = [waveform.to(self.device, self.dtype) for waveform in waveforms]
        padded = pad_right(moved, -(-moved[0].shape[0] // hop) * hop)[:, None]
        if padded.shape[-1] > limit * hop:  # a waveform on its own, see `group_by_length`
            return self._runner.run(padded, limit)
        y: Tensor = self.quantizer(self.encoder(padded))
        return y


def _check_waveform(waveform: Tensor) -> None:
    if waveform.dim() != 1 or not waveform.is_floating_point():
        raise ReferenceAudioError(
            f"A waveform to encode must be one axis of floats, not {waveform.dtype} of shape "
            f"{tuple(waveform.shape)}."
        )
    if waveform.shape[0] == 0:
        raise ReferenceAudioError("The reference audio has no samples; use a clip with speech.")


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
