"""Test that codec_config.json is taken where it is free and held to the tensors where not."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from synth.engine.codec.config import CodecConfig
from synth.engine.codec.files.config_file import apply_config_file
from synth.engine.errors import CheckpointError


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
