"""Build the stages of the codec's encoding half, under the names that its file gives them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from synth.engine.codec.config import CodecConfig
from synth.engine.codec.layers import CausalConv1d, ConvNeXtBlock
from synth.engine.codec.quantizer import residual_stack, semantic_stack
from synth.engine.codec.residual import Snake, residual_units
from synth.engine.codec.transformer import WindowedTransformer


class EncoderBlock(nn.Module):
    """Refine at one width, then double the width and shorten by `stride`."""

    def __init__(self, dim: int, stride: int, *tail: nn.Module) -> None:
        super().__init__()
        widen = CausalConv1d(dim, 2 * dim, 2 * stride, stride=stride)
        self.block = nn.Sequential(*residual_units(dim), Snake(dim), widen, *tail)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, dim, T] to [B, 2 dim, T / stride]."""
        y: Tensor = self.block(x)
        return y


class WaveEncoder(nn.Module):
    """Map samples to latents, four for each frame of codes at full size."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        dim = config.encoder_dim
        blocks: list[nn.Module] = [CausalConv1d(1, dim, 7)]
        last = len(config.encoder_strides) - 1
        for index, stride in enumerate(config.encoder_strides):
            tail = [WindowedTransformer(config.encoder_transformer)] if index == last else []
            blocks.append(EncoderBlock(dim, stride, *tail))
            dim *= 2
        self.block = nn.Sequential(*blocks, Snake(dim), CausalConv1d(dim, config.latent_dim, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, 1, N] to [B, latent_dim, N / prod(strides)]."""
        y: Tensor = self.block(x)
        return y


class EncodingQuantizer(nn.Module):
    """Shorten latents to the frame rate, put them in context, and choose the codes."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        dim = config.latent_dim
        self.downsample = nn.Sequential(
            *(
                nn.Sequential(
                    CausalConv1d(dim, dim, factor, stride=factor, weight_norm=None),
                    ConvNeXtBlock(dim),
                )
                for factor in config.downsample_factors
            )
        )
        self.pre_module = WindowedTransformer(config.pre_module)
        self.semantic_quantizer = semantic_stack(config)
        self.quantizer = residual_stack(config)

    def forward(self, latents: Tensor) -> Tensor:
        """Map [B, latent_dim, S] to codes, int64 [B, K, T]."""
        return self.choose(self.pre_module(self.downsample(latents)))

    def choose(self, z: Tensor) -> Tensor:
        """Return the codes of latents in context [B, latent_dim, T]; each frame is on its own."""
        semantic_codes, semantic = self.semantic_quantizer.encode(z)
        residual_codes, _ = self.quantizer.encode(z - semantic)
        return torch.cat((semantic_codes, residual_codes), dim=1)
