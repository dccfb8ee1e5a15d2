"""Test that sizes are read off the tensors' shapes."""

from __future__ import annotations

import pytest

from lab.golden.case import GoldenFolder
from synth.engine.codec.config import CodecConfig, config_from_shapes
from synth.engine.codec.files.codec_file import expected_shapes, open_codec
from synth.engine.errors import CheckpointError
from tests.synth.engine.codec.conftest import make_config


def test_sizes_read_from_shapes_are_those_the_shapes_were_made_from(config: CodecConfig) -> None:
    assert config_from_shapes(expected_shapes(config)) == config


def test_topology_may_differ_in_strides_layers_and_codebooks() -> None:
    other = make_config(
        encoder_strides=(2, 4),
        decoder_rates=(2, 2, 3),
        downsample_factors=(3,),
        upsample_factors=(2,),
        num_residual_codebooks=1,
        encoder_dim=8,
    )

    assert config_from_shapes(expected_shapes(other)) == other


def test_one_misshapen_tensor_does_not_change_a_size_that_others_show(config: CodecConfig) -> None:
    shapes = expected_shapes(config)
    for name in (
        "quantizer.pre_module.layers.0.ffn_norm.weight",
        "quantizer.quantizer.quantizers.0.codebook.weight",
        "encoder.block.0.conv.bias",
        "decoder.model.0.conv.parametrizations.weight.original1",
    ):
        first, *rest = shapes[name]

        damaged = {**shapes, name: (first + 64, *rest)}

        assert config_from_shapes(damaged) == config


def test_a_size_that_no_tensor_shows_is_refused_by_the_tensors_name(config: CodecConfig) -> None:
    shapes = dict(expected_shapes(config))
    del shapes["quantizer.semantic_quantizer.quantizers.0.codebook.weight"]

    with pytest.raises(CheckpointError, match=r"semantic_quantizer\.quantizers\.0\.codebook"):
        config_from_shapes(shapes)


def test_halves_that_work_at_different_hops_are_refused() -> None:
    shapes = expected_shapes(make_config(decoder_rates=(8, 8, 4, 4)))

    with pytest.raises(CheckpointError, match="2048 samples a frame"):
        config_from_shapes(shapes)


def test_an_odd_kernel_of_a_resampling_convolution_is_refused(config: CodecConfig) -> None:
    shapes = dict(expected_shapes(config))
    name = "encoder.block.1.block.4.conv.parametrizations.weight.original1"
    shapes[name] = (*shapes[name][:2], 5)

    with pytest.raises(CheckpointError, match=r"encoder\.block\.1\.block\.4"):
        config_from_shapes(shapes)


def test_golden_codec_has_a_hop_of_2048_and_ten_codebooks(golden: GoldenFolder) -> None:
    config = open_codec(golden.checkpoint).config

    assert (config.hop_length, config.num_codebooks) == (2048, 10)
    assert config.encoder_transformer.window == 512
    assert config.pre_module.window == config.post_module.window == 128
