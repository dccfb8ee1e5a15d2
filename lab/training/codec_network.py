"""Build the engine's own codec halves with weights that learn."""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import Tensor, nn

from lab.training.codebooks import CODE_DIM, Book
from lab.training.latents import LATENT_DIM
from lab.training.sound.targets import NUM_TARGETS
from synth.engine.codec.config import (
    ENCODER_WINDOW,
    MODULE_WINDOW,
    CodecConfig,
    TransformerConfig,
)
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.codec.layers import NormedConv1d, NormedConvTranspose1d, Pointwise, Snake

SAMPLE_RATE = 16000
HEADS = 2  # of 64 numbers each, in every transformer of the codec
_FFN = 256
Half = TypeVar("Half", bound=nn.Module)
_FIRST_GAIN = 8.0  # speech of 0.1 becomes about 1, where Snake is no longer a straight line


def codec_config(
    *, num_books: int, book_size: int, decoder_dim: int = 192, layers: int = 4
) -> CodecConfig:
    """Return the sizes of the demo's codec: a code frame is 640 samples, 40 ms.

    Most of the decoder works at 20 positions a frame, before the layers of the waveform.
    """

    def transformer(count: int, window: int) -> TransformerConfig:
        return TransformerConfig(LATENT_DIM, count, HEADS, _FFN, window)

    return CodecConfig(
        sample_rate=SAMPLE_RATE,
        latent_dim=LATENT_DIM,
        encoder_dim=8,
        encoder_strides=(2, 4, 4, 5),
        decoder_dim=decoder_dim,
        decoder_rates=(4, 4, 2),
        downsample_factors=(2, 2),
        upsample_factors=(2, 2, 5, 1, 1, 1),
        codebook_dim=CODE_DIM,
        semantic_codebook_size=book_size,
        residual_codebook_size=book_size,
        num_residual_codebooks=num_books - 1,
        encoder_transformer=transformer(layers, ENCODER_WINDOW),
        pre_module=transformer(2 * layers, MODULE_WINDOW),
        post_module=transformer(layers, MODULE_WINDOW),
    )


def build_encoder(config: CodecConfig) -> CodecEncoder:
    """Return an encoder with random weights that keep the signal's size from layer to layer."""
    encoder = CodecEncoder(config)
    _draw_weights(encoder)
    return swap_snakes(encoder)


class TaughtDecoder(nn.Module):
    """Hold a decoder, and what it is taught with beside.

    `reader` reads numbers off the latents that the layers of the waveform are given, and `head` a
    waveform. Neither is exported.
    """

    def __init__(self, config: CodecConfig, books: list[Book]) -> None:
        super().__init__()
        self.decoder = build_decoder(config)
        set_books(self.decoder, books)
        self.positions = math.prod(config.upsample_factors)  # of latents in a frame
        self._hop = math.prod(config.decoder_rates)
        self.reader = nn.Linear(LATENT_DIM, NUM_TARGETS)
        # Windows that overlap, as a spectrum's inverse has them.
        self.head = nn.ConvTranspose1d(LATENT_DIM, 1, 4 * self._hop, stride=self._hop)
        nn.init.normal_(self.head.weight, std=0.002)
        nn.init.zeros_(self.head.bias)  # type: ignore[arg-type]

    def read(self, latents: Tensor) -> Tensor:
        """Return what is read of latents [B, LATENT_DIM, N], [B, N, NUM_TARGETS]."""
        read: Tensor = self.reader(latents.transpose(1, 2).float())
        return read

    def listen(self, latents: Tensor) -> Tensor:
        """Return the waveform that the head makes of latents [B, LATENT_DIM, N], [B, hop N]."""
        wave: Tensor = self.head(latents)[:, 0, : latents.shape[-1] * self._hop]
        return wave

    def speak(self, latents: Tensor) -> Tensor:
        """Return the decoder's waveform of latents [B, LATENT_DIM, N], [B, hop N]."""
        wave: Tensor = self.decoder.decoder(latents)[:, 0]
        return wave


def build_decoder(config: CodecConfig) -> CodecDecoder:
    """Return a decoder, as `build_encoder`."""
    decoder = CodecDecoder(config)
    _draw_weights(decoder)
    return swap_snakes(decoder)


def set_books(half: CodecEncoder | CodecDecoder, books: list[Book]) -> None:
    """Put fitted codebooks into a half and keep training away from them."""
    steps = [*half.quantizer.semantic_quantizer.quantizers, *half.quantizer.quantizer.quantizers]
    with torch.no_grad():
        for step, book in zip(steps, books, strict=True):
            step.codebook.weight.copy_(book.rows)
            step.in_proj.weight.copy_(book.in_weight[..., None])
            step.in_proj.bias.copy_(book.in_bias)
            step.out_proj.weight.copy_(book.out_weight[..., None])
            step.out_proj.bias.copy_(book.out_bias)
            step.requires_grad_(False)


class _SnakeFunction(torch.autograd.Function):
    """Compute Snake and its gradient keeping only the input, which halves the time on a CPU."""

    @staticmethod
    def forward(ctx, x: Tensor, alpha: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, alpha)
        return x + torch.sin(alpha * x).square_() / (alpha + 1e-9)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[no-untyped-def]
        x, alpha = ctx.saved_tensors
        twice = (2 * alpha) * x
        slope = torch.sin(twice)
        square = twice.cos_().mul_(-0.5).add_(0.5)
        by_alpha = (grad * (x * slope - square / (alpha + 1e-9))).sum((0, 2), keepdim=True)
        return slope.add_(1).mul_(grad), by_alpha / (alpha + 1e-9)


class TrainedSnake(Pointwise):
    """Do what the engine's Snake does, with a gradient; the engine's works in place."""

    def __init__(self, alpha: nn.Parameter) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, dim, T] to the same shape."""
        y: Tensor = _SnakeFunction.apply(x, self.alpha)  # type: ignore[no-untyped-call]
        return y


def swap_snakes(half: Half) -> Half:
    """Replace every Snake of a module by one that learns; names of weights stay."""
    for module in list(half.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Snake):
                setattr(module, name, TrainedSnake(child.alpha))
    return half


@torch.no_grad()
def _draw_weights(half: nn.Module) -> None:
    """Draw first weights; torch's own shrink the signal by a third in each of twenty layers."""
    for name, module in half.named_modules():
        if isinstance(module, NormedConv1d | NormedConvTranspose1d):
            stride = module.stride[0] if isinstance(module, NormedConvTranspose1d) else 1
            fan_in = module.in_channels // module.groups * module.kernel_size[0] / stride
            nn.init.normal_(module.weight, std=_gain(name, module) / math.sqrt(fan_in))
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, Snake):
            module.alpha.copy_(torch.empty_like(module.alpha).uniform_(-0.7, 1.2).exp())
    for name, weight in half.named_parameters():
        if name.endswith(".gamma"):
            weight.fill_(0.1)
        elif name.endswith(("norm.weight",)):
            weight.fill_(1.0)


def _gain(name: str, module: nn.Conv1d | nn.ConvTranspose1d) -> float:
    if module.in_channels == 1:
        return _FIRST_GAIN
    if module.out_channels == 1:
        return 0.003  # the waveform begins as a whisper
    return 0.5 if name.endswith("block.3.conv") and module.kernel_size[0] == 1 else 1.0
