"""Test the encoding half: frames, batches, prefixes and what it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from synth.engine.codec.encoder import CodecEncoder
from synth.engine.codec.load import load_encoder
from synth.engine.errors import ReferenceAudioError
from tests.synth.engine.codec.conftest import make_config, random_state


@pytest.fixture
def encoder(checkpoint: Path) -> CodecEncoder:
    """Return the small codec's encoding half."""
    return load_encoder(checkpoint, "cpu")


def noise(num_samples: int, seed: int = 3) -> Tensor:
    """Return noise with a swell, so that frames differ."""
    generator = torch.Generator().manual_seed(seed)
    swell = 0.1 + torch.linspace(0, 9, num_samples).sin().abs()
    return torch.randn(num_samples, generator=generator) * 0.3 * swell


@pytest.mark.parametrize(
    ("samples", "frames"), [(1, 1), (2047, 1), (2048, 1), (2049, 2), (9000, 5)]
)
def test_one_frame_for_each_hop_begun(encoder: CodecEncoder, samples: int, frames: int) -> None:
    (codes,) = encoder.encode([noise(samples)])

    assert codes.shape == (4, frames)
    assert codes.dtype is torch.int64
    assert int(codes.min()) >= 0 and int(codes[0].max()) < 50 and int(codes[1:].max()) < 30


@pytest.mark.parametrize("limit", [1, 20000, 1 << 22])
def test_a_batch_of_different_lengths_gives_the_codes_of_single_runs(
    golden_encoder: CodecEncoder, limit: int
) -> None:
    waveforms = [noise(n, seed=n) for n in (9000, 2048, 700, 30000, 9001)]

    batch = golden_encoder.encode(waveforms, max_batch_samples=limit)

    for waveform, codes in zip(waveforms, batch, strict=True):
        assert torch.equal(codes, golden_encoder.encode([waveform])[0])


def test_a_prefix_of_whole_frames_gives_the_prefix_of_the_codes(
    golden_encoder: CodecEncoder,
) -> None:
    waveform = noise(40 * 2048)

    whole, part = golden_encoder.encode([waveform, waveform[: 17 * 2048]])

    assert torch.equal(whole[:, :17], part)


def test_no_waveforms_give_no_codes(encoder: CodecEncoder) -> None:
    assert encoder.encode([]) == []


@pytest.mark.parametrize(
    ("waveform", "words"),
    [
        (torch.zeros(0), "no samples"),
        (torch.tensor([0.0, torch.nan]), "not finite"),
        (torch.tensor([0.0, torch.inf]), "not finite"),
        (torch.zeros(2, 100), "one axis"),
        (torch.zeros(100, dtype=torch.int16), "one axis of floats"),
    ],
)
def test_a_waveform_that_is_none_is_refused(
    encoder: CodecEncoder, waveform: Tensor, words: str
) -> None:
    with pytest.raises(ReferenceAudioError, match=words):
        encoder.encode([noise(100), waveform])


def test_silence_has_codes(encoder: CodecEncoder) -> None:
    (codes,) = encoder.encode([torch.zeros(5000)])

    assert codes.shape == (4, 3)


def test_bfloat16_encodes_and_changes_some_codes(golden_checkpoint: Path) -> None:
    waveform = noise(40 * 2048)
    full = load_encoder(golden_checkpoint, "cpu").encode([waveform])[0]

    half = load_encoder(golden_checkpoint, "cpu", torch.bfloat16).encode([waveform])[0]

    assert half.shape == full.shape
    assert 0 < (half != full).float().mean() < 1


def test_encoding_leaves_no_gradient_and_no_change(encoder: CodecEncoder) -> None:
    before = {name: value.clone() for name, value in encoder.state_dict().items()}

    encoder.encode([noise(4000)])

    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    after = encoder.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_a_wide_transformer_and_other_strides_work(write_codec: Callable[..., Path]) -> None:
    config = make_config(
        encoder_strides=(2, 4),
        decoder_rates=(4, 4),
        downsample_factors=(2,),
        upsample_factors=(1,),
        encoder_dim=8,
    )
    other = load_encoder(write_codec(random_state(config)), "cpu")

    (codes,) = other.encode([noise(33)])

    assert codes.shape == (4, math.ceil(33 / 16))
