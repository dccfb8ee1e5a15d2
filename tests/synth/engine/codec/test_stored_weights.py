"""Test which tensors a half takes from a file, at full size too, and how norms are folded."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from synth.engine.codec.config import CodecConfig, TransformerConfig
from synth.engine.codec.decoder import CodecDecoder
from synth.engine.codec.encoder import CodecEncoder
from synth.engine.codec.files.codec_file import expected_shapes
from synth.engine.codec.files.load import load_encoder
from synth.engine.codec.files.stored_weights import folded_weights, stored_shapes
from synth.engine.codec.layers import CausalConv1d, CausalConvTranspose1d
from synth.engine.codec.quantizer import VectorQuantizer
from synth.engine.errors import CheckpointError
from tests.synth.engine.codec.conftest import State

FULL_SIZE = CodecConfig(
    sample_rate=44100,
    latent_dim=1024,
    encoder_dim=64,
    encoder_strides=(2, 4, 8, 8),
    decoder_dim=1536,
    decoder_rates=(8, 8, 4, 2),
    downsample_factors=(2, 2),
    upsample_factors=(2, 2),
    codebook_dim=8,
    semantic_codebook_size=4096,
    residual_codebook_size=1024,
    num_residual_codebooks=9,
    encoder_transformer=TransformerConfig(1024, 4, 16, 3072, 512),
    pre_module=TransformerConfig(1024, 8, 16, 3072, 128),
    post_module=TransformerConfig(1024, 8, 16, 3072, 128),
)


@pytest.mark.parametrize(
    ("half_type", "num_parameters"), [(CodecEncoder, 207_234_336), (CodecDecoder, 184_487_170)]
)
def test_a_full_size_half_takes_only_its_own_parameters(
    half_type: type[nn.Module], num_parameters: int
) -> None:
    with torch.device("meta"):
        half = half_type(FULL_SIZE)

    stored = stored_shapes(half)

    assert sum(math.prod(shape) for shape in stored.values()) == num_parameters
    # What the half holds once norms are folded is that less one number for each folded row.
    norms = [n for n in stored if n.endswith(("weight_g", "weight.original0"))]
    folded = sum(math.prod(stored[name]) for name in norms)
    assert sum(p.numel() for p in half.parameters()) == num_parameters - folded
    assert all(p.is_meta for p in half.parameters())
    assert not list(half.buffers())


def test_a_full_size_file_has_535_tensors_and_80_norms() -> None:
    shapes = expected_shapes(FULL_SIZE)

    assert len(shapes) == 535
    assert sum(math.prod(shape) for shape in shapes.values()) == 391_430_530
    assert sum(name.endswith(("weight_g", "weight.original0")) for name in shapes) == 80


def test_halves_share_the_quantizers_and_nothing_else(config: CodecConfig) -> None:
    with torch.device("meta"):
        shared = stored_shapes(CodecEncoder(config)).keys() & stored_shapes(CodecDecoder(config))

    assert shared
    assert all(
        name.startswith(("quantizer.semantic_quantizer.", "quantizer.quantizer."))
        for name in shared
    )


@pytest.mark.parametrize(
    ("module", "norm", "direction"),
    [
        (
            CausalConv1d(3, 5, 7),
            "conv.parametrizations.weight.original0",
            "conv.parametrizations.weight.original1",
        ),
        (
            CausalConvTranspose1d(3, 5, 4, stride=2),
            "conv.parametrizations.weight.original0",
            "conv.parametrizations.weight.original1",
        ),
        (VectorQuantizer(6, 2, 9), "in_proj.weight_g", "in_proj.weight_v"),
    ],
)
def test_both_spellings_fold_over_all_axes_but_the_first(
    module: nn.Module, norm: str, direction: str
) -> None:
    stored = {name: torch.randn(shape) for name, shape in stored_shapes(module).items()}

    folded = dict(folded_weights(module, stored))

    weight = folded[f"{norm.partition('.')[0]}.weight"]
    assert folded.keys() == dict(module.named_parameters()).keys()
    expected = torch._weight_norm(stored[direction], stored[norm], 0)
    torch.testing.assert_close(weight, expected)
    assert weight.shape == stored[direction].shape


def test_float16_is_widened_before_it_is_folded() -> None:
    module = CausalConv1d(3, 5, 7)
    stored = {name: torch.randn(s).half() for name, s in stored_shapes(module).items()}

    narrow = dict(folded_weights(module, stored))
    wide = dict(folded_weights(module, {name: t.float() for name, t in stored.items()}))

    assert all(weight.dtype is torch.float32 for weight in narrow.values())
    assert all(torch.equal(narrow[name], wide[name]) for name in wide)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_weight_that_is_not_finite_is_named(checkpoint: Path, state: State, value: float) -> None:
    name = "quantizer.pre_module.layers.0.attention.wo.weight"
    state[name][0, 0] = value
    torch.save(state, checkpoint / "codec.pth")

    with pytest.raises(CheckpointError, match=rf"{name} .* not finite"):
        load_encoder(checkpoint, "cpu")


def test_a_filter_of_zeros_is_named_and_not_divided_by(checkpoint: Path, state: State) -> None:
    name = "encoder.block.0.conv.parametrizations.weight.original1"
    state[name][1] = 0
    torch.save(state, checkpoint / "codec.pth")

    with pytest.raises(CheckpointError, match=name):
        load_encoder(checkpoint, "cpu")
