"""Turn codes into audio: the half of the codec that every rendered segment goes through."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from synth.engine.codec.batching import group_by_length, pad_right
from synth.engine.codec.config import CodecConfig
from synth.engine.codec.layers import (
    CausalConv1d,
    CausalConvTranspose1d,
    ConvNeXtBlock,
    Snake,
    residual_units,
)
from synth.engine.codec.quantizer import residual_stack, semantic_stack
from synth.engine.codec.transformer import WindowedTransformer
from synth.engine.errors import InvalidSpecError

MAX_BATCH_FRAMES = 2048  # 95 s of audio; a full-size decoder takes about 5 MB a frame


class DecoderBlock(nn.Module):
    """Lengthen by `rate` and halve the width, then refine."""

    def __init__(self, dim: int, rate: int) -> None:
        super().__init__()
        narrow = CausalConvTranspose1d(dim, dim // 2, 2 * rate, stride=rate)
        self.block = nn.Sequential(Snake(dim), narrow, *residual_units(dim // 2))

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, dim, T] to [B, dim / 2, T * rate]."""
        y: Tensor = self.block(x)
        return y


class WaveDecoder(nn.Module):
    """Map latents to samples between -1 and 1."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        dim = config.decoder_dim
        blocks: list[nn.Module] = [CausalConv1d(config.latent_dim, dim, 7)]
        for rate in config.decoder_rates:
            blocks.append(DecoderBlock(dim, rate))
            dim //= 2
        self.model = nn.Sequential(*blocks, Snake(dim), CausalConv1d(dim, 1, 7), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, latent_dim, T] to [B, 1, T * prod(rates)]."""
        y: Tensor = self.model(x)
        return y


class DecodingQuantizer(nn.Module):
    """Look the codes up, put them in context, and lengthen to the decoder's rate."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        dim = config.latent_dim
        self.semantic_quantizer = semantic_stack(config)
        self.quantizer = residual_stack(config)
        self.post_module = WindowedTransformer(config.post_module)
        self.upsample = nn.Sequential(
            *(
                nn.Sequential(
                    CausalConvTranspose1d(dim, dim, factor, stride=factor, weight_norm=None),
                    ConvNeXtBlock(dim),
                )
                for factor in config.upsample_factors
            )
        )

    def forward(self, codes: Tensor) -> Tensor:
        """Map codes, int64 [B, K, T], to latents [B, latent_dim, T * prod(factors)]."""
        z = self.semantic_quantizer.decode(codes[:, :1]) + self.quantizer.decode(codes[:, 1:])
        y: Tensor = self.upsample(self.post_module(z))
        return y


class CodecDecoder(nn.Module):
    """Hold the decoding half; its weights do not change after it is loaded."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        self.quantizer = DecodingQuantizer(config)
        self.decoder = WaveDecoder(config)

    @property
    def device(self) -> torch.device:
        """Return the device that the weights are on."""
        return self.quantizer.post_module.norm.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of the weights."""
        return self.quantizer.post_module.norm.weight.dtype

    @torch.inference_mode()
    def decode(
        self, codes: Sequence[Tensor], *, max_batch_frames: int = MAX_BATCH_FRAMES
    ) -> list[Tensor]:
        """Return the audio of code matrices of any lengths; each is decoded as if it were alone.

        Args:
            codes: integer tensors [K, T] on any device, left as they are. A code above its
                codebook means the last row.
            max_batch_frames: padded frames that go through the model at once.

        Returns:
            For each matrix float32 [hop_length * T] on the model's device; empty for no frames.

        Raises:
            InvalidSpecError: a matrix is not of integers, has another number of rows than the
                codec has codebooks, or holds a negative code.
        """
        for matrix in codes:
            _check_codes(matrix, self.config.num_codebooks)
        hop = self.config.hop_length
        lengths = [matrix.shape[1] for matrix in codes]
        empty = torch.empty(0, dtype=torch.float32, device=self.device)
        audio: list[Tensor] = [empty] * len(lengths)
        spoken = [index for index, length in enumerate(lengths) if length]
        for group in group_by_length([lengths[index] for index in spoken], max_batch_frames):
            indices = [spoken[member] for member in group]
            batch = self._decode_batch([codes[index] for index in indices], lengths[indices[0]])
            for row, index in enumerate(indices):
                audio[index] = batch[row, : hop * lengths[index]]
        return audio

    def _decode_batch(self, codes: Sequence[Tensor], length: int) -> Tensor:
        moved = [matrix.to(self.device, torch.int64) for matrix in codes]
        wave: Tensor = self.decoder(self.quantizer(pad_right(moved, length)))
        return wave[:, 0].float()


def _check_codes(codes: Tensor, num_codebooks: int) -> None:
    integers = not (codes.is_floating_point() or codes.is_complex() or codes.dtype is torch.bool)
    if not integers or codes.dim() != 2 or codes.shape[0] != num_codebooks:
        raise InvalidSpecError(
            f"Codes must be integers of shape ({num_codebooks}, frames), not {codes.dtype} of "
            f"shape {tuple(codes.shape)}."
        )
    if codes.numel() and int(codes.to(torch.int64).min()) < 0:
        raise InvalidSpecError("Codes must not be negative; these hold one that is.")
