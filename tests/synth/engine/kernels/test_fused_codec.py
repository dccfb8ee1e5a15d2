"""Test that a codec half with kernels computes the numbers of the plain one."""

from __future__ import annotations

import copy
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("triton", reason="triton is not installed")

from synth.engine.codec.config import CodecConfig, TransformerConfig
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.codec.load import use_kernels, uses_kernels
from synth.engine.codec.streams import CodecStream, decode_streams

Half = TypeVar("Half", bound=nn.Module)
CONFIG = CodecConfig(
    sample_rate=44100,
    latent_dim=8,
    encoder_dim=2,
    encoder_strides=(2, 4, 8),
    decoder_dim=24,
    decoder_rates=(8, 4, 2),
    downsample_factors=(2,),
    upsample_factors=(2,),
    codebook_dim=5,
    semantic_codebook_size=50,
    residual_codebook_size=30,
    num_residual_codebooks=2,
    encoder_transformer=TransformerConfig(16, 1, 1, 20, 64),
    pre_module=TransformerConfig(8, 1, 1, 12, 16),
    post_module=TransformerConfig(8, 2, 1, 12, 16),
)


def pair(half_type: type[Half], device: torch.device, dtype: torch.dtype) -> tuple[Half, Half]:
    """Return a half with random weights, without kernels and with them."""
    generator = torch.Generator().manual_seed(5)
    plain = half_type(CONFIG).requires_grad_(False).eval()
    for name, weight in plain.named_parameters():
        fan_in = weight[0].numel() if weight.dim() > 1 else 100
        weight.normal_(std=0.6 * fan_in**-0.5, generator=generator)
        weight.add_(1.0 if name.endswith(("alpha", "norm.weight")) else 0.0)
    plain = plain.to(device, dtype)
    return plain, use_kernels(copy.deepcopy(plain))


def some_codes(frames: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 30, (3, frames), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.bfloat16, 0.03)])
def test_a_decoder_gives_the_same_audio(
    device: torch.device, dtype: torch.dtype, close: float
) -> None:
    plain, fused = pair(CodecDecoder, device, dtype)
    codes = [some_codes(9), some_codes(4, seed=1)]

    found, expected = fused.decode(codes), plain.decode(codes)

    assert uses_kernels(fused) and not uses_kernels(plain)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=close, rtol=0)
    assert torch.cat(expected).std() > 0.02


@pytest.mark.thorough
def test_an_encoder_gives_the_same_latents(device: torch.device) -> None:
    plain, fused = pair(CodecEncoder, device, torch.float32)
    wave = torch.randn(1, 1, 128 * 5, generator=torch.Generator().manual_seed(1)).to(device)

    found, expected = fused.encoder(wave), plain.encoder(wave)

    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    (codes,) = plain.encode([wave[0, 0]])
    for piece in (1, 2, 5):  # the last one takes the whole
        assert torch.equal(fused.encode([wave[0, 0]], max_batch_frames=piece)[0], codes)


@pytest.mark.thorough
def test_chunks_of_streams_give_the_audio_of_the_whole(device: torch.device) -> None:
    plain, fused = pair(CodecDecoder, device, torch.float32)
    codes = [some_codes(20), some_codes(20, seed=1)]
    streams = [CodecStream(fused), CodecStream(fused)]
    parts: list[list[Tensor]] = [[], []]

    for start, stop in ((0, 1), (1, 3), (3, 11), (11, 20)):
        chunks = [matrix[:, start:stop] for matrix in codes]
        for kept, wave in zip(parts, decode_streams(streams, chunks), strict=True):
            kept.append(wave)

    for kept, matrix in zip(parts, codes, strict=True):
        (whole,) = plain.decode([matrix])
        torch.testing.assert_close(torch.cat(kept), whole, atol=1e-5, rtol=0)
