"""Test that sizes are read off the tensors' shapes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from lab.golden.case import GoldenFolder
from synth.engine.codec.codec_file import expected_shapes, open_codec
from synth.engine.codec.config import CodecConfig, apply_config_file, config_from_shapes
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


def described(config: CodecConfig) -> dict[str, Any]:
    """Return the file that describes `config`."""
    modules = {
        name: {
            "window_size": module.window,
            "input_dim": module.dim,
            "config": {
                "n_layer": module.num_layers,
                "n_head": module.num_heads,
                "dim": module.dim,
                "intermediate_size": module.ffn_dim,
                "head_dim": 64,
            },
        }
        for name, module in (("pre_module", config.pre_module), ("post_module", config.post_module))
    }
    return {
        "sample_rate": config.sample_rate,
        "encoder_dim": config.encoder_dim,
        "encoder_rates": list(config.encoder_strides),
        "decoder_dim": config.decoder_dim,
        "decoder_rates": list(config.decoder_rates),
        "encoder_transformer_layers": [0, 0, 0, config.encoder_transformer.num_layers],
        "decoder_transformer_layers": [4, 0, 0, 0],
        "quantizer": {
            "input_dim": config.latent_dim,
            "n_codebooks": config.num_residual_codebooks,
            "codebook_size": config.residual_codebook_size,
            "codebook_dim": config.codebook_dim,
            "semantic_codebook_size": config.semantic_codebook_size,
            "downsample_factor": list(config.downsample_factors),
            **modules,
        },
    }


def paths_of(value: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the path of every number and list in a nested description."""
    if not isinstance(value, dict):
        return [at]
    return [path for key, inner in value.items() for path in paths_of(inner, (*at, key))]


def changed(value: dict[str, Any], path: tuple[str, ...], new: object) -> dict[str, Any]:
    """Return a copy of a nested description with one field changed."""
    copied = copy.deepcopy(value)
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return copied


def write(folder: Path, content: object) -> None:
    """Write codec_config.json."""
    (folder / "codec_config.json").write_text(json.dumps(content), encoding="utf-8")


def test_without_a_file_the_sizes_stay(config: CodecConfig, tmp_path: Path) -> None:
    assert apply_config_file(config, tmp_path) == config


def test_a_file_that_agrees_changes_nothing(config: CodecConfig, tmp_path: Path) -> None:
    write(tmp_path, described(config))
    assert apply_config_file(config, tmp_path) == config


def test_windows_and_sample_rate_come_from_the_file(config: CodecConfig, tmp_path: Path) -> None:
    content = changed(described(config), ("sample_rate",), 24000)
    content = changed(content, ("quantizer", "pre_module", "window_size"), 7)
    content = changed(content, ("quantizer", "post_module", "window_size"), 9)
    write(tmp_path, content)

    applied = apply_config_file(config, tmp_path)

    assert applied.sample_rate == 24000
    assert (applied.pre_module.window, applied.post_module.window) == (7, 9)


def test_every_field_that_contradicts_the_tensors_is_refused_by_name(
    config: CodecConfig, tmp_path: Path
) -> None:
    free = {("decoder_transformer_layers",), ("sample_rate",)}
    content = described(config)
    fields = [p for p in paths_of(content) if p not in free and p[-1] != "window_size"]
    assert len(fields) >= 22

    for path in fields:
        write(tmp_path, changed(content, path, 999))

        with pytest.raises(CheckpointError, match=rf"\b{path[-1]} is 999"):
            apply_config_file(config, tmp_path)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "128", None, True])
def test_a_window_that_is_no_count_is_refused(
    config: CodecConfig, tmp_path: Path, wrong: object
) -> None:
    write(tmp_path, changed(described(config), ("quantizer", "pre_module", "window_size"), wrong))
    with pytest.raises(CheckpointError, match=r"pre_module\.window_size"):
        apply_config_file(config, tmp_path)


def test_an_unknown_field_is_refused_and_not_ignored(config: CodecConfig, tmp_path: Path) -> None:
    write(tmp_path, described(config) | {"sliding_window": 3})
    with pytest.raises(CheckpointError, match="sliding_window"):
        apply_config_file(config, tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"quantizer": 3}', "\x00"])
def test_a_file_that_is_no_object_is_refused(
    config: CodecConfig, tmp_path: Path, text: str
) -> None:
    (tmp_path / "codec_config.json").write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"codec_config\.json"):
        apply_config_file(config, tmp_path)
