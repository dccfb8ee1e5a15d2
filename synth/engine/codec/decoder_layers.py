"""Build the decoder's stages: codes to latents in context, and latents to samples."""

from __future__ import annotations

from torch import Tensor, nn

from synth.engine.codec.config import CodecConfig
from synth.engine.codec.layers import (
    CausalConv1d,
    CausalConvTranspose1d,
    ConvNeXtBlock,
)
from synth.engine.codec.quantizer import residual_stack, semantic_stack
from synth.engine.codec.residual import Snake, residual_units
from synth.engine.codec.transformer import WindowedTransformer


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
        y: Tensor = self.upsample(self.post_module(self.lookup(codes)))
        return y

    def lookup(self, codes: Tensor) -> Tensor:
        """Return the sum of the codes' vectors, [B, latent_dim, T]; each frame is on its own."""
        return self.semantic_quantizer.decode(codes[:, :1]) + self.quantizer.decode(codes[:, 1:])
